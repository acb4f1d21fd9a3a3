"""Columns on disk, one row for each slot: new rows are appended, and erased records are overwritten in place.

Rows past the committed number of slots are leftovers of an update that failed; opening cuts them off. A slab is
memory-mapped, so opening does not read it. A heap has its rows in the order of the slots, and a slab of (start, length)
beside it.

Nothing is believed unchecked: two checksums a record (`checksums`) lie in a column of their own. What opening reads is
checked then, and features that stay on the disk are checked whenever they are gathered. The rows of erased records are
zeros in every column. So no checksum has to be computed again after a deletion, and none remembers it.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expunge.core.blocks import Block
from expunge.core.errors import FormatError, StoreError
from expunge.core.features import Features
from expunge.core.files import flush_data, write_all
from expunge.core.place import Place
from expunge.folder.store.checksums import FEATURES, NAMES, Sums, heap_sums, place_sums, row_sums, total
from expunge.folder.store.columns import Column, Form
from expunge.folder.store.files import explain_errors, flush_files
from expunge.folder.store.keyfile import TAG, KeyFile, seal_rows, unseal_rows
from expunge.folder.store.steps import report_step
from expunge.folder.store.threads import for_each

_CHUNK = 1 << 26
_PIECE = 1 << 16  # bytes: rows within so many are erased by one write
_SUMS = Column("checksums", "<u8", (2,))
_SEALS = Column("seals", "<u8", (4,))  # of encrypted records: the cell of the key, the tag, a checksum of these
_SPAN = 16  # bytes of a heap row's (start, length)
_FEW_CELLS = 1 << 12  # so many are erased one column after another
_ROWS_AT_ONCE, _FEW_ROWS = 1 << 14, 1 << 4
#: The names of the files in an epoch's folder.
RECORD_FILE = re.compile(r"(features|feature-[0-9]+|labels|ids|subjects|weights|seals|checksums)\.(slab|heap)|spool")
_NAMED = 8  # files that an error names one by one
_Spans = NDArray[np.int64]


def _pass_by(_: int) -> None:
    pass


class RecordFolder:
    """The columns of one epoch. A new epoch begins when all records are written anew.

    Without `has_features` these are kept elsewhere (`lake`), and only their checksums lie here.
    """

    def __init__(
        self, path: Path | Place, form: Form, keys: KeyFile | None = None, *, has_features: bool = True
    ) -> None:
        self.place = Place.hold(path)
        self.form = form
        self.keys = keys
        self.has_features = has_features
        self._summed = (*(form.columns if has_features else form.names), *([] if keys is None else [_SEALS]))
        self._columns = (*self._summed, _SUMS)

    @classmethod
    def new(cls, place: Place, form: Form, keys: KeyFile | None = None, *, has_features: bool = True) -> RecordFolder:
        """Make a new folder without records."""
        place.mkdir()
        folder = cls(place, form, keys, has_features=has_features)
        for name in folder.file_names:
            (place / name).write_new(b"", flush=False)
        return folder

    @classmethod
    def write(
        cls, place: Place, form: Form, blocks: Iterable[Block], keys: KeyFile | None = None, *, flush: bool = True
    ) -> RecordFolder:
        """Write all records to a new folder. They are on the disk after `flush`."""
        folder = cls.new(place, form, keys)
        for block in blocks:
            folder.append(block, flush=False)
        if flush:
            folder.flush()
        return folder

    @property
    def file_names(self) -> list[str]:
        """The name of every file."""
        return [name for column in self._columns for name in _names(column)]

    @property
    def path(self) -> Path:
        """The folder, for messages."""
        return self.place.path

    def append(self, block: Block, *, flush: bool = True, elsewhere: NDArray[np.uint64] | None = None) -> int:
        """Append rows for the next slots, and return their total. They count when the caller commits it.

        `elsewhere` are the checksums (`feature_sums`) of features that are kept elsewhere.
        """
        first = self._file(_SUMS, "slab").stat().st_size // _SUMS.width
        slots = np.arange(first, first + len(block), dtype=np.int64)
        sums, parts = _fresh_sums(slots), self.form.split_names(block)
        if elsewhere is None:
            parts |= self.form.split_features(block.features)
        else:
            sums[:, FEATURES] = elsewhere
        for column in self.form.names:
            if column.dtype is not None:
                parts[column.name] = np.ascontiguousarray(parts[column.name], dtype=column.dtype)
        if self.keys is not None:
            self._seal(parts, slots, self.keys)
        for column in self._summed:
            if column.dtype is None:
                spans = self._append_heap(column, parts[column.name])
                sums[:, self._part(column)] += heap_sums(column.name, parts[column.name], spans)
            else:
                values = parts[column.name]
                _append(self._file(column, "slab"), values)
                sums[:, self._part(column)] += row_sums(column.name, values)
        _append(self._file(_SUMS, "slab"), sums.astype("<u8"))
        if flush:
            self.flush()
        return total(sums)

    def flush(self) -> None:
        """Flush all columns to the disk."""
        flush_files([*(self.place / name for name in self.file_names), self.place])

    def _append_heap(self, column: Column, rows: list[bytes]) -> _Spans:
        heap = self._file(column, "heap")
        lengths = np.array([len(row) for row in rows], dtype="<i8")
        starts = heap.stat().st_size + np.concatenate([[0], np.cumsum(lengths)[:-1]]) if len(rows) else lengths
        _append(heap, b"".join(rows))
        spans = np.column_stack([starts, lengths]).astype("<i8")
        _append(self._file(column, "slab"), spans)
        return spans

    def cut(self, num_slots: int) -> None:
        """Cut off the rows past the committed slots. Of a heap nothing is cut by the word of a damaged row."""
        for column in self._columns:
            slab = self._file(column, "slab")
            size = slab.stat().st_size
            expected = num_slots * column.width
            if size < expected:
                raise FormatError(f"{slab.name} is {size} bytes long, expected {expected}")
            if size > expected:
                slab.truncate(expected)
        heaps = [column for column in self._columns if column.dtype is None]
        last = self._last_record(num_slots) if heaps else None
        for column in heaps:
            heap = self._file(column, "heap")
            end = 0 if last is None else int(self._spans(column, last, last + 1).sum())
            if heap.stat().st_size > end:
                if last is not None:
                    self._require_sound(np.array([last]))
                heap.truncate(end)

    def _last_record(self, num_slots: int) -> int | None:
        """The last row that is not erased."""
        sums = self._map(_SUMS, num_slots)
        for high in range(num_slots, 0, -_ROWS_AT_ONCE):
            low = max(0, high - _ROWS_AT_ONCE)
            found = np.flatnonzero(sums[low:high].any(axis=1))
            if len(found):
                return low + int(found[-1])
        return None

    def read(self, num_slots: int, dead: Sequence[int] = (), erased: Sequence[int] = ()) -> Block:
        """Read all slots as one block, and check what is read. Slabs of features stay on the disk until they are used.

        Texts of dead slots are not read: they may be half overwritten. Dead slots that are `erased` must be zeros.

        Raises
        ------
        FormatError
            If a record is not what was written, or an erased one is there again.
        """
        parts: dict[str, Any] = {}
        sums = _fresh_sums(np.arange(num_slots, dtype=np.int64))
        for column in self._summed:
            if column.dtype is None:
                spans = self._spans(column, 0, num_slots)
                self._require_zeros(column, spans, erased)
                spans[np.array(dead, dtype=np.int64)] = 0
                parts[column.name] = self._read_heap(column, spans)
                sums[:, self._part(column)] += heap_sums(column.name, parts[column.name], spans)
            elif self._stays_on_disk(column):
                parts[column.name] = self._map(column, num_slots)
            else:
                parts[column.name] = values = np.array(self._map(column, num_slots))
                self._require_zeros(column, values, erased)
                sums[:, self._part(column)] += row_sums(column.name, values)
        stored = self._map(_SUMS, num_slots)
        self._require_zeros(_SUMS, stored, erased)
        is_mapped = self.form.is_mapped and self.keys is None and self.has_features
        for part in (NAMES,) if is_mapped or not self.has_features else (NAMES, FEATURES):
            is_wrong = sums[:, part] != stored[:, part]
            is_wrong[np.array(dead, dtype=np.int64)] = False
            if is_wrong.any():
                raise self._damaged(part, int(is_wrong.argmax()))
        if self.keys is not None:
            self._unseal(parts, np.setdiff1d(np.arange(num_slots), np.array(dead, dtype=np.int64)), self.keys)
        if not self.has_features:
            none = self.form.empty().features
            parts |= self.form.split_features(none)
        block = self.form.join(parts)
        return replace(block, check=FeatureCheck(self, stored)) if is_mapped else block

    def gather(self, slots: NDArray[np.int64]) -> Block:
        """Read the records in some slots, ascending, as a block of these alone, and check them. No other row is read.

        Raises
        ------
        FormatError
            If a record is not what was written.
        StoreError
            If one was erased.
        """
        count = int(slots[-1]) + 1 if len(slots) else 0
        for line in [line for column in self._columns for line in self._too_short(column, count)]:
            raise FormatError(line)
        parts: dict[str, Any] = {}
        sums = _fresh_sums(slots)
        for column in self._summed:
            if column.dtype is None:
                spans = self._map(replace(column, dtype="<i8", shape=(2,)), count)[slots]
                parts[column.name] = self._some_rows(column, spans)
                sums[:, self._part(column)] += heap_sums(column.name, parts[column.name], spans)
            else:
                parts[column.name] = values = np.array(self._map(column, count)[slots])
                sums[:, self._part(column)] += row_sums(column.name, values)
        stored = self._map(_SUMS, count)[slots]
        for row, part in np.argwhere(sums != stored)[:1].tolist():
            if not stored[row].any():
                raise StoreError(f"{self.path}: the record in row {slots[row]:,} was erased while it was read")
            raise self._damaged(part, int(slots[row]))
        if self.keys is not None:
            self._unseal(parts, np.arange(len(slots)), self.keys, slots)
        return self.form.join(parts)

    def _seal(self, parts: dict[str, Any], slots: NDArray[np.int64], keys: KeyFile) -> None:
        """Encrypt rows in place, each under a new key, and add the column of their seals."""
        cells = keys.add(len(slots))
        fixed, heaps, width = self._layout()
        plain = _side_by_side([parts[column.name] for column in fixed], len(slots))
        rows = [raw.tobytes() for raw in plain]
        if heaps:
            rows = [b"".join(row) for row in zip(rows, *(parts[column.name] for column in heaps), strict=True)]
        sealed = seal_rows(keys.keys(cells), rows)
        whole = np.frombuffer(b"".join([row[:width] for row in sealed]), dtype=np.uint8).reshape(len(slots), width)
        self._spread(parts, whole)
        ends = [width] * len(slots)
        for column in heaps:
            starts, ends = ends, [end + len(row) for end, row in zip(ends, parts[column.name], strict=True)]
            parts[column.name] = [row[low:high] for row, low, high in zip(sealed, starts, ends, strict=True)]
        tags = np.frombuffer(b"".join([row[-TAG:] for row in sealed]), dtype="<u8").reshape(-1, 2)
        known = np.column_stack([cells.astype("<u8"), tags])
        parts[_SEALS.name] = np.column_stack([known, row_sums("seal", known) + place_sums(NAMES, slots)]).astype("<u8")

    def _unseal(
        self, parts: dict[str, Any], live: NDArray[np.int64], keys: KeyFile, slots_of: NDArray[np.int64] | None = None
    ) -> None:
        """Decrypt the rows of live records in place. All other rows become empty.

        `slots_of` are the slots of these rows, where `parts` does not hold all slots.
        """
        fixed, heaps, width = self._layout()
        cells, tags = self._seals_of(live if slots_of is None else slots_of)
        whole = _side_by_side([parts[column.name] for column in fixed], len(parts[_SEALS.name]))
        texts = {column.name: [b""] * len(whole) for column in heaps}
        dead = np.ones(len(whole), dtype=np.bool_)
        dead[live] = False
        whole[dead] = 0
        for low in range(0, len(live), _ROWS_AT_ONCE):
            slots = live[low : low + _ROWS_AT_ONCE].tolist()
            rows = [whole[slot].tobytes() for slot in slots]
            own = tags[low : low + len(slots)].tobytes()
            held = [[parts[column.name][slot] for column in heaps] for slot in slots]
            sealed = [
                b"".join([row, *texts_of, own[TAG * place : TAG * (place + 1)]])
                for place, (row, texts_of) in enumerate(zip(rows, held, strict=True))
            ]
            opened = unseal_rows(keys.keys(cells[low : low + len(slots)]), sealed)
            for slot, row, texts_of in zip(slots, opened, held, strict=True):
                if row is None:
                    raise FormatError(
                        f"{self.path}: the record in row {slot:,} was not encrypted with its key in {keys.place}. Put "
                        "the file back from a copy; nothing was changed"
                    )
                at = width
                for column, text in zip(heaps, texts_of, strict=True):
                    texts[column.name][slot] = row[at : at + len(text)]
                    at += len(text)
            known = [row[:width] for row in opened if row is not None]
            whole[slots] = np.frombuffer(b"".join(known), dtype=np.uint8).reshape(len(slots), width)
        self._spread(parts, whole)
        parts.update(texts)

    def cells(self, live: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where the keys of these records lie."""
        return self._seals_of(live)[0]

    def _seals_of(self, live: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        if not len(live):
            return np.empty(0, dtype=np.int64), np.empty((0, 2), dtype="<u8")
        found = np.array(self._map(_SEALS, int(live[-1]) + 1)[live])
        is_wrong = row_sums("seal", np.ascontiguousarray(found[:, :3])) + place_sums(NAMES, live) != found[:, 3]
        if is_wrong.any():
            raise self._damaged(NAMES, int(live[is_wrong.argmax()]))
        return found[:, 0].astype(np.int64), np.ascontiguousarray(found[:, 1:3])

    def _layout(self) -> tuple[list[Column], list[Column], int]:
        """The columns of slabs and of heaps, in the order in which a row is encrypted; and the bytes of the former."""
        fixed = [column for column in self.form.columns if column.dtype is not None]
        heaps = [column for column in self.form.columns if column.dtype is None]
        return fixed, heaps, sum(column.width for column in fixed)

    def _spread(self, parts: dict[str, Any], whole: NDArray[np.uint8]) -> None:
        """Cut rows of bytes into the columns of slabs again."""
        at = 0
        for column in self._layout()[0]:
            raw = np.ascontiguousarray(whole[:, at : at + column.width])
            at += column.width
            shape = (len(whole), *column.shape)
            parts[column.name] = (
                raw.view(np.dtype(column.dtype)).reshape(shape) if column.width else np.empty(shape, column.dtype)
            )

    def total(self, num_slots: int, without: Sequence[int] | NDArray[np.int64] = ()) -> int:
        """The total of all records but some, from their stored checksums."""
        slab = self._file(_SUMS, "slab")
        if slab.stat().st_size < num_slots * _SUMS.width:
            raise FormatError(f"{slab} is shorter than {num_slots} rows")
        sums = np.array(self._map(_SUMS, num_slots))
        sums[np.array(without, dtype=np.int64)] = 0
        return total(sums)

    def total_of(self, slots: NDArray[np.int64], num_slots: int) -> int:
        """The total of some records, from their stored checksums."""
        return total(np.array(self._map(_SUMS, num_slots)[slots]))

    def verify(
        self, num_slots: int, dead: Sequence[int], erased: Sequence[int], advance: Callable[[int], None] = _pass_by
    ) -> Iterator[str]:
        """Read everything, and yield one line for each thing that is not as it was written. Nothing is changed.

        Parameters
        ----------
        num_slots
            The committed number of rows.
        dead, erased
            Slots whose record was deleted, and those of them that have been overwritten.
        advance
            Called with the number of rows read since the last call.
        """
        short = [line for column in self._columns for line in self._too_short(column, num_slots)]
        yield from short
        if short:
            return
        is_dead, is_erased = np.zeros((2, num_slots), dtype=np.bool_)
        is_dead[np.array(dead, dtype=np.int64)] = True
        is_erased[np.array(erased, dtype=np.int64)] = True
        stored = self._map(_SUMS, num_slots)
        for first in range(0, num_slots, _ROWS_AT_ONCE):
            slots = np.arange(first, min(first + _ROWS_AT_ONCE, num_slots), dtype=np.int64)
            is_wrong = self._sums_on_disk(slots) != stored[slots]
            is_wrong[is_dead[slots]] = False
            for row, part in np.argwhere(is_wrong).tolist():
                yield str(self._damaged(part, first + row))
            gone = slots[is_erased[slots]]
            for column in self._columns:
                how = column if column.dtype else replace(column, dtype="<i8", shape=(2,))
                for row in np.flatnonzero(_is_written(self._map(how, num_slots)[gone])).tolist():
                    yield str(self._returned(column, int(gone[row])))
            advance(len(slots))
        for column in self._columns:
            if column.dtype is None:
                yield from self._stray_bytes(column, is_dead & ~is_erased)

    def _too_short(self, column: Column, num_slots: int) -> Iterator[str]:
        slab, expected = self._file(column, "slab"), num_slots * column.width
        if slab.stat().st_size < expected:
            yield f"{slab} is {slab.stat().st_size} bytes long, expected {expected}"

    def _stray_bytes(self, column: Column, is_half_erased: NDArray[np.bool_]) -> Iterator[str]:
        """Whether a heap has bytes between its rows: what is erased is zeros. Rows of a failed update may follow."""
        if is_half_erased.any():
            return
        heap, at = self._heap(column), 0
        num_rows = self._file(column, "slab").stat().st_size // _SPAN
        for start, length in [*self._spans(column, 0, num_rows).tolist(), (len(heap), 0)]:
            if start > at and heap[at:start].any():
                yield f"{self._file(column, 'heap')} holds bytes of no record at {at}: a copy from before a deletion?"
            at = max(at, start + length)

    def _sums_on_disk(self, slots: NDArray[np.int64]) -> Sums:
        """The checksums of some rows, ascending, as their bytes are now."""
        sums = _fresh_sums(slots)
        first, last = int(slots[0]), int(slots[-1]) + 1
        for column in self._summed:
            if column.dtype is None:
                spans = self._spans(column, first, last)[slots - first]
                found = heap_sums(column.name, self._some_rows(column, spans), spans)
            else:
                found = row_sums(column.name, self._map(column, last)[slots])
            sums[:, self._part(column)] += found
        if not self.has_features:
            sums[:, FEATURES] = self._map(_SUMS, last)[slots, FEATURES]
        return sums

    def stored_sums(self, num_slots: int) -> NDArray[np.uint64]:
        """The stored checksums of the features, mapped from the disk."""
        return self._map(_SUMS, num_slots)[:, FEATURES]

    def _require_sound(self, slots: NDArray[np.int64]) -> None:
        is_wrong = self._sums_on_disk(slots) != self._map(_SUMS, int(slots[-1]) + 1)[slots]
        for row, part in np.argwhere(is_wrong)[:1].tolist():
            raise self._damaged(part, int(slots[row]))

    def _require_zeros(self, column: Column, values: NDArray[Any], erased: Sequence[int]) -> None:
        slots = np.array(erased, dtype=np.int64)
        for row in np.flatnonzero(_is_written(values[slots]))[:1].tolist():
            raise self._returned(column, int(slots[row]))

    def _damaged(self, part: int, slot: int) -> FormatError:
        columns = [column for column in self._summed if self._part(column) == part]
        names = [file.name for column in columns for file in self._files(column)]
        files = " or ".join(names) if len(names) <= _NAMED else f"one of {len(names)} files, {names[0]} to {names[-1]},"
        return FormatError(
            f"{self.path}: the record in row {slot:,} is not what was written: {files} is damaged. Put the file back "
            "from a copy of the folder; nothing was changed"
        )

    def _returned(self, column: Column, slot: int) -> FormatError:
        return FormatError(
            f"{self._file(column, 'slab')} holds a record in row {slot:,}, which was erased: is it a copy from before "
            "the deletion? Put the later file back; nothing was changed"
        )

    def erase(self, slots: NDArray[np.int64]) -> None:
        """Overwrite these slots with zeros in every column, and flush them."""
        if len(slots) == 0:
            return
        slots = np.sort(slots)
        columns = list(self._columns)
        at_once = columns if len(columns) * len(slots) > _FEW_CELLS else columns[:0]
        for_each(lambda column: self._erase_column(column, slots), at_once)
        for column in columns[len(at_once) :]:  # to start threads would take longer
            self._erase_column(column, slots)

    def _erase_column(self, column: Column, slots: NDArray[np.int64]) -> None:
        descriptor = self._file(column, "slab").open(os.O_RDWR)
        try:
            if column.dtype is None:
                self._erase_rows(column, slots)
            _overwrite_rows(descriptor, slots, column.width)
            flush_data(descriptor)
        finally:
            os.close(descriptor)

    def _erase_rows(self, column: Column, slots: NDArray[np.int64]) -> None:
        """Overwrite these rows in the heap. This comes first: the slab says where they are.

        Rows lie in the order of their slots. If the slab says otherwise, it is damaged, and nothing is overwritten.
        """
        gone = [(first, self._spans_to_erase(column, first, count)) for first, count in _runs(slots)]
        heap = self._file(column, "heap").open(os.O_RDWR)
        try:
            for _, spans in gone:
                for start, end in _joined(spans):
                    for low in range(start, end, _PIECE):
                        write_all(heap, bytes(min(_PIECE, end - low)), low)
            flush_data(heap)
        finally:
            os.close(heap)
        report_step("erase.heap")

    def _spans_to_erase(self, column: Column, first: int, count: int) -> _Spans:
        """The spans of a run of rows, which lie between those of the rows before and after."""
        spans = self._spans(column, first, first + count)
        spans = spans[spans.any(axis=1)]  # the others are overwritten already
        num_slots = self._file(column, "slab").stat().st_size // _SPAN
        before, low, step = np.empty((0, 2), dtype=np.int64), first, _FEW_ROWS
        while low > 0 and not len(before):  # the next one is mostly there
            low, high, step = max(0, low - step), low, min(2 * step, _ROWS_AT_ONCE)
            before = self._spans(column, low, high)
            before = before[before.any(axis=1)][-1:]
        after, high, step = np.empty((0, 2), dtype=np.int64), first + count, _FEW_ROWS
        while high < num_slots and not len(after):
            low, high, step = high, min(high + step, num_slots), min(2 * step, _ROWS_AT_ONCE)
            after = self._spans(column, low, high)
            after = after[after.any(axis=1)][:1]
        bounds = np.concatenate([[0], before.sum(axis=1), spans.ravel(), after[:, 0], [self._size(column)]])
        starts, ends = spans[:, 0], spans.sum(axis=1)
        edges = np.concatenate([before.sum(axis=1), np.column_stack([starts, ends]).ravel(), after[:, 0]])
        if (np.diff(edges) < 0).any() or (bounds < 0).any() or (edges > self._size(column)).any():
            raise FormatError(
                f"{self._file(column, 'slab')} is damaged near row {first:,}: rows of the heap overlap. Put the file "
                "back from a copy of the folder; nothing was overwritten"
            )
        return spans

    def _size(self, column: Column) -> int:
        return self._file(column, "heap").stat().st_size

    def _read_heap(self, column: Column, spans: _Spans) -> list[bytes]:
        raw = self._file(column, "heap").read_bytes()
        if len(spans) and int(spans.sum(axis=1).max()) > len(raw):
            raise FormatError(f"{self._file(column, 'heap').name} is shorter than its rows")
        return [raw[low:high] for low, high in zip(spans[:, 0].tolist(), spans.sum(axis=1).tolist(), strict=True)]

    def _some_rows(self, column: Column, spans: _Spans) -> list[bytes]:
        heap = self._heap(column)
        is_inside = (spans >= 0).all(axis=1) & (spans.sum(axis=1) <= len(heap))
        pairs = np.where(is_inside[:, np.newaxis], spans, 0).tolist()
        return [heap[start : start + length].tobytes() for start, length in pairs]

    def _heap(self, column: Column) -> NDArray[np.uint8]:
        if not self._size(column):
            return np.empty(0, dtype=np.uint8)
        return self._file(column, "heap").map()

    def _spans(self, column: Column, first: int, last: int) -> _Spans:
        raw = self._file(column, "slab").read_rows("<i8", count=2 * (last - first), offset=_SPAN * first)
        return raw.reshape(-1, 2)

    def _map(self, column: Column, num_slots: int) -> NDArray[Any]:
        shape = (num_slots, *column.shape)
        if num_slots == 0 or column.width == 0:
            return np.zeros(shape, dtype=column.dtype)
        return self._file(column, "slab").map(np.dtype(column.dtype), shape)

    def _part(self, column: Column) -> int:
        return FEATURES if column in self.form.features else NAMES

    def _stays_on_disk(self, column: Column) -> bool:
        return self.form.is_mapped and self.keys is None and column in self.form.features

    def _files(self, column: Column) -> list[Place]:
        return [self.place / name for name in _names(column)]

    def _file(self, column: Column, kind: str) -> Place:
        return self.place / f"{column.name}.{kind}"


@dataclass(frozen=True)
class FeatureCheck:
    """Checks features that stay on the disk whenever they are gathered.

    Parameters
    ----------
    folder
        Where they are.
    stored
        The stored checksums, mapped from the disk like the features.
    """

    folder: RecordFolder
    stored: Sums

    def __call__(self, rows: NDArray[np.int64], features: Features) -> None:
        """Raise an error unless these are the features that were written into these rows."""
        column = self.folder.form.features[0]
        sums = place_sums(FEATURES, rows) + row_sums(column.name, np.asarray(features))
        stored = self.stored[rows, FEATURES]
        for place in np.flatnonzero(sums != stored)[:1]:
            if not stored[place]:
                raise StoreError(f"{self.folder.path}: the record in row {rows[place]:,} was erased while it was read")
            raise self.folder._damaged(FEATURES, int(rows[place]))


def feature_sums(form: Form, parts: dict[str, Any], slots: NDArray[np.int64]) -> NDArray[np.uint64]:
    """The checksums of features that are kept elsewhere, as columns."""
    sums = place_sums(FEATURES, slots)
    for column in form.features:
        values = parts[column.name]
        if column.dtype is not None:
            sums += row_sums(column.name, values)
            continue
        spans = np.zeros((len(values), 2), dtype=np.int64)
        spans[:, 1] = [len(each) for each in values]
        sums += heap_sums(column.name, values, spans)
    return sums


class SlabRows:
    """Where other processes read the records of a folder by themselves: an epoch's columns, under the folder's path.

    They may be on other machines, if these see the folder under the same path.

    Parameters
    ----------
    folder
        The deployment's folder.
    records
        The epoch's columns in it.
    num_rows
        How many rows are there.
    """

    def __init__(self, folder: Path, records: RecordFolder, num_rows: int) -> None:
        self.folder, self.num_rows = folder, num_rows
        self._epoch, self._form = records.place.name, records.form
        self._key = None if records.keys is None else (records.keys.place.name, records.keys.identity)
        self._opened: RecordFolder | None = None

    def read(self, rows: NDArray[np.int64]) -> Block:
        """Read some rows, ascending, and check them.

        Raises
        ------
        StoreError
            If the folder is not there, or a record is not what was written.
        """
        if self._opened is None:
            self._opened = self._open()
        with explain_errors(self.folder):
            return self._opened.gather(rows)

    def narrowed(self, rows: NDArray[np.int64]) -> SlabRows:
        """Itself: what it knows of all rows is small."""
        return self

    def _open(self) -> RecordFolder:
        try:
            home = Place.hold(self.folder, only_reads=True)
            place = Place.hold(self.folder / "records" / self._epoch, only_reads=True)
        except OSError as error:
            raise StoreError(
                f"the worker on {socket.gethostname()} cannot read {self.folder} ({error.strerror or error}): workers "
                "on other machines need it under the same path, on a shared file system"
            ) from error
        keys = None
        if self._key is not None:
            name, identity = self._key
            keys = KeyFile.open(home / "keys" / name, identity, read_only=True)
        return RecordFolder(place, self._form, keys)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "folder": self.folder.absolute(), "_opened": None}


