"""Whose a folder is: what one process has opened is no use to the processes that it forks.

A fork copies the books as they are in memory, and two copies of the same books publish more than either of them knows.
So everything here remembers its process, and refuses in every other. SQLite allows neither to use nor to close in a
child what its parent has opened: the child leaves the connection alone for good, and opens the same file no more.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from pathlib import Path
from typing import Any, Protocol

from expunge.errors import StoreError


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
