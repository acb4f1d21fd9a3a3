"""What trials of the white-box experiment leave behind, as arrays of counts, and the statistics of the table.

Counts, not accuracies: a trial is a few dozen small whole numbers, equality of two accuracies is exact, and everything
that the table and the figure show is computed from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from expunge.core.errors import InputError

Counts = NDArray[np.int64]
Shares = NDArray[np.float64]
Arm = Literal["before", "after", "control"]
#: Whose accuracy: of the majority vote, of the class with the highest mean probability, or the models' mean.
Accuracy = Literal["voted", "averaged", "models"]
ARMS: tuple[Arm, ...] = get_args(Arm)
ACCURACIES: tuple[Accuracy, ...] = get_args(Accuracy)


@dataclass(frozen=True, eq=False)
class Trials:
    """Trials of one row, one entry of the leading axis each.

    `before`, `after` and `control` are (trials, shards): how many of the `num_held_out` test images each model has
    right after the first training, after the deletions and the retraining of the shards touched, and after full
    retraining on the survivors; models of the first half of the shards are the targeted ones. `voted_*` and
    `averaged_*` are the same for the ensemble: by majority (the lowest class among equals), and by the highest mean
    probability. Of `num_deleted` points the guess was right for `num_hits`.
    """

    numbers: Counts
    before: Counts
    after: Counts
    control: Counts
    voted_before: Counts
    voted_after: Counts
    voted_control: Counts
    averaged_before: Counts
    averaged_after: Counts
    averaged_control: Counts
    num_deleted: Counts
    num_hits: Counts
    num_held_out: int

    def __post_init__(self) -> None:
        trials = len(self.numbers)
        for name in array_names():
            shape = (trials, self.num_shards) if name in ARMS else (trials,)
            if getattr(self, name).shape != shape:
                raise InputError(f"{name} must be of the shape {shape}, got {getattr(self, name).shape}")
        if len(np.unique(self.numbers)) != trials:
            raise InputError("a trial is there twice")

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def num_shards(self) -> int:
        """k."""
        return int(self.before.shape[1])

    def select(self, numbers: Sequence[int] | Counts) -> Trials:
        """The trials with these numbers, in ascending order."""
        chosen = np.flatnonzero(np.isin(self.numbers, np.asarray(numbers, dtype=np.int64)))
        chosen = chosen[np.argsort(self.numbers[chosen])]
        return self._like({name: getattr(self, name)[chosen] for name in array_names()})

    def merge(self, other: Trials) -> Trials:
        """Both together; of a trial that is in both, this one's."""
        if (self.num_shards, self.num_held_out) != (other.num_shards, other.num_held_out):
            raise InputError("trials of different experiments cannot be merged")
        new = other.select(np.setdiff1d(other.numbers, self.numbers))
        parts = {name: np.concatenate([getattr(self, name), getattr(new, name)]) for name in array_names()}
        return self._like(parts).select(parts["numbers"])

    def _like(self, arrays: dict[str, Any]) -> Trials:
        return Trials(**arrays, num_held_out=self.num_held_out)

    def accuracy(self, arm: Arm, kind: Accuracy) -> Shares:
        """On held-out images, trial by trial."""
        right = getattr(self, arm).mean(axis=1) if kind == "models" else getattr(self, f"{kind}_{arm}")
        return np.asarray(right / self.num_held_out)

    def indicator(self, arm: Arm) -> Signs:
        """Whether the targeted models have the lower mean accuracy (the paper's test statistic), trial by trial."""
        return Signs.of(getattr(self, arm))

    @property
    def shard_accuracy(self) -> Shares:
        """The share of deleted points whose shard was guessed right, trial by trial; NaN where none was deleted."""
        deleted = self.num_deleted
        return np.where(deleted > 0, self.num_hits / np.maximum(deleted, 1), np.nan)


@dataclass(frozen=True)
class Signs:
    """How often the targeted models did worse than the others, better, and exactly as well."""

    worse: int
    better: int
    equal: int

    @classmethod
    def of(cls, correct: Counts) -> Signs:
        """From the number of right answers of every model, (trials, shards)."""
        half = correct.shape[1] // 2
        # Cross-multiplied, so that the means of halves of unequal size compare exactly.
        targeted = correct[:, :half].sum(axis=1) * (correct.shape[1] - half)
        difference = targeted - correct[:, half:].sum(axis=1) * half
        return cls(*(int(np.count_nonzero(sign)) for sign in (difference < 0, difference > 0, difference == 0)))

    @property
    def trials(self) -> int:
        """All of them."""
        return self.worse + self.better + self.equal

    @property
    def rate(self) -> float:
        """The estimated expectation of the indicator: equal accuracies count as 0, as in the paper."""
        return self.worse / self.trials if self.trials else float("nan")


def count_right(arm: Arm, scores: NDArray[Any], labels: NDArray[Any]) -> dict[str, Counts]:
    """The three counts of an arm, by field, from scores of held-out images, (trials, models, images, classes)."""
    guesses = scores.argmax(axis=3)
    votes = (guesses[..., np.newaxis] == np.arange(scores.shape[3])).sum(axis=1)
    chances = np.exp(scores - scores.max(axis=3, keepdims=True))
    chances /= chances.sum(axis=3, keepdims=True)
    return {
        arm: (guesses == labels).sum(axis=2),
        f"voted_{arm}": (votes.argmax(axis=2) == labels).sum(axis=1),
        f"averaged_{arm}": (chances.mean(axis=1).argmax(axis=2) == labels).sum(axis=1),
    }


def array_names() -> list[str]:
    """The fields with an entry for each trial."""
    return [field.name for field in fields(Trials) if field.name != "num_held_out"]
