"""Indexes that find records by id and by subject; immutable datasets share one large index.

Most ids are in a base that never changes. A small overlay says what was added and deleted since. An update copies the
overlay. When the overlay outgrows the square root of the dataset, it is merged into a new base. So a single update
costs O(√n) dictionary entries instead of n.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expunge.core.checks import canonical
from expunge.core.errors import DuplicateRecordError

RecordId = int | str
NOWHERE = -1  # the slot of an id that no record has
_NO_NAMES = np.empty(0, dtype=object)


class _RangeBase:
    """Ids 0..n-1, each in the slot of its number."""

    def __init__(self, size: int) -> None:
        self.size = size

    def find(self, record: object) -> int | None:
        if isinstance(record, int | np.integer) and not isinstance(record, bool) and 0 <= record < self.size:
            return int(record)
        return None

    def find_all(self, records: list[Any]) -> NDArray[np.int64]:
        numbers = _numbers(records)
        if numbers is None:
            return _one_by_one(self, records)
        return np.where((numbers >= 0) & (numbers < self.size), numbers, NOWHERE)


class _SortedBase:
    """Integer ids in a sorted array: 16 bytes an id."""

    def __init__(self, ids: NDArray[np.int64], slots: NDArray[np.int64]) -> None:
        order = np.argsort(ids, kind="stable")
        self.ids, self.slots = ids[order], slots[order]
        twice = np.flatnonzero(self.ids[1:] == self.ids[:-1])
        if len(twice):
            raise _duplicate(int(self.ids[twice[0]]))

    def find(self, record: object) -> int | None:
        if not isinstance(record, int | np.integer) or isinstance(record, bool):
            return None
        if not -(2**63) <= record < 2**63:
            return None
        place = int(np.searchsorted(self.ids, record))
        return int(self.slots[place]) if place < len(self.ids) and self.ids[place] == record else None

    def find_all(self, records: list[Any]) -> NDArray[np.int64]:
        numbers = _numbers(records)
        if numbers is None or len(self.ids) == 0:
            return _one_by_one(self, records)
        order = np.argsort(numbers)  # neighbours are found near one another
        places = np.empty(len(numbers), dtype=np.int64)
        places[order] = np.searchsorted(self.ids[:-1], numbers[order])
        return np.where(self.ids[places] == numbers, self.slots[places], NOWHERE)


class _DictBase:
    """Ids of any kind in a dictionary."""

    def __init__(self, slots: dict[Any, int]) -> None:
        self.slots = slots

    def find(self, record: object) -> int | None:
        return None if isinstance(record, bool) else self.slots.get(record)

    def find_all(self, records: list[Any]) -> NDArray[np.int64]:
        return _one_by_one(self, records)


_Base = _RangeBase | _SortedBase | _DictBase


def _numbers(records: list[Any]) -> NDArray[np.int64] | None:
    """Return the ids as one array if all of them are integers of 64 bits."""
    if set(map(type, records)) != {int}:
        return None
    try:
        return np.array(records, dtype=np.int64)
    except OverflowError:
        return None


def _one_by_one(base: _Base, records: list[Any]) -> NDArray[np.int64]:
    find = base.find
    found = (find(record) for record in records)
    return np.fromiter((NOWHERE if slot is None else slot for slot in found), dtype=np.int64, count=len(records))


def _duplicate(record: RecordId) -> DuplicateRecordError:
    return DuplicateRecordError(f"the id {record!r} occurs twice", record)


def _make_base(ids: NDArray[Any] | None, slots: NDArray[np.int64]) -> _Base:
    if ids is None:
        return _RangeBase(len(slots))
    if ids.dtype.kind == "i":
        return _SortedBase(ids, slots)
    table = dict(zip(ids.tolist(), slots.tolist(), strict=True))
    if len(table) < len(ids):
        seen: set[Any] = set()
        raise _duplicate(next(r for r in ids.tolist() if r in seen or seen.add(r)))  # type: ignore[func-returns-value]
    return _DictBase(table)


@dataclass(frozen=True)
class SlotSet:
    """A set of slots that grows. Growing costs the square root of its size: most slots are in a part that is shared."""

    bulk: frozenset[int] = frozenset()
    recent: frozenset[int] = frozenset()

    def __contains__(self, slot: object) -> bool:
        return slot in self.recent or slot in self.bulk

    def __len__(self) -> int:
        return len(self.bulk) + len(self.recent)

    def __iter__(self) -> Iterator[int]:
        return chain(self.bulk, self.recent)

    def extended(self, slots: Iterable[int]) -> SlotSet:
        """Return the set with more slots, which it does not hold yet."""
        recent = self.recent.union(slots)
        if len(recent) > 64 + 8 * math.isqrt(len(self.bulk)):
            return SlotSet(self.bulk | recent)
        return SlotSet(self.bulk, recent)


@dataclass(frozen=True)
class IdIndex:
    """A map from id to slot for the live records of a dataset."""

    base: _Base
    base_size: int
    added: Mapping[Any, int] = field(default_factory=dict)
    gone: SlotSet = SlotSet()  # all emptied slots

    @classmethod
    def build(cls, ids: NDArray[Any] | None, size: int) -> IdIndex:
        """Index `size` records in slots 0..size-1; ids None means that the slot's number is the id."""
        return cls(_make_base(ids, np.arange(size, dtype=np.int64)), size)

    @classmethod
    def restored(cls, ids: NDArray[Any] | None, live: NDArray[np.int64], gone: SlotSet) -> IdIndex:
        """Index a dataset with some emptied slots, whose ids are ignored."""
        if ids is None or (ids.dtype.kind == "i" and np.array_equal(ids[live], live)):
            return cls(_RangeBase(len(live) + len(gone)), len(live), {}, gone)
        return cls(_make_base(ids[live], live), len(live), {}, gone)

    def find(self, record: object) -> int | None:
        """Return the slot of a live record, or None."""
        record = canonical(record)
        if record in self.added and not isinstance(record, bool):
            return self.added[record]
        slot = self.base.find(record)
        return None if slot is None or slot in self.gone else slot

    def find_all(self, records: list[Any]) -> NDArray[np.int64]:
        """Return the slots of many records at once; -1 for an id that no live record has."""
        if any(isinstance(record, str) and not record.isascii() for record in records):
            records = [canonical(record) for record in records]
        slots = self.base.find_all(records)
        gone = self.gone
        if gone:
            slots[[place for place, slot in enumerate(slots.tolist()) if slot in gone]] = NOWHERE
        if self.added:
            for place, record in enumerate(records):
                if record in self.added and not isinstance(record, bool):
                    slots[place] = self.added[record]
        return slots

    def is_gone(self, slot: int) -> bool:
        """Tell whether a slot has been emptied."""
        return slot in self.gone

    def live_slots(self, num_slots: int) -> NDArray[np.int64]:
        """Return the slots below `num_slots` that are in use."""
        slots = np.arange(num_slots, dtype=np.int64)
        return np.delete(slots, np.fromiter(self.gone, dtype=np.int64, count=len(self.gone))) if self.gone else slots

    def live_runs(self, num_slots: int, size: int) -> Iterator[NDArray[np.int64]]:
        """Yield the slots below `num_slots` that are in use, in order: those of `size` slots at a time."""
        gone = np.sort(np.fromiter(self.gone, dtype=np.int64, count=len(self.gone)))
        for first in range(0, num_slots, size):
            last = min(first + size, num_slots)
            low, high = np.searchsorted(gone, (first, last))
            yield np.delete(np.arange(first, last, dtype=np.int64), gone[low:high] - first)

    def without(self, removed: Mapping[int, RecordId]) -> IdIndex:
        """Return the index after the given slots (with their ids) were emptied."""
        if not removed:
            return self
        added = self.added
        names = {record for slot, record in removed.items() if added.get(record) == slot} if added else set()
        if names:
            added = {record: slot for record, slot in self.added.items() if record not in names}
        return IdIndex(self.base, self.base_size, added, self.gone.extended(removed))

    def extended(self, ids: NDArray[Any] | None, start: int) -> IdIndex:
        """Return the index after records with these ids were put into slots start, start+1, …"""
        assert ids is not None
        added = {**self.added, **{record: start + row for row, record in enumerate(ids.tolist())}}
        index = IdIndex(self.base, self.base_size, added, self.gone)
        return index._merged() if len(added) > 64 + 8 * math.isqrt(self.base_size) else index

    def _merged(self) -> IdIndex:
        live = {**self._base_items(), **self.added}
        return IdIndex(_DictBase(live), len(live), {}, self.gone)

    def _base_items(self) -> dict[Any, int]:
        match self.base:
            case _RangeBase(size=size):
                pairs: Any = zip(range(size), range(size), strict=True)
            case _SortedBase(ids=ids, slots=slots):
                pairs = zip(ids.tolist(), slots.tolist(), strict=True)
            case _DictBase(slots=table):
                pairs = table.items()
        return {record: slot for record, slot in pairs if slot not in self.gone}


