"""Columns of records: the storage behind `Records`, in runs of consecutive slots."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from expunge.core.checks import MOST_BITS, as_number, canonical, quoted
from expunge.core.errors import InputError, RecordError
from expunge.core.features import Features, as_array, codes_of, concatenate, num_rows, take
from expunge.core.index import RecordId

RowCheck = Callable[[NDArray[np.int64], Features], None]


class FeatureSource(Protocol):
    """Features that are kept elsewhere, and read when they are needed: in a lake, or in files that are being read."""

    def take(self, rows: NDArray[np.int64]) -> Features:
        """The features of some rows, in their order, checked."""

    def runs(self) -> Iterator[tuple[NDArray[np.int64], Features]]:
        """All rows with their features, some at a time, each row once and in any order."""


@dataclass(frozen=True, slots=True)
class Block:
    """A run of consecutive slots: columns of equal length. With `ids` None the id is the slot's number.

    `labels` holds class codes (int32), or the numbers to predict (float64): one a record, or a row of them.

    Features that stay on a disk have a `check`. It is called with the rows that were gathered and what was found there,
    and raises an error if that is not what was written. Features that are kept `elsewhere` are read from
    there, and `features` then has their types, and no row.
    """

    start: int
    features: Features
    labels: NDArray[Any]
    ids: NDArray[Any] | None
    subjects: NDArray[Any] | None
    weights: NDArray[np.float64] | None
    check: RowCheck | None = None
    elsewhere: FeatureSource | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: NDArray[np.int64]) -> Features:
        """The features of some rows, checked."""
        if self.elsewhere is not None:
            return self.elsewhere.take(rows)
        found = take(self.features, rows)
        if self.check is not None:
            self.check(rows, found)
        return found

    def runs(self, size: int) -> Iterator[tuple[NDArray[np.int64], Features]]:
        """All rows with their features, about `size` rows at a time, each row once."""
        if self.elsewhere is not None:
            yield from self.elsewhere.runs()
            return
        for first in range(0, len(self), size):
            rows = np.arange(first, min(first + size, len(self)), dtype=np.int64)
            yield rows, self.take(rows)

    def id_of(self, slot: int) -> RecordId:
        """Return the id of the record in a slot of this block."""
        if self.ids is None:
            return slot
        value: Any = self.ids[slot - self.start]
        record: RecordId = value.item() if isinstance(value, np.generic) else value
        return record


def require_id(value: Any, what: str) -> RecordId:
    """Check an id: an int or a str. A value that only equals one is refused (True is not 1)."""
    plain = value.item() if isinstance(value, np.integer | np.str_) else value
    if isinstance(plain, bool) or not isinstance(plain, int | str):
        raise RecordError(f"{what} must be an int or a str, got {quoted(value)}", quoted(value))
    if isinstance(plain, int) and plain.bit_length() > MOST_BITS:
        raise RecordError(f"{what} is at most a number of {MOST_BITS:,} bits, got {quoted(plain)}", quoted(plain))
    record: RecordId = canonical(plain)
    return record


def object_column(values: Sequence[Any] | NDArray[Any]) -> NDArray[Any]:
    """Make a column of plain Python values."""
    array = np.empty(len(values), dtype=object)
    array[:] = [canonical(value.item() if isinstance(value, np.generic) else value) for value in values]
    return array


def id_column(values: Sequence[Any] | NDArray[Any], length: int, name: str) -> NDArray[Any]:
    """Make a column of ids or subjects: int64 if all are ints, Python objects otherwise."""
    array = as_array(values, name)
    if array.ndim != 1 or len(array) != length:
        raise InputError(f"{name} must be one per record ({length}), got shape {array.shape}")
    plain = not any(isinstance(value, bool | np.bool_) for value in values) if array.dtype.kind in "iu" else False
    if plain and (array.dtype.kind == "i" or (array < 2**63).all()):
        return array.astype(np.int64)
    return object_column(values)


def label_column(labels: Any) -> NDArray[Any]:
    """Make a column of labels; texts and numbers do not mix."""
    array = as_array(labels, "labels")
    if array.dtype.kind == "U" and not isinstance(labels, np.ndarray) and array.ndim == 1:
        for row, label in enumerate(labels):
            if not isinstance(label, str):
                raise InputError(
                    f"labels are all texts or all numbers, got {label!r:.80} in row {row + 1:,} among texts"
                )
    return array


def class_list(classes: Any) -> NDArray[Any]:
    """All labels that may occur, each once and in order: all texts, or all numbers."""
    found = label_column(classes if isinstance(classes, np.ndarray) else listed(classes, "classes"))
    if found.ndim != 1 or not len(found):
        raise InputError(f"classes must be a list of labels, got shape {found.shape}")
    if found.dtype == object:
        is_text = isinstance(found[0], str)
        for label in found.tolist():
            if isinstance(label, str) != is_text or not isinstance(label, str | Real):
                raise InputError(f"labels are all texts or all numbers, got {label!r:.80}")
    return np.unique(found)


def listed(names: Any, what: str) -> list[Any]:
    """Return names as a list of plain values. A text is refused: its letters would name other records."""
    is_column = not isinstance(names, np.ndarray) or names.ndim == 1
    if isinstance(names, Iterable) and is_column and not isinstance(names, str | bytes):
        return names.tolist() if isinstance(names, np.ndarray) else list(names)
    raise InputError(f"{what} must be a list, also of a single one, got {names!r:.80}")


def _encode(labels: NDArray[Any], classes: NDArray[Any], id_of: Any) -> NDArray[np.int32]:
    if len(classes) and (labels.dtype.kind != classes.dtype.kind or labels.dtype == object):
        _require_kind(labels, isinstance(classes[0], str), id_of)
    codes = codes_of(labels, classes).astype(np.int32)
    for row in np.flatnonzero(classes[codes] != labels)[:1]:
        raise _unknown_label(labels, int(row), id_of)
    return codes


def _require_kind(labels: NDArray[Any], is_text: bool, id_of: Any) -> None:
    """Refuse a label that cannot be compared with the classes: they are all texts, or all numbers."""
    if labels.dtype.kind in ("U" if is_text else "fiub"):
        return
    for row, label in enumerate(labels.tolist()):
        if not isinstance(label, str if is_text else Real):
            raise _unknown_label(labels, row, id_of)


def _unknown_label(labels: NDArray[Any], row: int, id_of: Any) -> RecordError:
    record, label = id_of(row), labels[row].item() if isinstance(labels[row], np.generic) else labels[row]
    return RecordError(f"record {record!r} has the label {quoted(label)}, which is not a known class", record)


def _numbers(labels: NDArray[Any], id_of: Any) -> NDArray[np.float64]:
    """The numbers to predict, all finite."""
    if labels.dtype.kind not in "biuf":
        plain = [as_number(cell) for cell in labels.ravel().tolist()]
        numbers = np.array(plain, dtype=np.float64).reshape(labels.shape)
    else:
        numbers = np.array(labels, dtype=np.float64, order="C")
    for row in np.argwhere(~np.isfinite(numbers))[:1, 0]:
        record, found = id_of(int(row)), labels[row : row + 1].tolist()[0]
        what = f"record {record!r} has the label {quoted(found)}, and a regressor learns finite numbers"
        raise RecordError(what, record)
    return numbers


def make_block(
    features: Features,
    labels: NDArray[Any],
    ids: NDArray[Any] | None,
    subjects: Any,
    weights: Any,
    *,
    start: int,
    classes: NDArray[Any],
    outputs: tuple[int, ...] | None = None,
) -> Block:
    """Check columns and make a block of them; an error names the first record at fault.

    Labels are class codes. With `outputs` they are numbers, of that shape in every record.
    """
    length = num_rows(features)
    if labels.shape != (length, *(outputs or ())):
        each = f"{outputs[0]} numbers" if outputs else "one"
        raise InputError(f"labels must be {each} per record ({length}), got shape {labels.shape}")
    for record in [] if ids is None or ids.dtype.kind == "i" else ids.tolist():
        require_id(record, "a record's id")
    id_of = (lambda row: row) if ids is None else (lambda row: ids.tolist()[row])
    coded: NDArray[Any] = _encode(labels, classes, id_of) if outputs is None else _numbers(labels, id_of)
    subject_column = None if subjects is None else object_column(id_column(subjects, length, "subjects"))
    for subject in [] if subject_column is None else subject_column.tolist():
        if subject is not None:
            require_id(subject, "a subject")
    weight_column = None
    if weights is not None:
        weight_column = _weight_column(weights, length, id_of)
    return Block(start, features, coded, ids, subject_column, weight_column)


def _weight_column(weights: Any, length: int, id_of: Any) -> NDArray[np.float64]:
    given = as_array(weights, "weights")
    if given.shape != (length,):
        raise InputError(f"weights must be one per record ({length}), got shape {given.shape}")
    if given.dtype.kind in "fiub":
        found = given.astype(np.float64)
    else:
        found = np.array([as_number(each) for each in given.tolist()])
    for row in np.flatnonzero(~(np.isfinite(found) & (found >= 0)))[:1]:
        record, weight = id_of(int(row)), given[row : row + 1].tolist()[0]
        raise RecordError(f"record {record!r} has the weight {quoted(weight)}", record)
    return found


def pick_rows(block: Block, rows: NDArray[np.int64]) -> Block:
    """Make a block of some rows of a block."""
    if len(rows) == len(block):
        return block
    ids, subjects, weights = (
        None if each is None else each[rows] for each in (block.ids, block.subjects, block.weights)
    )
    return Block(0, block.take(rows), block.labels[rows], ids, subjects, weights)


def arranged(block: Block, order: NDArray[np.int64]) -> Block:
    """The rows of a block in another order, under ids of their own."""
    assert block.ids is not None
    subjects, weights = (None if each is None else each[order] for each in (block.subjects, block.weights))
    return Block(0, block.take(order), block.labels[order], block.ids[order], subjects, weights)


def join_blocks(parts: Sequence[Block], *, start: int) -> Block:
    """Join blocks into one; a column that only some blocks have is filled in for the others."""

    def column(name: str, fill: Any) -> Any:
        columns = [getattr(part, name) for part in parts]
        if all(values is None for values in columns):
            return None
        return np.concatenate([fill(p) if c is None else c for p, c in zip(parts, columns, strict=True)])

    return Block(
        start,
        concatenate([part.features for part in parts]),
        np.concatenate([part.labels for part in parts]),
        column("ids", lambda part: np.arange(part.start, part.start + len(part))),
        column("subjects", lambda part: object_column([None] * len(part))),
        column("weights", lambda part: np.ones(len(part))),
    )


def merge_blocks(blocks: tuple[Block, ...]) -> tuple[Block, ...]:
    """Merge the newest blocks while the last is at least half as long as the one before.

    This keeps O(log n) blocks and copies each row O(log n) times. The first block stays as it is: it holds the bulk of
    the data, and all later datasets share it.
    """
    while len(blocks) > 2 and 2 * len(blocks[-1]) >= len(blocks[-2]):
        blocks = (*blocks[:-2], join_blocks(blocks[-2:], start=blocks[-2].start))
    return blocks
