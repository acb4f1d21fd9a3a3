"""People's records and the updates to them: ids, Add, Delete, D ∘ u (Definition 2.1 of the paper).

A dataset D is a multiset of (features, label) pairs with stable ids. `Records` is immutable: `apply` returns a new
dataset that shares all untouched storage with the old one. The time depends on the batch and not on the size of D.
Slots number the records in order of addition, which is history: the recipe puts every shard into an order of its own,
and a folder renumbers the slots in the recipe's order whenever it writes all records.
Types are fixed when the dataset is made, and rows have one form, from any container. So a dataset reached
by updates and the same dataset built from scratch are the same input to a learner.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from numbers import Real
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from expunge.core.blocks import (
    Block,
    class_list,
    id_column,
    join_blocks,
    label_column,
    listed,
    make_block,
    merge_blocks,
    object_column,
    pick_rows,
    require_id,
)
from expunge.core.checks import quoted
from expunge.core.errors import DuplicateRecordError, InputError, RecordError, UnknownRecordError, UnknownSubjectError
from expunge.core.features import (
    Features,
    as_features,
    cast_like,
    codes_of,
    concatenate,
    copy_rows,
    describe,
    is_shared,
    missing_rows,
    num_rows,
    plain_form,
    require_exact,
    settle,
    standard_types,
    take,
)
from expunge.core.index import NOWHERE, IdIndex, RecordId, SlotSet, SubjectIndex
from expunge.core.words import plural

__all__ = [
    "Add",
    "AddMany",
    "Change",
    "Delete",
    "DeleteMany",
    "DeletePerson",
    "DeleteSubject",
    "RecordId",
    "Records",
    "Update",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Add:
    """Add one record under an id that is not in use.

    Parameters
    ----------
    id
        The record's id, an int or a str.
    features
        One row: a sequence of values, a mapping from column to value, a text, or a table with one row.
    label
        The record's label, one of the known classes; for a regressor a number, or as many as the others have.
    subject
        The person that the record belongs to, an int or a str; None if no one is named.
    weight
        The record's weight, finite and not negative.

    Examples
    --------
    >>> Add(id="c-17", features=[0.5, 2.0], label=1, subject="ann")
    Add(id='c-17', features=[0.5, 2.0], label=1, subject='ann', weight=1.0)
    """

    id: RecordId
    features: Any
    label: Any
    subject: RecordId | None = None
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AddMany:
    """Add many records given as columns.

    Parameters
    ----------
    ids
        One id for each record; none may be in use.
    features
        A table with one row for each record: an array, a sparse matrix, a data frame or a list of texts.
    labels
        One label for each record, each a known class; for a regressor numbers, one or a row for each record.
    subjects
        For each record the person it belongs to, or None; None for all means that no one is named.
    weights
        One weight for each record, finite and not negative; None means 1 for all.

    Examples
    --------
    >>> import numpy as np
    >>> batch = [AddMany(ids=["a", "b"], features=np.eye(2), labels=[0, 1])]
    >>> records, _ = Records.build(np.zeros((3, 2)), [0, 1, 0]).apply(batch)
    >>> records.ids()
    [0, 1, 2, 'a', 'b']
    """

    ids: Sequence[RecordId] | NDArray[Any]
    features: Features
    labels: ArrayLike
    subjects: Sequence[RecordId | None] | None = None
    weights: ArrayLike | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the record with this id.

    Parameters
    ----------
    id
        The record's id, an int or a str.

    Examples
    --------
    >>> import numpy as np
    >>> records, _ = Records.build(np.zeros((3, 2)), [0, 1, 0]).apply([Delete(1)])
    >>> records.ids()
    [0, 2]
    """

    id: RecordId


@dataclass(frozen=True, slots=True)
class DeleteMany:
    """Delete the records with these ids: the same as one `Delete` for each, in order.

    Parameters
    ----------
    ids
        The ids, also when there is only one. They are stored as a list of plain values.

    Raises
    ------
    InputError
        If `ids` is not a list or a column of ids, for example a text.

    Examples
    --------
    >>> DeleteMany(range(3)).ids
    [0, 1, 2]
    """

    ids: Iterable[RecordId] | NDArray[Any]

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", listed(self.ids, "ids"))


