"""Output of commands, and the options that several commands share.

Tables and progress are for terminals, JSON is for programs, and errors go to standard error.
"""

from __future__ import annotations

import json
import os
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from expunge.core.errors import InputError


class Screen(Console):
    """A console that folds lines for readers alone: in a pipe each sentence is one line.

    Control characters are spelled out: names of files and of labels may hold commands for the terminal.
    """

    def render(self, renderable: Any, options: Any = None) -> Iterator[Segment]:
        """Render something into pieces of text."""
        for piece in super().render(renderable, options):
            yield piece if piece.control else Segment(_visible(piece.text), piece.style)

    @property
    def folds(self) -> bool:
        """Whether lines are folded to a width."""
        return self.is_terminal or "COLUMNS" in os.environ

    def print(self, *objects: Any, soft_wrap: bool | None = None, **options: Any) -> None:
        """Print, and fold long lines on a terminal."""
        super().print(*objects, soft_wrap=not self.folds if soft_wrap is None else soft_wrap, **options)


console = Screen(highlight=False)
_errors = Screen(stderr=True, highlight=False)
_SHORT_NAME = 32  # the name of a request is as long


def complain(message: str) -> None:
    """Print one line on standard error."""
    _errors.print(f"expunge: {_visible(' '.join(message.split()))}", markup=False, soft_wrap=True)


def is_seen() -> bool:
    """Whether standard error is a terminal, with a person in front of it."""
    return sys.stderr is not None and sys.stderr.isatty()


def say(sentence: str) -> None:
    """Print one indented sentence."""
    told = _visible(sentence)
    console.print(Padding(told, (0, 0, 0, 2), expand=False) if console.folds else f"  {told}", markup=False)


def _visible(text: str) -> str:
    """The text with control characters spelled out: names of files and of labels may hold commands for the terminal."""
    return "".join(
        ascii(each)[1:-1] if unicodedata.category(each)[0] == "C" and each not in "\n\t" else each for each in text
    )


def show_json(data: Any) -> None:
    """Print JSON on standard output."""
    print(json.dumps(data, indent=2, allow_nan=False))


def show_table(title: str | None, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, caption: str = "") -> None:
    """Print a table, with numbers aligned to the right.

    Nothing is cut off: a terminal folds wide cells, and in a pipe the table is as wide as it needs to be.
    """
    table = Table(title=title, title_justify="left", caption=caption or None, caption_justify="left")
    lines = [[_visible(str(cell)) for cell in row] for row in rows]
    for place, column in enumerate(columns):
        cells = [line[place] for line in lines]
        numeric = bool(cells) and all(_is_number(cell) for cell in cells)
        # The first column names the row. A folded name could not be searched for.
        is_name = place == 0 and all(len(cell) <= _SHORT_NAME for cell in cells)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold", no_wrap=is_name)
    for line in lines:
        table.add_row(*map(Text, line))  # as it is: a label may look like markup
    if console.folds:
        console.print(table)
    else:
        width = max(console.width, console.measure(table, options=console.options.update(width=10_000)).maximum)
        Screen(file=console.file, width=width, highlight=False).print(table, soft_wrap=False)


def _is_number(cell: str) -> bool:
    return cell.strip("–—∞×%≥≤<> ").replace(",", "").replace(".", "").replace("e-", "").isdigit() or cell in "–—∞"


def page_can_be_written(path: Path) -> None:
    """Refuse a page that cannot be written, before the work starts."""
    if not path.absolute().parent.is_dir():
        raise InputError(f"there is no folder {str(path.parent)!r} to write the page to")
    if path.is_dir():
        raise InputError(f"{str(path)!r} is a folder: name the page in it")
    if not os.access(path if path.exists() else path.absolute().parent, os.W_OK):
        raise InputError(f"{str(path)!r} cannot be written")


@contextmanager
def progress(description: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on standard error if it is a terminal."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=_errors,
        disable=not _errors.is_terminal,
        transient=True,
    )
    with bar:
        task = bar.add_task(description, total=total)
        yield lambda steps: bar.advance(task, steps)


Folder = Annotated[
    Path, typer.Argument(metavar="FOLDER", help="The deployment's folder.", show_default=False, file_okay=False)
]
Data = Annotated[
    Path, typer.Option(metavar="FILE", help="The records: CSV, Parquet, Arrow or NPZ.", show_default=False)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
ClassWeight = Annotated[
    str | None,
    typer.Option(
        "--class-weight",
        metavar="balanced",
        help="balanced: the records of each class count as much together, in each shard.",
    ),
]
Threshold = Annotated[
    str | None,
    typer.Option(
        metavar="CLASS=P",
        help="Answer CLASS wherever its probability is at least P, and else the likeliest of the others; exact only.",
    ),
]
Trust = Annotated[
    list[str] | None,
    typer.Option(
        "--trust",
        metavar="NAME",
        envvar="EXPUNGE_TRUST",
        help="A module or class outside expunge whose code may run when learners and models are loaded; repeatable.",
    ),
]


def require_jobs(jobs: int | None) -> int | None:
    """Refuse no process at all."""
    if jobs == 0:
        raise InputError("--jobs must be at least 1, or -1 for one process a core, got 0")
    return jobs


Jobs = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Train in so many processes; -1: one a core.  [default: in this one]",
        callback=require_jobs,
    ),
]
Engine = Annotated[
    str | None,
    typer.Option(
        "--executor",
        metavar="ENGINE",
        envvar="EXPUNGE_EXECUTOR",
        help="Where models are trained: serial, processes, ray (at RAY_ADDRESS, or started here) or ray://HOST:PORT.",
    ),
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
