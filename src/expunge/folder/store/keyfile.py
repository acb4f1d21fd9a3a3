"""The keys of an encrypted folder, in one small file that is overwritten in place.

Each record, each model and each pending request is encrypted under a key of its own, with AES-256-GCM. The keys lie
side by side in cells of 32 bytes; a cell of zeros is free. To delete a record is to overwrite its key: after that it
cannot be read, whatever a file system or a disk has kept of its bytes. A key encrypts one message only, so its nonces
need not be random.
"""

from __future__ import annotations

import os
import secrets
import threading
import weakref
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from numpy.typing import NDArray

from expunge.core.errors import FormatError
from expunge.core.files import write_all
from expunge.core.place import Place

KEY: Final = 32  # bytes
TAG: Final = 16  # bytes that each message gets longer by
Cells = NDArray[np.int64]
_MAGIC: Final = b"expunge keys 1\n\0"
_IDENTITY: Final = 16
_HEAD: Final = 64  # a cell does not cross the border of a disk's block
_NONCE: Final = bytes(12)
_PIECE: Final = 1 << 30  # bytes that are encrypted at once
_AT_ONCE: Final = 1 << 11  # cells that lie close together are overwritten in one piece


class KeyFile:
    """The keys of one folder. Make one by `KeyFile.new` or `KeyFile.open`.

    Parameters
    ----------
    place
        The file.
    identity
        What the file and the folder both know, so that no other file is taken for it.
    descriptor
        The open file.
    """

    def __init__(self, place: Place, identity: bytes, descriptor: int) -> None:
        self.place, self.identity = place, identity
        self._descriptor = descriptor
        weakref.finalize(self, os.close, descriptor)  # models may be read after the folder is closed
        self._lock = threading.RLock()
        self._is_set = _is_set(self._read(0, self._size))

    @classmethod
    def new(cls, place: Place) -> KeyFile:
        """Make the file of a new folder."""
        identity = secrets.token_bytes(_IDENTITY)
        place.write_new((_MAGIC + identity).ljust(_HEAD, b"\0"))
        place.parent.flush()
        return cls(place, identity, place.open(os.O_RDWR))

    @classmethod
    def open(cls, place: Place, identity: bytes, *, read_only: bool = False) -> KeyFile:
        """Open the file of a folder.

        Raises
        ------
        FormatError
            If it is missing, or belongs to another folder.
        """
        try:
            descriptor = place.open(os.O_RDONLY if read_only else os.O_RDWR)
        except FileNotFoundError:
            raise FormatError(
                f"the key file {place} is missing: without it nobody can read the records and models of this folder"
            ) from None
        if os.pread(descriptor, len(_MAGIC) + _IDENTITY, 0) != _MAGIC + identity:
            os.close(descriptor)
            raise FormatError(f"{place} is not the key file of this folder")
        return cls(place, identity, descriptor)

    @property
    def num_keys(self) -> int:
        """How many keys there are."""
        return int(self._is_set.sum())

    def add(self, count: int) -> Cells:
        """Draw new keys, and return where they lie. They are on the disk after `flush`."""
        with self._lock:
            free = np.flatnonzero(~self._is_set)[:count]
            size = len(self._is_set)
            cells = np.concatenate([free, np.arange(size, size + count - len(free))]).astype(np.int64)
            keys = np.frombuffer(secrets.token_bytes(KEY * count), dtype=np.uint8).reshape(count, KEY)
            if len(cells) > len(free):
                self._is_set = np.concatenate([self._is_set, np.zeros(count - len(free), dtype=np.bool_)])
            for rows in _runs(cells):
                write_all(self._descriptor, keys[rows], _HEAD + KEY * int(cells[rows.start]))
            self._is_set[cells] = True
        return cells

    def keys(self, cells: Cells) -> list[bytes]:
        """Read keys.

        Raises
        ------
        FormatError
            If one is not there: it was destroyed, or the file is damaged or of another moment.
        """
        if not len(cells):
            return []
        low, high = int(cells.min()), int(cells.max()) + 1
        found = self._read(low, high)[cells - low] if low >= 0 and high <= self._size else None
        if found is None or not _is_set(found).all():
            raise self._lacking()
        raw = found.tobytes()
        return [raw[at : at + KEY] for at in range(0, len(raw), KEY)]

    def destroy_all_but(self, cells: Cells) -> None:
        """Overwrite all keys but these, and wait for the disk. Nothing can be read any more that had one of them.

        Raises
        ------
        FormatError
            If one of these is not there. Then nothing is overwritten.
        """
        with self._lock:
            if len(cells) and (cells.min() < 0 or cells.max() >= len(self._is_set) or not self._is_set[cells].all()):
                raise self._lacking()
            is_gone = self._is_set.copy()
            is_gone[cells] = False
            self.destroy(np.flatnonzero(is_gone))

    def destroy(self, gone: Cells) -> None:
        """Overwrite these keys, and wait for the disk."""
        if not len(gone):
            return
        with self._lock:
            zeros = np.zeros((_AT_ONCE, KEY), dtype=np.uint8)
            for rows in _runs(gone):
                for low in range(rows.start, rows.stop, _AT_ONCE):
                    some = gone[low : min(low + _AT_ONCE, rows.stop)]
                    write_all(self._descriptor, zeros[: len(some)], _HEAD + KEY * int(some[0]))
            os.fsync(self._descriptor)
            self._is_set[gone] = False

    def _lacking(self) -> FormatError:
        return FormatError(
            f"{self.place} lacks a key that this folder needs: it is damaged, or of another moment. Put it back from a "
            "copy; nothing was changed"
        )

    def flush(self) -> None:
        """Wait until new keys are on the disk."""
        os.fsync(self._descriptor)

    def seal(self, content: bytes, cell: int) -> bytes:
        """Encrypt a message under a new key, which encrypts nothing else."""
        box = AESGCM(self.keys(np.array([cell]))[0])
        pieces = range(0, max(len(content), 1), _PIECE)
        return b"".join([box.encrypt(_nonce(low), content[low : low + _PIECE], _part(low, content)) for low in pieces])

    def unseal(self, content: bytes, cell: int) -> bytes | None:
        """Decrypt what `seal` made; None if it is not what was written."""
        box, found, step = AESGCM(self.keys(np.array([cell]))[0]), [], _PIECE + TAG
        num_pieces = max(1, -(-len(content) // step))
        length = len(content) - TAG * num_pieces
        try:
            for number in range(num_pieces):
                piece = content[number * step : (number + 1) * step]
                is_last = number == num_pieces - 1
                found.append(box.decrypt(_nonce(number * _PIECE), piece, b"last" if is_last else b""))
        except InvalidTag:
            return None
        assert sum(map(len, found)) == length
        return b"".join(found)

    @property
    def _size(self) -> int:
        return max(0, os.fstat(self._descriptor).st_size - _HEAD) // KEY

    def _read(self, low: int, high: int) -> NDArray[np.uint8]:
        raw = os.pread(self._descriptor, KEY * (high - low), _HEAD + KEY * low)
        return np.frombuffer(raw, dtype=np.uint8).reshape(-1, KEY)


def seal_rows(keys: Sequence[bytes], rows: Sequence[bytes]) -> list[bytes]:
    """Encrypt each row under its own new key. Each gets longer by `TAG` bytes."""
    return [AESGCM(key).encrypt(_NONCE, row, None) for key, row in zip(keys, rows, strict=True)]


def unseal_rows(keys: Sequence[bytes], rows: Sequence[bytes]) -> list[bytes | None]:
    """Decrypt what `seal_rows` made; None for a row that is not what was written."""
    found: list[bytes | None] = []
    for key, row in zip(keys, rows, strict=True):
        try:
            found.append(AESGCM(key).decrypt(_NONCE, row, None))
        except InvalidTag:
            found.append(None)
    return found


def _is_set(keys: NDArray[np.uint8]) -> NDArray[np.bool_]:
    return np.asarray(keys.any(axis=1))


def _nonce(start: int) -> bytes:
    return (start // _PIECE).to_bytes(len(_NONCE), "big")


def _part(start: int, content: bytes) -> bytes:
    return b"last" if start + _PIECE >= len(content) else b""


def _runs(cells: Cells) -> list[slice]:
    """Ascending cells that follow one another, as slices of them."""
    ends = np.flatnonzero(np.diff(cells) != 1) + 1
    return [slice(low, high) for low, high in pairwise([0, *ends.tolist(), len(cells)]) if high > low]
