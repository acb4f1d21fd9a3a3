"""What commands on a deployment's folder share: opening it, its columns, and where outputs may go."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from expunge.cli.app import Interrupted
from expunge.cli.output import console, show_json
from expunge.errors import InputError

if TYPE_CHECKING:
    from expunge.deployment import Receipt
    from expunge.durable import DurableDeployment
    from expunge.tables import Schema, Table


@contextmanager
def opened(
    folder: Path, *, trust: Sequence[str] | None = None, jobs: int | None = None, apply_pending: bool = True
) -> Iterator[DurableDeployment]:
    """The deployment, for writing; closed whatever happens."""
    import expunge
    from expunge.cli.learning import importable_from_here

    if trust:
        importable_from_here()
    try:
        with expunge.open(folder, trust=tuple(trust or ()), n_jobs=jobs, apply_pending=apply_pending) as deployment:
            yield deployment
    except KeyboardInterrupt:
        raise Interrupted("interrupted; what was accepted is kept, and the next command goes on with it") from None


@contextmanager
def replacing(folder: Path, *, force: bool) -> Iterator[None]:
    """A vacant place for a new deployment; what fails or is interrupted leaves it as it was.

    With `force` an old deployment is set aside, and removed once the new one is there. Nothing but a deployment that no
    other process has open is ever removed.
    """
    is_vacant = not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))
    if not is_vacant and not force:
        raise InputError(f"{folder} exists already; choose another folder, or replace what is in it with --force")
    aside = None if is_vacant else _set_aside(folder)
    try:
        yield
    except BaseException as error:
        if aside is not None and not folder.exists():
            aside.rename(folder)
        if isinstance(error, KeyboardInterrupt):
            raise Interrupted("interrupted; nothing was created") from None
        raise
    if aside is not None:
        shutil.rmtree(aside)


def _set_aside(folder: Path) -> Path:
    from expunge.store import Store

    Store.open(folder).close()  # refuses what is no deployment, and one that another process has open
    absolute = folder.absolute()
    return absolute.rename(absolute.with_name(f".{absolute.name}.{secrets.token_hex(4)}.old"))


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


def show_receipt(receipt: Receipt, folder: Path, *, as_json: bool) -> None:
    """What a requester may be told: the request and its state."""
    if as_json:
        show_json({"request": receipt.request, "state": receipt.state})
        return
    console.print(f"Request {receipt.request}: {receipt.state}.", markup=False, soft_wrap=True)
    if receipt.state == "pending":
        console.print(f"It is kept and waits for its batch; `expunge apply {folder}` applies it now.", soft_wrap=True)
