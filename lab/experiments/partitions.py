"""How far one partition, kept for all trials, can move the indicator off what fresh partitions give.

    python lab/experiments/partitions.py                          from the kept trials, in seconds
    python lab/experiments/partitions.py --row mnist-k6-0.8       new trials: on a GPU a minute or two
    python lab/experiments/partitions.py --row mnist-k6-0.8 --before --partitions 2 --trials 8

The indicator asks whether the lead of the models that are not targeted over those that are is above zero. The trials
released with the paper share one partition, whose shards lead or lag by chance in all of them; ours draw new ones.

From the kept trials: the *shift* between the paper's indicator and ours in standard deviations of the lead (probits,
with twice its standard error), and what could make it: the lead before and after the deletions of one trial have the
partition and the initial weights in common, so the square root of their correlation is the most (but for chance) that
partitions spread, as a standard deviation in the same unit.

With --row, several partitions have some trials each, and an analysis of variance says what share of the variance is the
partition's, with the p-value of the F-test that it has none: before the deletions of every shard's own accuracy, after
them of the lead. --before leaves the deletions out, which a CPU can do too (the third line above: half an hour on two
cores).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import f as f_distribution

from expunge.core.errors import InputError
from expunge_lab.reproduction import Pictures, Row, Trials, Variant, load_pictures, read_results, table_rows
from expunge_lab.reproduction.white_box import Engine, run_trials
from expunge_lab.reproduction.white_box.partitions import draw_keys, first_partition, trial_generators
from expunge_lab.reproduction.white_box.runner import make_engine

KEPT = Path(__file__).parents[1] / "results" / "paper"
NUM_TRIALS = 300  # the paper's, and ours that are compared with them
NORMAL = NormalDist()

Leads = NDArray[np.float64]


def lead(correct: NDArray[Any]) -> Leads:
    """Of the models that are not targeted, trial by trial, from right answers (trials, models)."""
    half = correct.shape[1] // 2
    return np.asarray(correct[:, half:].mean(axis=1) - correct[:, :half].mean(axis=1), np.float64)


def probit(rate: float, trials: int) -> tuple[float, float]:
    """Of an indicator, and its standard error; a rate of 0 or 1 is taken half a trial inside."""
    inside = min(max(rate, 0.5 / trials), 1 - 0.5 / trials)
    value = NORMAL.inv_cdf(inside)
    return value, (inside * (1 - inside) / trials) ** 0.5 / NORMAL.pdf(value)


def common(trials: Trials) -> tuple[float, float]:
    """The correlation of the leads before and after, and its standard error."""
    found = float(np.corrcoef(lead(trials.before), lead(trials.after))[0, 1])
    return found, (1 - found**2) / (len(trials) - 1) ** 0.5


def kept_lines(rows: Iterable[Row], folder: Path) -> Iterator[str]:
    """A line of a table for every row that was run."""
    for row in rows:
        trials = read_results(folder, row, Variant()).first(NUM_TRIALS)
        if trials is None or row.paper is None:
            continue
        ours, paper = trials.indicator("after").rate, sum(row.paper.indicator) / 2
        (own, own_error), (theirs, their_error) = probit(ours, len(trials)), probit(paper, NUM_TRIALS)
        shift, error = theirs - own, (own_error**2 + their_error**2) ** 0.5
        correlation, doubt = common(trials)
        low, middle, high = (max(correlation + sign * 2 * doubt, 0) ** 0.5 for sign in (-1, 0, 1))
        numbers = f"{paper:.3f} | {ours:.3f} | {shift:+.2f} ± {2 * error:.2f} | {middle:.2f} ({low:.2f} to {high:.2f})"
        yield f"| {row.title} | {numbers} |"


def kept_table(rows: Iterable[Row], folder: Path) -> Iterator[str]:
    """All lines, or none if a file is damaged."""
    if not folder.is_dir():
        raise InputError(f"there is no folder {str(folder)!r} of results")
    lines = list(kept_lines(rows, folder))
    yield "| row | paper | ours | shift | partitions spread at most |"
    yield "| --- | --- | --- | --- | --- |"
    yield from lines


def explained(groups: list[Leads]) -> tuple[float, float]:
    """The share of variance between groups of equal size, and the p-value of the F-test that there is none."""
    size, number = len(groups[0]), len(groups)
    within = float(np.mean([group.var(ddof=1) for group in groups]))
    between = float(size * np.var([group.mean() for group in groups], ddof=1))
    share = max((between - within) / size, 0.0)
    p_value = f_distribution.sf(between / within, number - 1, number * (size - 1))
    return share / (share + within), float(p_value)


def drawn_order(row: Row, pictures: Pictures, seed: int) -> NDArray[np.int32]:
    """One partition for all trials: images, cut into shards from the front."""
    order = np.random.default_rng(seed).permutation(len(pictures.y))
    return order[: row.experiment.num_points].astype(np.int32)


def first_models(row: Row, engine: Engine, pictures: Pictures, *, seed: int, num_trials: int) -> NDArray[Any]:
    """Right answers (trials, models) of one partition's models before any deletion, without the rest of the trials."""
    generators = trial_generators(seed, range(num_trials))
    shards = first_partition(row, np.tile(drawn_order(row, pictures, seed), (num_trials, 1)))
    start, keys = (draw_keys(generators, row.num_shards) for _ in range(2))
    weights = engine.train(
        engine.initial(start), shards.rows, shards.sizes, keys, noise_multiplier=row.noise_multiplier
    )
    right = (engine.test_scores(weights).argmax(axis=2) == pictures.y_test).sum(axis=1)
    return np.asarray(right.reshape(num_trials, row.num_shards))


