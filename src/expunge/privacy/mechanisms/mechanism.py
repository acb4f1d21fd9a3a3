"""The interface of every mechanism: a random answer from vote counts, its cost, its law and its utility."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import ClassVar, Final, final

import numpy as np
from numpy.typing import NDArray

from expunge.core.checks import require_count, require_number
from expunge.core.errors import ParameterError
from expunge.core.randomness import Randomness
from expunge.privacy.accounting.events import Event

DECLINED: Final = -1
"""The class code for "no answer"; only a confident mechanism gives it."""

MAX_VOTES: Final = 2**53
"""The largest number of votes; float64 counts exactly up to here."""

# Rows are handled in blocks, so that intermediate arrays stay in the processor's cache.
_BLOCK_CELLS = 1 << 17


class Mechanism(ABC):
    """A rule that turns the shards' votes on a query into one released class code: PrivatePredict (Section 4.1).

    A mechanism sees the number of votes for each class and nothing else; ⊥ votes are left out. So the order of the
    shards and the origin of a tie cannot show. One shard that changes its vote moves one count up by 1, or one down by
    1, or both: neighbouring rows differ by at most 1 in at most two entries, by +1 and −1 if in two. `event` is the
    cost of one release with respect to that change.

    A mechanism is immutable and keeps no state; one release draws all its randomness from `rng`. A row may have no
    votes at all: the answer then has the law of an exact tie between all classes.
    """

    name: ClassVar[str]

    @property
    @abstractmethod
    def event(self) -> Event:
        """The cost of releasing the answer to one query."""

    @final
    def release(self, counts: NDArray[np.integer], rng: Randomness) -> NDArray[np.int64]:
        """Draw the class codes to release, one for each query.

        Parameters
        ----------
        counts
            The number of votes for each class, of shape (queries, num_classes).
        rng
            The source of randomness.

        Returns
        -------
        NDArray
            A class code for each query, or `DECLINED`.

        Raises
        ------
        ParameterError
            If `counts` has another shape, or holds anything but integers from 0 to 2^53.
        """
        checked = _check_counts(counts, rank=2)
        rows = max(1, _BLOCK_CELLS // checked.shape[1])
        answers = [self._release(checked[start : start + rows], rng) for start in range(0, len(checked), rows)]
        return np.concatenate(answers) if answers else np.empty(0, dtype=np.int64)

    @final
    def law(self, counts: NDArray[np.integer]) -> NDArray[np.float64]:
        """Compute the probabilities of the class codes 0, 1, … for one row of counts.

        A mechanism that may decline has one more entry at the end: the probability of DECLINED, which is also the entry
        at index −1 = DECLINED.

        Raises
        ------
        ParameterError
            If `counts` has another shape, or holds anything but integers from 0 to 2^53.
        """
        return self._law(_check_counts(counts, rank=1))

    @final
    def accuracy(self, *, share: float, num_shards: int, num_classes: int) -> float:
        """Compute the least probability of answering the top class when it has this share of the votes.

        The other votes are placed where they do most harm: on a second class up to the count of the first, then on a
        third, and so on; votes still left abstain. For every mechanism here the probability of the top class is a
        mixture of products of log-concave functions of the other counts (or a decreasing function of a sum of convex
        ones), so the vector that majorises all others is the worst. Ties at the top are resolved against it.

        Raises
        ------
        ParameterError
            If `share` is not in [0, 1], or there is less than one shard or class.
        """
        _check_vote(share, num_shards, num_classes)
        top = math.floor(share * num_shards + 1e-9)
        left = min(num_shards - top, top * (num_classes - 1))
        row = np.zeros(num_classes, dtype=np.int64)
        row[-1] = top
        if top:
            full, rest = divmod(left, top)
            row[:full] = top
            if rest:
                row[full] = rest
        return float(self._law(row)[num_classes - 1])

    @abstractmethod
    def _release(self, counts: NDArray[np.int64], rng: Randomness) -> NDArray[np.int64]:
        """Release answers for valid counts."""

    @abstractmethod
    def _law(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        """Compute the law of a valid row."""


def gaps_of(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Compute how many votes each class is behind the first, along the last axis."""
    gaps: NDArray[np.int64] = counts.max(axis=-1, keepdims=True) - counts
    return gaps


def scaled_gaps(counts: NDArray[np.int64], unit: float) -> NDArray[np.float64]:
    """Compute `gaps_of` as multiples of `unit`, for the laws."""
    return gaps_of(counts).astype(np.float64) * unit


def require_parameter(name: str, value: object, *, least: float = 1e-100) -> None:
    """Check a mechanism's parameter: a number up to 1e100, by default not below 1e-100, where float64 is harmless.

    Only Python's own numbers (and NumPy's float64, which is one) pass: they become exact fractions later.
    """
    require_number(name, value, least=least, most=1e100)
    if not isinstance(value, int | float):
        raise ParameterError(f"{name} must be an int or a float, got {value!r:.80}")


def _check_counts(counts: NDArray[np.integer], *, rank: int) -> NDArray[np.int64]:
    """Check counts and return them as int64. Messages quote no count, because counts are secret."""
    array = np.asarray(counts)
    if array.ndim != rank or array.shape[-1] == 0:
        expected = "(queries, num_classes)" if rank == 2 else "(num_classes,)"
        raise ParameterError(f"counts must have the shape {expected} with a class or more, got {array.shape}")
    if not np.issubdtype(array.dtype, np.integer):
        raise ParameterError(f"counts must be integers, got the type {array.dtype}")
    if array.size and (array.min() < 0 or array.max() > MAX_VOTES):
        raise ParameterError("counts must be between 0 and 2^53, got one that is not")
    return array.astype(np.int64, copy=False)


def _check_vote(share: float, num_shards: int, num_classes: int) -> None:
    require_number("share", share, least=0, most=1)
    require_count("num_shards", num_shards, most=MAX_VOTES)
    require_count("num_classes", num_classes)
