"""Update requesters (UpdReq, Definition 2.2) of the label-only setting.

What they are shown is an array of labels, one for each of the records they know, in the order of `ids`; nothing else.
Chance that a requester needs is drawn beforehand and given to it, so that asking twice gives the same answer.

Update requesters of the full-model setting (Section 5.2): they are shown every shard's model, and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expunge.audit.schemes import PublishedModels
from expunge.core.errors import ParameterError
from expunge.core.features import Features, num_rows, take
from expunge.core.randomness import Randomness
from expunge.core.records import AddMany, Delete, RecordId
from expunge.serving.interaction import Batch
from expunge.training.learners import Model, ScikitModel

Probabilities = NDArray[np.float64]


def class_probabilities(model: Model, points: Features, num_classes: int) -> Probabilities:
    """Shape (rows, classes). A model without probabilities is certain of its vote; ⊥ gives every class nothing."""
    if isinstance(model, ScikitModel) and hasattr(model.estimator, "predict_proba"):
        own = np.asarray(model.estimator.classes_)
        codes = own if model.classes is None else np.searchsorted(model.classes, own)
        return _spread(np.asarray(model.estimator.predict_proba(points)), codes, num_classes)
    if hasattr(model, "predict_proba"):
        return np.asarray(model.predict_proba(points), dtype=np.float64)
    votes = np.asarray(model.predict(points), dtype=np.int64)
    certain = np.zeros((len(votes), num_classes))
    voting = np.flatnonzero(votes >= 0)
    certain[voting, votes[voting]] = 1.0
    return certain


def own_label_confidence(models: Sequence[Model], points: Features, codes: Any, num_classes: int) -> Probabilities:
    """How sure each model is of each point's own label: shape (models, rows)."""
    rows = np.arange(num_rows(points))
    return np.stack([class_probabilities(model, points, num_classes)[rows, codes] for model in models])


def _spread(given: NDArray[Any], codes: NDArray[Any], num_classes: int) -> Probabilities:
    """Columns of a model that has not seen every class, put where they belong."""
    if given.shape[1] == num_classes:
        return given.astype(np.float64, copy=False)
    full = np.zeros((len(given), num_classes))
    full[:, codes.astype(np.int64)] = given
    return full


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


@dataclass(frozen=True)
class DeleteTargeted:
    """Delete what points at the first half of the shards by confidence (Section 5.2).

    A point is guessed to sit in the shard whose model is most sure of its correct label (the first of equals); points
    guessed to be in one of the first ⌊k/2⌋ shards (at least one) are deleted.
    """

    ids: Sequence[RecordId]
    points: Features
    codes: NDArray[np.integer[Any]]

    def next_batch(self, published: Sequence[Any], asked: Sequence[Batch]) -> Batch | None:
        """The targeted records, in one batch."""
        shown: PublishedModels = published[0]
        if asked:
            return None
        sure = own_label_confidence(shown.models, self.points, self.codes, shown.num_classes)
        targeted = np.flatnonzero(sure.argmax(axis=0) < num_targeted(len(shown.models)))
        return [Delete(self.ids[place]) for place in targeted.tolist()] or None


@dataclass(frozen=True)
class DeleteMostShards:
    """Delete, in every round, the record believed to sit in the most shards: the slow-down attack (Theorem 4.2).

    Shown models, it believes a record to be where the model is sure of its label (with lookup tables it then knows);
    shown labels only, it can but prefer records that are labelled rightly. Among equals the first.
    """

    ids: Sequence[RecordId]
    points: Features
    codes: NDArray[np.integer[Any]]

    def next_batch(self, published: Sequence[Any], asked: Sequence[Batch]) -> Batch | None:
        """The record with the strongest belief among those still there."""
        gone = {update.id for batch in asked for update in batch if isinstance(update, Delete)}
        here = np.array([place for place, record in enumerate(self.ids) if record not in gone], dtype=np.int64)
        if len(here) == 0:
            return None
        belief = self._belief(published[-1], here)
        return [Delete(self.ids[int(here[int(belief.argmax())])])]

    def _belief(self, shown: Any, here: NDArray[np.int64]) -> Probabilities:
        if isinstance(shown, PublishedModels):
            sure = own_label_confidence(shown.models, take(self.points, here), self.codes[here], shown.num_classes)
            return np.asarray(sure.sum(axis=0))
        return np.asarray(np.asarray(shown)[here] == self.codes[here], dtype=np.float64)


def num_targeted(num_models: int) -> int:
    """How many of the models are aimed at: half, rounded down, at least one."""
    return max(1, num_models // 2)