@dataclass(frozen=True, slots=True)
class DeleteSubject:
    """Delete every record of one person.

    Parameters
    ----------
    subject
        The person, an int or a str, as named when the records were added.

    Examples
    --------
    >>> import numpy as np
    >>> records = Records.build(np.zeros((3, 2)), [0, 1, 0], subjects=["ann", "bob", "ann"])
    >>> records.apply([DeleteSubject("ann")])[0].ids()
    [1]
    """

    subject: RecordId


@dataclass(frozen=True, slots=True)
class DeletePerson:
    """Delete all that is there of one person, which may be nothing: for those who must not learn whether it was.

    A person is the unit that is assigned to shards: the subject where records have one, else the id.

    Parameters
    ----------
    person
        The subject, or the id of a record that has no subject.

    Examples
    --------
    >>> import numpy as np
    >>> records = Records.build(np.zeros((3, 2)), [0, 1, 0], subjects=["ann", None, "ann"])
    >>> records.apply([DeletePerson("ann"), DeletePerson("zoe"), DeletePerson(1)])[0].ids()
    []
    """

    person: RecordId


Update = Add | AddMany | Delete | DeleteMany | DeleteSubject | DeletePerson


def as_batch(batch: Any) -> list[Update]:
    """Return a batch of updates as a list; refuse a single update."""
    if isinstance(batch, Iterable):
        return list(batch)
    found = "a single one" if isinstance(batch, Update) else repr(batch)
    raise InputError(f"a batch is a list of updates, got {found}")


def deletions(ids: Iterable[RecordId], subjects: Iterable[RecordId]) -> list[Update]:
    """Make one batch that deletes records by id and all records of some subjects."""
    return [DeleteMany(ids), *map(DeleteSubject, listed(subjects, "subjects"))]


def deleted_ids(updates: Iterable[Update]) -> list[Any]:
    """List the ids that a run of deletions names, in order."""
    ids: list[Any] = []
    for update in updates:
        if isinstance(update, DeleteMany):
            ids += update.ids
        elif isinstance(update, Delete):
            ids.append(update.id)
    return ids


def is_deletion(update: object) -> bool:
    """Tell whether an update deletes records by id."""
    return isinstance(update, Delete | DeleteMany)


@dataclass(frozen=True, slots=True)
class Change:
    """The slots that a batch emptied and those that it filled.

    Parameters
    ----------
    removed
        The emptied slots, ascending.
    added
        The filled slots, a contiguous run at the end.
    """

    removed: NDArray[np.int64]
    added: range


class RowSource(Protocol):
    """Where another process, maybe on another machine, reads rows of a dataset by itself. Pickled, it is small.

    `num_rows` rows are there; those of records that were deleted since need not be readable any more.
    """

    @property
    def num_rows(self) -> int:
        """How many rows are there."""

    def read(self, rows: NDArray[np.int64]) -> Block:
        """Read some rows, ascending, as a block of these alone, and check that they are what was written."""

    def narrowed(self, rows: NDArray[np.int64]) -> RowSource:
        """The same source, which need not know of other rows: it travels with every task."""


