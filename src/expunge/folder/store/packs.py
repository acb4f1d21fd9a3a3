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
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from typing import Final

from expunge.core.errors import FormatError
from expunge.core.files import write_all
from expunge.core.place import Place

PACK: Final = "pack"
_MAGIC: Final = b"EXPGPACK"
_HEAD: Final = struct.Struct("<8sQ")
_SPAN: Final = struct.Struct("<QQ")
_LEAST: Final = 1 << 16
_PIECE: Final = 1 << 20
SALT_BYTES: Final = 32


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
    if not is_pack(place.name):
        return place.read_bytes()
    descriptor = place.open()
    try:
        start, length = _find(descriptor, place, shard)
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
    raise FormatError(f"the model file {place} is not what was written: it does not say where a model is")
