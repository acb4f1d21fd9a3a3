"""What is to be planned: the data, the shards, the wanted accuracy and guarantee, the traffic."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from expunge.errors import ParameterError
from expunge.guarantees import Guarantee, require_target

#: The share of the votes behind the top answer of an "80% vote".
MAJORITY_SHARE: Final = 0.8
#: The largest number of records, shards, and events a day.
LARGEST_SIZE: Final = 10**12
MOST_SHARDS: Final = 10**9
#: Predictions per generation that a consensus gate is made for, and points in a student's pool, at most.
MOST_QUERIES: Final = 10**9
#: What they are unless given.
DEFAULT_MAX_PREDICTIONS: Final = 10**6
DEFAULT_POOL_SIZE: Final = 10_000

_COUNTS: Final = {
    "num_records": (1, LARGEST_SIZE),
    "num_shards": (1, MOST_SHARDS),
    "num_classes": (2, 10**6),
    "num_generations": (1, LARGEST_SIZE),
    "max_predictions": (1, MOST_QUERIES),
    "pool_size": (0, MOST_QUERIES),
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
    max_predictions: int = DEFAULT_MAX_PREDICTIONS
    pool_size: int = DEFAULT_POOL_SIZE
    ensemble_share: float | None = None
    vote_shares: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        for name, (least, most) in _COUNTS.items():
            object.__setattr__(self, name, _count(name, getattr(self, name), least, most))
        for name, most in _POSITIVE.items():
            object.__setattr__(self, name, _positive(name, getattr(self, name), most))
        for name in ("unanimous_accuracy", "majority_accuracy"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, _fraction(name, getattr(self, name)))
        object.__setattr__(self, "failure", _fraction("failure", self.failure))
        if self.ensemble_share is not None:
            object.__setattr__(self, "ensemble_share", _positive("ensemble_share", self.ensemble_share, 1))
        object.__setattr__(self, "vote_shares", _shares(self.vote_shares))
        _require_target(self.target)
        if not self.wanted:
            raise ParameterError("unanimous_accuracy or majority_accuracy must be given, got neither")

    @property
    def wanted(self) -> dict[float, float]:
        """The wanted accuracies, by the share of the votes."""
        pairs = ((1.0, self.unanimous_accuracy), (MAJORITY_SHARE, self.majority_accuracy))
        return {share: accuracy for share, accuracy in pairs if accuracy is not None}

    @property
    def sample(self) -> NDArray[np.float64] | None:
        """The observed top-vote shares as an array; None if there are none."""
        return None if self.vote_shares is None else np.array(self.vote_shares)

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
            "max_predictions": self.max_predictions,
            "pool_size": self.pool_size,
            "ensemble_share": self.ensemble_share,
            "vote_shares": None if self.vote_shares is None else _summary(self.vote_shares),
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


def _shares(values: Any) -> tuple[float, ...] | None:
    if values is None:
        return None
    try:
        shares = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ParameterError("vote_shares must be numbers") from None
    if shares.ndim != 1 or shares.size == 0:
        raise ParameterError(f"vote_shares must be a sequence of at least one number, got shape {shares.shape}")
    wrong = shares[~((shares >= 0) & (shares <= 1))]
    if wrong.size:
        raise ParameterError(f"vote_shares must be from 0 to 1, got {float(wrong[0])!r}")
    return tuple(shares.tolist())


def _summary(shares: tuple[float, ...]) -> dict[str, float]:
    """The sample in four numbers: it may be long."""
    return {
        "count": len(shares),
        "lowest": min(shares),
        "median": float(np.median(shares)),
        "mean": math.fsum(shares) / len(shares),
    }


def _require_target(target: object) -> None:
    wanted = require_target(target)
    if math.isinf(wanted.alpha):
        raise ParameterError("alpha of a target must be finite, got inf")
    if wanted.beta >= 1 or wanted.gamma >= 1:
        raise ParameterError(f"beta and gamma of a target must be below 1, got {wanted.beta:g} and {wanted.gamma:g}")
