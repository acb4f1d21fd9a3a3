"""What pending requests ask for, in files: ids, subjects and records to be added never enter the database.

Requests are appended to one file, one after another, and the database says where each lies. When requests are applied,
later ones go to a new file. A file in which no pending request lies is overwritten and removed; what lies between
pending requests, of cancelled ones, is overwritten in place.
"""

from __future__ import annotations

import os
import re
import secrets
import threading
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

from expunge.core.errors import FormatError
from expunge.core.files import write_all
from expunge.core.place import Place

#: What the names of these files look like. Any other file was not written here, and stays.
WAITING_FILE = re.compile(r"[0-9a-f]{32}\.requests")


class Span(NamedTuple):
    """Where a request lies: a file, the first byte, and how many."""

    file: str
    start: int
    length: int


class Waiting:
    """The files of pending requests.

    Requests are appended inside the transaction that names them, and swept while there is none.

    Parameters
    ----------
    place
        The folder that they lie in.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._lock = threading.RLock()
        self._current: Place | None = None  # requests are appended to it
        self._appending = -1
        self._reading: tuple[str, int] = ("", -1)
        self.is_empty = False  # whether it is known that there is no file

    def append(self, contents: Sequence[bytes]) -> list[Span]:
        """Write requests, and wait for the disk once for all. They count once the database names them."""
        with self._lock:
            self.is_empty = False
            if self._current is None:
                place = self._place / f"{secrets.token_hex(16)}.requests"
                self._appending = place.open(os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND)
                self._current = place
                self._place.flush()
            lengths = [len(content) for content in contents]
            starts = accumulate(lengths, initial=os.fstat(self._appending).st_size)
            write_all(self._appending, b"".join(contents))
            os.fsync(self._appending)
            return [Span(self._current.name, start, length) for start, length in zip(starts, lengths, strict=False)]

    def begin_anew(self) -> None:
        """Later requests go to another file. So this one can be removed when its requests are applied."""
        with self._lock:
            if self._current is not None:
                os.close(self._appending)
                self._current, self._appending = None, -1

    def read(self, span: Span) -> bytes:
        """Read what `append` wrote. One file stays open: requests are mostly read one after another."""
        with self._lock:
            if self._reading[0] != span.file:
                self._stop_reading()
                self._reading = span.file, (self._place / span.file).open()
            with os.fdopen(self._reading[1], "rb", closefd=False) as file:
                file.seek(span.start)
                found = file.read(span.length)
        if len(found) != span.length:
            raise FormatError(f"{self._place / span.file} is shorter than the requests in it: it is damaged")
        return found

    def overwrite_all_but(self, kept: Iterable[Span]) -> list[Place]:
        """Overwrite what lies between these requests. Return the files in which none lies, to be removed.

        Nothing may be appended meanwhile that the database does not name yet.
        """
        spans: dict[str, list[Span]] = {}
        for span in kept:
            spans.setdefault(span.file, []).append(span)
        gone = []
        for place in self._place.iterdir():
            if place.name in spans:
                _overwrite_between(place, sorted(spans[place.name]))
            elif WAITING_FILE.fullmatch(place.name):
                gone.append(place)
        names = {place.name for place in gone}
        with self._lock:
            if self._reading[0] in names:
                self._stop_reading()
            if self._current is not None and self._current.name in names:
                self.begin_anew()
        return gone

    def close(self) -> None:
        """Close the files."""
        with self._lock:
            self.begin_anew()
            self._stop_reading()

    def _stop_reading(self) -> None:
        if self._reading[1] >= 0:
            os.close(self._reading[1])
        self._reading = "", -1


def _overwrite_between(place: Place, kept: list[Span]) -> None:
    """Overwrite what lies between these spans and after them, unless it is zeros already."""
    descriptor = place.open(os.O_RDWR)
    try:
        size, end, is_changed = os.fstat(descriptor).st_size, 0, False
        for start, length in [*((span.start, span.length) for span in kept), (size, 0)]:
            between = os.pread(descriptor, start - end, end) if start > end else b""
            if between.count(0) < len(between):
                write_all(descriptor, bytes(len(between)), end)
                is_changed = True
            end = max(end, start + length)
        if is_changed:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
