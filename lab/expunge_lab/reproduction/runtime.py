"""Theorem 4.2: how many shards one deletion retrains, N^t, against its bounds, for requesters of three kinds.

A requester who chooses in advance touches Bin(k, p) shards. A requester who is shown all models looks for the record
that sits in the most shards; one who is shown noisy labels tries the same. The exact bounds hold for all of them. The
form printed in the paper is too small (its binomial fact has a sign slip) and is shown for comparison.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from expunge.audit import AuditReport, Setting, audit, make_scheme, slow_down_scenario
from expunge.theory import run_time_bounds
from expunge_lab.reproduction.report import Report, check_seed

NAME = "runtime"
FAILURE = 1e-3
_STATISTIC = "shards that the next deletion would retrain"


@dataclass(frozen=True)
class Case:
    """k shards that each hold a record with probability p, n records, and what the requester sees."""

    num_shards: int
    probability: float
    num_records: int
    setting: Setting
    scheme: str
    num_rounds: int = 3

    @property
    def title(self) -> str:
        """For the table."""
        seen = "all models" if self.setting == "models" else f"labels ({self.scheme})"
        return f"k = {self.num_shards}, p = {self.probability:g}, n = {self.num_records}, shown {seen}"


CASES = (
    Case(20, 0.05, 200, "models", "majority"),
    Case(100, 0.01, 500, "models", "majority"),
    Case(100, 0.05, 500, "models", "majority"),
    Case(100, 0.05, 500, "labels", "majority"),
    Case(100, 0.05, 500, "labels", "exponential"),
)
QUICK_CASES = (Case(20, 0.05, 100, "models", "majority"), Case(20, 0.05, 100, "labels", "exponential"))


def run_runtime(*, quick: bool = False, seed: int = 0) -> Report:
    """Every case 200 times (quick: 40)."""
    check_seed(seed)
    trials = num_trials(quick=quick)
    rows = [measure(case, trials=trials, seed=seed) for case in (QUICK_CASES if quick else CASES)]
    return Report(
        name=NAME,
        title="Theorem 4.2: shards that one deletion retrains",
        about=(
            f"{trials} trials a row, the fourth deletion of a requester who looks for the record in the most shards, "
            "and the same record after full retraining (chosen in advance, as it were). Bounds may be exceeded with "
            f"probability ξ = {FAILURE:g}. Expected: no requester above the adaptive bound."
        ),
        columns=("case", "adaptive: mean", "largest", "oblivious: mean", "largest", *_BOUNDS),
        rows=[_cells(row) for row in rows],
        data={"trials": trials, "seed": seed, "failure": FAILURE, "rows": rows},
    )


def num_trials(*, quick: bool) -> int:
    """Trials a row."""
    return 40 if quick else 200


_BOUNDS = {
    "oblivious bound": "oblivious, exact",
    "adaptive bound": "adaptive, exact",
    "closed form": "adaptive, closed form",
    "as printed (no bound)": "adaptive, as printed",
}


def measure(case: Case, *, trials: int, seed: int) -> dict[str, Any]:
    """One case, through the audit's slow-down attack."""
    scenario = slow_down_scenario(num_rounds=case.num_rounds, setting=case.setting, num_records=case.num_records)
    scheme = make_scheme(case.scheme, scenario, num_shards=case.num_shards, inclusion_probability=case.probability)
    report = audit(scenario, scheme, num_trials=trials, seed=seed)
    bounds = run_time_bounds(
        num_shards=case.num_shards,
        inclusion_probability=case.probability,
        failure=FAILURE,
        num_records=case.num_records + case.num_rounds,
    )
    return {
        "case": case.title,
        "adaptive": _counts(report, "unlearned"),
        "oblivious": _counts(report, "retrained"),
        "bounds": {bound.name: float(bound.num_retrained) for bound in bounds},
    }


def _counts(report: AuditReport, arm: str) -> list[int]:
    """How many trials had N = 0, 1, 2, …"""
    values = [int(getattr(trial, arm)[_STATISTIC]) for trial in report.trials]
    return [int(count) for count in np.bincount(values)]


def _cells(row: dict[str, Any]) -> list[str]:
    arms = [cell for arm in ("adaptive", "oblivious") for cell in _summary(row[arm])]
    return [row["case"], *arms, *(f"{row['bounds'][name]:.3g}" for name in _BOUNDS.values())]


def _summary(counts: list[int]) -> list[str]:
    mean = sum(value * count for value, count in enumerate(counts)) / sum(counts)
    return [f"{mean:.2f}", str(len(counts) - 1)]
