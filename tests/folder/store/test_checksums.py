"""Checksums of records: every changed bit is found, and so are rows and columns in another place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from expunge.folder.store import checksums
from expunge.folder.store.checksums import (
    FEATURES,
    NAMES,
    add_totals,
    heap_sums,
    place_sums,
    row_sums,
    total,
)

RNG = np.random.default_rng(0)
ROWS: dict[str, Any] = {
    "float64": RNG.normal(size=(3, 5)),
    "float32": RNG.normal(size=(3, 2, 3, 2)).astype(np.float32),
    "labels": np.array([1, 0, 2], dtype="<i4"),
    "bytes": RNG.integers(0, 256, size=(3, 13)).astype(np.uint8),
    "flags": np.array([[True, False, True]] * 3),
    "times": np.array([["2020-01-01", "NaT"]] * 3, dtype="M8[ns]"),
    "complex": RNG.normal(size=(3, 2)) * (1 + 2j),
}


@pytest.mark.parametrize("kind", ROWS)
def test_every_flipped_bit_changes_its_row_and_no_other(kind: str) -> None:
    rows = ROWS[kind]
    before = row_sums("features", rows)
    raw = np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), -1)
    for row, byte in np.ndindex(raw.shape):
        for bit in range(8):
            if kind == "flags" and bit:
                continue
            changed = raw.copy()
            changed[row, byte] ^= 1 << bit
            after = row_sums("features", changed.reshape(-1).view(rows.dtype).reshape(rows.shape))
            assert np.flatnonzero(before != after).tolist() == [row]


def test_signs_of_two_numbers_changed_together_are_found() -> None:
    """The highest bits of two words: without mixing the words, their products would cancel."""
    rows = RNG.normal(size=(50, 6))
    before = row_sums("features", rows)
    for one in range(6):
        for two in range(one):
            changed = rows.copy()
            changed[:, [one, two]] *= -1
            assert (row_sums("features", changed) != before).all()

    def unmixed(words: Any, factors: Any) -> Any:
        return words @ factors

    words, factors = rows.view("<u8"), checksums._multipliers("features", 6)
    both = words ^ (np.uint64(1 << 63) * np.array([1, 1, 0, 0, 0, 0], dtype=np.uint64))
    assert (unmixed(words, factors) == unmixed(both, factors)).all(), "which is why they are mixed"


def test_values_in_another_place_are_found() -> None:
    rows = RNG.normal(size=(4, 3))
    assert (row_sums("features", rows) != row_sums("features", rows[:, [1, 0, 2]])).all()
    assert (row_sums("feature-0", rows) != row_sums("feature-1", rows)).all()
    slots = np.arange(1000)
    assert len({*place_sums(NAMES, slots).tolist(), *place_sums(FEATURES, slots).tolist()}) == 2000
    assert place_sums(NAMES, slots).all()  # a row of zeros has a checksum that is none


def test_heaps_are_summed_by_their_bytes_and_places() -> None:
    rows = [b"one", b"", b"three" * 100]
    spans = np.array([[0, 3], [3, 0], [3, 500]])
    before = heap_sums("ids", rows, spans)
    for row, content in enumerate(rows):
        for bit in range(0, 8 * len(content), 5):
            changed = bytearray(content)
            changed[bit // 8] ^= 1 << bit % 8
            after = heap_sums("ids", [bytes(changed) if at == row else rows[at] for at in range(3)], spans)
            assert np.flatnonzero(before != after).tolist() == [row]
    for row, column in np.ndindex(spans.shape):
        for bit in range(63):
            moved = spans.copy()
            moved[row, column] ^= 1 << bit
            assert np.flatnonzero(before != heap_sums("ids", rows, moved)).tolist() == [row]


def test_totals_are_of_sets() -> None:
    sums = RNG.integers(0, 2**64, size=(20, 2), dtype=np.uint64)
    assert total(sums) == total(sums[::-1])
    assert total(sums) == add_totals(total(sums[:7]), total(sums[7:]))
    assert total(sums[7:]) == add_totals(total(sums), total(sums[:7]), sign=-1)
    assert total(sums) != total(sums[:, ::-1])
    assert total(sums[:0]) == 0
    assert 0 <= total(sums) < 2**64


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0,)])
def test_nothing_to_sum(shape: tuple[int, ...]) -> None:
    assert row_sums("features", np.zeros(shape)).tolist() == [0] * shape[0]


def test_rows_are_summed_the_same_in_any_number() -> None:
    rows = RNG.normal(size=(5000, 60))
    alone = np.concatenate([row_sums("x", rows[at : at + 1]) for at in range(0, 5000, 250)])
    np.testing.assert_array_equal(row_sums("x", rows)[::250], alone)
    np.testing.assert_array_equal(row_sums("x", rows[::-1])[::-1], row_sums("x", rows))


def test_the_numbers_are_those_of_the_format() -> None:
    """A folder that was written by this version must be read by the next ones."""
    assert row_sums("features", np.arange(6.0).reshape(2, 3)).tolist() == PINNED[0]
    assert heap_sums("ids", [b'"a"'], np.array([[7, 3]])).tolist() == PINNED[1]
    assert place_sums(NAMES, np.array([0, 9])).tolist() == PINNED[2]


PINNED = [
    [13020432693023735808, 11280604625693310976],
    [894065232616493294],
    [14038959168184415547, 326342880024166962],
]
