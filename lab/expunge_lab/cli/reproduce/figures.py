"""`expunge reproduce figure1` and `figure2`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from expunge.cli.output import console, show_json
from expunge.core.errors import InputError
from expunge_lab.cli.reproduce.group import (
    RESULTS,
    AsJson,
    Download,
    Out,
    Quick,
    Replace,
    Results,
    Seed,
    Trials,
    Whose,
    advising_on_data,
    check_trials,
    reproduce,
    this_command,
)
from expunge_lab.cli.reproduce.small import check_places, hand_over
from expunge_lab.cli.reproduce.table import (
    QUICK_TRIALS,
    FixedPartition,
    FreshSplit,
    known_accuracy,
    read_table,
    run_table,
    tell,
    to_dict,
)


@reproduce.command()
def figure1(
    out: Annotated[Path, typer.Option(help="Draw the figure into this folder, as PNG and SVG.")] = Path(),
    trials: Trials = 300,
    results: Results = None,
    fixed_partition: FixedPartition = False,
    fresh_split: FreshSplit = False,
    accuracy: Whose = "voted",
    quick: Quick = False,
    as_json: AsJson = False,
) -> None:
    """Figure 1: accuracy after deletion against the indicator, six panels, from the results of `table`.

    `--quick` runs a small stand-in first, and draws two panels.

    Example: `expunge reproduce figure1 --out figures`
    """
    from expunge_lab.reproduction import Variant, draw_figure1, quick_rows, table_rows
    from expunge_lab.reproduction.files import check_folder

    check_trials(trials)
    check_folder(out)
    known_accuracy(accuracy)
    variant = Variant(has_fixed_partition=fixed_partition, has_fresh_split=fresh_split)
    rows = quick_rows() if quick else table_rows()
    wanted = min(trials, QUICK_TRIALS) if quick else trials
    with tempfile.TemporaryDirectory() as scratch:
        folder = results or (Path(scratch) if quick else RESULTS)
        if quick:
            run_table(rows, folder, variant, trials=wanted, batch=QUICK_TRIALS // 2, seconds=None, quick=True)
        found = read_table(rows, folder, variant, trials=wanted, accuracy=accuracy)
    if not found.verdicts and any(kept.num_trials for kept in found.results):
        raise InputError(f"no row has two of its first {wanted} trials, so there is nothing to draw")
    if not found.verdicts:
        raise InputError(f"there are no trials in {str(folder)!r} to draw: run `expunge reproduce table` first")
    paths = draw_figure1(found.verdicts, out)
    if as_json:
        show_json({**to_dict(found), "figures": [path.name for path in paths]})
    else:
        tell(found, is_status=False, is_done=True)
        console.print(f"drawn: {', '.join(path.name for path in paths)}", markup=False)


@reproduce.command()
def figure2(
    out: Out = None,
    trials: Trials = 200,
    seed: Seed = 0,
    jobs: Annotated[int, typer.Option(help="Worker processes; -1 for all cores. Does not change any number.")] = 1,
    results: Results = None,
    download: Download = False,
    quick: Quick = False,
    replace: Replace = False,
    as_json: AsJson = False,
) -> None:
    """Figure 2 (Appendix C.2): the label-only attack on 1,000 MNIST zeros and ones; a minute or two.

    Example: `expunge reproduce figure2 --out figures`
    """
    from expunge_lab.reproduction import run_label_only, timed
    from expunge_lab.reproduction.label_only import NAME, num_trials

    size = num_trials(trials, quick=quick)
    check_places(NAME, size=size, out=out, results=results, quick=quick, replace=replace)
    if download and not quick:
        from expunge_lab.datasets.download import fetch_dataset

        fetch_dataset("mnist")
    with advising_on_data():
        report = timed(lambda: run_label_only(quick=quick, seed=seed, jobs=jobs, trials=trials), command=this_command())
    hand_over(report, out=out, results=results, quick=quick, as_json=as_json)
