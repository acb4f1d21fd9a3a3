"""What commands on a deployment's folder share: opening it, its columns, and where outputs may go."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from expunge.cli.app import Interrupted
from expunge.cli.exchange import settle
from expunge.errors import InputError

if TYPE_CHECKING:
    from expunge.durable import DurableDeployment
    from expunge.tables import Schema, Table


@contextmanager
def opened(folder: Path, *, trust: Sequence[str] | None = None, jobs: int | None = None) -> Iterator[DurableDeployment]:
    """The deployment, for writing; closed whatever happens. What is pending stays so: a command says when it is due."""
    import expunge
    from expunge.cli.learning import importable_from_here

    if trust:
        importable_from_here()
    settle(folder)
    try:
        with expunge.open(folder, trust=tuple(trust or ()), n_jobs=jobs, apply_pending=False) as deployment:
            yield deployment
    except KeyboardInterrupt:
        raise Interrupted("interrupted; what was accepted is kept") from None


def schema_of(deployment: DurableDeployment, folder: Path) -> Schema:
    """The columns of the file that the deployment was created from."""
    from expunge.tables import Schema

    stored = (deployment.provenance or {}).get("columns")
    if stored is None:
        raise InputError(f"{folder} was not created by `expunge create`: it has no column names; use it from Python")
    return Schema.from_dict(stored)


def read_columns(path: Path, schema: Schema) -> Table:
    """A later file of the deployment, its ids, labels and texts taken as text."""
    from expunge.tables import read_table

    texts = [feature.name for feature in schema.features if feature.kind == "text"]
    return read_table(path, as_text=list(schema.roles.values()), text_features=texts)


def refuse_inside(folder: Path, *outputs: Path | None) -> None:
    """Nothing of ours may be written into the folder: it is swept, and must hold nothing about deleted people."""
    home = folder.resolve()
    for output in outputs:
        if output is not None and home in output.resolve().parents:
            raise InputError(f"{str(output)!r} lies in the deployment's folder; write it elsewhere")


def refuse_same(data: Path, output: Path | None) -> None:
    """What is asked is not replaced by the answers."""
    if output is not None and output.exists() and data.exists() and output.samefile(data):
        raise InputError(f"{str(output)!r} is the file that is read; write elsewhere")
