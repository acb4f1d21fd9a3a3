"""All models of a deployment in one file, for promises under which nobody may learn how many an update touched.

Any user of the machine can read how many files and blocks of a file system are free. So a round writes one file, with
the models that it trained and a copy of the others, whether it trained one or all. The file has room to spare, and all
of the room is taken from the disk at once: its size stays the same while models grow and shrink a little.

    8 bytes    "EXPGPACK"
    8 bytes    the number of models
    16 bytes   for each model: where it begins, and how long it is
    …          the models, and zeros to the end

Under the exact promise the number of files tells nothing that is secret. There each model has a file of its own, and an
update writes only the models that it trained. Such a file ends with the salt of the commitment to the model. So the
digest of the file, which `state.db` and its log keep, says nothing about the model once the file is erased.

An update that trains several models writes them into one file, a shelf, and waits for the disk once. When one of them
is replaced, its part is overwritten in place. When all are, the file is overwritten and removed.

    …          the models, each with its salt
    24 bytes   for each model, in the order of shards: its shard, where it begins, and how long it is
    20 bytes   the number of models, a checksum of that and of the list, "EXPGSHLF"
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Collection, Mapping
from operator import itemgetter
from typing import Final

from expunge.core.errors import FormatError
from expunge.core.files import flush_data, write_all
from expunge.core.place import Place

PACK: Final = "pack"
_MAGIC: Final = b"EXPGPACK"
_HEAD: Final = struct.Struct("<8sQ")
_SPAN: Final = struct.Struct("<QQ")
_LEAST: Final = 1 << 16
_PIECE: Final = 1 << 20
SALT_BYTES: Final = 32
SHELF: Final = "shelf"
_ENTRY: Final = struct.Struct("<QQQ")
_TAIL: Final = struct.Struct("<QI8s")
_SHELF_MAGIC: Final = b"EXPGSHLF"


def is_shelf(name: str) -> bool:
    """Whether a file of models, by its name, holds those that one update has trained."""
    return name.endswith(f".{SHELF}")


class Shelf:
    """A new file for the models of one update. Always close it.

    Parameters
    ----------
    place
        The file, which must not exist yet.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self._descriptor = place.open(os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        self._entries: list[tuple[int, int, int]] = []
        self._end = 0

    def add(self, shard: int, content: bytes) -> None:
        """Write a model. It is on the disk after `finish`."""
        write_all(self._descriptor, content)
        self._entries.append((shard, self._end, len(content)))
        self._end += len(content)

    def finish(self) -> None:
        """Write where each model is, and wait for the disk."""
        told = b"".join(_ENTRY.pack(*entry) for entry in sorted(self._entries))
        write_all(self._descriptor, told + _tail(told))
        os.fsync(self._descriptor)
        self.close()

    def close(self) -> None:
        """Close the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _tail(told: bytes) -> bytes:
    count = len(told) // _ENTRY.size
    return _TAIL.pack(count, zlib.crc32(told, count), _SHELF_MAGIC)


def shelved(place: Place) -> list[int]:
    """The shards whose models are, or were, on a shelf."""
    descriptor = place.open()
    try:
        return [shard for shard, _, _ in _entries(descriptor, place)]
    finally:
        os.close(descriptor)


def overwrite_shelved(place: Place, shards: Collection[int]) -> None:
    """Overwrite the models of some shards on a shelf, and wait for the disk. What is zeros already stays.

    Raises
    ------
    FormatError
        If the shelf does not say where its models are. Then nothing is overwritten.
    """
    descriptor = place.open(os.O_RDWR)
    try:
        is_changed, gone = False, frozenset(shards)
        for shard, start, length in _entries(descriptor, place):
            if shard in gone and os.pread(descriptor, length, start).count(0) < length:
                write_all(descriptor, bytes(length), start)
                is_changed = True
        if is_changed:
            flush_data(descriptor)
    finally:
        os.close(descriptor)


def _entries(descriptor: int, place: Place) -> list[tuple[int, int, int]]:
    """What lies on a shelf: shards, where each model begins, and how long it is."""
    size = os.fstat(descriptor).st_size
    count = _num_entries(descriptor, place, size)
    first = size - _TAIL.size - _ENTRY.size * count
    content = os.pread(descriptor, size - first, first)
    told = content[: -_TAIL.size]
    if content != told + _tail(told):
        raise _lost(place)
    found, end = list(_ENTRY.iter_unpack(told)), 0
    for _, start, length in sorted(found, key=itemgetter(1, 2)):
        if start != end:
            raise _lost(place)
        end += length
    if end != first:
        raise _lost(place)
    return found


def _num_entries(descriptor: int, place: Place, size: int) -> int:
    tail = os.pread(descriptor, _TAIL.size, max(0, size - _TAIL.size))
    if len(tail) == _TAIL.size:
        count, _, magic = _TAIL.unpack(tail)
        if magic == _SHELF_MAGIC and _ENTRY.size * count + _TAIL.size <= size:
            return int(count)
    raise _lost(place)


def _lost(place: Place) -> FormatError:
    return FormatError(f"the model file {place} is not what was written: it does not say where a model is")


def _find_shelved(descriptor: int, place: Place, shard: int) -> tuple[int, int]:
    size = os.fstat(descriptor).st_size
    low, high = 0, _num_entries(descriptor, place, size)
    first = size - _TAIL.size - _ENTRY.size * high
    while low < high:
        middle = (low + high) // 2
        found, start, length = _ENTRY.unpack(os.pread(descriptor, _ENTRY.size, first + _ENTRY.size * middle))
        if found == shard and start + length <= first:
            return start, length
        low, high = (middle + 1, high) if found < shard else (low, middle)
    raise _lost(place)


def is_pack(name: str) -> bool:
    """Whether a file of models, by its name, holds all of them."""
    return name.endswith(f".{PACK}")


def parted(name: str, content: bytes, salt: bytes) -> tuple[bytes, bytes]:
    """A model's bytes, and the salt of the commitment to it.

    Parameters
    ----------
    name
        The name of its file.
    content
        What `read_model` gave, decrypted.
    salt
        The salt that the database has: that of a model in the file of all.
    """
    return (content, salt) if is_pack(name) else (content[:-SALT_BYTES], content[-SALT_BYTES:])


def read_model(place: Place, shard: int) -> bytes:
    """The content of a shard's model: its own file, or its part of the file of all. See `parted`.

    They are not checked: compare them with their digest.

    Raises
    ------
    FileNotFoundError
        If the file is missing.
    FormatError
        If the file does not say where the model is.
    """
    if not is_pack(place.name) and not is_shelf(place.name):
        return place.read_bytes()
    descriptor = place.open()
    try:
        start, length = (_find_shelved if is_shelf(place.name) else _find)(descriptor, place, shard)
        found = os.pread(descriptor, length, start)
        while len(found) < length and (more := os.pread(descriptor, length - len(found), start + len(found))):
            found += more
        return found
    finally:
        os.close(descriptor)


def write_pack(place: Place, num_models: int, made: Mapping[int, bytes], before: Place | None) -> None:
    """Write all models into a new file, and wait for the disk.

    Parameters
    ----------
    place
        The new file.
    num_models
        k.
    made
        The models that were trained, by shard.
    before
        The file in force, which has the others; None if all were trained.
    """
    lengths = [len(made[shard]) if shard in made else _length(before, shard) for shard in range(num_models)]
    at, spans = _HEAD.size + _SPAN.size * num_models, []
    for length in lengths:
        spans.append((at, length))
        at += length
    descriptor = place.open(os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        _take_room(descriptor, _room(at, 0 if before is None else before.stat().st_size))
        write_all(descriptor, _HEAD.pack(_MAGIC, num_models) + b"".join(_SPAN.pack(*span) for span in spans), 0)
        for shard, (start, length) in enumerate(spans):
            data = made[shard] if shard in made else _part(before, shard)
            if len(data) != length:
                raise FormatError(f"{place} was not written: the models before it changed meanwhile")
            write_all(descriptor, data, start)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _room(size: int, before: int) -> int:
    """How large the file is made: as large as the one before if that is enough, else a power of two twice the size."""
    return before if size <= before else max(_LEAST, 1 << (2 * size - 1).bit_length())


def _take_room(descriptor: int, size: int) -> None:
    """Take all blocks of a file from the disk at once."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
        return
    zeros = bytes(_PIECE)
    for start in range(0, size, _PIECE):
        write_all(descriptor, zeros[: size - start], start)


def _length(place: Place | None, shard: int) -> int:
    assert place is not None, "a model that was not trained is in the file in force"
    descriptor = place.open()
    try:
        return _find(descriptor, place, shard)[1]
    finally:
        os.close(descriptor)


def _part(place: Place | None, shard: int) -> bytes:
    assert place is not None
    return read_model(place, shard)


def _find(descriptor: int, place: Place, shard: int) -> tuple[int, int]:
    """Where a model begins, and how long it is."""
    head = os.pread(descriptor, _HEAD.size, 0)
    span = os.pread(descriptor, _SPAN.size, _HEAD.size + _SPAN.size * shard)
    if len(head) == _HEAD.size and len(span) == _SPAN.size:
        magic, num_models = _HEAD.unpack(head)
        start, length = _SPAN.unpack(span)
        if magic == _MAGIC and shard < num_models and start + length <= os.fstat(descriptor).st_size:
            return start, length
    raise _lost(place)
