"""The `expunge` program: its commands, and how it fails (one clear line, exit code 2)."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from expunge._version import __version__
from expunge.cli.output import complain
from expunge.errors import ExpungeError

_INTERRUPTED = 130

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


class Interrupted(Exception):
    """Ctrl-C, with a line about what becomes of the work."""


def main() -> None:
    """Run the program; what the user did wrong is said in one line, with exit code 2."""
    try:
        code = app(prog_name="expunge", standalone_mode=False) or 0
        if code == _INTERRUPTED:
            complain("interrupted")
        sys.exit(code)
    except Interrupted as error:
        complain(str(error))
        sys.exit(_INTERRUPTED)
    except ExpungeError as error:
        complain(str(error))
    except KeyboardInterrupt:
        complain("interrupted")
        sys.exit(_INTERRUPTED)
    except BrokenPipeError:
        sys.exit(141)
    except OSError as error:
        complain(str(error))
    except Exception as error:
        _explain(error)
    sys.exit(2)


def _explain(error: Exception) -> None:
    """Say what was wrong with the command line; anything else is a bug and keeps its traceback."""
    if type(error).__name__ == "NoArgsIsHelpError":
        print(error)
    elif type(error).__name__ == "Abort":
        complain("interrupted")
        sys.exit(_INTERRUPTED)
    elif hasattr(error, "format_message"):
        complain(error.format_message())
    else:
        raise error