def file_names(form: Form) -> list[str]:
    """The name of every file that records of this form are kept in."""
    return [name for column in (*form.columns, _SUMS) for name in _names(column)]


def _names(column: Column) -> list[str]:
    return [f"{column.name}.{kind}" for kind in (("slab",) if column.dtype else ("slab", "heap"))]


def _side_by_side(columns: Sequence[NDArray[Any]], count: int) -> NDArray[np.uint8]:
    """The bytes of every row of several columns, one after another."""
    flat = [np.ascontiguousarray(values).reshape(count, -1).view(np.uint8) for values in columns if values.size]
    return np.concatenate(flat, axis=1) if flat else np.empty((count, 0), dtype=np.uint8)


def _fresh_sums(slots: NDArray[np.int64]) -> Sums:
    return np.column_stack([place_sums(part, slots) for part in (NAMES, FEATURES)])


def _is_written(rows: NDArray[Any]) -> NDArray[np.bool_]:
    """Which rows have a byte that is not zero."""
    if not rows.size:
        return np.zeros(len(rows), dtype=np.bool_)
    return np.asarray(np.ascontiguousarray(rows).reshape(len(rows), -1).view(np.uint8).any(axis=1))


def _append(place: Place, data: Any) -> None:
    descriptor = place.open(os.O_WRONLY | os.O_APPEND)
    try:
        flat: Any = data.reshape(-1).view(np.uint8) if isinstance(data, np.ndarray) else data
        view = memoryview(flat)
        for low in range(0, len(view), _CHUNK):
            write_all(descriptor, view[low : low + _CHUNK])
    finally:
        os.close(descriptor)


