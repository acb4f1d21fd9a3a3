"""The erasure desk: `expunge requests`, with deadlines and as a table for an officer, and `expunge forget`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from expunge.cli.app import app
from expunge.cli.folders import opened, refuse_inside, settle
from expunge.cli.output import AsJson, Folder, Trust, console, show_json, show_table
from expunge.core.errors import InputError
from expunge.core.words import plural, read_period, seconds_of, utc

if TYPE_CHECKING:
    from expunge.folder import DeploymentView, Request


Kinds = Annotated[
    str | None,
    typer.Option("--kind", metavar="KIND", help="Only those of a kind: deletion, addition, correction, mixed."),
]
AcceptedFrom = Annotated[
    str | None, typer.Option("--accepted-from", metavar="DATE", help="Only those accepted then or later: 2026-11-16.")
]
AcceptedTo = Annotated[
    str | None, typer.Option("--accepted-to", metavar="DATE", help="Only those accepted by the end of that day.")
]
Ids = Annotated[
    list[str] | None, typer.Option("--id", metavar="ID", help="Only those that name this record; repeatable.")
]
Subjects = Annotated[
    list[str] | None,
    typer.Option(
        "--subject", metavar="SUBJECT", help="Only those that deleted this subject or name its records; repeatable."
    ),
]


@app.command()
def requests(
    folder: Folder,
    state: Annotated[
        str | None, typer.Option(metavar="STATE", help="Only those that are pending, applied or cancelled.")
    ] = None,
    kind: Kinds = None,
    accepted_from: AcceptedFrom = None,
    accepted_to: AcceptedTo = None,
    id: Ids = None,
    subject: Subjects = None,
    deadline: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="How long a request may take, such as 30d: days left, and if late."),
    ] = None,
    late: Annotated[
        bool, typer.Option("--late", help="With --deadline: only those that are late, or were applied late.")
    ] = False,
    last: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="How many, the newest.  [default: 20; all with --json, --csv]"),
    ] = None,
    csv: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Write them as a table, for a data-protection officer.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the requests of a deployment, newest last. It only reads, so it works while another process serves it.

    The list tells no ids and no names of people. With --deadline it says how many days are left for each.

    Example: `expunge requests churn/ --state pending --deadline 30d`
    """
    from expunge.core.files import write_whole
    from expunge.folder import open_view

    if state not in (None, *STATES):
        raise InputError(f"--state must be one of {', '.join(STATES)}, got {state!r}")
    if late and deadline is None:
        raise InputError("--late needs --deadline, such as --deadline 30d")
    seconds = None if deadline is None else read_period("--deadline", deadline)
    refuse_inside(folder, csv)
    settle(folder)
    with open_view(folder) as view:
        chosen = find_requests(view, folder, kind, accepted_from, accepted_to, id, subject)
    now = time.time()
    found = [
        request_facts(each) | ({} if seconds is None else _due(each, seconds, now))
        for each in chosen
        if state in (None, each.public_state)
    ]
    found = [each for each in found if not late or each["late"]]
    shown = found[-most:] if (most := last if last or as_json or csv else _SHOWN) else found
    if csv is not None:
        write_whole(csv, as_csv(shown, has_deadline=seconds is not None))
        console.print(f"Wrote {plural(len(shown), 'request')} to {csv}.", markup=False, soft_wrap=True)
    elif as_json:
        show_json(shown)
    elif not found:
        console.print(f"There are no {'requests' if state is None else f'{state} requests'}.")
    else:
        _tell(shown, len(found) - len(shown), has_deadline=seconds is not None)


STATES = ("pending", "applied", "cancelled")
KINDS = ("deletion", "addition", "correction", "mixed")
_SHOWN = 20
_DAY = 86400


