"""The `expunge` program, and how it reports errors: one clear line, exit code 2."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, ClassVar

import typer
from typer.core import TyperGroup

from expunge.cli.output import complain
from expunge.core.errors import ExpungeError, TrainingError
from expunge.core.version import __version__

_INTERRUPTED = 130
_BUG = 70

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


class DefaultGroup(TyperGroup):
    """A group of commands one of which may be left out: `expunge log FOLDER` is `expunge log show FOLDER`."""

    default: ClassVar[str]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put in the name of the default command, unless another one is named."""
        if args and args[0] not in (*self.commands, "--help"):
            args = [self.default, *args]
        return super().parse_args(ctx, args)


class Terminated(BaseException):
    """The process was asked to end. What is half done is undone on the way out."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _terminate(number: int, _: object) -> None:
    signal.signal(number, signal.SIG_DFL)  # the next one ends the process at once
    raise Terminated(number)


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """Undo what is half done when the process is asked to end, for the block."""
    before = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) == signal.SIG_DFL:
                before[number] = signal.signal(number, _terminate)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Interrupted(Exception):
    """Ctrl-C, with a line that says what happens to the work."""


def main() -> None:
    """Run the program. An error of the user is one line on standard error, with exit code 2."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # the parent process closed it
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115
    with _ended_in_order():
        _run()


def _run() -> None:
    try:
        code = app(prog_name="expunge", standalone_mode=False) or 0
        if code == _INTERRUPTED:
            complain("interrupted")
        sys.exit(code)
    except Terminated as error:
        complain(f"ended by {signal.Signals(error.number).name}")
        sys.exit(128 + error.number)
    except Interrupted as error:
        complain(str(error))
        sys.exit(_INTERRUPTED)
    except (ExpungeError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            sys.exit(141)
        complain(without_shard(error))
    except KeyboardInterrupt:
        complain("interrupted")
        sys.exit(_INTERRUPTED)
    except MemoryError as error:
        complain(f"not enough memory: {error}" if str(error) else "not enough memory")
    except Exception as error:
        _explain(error)
    sys.exit(2)


def without_shard(error: Exception) -> str:
    """The error's line. It does not name the shard of a failed training: which shards hold a record is secret."""
    if isinstance(error, OSError):
        reason = error.strerror or str(error)
        return reason if error.filename is None else f"{error.filename}: {reason}"
    if not isinstance(error, TrainingError):
        return str(error)
    reason = str(error).partition(" failed: ")[2] or "the learner failed"
    return f"training failed: {reason}"


def _comes_of_an_interrupt(error: BaseException | None) -> bool:
    """Whether Ctrl-C caused the error. While a module is loading, Ctrl-C may turn into another error."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__ or error.__context__
    return False


def _explain(error: Exception) -> None:
    """Print an error in the command line as one line. Any other error is a bug, and keeps its traceback.

    The exit code of a bug is not Python's 1, because 1 has a meaning for `audit` and `verify`.
    """
    if type(error).__name__ == "NoArgsIsHelpError":
        print(error)
    elif type(error).__name__ == "Abort" or _comes_of_an_interrupt(error):
        complain("interrupted")
        sys.exit(_INTERRUPTED)
    elif hasattr(error, "format_message"):
        complain(error.format_message())
    else:
        traceback.print_exception(error)
        sys.exit(_BUG)
