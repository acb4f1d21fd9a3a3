"""`expunge add`, `delete`, `apply`, `cancel`, `requests` and `forget`.

A request is accepted first, and then applied if it is due. Its id is printed even if applying it fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from expunge.cli.app import Interrupted, app, without_shard
from expunge.cli.folders import opened, read_columns, schema_of, settle
from expunge.cli.output import (
    AsJson,
    Data,
    Folder,
    Jobs,
    Key,
    Trust,
    When,
    console,
    progress,
    show_json,
    show_table,
)
from expunge.core.errors import ExpungeError, InputError, UnknownRecordError
from expunge.core.words import plural, read_period

if TYPE_CHECKING:
    from expunge.core.records import Records, Update
    from expunge.folder import DurableDeployment, Request
    from expunge.tables import Schema
    from expunge.tables.keys import KeyKind


def submit_request(
    deployment: DurableDeployment,
    updates: Sequence[Update],
    *,
    key: str | None,
    readmit: bool = False,
    when: bool | None,
    words: str,
    as_json: bool,
) -> Request:
    """Accept the updates as one request, and apply it if it is due. `when` overrides the deployment's own rule."""
    request = deployment.submit(updates, key=key, readmit=readmit)
    if request.public_state == "pending":
        try:
            if deployment.is_due if when is None else when:
                with progress(words, deployment.status.num_shards) as advance:
                    deployment.apply(advance=advance)
        except KeyboardInterrupt:
            _tell_pending(request.request, "interrupted", as_json=as_json)
            told = "what was accepted is kept, and the next `add`, `delete` or `apply` goes on with it"
            raise Interrupted(f"interrupted; request {request.request} is accepted; {told}") from None
        except (ExpungeError, OSError) as error:
            reason = without_shard(error)
            _tell_pending(request.request, reason, as_json=as_json)
            message = f"request {request.request} is accepted and pending; applying it failed: {reason}"
            raise ExpungeError(message) from error
    return deployment.request(request.request)


def show_receipt(request: Request, folder: Path, *, as_json: bool) -> None:
    """Print what a requester may know: the request and its state."""
    state = request.public_state
    if as_json:
        show_json({"request": request.request, "state": state})
        return
    console.print(f"Request {request.request}: {state}.", markup=False, soft_wrap=True)
    if state == "pending":
        words = f"It is kept and waits for its batch; `expunge apply {folder}` applies it now."
        console.print(words, markup=False, soft_wrap=True)


def _tell_pending(request: str, error: str, *, as_json: bool) -> None:
    if as_json:
        found: dict[str, Any] = {"request": request, "state": "pending", "error": error}
        show_json(found)


