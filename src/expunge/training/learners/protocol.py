"""What a learner is: A_single of the paper, and what it may offer beyond it to be fast.

A learner needs one method, `fit(X, y, seed)`, and its models one, `predict(X)`. Labels are class codes 0..C-1
throughout; a model that has no opinion says `ABSTAIN` (⊥ in the paper), which is not a class, is never counted as a
vote and never released. Everything else here is optional and found by its name: a learner that can train many shards in
one call offers `fit_many` (with `shards_at_once`, if it likes them in certain numbers, and `shares_rows`, if it would
have them as `SharedShard`, places in rows that all of them share), one that can vote for all shards at once offers
`make_voter`, one that wants the labels themselves instead of codes offers `for_classes`, and one that can resume from a
slice is a `SlicedLearner`; if it can train a slice of many shards in one call it offers
`extend_many(checkpoints, shards)`, a checkpoint and a `ShardData` for each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from expunge.core.errors import TrainingError
from expunge.core.features import Features, num_rows, take

ABSTAIN = -1

Codes = NDArray[np.int32] | NDArray[np.int64]
Weights = NDArray[np.float64]


@runtime_checkable
class Model(Protocol):
    """One shard's trained model."""

    def predict(self, X: Features) -> Codes:
        """A class code, or `ABSTAIN`, for every row."""


@runtime_checkable
class Learner(Protocol):
    """A_single: a training procedure whose only randomness is `seed`."""

    def fit(self, X: Features, y: Codes, seed: int, *, weights: Weights | None = None) -> Model:
        """A model of the given rows, which are at least one; `weights` is None unless records carry weights."""


@runtime_checkable
class SlicedLearner(Protocol):
    """A learner that trains slice by slice and can resume after any of them (the S of SISA)."""

    @property
    def num_slices(self) -> int:
        """How many slices a shard is cut into."""

    def extend(self, checkpoint: Any, X: Features, y: Codes, seed: int, *, weights: Weights | None) -> Any:
        """The checkpoint after one more slice; `checkpoint` is None before the first and must not be changed."""

    @property
    def is_cumulative(self) -> bool:
        """Whether `extend` is given all slices up to the new one (warm start) or the new one alone."""

    def make_model(self, checkpoint: Any) -> Model:
        """The model that a checkpoint stands for."""


class Voter(Protocol):
    """Votes of all shards together."""

    def count(self, X: Features) -> NDArray[np.int64]:
        """How many shards vote for each class, abstentions left out: shape (rows, classes)."""

    def votes(self, X: Features) -> Codes:
        """Every shard's vote: shape (rows, shards). Inside the trust boundary only."""


@dataclass(frozen=True, slots=True)
class ShardData:
    """What one shard's training gets to see, and the seed it must use."""

    shard: int
    X: Features
    y: Codes
    weights: Weights | None
    seed: int


@dataclass(frozen=True, eq=False)
class SharedRows:
    """Rows that many shards share, each once, while they are trained; `placed` is the learner's, and ends with them."""

    X: Features
    y: Codes
    weights: Weights | None
    placed: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class SharedShard:
    """A `ShardData` that is not gathered unless somebody asks: places in shared rows."""

    shard: int
    whole: SharedRows
    rows: NDArray[np.int64]
    seed: int

    @property
    def X(self) -> Features:
        """Gathered now."""
        return take(self.whole.X, self.rows)

    @property
    def y(self) -> Codes:
        """Gathered now."""
        return self.whole.y[self.rows]

    @property
    def weights(self) -> Weights | None:
        """Gathered now."""
        return None if self.whole.weights is None else self.whole.weights[self.rows]


class Abstainer:
    """The model of an empty shard: always ⊥."""

    def predict(self, X: Features) -> Codes:
        """⊥ for every row."""
        return np.full(num_rows(X), ABSTAIN, dtype=np.int64)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Abstainer)

    def __hash__(self) -> int:
        return hash(Abstainer)