def new_lines(row: Row, num_partitions: int, num_trials: int, *, is_before_only: bool) -> Iterator[str]:
    """Every partition's indicators as JSON, then what they say together."""
    pictures = load_pictures(row.experiment)
    engine = make_engine(row.experiment, pictures)
    shards: list[Leads] = []  # the right answers of every shard of every partition
    leads: list[Leads] = []  # of every partition, after the deletions
    for seed in range(num_partitions):
        facts: dict[str, Any] = {"row": row.name, "partition": seed, "trials": num_trials}
        if is_before_only:
            before = first_models(row, engine, pictures, seed=seed, num_trials=num_trials)
        else:
            numbers = range(num_trials)
            order = drawn_order(row, pictures, seed)
            trials = run_trials(row, engine, pictures, seed=seed, numbers=numbers, order=order)
            before = trials.before
            leads.append(lead(trials.after))
            facts |= {"after": _rate(leads[-1]), "lead_after": round(float(leads[-1].mean()), 3)}
        shards.extend(before.T.astype(np.float64))
        own = lead(before)
        yield json.dumps(facts | {"before": _rate(own), "lead_before": round(float(own.mean()), 3)})
    for what, groups in (("accuracy of a shard's model, before", shards), ("lead, after", leads)):
        if groups:
            share, p_value = explained(groups)
            spread = (share / (1 - share)) ** 0.5
            yield json.dumps({"of": what, "share": round(share, 4), "p": p_value, "spread": round(spread, 3)})


def _rate(leads: Leads) -> float:
    return round(float(np.mean(leads > 0)), 4)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    rows = {row.name: row for row in table_rows()}
    parser.add_argument("--row", choices=rows, metavar="ROW", help="train new trials of this row")
    parser.add_argument("--partitions", type=int, default=10)
    parser.add_argument("--trials", type=int, default=30, help="of every partition")
    parser.add_argument("--before", action="store_true", help="delete nothing, and train only the first models")
    parser.add_argument("--results", type=Path, default=KEPT, help="the folder of kept trials")
    options = parser.parse_args()
    try:
        if options.row is None:
            lines = kept_table(rows.values(), options.results)
        else:
            lines = new_lines(rows[options.row], options.partitions, options.trials, is_before_only=options.before)
        for line in lines:
            print(line, flush=True)
    except InputError as error:
        parser.exit(2, f"{parser.prog}: {error}\n")


if __name__ == "__main__":
    main()
