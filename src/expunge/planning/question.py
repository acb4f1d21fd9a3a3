"""What is to be planned: the data, the shards, the wanted accuracy and guarantee, the traffic."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Final

from expunge.errors import ParameterError
from expunge.guarantees import Guarantee

#: The share of the votes behind the top answer of an "80% vote".
MAJORITY_SHARE: Final = 0.8
#: The largest number of records, shards, and events a day.
LARGEST_SIZE: Final = 10**12
MOST_SHARDS: Final = 10**9

_COUNTS: Final = {
    "num_records": (1, LARGEST_SIZE),
    "num_shards": (1, MOST_SHARDS),
    "num_classes": (2, 10**6),
    "num_generations": (1, LARGEST_SIZE),
}
_POSITIVE: Final = {
    "inclusion_probability": 1,
    "predictions_per_day": LARGEST_SIZE,
    "deletions_per_day": LARGEST_SIZE,
    "batches_per_day": LARGEST_SIZE,
}


@dataclass(frozen=True, kw_only=True)
class Question:
    """The options of `plan`, checked and complete; `plan` says what each of them means."""

    num_records: int
    num_shards: int
    inclusion_probability: float
    num_classes: int
    unanimous_accuracy: float | None
    majority_accuracy: float | None
    target: Guarantee
    num_generations: int
    predictions_per_day: float
    deletions_per_day: float
    batches_per_day: float
    failure: float

    def __post_init__(self) -> None:
        for name, (least, most) in _COUNTS.items():
            object.__setattr__(self, name, _count(name, getattr(self, name), least, most))
        for name, most in _POSITIVE.items():
            object.__setattr__(self, name, _positive(name, getattr(self, name), most))
        for name in ("unanimous_accuracy", "majority_accuracy"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, _fraction(name, getattr(self, name)))
        object.__setattr__(self, "failure", _fraction("failure", self.failure))
        _require_target(self.target)
        if not self.wanted:
            raise ParameterError("unanimous_accuracy or majority_accuracy must be given, got neither")

    @property
    def wanted(self) -> dict[float, float]:
        """The wanted accuracies, by the share of the votes."""
        pairs = ((1.0, self.unanimous_accuracy), (MAJORITY_SHARE, self.majority_accuracy))
        return {share: accuracy for share, accuracy in pairs if accuracy is not None}

    @property
    def updates_per_day(self) -> float:
        """Batches that have something to apply: no more than there are deletions."""
        return min(self.batches_per_day, self.deletions_per_day)

    @property
    def batch_size(self) -> float:
        """Deletions in a batch, on average; at least one."""
        return self.deletions_per_day / self.updates_per_day

    @property
    def copies(self) -> float:
        """In how many shards a record is, on average: kp, which is also what training the ensemble costs in passes."""
        return self.num_shards * self.inclusion_probability

    @property
    def records_per_shard(self) -> float:
        """How many records one model learns from, on average."""
        return self.num_records * self.inclusion_probability

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able mapping."""
        return {
            "num_records": self.num_records,
            "num_shards": self.num_shards,
            "inclusion_probability": self.inclusion_probability,
            "records_per_shard": self.records_per_shard,
            "num_classes": self.num_classes,
            "unanimous_accuracy": self.unanimous_accuracy,
            "majority_accuracy": self.majority_accuracy,
            "target": {"alpha": self.target.alpha, "beta": self.target.beta, "gamma": self.target.gamma},
            "num_generations": self.num_generations,
            "predictions_per_day": self.predictions_per_day,
            "deletions_per_day": self.deletions_per_day,
            "batches_per_day": self.batches_per_day,
            "updates_per_day": self.updates_per_day,
            "batch_size": self.batch_size,
            "failure": self.failure,
        }


def one_copy(num_shards: int) -> float:
    """The inclusion probability with which a record is in one shard on average: 1/k."""
    return 1 / _count("num_shards", num_shards, *_COUNTS["num_shards"])


def _count(name: str, value: Any, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral) or not least <= int(value) <= most:
        raise ParameterError(f"{name} must be an integer from {least} to {most:,}, got {value!r}")
    return int(value)


def _positive(name: str, value: Any, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) <= most:
        raise ParameterError(f"{name} must be a number above 0 and at most {most:g}, got {value!r}")
    return float(value)


def _fraction(name: str, value: Any) -> float:
    number = _positive(name, value, 1)
    if number == 1:
        raise ParameterError(f"{name} must be below 1, got {value!r}")
    return number


def _require_target(target: object) -> None:
    if not isinstance(target, Guarantee):
        raise ParameterError(f"target must be a Guarantee, got {target!r}")
    if math.isinf(target.alpha):
        raise ParameterError("alpha of a target must be finite, got inf")
    if target.beta >= 1 or target.gamma >= 1:
        raise ParameterError(f"beta and gamma of a target must be below 1, got {target.beta:g} and {target.gamma:g}")
