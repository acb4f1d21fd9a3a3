"""Appendix C.2: the label-only attack on SISA with 1,000 MNIST zeros and ones, 200 trials for each number of deletions.

    python experiments/label_only/run.py                under a minute on 2 cores; needs MNIST (EXPUNGE_DATA)
    python experiments/label_only/run.py --data digits  the built-in stand-in, seconds

Three equal shards, drawn afresh in every trial; the τ-nearest-neighbour table with τ = 6.5; majority vote with ⊥. The
requester sees the labels of the training points and deletes a uniformly random subset of the correctly predicted ones.
Event: accuracy on the remaining training points at or below a cut-off, which is chosen on 100 other trials (the paper
searches it on the very trials it evaluates).

Expected on MNIST: about 91% test accuracy before deletion (the paper: 91.2%), and (0,0,0)-unlearning rejected at
p ≤ 0.05 from 200 deletions on. Writes label_only.json, label_only.md, label_only.png and label_only.svg beside it.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

from expunge.audit import (
    AuditReport,
    Event,
    Task,
    alpha_lower_bound,
    audit,
    clopper_pearson,
    label_only_scenario,
    make_scheme,
    sign_test,
    small_zeros_and_ones_task,
    zeros_and_ones_task,
)
from expunge.bench import Environment
from expunge.randomness import Randomness

matplotlib.use("Agg")
HERE = Path(__file__).parent
ACCURACY = "accuracy on surviving records"
DELETIONS = {"mnist": (50, 100, 200, 400), "digits": (10, 20, 40, 80)}
CONFIDENCE = 0.975
NUM_CHOOSING = 100
PARTITIONS_FOR_TEST_ACCURACY = 20


def main() -> None:
    """Run, tell, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=tuple(DELETIONS), default="mnist")
    parser.add_argument("--trials", type=int, default=200, help="evaluated trials for each number of deletions")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=HERE)
    options = parser.parse_args()
    started = time.perf_counter()
    task = zeros_and_ones_task() if options.data == "mnist" else small_zeros_and_ones_task()
    before = test_accuracy(task, seed=options.seed)
    print(f"test accuracy before deletion {before:.1%}", flush=True)
    rows = []
    for size in DELETIONS[options.data]:
        rows.append(measure(task, size, trials=options.trials, seed=options.seed, jobs=options.jobs))
        print(line(rows[-1]), flush=True)
    seconds = time.perf_counter() - started
    result = {
        "command": f"python experiments/label_only/run.py --data {options.data} --seed {options.seed}",
        "environment": asdict(Environment.current()),
        "data": task.name,
        "seconds": round(seconds, 1),
        "test_accuracy_before": before,
        "confidence": CONFIDENCE,
        "rows": rows,
    }
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "label_only.json").write_text(json.dumps(result, indent=1) + "\n")
    (options.out / "label_only.md").write_text(page(result))
    draw(result, options.out)
    print(f"{seconds:.0f} s")


def test_accuracy(task: Task, *, seed: int) -> float:
    """On held-out zeros and ones, over a few fresh partitions."""
    scheme = make_scheme("sisa", label_only_scenario(task))
    rng = Randomness.from_seed(seed)
    states = (scheme.learn(task.records, rng) for _ in range(PARTITIONS_FOR_TEST_ACCURACY))
    return float(np.mean([np.mean(scheme.decide(state, task.test_points) == task.test_codes) for state in states]))


def measure(task: Task, size: int, *, trials: int, seed: int, jobs: int) -> dict[str, Any]:
    """One number of deletions: the trials to choose the cut-off come first, the others are evaluated."""
    scenario = label_only_scenario(task, num_deletions=size)
    report = audit(
        scenario,
        make_scheme("sisa", scenario),
        num_trials=NUM_CHOOSING + trials,
        seed=seed + size,
        n_jobs=jobs,
        confidence=CONFIDENCE,
    )
    unlearned, retrained = scores(report, "unlearned"), scores(report, "retrained")
    event = choose(unlearned[:NUM_CHOOSING], retrained[:NUM_CHOOSING])
    counts = [int(event.happened(arm[NUM_CHOOSING:]).sum()) for arm in (unlearned, retrained)]
    return {
        "deletions": size,
        "accuracy_before": float(scores(report, "before").mean()),
        "accuracy_unlearned": float(unlearned[NUM_CHOOSING:].mean()),
        "accuracy_retrained": float(retrained[NUM_CHOOSING:].mean()),
        "cut": event.cut,
        "unlearned": arm(counts[0], trials),
        "retrained": arm(counts[1], trials),
        "alpha_lower": alpha_lower_bound(*counts, trials, beta=0.0, gamma=0.0, confidence=0.95),
        "p_value": sign_p_value(unlearned[NUM_CHOOSING:], retrained[NUM_CHOOSING:]),
    }


