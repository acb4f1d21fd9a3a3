"""Ours beside the paper's: intervals as the table has them, and whether our numbers lie within.

Accuracies and shard prediction accuracy: mean ± 2 standard deviations over trials. Indicator: the exact 95% interval.
A value is *inside* if our estimate lies in the paper's interval; otherwise the distance to it is told, and whether the
two intervals lie apart. Retraining must not depend on who was targeted, so the control arm's indicator is tested
against ½ exactly, two-sided, with Bonferroni's correction over all rows of the table. Trials in which both halves are
exactly as accurate are left out of that test: the indicator calls them 0, which would bias it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest

from expunge_lab.reproduction.rows import Row, Spread, quick_rows
from expunge_lab.reproduction.trials import Accuracy, Signs, Trials

CONFIDENCE = 0.95
SIGNIFICANCE = 0.05
NUM_TESTS = 24
#: The paper: "each model in the ensemble votes on the most likely label".
DEFAULT_ACCURACY: Accuracy = "voted"

Interval = tuple[float, float]


@dataclass(frozen=True)
class Verdict:
    """One number of a row: ours, its interval, the paper's interval, and how far outside of it ours is."""

    ours: float
    interval: Interval
    paper: Interval | None

    @property
    def distance(self) -> float:
        """0 inside the paper's interval; otherwise how far above (positive) or below (negative) it."""
        if self.paper is None:
            return 0.0
        low, high = self.paper
        return self.ours - high if self.ours > high else min(0.0, self.ours - low)

    @property
    def is_inside(self) -> bool:
        """Whether our estimate lies in the paper's interval."""
        return self.distance == 0

    @property
    def lies_apart(self) -> bool:
        """Whether the two intervals have nothing in common."""
        if self.paper is None:
            return False
        return self.interval[0] > self.paper[1] or self.interval[1] < self.paper[0]

    @property
    def words(self) -> str:
        """For the table."""
        if self.paper is None:
            return "–"
        if self.is_inside:
            return "inside"
        return f"{self.distance:+.3f}{', apart' if self.lies_apart else ''}"

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able mapping."""
        return {**asdict(self), "inside": self.is_inside, "distance": self.distance, "apart": self.lies_apart}


@dataclass(frozen=True)
class Balance:
    """An arm's indicator against ½: its rate and exact interval, and the exact test without ties."""

    rate: float
    interval: Interval
    ties: int
    p_value: float
    num_tests: int = NUM_TESTS

    @property
    def is_consistent(self) -> bool:
        """Not rejected at 5%, corrected for the rows of the table, run or not."""
        return self.p_value >= SIGNIFICANCE / self.num_tests

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able mapping."""
        return {**asdict(self), "consistent": self.is_consistent}


@dataclass(frozen=True)
class RowVerdict:
    """Everything about a row that the page shows."""

    row: Row
    trials: int
    before: Verdict
    after: Verdict
    shard: Verdict
    indicator: Verdict
    control_accuracy: Spread
    indicator_before: Balance
    control: Balance

    @property
    def has_accuracies(self) -> bool:
        """Whether accuracy before, accuracy after and shard prediction accuracy are all inside."""
        return self.before.is_inside and self.after.is_inside and self.shard.is_inside

    @property
    def disagreements(self) -> list[str]:
        """The columns that lie apart from the paper's."""
        columns = {
            "accuracy before": self.before,
            "accuracy after": self.after,
            "shard prediction accuracy": self.shard,
            "indicator": self.indicator,
        }
        return [name for name, verdict in columns.items() if verdict.lies_apart]

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able mapping."""
        return {
            "row": self.row.name,
            "trials": self.trials,
            "before": self.before.to_dict(),
            "after": self.after.to_dict(),
            "shard": self.shard.to_dict(),
            "indicator": self.indicator.to_dict(),
            "control_accuracy": asdict(self.control_accuracy),
            "indicator_before": self.indicator_before.to_dict(),
            "control": self.control.to_dict(),
        }


def judge(row: Row, trials: Trials, *, accuracy: Accuracy = DEFAULT_ACCURACY) -> RowVerdict:
    """A row with at least two trials; `accuracy` says whose accuracy the table is about."""
    paper = _intervals(row)
    signs = trials.indicator("after")
    shard = trials.shard_accuracy
    num_tests = len(quick_rows()) if row.paper is None else NUM_TESTS
    return RowVerdict(
        row=row,
        trials=len(trials),
        before=_verdict(spread(trials.accuracy("before", accuracy)), paper["before"]),
        after=_verdict(spread(trials.accuracy("after", accuracy)), paper["after"]),
        shard=_verdict(spread(shard[np.isfinite(shard)]), paper["shard"]),
        indicator=Verdict(signs.rate, exact_interval(signs), paper["indicator"]),
        control_accuracy=spread(trials.accuracy("control", accuracy)),
        indicator_before=weigh(trials.indicator("before"), num_tests=num_tests),
        control=weigh(trials.indicator("control"), num_tests=num_tests),
    )


def _intervals(row: Row) -> dict[str, Interval | None]:
    """As printed; None for a stand-in."""
    if row.paper is None:
        return dict.fromkeys(("before", "after", "shard", "indicator"))
    paper = row.paper
    return {
        "before": paper.before.interval,
        "after": paper.after.interval,
        "shard": paper.shard.interval,
        "indicator": paper.indicator,
    }


def spread(values: NDArray[np.float64]) -> Spread:
    """Mean and twice the standard deviation."""
    if not len(values):
        return Spread(0.0, 0.0)
    return Spread(float(values.mean()), 2 * float(values.std(ddof=1)) if len(values) > 1 else 0.0)


def exact_interval(signs: Signs) -> Interval:
    """Clopper–Pearson, as in the paper (whose intervals are of slightly more than 300 trials, by their widths)."""
    found = binomtest(signs.worse, signs.trials).proportion_ci(confidence_level=CONFIDENCE, method="exact")
    return float(found.low), float(found.high)


def weigh(signs: Signs, *, num_tests: int = NUM_TESTS) -> Balance:
    """An indicator against ½; `num_tests` rows have one."""
    decided = signs.worse + signs.better
    p_value = float(binomtest(signs.worse, decided, 0.5).pvalue) if decided else 1.0
    return Balance(signs.rate, exact_interval(signs), signs.equal, p_value, num_tests)


def _verdict(ours: Spread, paper: Interval | None) -> Verdict:
    return Verdict(ours.mean, ours.interval, paper)
