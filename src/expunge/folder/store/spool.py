"""Rows that come in any order and are taken out in the order of their slots, with little memory.

What fits is kept in memory. The rest goes to one file, in runs that are each in order. It lies with the records that
are being written, is overwritten before it is removed, and is swept with them after a crash.
"""

from __future__ import annotations

import os
from itertools import pairwise
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from expunge.core.files import write_all
from expunge.core.place import Place
from expunge.folder.store.columns import Column
from expunge.folder.store.parts import Columns, join, pick

NAME: Final = "spool"
_IN_MEMORY: Final = 1 << 28  # bytes


class Spool:
    """Rows of some columns, each with its slot. The caller must always close it.

    Parameters
    ----------
    folder
        The folder that its file lies in, if it needs one.
    columns
        The columns.
    in_memory
        How many bytes of rows may stay in memory; 256 MiB if it is None.
    """

    def __init__(self, folder: Place, columns: tuple[Column, ...], *, in_memory: int | None = None) -> None:
        self._place, self._columns = folder / NAME, columns
        self._left = _IN_MEMORY if in_memory is None else in_memory
        self._runs: list[_Kept | _Written] = []
        self._file = -1

    def add(self, slots: NDArray[np.int64], rows: Columns) -> None:
        """Take rows, in any order."""
        order = np.argsort(slots)
        slots, rows = slots[order], pick(rows, order)
        size = sum(_size(values) for values in rows.values())
        if size <= self._left:
            self._left -= size
            self._runs.append(_Kept(slots, rows))
            return
        if self._file < 0:
            self._file = self._place.open(os.O_RDWR | os.O_CREAT | os.O_EXCL)
        self._runs.append(_Written(self._file, self._columns, slots, rows))

    def read(self, first: int, last: int) -> tuple[NDArray[np.int64], Columns]:
        """The rows of slots from `first` up to, but without, `last`, in order. Several threads may read."""
        found = [run.read(*np.searchsorted(run.slots, (first, last)).tolist()) for run in self._runs]
        slots = np.concatenate([each for each, _ in found])
        order = np.argsort(slots)
        return slots[order], pick(join([rows for _, rows in found]), order)

    def close(self) -> None:
        """Overwrite and remove the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
            self._place.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class _Kept:
    """A run in memory."""

    def __init__(self, slots: NDArray[np.int64], rows: Columns) -> None:
        self.slots, self._rows = slots, rows

    def read(self, low: int, high: int) -> tuple[NDArray[np.int64], Columns]:
        return self.slots[low:high], {name: values[low:high] for name, values in self._rows.items()}


class _Written:
    """A run in a file: its columns one after another, and where each of them begins."""

    def __init__(self, file: int, columns: tuple[Column, ...], slots: NDArray[np.int64], rows: Columns) -> None:
        self.slots, self._file, self._columns = slots.astype(np.uint32), file, columns
        self._starts: dict[str, int] = {}
        self._ends: dict[str, NDArray[np.int64]] = {}
        for column in columns:
            self._starts[column.name] = os.lseek(file, 0, os.SEEK_END)
            values = rows[column.name]
            if column.dtype is None:
                self._ends[column.name] = np.cumsum([0, *map(len, values)])
                write_all(file, b"".join(values))
            else:
                write_all(file, np.ascontiguousarray(values).reshape(-1).view(np.uint8))

    def read(self, low: int, high: int) -> tuple[NDArray[np.int64], Columns]:
        return self.slots[low:high].astype(np.int64), {
            each.name: self._column(each, low, high) for each in self._columns
        }

    def _column(self, column: Column, low: int, high: int) -> Any:
        start = self._starts[column.name]
        if column.dtype is None:
            ends = self._ends[column.name][low : high + 1].tolist()
            raw = os.pread(self._file, ends[-1] - ends[0], start + ends[0])
            return [raw[a - ends[0] : b - ends[0]] for a, b in pairwise(ends)]
        raw = os.pread(self._file, (high - low) * column.width, start + low * column.width)
        return np.frombuffer(raw, dtype=column.dtype).reshape(high - low, *column.shape)


def _size(values: Any) -> int:
    if isinstance(values, np.ndarray):
        return int(values.nbytes)
    return sum(map(len, values)) + 64 * len(values)  # about what Python adds to each
