"""`expunge bench`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from expunge.cli.output import console, page_can_be_written, progress, show_json, show_table
from expunge.core.errors import InputError

if TYPE_CHECKING:
    from expunge_lab.bench import Report


def bench(
    suites: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SUITE]...",
            help="delete, fit, day, plan, durable, lake, predict, shards, exact, engines, service, program, growth, "
            "sampling, mechanisms, guarantee, consensus, deep.  [default: all of them]",
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Tiny sizes: seconds, and figures without meaning.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write a Markdown page.")] = None,
    kept: Annotated[
        Path | None,
        typer.Option(help="For `deep` alone: keep its figures in this folder; the page shows all that are kept there."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Measure deleting, training, predicting, sampling, noise and guarantees, each against what it replaces.

    All suites together take about eight minutes.

    Example: `expunge bench delete fit --out docs/benchmarks.md`
    """
    from expunge_lab.bench import run_suites

    if out is not None:
        page_can_be_written(out)
    if kept is not None and suites != ["deep"]:
        raise InputError("--kept is for the benchmark deep alone")
    if kept is not None and not kept.is_dir():
        raise InputError(f"there is no folder {str(kept)!r} to keep the figures in")
    if kept is not None:
        _read_kept(kept)
    report = run_suites(suites or [], quick=quick, progress=progress)
    command = _command(suites or [], quick=quick, out=out, kept=kept)
    page = _page(report, command=command, kept=kept)
    if out is not None:
        out.write_text(page, encoding="utf-8")
    if as_json:
        show_json({"command": command, **report.to_dict()})
    else:
        _tell(report, suites or [])


def _read_kept(kept: Path) -> None:
    """A damaged file among those kept is said before anything is measured."""
    from expunge_lab.bench.deep_page import read_records

    read_records(kept)


def _page(report: Report, *, command: str, kept: Path | None) -> str:
    """Networks have a page of their own, since no machine has every device."""
    from expunge_lab.bench import to_markdown

    if list(report.lines) != ["deep"]:
        return to_markdown(report, command=command)
    from expunge_lab.bench.deep_page import Record, read_records, to_page, write_record

    record = Record.of(report, command=command)
    if kept is None:
        return to_page([record])
    write_record(record, kept)
    return to_page(read_records(kept))


def _command(suites: list[str], *, quick: bool, out: Path | None, kept: Path | None) -> str:
    """What makes the page again; of a path elsewhere only its name, for the page is published."""
    words = ["expunge", "bench", *suites]
    if quick:
        words.append("--quick")
    for option, path in (("--out", out), ("--kept", kept)):
        if path is not None:
            words += [option, path.name if path.is_absolute() or ".." in path.parts else path.as_posix()]
    return " ".join(words)


def _tell(report: Report, suites: list[str]) -> None:
    from expunge_lab.bench import COLUMNS, HOW, QUICK_WARNING, SUITES, cells

    for name, lines in report.lines.items():
        show_table(name, COLUMNS, [cells(line) for line in lines], caption=SUITES[name].about)
    left_out = [name for name in SUITES if name not in report.lines]
    if not suites and left_out:
        console.print(f"Left out, because the extra jax is not installed: {', '.join(left_out)}.")
    console.print(HOW)
    missed = len(report.missed)
    if report.quick:
        console.print(f"[bold]{QUICK_WARNING}[/bold]")
    elif missed:
        console.print(f"[bold]{missed} target{'s' if missed > 1 else ''} missed.[/bold]")
    else:
        console.print("Every target is met.")
