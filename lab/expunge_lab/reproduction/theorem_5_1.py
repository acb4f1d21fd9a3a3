"""Theorem 5.1: SISA with lookup tables does not unlearn, measured and exact.

n points, each there twice, in three shards. A requester who deletes what is labelled correctly leaves only pairs that
share a shard. E: every remaining pair shares a shard. Unlearning is in E always; full retraining on the s surviving
pairs with probability exactly 3^-s. So no α below s·ln 3 + ln(1−β) will do, and s is about n/3.
"""

from __future__ import annotations

from math import log, log1p
from typing import Any

import numpy as np

from expunge.audit import LookupResult, alpha_lower_bound, attack_lookup, clopper_pearson
from expunge.core.randomness import Randomness
from expunge_lab.reproduction.report import Report, check_seed, interval_words

NAME = "theorem-5.1"
NUM_SHARDS = 3
_BETA = 0.25  # the theorem speaks of β and γ below 1/4
_SIZES = (3, 10, 30, 100, 300, 1000)
_QUICK_SIZES = (3, 10, 100)


def run_theorem(*, quick: bool = False, seed: int = 0) -> Report:
    """The attack at several sizes: 500 trials each, or 50."""
    check_seed(seed)
    trials = num_trials(quick=quick)
    rows = [_measure(size, trials=trials, seed=seed) for size in (_QUICK_SIZES if quick else _SIZES)]
    return Report(
        name=NAME,
        title="Theorem 5.1: lookup tables in three shards",
        about=(
            f"{trials} trials a row. Expected: accuracy 2/3 before deletion and after full retraining, 0 after "
            "unlearning; the event E in every trial after unlearning, with probability 3^-s after full retraining. "
            f"The last column is what the exact probabilities demand of α at β = {_BETA:g} in half of the trials; it "
            "grows without bound with n."
        ),
        columns=("n", "accuracy before", "unlearned", "retrained", "E unlearned", "E retrained", "3^-s", "α ≥"),
        rows=[_cells(row) for row in rows],
        data={"trials": trials, "seed": seed, "beta": _BETA, "rows": rows},
    )


def num_trials(*, quick: bool) -> int:
    """Trials a row."""
    return 50 if quick else 500


def _measure(size: int, *, trials: int, seed: int) -> dict[str, Any]:
    rngs = (Randomness.from_seed(np.random.SeedSequence([seed, size, number])) for number in range(trials))
    played = [attack_lookup(size, rng=rng, num_shards=NUM_SHARDS) for rng in rngs]
    counts = [sum(trial.event_unlearned for trial in played), sum(trial.event_retrained for trial in played)]
    survivors = np.array([trial.num_surviving_pairs for trial in played])
    return {
        "pairs": size,
        "accuracy_before": _mean(played, "accuracy_before"),
        "accuracy_unlearned": _mean([trial for trial in played if trial.num_surviving_pairs], "accuracy_unlearned"),
        "accuracy_retrained": _mean([trial for trial in played if trial.num_surviving_pairs], "accuracy_retrained"),
        "event_unlearned": counts[0],
        "event_retrained": counts[1],
        "intervals": [clopper_pearson(count, trials) for count in counts],
        "exact_retrained": float(np.mean(float(NUM_SHARDS) ** -survivors)),
        "alpha_needed": max(0.0, float(np.median(survivors)) * log(NUM_SHARDS) + log1p(-_BETA)),
        "alpha_shown": alpha_lower_bound(counts[0], counts[1], trials, beta=_BETA, gamma=0.0, confidence=0.95),
    }


def _mean(trials: list[LookupResult], name: str) -> float:
    return float(np.mean([getattr(trial, name) for trial in trials]))


def _cells(row: dict[str, Any]) -> list[str]:
    return [
        str(row["pairs"]),
        f"{row['accuracy_before']:.3f}",
        f"{row['accuracy_unlearned']:.3f}",
        f"{row['accuracy_retrained']:.3f}",
        interval_words(row["intervals"][0]),
        interval_words(row["intervals"][1]),
        f"{row['exact_retrained']:.2g}",
        f"{row['alpha_needed']:.1f}",
    ]
