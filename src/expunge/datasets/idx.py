"""The IDX format of MNIST and its relatives: gzipped arrays of unsigned bytes."""

from __future__ import annotations

import gzip
import hashlib
import math
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from expunge.errors import InputError

_UNSIGNED_BYTE = 8
_MOST_DIMENSIONS = 3


def read_idx(path: Path, *, sha256: str) -> NDArray[np.uint8]:
    """The array in a gzipped IDX file, whose SHA-256 must be the given one; InputError says what is wrong."""
    try:
        packed = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"there is no file {path}") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    found = hashlib.sha256(packed).hexdigest()
    if found != sha256:
        raise InputError(f"{path} is not the published file: its SHA-256 is {found}, not {sha256}")
    try:
        raw = gzip.decompress(packed)
    except (OSError, EOFError, zlib.error):
        raise InputError(f"{path} is not a gzip file") from None
    return _parse(raw, path)


def _parse(raw: bytes, path: Path) -> NDArray[np.uint8]:
    """Two zero bytes, the number type, the number of dimensions, every dimension in 32 bits, and the values."""
    if len(raw) < 4 or raw[:2] != b"\0\0" or raw[2] != _UNSIGNED_BYTE or not 1 <= raw[3] <= _MOST_DIMENSIONS:
        raise InputError(f"{path} is not an IDX file of unsigned bytes")
    start = 4 + 4 * raw[3]
    if len(raw) < start:
        raise InputError(f"{path} ends within its header")
    shape = struct.unpack(f">{raw[3]}I", raw[4:start])
    if len(raw) - start != math.prod(shape):
        raise InputError(f"{path} holds {len(raw) - start} values where its header promises {math.prod(shape)}")
    return np.frombuffer(raw, dtype=np.uint8, offset=start).reshape(shape)
