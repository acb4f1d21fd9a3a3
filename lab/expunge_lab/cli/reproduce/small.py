"""`expunge reproduce theorem-5.1`, `runtime` and `budget`: experiments of a minute."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from expunge.cli.output import console, show_json, show_table
from expunge_lab.cli.reproduce.group import RESULTS, AsJson, Out, Quick, Replace, Results, Seed, reproduce, this_command

if TYPE_CHECKING:
    from expunge_lab.reproduction import Report


@reproduce.command("theorem-5.1")
def theorem_5_1(
    seed: Seed = 0, results: Results = None, quick: Quick = False, replace: Replace = False, as_json: AsJson = False
) -> None:
    """Theorem 5.1: SISA with lookup tables does not unlearn; measured, and with exact probabilities beside.

    Example: `expunge reproduce theorem-5.1`
    """
    from expunge_lab.reproduction import run_theorem, timed
    from expunge_lab.reproduction.theorem_5_1 import NAME, num_trials

    check_places(NAME, size=num_trials(quick=quick), out=None, results=results, quick=quick, replace=replace)
    report = timed(lambda: run_theorem(quick=quick, seed=seed), command=this_command())
    hand_over(report, out=None, results=results, quick=quick, as_json=as_json)


@reproduce.command()
def runtime(
    out: Out = None,
    seed: Seed = 0,
    results: Results = None,
    quick: Quick = False,
    replace: Replace = False,
    as_json: AsJson = False,
) -> None:
    """Theorem 4.2: how many shards a deletion retrains, N^t, for requesters of several kinds, against the bounds.

    Example: `expunge reproduce runtime --out figures`
    """
    from expunge_lab.reproduction import run_runtime, timed
    from expunge_lab.reproduction.runtime import NAME, num_trials

    check_places(NAME, size=num_trials(quick=quick), out=out, results=results, quick=quick, replace=replace)
    report = timed(lambda: run_runtime(quick=quick, seed=seed), command=this_command())
    hand_over(report, out=out, results=results, quick=quick, as_json=as_json)


@reproduce.command()
def budget(
    out: Out = None, results: Results = None, quick: Quick = False, replace: Replace = False, as_json: AsJson = False
) -> None:
    """α against the number of predictions in a generation, for every theorem, as table and picture.

    Example: `expunge reproduce budget --out figures`
    """
    from expunge_lab.reproduction import run_budget, timed
    from expunge_lab.reproduction.budget import NAME, num_cases

    check_places(NAME, size=num_cases(quick=quick), out=out, results=results, quick=quick, replace=replace)
    report = timed(lambda: run_budget(quick=quick), command=this_command())
    hand_over(report, out=out, results=results, quick=quick, as_json=as_json)


def check_places(name: str, *, size: int, out: Path | None, results: Path | None, quick: bool, replace: bool) -> None:
    """Before the work: that its results and figures can be written, and that nothing larger is kept there already."""
    from expunge_lab.reproduction.files import check_folder
    from expunge_lab.reproduction.report import check_kept

    if out is not None:
        check_folder(out)
    if results is not None or not quick:
        folder = results or RESULTS
        check_folder(folder)
        if not replace:
            check_kept(folder, name, size=size)


def hand_over(report: Report, *, out: Path | None, results: Path | None, quick: bool, as_json: bool) -> None:
    """Keep the report (a quick one only if asked to), draw it, and print it."""
    from expunge_lab.reproduction import DRAWN

    if results is not None or not quick:
        report.save(results or RESULTS)
    drawn = DRAWN[report.name](report, out) if out is not None else []
    if as_json:
        show_json({"command": report.command, **report.data})
        return
    show_table(report.title, report.columns, report.rows)
    console.print(report.about, markup=False)
    if drawn:
        console.print(f"drawn: {', '.join(path.name for path in drawn)}", markup=False)
