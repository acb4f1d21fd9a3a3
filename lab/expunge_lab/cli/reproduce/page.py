"""`expunge reproduce page`: everything that was found, on one page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from expunge.cli.output import console, page_can_be_written
from expunge.core.errors import InputError
from expunge_lab.cli.reproduce.group import RESULTS, Trials, Whose, check_trials, reproduce, this_command
from expunge_lab.cli.reproduce.table import read_table


@reproduce.command()
def page(
    out: Annotated[Path, typer.Option(help="The page; figures go into `figures` beside it.")] = Path(
        "docs/reproduction.md"
    ),
    results: Annotated[Path, typer.Option(help="The folder of results.")] = RESULTS,
    trials: Trials = 300,
    accuracy: Whose = "voted",
) -> None:
    """Write the page about the reproduction: the paper's table with ours beside it, figures, and how all was made.

    What was not run yet is left out. Rows run with `--fixed-partition` get columns of their own among the indicators.
    A file `notes.md` among the results is copied into the page.

    Example: `expunge reproduce page --out docs/reproduction.md`
    """
    from expunge_lab.reproduction import Report, Variant, table_rows, write_page
    from expunge_lab.reproduction.files import check_folder, read_text
    from expunge_lab.reproduction.page import NOTES, REPORTS

    check_trials(trials)
    if not results.is_dir():
        raise InputError(f"there is no folder {str(results)!r} of results")
    page_can_be_written(out)
    check_folder(out.parent / "figures")
    table = read_table(table_rows(), results, Variant(), trials=trials, accuracy=accuracy)
    released = read_table(table_rows(), results, Variant(has_fixed_partition=True), trials=trials, accuracy=accuracy)
    table = replace(table, released=[found for found in released.results if found.trials is not None])
    reports = [report for name in REPORTS if (report := Report.load(results, name)) is not None]
    notes = results / NOTES
    written = write_page(
        out,
        table,
        reports,
        notes=read_text(notes) if notes.is_file() else "",
        command=this_command(),
        results=results.name if results.is_absolute() else results.as_posix(),
    )
    console.print(f"written: {', '.join(path.name for path in written)}", markup=False)
