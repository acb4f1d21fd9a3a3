"""Checksums of stored records: two numbers a record, one over its names and label, one over its features.

They lie in a column of their own, are overwritten with zeros together with the record, and cover exactly the stored
bytes of every column, where the rows of heaps are, and the number of the row. So a flipped bit, a row in another place,
and a column that was exchanged are found: one changed bit with certainty, anything else but with a chance of about
2^-32. They guard against accidents. Against tampering they do not: the multipliers are public.

A 64-bit word w of a row is mixed, w ^ (w >> 32), and multiplied by an odd number that belongs to its place; the
products are added modulo 2^64. So all rows are summed at once.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Sums = NDArray[np.uint64]
NAMES, FEATURES = 0, 1  # the parts of a record: its label, id, subject and weight; and its features
_WORD: Final = 8
_BYTES_AT_ONCE: Final = 1 << 20
_HALF: Final = np.uint64(32)


def row_sums(column: str, rows: NDArray[Any]) -> Sums:
    """The sum of every row of a slab.

    Parameters
    ----------
    column
        The column's name, which its multipliers belong to.
    rows
        Rows of one type and shape.

    Returns
    -------
    ndarray of uint64
        One number a row.
    """
    width = int(rows.dtype.itemsize * np.prod(rows.shape[1:], dtype=np.int64))
    found = np.zeros(len(rows), dtype=np.uint64)
    at_once = max(1, _BYTES_AT_ONCE // max(1, width))
    factors = _multipliers(column, -(-width // _WORD))
    for first in range(0, len(rows) if width else 0, at_once):
        words = _words(rows[first : first + at_once], width)
        words = words ^ (words >> _HALF)
        found[first : first + at_once] = words @ factors
    return found


def heap_sums(column: str, rows: Sequence[bytes], spans: NDArray[np.int64]) -> Sums:
    """The sum of every row of a heap, from its bytes and from its (start, length)."""
    contents = np.fromiter(map(zlib.crc32, rows), dtype=np.uint64, count=len(rows))
    return row_sums(column, np.column_stack([spans.astype("<i8"), contents.astype("<i8")]))


def place_sums(part: int, slots: NDArray[np.int64]) -> Sums:
    """What the number of its row adds to a record's sum, which is so never zero by accident."""
    found: Sums = row_sums(f"row {part}", slots.astype("<i8")[:, np.newaxis]) + _multipliers(f"part {part}", 1)
    return found


def total(sums: Sums) -> int:
    """One number for many records, from their two sums each; it does not depend on their order."""
    factors = _multipliers("total", 2)
    return int((sums @ factors).sum(dtype=np.uint64)) if len(sums) else 0


def add_totals(one: int, other: int, *, sign: int = 1) -> int:
    """The total of two sets of records, or of what is left without the other one."""
    return (one + sign * other) % (1 << 64)


def _words(rows: NDArray[Any], width: int) -> NDArray[np.uint64]:
    """The bytes of every row as words; the last one is filled up with zeros."""
    flat = np.ascontiguousarray(rows).reshape(len(rows), -1).view(np.uint8)
    if width % _WORD:
        padded = np.zeros((len(rows), width + -width % _WORD), dtype=np.uint8)
        padded[:, :width] = flat
        flat = padded
    return flat.view("<u8").astype(np.uint64, copy=False)


@lru_cache(maxsize=64)
def _multipliers(name: str, count: int) -> NDArray[np.uint64]:
    """Odd numbers that belong to a name and are the same everywhere and for ever."""
    blocks = [
        blake2b(number.to_bytes(8, "little"), key=blake2b(name.encode("utf-8", "surrogatepass")).digest()).digest()
        for number in range(-(-count // _WORD))
    ]
    return np.frombuffer(b"".join(blocks), dtype="<u8")[:count].astype(np.uint64) | np.uint64(1)
