"""Columns on disk, one row for each slot: new rows are appended, and erased records are overwritten in place.

Rows past the committed number of slots are leftovers of an update that failed; opening cuts them off. A slab is
memory-mapped, so opening does not read it. A heap has its rows in any order, and a slab of (start, length) beside it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expunge.core.blocks import Block
from expunge.core.errors import FormatError
from expunge.core.files import write_all
from expunge.folder.store.columns import Column, Form
from expunge.folder.store.files import flush_files
from expunge.folder.store.steps import report_step
from expunge.folder.store.threads import for_each

_CHUNK = 1 << 26


class RecordFolder:
    """The columns of one epoch. A new epoch begins when all records are written anew."""

    def __init__(self, path: Path, form: Form) -> None:
        self.path = path
        self.form = form

    @classmethod
    def write(cls, path: Path, form: Form, blocks: Sequence[Block], *, flush: bool = True) -> RecordFolder:
        """Write all records to a new folder. They are on the disk after `flush`."""
        path.mkdir(parents=True, mode=0o700)
        folder = cls(path, form)
        for column in form.columns:
            for file in folder._files(column):
                file.touch(mode=0o600)
        for block in blocks:
            folder.append(block, flush=False)
        if flush:
            folder.flush()
        return folder

    def append(self, block: Block, *, flush: bool = True) -> None:
        """Append rows for the next slots. They count when the caller commits the new number of slots."""
        parts = self.form.split(block)
        for column in self.form.columns:
            if column.dtype is None:
                self._append_heap(column, parts[column.name])
            else:
                values = np.ascontiguousarray(parts[column.name], dtype=column.dtype)
                _append(self._file(column, "slab"), values)
        if flush:
            self.flush()

    def flush(self) -> None:
        """Flush all columns to the disk."""
        flush_files([file for column in self.form.columns for file in self._files(column)] + [self.path])

    def _append_heap(self, column: Column, rows: list[bytes]) -> None:
        heap = self._file(column, "heap")
        lengths = np.array([len(row) for row in rows], dtype="<i8")
        starts = heap.stat().st_size + np.concatenate([[0], np.cumsum(lengths)[:-1]]) if len(rows) else lengths
        _append(heap, b"".join(rows))
        _append(self._file(column, "slab"), np.column_stack([starts, lengths]).astype("<i8"))

    def cut(self, num_slots: int) -> None:
        """Cut off the rows past the committed slots."""
        for column in self.form.columns:
            slab = self._file(column, "slab")
            size = slab.stat().st_size
            expected = num_slots * column.width
            if size < expected:
                raise FormatError(f"{slab.name} is {size} bytes long, expected {expected}")
            if size > expected:
                os.truncate(slab, expected)
            if column.dtype is None:
                end = int(self._spans(column, num_slots).sum(axis=1).max(initial=0))
                if self._file(column, "heap").stat().st_size > end:
                    os.truncate(self._file(column, "heap"), end)

    def read(self, num_slots: int, dead: Sequence[int] = ()) -> Block:
        """Read all slots as one block. Slabs of features stay on the disk until they are used.

        Texts of dead slots are not read: they may be half overwritten.
        """
        parts: dict[str, Any] = {}
        for column in self.form.columns:
            if column.dtype is None:
                parts[column.name] = self._read_heap(column, num_slots, dead)
            else:
                in_memory = column not in self.form.features or not self.form.is_mapped
                values = self._map(column, num_slots)
                parts[column.name] = np.array(values) if in_memory else values
        return self.form.join(parts)

    def erase(self, slots: NDArray[np.int64]) -> None:
        """Overwrite these slots with zeros in every column, and flush them."""
        if len(slots) == 0:
            return
        slots = np.sort(slots)
        for_each(lambda column: self._erase_column(column, slots), list(self.form.columns))

    def _erase_column(self, column: Column, slots: NDArray[np.int64]) -> None:
        descriptor = os.open(self._file(column, "slab"), os.O_RDWR)
        try:
            if column.dtype is None:
                self._erase_rows(column, descriptor, slots)
            for first, count in _runs(slots):
                write_all(descriptor, bytes(count * column.width), first * column.width)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _erase_rows(self, column: Column, slab: int, slots: NDArray[np.int64]) -> None:
        """Overwrite these rows in the heap. This comes first: the slab says where they are."""
        heap = os.open(self._file(column, "heap"), os.O_RDWR)
        try:
            for first, count in _runs(slots):
                spans = np.frombuffer(os.pread(slab, count * 16, first * 16), dtype="<i8").reshape(-1, 2)
                for start, length in spans.tolist():
                    write_all(heap, bytes(length), start)
            os.fsync(heap)
        finally:
            os.close(heap)
        report_step("erase.heap")

    def _read_heap(self, column: Column, num_slots: int, dead: Sequence[int]) -> list[bytes]:
        raw = self._file(column, "heap").read_bytes()
        spans = self._spans(column, num_slots)
        spans[np.array(dead, dtype=np.int64)] = 0
        if len(spans) and int(spans.sum(axis=1).max()) > len(raw):
            raise FormatError(f"{self._file(column, 'heap').name} is shorter than its rows")
        return [raw[low:high] for low, high in zip(spans[:, 0].tolist(), spans.sum(axis=1).tolist(), strict=True)]

    def _spans(self, column: Column, num_slots: int) -> NDArray[np.int64]:
        raw = np.fromfile(self._file(column, "slab"), dtype="<i8", count=2 * num_slots)
        return raw.reshape(-1, 2)

    def _map(self, column: Column, num_slots: int) -> NDArray[Any]:
        shape = (num_slots, *column.shape)
        if num_slots == 0 or column.width == 0:
            return np.zeros(shape, dtype=column.dtype)
        mapped = np.memmap(self._file(column, "slab"), dtype=np.dtype(column.dtype), mode="r", shape=shape)
        return mapped.view(np.ndarray)

    def _files(self, column: Column) -> list[Path]:
        return [self._file(column, kind) for kind in (("slab",) if column.dtype else ("slab", "heap"))]

    def _file(self, column: Column, kind: str) -> Path:
        return self.path / f"{column.name}.{kind}"


def _append(path: Path, data: Any) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        flat: Any = data.reshape(-1).view(np.uint8) if isinstance(data, np.ndarray) else data
        view = memoryview(flat)
        for low in range(0, len(view), _CHUNK):
            write_all(descriptor, view[low : low + _CHUNK])
    finally:
        os.close(descriptor)


def _runs(slots: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Group consecutive slots, as (first, how many)."""
    if len(slots) == 0:
        return []
    groups = np.split(slots, np.flatnonzero(np.diff(slots) != 1) + 1)
    return [(int(group[0]), len(group)) for group in groups]
