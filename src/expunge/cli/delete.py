"""`expunge delete`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from expunge.cli.app import app
from expunge.cli.folders import opened, schema_of
from expunge.cli.options import AsJson, Folder, Jobs, Key, Trust, When
from expunge.cli.requests import ask, show_receipt
from expunge.errors import InputError, UnknownRecordError

if TYPE_CHECKING:
    from expunge.records import Records, Update
    from expunge.tables.keys import KeyKind


@app.command()
def delete(
    folder: Folder,
    id: Annotated[list[str] | None, typer.Option(metavar="ID", help="A record's id; repeatable.")] = None,
    subject: Annotated[
        list[str] | None, typer.Option(metavar="SUBJECT", help="Whose records all go; repeatable.")
    ] = None,
    ids_file: Annotated[Path | None, typer.Option(metavar="FILE", help="A file of ids: CSV, Parquet or NPZ.")] = None,
    subjects_file: Annotated[Path | None, typer.Option(metavar="FILE", help="A file of subjects.")] = None,
    column: Annotated[
        str | None,
        typer.Option(help="Their column in the file.  [default: as at creation, or the only one]"),
    ] = None,
    key: Key = None,
    when: When = None,
    jobs: Jobs = None,
    trust: Trust = None,
    as_json: AsJson = False,
) -> None:
    """Delete records by id, or everything of a subject, as one request, all or nothing; prints the request's id.

    Example: `expunge delete churn/ --id 17 --id 23`
    """
    from expunge.records import Delete, DeleteSubject

    if not (id or subject or ids_file or subjects_file):
        raise InputError("say what to delete: --id, --subject, --ids-file or --subjects-file")
    with opened(folder, trust=trust, jobs=jobs) as deployment:
        schema = schema_of(deployment, folder)
        ids = _wanted(id, "--id", ids_file, column or schema.id, schema.id_kind, given=column is not None)
        subjects = _wanted(
            subject, "--subject", subjects_file, column or schema.subject, schema.subject_kind, given=column is not None
        )
        batch: list[Update] = [*map(Delete, ids), *map(DeleteSubject, subjects)]
        try:
            request = ask(deployment, batch, key=key, when=when, words="deleting", as_json=as_json)
        except UnknownRecordError as error:
            raise InputError(f"{error}{_others(ids, subjects, deployment.records)}; nothing was deleted") from None
    show_receipt(request, folder, as_json=as_json)


def _wanted(
    texts: Sequence[str] | None, option: str, path: Path | None, column: str | None, kind: KeyKind, *, given: bool
) -> list[Any]:
    """What was named on the command line and in the file, each once."""
    from expunge.tables import match_key

    found: list[Any] = [match_key(text, kind=kind, what=option) for text in texts or ()]
    if path is not None:
        found += _from_file(path, column, kind, given=given)
    return list(dict.fromkeys(found))


def _from_file(path: Path, column: str | None, kind: KeyKind, *, given: bool) -> list[Any]:
    from expunge.tables import match_keys, read_table

    table = read_table(path, as_text="all")
    only = len(table.frame.columns) == 1 and not given
    name = str(table.frame.columns[0]) if only or column is None else column
    if column is None and not only:
        raise InputError(f"{path} has several columns; say with --column which one holds the ids")
    values = table.column(name)
    if not len(values):
        raise InputError(f"{path} has no rows")
    keys: list[Any] = match_keys(values, f"column {name!r} of {path}", kind=kind).tolist()
    return keys


def _others(ids: Sequence[Any], subjects: Sequence[Any], records: Records) -> str:
    """How many more of those that were asked for are not there."""
    unknown = sum(name not in records for name in ids) + sum(not records.subjects.find(name) for name in subjects)
    asked = len(ids) + len(subjects)
    return f" (nor are {unknown - 1:,} others of the {asked:,} that were named)" if unknown > 1 else ""