def find_requests(
    view: DeploymentView,
    folder: Path,
    kind: str | None,
    accepted_from: str | None,
    accepted_to: str | None,
    ids: Sequence[str] | None,
    subjects: Sequence[str] | None,
) -> list[Request]:
    """The requests that pass the filters of the command line, oldest first."""
    if kind not in (None, *KINDS):
        raise InputError(f"--kind must be one of {', '.join(KINDS)}, got {kind!r}")
    first, end = _moment("--accepted-from", accepted_from), _moment("--accepted-to", accepted_to, is_end=True)
    if ids or subjects:
        found = view.requests_about(*_names(view, folder, ids or (), subjects or ()))
    else:
        found = view.requests()
    return [
        each
        for each in found
        if kind in (None, each.kind) and (first or "") <= each.accepted_at and (end is None or each.accepted_at < end)
    ]


def _moment(option: str, text: str | None, *, is_end: bool = False) -> str | None:
    """The beginning of a day, or the end of it; or a moment as it is written."""
    if text is None:
        return None
    try:
        if len(text) == len("2026-11-16"):
            day = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
            return utc(day + timedelta(days=1) if is_end else day)
        return utc(seconds_of(text))
    except (ValueError, InputError):
        raise InputError(f"{option} must be a day such as 2026-11-16, or 2026-11-16T08:30:00Z, got {text!r}") from None


def _names(
    view: DeploymentView, folder: Path, ids: Sequence[str], subjects: Sequence[str]
) -> tuple[list[int | str], list[int | str]]:
    from expunge.tables import Schema, match_key

    stored = view.provenance.get("columns")
    if stored is None:
        raise InputError(f"{folder} was not created by `expunge create`: it has no column names; use it from Python")
    schema = Schema.from_dict(stored)
    if subjects and schema.subject is None:
        raise InputError(f"--subject: the records of {folder} have no subjects, as it was created without --subject")
    whose = "the {} (column {!r})".format
    return (
        [match_key(each, kind=schema.id_kind, what="--id", whose=whose("ids", schema.id)) for each in ids],
        [
            match_key(each, kind=schema.subject_kind, what="--subject", whose=whose("subjects", schema.subject))
            for each in subjects
        ],
    )


def _due(request: Request, seconds: float, now: float) -> dict[str, Any]:
    """When a request is due, how many days are left for it, and whether it is late or was applied late."""
    due = seconds_of(request.accepted_at) + int(seconds)
    is_pending = request.public_state == "pending"
    done = request.applied_by if request.public_state == "applied" else None
    late = now > due if is_pending else done is not None and seconds_of(done) > due
    return {"due": utc(due), "days_left": int((due - now) / _DAY) if is_pending else None, "late": late}


def as_csv(found: Sequence[dict[str, Any]], *, has_deadline: bool = False) -> bytes:
    """The requests as a CSV table."""
    import csv
    import io

    names = [*_COLUMNS, *(("due", "days_left", "late") if has_deadline else ())]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    for each in found:
        values = [each[name] for name in names]
        writer.writerow(["yes" if value is True else "no" if value is False else value for value in values])
    return text.getvalue().encode()


def _tell(shown: Sequence[dict[str, Any]], more: int, *, has_deadline: bool) -> None:
    columns = ["request", "state", "deletes", "adds", "corrects", "accepted", "applied by", "round"]
    names = ["request", "state", "deletions", "additions", "corrections", "accepted_at", "applied_by", "round"]
    rows = [["" if each[name] is None else each[name] for name in names] for each in shown]
    if has_deadline:
        columns += ["due", "days left"]
        for row, each in zip(rows, shown, strict=True):
            left = "late" if each["late"] else "" if each["days_left"] is None else each["days_left"]
            row += [each["due"], left]
    show_table(None, columns, rows, caption=f"and {more:,} before these: --last {more + len(shown)}" if more else "")


_COLUMNS = (
    *("request", "state", "kind", "deletions", "additions", "corrections"),
    *("accepted_at", "applied_by", "cancelled_at", "round"),
)


def request_facts(request: Request) -> dict[str, Any]:
    """What a requester may know about a request, as plain data."""
    is_applied = request.public_state == "applied"
    return {
        "request": request.request,
        "state": request.public_state,
        "kind": request.kind,
        "deletions": request.deletions,
        "additions": request.additions,
        "corrections": request.corrections,
        "accepted_at": request.accepted_at,
        "applied_by": request.applied_by if is_applied else None,
        "cancelled_at": request.applied_by if request.public_state == "cancelled" else None,
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
