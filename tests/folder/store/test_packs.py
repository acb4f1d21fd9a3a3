"""All models in one file: each part is found, the room stays the same, and damage is told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from expunge.core.errors import FormatError
from expunge.core.place import Place
from expunge.folder.store.packs import is_pack, read_model, write_pack

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
