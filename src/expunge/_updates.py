"""What may happen to a dataset: records come and go (Definition 2.1 of the paper). `expunge.records` re-exports it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from expunge._index import RecordId
from expunge.errors import InputError
from expunge.features import Features


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
