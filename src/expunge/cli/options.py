"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Folder = Annotated[
    Path, typer.Argument(metavar="FOLDER", help="The deployment's folder.", show_default=False, file_okay=False)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Trust = Annotated[
    list[str] | None,
    typer.Option(
        "--trust",
        metavar="NAME",
        envvar="EXPUNGE_TRUST",
        help="A module or class outside expunge whose code may run when learners and models are loaded; repeatable.",
    ),
]
Jobs = Annotated[
    int | None, typer.Option(metavar="N", help="Train in so many processes; -1: one a core.  [default: in this one]")
]
Key = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="An idempotency key: the same request under the same key counts once."),
]
When = Annotated[
    bool | None,
    typer.Option(
        "--now/--later",
        help="Apply at once, or only accept: `expunge apply` applies.  [default: as the deployment was created]",
        show_default=False,
    ),
]
