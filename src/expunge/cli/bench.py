"""`expunge bench`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from expunge.cli.app import app
from expunge.cli.output import console, progress, show_json, show_table
from expunge.errors import InputError

if TYPE_CHECKING:
    from expunge.bench import Report


@app.command()
def bench(
    suites: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SUITE]...",
            help="delete, fit, durable, predict, growth, sampling, mechanisms, guarantee, consensus, deep.  "
            "[default: all of them]",
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Tiny sizes: seconds, and figures without meaning.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write a Markdown page.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Measure deleting, training, predicting, sampling, noise and guarantees, each against what it replaces.

    All suites together take about four minutes.

    Example: `expunge bench delete fit --out docs/benchmarks.md`
    """
    from expunge.bench import run_suites, to_markdown

    if out is not None and not out.absolute().parent.is_dir():
        raise InputError(f"there is no folder {str(out.parent)!r} to write the page to")
    report = run_suites(suites or [], quick=quick, progress=progress)
    command = _command(suites or [], quick=quick, out=out)
    if out is not None:
        out.write_text(to_markdown(report, command=command), encoding="utf-8")
    if as_json:
        show_json({"command": command, **report.to_dict()})
    else:
        _tell(report)


def _command(suites: list[str], *, quick: bool, out: Path | None) -> str:
    """What makes the page again; of a file elsewhere only its name, for the page is published."""
    words = ["expunge", "bench", *suites]
    if quick:
        words.append("--quick")
    if out is not None:
        words += ["--out", out.name if out.is_absolute() or ".." in out.parts else out.as_posix()]
    return " ".join(words)


def _tell(report: Report) -> None:
    from expunge.bench import COLUMNS, HOW, QUICK_WARNING, SUITES, cells

    for name, lines in report.lines.items():
        show_table(name, COLUMNS, [cells(line) for line in lines], caption=SUITES[name].about)
    console.print(HOW)
    missed = len(report.missed)
    if report.quick:
        console.print(f"[bold]{QUICK_WARNING}[/bold]")
    elif missed:
        console.print(f"[bold]{missed} target{'s' if missed > 1 else ''} missed.[/bold]")
    else:
        console.print("Every target is met.")