@app.command()
def add(
    folder: Folder,
    data: Data,
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
    """Add the records of a file as one request, all or nothing. The columns are those of the first file, in any order.

    Example: `expunge add churn/ --data more.csv`
    """
    from expunge.core.records import AddMany

    with opened(folder, trust=trust, jobs=jobs) as deployment:
        schema = _with_ids(schema_of(deployment, folder), id, folder)
        records = schema.labelled(read_columns(data, schema), deployment.classes)
        assert records.ids is not None
        batch = AddMany(
            ids=records.ids,
            features=records.features,
            labels=records.labels,
            subjects=records.subjects,  # type: ignore[arg-type]
            weights=records.weights,
        )
        request = submit_request(
            deployment, [batch], key=key, readmit=readmit, when=when, words="adding", as_json=as_json
        )
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


@app.command()
def delete(
    folder: Folder,
    id: Annotated[list[str] | None, typer.Option(metavar="ID", help="A record's id; repeatable.")] = None,
    subject: Annotated[
        list[str] | None, typer.Option(metavar="SUBJECT", help="A subject whose records are all deleted; repeatable.")
    ] = None,
    ids_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A file of ids: CSV, Parquet, Arrow or NPZ.")
    ] = None,
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
    """Delete records by id or by subject, as one request, all or nothing. Prints the request's id.

    Example: `expunge delete churn/ --id 17 --id 23`
    """
    from expunge.core.records import Delete, DeleteSubject

    if not (id or subject or ids_file or subjects_file):
        raise InputError("say what to delete: --id, --subject, --ids-file or --subjects-file")
    if column is not None and not (ids_file or subjects_file):
        raise InputError(f"--column {column} is for a file of ids: give --ids-file or --subjects-file with it")
    with opened(folder, trust=trust, jobs=jobs) as deployment:
        schema = schema_of(deployment, folder)
        if (subject or subjects_file) and schema.subject is None:
            option = "--subject" if subject else "--subjects-file"
            raise InputError(f"{option}: the records of {folder} have no subjects, as it was created without --subject")
        ids = _read_names(id, "--id", ids_file, column or schema.id, schema.id_kind, given=column is not None)
        subjects = _read_names(
            subject, "--subject", subjects_file, column or schema.subject, schema.subject_kind, given=column is not None
        )
        batch: list[Update] = [*map(Delete, ids), *map(DeleteSubject, subjects)]
        try:
            request = submit_request(deployment, batch, key=key, when=when, words="deleting", as_json=as_json)
        except UnknownRecordError as error:
            raise InputError(f"{error}{_others(ids, subjects, deployment.records)}; nothing was deleted") from None
    show_receipt(request, folder, as_json=as_json)


def _read_names(
    texts: Sequence[str] | None, option: str, path: Path | None, column: str | None, kind: KeyKind, *, given: bool
) -> list[Any]:
    """The ids or subjects from the command line and from the file, each once."""
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
    """How many more of the named ids and subjects are unknown."""
    unknown = sum(name not in records for name in ids) + sum(not records.subjects.find(name) for name in subjects)
    asked = len(ids) + len(subjects)
    return f" (nor are {unknown - 1:,} others of the {asked:,} that were named)" if unknown > 1 else ""


@app.command()
def apply(
    folder: Folder,
    if_due: Annotated[
        bool, typer.Option("--if-due", help="Only if the deployment's own rule says that they are due.")
    ] = False,
    jobs: Jobs = None,
    trust: Trust = None,
    as_json: AsJson = False,
) -> None:
    """Apply every pending request as one round. Run it from a timer for a deployment that collects requests.

    Example: `expunge apply churn/ --if-due`
    """
    with opened(folder, trust=trust, jobs=jobs) as deployment:
        waiting = deployment.status.pending
        if waiting and (deployment.is_due or not if_due):
            with progress("applying", deployment.status.num_shards) as advance:
                deployment.apply(advance=advance)
        left, round_ = deployment.status.pending, deployment.status.round
    if as_json:
        show_json({"applied": waiting - left, "pending": left, "round": round_})
    elif waiting == left == 0:
        console.print("Nothing was pending.")
    else:
        console.print(f"Applied {waiting - left:,} of {waiting:,} pending requests; round {round_}.")


@app.command()
def cancel(
    folder: Folder,
    request: Annotated[str, typer.Option(metavar="REQUEST", help="The request's id.", show_default=False)],
    trust: Trust = None,
    as_json: AsJson = False,
) -> None:
    """Take back a request that is still pending.

    Example: `expunge cancel churn/ --request 4f1c2a9b`
    """
    with opened(folder, trust=trust) as deployment:
        deployment.cancel(request)
    if as_json:
        show_json({"request": request, "state": "cancelled"})
    else:
        console.print(f"Request {request}: cancelled.", markup=False, soft_wrap=True)


@app.command()
def requests(
    folder: Folder,
    state: Annotated[
        str | None, typer.Option(metavar="STATE", help="Only those that are pending, applied or cancelled.")
    ] = None,
    last: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="How many, the newest.  [default: 20; all with --json]")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the requests of a deployment, newest last. It only reads, so it works while another process serves it.

    Example: `expunge requests churn/ --state pending`
    """
    from expunge.folder import open_view

    if state not in (None, *STATES):
        raise InputError(f"--state must be one of {', '.join(STATES)}, got {state!r}")
    settle(folder)
    with open_view(folder) as view:
        found = [request_facts(each) for each in view.requests() if state in (None, each.public_state)]
    most = last if last is not None or as_json else _SHOWN
    shown = found[-most:] if most else found
    if as_json:
        show_json(shown)
    elif not found:
        console.print(f"There are no {'requests' if state is None else f'{state} requests'}.")
    else:
        columns = ("request", "state", "deletes", "adds", "accepted", "applied by", "round")
        rows = [
            [each["request"], each["state"], each["deletions"], each["additions"], each["accepted_at"]]
            + ["" if each[name] is None else each[name] for name in ("applied_by", "round")]
            for each in shown
        ]
        more = len(found) - len(shown)
        show_table(None, columns, rows, caption=f"and {more:,} before these: --last {len(found)}" if more else "")


STATES = ("pending", "applied", "cancelled")
_SHOWN = 20


def request_facts(request: Request) -> dict[str, Any]:
    """What a requester may know about a request, as plain data."""
    is_applied = request.public_state == "applied"
    return {
        "request": request.request,
        "state": request.public_state,
        "kind": request.kind,
        "deletions": request.deletions,
        "additions": request.additions,
        "accepted_at": request.accepted_at,
        "applied_by": request.applied_by if is_applied else None,
        "round": request.round if is_applied else None,
    }


@app.command()
def forget(
    folder: Folder,
    older_than: Annotated[
        str,
        typer.Option(
            "--older-than", metavar="TIME", help="How long ago they were applied or cancelled: 365d, 12h, 30m."
        ),
    ],
    trust: Trust = None,
    as_json: AsJson = False,
) -> None:
    """Forget old requests: what they asked for, and the salts that open their entries in the log.

    Their certificates can no longer be issued. Those that were issued still verify. Deleted records still cannot come
    back unnoticed.

    Example: `expunge forget churn/ --older-than 365d`
    """
    read_period("--older-than", older_than)
    with opened(folder, trust=trust) as deployment:
        forgotten = deployment.forget_requests(older_than=older_than)
    if as_json:
        show_json({"forgotten": forgotten})
    else:
        console.print(f"Forgot {plural(forgotten, 'request')}.", markup=False)