@dataclass(frozen=True)
class Records:
    """The dataset D^t. Make one with `Records.build` and change it with `apply`.

    A record lives in a slot. Additions fill new slots at the end, and slots are never reused. So the shards, which keep
    slot numbers, need not know about updates of other records until `compacted` renumbers the slots.

    Parameters
    ----------
    classes
        All known labels. The code of a label is its position here. Empty if the labels are numbers to predict.
    blocks
        The columns, in runs of consecutive slots.
    index
        Finds the slot of an id.
    subjects
        Finds the slots of a subject.
    num_live
        The number of records.
    num_slots
        The number of slots, emptied ones included.
    allow_missing
        Whether features may hold NaN or infinity.
    layout
        The kind of container and its columns, as `features.describe` gives them.
    has_weights
        Whether records carry weights, declared by giving them when the dataset is made.
    source
        Where other processes read the records of the first slots by themselves, if there is such a place.
    places
        The row in `source` of each of these slots; None if a slot's number is that of its row.

    Examples
    --------
    >>> import numpy as np
    >>> records = Records.build(np.zeros((3, 2)), ["yes", "no", "no"], ids=["a", "b", "c"])
    >>> records, change = records.apply([Delete("b"), Add(id="d", features=[1, 1], label="yes")])
    >>> records.ids()
    ['a', 'c', 'd']
    >>> change.removed.tolist(), list(change.added)
    ([1], [3])
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
    source: RowSource | None = field(default=None, compare=False)
    places: NDArray[np.int64] | None = field(default=None, compare=False)

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
        is_regression: bool = False,
        allow_missing: bool = False,
        copy: bool = True,
    ) -> Records:
        """Make a dataset from columns.

        Parameters
        ----------
        features
            A table with one row for each record: an array, a sparse matrix, a data frame or a list of texts.
        labels
            One label for each record.
        ids
            One id for each record, an int or a str; by default the records are numbered from 0.
        subjects
            For each record the person it belongs to, or None.
        weights
            One weight for each record, finite and not negative. Whether records have weights is fixed by this: without
            them, an addition that brings a weight is refused.
        classes
            All labels that may occur. By default the labels seen, which are then public.
        is_regression
            Whether labels are numbers to predict, one a record or a row of them, and not classes.
        allow_missing
            Whether features may hold NaN or infinity.
        copy
            Whether to copy the features. Without a copy the caller must not change them.

        Returns
        -------
        Records
            The dataset.

        Raises
        ------
        InputError
            If the columns differ in length, or features are not a table.
        RecordError
            If a record is at fault: an id of another type or one that occurs twice, an unknown label, an impossible
            weight, or NaN or infinity in the features. The message names the first such record.
        """
        table = standard_types(plain_form(as_features(features)))
        require_exact(table)
        table = copy_rows(table) if copy and is_shared(table, features) else table
        raw = label_column(labels)
        if is_regression and classes is not None:
            raise InputError("numbers to predict have no classes: leave out classes, or is_regression")
        if not is_regression and raw.ndim != 1:
            raise InputError(f"labels must be one per record ({num_rows(table)}), got shape {raw.shape}")
        is_blank = is_regression or (classes is None and not len(raw))
        known = np.empty(0) if is_blank else class_list(raw if classes is None else classes)
        if classes is not None and known.dtype.kind == "f" and np.isnan(known).any():
            raise InputError("NaN cannot be a class")
        column = None if ids is None else id_column(ids, num_rows(table), "ids")
        outputs = _outputs(raw) if is_regression else None
        block = make_block(table, raw, column, subjects, weights, start=0, classes=known, outputs=outputs)
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
        records._conform(block)
        return records

    def __len__(self) -> int:
        return self.num_live

    def __contains__(self, record: object) -> bool:
        return self.index.find(record) is not None

    @property
    def num_classes(self) -> int:
        """The number of known labels; 0 if the labels are numbers to predict."""
        return len(self.classes)

    @property
    def is_regression(self) -> bool:
        """Whether the labels are numbers to predict."""
        return self.blocks[0].labels.dtype.kind == "f"

    @property
    def outputs(self) -> tuple[int, ...] | None:
        """The shape of one record's numbers to predict: () for one, (m,) for m; None if labels are classes."""
        return tuple(self.blocks[0].labels.shape[1:]) if self.is_regression else None

    def slot_of(self, record: RecordId) -> int:
        """Return the slot of a record; an unknown id raises `UnknownRecordError`, which names it."""
        slot = self.index.find(record)
        if slot is None:
            raise UnknownRecordError(f"no record has the id {quoted(record)}", record)
        return slot

    def id_of(self, slot: int) -> RecordId:
        """Return the id of the record in a slot."""
        return self._block_of(slot).id_of(slot)

    def slots_of_subject(self, subject: RecordId) -> tuple[int, ...]:
        """Return the slots of a subject's records, in order; an unknown subject raises `UnknownRecordError`."""
        live = tuple(slot for slot in self.subjects.find(subject) if not self.index.is_gone(slot))
        if not live:
            raise UnknownSubjectError(f"no record belongs to the subject {quoted(subject)}", subject)
        return live

    def live_slots(self) -> NDArray[np.int64]:
        """Return all slots in use, in order."""
        return self.index.live_slots(self.num_slots)

    def live_runs(self, size: int) -> Iterator[NDArray[np.int64]]:
        """Yield all slots in use, in order, those of `size` slots at a time."""
        return self.index.live_runs(self.num_slots, size)

    def ids(self) -> list[RecordId]:
        """Return all ids, in the order of their slots: of addition in memory, of the recipe in a folder."""
        listed: list[RecordId] = self.ids_of(self.live_slots()).tolist()
        return listed

    def ids_of(self, slots: NDArray[Any]) -> NDArray[Any]:
        """Return the ids of ascending slots: as int64 if all ids are, as Python values otherwise."""
        parts = [
            slots[low:high] if block.ids is None else block.ids[slots[low:high].astype(np.int64) - block.start]
            for block, low, high in self._segments(slots)
            if high > low
        ]
        if any(part.dtype == object for part in parts):
            return np.concatenate([part.astype(object) for part in parts])
        return np.concatenate([np.empty(0, dtype=np.int64), *parts])

    def subjects_of(self, slots: NDArray[Any]) -> NDArray[Any] | None:
        """Return the subjects of ascending slots; None if no record of the dataset names one."""
        if all(block.subjects is None for block in self.blocks):
            return None
        parts = [
            object_column([None] * (high - low))
            if block.subjects is None
            else block.subjects[slots[low:high].astype(np.int64) - block.start]
            for block, low, high in self._segments(slots)
        ]
        return np.concatenate(parts)

    def slots_of_person(self, person: RecordId) -> tuple[list[int], list[int]]:
        """The slots of a person's records: those with this subject, and the one without a subject that has this id."""
        named = [slot for slot in self.subjects.find(person) if not self.index.is_gone(slot)]
        own = self.index.find(person)
        return named, [] if own is None or self.subject_of(own) is not None else [own]

    def subject_of(self, slot: int) -> RecordId | None:
        """Return the subject of the record in a slot, or None."""
        block = self._block_of(slot)
        return None if block.subjects is None else block.subjects[slot - block.start]

    def gather(
        self, slots: NDArray[Any], order: NDArray[np.int64] | None = None
    ) -> tuple[Features, NDArray[Any], NDArray[np.float64] | None]:
        """Return features, labels and weights of ascending slots; weights are None if no record has one.

        Labels are class codes, or the numbers to predict. `order` puts the rows of the result into another order: its
        first row is that of slot `slots[order[0]]`.
        """
        if order is not None:
            return self._arranged(slots, order)
        parts = self._rows_of(slots)
        return settle(concatenate([block.take(rows) for block, rows in parts])), *self._told(parts)

    def _rows_of(self, slots: NDArray[Any]) -> list[tuple[Block, NDArray[np.int64]]]:
        """Ascending slots as rows of blocks; no row of the first block if there are none."""
        parts = [
            (block, slots[low:high].astype(np.int64) - block.start)
            for block, low, high in self._segments(slots)
            if high > low
        ]
        return parts or [(self.blocks[0], np.empty(0, dtype=np.int64))]

    def _told(
        self, parts: Sequence[tuple[Block, NDArray[np.int64]]]
    ) -> tuple[NDArray[Any], NDArray[np.float64] | None]:
        """The labels and the weights of some rows of blocks."""
        labels = np.concatenate([block.labels[rows] for block, rows in parts])
        if not self.has_weights:
            return labels, None
        ones = [np.ones(len(rows)) if block.weights is None else block.weights[rows] for block, rows in parts]
        return labels, np.concatenate(ones)

    def _arranged(
        self, slots: NDArray[Any], order: NDArray[np.int64]
    ) -> tuple[Features, NDArray[Any], NDArray[np.float64] | None]:
        if len(self.blocks) == 1 and isinstance(self.blocks[0].features, np.ndarray):
            return self.gather(slots[order])  # in one block slots need not ascend, and rows are copied only once
        X, y, weights = self.gather(slots)
        return take(X, order), y[order], None if weights is None else weights[order]

    def redeclared(
        self,
        *,
        add_classes: Iterable[Any] = (),
        drop_classes: Iterable[Any] = (),
        allow_missing: bool = False,
        allow_weights: bool = False,
    ) -> Records:
        """Return the same records under another schema.

        Parameters
        ----------
        add_classes
            Labels that may occur from now on, of the type of the others.
        drop_classes
            Labels that may no longer occur. No record may have one.
        allow_missing
            True lets features hold NaN or infinity from now on. False changes nothing.
        allow_weights
            True lets records have weights from now on; those that are there weigh 1. False changes nothing.

        Returns
        -------
        Records
            The records, with the codes of the new list of labels.

        Raises
        ------
        InputError
            If a label to add is there or has another type, one to drop is unknown or in use, or there are weights.
        """
        if allow_weights and self.has_weights:
            raise InputError("records have weights already")
        allowed: dict[str, Any] = {
            "allow_missing": self.allow_missing or allow_missing,
            "has_weights": self.has_weights or allow_weights,
            "source": None,  # what is there is of the schema before
            "places": None,
        }
        known = self.classes.tolist()
        added, dropped = listed(add_classes, "add_classes"), listed(drop_classes, "drop_classes")
        if self.is_regression:
            if added or dropped:
                raise InputError("the labels of these records are numbers to predict: there are no classes")
            return replace(self, **allowed)
        for label in added:
            if label in known or added.count(label) > 1:
                raise InputError(f"{label!r} is a class already")
            if isinstance(label, str) != isinstance(known[0], str) or isinstance(label, bool) != isinstance(
                known[0], bool
            ):
                raise InputError(f"a class is {'text' if isinstance(known[0], str) else 'a number'}, got {label!r}")
        counts = dict(zip(known, self.class_counts().tolist(), strict=True))
        for label in dropped:
            if label not in counts or dropped.count(label) > 1:
                raise InputError(f"there is no class {label!r} to drop")
            if counts[label]:
                count = plural(counts[label], "record")
                raise InputError(f"{count} of class {label!r}: delete them before you drop it")
        kept = [label for label in [*known, *added] if label not in dropped]
        if len(kept) < 2:
            raise InputError("at least two classes must be left")
        classes = np.unique(np.array(kept, dtype=object if self.classes.dtype == object else None))
        codes = codes_of(self.classes, classes).astype(np.int32)  # of a class that is dropped: any, no record has it
        blocks = tuple(replace(block, labels=codes[block.labels]) for block in self.blocks)
        return replace(self, classes=classes, blocks=blocks, **allowed)

    def class_counts(self) -> NDArray[np.int64]:
        """Count the records of each label."""
        counts = np.zeros(self.num_classes, dtype=np.int64)
        if self.is_regression:
            return counts
        gone = np.array(sorted(self.index.gone), dtype=np.int64)
        for block, low, high in self._segments(gone):
            counts += np.bincount(block.labels, minlength=self.num_classes)
            counts -= np.bincount(block.labels[gone[low:high] - block.start], minlength=self.num_classes)
        return counts

    def extract(self, slots: NDArray[np.int64]) -> Block:
        """Copy the records in ascending slots into one block that starts at the first slot."""
        features, labels, weights = self.gather(slots)
        start = int(slots[0]) if len(slots) else 0
        return Block(start, features, labels, self.ids_of(slots), self.subjects_of(slots), weights)

    def names(self, slots: NDArray[np.int64]) -> Block:
        """Everything about the records in ascending slots but their features, which are those of no row."""
        labels, weights = self._told(self._rows_of(slots))
        none = take(self.blocks[0].features, np.empty(0, dtype=np.intp))
        return Block(0, none, labels, self.ids_of(slots), self.subjects_of(slots), weights)

    @property
    def is_elsewhere(self) -> bool:
        """Whether features are kept elsewhere, and are read when they are needed."""
        return any(block.elsewhere is not None for block in self.blocks)

    def rows_of(self, slots: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The rows in `source` of ascending slots, and the slots that are not there."""
        num_there = 0 if self.source is None else self.source.num_rows if self.places is None else len(self.places)
        here, rest = np.split(np.asarray(slots, dtype=np.int64), [np.searchsorted(slots, num_there)])
        return (here if self.places is None else self.places[here]), rest

    @classmethod
    def restored(
        cls,
        block: Block,
        *,
        dead: Iterable[int],
        classes: NDArray[Any],
        allow_missing: bool,
        layout: tuple[str, tuple[Any, ...]],
        source: RowSource | None = None,
    ) -> Records:
        """Restore a stored dataset from one block of all its slots; `dead` lists the emptied ones."""
        gone = SlotSet(frozenset(dead))
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
            source=source,
        )

    def apply(self, batch: Iterable[Update]) -> tuple[Records, Change]:
        """Apply a batch of updates in order: D ∘ u for every u (Definition 2.1). All are applied, or none.

        Parameters
        ----------
        batch
            The updates: `Add`, `AddMany`, `Delete`, `DeleteMany`, `DeleteSubject` or `DeletePerson`.

        Returns
        -------
        Records
            The new dataset. This one is unchanged.
        Change
            The slots that were emptied and filled.

        Raises
        ------
        UnknownRecordError
            If a deletion names an id or a subject that is not there.
        DuplicateRecordError
            If an addition uses an id that is in use.
        RecordError
            If a record is at fault in another way; the message names it.
        InputError
            If the batch is not a list of updates.
        """
        changes = _Batch(self)
        for deletes, run in groupby(as_batch(batch), key=is_deletion):
            if deletes:
                changes.delete_all(deleted_ids(run))
                continue
            for update in run:
                changes.take(update)
        removed = np.array(sorted(changes.removed), dtype=np.int64)
        block = changes.additions()
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
        """Return the same dataset with slots renumbered 0..len-1 and without the storage of deleted records."""
        slots = self.live_slots()
        features, labels, weights = self.gather(slots)
        keeps_numbers = self.blocks[0].ids is None and len(self.blocks) == 1 and len(slots) == self.num_slots
        ids = None if keeps_numbers else self.ids_of(slots)
        subjects = self.subjects_of(slots)
        block = Block(0, features, labels, ids, subjects, weights)
        rows, rest = self.rows_of(slots)
        return replace(
            self,
            source=self.source if not len(rest) else None,
            places=rows if not len(rest) else None,
            blocks=(block,),
            index=IdIndex.build(ids, len(slots)),
            subjects=SubjectIndex.build(subjects),
            num_live=len(slots),
            num_slots=len(slots),
        )

    def __getstate__(self) -> dict[str, Any]:
        """Pickle no trace of deleted records."""
        is_mapped = any(block.check is not None for block in self.blocks)
        is_plain = self.num_live == self.num_slots and not is_mapped and not self.is_elsewhere
        kept = self if is_plain else self.compacted()
        return {**{name: getattr(kept, name) for name in self.__dataclass_fields__}, "source": None, "places": None}

    def _block_of(self, slot: int) -> Block:
        return self.blocks[bisect_right([block.start for block in self.blocks], slot) - 1]

    def _segments(self, slots: NDArray[Any]) -> Iterable[tuple[Block, int, int]]:
        bounds = np.searchsorted(slots, [block.start for block in self.blocks] + [self.num_slots])
        return [(block, int(bounds[i]), int(bounds[i + 1])) for i, block in enumerate(self.blocks)]

    def check_addition(self, update: Add | AddMany) -> Block:
        """Check an addition; return it as a block with this dataset's columns and number types, not added yet."""
        keeps_values = self.layout[0] == "array" and self.blocks[0].features.dtype == np.dtype(object)
        if isinstance(update, Add):
            subjects: Any = None if update.subject is None else [update.subject]
            weight: Any = update.weight
            weights: Any = None if isinstance(weight, Real) and weight == 1 else [weight]
            table = _one_row(update.features, self.layout[1], keeps_values=keeps_values)
            labels, ids = label_column([update.label]), object_column([update.id])
        else:
            table = as_features(update.features, keeps_values=keeps_values)
            labels = label_column(update.labels)
            subjects, weights = update.subjects, update.weights
            ids = id_column(update.ids, num_rows(table), "ids")
        block = make_block(table, labels, ids, subjects, weights, start=0, classes=self.classes, outputs=self.outputs)
        block = replace(block, weights=self._own_weights(block))
        return self._conform(replace(block, features=copy_rows(block.features)))

    def _own_weights(self, block: Block) -> NDArray[np.float64] | None:
        """Weights where the dataset has them; where it has none, a record that brings one is refused."""
        if self.has_weights:
            return np.ones(len(block)) if block.weights is None else block.weights
        for row in [] if block.weights is None else np.flatnonzero(block.weights != 1)[:1]:
            record = block.id_of(block.start + int(row))
            raise RecordError(f"record {record!r} has a weight, and this dataset was made without weights", record)
        return None

    def _conform(self, block: Block) -> Block:
        """Give a block this dataset's columns and number types; an error names the first record at fault."""
        if len(block) == 0:
            return block
        first = block.id_of(block.start)
        found, expected = describe(block.features), self.layout
        if found != expected:
            message = f"record {first!r} has features of the form {_spell(found)}, expected {_spell(expected)}"
            raise RecordError(message, first)
        try:
            features = plain_form(cast_like(block.features, self.blocks[0].features))
        except (ValueError, TypeError) as error:
            raise RecordError(f"the features of record {first!r} cannot be used: {error}", first) from error
        for row in [] if self.allow_missing else missing_rows(features)[:1]:
            record = block.id_of(block.start + int(row))
            message = f"the features of record {record!r} hold NaN or infinity, and the records are made without"
            raise RecordError(f"{message} allow_missing", record)
        return replace(block, features=features)


class _Batch:
    """A batch, read update by update. `records` stays unchanged until the whole batch is found correct."""

    def __init__(self, records: Records) -> None:
        self.records = records
        self.removed: set[int] = set()
        self.pending: dict[RecordId, tuple[int, int]] = {}  # id -> (source, row), in order of addition
        self.sources: list[Block] = []
        self.arrivals: dict[RecordId | None, list[RecordId]] = {}  # by subject; some may have left again

    def take(self, update: Update) -> None:
        match update:
            case Add() | AddMany():
                self._add(self.records.check_addition(update))
            case DeleteSubject(subject=subject):
                if not self._delete_subject(require_id(subject, "a subject")):
                    raise UnknownSubjectError(f"no record belongs to the subject {quoted(subject)}", subject)
            case DeletePerson(person=person):
                person = require_id(person, "a person")
                self._delete_subject(person)
                if self._holds(person) and self._subject(person) is None:
                    self._delete(person)
            case _:
                kinds = "an Add, AddMany, Delete, DeleteMany, DeleteSubject or DeletePerson"
                raise InputError(f"an update is {kinds}, got {update!r}")

    def delete_all(self, records: list[Any]) -> None:
        """Delete many records at once, as batches may be large; go one by one to name what is wrong."""
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

    def _delete_subject(self, subject: RecordId) -> bool:
        """Delete what is there of a subject. Return whether anything was, before the batch or in it."""
        settled = [s for s in self.records.subjects.find(subject) if not self.records.index.is_gone(s)]
        slots = [slot for slot in settled if slot not in self.removed]
        came = dict.fromkeys(self.arrivals.pop(subject, ()))
        fresh = [record for record in came if record in self.pending and self._subject(record) == subject]
        self.removed.update(slots)
        for record in fresh:
            del self.pending[record]
        return bool(settled or fresh)

    def _subject(self, record: RecordId) -> RecordId | None:
        """The subject of a record that is there, or comes with the batch."""
        if record not in self.pending:
            return self.records.subject_of(self.records.slot_of(record))
        source, row = self.pending[record]
        column = self.sources[source].subjects
        return None if column is None else column[row]

    def additions(self) -> Block | None:
        """Return what is left to add as one block, in order of addition."""
        if not self.pending:
            return None
        places = np.array(list(self.pending.values()), dtype=np.int64)
        runs = np.split(places, np.flatnonzero(np.diff(places[:, 0])) + 1)
        parts = [pick_rows(self.sources[int(run[0, 0])], run[:, 1]) for run in runs]
        return join_blocks(parts, start=self.records.num_slots)


def _outputs(labels: NDArray[Any]) -> tuple[int, ...]:
    if labels.ndim not in (1, 2) or 0 in labels.shape[1:]:
        raise InputError(f"numbers to predict must be one per record, or one row of them, got shape {labels.shape}")
    return tuple(labels.shape[1:])


def _spell(layout: tuple[str, tuple[Any, ...]]) -> str:
    kind, columns = layout
    return f"{kind} of {columns}"


def _one_row(features: Any, columns: tuple[Any, ...], *, keeps_values: bool) -> Features:
    """Make a table with one row from one record's features: a row vector, a 1-row table, or a mapping of columns."""
    if isinstance(features, dict):
        import pandas as pd

        in_order = columns if features.keys() == set(columns) else features
        return pd.DataFrame([[features[name] for name in in_order]], columns=pd.Index([*in_order], tupleize_cols=False))
    if hasattr(features, "iloc") and not hasattr(features, "columns"):  # a data frame's row
        return features.to_frame().T.infer_objects()
    if hasattr(features, "shape") and len(features.shape) == 2 and features.shape[0] == 1:
        return as_features(features)
    return as_features([features], keeps_values=keeps_values)
