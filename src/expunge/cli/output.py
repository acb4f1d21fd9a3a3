"""How commands speak: tables and progress on a terminal, JSON for programs, complaints on standard error."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

console = Console(highlight=False)
_errors = Console(stderr=True, highlight=False)


def complain(message: str) -> None:
    """One line on standard error."""
    _errors.print(f"expunge: {' '.join(message.split())}", markup=False, soft_wrap=True)


def show_json(data: Any) -> None:
    """JSON on standard output, and nothing else there."""
    print(json.dumps(data, indent=2, allow_nan=False))


def show_table(title: str | None, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, caption: str = "") -> None:
    """A table; numbers to the right."""
    table = Table(title=title, title_justify="left", caption=caption or None, caption_justify="left")
    lines = [[str(cell) for cell in row] for row in rows]
    for place, column in enumerate(columns):
        numeric = bool(lines) and all(_is_number(line[place]) for line in lines)
        table.add_column(column, justify="right" if numeric else "left")
    for line in lines:
        table.add_row(*line)
    console.print(table)


def _is_number(cell: str) -> bool:
    return cell.strip("–—∞×%≥≤<> ").replace(",", "").replace(".", "").replace("e-", "").isdigit() or cell in "–—∞"


@contextmanager
def progress(description: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on standard error while it is a terminal; silence in a pipe."""
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
