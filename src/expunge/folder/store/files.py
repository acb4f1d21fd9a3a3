"""Flushing, removing and locking files, with errors of one line; and refusing to be used after a fork.

A fork copies the budget in memory, and two copies of one budget would publish more than each of them counts. So a
folder remembers the process that opened it, and refuses to be used in any other. SQLite does not allow a child process
to use or to close a connection of its parent: the child never touches it, and never opens the same file again.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import re
import sqlite3
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

from expunge.core.errors import ExpungeError, FolderBusyError, FormatError, StoreError
from expunge.core.place import Place
from expunge.folder.store.steps import report_step
from expunge.folder.store.threads import for_each


class Owned(Protocol):
    """An object that belongs to the process that made it."""

    def abandon(self) -> None:
        """Release it in a forked child, without touching what belongs to the parent. Takes no locks."""


_owned: weakref.WeakSet[Any] = weakref.WeakSet()
_inherited: set[Path] = set()


def own(thing: Owned) -> None:
    """Have an object abandoned in every process that this one forks."""
    _owned.add(thing)


def require_own(process: int, folder: Path) -> None:
    """Raise an error unless this is the process with that number."""
    if process != os.getpid():
        raise StoreError(f"{folder} was opened by another process; open it there")


def keep_for_good(connection: Any, path: Path) -> None:
    """Never close this connection, not even at the end of the process, and refuse others to the same file."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
    _inherited.add(path)


def require_not_inherited(folder: Path, path: Path) -> None:
    """Raise an error if the file was open in the parent process at the fork: SQLite would confuse the two."""
    if path in _inherited:
        raise StoreError(f"{folder} was open when this process was forked; open it in a process that starts afresh")


def _abandon_all() -> None:
    for thing in list(_owned):
        thing.abandon()


os.register_at_fork(after_in_child=_abandon_all)


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_CLOSED = (errno.EACCES, errno.EPERM, errno.EROFS)
_KEEP_SIZE = 1  # FALLOC_FL_KEEP_SIZE
_MODELS = "models"  # the folder with one file a model


class explain_errors:
    """Turn errors of the disk and the database into one line that names the folder."""

    __slots__ = ("_folder",)

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: object) -> None:
        if isinstance(error, OSError | sqlite3.DatabaseError):
            raise explained(self._folder, error) from error


def explained(folder: Path, error: OSError | sqlite3.DatabaseError) -> ExpungeError:
    """An error of the disk or the database in one line that names the folder."""
    if isinstance(error, FileNotFoundError):
        path = Path(error.filename)
        if path == folder:
            return StoreError(f"{folder} is not there, and cannot be made")
        what = f"the file {path}" if _without_shard(path) == path else f"a file in {path.parent}"
        return FormatError(f"{folder} is damaged: {what} is missing")
    if isinstance(error, OSError):
        return StoreError(f"{folder}: {_reason(error)}; nothing was lost")
    if "malformed" in str(error) or "not a database" in str(error):
        return FormatError(f"{folder} is damaged: {error} (state.db)")
    return StoreError(f"{folder}: {_database_reason(error)}; nothing was lost")


@contextlib.contextmanager
def explain_damage(folder: Path) -> Iterator[None]:
    """Turn any error of reading into one line: in a stranger's folder a row says anything, and its checksum fits."""
    try:
        with explain_errors(folder):
            yield
    except ExpungeError:  # some are also a ValueError
        raise
    except (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError) as error:
        raise FormatError(describe_damage(folder, error)) from error


def describe_damage(folder: Path, error: Exception) -> str:
    """Describe an error that only something malformed in the folder can cause."""
    detail = "".join(each if each.isprintable() else " " for each in " ".join(str(error).split()))
    return f"{folder} is damaged: {type(error).__name__}: {detail:.200}. Put the folder back from a copy, as a whole"


