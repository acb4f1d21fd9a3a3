"""`expunge reproduce table`: the white-box experiment, all 24 rows, resumable."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from expunge.cli.output import complain, console, progress, show_json, show_table
from expunge.core.errors import InputError
from expunge_lab.cli.reproduce.group import (
    RESULTS,
    AsJson,
    Download,
    Quick,
    Results,
    Trials,
    Whose,
    advising_on_data,
    check_trials,
    reproduce,
    this_command,
)

if TYPE_CHECKING:
    from expunge_lab.reproduction import Accuracy, MakeRunner, Pictures, Row, RunTrials, TablePage, Variant

QUICK_TRIALS = 40
_QUICK_BATCH = 20

RowNames = Annotated[
    str,
    typer.Option(
        "--rows", help="Only these, by name or beginning, with commas: cifar-10,mnist-k6,fashion-mnist-k2-0.5."
    ),
]
FixedPartition = Annotated[
    bool, typer.Option("--fixed-partition", help="The released code's one partition for all trials, and its keys.")
]
FreshSplit = Annotated[
    bool, typer.Option("--fresh-split", help="Another split of the test images than the released code's.")
]


@reproduce.command()
def table(
    rows: RowNames = "",
    trials: Trials = 300,
    batch: Annotated[int, typer.Option(help="Trials together, as far as memory allows; best a divisor.")] = 150,
    seconds: Annotated[float | None, typer.Option(help="Begin no batch that would not end within so long.")] = None,
    status: Annotated[bool, typer.Option("--status", help="Only say how far every row is.")] = False,
    merge: Annotated[Path | None, typer.Option(help="Take in the results of another folder, and run nothing.")] = None,
    results: Results = None,
    fixed_partition: FixedPartition = False,
    fresh_split: FreshSplit = False,
    accuracy: Whose = "voted",
    download: Download = False,
    quick: Quick = False,
    as_json: AsJson = False,
) -> None:
    """The white-box table of the paper (Section 5.2): 24 rows, 300 trials each, with a control arm.

    Rows are run in the order of the table, every batch is written when it is done, and the command continues where it
    stopped. On one H200 or better, with the extra `jax`; `--quick` runs a small stand-in on digits. Data: CIFAR-10,
    Fashion-MNIST and MNIST as published, in the folder named by EXPUNGE_DATA or in the cache. Compiled programs are
    kept in the cache too.

    Example: `expunge reproduce table --rows mnist-k6 --seconds 540`
    """
    from expunge_lab.reproduction import Variant, choose_rows, quick_rows, table_rows, take_in

    check_trials(trials)
    known_accuracy(accuracy)  # hours before it is needed
    variant = Variant(has_fixed_partition=fixed_partition, has_fresh_split=fresh_split)
    chosen = choose_rows(
        [name.strip() for name in rows.split(",") if name.strip()], quick_rows() if quick else table_rows()
    )
    wanted = min(trials, QUICK_TRIALS) if quick else trials
    is_kept = results is not None or not quick
    with nullcontext(str(results or RESULTS)) if is_kept else tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        if merge is not None:
            added = take_in(folder, merge, chosen, variant)
            if not as_json:
                console.print(f"{added:,} new trials taken in from {merge}", markup=False)
        elif status and not folder.is_dir():
            raise InputError(f"there is no folder {str(folder)!r} of results")
        done = True
        if not status and merge is None:
            if download and not quick:
                _download(chosen)
            done = run_table(
                chosen, folder, variant, trials=wanted, batch=min(batch, _QUICK_BATCH) if quick else batch,
                seconds=seconds, quick=quick,
            )  # fmt: skip
        found, damages = _read_what_can_be(chosen, folder, variant, trials=wanted, accuracy=accuracy)
    if as_json:
        show_json(to_dict(found))
    else:
        tell(found, is_status=status, is_done=done)
    if damages:
        raise InputError(f"left out of the table: {'; '.join(damages)}")


def run_table(
    rows: Sequence[Row],
    folder: Path,
    variant: Variant,
    *,
    trials: int,
    batch: int,
    seconds: float | None,
    quick: bool,
) -> bool:
    """Whether all rows are done."""
    from expunge_lab.reproduction import Campaign

    began = time.monotonic()  # a device takes its time to start
    make_runner, device = _runner(quick=quick)
    campaign = Campaign(
        folder=folder,
        make_runner=make_runner if quick else _announced(make_runner),
        num_trials=trials,
        batch=batch,
        command=this_command(),
        device=device,
        variant=variant,
        seconds=seconds,
        progress=progress,
        began=began,
    )
    with advising_on_data():
        return campaign.run(rows)


def read_table(rows: Sequence[Row], folder: Path, variant: Variant, *, trials: int, accuracy: str) -> TablePage:
    """What is there of these rows."""
    from expunge_lab.reproduction import TablePage, read_results

    return TablePage([read_results(folder, row, variant) for row in rows], trials, known_accuracy(accuracy))


def _read_what_can_be(
    rows: Sequence[Row], folder: Path, variant: Variant, *, trials: int, accuracy: str
) -> tuple[TablePage, list[str]]:
    """The same without rows whose files are damaged, and a line about each of those."""
    from expunge_lab.reproduction import TablePage, read_results

    found, damages = [], []
    for row in rows:
        try:
            found.append(read_results(folder, row, variant))
        except InputError as error:
            damages.append(str(error))
    return TablePage(found, trials, known_accuracy(accuracy)), damages


def known_accuracy(given: str) -> Accuracy:
    """One of `ACCURACIES`."""
    from expunge_lab.reproduction import ACCURACIES

    for known in ACCURACIES:
        if known == given:
            return known
    raise InputError(f"accuracy must be one of {', '.join(ACCURACIES)}, got {given!r}")


def _runner(*, quick: bool) -> tuple[MakeRunner, str]:
    """What runs trials, and on what."""
    if quick:
        from expunge_lab.reproduction import StandIn

        return StandIn, "CPU (stand-in)"
    from expunge.theory import default_cache_folder
    from expunge_lab.reproduction.white_box import WhiteBox, device_name

    return WhiteBox(cache=default_cache_folder() / "compiled"), device_name()


def _announced(make_runner: MakeRunner) -> MakeRunner:
    """Without a GPU, says what to expect when the first trials are about to begin, and not if they cannot."""
    from expunge_lab.reproduction.white_box import is_on_gpu

    is_told = is_on_gpu()

    def make(row: Row, pictures: Pictures, *, has_fixed_partition: bool) -> RunTrials:
        nonlocal is_told
        if not is_told:
            complain("JAX sees no GPU here: a trial takes minutes and a row most of a day or longer; try --quick")
            is_told = True
        return make_runner(row, pictures, has_fixed_partition=has_fixed_partition)

    return make


def _download(rows: Sequence[Row]) -> None:
    from expunge_lab.datasets.download import fetch_dataset

    for name in dict.fromkeys(row.dataset for row in rows):
        for path in fetch_dataset(name):
            console.print(f"fetched {path.name}", markup=False)


def to_dict(found: TablePage) -> dict[str, Any]:
    """For programs: how far every row is, and the verdicts."""
    return {
        "trials": found.num_trials,
        "complete": found.is_complete,
        "seconds": round(sum(results.seconds for results in found.results), 1),
        "state": [
            {
                "row": results.row.name,
                "done": found.num_trials - len(results.missing(found.num_trials)),
                "stored": results.num_trials,
                "seconds": round(results.seconds, 1),
                "runs": len(results.runs),
            }
            for results in found.results
        ],
        "rows": [verdict.to_dict() for verdict in found.verdicts],
    }


def tell(found: TablePage, *, is_status: bool, is_done: bool) -> None:
    """For people."""
    from expunge_lab.reproduction import describe

    show_table(
        "Trials of the white-box table",
        ["row", "done", "of", "seconds", "runs"],
        [
            (
                results.row.name,
                found.num_trials - len(results.missing(found.num_trials)),
                found.num_trials,
                f"{results.seconds:.0f}",
                len(results.runs),
            )
            for results in found.results
        ],
    )
    if not is_status and found.verdicts:
        show_table(
            "Ours and the paper's", ["row", "before", "after", "shard pred.", "indicator", "control"], _cells(found)
        )
    console.print(describe(found), markup=False)
    if not is_done:
        console.print("The time is up; the same command goes on from here.")


def _cells(found: TablePage) -> list[list[str]]:
    columns = ("before", "after", "shard", "indicator")
    return [
        [
            one.row.name,
            *(f"{getattr(one, name).ours:.3f} ({getattr(one, name).words})" for name in columns),
            f"{one.control.rate:.3f} (p = {one.control.p_value:.2g})",
        ]
        for one in found.verdicts
    ]