def fit_many(learner: Learner, shards: Iterable[ShardData | SharedShard]) -> list[Model]:
    """Train every shard, all at once where the learner can; an empty shard abstains; a failure names its shard."""
    batch = list(shards)
    filled = [data for data in batch if len(data.y)]
    if hasattr(learner, "fit_many"):
        trained = _fit_together(learner, filled) if filled else []
    else:
        trained = [_fit_one(learner, data) for data in filled]
    models = iter(trained)
    return [next(models) if len(data.y) else Abstainer() for data in batch]


def shards_at_once(learner: Any) -> int:
    """In multiples of which number `fit_many` likes its shards; fewer are only a matter of speed."""
    return max(1, int(getattr(learner, "shards_at_once", 1)))


def _fit_together(learner: Any, filled: list[ShardData | SharedShard]) -> list[Model]:
    try:
        trained = cast("list[Model]", list(learner.fit_many(filled)))
    except TrainingError:
        raise
    except Exception:
        return [_fit_one(learner, data) for data in filled]  # one by one, to find the shard at fault
    if len(trained) != len(filled):
        message = f"fit_many returned {len(trained)} models for {len(filled)} shards, the first of them shard"
        raise TrainingError(f"{message} {filled[0].shard}", filled[0].shard)
    return trained


def _fit_one(learner: Learner, data: ShardData | SharedShard) -> Model:
    try:
        return learner.fit(data.X, data.y, data.seed, weights=data.weights)
    except Exception as error:
        raise TrainingError(
            f"training shard {data.shard} failed: {type(error).__name__}: {error}", data.shard
        ) from error


def make_voter(learner: Learner, models: Sequence[Model], num_classes: int) -> Voter:
    """The learner's own way of voting for all shards at once, or one model after another."""
    if hasattr(learner, "make_voter"):
        return cast("Voter", learner.make_voter(models, num_classes))
    return OneByOneVoter(models, num_classes)


def count_votes(votes: Codes, num_classes: int) -> NDArray[np.int64]:
    """Votes for each class, of a table with a row a query and a column a shard; ⊥ counts for nothing."""
    rows, shards = np.nonzero(votes >= 0)
    cells = rows * num_classes + votes[rows, shards]
    return np.bincount(cells, minlength=len(votes) * num_classes).reshape(len(votes), num_classes)


class OneByOneVoter:
    """Asks every model in turn."""

    def __init__(self, models: Sequence[Model], num_classes: int) -> None:
        self._models = models
        self._num_classes = num_classes

    def count(self, X: Features) -> NDArray[np.int64]:
        """Votes for each class."""
        counts = np.zeros((num_rows(X), self._num_classes), dtype=np.int64)
        rows = np.arange(len(counts))
        for model in self._models:
            codes = _codes(model, X)
            voting = codes >= 0
            counts[rows[voting], codes[voting]] += 1
        return counts

    def votes(self, X: Features) -> Codes:
        """Every model's vote."""
        return np.stack([_codes(model, X).astype(np.int32) for model in self._models], axis=1)


def _codes(model: Model, X: Features) -> NDArray[np.int64]:
    """The model's votes; ⊥ on every row on which it fails.

    Whether a shard's model fails (on a category that its shard never held, say) depends on r, so the failure must not
    leave; as a vote of ⊥ it is counted like any other. Row by row, so that no row's vote depends on its company.
    """
    try:
        return np.asarray(model.predict(X), dtype=np.int64)
    except Exception:
        if num_rows(X) <= 1:
            return np.full(num_rows(X), ABSTAIN, dtype=np.int64)
        rows = [_codes(model, take(X, np.array([row]))) for row in range(num_rows(X))]
        return np.concatenate(rows)


def for_classes(learner: Learner, classes: NDArray[Any]) -> Learner:
    """The learner told what the class codes stand for, if it wants to know."""
    return cast("Learner", learner.for_classes(classes)) if hasattr(learner, "for_classes") else learner
