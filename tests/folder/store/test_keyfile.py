"""The keys of an encrypted folder: each is used once, and can be destroyed for good."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from expunge.core.errors import FormatError
from expunge.core.place import Place
from expunge.folder.store.keyfile import KEY, TAG, KeyFile, seal_rows, unseal_rows


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place.hold(tmp_path) / "erasure.key"


def cells_of(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.int64)


def test_keys_are_random_and_stay(place: Place) -> None:
    made = KeyFile.new(place)
    cells = made.add(1000)
    keys = made.keys(cells)
    assert len(set(keys)) == 1000
    assert {len(key) for key in keys} == {KEY}
    again = KeyFile.open(place, made.identity)
    assert again.keys(cells[::-1]) == keys[::-1]
    assert again.num_keys == 1000


def test_a_destroyed_key_is_nowhere_and_its_cell_gets_another_one(place: Place) -> None:
    made = KeyFile.new(place)
    cells = made.add(100)
    keys = made.keys(cells)
    kept = np.delete(cells, [3, 4, 50, 99])
    made.destroy_all_but(kept)
    content = place.read_bytes()
    assert [key in content for key in keys] == [number not in (3, 4, 50, 99) for number in range(100)]
    with pytest.raises(FormatError, match="lacks a key that this folder needs"):
        made.keys(cells_of(4))
    with pytest.raises(FormatError, match="lacks a key"):
        made.keys(cells_of(1000))
    assert made.add(6).tolist() == [3, 4, 50, 99, 100, 101]
    assert made.keys(kept) == [keys[cell] for cell in kept]
    assert not set(keys) & set(made.keys(cells_of(3, 4, 50, 99)))


def test_the_file_of_another_folder_and_a_lost_one_are_told(place: Place) -> None:
    made = KeyFile.new(place)
    with pytest.raises(FormatError, match="is not the key file of this folder"):
        KeyFile.open(place, bytes(16))
    place.unlink()
    with pytest.raises(FormatError, match=r"erasure.key is missing: without it nobody can read"):
        KeyFile.open(place, made.identity)


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 200])
def test_messages_of_every_length_in_one_piece_or_many(
    place: Place, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr("expunge.folder.store.keyfile._PIECE", 64)
    made, content = KeyFile.new(place), bytes(range(size))
    cell, other = made.add(2).tolist()
    sealed = made.seal(content, cell)
    assert len(sealed) == size + TAG * max(1, -(-size // 64))
    assert made.unseal(sealed, cell) == content
    assert made.unseal(sealed, other) is None
    for wrong in (
        sealed[:-1],
        sealed + b"0",
        bytes([sealed[0] ^ 1]) + sealed[1:],
        sealed[: 64 + TAG] if size > 64 else b"",
    ):
        assert made.unseal(wrong, cell) is None


def test_rows_have_a_key_each(place: Place) -> None:
    made = KeyFile.new(place)
    keys, rows = made.keys(made.add(3)), [b"", b"short", b"the same"]
    sealed = seal_rows(keys, rows)
    assert unseal_rows(keys, sealed) == rows
    assert unseal_rows(keys[::-1], sealed) == [None, b"short", None]
