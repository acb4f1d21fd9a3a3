"""`expunge apply`."""

from __future__ import annotations

from typing import Annotated

import typer

from expunge.cli.app import app
from expunge.cli.folders import opened
from expunge.cli.options import AsJson, Folder, Jobs, Trust
from expunge.cli.output import console, progress, show_json


@app.command()
def apply(
    folder: Folder,
    if_due: Annotated[
        bool, typer.Option("--if-due", help="Only if the deployment's own rule says that it is time.")
    ] = False,
    jobs: Jobs = None,
    trust: Trust = None,
    as_json: AsJson = False,
) -> None:
    """Apply every pending request as one round. For a deployment that collects requests; run it from a timer.

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
