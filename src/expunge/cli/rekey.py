"""`expunge rekey`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from expunge.cli.app import Interrupted, app
from expunge.cli.folders import nonce_source, opened, what_is_left
from expunge.cli.output import AsJson, Folder, Jobs, Trust, console, progress, show_json
from expunge.core.words import read_period

if TYPE_CHECKING:
    from expunge.evidence import KeyDraw


@app.command()
def rekey(
    folder: Folder,
    if_older_than: Annotated[
        str | None,
        typer.Option(
            "--if-older-than",
            metavar="TIME",
            help="Do nothing unless the key in force is older than this: 90d, 12h, 30m or 3600s. For a timer.",
        ),
    ] = None,
    witness: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Have a witness take part, so that you cannot pick the key among many."),
    ] = None,
    witness_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The witness's key: its file `witness.key`.")
    ] = None,
    jobs: Jobs = None,
    trust: Trust = None,
    as_json: AsJson = False,
) -> None:
    """Draw a new recipe key and train everything again with it. The log and every certificate say so.

    Without --if-older-than the renewal counts as one by hand: the operator chose the moment. Requests that are pending
    stay so. With --witness the log commits to a secret of yours, the witness answers, and the key follows from both.

    Example: `expunge rekey churn/ --if-older-than 90d`
    """
    if if_older_than is not None:
        read_period("--if-older-than", if_older_than)
    source = nonce_source(witness, witness_key)
    before = None
    try:
        with opened(folder, trust=trust, jobs=jobs) as deployment:
            before = deployment.inside_key
            with progress("training everything again", deployment.status.num_shards) as advance:
                renewed = deployment.rekey(if_older_than=if_older_than, witness=source, advance=advance)
            status, key = deployment.status, deployment.inside_key
    except Interrupted:
        raise Interrupted(what_is_left(folder, before)) from None
    if as_json:
        found: dict[str, Any] = {"renewed": renewed, "reason": key.reason, "key_since": key.at}
        found["witness"] = key.witness
        show_json(found | {"commitment": key.commitment, "generation": status.generation, "round": status.round})
    elif not renewed:
        _tell(f"Nothing was done: the key in force is that of {key.at}, and not older than {if_older_than}.")
    elif status.generation is None:
        _tell(f"Trained {status.num_shards:,} models again with a new key, {key.reason} ({key.at}).")
        _tell(f"Under a consensus the log does not say when a key is renewed{_committed(key)}")
    else:
        _tell(f"Trained {status.num_shards:,} models again with a new key: generation {status.generation:,}.")
        _tell(f"The log says that it was renewed {key.reason} ({key.at}){_committed(key)}")
        if source is not None:
            _tell("A witness had a part in it: `expunge audit recompute` checks that.")


def _tell(line: str) -> None:
    console.print(line, markup=False, soft_wrap=True)


def _committed(key: KeyDraw) -> str:
    return "." if key.commitment is None else f", and commits to it: {key.commitment}"
