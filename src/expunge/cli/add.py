"""`expunge add`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from expunge.cli.app import app
from expunge.cli.folders import opened, read_columns, schema_of
from expunge.cli.options import AsJson, Folder, Jobs, Key, Trust, When
from expunge.cli.requests import ask, show_receipt
from expunge.errors import InputError

if TYPE_CHECKING:
    from expunge.tables import Schema


@app.command()
def add(
    folder: Folder,
    data: Annotated[Path, typer.Option(metavar="FILE", help="The records: CSV, Parquet or NPZ.", show_default=False)],
    id: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The ids, if the deployment was created without a column.")
    ] = None,
    readmit: Annotated[
        bool, typer.Option("--readmit", help="Let records come back that were deleted on request.")
    ] = False,
    key: Key = None,
    when: When = None,
    jobs: Jobs = None,
    trust: Trust = None,
    as_json: AsJson = False,
) -> None:
    """Add the records of a file, with the columns of the first file in any order, as one request, all or nothing.

    Example: `expunge add churn/ --data more.csv`
    """
    from expunge.records import AddMany

    with opened(folder, trust=trust, jobs=jobs) as deployment:
        schema = _with_ids(schema_of(deployment, folder), id, folder)
        records = schema.labelled(read_columns(data, schema), deployment.classes, recalls=deployment.recalls)
        assert records.ids is not None
        batch = AddMany(
            ids=records.ids,
            features=records.features,
            labels=records.labels,
            subjects=records.subjects,  # type: ignore[arg-type]
            weights=records.weights,
        )
        request = ask(deployment, [batch], key=key, readmit=readmit, when=when, words="adding", as_json=as_json)
    show_receipt(request, folder, as_json=as_json)


def _with_ids(schema: Schema, id: str | None, folder: Path) -> Schema:
    if schema.id is not None:
        if id not in (None, schema.id):
            raise InputError(f"the ids of {folder} are in column {schema.id!r}, not {id!r}")
        return schema
    if id is None:
        raise InputError(
            f"{folder} was created without an id column: say with --id which column numbers the new records"
        )
    return replace(schema, id=id)
