"""`expunge cancel`."""

from __future__ import annotations

from typing import Annotated

import typer

from expunge.cli.app import app
from expunge.cli.folders import opened
from expunge.cli.options import AsJson, Folder, Trust
from expunge.cli.output import console, show_json


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
