"""People's records and the updates to them: ids, Add, Delete, D ∘ u (Definition 2.1 of the paper).

A dataset D is a multiset of (features, label) pairs told apart by stable ids. `Records` is immutable: `apply` returns a
new dataset that shares all untouched storage with the old one, in time that depends on the batch and not on the size
of D. Records keep the order in which they were added, a function of the update sequence alone, and every shard is
trained in that order: so a dataset reached by updates and the same dataset made afresh are the same input.

What may happen to a dataset: records come and go (Definition 2.1 of the paper). `expunge.core.records` re-exports it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from expunge.core.blocks import (
    Block,
    id_column,
    join_blocks,
    make_block,
    merge_blocks,
    object_column,
    pick_rows,
    require_id,
)
from expunge.core.errors import DuplicateRecordError, InputError, RecordError, UnknownRecordError
from expunge.core.features import (
    Features,
    as_features,
    concatenate,
    describe,
    like,
    missing_rows,
    num_rows,
    own_copy,
    standard_types,
    take,
)
from expunge.core.index import NOWHERE, IdIndex, RecordId, SubjectIndex


@dataclass(frozen=True, slots=True, kw_only=True)
class Add:
    """Add one record under an id that is not in use."""

    id: RecordId
    features: Any
    label: Any
    subject: RecordId | None = None
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AddMany:
    """Add many records given as columns."""

    ids: Sequence[RecordId] | NDArray[Any]
    features: Features
    labels: ArrayLike
    subjects: Sequence[RecordId | None] | None = None
    weights: ArrayLike | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the record with this id."""

    id: RecordId


@dataclass(frozen=True, slots=True)
class DeleteMany:
    """Delete the records with these ids: the same as one `Delete` for each, in order."""

    ids: Iterable[RecordId] | NDArray[Any]  # kept as a list of plain values

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", _listed(self.ids, "ids"))


@dataclass(frozen=True, slots=True)
class DeleteSubject:
    """Delete every record of one person."""

    subject: RecordId


Update = Add | AddMany | Delete | DeleteMany | DeleteSubject


def as_batch(batch: Any) -> list[Update]:
    """A batch of updates as a list; a single update is none."""
    if isinstance(batch, Iterable):
        return list(batch)
    found = "a single one" if isinstance(batch, Update) else repr(batch)
    raise InputError(f"a batch is a list of updates, got {found}")


def deletions(ids: Iterable[RecordId], subjects: Iterable[RecordId]) -> list[Update]:
    """Records by id and everything of some subjects, as one batch."""
    return [DeleteMany(ids), *map(DeleteSubject, _listed(subjects, "subjects"))]


def _listed(names: Any, what: str) -> list[Any]:
    """Names as a list of plain values. A text is one name: its letters are other people's."""
    is_column = not isinstance(names, np.ndarray) or names.ndim == 1
    if isinstance(names, Iterable) and is_column and not isinstance(names, str | bytes):
        return names.tolist() if isinstance(names, np.ndarray) else list(names)
    raise InputError(f"{what} must be a list, also of a single one, got {names!r:.80}")


def deleted_ids(updates: Iterable[Update]) -> list[Any]:
    """The ids that a run of deletions names, in order."""
    ids: list[Any] = []
    for update in updates:
        if isinstance(update, DeleteMany):
            ids += update.ids
        elif isinstance(update, Delete):
            ids.append(update.id)
    return ids


def is_deletion(update: object) -> bool:
    """Whether an update deletes records by id."""
    return isinstance(update, Delete | DeleteMany)


@dataclass(frozen=True, slots=True)
class Change:
    """Which slots a batch emptied and which it filled (`added` is a contiguous run at the end)."""

    removed: NDArray[np.int64]
    added: range


__all__ = ["Add", "AddMany", "Change", "Delete", "DeleteMany", "DeleteSubject", "RecordId", "Records", "Update"]