class _Groups:
    """The slots of each subject in a column: a number for each subject, and all slots in the order of these numbers."""

    def __init__(self, column: NDArray[Any]) -> None:
        names = column.tolist()
        found = dict.fromkeys(names)
        found.pop(None, None)
        self.numbers: dict[Any, int] = dict(zip(found, range(len(found)), strict=True))
        numbers = np.fromiter(map(self.numbers.get, names, repeat(-1)), dtype=np.int64, count=len(names))
        self.slots = np.argsort(numbers, kind="stable")
        self.starts = np.searchsorted(numbers[self.slots], np.arange(len(found) + 1))

    def find(self, subject: Any) -> list[int]:
        number = self.numbers.get(subject)
        if number is None:
            return []
        found: list[int] = self.slots[self.starts[number] : self.starts[number + 1]].tolist()
        return found


@dataclass(frozen=True)
class SubjectIndex:
    """A map from subject to slots, emptied ones included; the id index knows which are live.

    What came after the column is in two parts: a large one that is shared, and a small one that is copied.
    """

    column: NDArray[Any] | None
    added: Mapping[Any, tuple[int, ...]] = field(default_factory=dict)
    recent: Mapping[Any, tuple[int, ...]] = field(default_factory=dict)

    @classmethod
    def build(cls, column: NDArray[Any] | None) -> SubjectIndex:
        """Index the records in slots 0, 1, …; None means that no record names a subject."""
        return cls(column)

    @cached_property
    def base(self) -> _Groups:
        """The slots of each subject in the column, computed when first needed."""
        return _Groups(_NO_NAMES if self.column is None else self.column)

    def find(self, subject: RecordId) -> tuple[int, ...]:
        """Return all slots ever filled with a record of the subject, ascending."""
        subject = canonical(subject)
        return (*self.base.find(subject), *self.added.get(subject, ()), *self.recent.get(subject, ()))

    def extended(self, column: NDArray[Any] | None, start: int) -> SubjectIndex:
        """Return the index after records of these subjects were put into slots start, start+1, …"""
        if column is None:
            return self
        came: dict[Any, list[int]] = {}
        for row, subject in enumerate(column.tolist()):
            if subject is not None:
                came.setdefault(subject, []).append(start + row)
        added, recent = self.added, _with_slots(self.recent, came)
        if len(recent) > 64 + 8 * math.isqrt(len(added)):
            added, recent = _with_slots(added, recent), {}
        index = SubjectIndex(self.column, added, recent)
        if "base" in self.__dict__:
            index.__dict__["base"] = self.base
        return index


def _with_slots(known: Mapping[Any, tuple[int, ...]], more: Mapping[Any, Sequence[int]]) -> dict[Any, tuple[int, ...]]:
    return {**known, **{subject: (*known.get(subject, ()), *slots) for subject, slots in more.items()}}
