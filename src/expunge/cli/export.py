"""`expunge export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from expunge.cli.app import Interrupted, app
from expunge.cli.folders import settle
from expunge.cli.output import AsJson, Folder, console, progress, show_json


@app.command()
def export(
    folder: Folder,
    for_audit: Annotated[
        Path,
        typer.Option(
            "--for-audit", metavar="OUT", help="Where the audit bundle goes: a new folder.", show_default=False
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Write what an outside auditor needs to train shards again without the deployment's folder.

    The bundle holds people's records and the secret key: give it to the auditor only, and have it deleted afterwards.

    Example: `expunge export churn/ --for-audit bundle/`
    """
    from expunge.folder import export_for_audit

    settle(folder)
    try:
        with progress("writing the bundle", 1) as advance:
            found = export_for_audit(folder, for_audit)
            advance(1)
    except KeyboardInterrupt:
        raise Interrupted("interrupted; nothing was written") from None
    if as_json:
        show_json(
            {
                "bundle": str(for_audit),
                "name": found.name,
                "generation": found.generation,
                "round": found.round,
                "num_records": len(found.records),
                "num_shards": found.num_shards,
                "commitment": found.key.commitment,
                "models": found.models_commitment,
            }
        )
        return
    console.print(
        f"Wrote {for_audit}: {len(found.records):,} records, the recipe with its key, and commitments to "
        f"{found.num_shards:,} models.",
        markup=False,
        soft_wrap=True,
    )
    console.print(f"The commitment to all models together is {found.models_commitment}.", markup=False, soft_wrap=True)
    console.print(
        "WARNING: the bundle holds people's records and the secret key. Send it to the auditor only, over a channel "
        "that you would send the records over. Deletions do not reach it: have it deleted when the audit is done.",
        style="bold red",
        markup=False,
    )
    console.print(f"The auditor runs `expunge audit recompute {for_audit}`.", markup=False, soft_wrap=True)