@dataclass(frozen=True)
class Records:
    """The dataset D^t. Make one with `Records.build`; change it with `apply`.

    A record lives in a slot, numbered in order of addition; slots are never reused, so whoever keeps slot numbers
    (the shards do) need not be told about other records' updates, until `compacted` renumbers them.
    """

    classes: NDArray[Any]
    blocks: tuple[Block, ...]
    index: IdIndex
    subjects: SubjectIndex
    num_live: int
    num_slots: int
    allow_missing: bool = False
    layout: tuple[str, tuple[Any, ...]] = field(default=("array", ()))
    has_weights: bool = False  # whether records carry weights: declared by giving them when the dataset is made

    @classmethod
    def build(
        cls,
        features: Features,
        labels: ArrayLike,
        *,
        ids: Sequence[RecordId] | NDArray[Any] | None = None,
        subjects: Sequence[RecordId | None] | NDArray[Any] | None = None,
        weights: ArrayLike | None = None,
        classes: ArrayLike | None = None,
        allow_missing: bool = False,
        borrows: bool = False,
    ) -> Records:
        """A dataset from columns, copied unless it `borrows`; `classes` defaults to the labels seen, as public ones."""
        table = standard_types(as_features(features))
        table = table if borrows or table is not features else own_copy(table)
        raw = np.asarray(labels)
        known = np.unique(raw if classes is None else np.asarray(classes))
        column = None if ids is None else id_column(ids, num_rows(table), "ids")
        block = make_block(table, raw, column, subjects, weights, start=0, classes=known)
        records = cls(
            classes=known,
            blocks=(block,),
            index=IdIndex.build(block.ids, len(block)),
            subjects=SubjectIndex.build(block.subjects),
            num_live=len(block),
            num_slots=len(block),
            allow_missing=allow_missing,
            layout=describe(table),
            has_weights=weights is not None,
        )
        records.fitted(block)
        return records

    def __len__(self) -> int:
        return self.num_live

    def __contains__(self, record: object) -> bool:
        return self.index.find(record) is not None

    @property
    def num_classes(self) -> int:
        """How many labels the deployment knows."""
        return len(self.classes)

    def slot_of(self, record: RecordId) -> int:
        """Where the record lives; an unknown id is an error that names it."""
        slot = self.index.find(record)
        if slot is None:
            raise UnknownRecordError(f"no record has the id {record!r}", record)
        return slot

    def id_of(self, slot: int) -> RecordId:
        """The id of the record in a slot."""
        return self._block_of(slot).id_of(slot)

    def slots_of_subject(self, subject: RecordId) -> tuple[int, ...]:
        """Where the subject's records live, in order."""
        live = tuple(slot for slot in self.subjects.find(subject) if not self.index.is_gone(slot))
        if not live:
            raise UnknownRecordError(f"no record belongs to the subject {subject!r}", subject)
        return live

    def live_slots(self) -> NDArray[np.int64]:
        """All slots in use, in order."""
        return self.index.live_slots(self.num_slots)

    def ids(self) -> list[RecordId]:
        """All ids, in order of addition."""
        listed: list[RecordId] = self.ids_of(self.live_slots()).tolist()
        return listed

    def ids_of(self, slots: NDArray[Any]) -> NDArray[Any]:
        """The ids of the given slots, which are ascending: as int64 where they all are, as Python values otherwise."""
        parts = [
            slots[low:high] if block.ids is None else block.ids[slots[low:high].astype(np.int64) - block.start]
            for block, low, high in self._segments(slots)
            if high > low
        ]
        if any(part.dtype == object for part in parts):
            return np.concatenate([part.astype(object) for part in parts])
        return np.concatenate([np.empty(0, dtype=np.int64), *parts])

    def subjects_of(self, slots: NDArray[Any]) -> NDArray[Any] | None:
        """The subjects of the given slots, which are ascending; None where nobody named any."""
        if all(block.subjects is None for block in self.blocks):
            return None
        parts = [
            object_column([None] * (high - low))
            if block.subjects is None
            else block.subjects[slots[low:high].astype(np.int64) - block.start]
            for block, low, high in self._segments(slots)
        ]
        return np.concatenate(parts)

    def gather(self, slots: NDArray[Any]) -> tuple[Features, NDArray[np.int32], NDArray[np.float64] | None]:
        """Features, label codes and weights (None where nobody has any) of the given slots, which are ascending."""
        parts = [
            (block, slots[low:high].astype(np.int64) - block.start)
            for block, low, high in self._segments(slots)
            if high > low
        ]
        if not parts:
            parts = [(self.blocks[0], np.empty(0, dtype=np.int64))]
        features = concatenate([take(block.features, rows) for block, rows in parts])
        labels = np.concatenate([block.labels[rows] for block, rows in parts])
        if not self.has_weights:
            return features, labels, None
        ones = [np.ones(len(rows)) if block.weights is None else block.weights[rows] for block, rows in parts]
        return features, labels, np.concatenate(ones)

    def class_counts(self) -> NDArray[np.int64]:
        """How many records bear each label."""
        counts = np.zeros(self.num_classes, dtype=np.int64)
        gone = np.array(sorted(self.index.gone), dtype=np.int64)
        for block, low, high in self._segments(gone):
            counts += np.bincount(block.labels, minlength=self.num_classes)
            counts -= np.bincount(block.labels[gone[low:high] - block.start], minlength=self.num_classes)
        return counts

    def extract(self, slots: NDArray[np.int64]) -> Block:
        """The records in the given slots, which are ascending, as a block of their own that starts at the first."""
        features, labels, weights = self.gather(slots)
        start = int(slots[0]) if len(slots) else 0
        return Block(start, features, labels, self.ids_of(slots), self.subjects_of(slots), weights)

    @classmethod
    def restored(
        cls,
        block: Block,
        *,
        dead: Iterable[int],
        classes: NDArray[Any],
        allow_missing: bool,
        layout: tuple[str, tuple[Any, ...]],
    ) -> Records:
        """A dataset that was kept somewhere, all its slots as one block, with the emptied ones named."""
        gone = frozenset(dead)
        live = np.delete(np.arange(len(block), dtype=np.int64), sorted(gone))
        return cls(
            classes=classes,
            blocks=(block,),
            index=IdIndex.restored(block.ids, live, gone),
            subjects=SubjectIndex.build(block.subjects),
            num_live=len(live),
            num_slots=len(block),
            allow_missing=allow_missing,
            layout=layout,
            has_weights=block.weights is not None,
        )

    def apply(self, batch: Iterable[Update]) -> tuple[Records, Change]:
        """D ∘ u for every u of the batch in order, all or nothing."""
        draft = _Draft(self)
        for deletes, run in groupby(as_batch(batch), key=is_deletion):
            if deletes:
                draft.delete_all(deleted_ids(run))
                continue
            for update in run:
                draft.take(update)
        removed = np.array(sorted(draft.removed), dtype=np.int64)
        block = draft.additions()
        index = self.index.without(dict(zip(removed.tolist(), self.ids_of(removed).tolist(), strict=True)))
        subjects, blocks, num_slots = self.subjects, self.blocks, self.num_slots
        if block is not None:
            index = index.extended(block.ids, num_slots)
            subjects = subjects.extended(block.subjects, num_slots)
            blocks = merge_blocks((*blocks, block))
            num_slots += len(block)
        added = range(self.num_slots, num_slots)
        num_live = self.num_live - len(removed) + len(added)
        changed = replace(self, blocks=blocks, index=index, subjects=subjects, num_live=num_live, num_slots=num_slots)
        return changed, Change(removed, added)

    def compacted(self) -> Records:
        """The same dataset with slots renumbered 0..len-1 and the storage of deleted records dropped."""
        slots = self.live_slots()
        features, labels, weights = self.gather(slots)
        keeps_numbers = self.blocks[0].ids is None and len(self.blocks) == 1 and len(slots) == self.num_slots
        ids = None if keeps_numbers else self.ids_of(slots)
        subjects = self.subjects_of(slots)
        block = Block(0, features, labels, ids, subjects, weights)
        return replace(
            self,
            blocks=(block,),
            index=IdIndex.build(ids, len(slots)),
            subjects=SubjectIndex.build(subjects),
            num_live=len(slots),
            num_slots=len(slots),
        )

    def __getstate__(self) -> dict[str, Any]:
        """A pickled dataset holds no trace of deleted records."""
        kept = self if self.num_live == self.num_slots else self.compacted()
        return {name: getattr(kept, name) for name in self.__dataclass_fields__}

    def _block_of(self, slot: int) -> Block:
        return self.blocks[bisect_right([block.start for block in self.blocks], slot) - 1]

    def _segments(self, slots: NDArray[Any]) -> Iterable[tuple[Block, int, int]]:
        bounds = np.searchsorted(slots, [block.start for block in self.blocks] + [self.num_slots])
        return [(block, int(bounds[i]), int(bounds[i + 1])) for i, block in enumerate(self.blocks)]

    def checked(self, update: Add | AddMany) -> Block:
        """What an addition brings, as a block with this dataset's columns and number types; not put anywhere yet."""
        if isinstance(update, Add):
            subjects: Any = None if update.subject is None else [update.subject]
            weights: Any = None if update.weight == 1.0 else [update.weight]
            table, labels, ids = _one_row(update.features), np.asarray([update.label]), object_column([update.id])
        else:
            table, labels = as_features(update.features), np.asarray(update.labels)
            subjects, weights = update.subjects, update.weights
            ids = id_column(update.ids, num_rows(table), "ids")
        block = make_block(table, labels, ids, subjects, weights, start=0, classes=self.classes)
        block = replace(block, weights=self._own_weights(block))
        return self.fitted(replace(block, features=own_copy(block.features)))

    def _own_weights(self, block: Block) -> NDArray[np.float64] | None:
        """Weights where the dataset has them; where it has none, a record that brings one is refused."""
        if self.has_weights:
            return np.ones(len(block)) if block.weights is None else block.weights
        for row in [] if block.weights is None else np.flatnonzero(block.weights != 1)[:1]:
            record = block.id_of(block.start + int(row))
            raise RecordError(f"record {record!r} has a weight, and this dataset was made without weights", record)
        return None

    def fitted(self, block: Block) -> Block:
        """The block with features of this dataset's columns and number types; the first record at fault is named."""
        if len(block) == 0:
            return block
        first = block.id_of(block.start)
        found, expected = describe(block.features), self.layout
        if found != expected:
            message = f"record {first!r} has features of the form {_spell(found)}, expected {_spell(expected)}"
            raise RecordError(message, first)
        try:
            features = like(block.features, self.blocks[0].features)
        except (ValueError, TypeError) as error:
            raise RecordError(f"the features of record {first!r} cannot be used: {error}", first) from error
        for row in [] if self.allow_missing else missing_rows(features)[:1]:
            record = block.id_of(block.start + int(row))
            raise RecordError(f"the features of record {record!r} hold NaN or infinity", record)
        return replace(block, features=features)


