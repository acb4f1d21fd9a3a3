"""Folders beside a deployment's own: a new one is made there, an old one put aside, and both can be left by a crash.

    .NAME.xxxxxxxx.partial    a deployment (or a bundle, or a back-up) while it is made
    .NAME.xxxxxxxx.new/NAME   the new deployment that replaces another is made here, under its own name
    .NAME.xxxxxxxx.old        the old deployment, between the two renamings
    .NAME.xxxxxxxx.gone       the old deployment, while it is removed

The old folder is renamed, the new one takes its name, and the old one is removed: at every moment one of them is
complete. A process that is killed in between leaves these folders behind; `recover_replacement` restores order before
the folder is used again. A process that works on one of them holds its lock.

Other users may be able to make folders beside this one, with such names. So a name alone is not believed: a folder is
touched only if it belongs to this user, no other user may write to it, and everything in it is something that is made
here (`_is_ours`).
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from expunge.core.errors import FolderBusyError, StoreError
from expunge.core.files import flush_file
from expunge.core.place import Place, is_private
from expunge.folder.store.database import NAME, is_database
from expunge.folder.store.files import FolderLock, explain_errors
from expunge.folder.store.leases import REPLICAS, find_replicas
from expunge.folder.store.tally import MOMENT

_LAST = (NAME, "lock")  # what is removed last: it says what the folder was
_PARTS = frozenset({"records", "models", "waiting", "design", "keys", REPLICAS})
_SHARED = ("access.json", "integrations.json")  # of the service
_FILES = frozenset({NAME, f"{NAME}-wal", f"{NAME}-shm", f"{NAME}-journal", "lock", "dirty", MOMENT, *_SHARED})
_PARTIAL = re.compile(r"\.(.+)\.[0-9a-f]{8}\.partial")
_FIRST_MINUTE = 60.0  # seconds
_BUNDLE = frozenset({"manifest.json", "signature.json", "learner", "records"})


def recover_replacement(folder: Path) -> None:
    """Finish, or undo, a replacement of this folder that was killed half-way.

    If the new deployment is in place, the old one is removed. If no deployment is there, the old one is put back.

    Parameters
    ----------
    folder
        The folder's own name. Nothing needs to be there.
    """
    home = folder.resolve()
    for old in _leftovers(home, "old"):
        with _held(old, lambda place: _is_deployment(place, has_database=True)) as place:
            if place is None:
                continue
            if is_vacant(home):
                with explain_errors(home):
                    old.rename(home)  # the new one was never put in place
                    flush_file(home.parent)
            elif (home / NAME).is_file():
                with contextlib.suppress(OSError):  # the new one can be used even if the old one cannot be removed
                    _remove(old, home, place)
    for left in (*_leftovers(home, "new"), *_leftovers(home, "gone")):
        _remove_leftover(left, home)


def remove_abandoned(folder: Path) -> None:
    """Remove what killed attempts to make this folder left behind, or others beside it: it holds people's data.

    Other folders are left alone for their first minute, in which another process may have begun to make one.

    Parameters
    ----------
    folder
        The folder, by its absolute path.
    """
    for left in _leftovers(folder, "partial"):
        _remove_leftover(left, folder)
    with contextlib.suppress(OSError):
        for name in sorted(os.listdir(folder.parent)):
            if (found := _PARTIAL.fullmatch(name)) and found[1] != folder.name:
                home = folder.with_name(found[1])
                for left in (each for each in _leftovers(home, "partial") if each.name == name and _is_old(each)):
                    _remove_leftover(left, home)


def _is_old(left: Path) -> bool:
    with contextlib.suppress(OSError):
        return time.time() - os.stat(left, follow_symlinks=False).st_mtime > _FIRST_MINUTE
    return False


def replace_folder(place: Path, home: Path) -> None:
    """Put a new deployment where another one is, and remove the other.

    Parameters
    ----------
    place
        The new deployment, closed.
    home
        The folder to replace.

    Raises
    ------
    FolderBusyError
        If another process has the old deployment open.
    """
    held = Place.hold(home)
    lock = FolderLock(held)  # from here on no process can open it, or recover it
    try:
        for each in find_replicas(held):
            raise FolderBusyError(f"{home} is in use by a replica, process {each.process}; stop it first")
        aside = home.rename(hidden_name(home, "old"))
        try:
            place.rename(home)
        except BaseException:
            aside.rename(home)
            raise
        flush_file(home.parent)
        _remove(aside, home, held)
    finally:
        lock.release()


@contextmanager
def workshop(home: Path, ending: str) -> Iterator[Path]:
    """Make a folder of this process beside another one. It is locked, and removed at the end unless it was renamed.

    Parameters
    ----------
    home
        The folder beside which it is made, by its absolute path.
    ending
        "new" or "partial".

    Yields
    ------
    Path
        The folder.
    """
    path = hidden_name(home, ending)
    path.mkdir(mode=0o700)
    held = Place.hold(path)
    lock = FolderLock(held)
    try:
        yield path
    finally:
        remove_made(path, held)
        lock.release()


def remove_made(path: Path, held: Place | None = None) -> None:
    """Remove a folder that this process made, as far as the disk permits, if it still has its name.

    Parameters
    ----------
    path
        The folder.
    held
        The folder as it is held open, if it is.
    """
    with contextlib.suppress(OSError, StoreError):
        _empty(path, Place.hold(path) if held is None else held)


def _remove(old: Path, home: Path, held: Place) -> None:
    """Remove the old folder, under a name that marks it as incomplete."""
    _empty(old.rename(hidden_name(home, "gone")), held)


def _empty(path: Path, held: Place) -> None:
    """Remove all that is in the folder that is held open, and the folder itself if it has this name."""
    if held.is_at(path):
        held.clear(last=_LAST)
        path.rmdir()


def _remove_leftover(left: Path, home: Path) -> None:
    with _held(left, lambda place: _is_ours(place, home)) as place:
        if place is not None:
            remove_made(left, place)


def hidden_name(home: Path, ending: str) -> Path:
    """Make a new hidden name beside a folder, of the kind that `recover_replacement` looks for.

    Parameters
    ----------
    home
        The folder.
    ending
        "new", "old", "gone" or "partial".

    Returns
    -------
    Path
        The name, such as `.NAME.xxxxxxxx.new`.
    """
    return home.with_name(f".{home.name}.{secrets.token_hex(4)}.{ending}")


def _leftovers(home: Path, ending: str) -> list[Path]:
    """Folders of this user with such a name, which no other user may write to."""
    name = re.compile(rf"\.{re.escape(home.name)}\.[0-9a-f]{{8}}\.{ending}")
    found = []
    with contextlib.suppress(OSError):
        for each in sorted(os.listdir(home.parent)):
            with contextlib.suppress(OSError):
                if name.fullmatch(each) and is_private(os.stat(home.parent / each, follow_symlinks=False)):
                    found.append(home.parent / each)
    return found


def is_vacant(folder: Path) -> bool:
    """Return whether a new folder may be made here.

    Parameters
    ----------
    folder
        The place.

    Returns
    -------
    bool
        Whether there is nothing, or an empty folder.
    """
    return not os.path.lexists(folder) or (folder.is_dir() and not any(folder.iterdir()))


@contextmanager
def _held(folder: Path, is_ours: Callable[[Place], bool]) -> Iterator[Place | None]:
    """Hold and lock a folder for the block. None if another process is at work there, or it is not ours."""
    lock: FolderLock | None = None
    try:
        place = Place.hold(folder)
        if place.is_at(folder) and is_ours(place):  # before a lock is written into it
            lock = FolderLock(place)
    except (StoreError, OSError):
        pass
    if lock is None:
        yield None
        return
    try:
        yield place if is_ours(place) else None
    finally:
        lock.release()


def _is_ours(place: Place, home: Path) -> bool:
    """Whether everything in the folder is something that is made here. Anything else, and it is left alone."""
    with contextlib.suppress(StoreError, OSError):
        if _is_deployment(place):
            return True
        partial = re.compile(rf"\.{re.escape(home.name)}\.[0-9a-f]{{8}}\.partial")
        for child in place.iterdir():
            if child.name == "lock":
                child.stat()
            elif child.name == "backup":
                if not child.is_file():  # it may have its final name already, beside this one
                    return False
            elif child.name == "bundle":
                child.require_sound()
                if not set(child.names()) <= _BUNDLE:
                    return False
            elif not (child.name in (home.name, "copy") or partial.fullmatch(child.name)) or not _is_deployment(child):
                return False
        return True
    return False


def _is_deployment(place: Place, *, has_database: bool = False) -> bool:
    """Whether it is a deployment, whole or begun or half removed, with nothing in it that is not one's own."""
    with contextlib.suppress(StoreError, OSError):
        holds_data = has_database
        for child in place.iterdir():
            if child.name in _PARTS and child.is_folder():
                child.require_sound()
                holds_data = holds_data or bool(child.names())
            elif child.name in _FILES:
                child.stat()
            else:
                return False
        if not holds_data:
            return True
        return (place / NAME).exists() and is_database(place)
    return False
