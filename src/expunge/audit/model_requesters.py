"""Update requesters of the full-model setting (Section 5.2): they are shown every shard's model, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expunge.audit.confidence import Probabilities, own_label_confidence
from expunge.audit.publishing import PublishedModels
from expunge.features import Features, take
from expunge.interaction import Batch
from expunge.records import Delete, RecordId


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
