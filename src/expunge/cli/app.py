"""The `expunge` program: its commands, and how it fails (one clear line, exit code 2)."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from expunge._version import __version__
from expunge.cli.output import complain
from expunge.errors import ExpungeError

app = typer.Typer(
    name="expunge",
    help="Train on people's data, honour every deletion request, and prove it.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Machine unlearning with a guarantee that holds against adaptive requests."""


def main() -> None:
    """Run the program; what the user did wrong is said in one line."""
    try:
        app()
    except ExpungeError as error:
        complain(str(error))
        sys.exit(2)
    except KeyboardInterrupt:
        complain("interrupted")
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(141)
