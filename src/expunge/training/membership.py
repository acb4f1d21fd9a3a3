"""Which record sits in which shard, both ways without scanning, in about 10 bytes a record at p = 1/k.

Forward: one ascending array of slots (4 bytes each) per shard. Backward: the same pairs by record in compressed rows
(4 bytes a record and 2 to 4 bytes a pair). Immutable: an update replaces the arrays of the touched shards and shares
the rest. All of it is secret: it is the sampling half of r.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expunge.core.errors import ParameterError

Slots = NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class _Rows:
    """The shards of the records in slots start, start+1, …: row j is `shards[offsets[j]:offsets[j + 1]]`."""

    start: int
    offsets: NDArray[Any]
    shards: NDArray[Any]

    @property
    def size(self) -> int:
        return len(self.offsets) - 1


@dataclass(frozen=True)
class Membership:
    """The shards' contents, and the shards of every record."""

    members: tuple[Slots, ...]
    rows: tuple[_Rows, ...]

    @classmethod
    def build(cls, members: Sequence[Slots], num_slots: int) -> Membership:
        """From the ascending slots of every shard."""
        return cls(tuple(members), (_turn_round(members, 0, num_slots),))

    @property
    def num_shards(self) -> int:
        """k."""
        return len(self.members)

    def records_of(self, shard: int) -> Slots:
        """The slots of the records in a shard, ascending."""
        return self.members[shard]

    def shards_of(self, slot: int) -> tuple[int, ...]:
        """The shards that hold the record in this slot, ascending."""
        rows = self.rows[bisect_right([block.start for block in self.rows], slot) - 1]
        low, high = rows.offsets[slot - rows.start], rows.offsets[slot - rows.start + 1]
        return tuple(rows.shards[low:high].tolist())

    def changed(
        self, removed: NDArray[np.int64], added: range, arrivals: Sequence[Slots]
    ) -> tuple[Membership, tuple[int, ...]]:
        """Take the records in `removed` out and put those in `added` in; which shards that touched.

        `arrivals[i]` are the positions within `added` of the records that shard i receives.
        """
        leaving = self._by_shard(removed)
        touched = sorted(leaving.keys() | {shard for shard, new in enumerate(arrivals) if len(new)})
        members = list(self.members)
        for shard in touched:
            kept = members[shard]
            if shard in leaving:
                kept = np.delete(kept, np.searchsorted(kept, leaving[shard]))
            if arrivals and len(arrivals[shard]):
                kept = np.concatenate([kept, arrivals[shard] + np.uint32(added.start)])
            members[shard] = kept
        rows = self.rows
        if len(added):
            rows = _merge((*rows, _turn_round(arrivals, added.start, len(added))))
        return Membership(tuple(members), rows), tuple(touched)

    def renumbered(self, live: NDArray[np.int64]) -> Membership:
        """The same contents after the slots in `live` became 0, 1, 2, …"""
        members = [np.searchsorted(live, slots).astype(np.uint32) for slots in self.members]
        return Membership.build(members, len(live))

    def _by_shard(self, slots: NDArray[np.int64]) -> dict[int, Slots]:
        """The given slots, ascending, under each shard that holds them."""
        found: dict[int, list[int]] = {}
        for slot in slots.tolist():
            for shard in self.shards_of(slot):
                found.setdefault(shard, []).append(slot)
        return {shard: np.array(held, dtype=np.uint32) for shard, held in found.items()}


def _turn_round(members: Sequence[Slots], start: int, size: int) -> _Rows:
    """Rows by record from lists by shard, by counting, with no temporary larger than a shard.

    `members` hold positions relative to `start`. The offsets first hold the counts, then, shifted by one place, the
    next free cell of every row; when all cells are filled each has moved to the end of its row, which is where it
    belongs.
    """
    total = sum(len(positions) for positions in members)
    if size >= 2**32 - 1 or total >= 2**63:
        raise ParameterError(f"at most {2**32 - 2} records fit into one deployment, got {size}")
    offset_type = np.uint32 if total < 2**32 else np.uint64
    shards = np.empty(total, dtype=np.uint16 if len(members) <= 2**16 else np.uint32)
    offsets: NDArray[Any] = np.zeros(size + 1, dtype=offset_type)
    one: Any = offset_type(1)
    ends = offsets[1:]
    for positions in members:
        ends[positions] += one
    np.cumsum(offsets, out=offsets, dtype=offset_type)
    # offsets[j + 1] is now the end of row j; step back to its beginning, then fill.
    starts = ends
    starts[1:] = offsets[1:-1].copy()
    if size:
        starts[0] = 0
    for shard, positions in enumerate(members):
        cells = starts[positions]
        shards[cells] = shard
        starts[positions] = cells + one
    return _Rows(start, offsets, shards)


def _merge(rows: tuple[_Rows, ...]) -> tuple[_Rows, ...]:
    """Merge the newest rows while the last block is at least half the one before, sparing the first."""
    while len(rows) > 2 and 2 * rows[-1].size >= rows[-2].size:
        left, right = rows[-2:]
        offsets = np.concatenate([left.offsets, right.offsets[1:] + left.offsets[-1]])
        rows = (*rows[:-2], _Rows(left.start, offsets, np.concatenate([left.shards, right.shards])))
    return rows
