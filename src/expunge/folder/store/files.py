"""Files that are there after a power cut, or not at all: writing, removing and locking, with one-line errors.

Whose a folder is: what one process has opened is no use to the processes that it forks.

A fork copies the books as they are in memory, and two copies of the same books publish more than either of them knows.
So everything here remembers its process, and refuses in every other. SQLite allows neither to use nor to close in a
child what its parent has opened: the child leaves the connection alone for good, and opens the same file no more.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import shutil
import sqlite3
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

from expunge.core.errors import FolderBusyError, FormatError, StoreError
from expunge.core.files import flush_file
from expunge.folder.store.steps import report_step
from expunge.folder.store.threads import for_each


class Owned(Protocol):
    """Something that belongs to the process that made it."""

    def abandon(self) -> None:
        """In a child that was forked: let go without touching what is the parent's. Takes no locks."""


_owned: weakref.WeakSet[Any] = weakref.WeakSet()
_inherited: set[Path] = set()


def own(thing: Owned) -> None:
    """Have it abandoned in every process that this one forks."""
    _owned.add(thing)


def require_own(process: int, folder: Path) -> None:
    """An error unless this is that process."""
    if process != os.getpid():
        raise StoreError(f"{folder} was opened by another process; open it there")


def keep_for_good(connection: Any, path: Path) -> None:
    """Never close this connection, also not at the end of the process; and have no other one to the same file."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
    _inherited.add(path)


def require_not_inherited(folder: Path, path: Path) -> None:
    """An error if the file was open in the process that this one was forked from: SQLite would mix the two up."""
    if path in _inherited:
        raise StoreError(f"{folder} was open when this process was forked; open it in a process that starts afresh")


def _abandon_all() -> None:
    for thing in list(_owned):
        thing.abandon()


os.register_at_fork(after_in_child=_abandon_all)


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_CLOSED = (errno.EACCES, errno.EPERM, errno.EROFS)
_MODELS = "models"  # the folder with one file a model


@contextlib.contextmanager
def explain_errors(folder: Path) -> Iterator[None]:
    """Turn what the disk says into one line that names the folder."""
    try:
        yield
    except FileNotFoundError as error:
        path = Path(error.filename)
        what = f"the file {path}" if _without_shard(path) == path else f"a file in {path.parent}"
        raise FormatError(f"{folder} is damaged: {what} is missing") from error
    except OSError as error:
        raise StoreError(f"{folder}: {_reason(error)}; nothing was lost") from error
    except sqlite3.DatabaseError as error:
        if "malformed" in str(error) or "not a database" in str(error):
            raise FormatError(f"{folder} is damaged: {error} (state.db)") from error
        raise StoreError(f"{folder}: {_database_reason(error)}; nothing was lost") from error


def _reason(error: OSError) -> str:
    if error.errno in _FULL:
        return "no space left on the disk"
    if error.errno in _CLOSED:
        return "the folder cannot be written to"
    reason = (error.strerror or str(error)).lower()
    return reason if error.filename is None else f"{reason}: {_without_shard(Path(error.filename))}"


def _without_shard(path: Path) -> Path:
    """Of a model's file the folder: which shard's was being written depends on r."""
    return path.parent if path.parent.name == _MODELS else path


def _database_reason(error: sqlite3.DatabaseError) -> str:
    text = str(error)
    if "disk is full" in text or "disk I/O" in text:
        return "no space left on the disk, or the disk failed"
    if "readonly" in text or "unable to open" in text:
        return "the folder cannot be written to"
    return f"the database says: {text}"


def flush_files(paths: Iterable[Path]) -> None:
    """Flush many files and folders at once: the disk does them together."""
    for_each(flush_file, list(paths))


def remove_paths(paths: Iterable[Path]) -> None:
    """Remove files, and folders with all that is in them, for good: also from their folders' lists on the disk."""
    paths = list(paths)
    for_each(_remove_path, paths)  # freeing what is on the disk takes its time
    flush_files({path.parent for path in paths})


def _remove_path(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    report_step("remove.file")


class FolderLock:
    """One writer a folder. The operating system gives the lock back when the process ends, however it ends.

    Nothing that the process starts keeps it: a forked child lets go at once, another program never has it.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "lock"
        with explain_errors(folder):
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = os.pread(self._descriptor, 32, 0).decode("ascii", "replace").strip()
            os.close(self._descriptor)
            by = f"process {owner}" if owner else "another process"
            raise FolderBusyError(f"{folder} is in use by {by}; close it there first") from None
        with contextlib.suppress(OSError):  # a full disk must not keep anybody from opening the folder
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)
        own(self)

    def release(self) -> None:
        """Let others in."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def abandon(self) -> None:
        """In a forked child: the lock is the parent's, and ends with the parent."""
        self.release()
