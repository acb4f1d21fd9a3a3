"""Update requesters (UpdReq, Definition 2.2) that adapt to what they are shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expunge.interaction import Batch
from expunge.records import Delete, RecordId


@dataclass(frozen=True)
class DeleteCorrect:
    """Delete exactly the records that the first published labels got right (Section 5.1), one a round or all at once.

    Sees labels only: `published[0]` must be the labels of the records `ids`, in that order.
    """

    ids: Sequence[RecordId]
    codes: NDArray[np.integer[Any]]
    at_once: bool = True

    def next_batch(self, published: Sequence[Any], asked: Sequence[Batch]) -> Batch | None:
        """The correctly labelled records that are still there."""
        right = [i for i, code, shown in zip(self.ids, self.codes, published[0], strict=True) if code == shown]
        if self.at_once:
            return [Delete(i) for i in right] if right and not asked else None
        return [Delete(right[len(asked)])] if len(asked) < len(right) else None


@dataclass(frozen=True)
class DeleteMostShared:
    """Delete the record that sits in the most shards: the slow-down attack on the run time (Theorem 4.2).

    Sees the shards themselves, published as a list of (id, number of shards); nobody outside ever does.
    """

    def next_batch(self, published: Sequence[Any], asked: Sequence[Batch]) -> Batch | None:
        """The record with the most shards in what was published last."""
        latest: Sequence[tuple[RecordId, int]] = published[-1]
        return [Delete(max(latest, key=lambda pair: pair[1])[0])] if latest else None