def _reason(error: OSError) -> str:
    if error.errno in _FULL:
        return "no space left on the disk"
    if error.errno in _CLOSED:
        return "the folder cannot be written to"
    reason = (error.strerror or str(error)).lower()
    return reason if error.filename is None else f"{reason}: {_without_shard(Path(error.filename))}"


def _without_shard(path: Path) -> Path:
    """Return the folder of a model's file, instead of the file: which shard it belongs to depends on r."""
    return path.parent if path.parent.name == _MODELS else path


def _database_reason(error: sqlite3.DatabaseError) -> str:
    text = str(error)
    if "disk is full" in text or "disk I/O" in text:
        return "no space left on the disk, or the disk failed"
    if "readonly" in text or "unable to open" in text:
        return "the folder cannot be written to"
    return f"the database says: {text}"


def flush_files(places: Iterable[Place]) -> None:
    """Flush many files and folders at once: the disk does them together."""
    for_each(Place.flush, list(places))


def take_blocks(place: Place, size: int) -> None:
    """Take the blocks of a file's first `size` bytes from the disk, without changing its length.

    Only on Linux, and only if there is room: a folder on a full disk can still be opened.
    """
    take = getattr(ctypes.CDLL(None), "fallocate", None)
    if take is None:
        return
    take.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    descriptor = place.open(os.O_RDWR)
    try:
        take(descriptor, _KEEP_SIZE, 0, size)
    finally:
        os.close(descriptor)


def remove_places(places: Iterable[Place]) -> None:
    """Remove files, and folders with their contents.

    They are zeros by then: it does no harm if a name comes back after a loss of power, and the next opening removes it.
    """
    for_each(remove_place, list(places))  # freeing space on the disk takes time


def remove_place(place: Place) -> None:
    """Remove a file, or a folder with its contents."""
    if place.is_folder():
        place.remove_tree()
    else:
        place.unlink(missing_ok=True)
    report_step("remove.file")


_ADDRESS = re.compile(r"https?://[\x21-\x7e]{1,200}")


def _noted(descriptor: int) -> tuple[str, str]:
    """The process that holds a lock, and where it listens; empty texts if they are not known."""
    lines = [*os.pread(descriptor, 256, 0).decode("ascii", "replace").splitlines(), "", ""]
    return lines[0] if lines[0].isdigit() else "", lines[1] if _ADDRESS.fullmatch(lines[1]) else ""


def read_address(folder: Place) -> str | None:
    """Where the process listens that holds a folder's lock, as it said; None if it said nothing."""
    try:
        descriptor = (folder / "lock").open(os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        return _noted(descriptor)[1] or None
    finally:
        os.close(descriptor)


class FolderLock:
    """The lock that lets one process at a time write to a folder.

    The operating system releases the lock when the process ends, however it ends. A forked child releases its copy at
    once, and a program that the process starts never has it.

    Parameters
    ----------
    folder
        The folder, which must exist.

    Raises
    ------
    FolderBusyError
        If another process holds the lock. The message names the process.
    FormatError
        If `lock` is not a file of this user's own.
    StoreError
        If the folder cannot be written to.
    """

    def __init__(self, folder: Path | Place) -> None:
        path = folder.path if isinstance(folder, Place) else folder
        with explain_errors(path):
            self._descriptor = (Place.hold(folder) / "lock").open(os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner, address = _noted(self._descriptor)
            os.close(self._descriptor)
            by = f"process {owner}" if owner else "another process"
            by += f" ({address})" if address else ""
            raise FolderBusyError(f"{path} is in use by {by}; close it there first") from None
        self.note("")
        own(self)

    def note(self, address: str) -> None:
        """Write down who holds the lock: the number of this process, and where it listens if it does."""
        with contextlib.suppress(OSError):  # a folder on a full disk can still be opened
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()}\n{address}\n".encode(), 0)

    def release(self) -> None:
        """Let other processes open the folder."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def abandon(self) -> None:
        """Release the copy in a forked child: the lock belongs to the parent, and ends with it."""
        self.release()