class _Draft:
    """A batch being read, update by update; nothing of it reaches `records` until the whole batch is right."""

    def __init__(self, records: Records) -> None:
        self.records = records
        self.removed: set[int] = set()
        self.pending: dict[RecordId, tuple[int, int]] = {}  # id -> (source, row), in order of addition
        self.sources: list[Block] = []
        self.arrivals: dict[RecordId | None, list[RecordId]] = {}  # by subject; some may have left again

    def take(self, update: Update) -> None:
        match update:
            case Add() | AddMany():
                self._add(self.records.checked(update))
            case DeleteSubject(subject=subject):
                self._delete_subject(require_id(subject, "a subject"))
            case _:
                raise InputError(f"an update is an Add, AddMany, Delete, DeleteMany or DeleteSubject, got {update!r}")

    def delete_all(self, records: list[Any]) -> None:
        """Many deletions at once, for they come by the ten thousand; one by one where it must be said what is wrong."""
        if not self.pending and {*map(type, records)} <= {int, str}:
            slots = set(self.records.index.find_all(records).tolist())
            if len(slots) == len(records) and NOWHERE not in slots and self.removed.isdisjoint(slots):
                self.removed |= slots
                return
        for record in records:
            self._delete(require_id(record, "a record's id"))

    def _holds(self, record: RecordId) -> bool:
        slot = self.records.index.find(record)
        return record in self.pending or (slot is not None and slot not in self.removed)

    def _add(self, block: Block) -> None:
        for row, record in enumerate(block.ids.tolist() if block.ids is not None else []):
            if self._holds(record):
                raise DuplicateRecordError(f"the id {record!r} is in use already; delete it first", record)
            self.pending[record] = (len(self.sources), row)
            if block.subjects is not None:
                self.arrivals.setdefault(block.subjects[row], []).append(record)
        self.sources.append(block)

    def _delete(self, record: RecordId) -> None:
        if record in self.pending:
            del self.pending[record]
            return
        slot = self.records.slot_of(record)
        if slot in self.removed:
            raise UnknownRecordError(f"the batch deletes the id {record!r} twice", record)
        self.removed.add(slot)

    def _delete_subject(self, subject: RecordId) -> None:
        settled = [s for s in self.records.subjects.find(subject) if not self.records.index.is_gone(s)]
        slots = [slot for slot in settled if slot not in self.removed]
        came = dict.fromkeys(self.arrivals.pop(subject, ()))
        fresh = [record for record in came if record in self.pending and self._subject(record) == subject]
        if not settled and not fresh:
            raise UnknownRecordError(f"no record belongs to the subject {subject!r}", subject)
        self.removed.update(slots)
        for record in fresh:
            del self.pending[record]

    def _subject(self, record: RecordId) -> RecordId | None:
        source, row = self.pending[record]
        column = self.sources[source].subjects
        return None if column is None else column[row]

    def additions(self) -> Block | None:
        """What is left to add, as one block, in order of addition."""
        if not self.pending:
            return None
        places = np.array(list(self.pending.values()), dtype=np.int64)
        runs = np.split(places, np.flatnonzero(np.diff(places[:, 0])) + 1)
        parts = [pick_rows(self.sources[int(run[0, 0])], run[:, 1]) for run in runs]
        return join_blocks(parts, start=self.records.num_slots)


def _spell(layout: tuple[str, tuple[Any, ...]]) -> str:
    kind, columns = layout
    return f"{kind} of {columns}"


def _one_row(features: Any) -> Features:
    """One record's features as a table with one row: a row vector, a 1-row table, or a mapping of columns."""
    if isinstance(features, dict):
        import pandas as pd

        return pd.DataFrame([features])
    if hasattr(features, "iloc") and not hasattr(features, "columns"):  # a data frame's row
        return features.to_frame().T.infer_objects()
    if hasattr(features, "shape") and len(features.shape) == 2 and features.shape[0] == 1:
        return as_features(features)
    return as_features([features])