def scores(report: AuditReport, arm_name: str) -> np.ndarray:
    """The statistic of one arm, trial by trial."""
    return np.array([getattr(trial, arm_name)[ACCURACY] for trial in report.trials])


def choose(unlearned: np.ndarray, retrained: np.ndarray) -> Event:
    """The cut-off with the largest difference of frequencies."""
    cuts = np.unique(np.concatenate([unlearned, retrained]))
    events = [Event(ACCURACY, "at most", float(cut)) for cut in cuts]
    return max(events, key=lambda event: int(event.happened(unlearned).sum()) - int(event.happened(retrained).sum()))


def arm(count: int, trials: int) -> dict[str, Any]:
    """Frequency and exact interval."""
    return {"count": count, "trials": trials, "interval": clopper_pearson(count, trials, confidence=CONFIDENCE)}


def sign_p_value(unlearned: np.ndarray, retrained: np.ndarray) -> float:
    """The audit's exact test on the evaluated trials."""
    return sign_test(ACCURACY, unlearned, retrained).p_value


def line(row: dict[str, Any]) -> str:
    """A row of the table."""
    arms = " | ".join(
        f"{part['count'] / part['trials']:.3f} [{part['interval'][0]:.3f}, {part['interval'][1]:.3f}]"
        for part in (row["unlearned"], row["retrained"])
    )
    return (
        f"| {row['deletions']} | {row['accuracy_unlearned']:.3f} | {row['accuracy_retrained']:.3f} | {row['cut']:.4f} "
        f"| {arms} | {row['p_value']:.2g} | {row['alpha_lower']:.2f} |"
    )


def page(result: dict[str, Any]) -> str:
    """The table in Markdown."""
    head = (
        "# Label-only attack on SISA (Appendix C.2)\n\n"
        f"{result['data']}; test accuracy before deletion {result['test_accuracy_before']:.1%}; "
        f"{result['rows'][0]['unlearned']['trials']} trials for each row, cut-offs chosen on {NUM_CHOOSING} others; "
        f"{result['confidence']:.1%} exact intervals; p of the exact two-sided sign test; "
        f"made by `{result['command']}` in {result['seconds']:.0f} s.\n\n"
        "| deletions | accuracy unlearned | retrained | cut-off | event unlearned | event retrained | p | α ≥ |\n"
        "|---|---|---|---|---|---|---|---|\n"
    )
    return head + "\n".join(line(row) for row in result["rows"]) + "\n\n![both arms](label_only.svg)\n"


def draw(result: dict[str, Any], folder: Path) -> None:
    """Both arms against the number of deletions, as in the paper's figure."""
    from matplotlib import pyplot

    pyplot.rcParams.update({"svg.hashsalt": "expunge", "font.size": 11})
    figure, axes = pyplot.subplots(figsize=(6.4, 4.2))
    for name, colour, label, shift in (
        ("unlearned", "#c0392b", "after the adaptive deletions", 0.97),
        ("retrained", "#2166ac", "after full retraining", 1.03),
    ):
        x = [row["deletions"] * shift for row in result["rows"]]
        middle = np.array([row[name]["count"] / row[name]["trials"] for row in result["rows"]])
        low, high = np.array([row[name]["interval"] for row in result["rows"]]).T
        axes.errorbar(x, middle, [middle - low, high - middle], fmt="o", capsize=4, color=colour, label=label)
    axes.set_xscale("log", base=2)
    ticks = [row["deletions"] for row in result["rows"]]
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.set(xlabel="deleted points", ylabel="probability of the event", ylim=(0, 1))
    axes.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(folder / "label_only.png", dpi=150, metadata={"Software": None})
    figure.savefig(folder / "label_only.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
