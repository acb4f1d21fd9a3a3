"""A byte set aside on the disk: that a consensus failed can be written down when there is no room for anything else.

Whoever asked has seen the answer, or the error, of a failed consensus. A folder that forgot it would go on with the
same secret threshold, and could be asked again.
"""

from __future__ import annotations

import contextlib
import os
import struct
from pathlib import Path

from expunge.core.files import flush_file

_FORM = struct.Struct("<QB")  # the generation, and whether it is dirty


class DirtyMark:
    """Of one generation; setting it takes no new space, on file systems that overwrite in place."""

    def __init__(self, folder: Path, generation: int) -> None:
        self._path, self._generation = folder / "dirty", generation

    @property
    def is_set(self) -> bool:
        """Whether this generation is marked, for all that can be known."""
        try:
            return self._read() == (self._generation, 1)
        except FileNotFoundError:  # the disk had no room for it
            return False
        except OSError:
            return True

    def prepare(self) -> None:
        """Set the byte aside, unless it is there; a disk that has no room even for that keeps nobody from going on."""
        with contextlib.suppress(OSError):
            if not self._path.exists() or self._read()[0] != self._generation:
                self._write(dirty=False)

    def set(self) -> bool:
        """Whether it is on the disk."""
        try:
            self._write(dirty=True)
        except OSError:
            return False
        return True

    def _read(self) -> tuple[int, int]:
        """Generation and mark; none of either in a file that is cut short."""
        content = self._path.read_bytes()[: _FORM.size]
        return _FORM.unpack(content) if len(content) == _FORM.size else (-1, -1)

    def _write(self, *, dirty: bool) -> None:
        is_new = not self._path.exists()
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            content = _FORM.pack(self._generation, dirty)
            if os.pwrite(descriptor, content, 0) != len(content):
                raise OSError("the mark was not written whole")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if is_new:
            flush_file(self._path.parent)
