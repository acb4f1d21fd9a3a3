"""A request from the command line: accepted first, then applied if it is due; its id is told whatever happens then."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from expunge.cli.app import Interrupted, without_shard
from expunge.cli.output import console, progress, show_json
from expunge.errors import ExpungeError

if TYPE_CHECKING:
    from expunge.durable import DurableDeployment, Request
    from expunge.records import Update


def ask(
    deployment: DurableDeployment,
    updates: Sequence[Update],
    *,
    key: str | None,
    readmit: bool = False,
    when: bool | None,
    words: str,
    as_json: bool,
) -> Request:
    """Accept the updates as one request and apply what is due; `when` overrides the deployment's own rule."""
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
    """What a requester may be told: the request and its state."""
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
