"""Figure 2 (Appendix C.2): the label-only attack on SISA with a nearest-neighbour table.

1,000 MNIST zeros and ones in three equal shards, drawn afresh in every trial; the τ-nearest-neighbour table with
τ = 6.5; majority vote with ⊥. The requester sees the labels of the training points and deletes a random subset of those
predicted correctly. Event: accuracy on the remaining points at or below a cut-off. The paper searches the cut-off on
the very trials it evaluates; here it is chosen on others, which keeps the intervals honest.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

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
from expunge.core.checks import require_count
from expunge.core.errors import InputError
from expunge.core.randomness import Randomness
from expunge_lab.datasets import load_mnist
from expunge_lab.reproduction.report import Report, check_seed, interval_words

NAME = "figure2"
CONFIDENCE = 0.975
DELETIONS = (50, 100, 200, 400)
QUICK_DELETIONS = (10, 40, 80)
_ACCURACY = "accuracy on surviving records"
_PARTITIONS = 20
_FEWEST = 3  # one more to choose the cut-off: an audit has at least four

Scores = NDArray[np.float64]


def run_label_only(*, quick: bool = False, seed: int = 0, jobs: int = 1, trials: int = 200) -> Report:
    """200 trials for each number of deletions, and 100 to choose the cut-off; quick: the built-in digits, 40 and 20."""
    check_seed(seed)
    used = num_trials(trials, quick=quick)
    task = small_zeros_and_ones_task() if quick else _mnist()
    before = held_out_accuracy(task, seed=seed)
    rows = [
        measure(task, size, trials=used, seed=seed, jobs=jobs) for size in (QUICK_DELETIONS if quick else DELETIONS)
    ]
    return Report(
        name=NAME,
        title="Figure 2: the label-only attack",
        about=(
            f"{task.name}: test accuracy before deletion {before:.1%} (the paper, MNIST: 91.2%); {used} trials a row, "
            f"cut-offs chosen on {used // 2} others; {CONFIDENCE:.1%} exact intervals; p of the exact two-sided sign "
            "test. Expected on MNIST: perfect unlearning rejected at p ≤ 0.05 from 200 deletions on."
        ),
        columns=("deletions", "accuracy unlearned", "retrained", "cut-off", "event unlearned", "retrained", "p", "α ≥"),
        rows=[_cells(row) for row in rows],
        data={"task": task.name, "trials": used, "seed": seed, "accuracy_before": before, "rows": rows},
    )


def num_trials(trials: int, *, quick: bool) -> int:
    """Trials a row, of as many as were asked for."""
    require_count("trials", trials, least=_FEWEST)
    return min(trials, 40) if quick else trials


def _mnist() -> Task:
    try:
        return zeros_and_ones_task()
    except InputError:
        load_mnist()  # says the same without naming the options of `expunge audit`
        raise


def held_out_accuracy(task: Task, *, seed: int) -> float:
    """On held-out zeros and ones, over a few fresh partitions."""
    scheme = make_scheme("sisa", label_only_scenario(task))
    rng = Randomness.from_seed(seed)
    states = (scheme.learn(task.records, rng) for _ in range(_PARTITIONS))
    return float(np.mean([np.mean(scheme.decide(state, task.test_points) == task.test_codes) for state in states]))


def measure(task: Task, size: int, *, trials: int, seed: int, jobs: int) -> dict[str, Any]:
    """One number of deletions: the first trials choose the cut-off, the others are evaluated."""
    choosing = trials // 2
    scenario = label_only_scenario(task, num_deletions=size)
    scheme = make_scheme("sisa", scenario)
    report = audit(scenario, scheme, num_trials=choosing + trials, seed=seed + size, n_jobs=jobs, confidence=CONFIDENCE)
    unlearned, retrained = _scores(report, "unlearned"), _scores(report, "retrained")
    event = choose_event(unlearned[:choosing], retrained[:choosing])
    unlearned, retrained = unlearned[choosing:], retrained[choosing:]
    counts = [int(event.happened(arm).sum()) for arm in (unlearned, retrained)]
    return {
        "deletions": size,
        "accuracy_unlearned": float(unlearned.mean()),
        "accuracy_retrained": float(retrained.mean()),
        "cut": event.cut,
        "unlearned": _arm(counts[0], trials),
        "retrained": _arm(counts[1], trials),
        "alpha_lower": alpha_lower_bound(counts[0], counts[1], trials, beta=0.0, gamma=0.0, confidence=0.95),
        "p_value": sign_test(_ACCURACY, unlearned, retrained).p_value,
    }


def choose_event(unlearned: Scores, retrained: Scores) -> Event:
    """The cut-off with the largest difference of frequencies."""
    cuts = np.unique(np.concatenate([unlearned, retrained]))
    events = [Event(_ACCURACY, "at most", float(cut)) for cut in cuts]
    return max(events, key=lambda event: int(event.happened(unlearned).sum()) - int(event.happened(retrained).sum()))


def _scores(report: AuditReport, arm: str) -> Scores:
    return np.array([getattr(trial, arm)[_ACCURACY] for trial in report.trials])


def _arm(count: int, trials: int) -> dict[str, Any]:
    interval = clopper_pearson(count, trials, confidence=CONFIDENCE)
    return {"rate": count / trials, "interval": list(interval)}


def _cells(row: dict[str, Any]) -> list[str]:
    arms = [f"{row[arm]['rate']:.3f} {interval_words(row[arm]['interval'])}" for arm in ("unlearned", "retrained")]
    accuracies = [f"{row['accuracy_unlearned']:.3f}", f"{row['accuracy_retrained']:.3f}", f"{row['cut']:.4f}"]
    return [str(row["deletions"]), *accuracies, *arms, f"{row['p_value']:.2g}", f"{row['alpha_lower']:.2f}"]
