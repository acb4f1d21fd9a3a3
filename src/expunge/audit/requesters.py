"""Update requesters (UpdReq, Definition 2.2) of the label-only setting.

What they are shown is an array of labels, one for each of the records they know, in the order of `ids`; nothing else.
Chance that a requester needs is drawn beforehand and given to it, so that asking twice gives the same answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expunge.errors import ParameterError
from expunge.features import Features, take
from expunge.interaction import Batch
from expunge.randomness import Randomness
from expunge.records import AddMany, Delete, RecordId

Labels = NDArray[np.integer[Any]]


@dataclass(frozen=True)
class DeleteThese:
    """Delete records that were chosen in advance, whatever is shown: an oblivious requester."""

    ids: Sequence[RecordId]
    at_once: bool = True

    @classmethod
    def random(cls, ids: Sequence[RecordId], size: int, *, rng: Randomness, at_once: bool = True) -> DeleteThese:
        """A uniformly random subset of `ids`."""
        _require_size(size, len(ids))
        return cls([ids[place] for place in rng.permutation(len(ids))[:size].tolist()], at_once)

    def next_batch(self, published: Sequence[Any], asked: Sequence[Batch]) -> Batch | None:
        """All of them in the first round, or one a round."""
        return _deletions(self.ids, asked, at_once=self.at_once)


@dataclass(frozen=True)
class DeleteCorrect:
    """Delete exactly the records that the first published labels got right (Section 5.1), one a round or all at once.

    Sees labels only: `published[0]` must be the labels of the records `ids`, in that order.
    """

    ids: Sequence[RecordId]
    codes: Labels
    at_once: bool = True

    def next_batch(self, published: Sequence[Any], asked: Sequence[Batch]) -> Batch | None:
        """The correctly labelled records that are still there."""
        right = np.flatnonzero(np.asarray(published[0]) == self.codes).tolist()
        return _deletions([self.ids[place] for place in right], asked, at_once=self.at_once)


@dataclass(frozen=True)
class DeleteRandomCorrect:
    """Delete a uniformly random subset of `size` of the correctly predicted records (Appendix C.2).

    `order` is a uniformly random order of the records, drawn beforehand: the first `size` right ones in it are a
    uniformly random subset of the right ones. Fewer are deleted where fewer are right.
    """

    ids: Sequence[RecordId]
    codes: Labels
    size: int
    order: NDArray[np.int64]
    at_once: bool = True

    @classmethod
    def draw(cls, ids: Sequence[RecordId], codes: Labels, size: int, *, rng: Randomness) -> DeleteRandomCorrect:
        """With a fresh random order."""
        _require_size(size, len(ids))
        return cls(ids, codes, size, rng.permutation(len(ids)))

    def next_batch(self, published: Sequence[Any], asked: Sequence[Batch]) -> Batch | None:
        """The chosen ones."""
        right = np.asarray(published[0]) == self.codes
        chosen = self.order[right[self.order]][: self.size].tolist()
        return _deletions([self.ids[place] for place in chosen], asked, at_once=self.at_once)


@dataclass(frozen=True)
class AddUntilCorrect:
    """Add, in every round, one more copy of every point that is still labelled wrongly: adaptive additions.

    Against a partition of lookup tables this collects, for every point, exactly as many copies as its shards needed;
    full retraining on the same records would place them anew.
    """

    ids: Sequence[RecordId]
    features: Features
    labels: NDArray[Any]
    codes: Labels

    def next_batch(self, published: Sequence[Any], asked: Sequence[Batch]) -> Batch | None:
        """Copies of what the latest labels got wrong; the end once everything is right."""
        wrong = np.flatnonzero(np.asarray(published[-1]) != self.codes)
        if len(wrong) == 0:
            return None
        copies = [f"copy {len(asked) + 1} of {self.ids[place]}" for place in wrong.tolist()]
        return [AddMany(ids=copies, features=take(self.features, wrong), labels=self.labels[wrong])]


def _deletions(ids: Sequence[RecordId], asked: Sequence[Batch], *, at_once: bool) -> Batch | None:
    if at_once:
        return [Delete(i) for i in ids] if len(ids) and not asked else None
    return [Delete(ids[len(asked)])] if len(asked) < len(ids) else None


def _require_size(size: int, available: int) -> None:
    if isinstance(size, bool) or not isinstance(size, int | np.integer) or not 1 <= size <= available:
        raise ParameterError(f"the number of deletions must be between 1 and {available}, got {size!r}")