def _overwrite_rows(slab: int, slots: NDArray[np.int64], width: int) -> None:
    """Overwrite ascending rows with zeros: those that lie close together in one piece, with what is between them."""
    rows_in_a_piece = max(1, _PIECE // width)
    starts = np.unique(slots // rows_in_a_piece, return_index=True)[1]
    for rows in np.split(slots, starts[1:]):
        first, count = int(rows[0]), int(rows[-1] - rows[0]) + 1
        piece = np.zeros((count, width), dtype=np.uint8)
        if count > len(rows):
            piece.ravel()[:] = np.frombuffer(os.pread(slab, count * width, first * width), dtype=np.uint8)
            piece[rows - first] = 0
        write_all(slab, piece, first * width)


def _joined(spans: _Spans) -> list[tuple[int, int]]:
    """Spans in their order as (start, end): those that follow one another without a gap are one."""
    starts, ends = spans[:, 0], spans.sum(axis=1)
    breaks = np.flatnonzero(starts[1:] != ends[:-1]) + 1
    firsts = np.concatenate([[0], breaks]) if len(spans) else breaks
    return list(
        zip(starts[firsts].tolist(), ends[np.append(breaks, len(spans))[: len(firsts)] - 1].tolist(), strict=True)
    )


def _runs(slots: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Group consecutive slots, as (first, how many)."""
    if len(slots) == 0:
        return []
    groups = np.split(slots, np.flatnonzero(np.diff(slots) != 1) + 1)
    return [(int(group[0]), len(group)) for group in groups]
