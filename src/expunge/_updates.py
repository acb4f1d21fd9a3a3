"""What may happen to a dataset: records come and go (Definition 2.1 of the paper). `expunge.records` re-exports it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from expunge._index import RecordId
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
        plain = self.ids.tolist() if isinstance(self.ids, np.ndarray) else list(self.ids)
        object.__setattr__(self, "ids", plain)


@dataclass(frozen=True, slots=True)
class DeleteSubject:
    """Delete every record of one person."""

    subject: RecordId


Update = Add | AddMany | Delete | DeleteMany | DeleteSubject


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
