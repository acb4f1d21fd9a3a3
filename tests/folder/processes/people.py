"""Made-up people, each a function of a number and a version: the numbers give the records, to the bit."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
import scipy.sparse
from scanning import RUN

WIDTH = 4
NUM_PEOPLE = 45  # at first
_STRIDE = 0x9E3779B97F4A7C15 % 2**61 | 1


@dataclass(frozen=True)
class Person:
    """One record. A correction has the same number and the next version."""

    number: int
    version: int = 0

    @cached_property
    def features(self) -> np.ndarray:
        row = np.random.default_rng([self.number, self.version]).normal(size=WIDTH)
        row[0] += 3 if self.label else -3
        return row

    @property
    def label(self) -> int:
        return (self.number + self.version) % 2

    @property
    def subject(self) -> str:
        """Three people a household."""
        return f"household-{_digest('subject', self.number // 3)}"

    def name(self, ids: str) -> int | str:
        """An id of which every byte is distinctive."""
        if ids == "texts" or (ids == "mixed" and self.number >= NUM_PEOPLE):
            return f"person-{_digest('id', self.number)}"
        return (self.number + 1) * _STRIDE % 2**61 + 2**61


@cache
def _digest(what: str, number: int) -> str:
    return hashlib.sha256(f"{what} {number}".encode()).hexdigest()[:20]


def table_of(people: Sequence[Person], kind: str) -> Any:
    """Their features as an array, as an array of objects, or as a sparse matrix."""
    rows = np.array([person.features for person in people]).reshape(-1, WIDTH)
    if kind == "sparse":
        return scipy.sparse.csr_matrix(rows)
    return rows.astype(object) if kind == "objects" else rows


def rows_of(table: Any) -> np.ndarray:
    """A table of any kind as numbers again."""
    dense = table.toarray() if scipy.sparse.issparse(table) else np.asarray(table)
    return np.ascontiguousarray(dense, dtype=np.float64)


def patterns_of(person: Person, kind: str) -> list[bytes]:
    """What the record's features look like in a file, also in a model that keeps them."""
    raw = person.features.tobytes()
    found = [raw[start : start + RUN] for start in range(0, len(raw) - RUN + 1, 8)]
    return found + [repr(float(value)).encode() for value in person.features] if kind == "objects" else found


def name_patterns(name: int | str) -> list[bytes]:
    """What an id or a subject looks like in a file."""
    return [name.encode()] if isinstance(name, str) else [name.to_bytes(8, "little"), str(name).encode()]
