"""A disk that fails at a chosen call, or loses what was not flushed. `disk.c` must be loaded (LD_PRELOAD)."""

from __future__ import annotations

import ctypes
import os
import random
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

OPENED, WRITTEN, FLUSHED, CUT, RENAMED, REMOVED, MADE, TOLD, LINKED = range(1, 10)
KILL, HALF = -1, -2  # instead of an error's number
_HEAD = struct.Struct("<IIIQQ")
_BLOCK = 512  # bytes that a disk writes whole or not at all


def watch(folder: Path | None, *, at: int = 0, how: int = 0, onwards: bool = False, journal: int = -1) -> None:
    """Watch the calls below a folder. The call with this number fails; `onwards`, all after it too. None: no more."""
    ctypes.CDLL(None).disk_watch(str(folder or "").encode(), ctypes.c_long(at), how, int(onwards), journal)


def tell() -> None:
    """Write down that the process has told something to the outside at this point."""
    ctypes.CDLL(None).disk_tell()


def count() -> int:
    """How many calls were made since the folder is watched."""
    disk_count = ctypes.CDLL(None).disk_count
    disk_count.restype = ctypes.c_long
    return int(disk_count())


@dataclass(frozen=True)
class Change:
    """One change of the disk."""

    what: int
    path: str
    other: str = ""
    place: int = 0
    content: bytes = b""


def read_journal(path: Path) -> list[Change]:
    """All changes that were written down, in order."""
    raw, found, at = path.read_bytes(), [], 0
    while at < len(raw):
        what, size, more, place, length = _HEAD.unpack_from(raw, at)
        at += _HEAD.size
        name, other = raw[at : at + size].decode(), raw[at + size : at + size + more].decode()
        at += size + more
        content = raw[at : at + length] if what == WRITTEN else b""
        at += len(content)
        found.append(Change(what, name, other, place, content))
    return found


@dataclass
class _File:
    """A file: what is on the disk for certain, and what was written since."""

    flushed: bytes = b""
    pending: list[Change] = field(default_factory=list)

    def after(self, survives: Callable[[], bool], torn: random.Random | None) -> bytes:
        """The content, if these of its changes reached the disk."""
        content = bytearray(self.flushed)
        for change in self.pending:
            if survives():
                _write(content, change, torn)
        return bytes(content)


def _write(content: bytearray, change: Change, torn: random.Random | None) -> None:
    if change.what == CUT:
        del content[change.place :]
        content.extend(bytes(change.place - len(content)))
        return
    end = change.place + len(change.content)
    content.extend(bytes(max(0, end - len(content))))
    if torn is None:
        content[change.place : end] = change.content
        return
    for start in range(change.place, end, _BLOCK):  # blocks of one write reach the disk one by one
        if torn.random() < 0.5:
            stop = min(start + _BLOCK, end)
            content[start:stop] = change.content[start - change.place : stop - change.place]


@dataclass
class _Folder:
    """A folder: the names that are on the disk for certain, and what happened to names since."""

    now: dict[str, _File | _Folder] = field(default_factory=dict)
    flushed: dict[str, _File | _Folder] = field(default_factory=dict)


class Disk:
    """The disk as it was flushed, and all that happened since.

    Parameters
    ----------
    home
        The folder above all others, as the changes name it. What is in it now counts as flushed.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self._root = self._read(home)
        self._names: list[tuple[list[tuple[_Folder, str, _File | _Folder | None]], list[_Folder]]] = []

    def _read(self, path: Path) -> _Folder:
        folder = _Folder()
        for child in path.iterdir():
            folder.now[child.name] = self._read(child) if child.is_dir() else _File(child.read_bytes())
        folder.flushed = dict(folder.now)
        return folder

    def _find(self, path: str) -> tuple[_Folder, str]:
        *way, name = Path(path).relative_to(self.home).parts
        folder = self._root
        for step in way:
            inner = folder.now[step]
            assert isinstance(inner, _Folder)
            folder = inner
        return folder, name

    def _at(self, path: str) -> _File | _Folder:
        if Path(path) == self.home:
            return self._root
        folder, name = self._find(path)
        return folder.now[name]

    def apply(self, change: Change) -> None:
        """Let a change happen. Only flushing brings it to the disk for certain."""
        if change.what in (WRITTEN, CUT):
            file = self._at(change.path)
            assert isinstance(file, _File)
            file.pending.append(change)
        elif change.what == FLUSHED:
            self._flush(self._at(change.path))
        elif change.what in (OPENED, MADE):
            folder, name = self._find(change.path)
            self._rename([(folder, name, _File() if change.what == OPENED else _Folder())])
        elif change.what == REMOVED:
            folder, name = self._find(change.path)
            self._rename([(folder, name, None)])
        elif change.what == LINKED:
            (folder, name), (target, other) = self._find(change.path), self._find(change.other)
            self._rename([(target, other, folder.now[name])])
        elif change.what == RENAMED:
            (folder, name), (target, other) = self._find(change.path), self._find(change.other)
            self._rename([(target, other, folder.now[name]), (folder, name, None)])

    def _rename(self, names: list[tuple[_Folder, str, _File | _Folder | None]]) -> None:
        for folder, name, what in names:
            _set(folder.now, name, what)
        self._names.append((names, []))

    def _flush(self, found: _File | _Folder) -> None:
        if isinstance(found, _File):
            found.flushed, found.pending = found.after(lambda: True, None), []
            return
        found.flushed = dict(found.now)
        for _, done in self._names:
            done.append(found)

    def without_power(self, chance: random.Random, keep: float, *, is_torn: bool) -> dict[str, bytes | None]:
        """Everything on the disk after a loss of power, by its path; folders are None.

        Parameters
        ----------
        chance
            Where chance comes from.
        keep
            The share of the changes that reached the disk without having been flushed.
        is_torn
            Whether a write may have reached the disk in part.
        """

        def survives() -> bool:
            return chance.random() < keep

        entries: dict[int, dict[str, _File | _Folder]] = {}

        def names_of(folder: _Folder) -> dict[str, _File | _Folder]:
            return entries.setdefault(id(folder), dict(folder.flushed))

        for names, flushed in self._names:
            lasts = survives()  # a renaming as a whole
            for folder, name, what in names:
                if lasts and not any(folder is each for each in flushed):
                    _set(names_of(folder), name, what)
        torn = chance if is_torn else None

        def walk(folder: _Folder, way: tuple[str, ...]) -> Iterator[tuple[str, bytes | None]]:
            for name, inner in names_of(folder).items():
                path = "/".join((*way, name))
                if isinstance(inner, _Folder):
                    yield path, None
                    yield from walk(inner, (*way, name))
                else:
                    yield path, inner.after(survives, torn)

        return dict(walk(self._root, ()))


def _set(names: dict[str, _File | _Folder], name: str, what: _File | _Folder | None) -> None:
    if what is None:
        names.pop(name, None)
    else:
        names[name] = what


def build(content: dict[str, bytes | None], home: Path) -> None:
    """Make these files and folders."""
    home.mkdir(mode=0o700)
    for name, raw in content.items():
        if raw is None:
            (home / name).mkdir(mode=0o700)
        else:
            (home / name).write_bytes(raw)
            os.chmod(home / name, 0o600)
