"""All models in one file: each part is found, the room stays the same, and damage is told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from expunge.core.errors import FormatError
from expunge.core.place import Place
from expunge.folder.store.packs import Shelf, is_pack, overwrite_shelved, read_model, shelved, write_pack

MODELS = {shard: bytes([shard]) * (100 + shard) for shard in range(5)}


def pack(folder: Path, name: str, made: dict[int, bytes], before: Place | None = None, count: int = 5) -> Place:
    place = Place.hold(folder) / f"{name}.pack"
    write_pack(place, count, made, before)
    return place


def test_models_are_found_and_the_others_are_copied(tmp_path: Path) -> None:
    first = pack(tmp_path, "first", MODELS)
    assert {shard: read_model(first, shard) for shard in MODELS} == MODELS
    second = pack(tmp_path, "second", {1: b"other", 4: b""}, first)
    expected = {**MODELS, 1: b"other", 4: b""}
    assert {shard: read_model(second, shard) for shard in MODELS} == expected


def test_the_room_does_not_depend_on_what_is_written(tmp_path: Path) -> None:
    places = [pack(tmp_path, "0", MODELS)]
    for number in range(1, 12):
        made = {shard: os.urandom(50 * number) for shard in range(number % 6)}
        places.append(pack(tmp_path, str(number), made, places[-1]))
    stats = [place.stat() for place in places]
    assert len({(found.st_size, found.st_blocks) for found in stats}) == 1
    assert stats[0].st_blocks * 512 >= stats[0].st_size  # all of it is taken
    large = pack(tmp_path, "large", {0: os.urandom(100_000)}, places[-1])
    assert large.stat().st_size == 262_144  # a power of two, at least twice the contents


def test_a_file_of_one_model_is_read_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "00003-aa.arrays").write_bytes(b"model")
    assert read_model(Place.hold(tmp_path) / "00003-aa.arrays", 3) == b"model"
    assert not is_pack("00003-aa.arrays")
    assert is_pack("00005-aa.pack")


@pytest.mark.parametrize("at", [0, 8, 16 + 16 * 2 + 7, 16 + 16 * 2 + 15])
def test_damage_of_what_says_where_models_are(tmp_path: Path, at: int) -> None:
    place = pack(tmp_path, "a", MODELS)
    data = bytearray((tmp_path / "a.pack").read_bytes())
    data[at] ^= 0x80 if at != 8 else 0x05  # no model is left
    (tmp_path / "a.pack").write_bytes(data)
    with pytest.raises(FormatError, match=r"a\.pack is not what was written"):
        read_model(place, 2)
    with pytest.raises(FormatError, match="not what was written"):
        pack(tmp_path, "b", {0: b"x"}, place)


def test_what_is_cut_off_or_missing(tmp_path: Path) -> None:
    place = pack(tmp_path, "a", MODELS)
    os.truncate(tmp_path / "a.pack", 20)
    with pytest.raises(FormatError, match="not what was written"):
        read_model(place, 0)
    os.unlink(tmp_path / "a.pack")
    with pytest.raises(FileNotFoundError):
        read_model(place, 0)


# Shelves: the models that one update has trained.


@pytest.fixture
def shelf(tmp_path: Path) -> Place:
    place = Place.hold(tmp_path) / "00002-0123456789abcdef.shelf"
    made = Shelf(place)
    for shard, content in reversed(SHELVED.items()):  # shards come in any order
        made.add(shard, content)
    made.finish()
    return place


SHELVED = {2: b"two" * 50, 5: b"", 7: b"seven" * 9, 400: b"four hundred"}


def test_each_model_is_found_on_its_shelf(shelf: Place) -> None:
    assert {shard: read_model(shelf, shard) for shard in SHELVED} == SHELVED
    assert shelved(shelf) == [*SHELVED]
    for shard in (0, 3, 401):
        with pytest.raises(FormatError, match="does not say where a model is"):
            read_model(shelf, shard)


def test_replaced_models_are_overwritten_and_the_others_stay(shelf: Place) -> None:
    size = len(shelf.read_bytes())
    overwrite_shelved(shelf, {2, 400, 3})
    assert read_model(shelf, 7) == SHELVED[7]
    assert read_model(shelf, 2) == bytes(len(SHELVED[2]))
    assert len(shelf.read_bytes()) == size
    assert b"two" not in shelf.read_bytes()
    assert b"hundred" not in shelf.read_bytes()


def test_nothing_is_overwritten_where_the_list_is_not_what_was_written(shelf: Place, tmp_path: Path) -> None:
    """Each bit of it: another number could lead to a model that is in force."""
    sound, path = shelf.read_bytes(), tmp_path / shelf.name
    models = sum(map(len, SHELVED.values()))
    for bit in range(8 * models, 8 * len(sound)):
        damaged = bytearray(sound)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with pytest.raises(FormatError, match="does not say where a model is"):
            overwrite_shelved(shelf, {2})
        assert path.read_bytes() == damaged
    for size in range(len(sound)):
        path.write_bytes(sound[:size])
        with pytest.raises(FormatError, match="does not say where a model is"):
            overwrite_shelved(shelf, {2})


def test_a_stranger_cannot_have_one_model_overwritten_for_another(tmp_path: Path) -> None:
    """Parts that overlap, or that lie outside, are refused, with a right checksum."""
    place = Place.hold(tmp_path) / "00002-0123456789abcdef.shelf"
    for entries in ([(1, 0, 9), (2, 8, 4)], [(1, 0, 4), (2, 0, 12)], [(1, 0, 4)], [(1, 0, 99)], [(1, 4, 8)]):
        place.unlink(missing_ok=True)
        made = Shelf(place)
        made.add(1, b"what is there")
        made._entries = entries
        made.finish()
        with pytest.raises(FormatError, match="does not say where a model is"):
            overwrite_shelved(place, {1})
