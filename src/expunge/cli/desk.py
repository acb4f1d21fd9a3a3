"""The erasure desk: `expunge requests`, with deadlines and as a table for an officer, and `expunge forget`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from expunge.cli.app import app
from expunge.cli.folders import opened, settle
from expunge.cli.output import AsJson, Folder, Trust, console, show_json, show_table
from expunge.core.errors import InputError
from expunge.core.words import plural, read_period

if TYPE_CHECKING:
    from expunge.folder import Request


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
        columns = ("request", "state", "deletes", "adds", "corrects", "accepted", "applied by", "round")
        counts = ("deletions", "additions", "corrections")
        rows = [
            [each["request"], each["state"], *(each[name] for name in counts), each["accepted_at"]]
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
        "corrections": request.corrections,
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
