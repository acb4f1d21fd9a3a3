"""`expunge add`, `delete`, `correct`, `apply` and `cancel`.

A request is accepted first, and then applied if it is due. Its id is printed even if applying it fails.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from expunge.cli.app import Interrupted, app, without_shard
from expunge.cli.costs import costs_of
from expunge.cli.folders import opened, read_columns, schema_of
from expunge.cli.output import (
    AsJson,
    Data,
    Engine,
    Folder,
    Jobs,
    Key,
    Trust,
    When,
    console,
    is_seen,
    progress,
    show_json,
)
from expunge.core.errors import ExpungeError, InputError, UnknownRecordError
from expunge.core.words import plural, spell_time

if TYPE_CHECKING:
    from expunge.core.corrections import Correct
    from expunge.core.records import Records, Update
    from expunge.folder import DurableDeployment, Request
    from expunge.serving.deployment import Preview
    from expunge.tables import Schema, Table
    from expunge.tables.keys import KeyKind


def submit_request(
    deployment: DurableDeployment,
    updates: Sequence[Update] | Correct,
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


def show_receipt(request: Request, folder: Path, *, as_json: bool, **more: Any) -> None:
    """Print what a requester may know: the request and its state."""
    state = request.public_state
    if as_json:
        show_json({"request": request.request, "state": state, **more})
        return
    console.print(f"Request {request.request}: {state}.", markup=False, soft_wrap=True)
    if state == "pending":
        words = f"It is kept and waits for its batch; `expunge apply {folder}` applies it now."
        console.print(words, markup=False, soft_wrap=True)


def tell(line: str) -> None:
    """Print one line as it is."""
    console.print(line, markup=False, soft_wrap=True)


def _tell_pending(request: str, error: str, *, as_json: bool) -> None:
    if as_json:
        found: dict[str, Any] = {"request": request, "state": "pending", "error": error}
        show_json(found)


DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Only check it, and say what would be trained again and how long that takes.")
]
Inside = Annotated[
    bool,
    typer.Option("--inside", help="With --dry-run under (α,β,γ): say it also in a pipe. For operators only."),
]


def tell_preview(
    deployment: DurableDeployment,
    asked: Sequence[Update] | Correct | None,
    *,
    readmit: bool = False,
    inside: bool,
    as_json: bool,
    **more: Any,
) -> None:
    """Say what applying a request would do. Under (α,β,γ) what it trains again is for the operator alone."""
    from dataclasses import asdict

    found, pending = deployment.preview(asked, readmit=readmit), deployment.status.pending
    told: dict[str, Any] = {name: value for name, value in asdict(found).items() if name in _COUNTED}
    told |= {"dry_run": True, "pending": pending, **more}
    if shown := deployment.is_exact or inside or (not as_json and is_seen()):
        told |= asdict(found) | {"seconds": _seconds(deployment, found)}
    if as_json:
        show_json(told)
        return
    parts = [f"{words} {plural(told[name], 'record')}" for name, words in _COUNTED.items() if told[name]]
    what = f"{', '.join(parts[:-1])}{' and ' if parts[1:] else ''}{parts[-1]}" if parts else "change nothing"
    waiting = pending if asked is None else 0
    others = f", together with {plural(pending, 'pending request')}" if pending and not waiting else ""
    tell(f"Nothing was changed (--dry-run). It would {what}{others}.")
    if not shown:
        tell("What it would train again is for the operator alone under this promise: --inside shows it.")
        return
    if not deployment.is_exact:
        tell("inside, for operators only; showing this to a requester voids the (α,β,γ) guarantee:")
    whole = " with a new key, because the generation is used up" if found.retrains_everything else ""
    took = "" if told["seconds"] is None else f": about {spell_time(told['seconds'])} of processor time"
    tell(
        f"It would train {found.touched:,} of {plural(found.num_shards, 'model')} again{whole}, on "
        f"{plural(found.records, 'record')}{took}."
    )


_COUNTED = {"deletions": "delete", "additions": "add", "corrections": "correct"}


def _seconds(deployment: DurableDeployment, found: Preview) -> float | None:
    """How long it would take, by what was measured when the recipe was first trained."""
    costs = costs_of(deployment.provenance)
    if costs is None:
        return None
    if not costs.models_retrained:  # it unlearns exactly: nothing is trained
        return costs.deletion * (found.deletions + found.additions + 2 * found.corrections)
    return costs.deletion / costs.models_retrained * found.touched


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
    dry_run: DryRun = False,
    inside: Inside = False,
    jobs: Jobs = None,
    executor: Engine = None,
    trust: Trust = None,
    as_json: AsJson = False,
) -> None:
    """Add the records of a file as one request, all or nothing. The columns are those of the first file, in any order.

    Example: `expunge add churn/ --data more.csv`
    """
    from expunge.core.records import AddMany

    with opened(folder, trust=trust, jobs=jobs, executor=executor) as deployment:
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
        if dry_run:
            tell_preview(deployment, [batch], readmit=readmit, inside=inside, as_json=as_json)
            return
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
    skip_unknown: Annotated[
        bool, typer.Option("--skip-unknown", help="Delete those that are there, and say which are not, and why.")
    ] = False,
    key: Key = None,
    when: When = None,
    dry_run: DryRun = False,
    inside: Inside = False,
    jobs: Jobs = None,
    executor: Engine = None,
    trust: Trust = None,
    as_json: AsJson = False,
) -> None:
    """Delete records by id or by subject, as one request, all or nothing. Prints the request's id.

    An unknown id is an error that says, as far as is known, which request deleted it. With --skip-unknown the others
    are deleted, and all that are not there are listed.

    Example: `expunge delete churn/ --id 17 --id 23`
    """
    from expunge.core.records import Delete, DeleteSubject

    if not (id or subject or ids_file or subjects_file):
        raise InputError("say what to delete: --id, --subject, --ids-file or --subjects-file")
    if column is not None and not (ids_file or subjects_file):
        raise InputError(f"--column {column} is for a file of ids: give --ids-file or --subjects-file with it")
    with opened(folder, trust=trust, jobs=jobs, executor=executor) as deployment:
        schema = schema_of(deployment, folder)
        if (subject or subjects_file) and schema.subject is None:
            option = "--subject" if subject else "--subjects-file"
            raise InputError(f"{option}: the records of {folder} have no subjects, as it was created without --subject")
        ids = _read_names(id, "id", ids_file, column, schema)
        subjects = _read_names(subject, "subject", subjects_file, column, schema)
        skipped = deployment.unknown(ids, subjects) if skip_unknown else []
        gone = {(what, name) for what, name, _ in skipped}
        batch: list[Update] = [Delete(each) for each in ids if ("record", each) not in gone]
        batch += [DeleteSubject(each) for each in subjects if ("subject", each) not in gone]
        told = [{"what": what, "name": name, "why": why or _NEVER} for what, name, why in skipped]
        more: dict[str, Any] = {"skipped": told} if skip_unknown else {}
        try:
            request = None
            if dry_run and batch:
                tell_preview(deployment, batch, inside=inside, as_json=as_json, **more)
            elif batch:
                request = submit_request(deployment, batch, key=key, when=when, words="deleting", as_json=as_json)
        except UnknownRecordError as error:
            raise InputError(f"{error}{_others(ids, subjects, deployment.records)}; nothing was deleted") from None
    if not as_json:
        _tell_skipped(told)
    if request is not None:
        show_receipt(request, folder, as_json=as_json, **more)
    elif not batch and as_json:
        show_json({"request": None, "state": "nothing to delete", **more})
    elif not batch:
        tell("None of them is there: nothing was deleted.")


def _tell_skipped(skipped: Sequence[Mapping[str, Any]]) -> None:
    """List what was not there."""
    for each in skipped[:_SHOWN]:
        kind = "id" if each["what"] == "record" else "subject"
        tell(f"skipped: the {kind} {each['name']!r} {each['why']}")
    if len(skipped) > _SHOWN:
        tell(f"and {len(skipped) - _SHOWN:,} more, all of them with --json")


_SHOWN = 20
_NEVER = "was never there, as far as is known"


def _read_names(
    texts: Sequence[str] | None, role: Literal["id", "subject"], path: Path | None, column: str | None, schema: Schema
) -> list[Any]:
    """The ids or subjects from the command line and from the file, each once."""
    from expunge.tables import match_key

    own = schema.roles.get(role)
    kind = schema.id_kind if role == "id" else schema.subject_kind
    whose = f"the {role}s (column {own!r})" if own is not None else f"the {role}s"
    found: list[Any] = [match_key(text, kind=kind, what=f"--{role}", whose=whose) for text in texts or ()]
    if path is not None:
        found += _from_file(path, column or own, kind, given=column is not None, whose=whose)
    return list(dict.fromkeys(found))


def _from_file(path: Path, column: str | None, kind: KeyKind, *, given: bool, whose: str) -> list[Any]:
    from expunge.tables import match_keys, read_table

    table = read_table(path, as_text="all")
    only = len(table.frame.columns) == 1 and not given
    name = str(table.frame.columns[0]) if only or column is None else column
    if column is None and not only:
        raise InputError(f"{path} has several columns; say with --column which one holds the ids")
    values = table.column(name)
    if not len(values):
        raise InputError(f"{path} has no rows")
    keys: list[Any] = match_keys(values, f"column {name!r} of {path}", kind=kind, whose=whose).tolist()
    return keys


def _others(ids: Sequence[Any], subjects: Sequence[Any], records: Records) -> str:
    """How many more of the named ids and subjects are unknown."""
    unknown = sum(name not in records for name in ids) + sum(not records.subjects.find(name) for name in subjects)
    asked = len(ids) + len(subjects)
    return f" (nor are {unknown - 1:,} others of the {asked:,} that were named)" if unknown > 1 else ""


@app.command()
def correct(
    folder: Folder,
    data: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A column of ids, and the columns to correct: CSV, Parquet, Arrow or NPZ."),
    ] = None,
    id: Annotated[str | None, typer.Option(metavar="ID", help="One record, with --set instead of --data.")] = None,
    values: Annotated[
        list[str] | None, typer.Option("--set", metavar="COLUMN=VALUE", help="What it says from now on; repeatable.")
    ] = None,
    key: Key = None,
    when: When = None,
    dry_run: DryRun = False,
    inside: Inside = False,
    jobs: Jobs = None,
    executor: Engine = None,
    trust: Trust = None,
    as_json: AsJson = False,
) -> None:
    """Correct what records say (features, label, subject, weight) under the ids that they have, as one request.

    Columns that are not given stay as they are. What was there before is erased, as a deleted record is, and the models
    are those that training on the corrected records gives.

    Example: `expunge correct churn/ --id 17 --set age=41 --set churned=no`
    """
    from expunge.core.corrections import Correct

    if (data is None) == (id is None) or (id is None) != (not values):
        raise InputError("say what to correct: --data FILE, or --id ID with --set COLUMN=VALUE")
    with opened(folder, trust=trust, jobs=jobs, executor=executor) as deployment:
        schema = schema_of(deployment, folder)
        table = read_columns(data, schema) if data is not None else _typed(schema, str(id), values or [])
        asked = Correct(**schema.corrections(table, deployment.classes))
        try:
            if dry_run:
                tell_preview(deployment, asked, inside=inside, as_json=as_json)
                return
            request = submit_request(deployment, asked, key=key, when=when, words="correcting", as_json=as_json)
        except UnknownRecordError as error:
            raise InputError(f"{error}; nothing was corrected") from None
    show_receipt(request, folder, as_json=as_json)


def _typed(schema: Schema, record: str, values: Sequence[str]) -> Table:
    """One record as it was typed, read as a CSV file of one row."""
    import csv
    import io

    from expunge.tables import Table
    from expunge.tables.formats import read_csv

    if schema.id is None:
        raise InputError("the deployment was created without a column of ids: correct its records from Python")
    fields = {schema.id: record}
    for value in values:
        name, mark, told = value.partition("=")
        if not mark:
            raise InputError(f"--set must be COLUMN=VALUE, got {value!r}")
        if name in fields:
            raise InputError(f"--set {name} is given twice" if name != schema.id else f"--set cannot change {name!r}")
        fields[name] = told
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows([fields.keys(), fields.values()])
    texts = frozenset(feature.name for feature in schema.features if feature.kind not in ("number", "boolean"))
    content, exact = io.BytesIO(text.getvalue().encode()), frozenset(schema.roles.values())
    return Table("--set", "csv", read_csv(content, "--set", as_text=exact, text_features=texts, numbers="float64"))


@app.command()
def apply(
    folder: Folder,
    if_due: Annotated[
        bool, typer.Option("--if-due", help="Only if the deployment's own rule says that they are due.")
    ] = False,
    dry_run: DryRun = False,
    inside: Inside = False,
    jobs: Jobs = None,
    executor: Engine = None,
    trust: Trust = None,
    as_json: AsJson = False,
) -> None:
    """Apply every pending request as one round. Run it from a timer for a deployment that collects requests.

    Example: `expunge apply churn/ --if-due`
    """
    with opened(folder, trust=trust, jobs=jobs, executor=executor) as deployment:
        if dry_run:
            tell_preview(deployment, None, inside=inside, as_json=as_json)
            return
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
