"""Putting a new deployment into an old one's place: the old one stays in force until the new one is complete.

    .NAME.xxxxxxxx.new/NAME   the new one is made here, under its own name
    .NAME.xxxxxxxx.old        the old one, between two renamings
    .NAME.xxxxxxxx.gone       what is being removed

The old one steps aside, the new one takes its name, the old one is removed. A process that is killed in between leaves
these behind; `settle` puts things right before the folder is used again. Whoever works on one of them holds its lock.
"""

from __future__ import annotations

import glob
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from expunge.cli.app import Interrupted
from expunge.errors import InputError, StoreError

if TYPE_CHECKING:
    from expunge.store import FolderLock


@contextmanager
def replacing(folder: Path, *, force: bool) -> Iterator[Path]:
    """Where to make a new deployment, which must be closed at the end; what fails or is interrupted changes nothing.

    With `force` that is beside an old deployment, which is then replaced. Nothing but a deployment that no other
    process has open is ever removed.
    """
    settle(folder)
    is_vacant = _is_vacant(folder)
    if not is_vacant and not force:
        raise InputError(f"{folder} exists already; choose another folder, or replace what is in it with --force")
    try:
        if is_vacant:
            yield folder
        else:
            with _beside(folder) as place:
                yield place
    except KeyboardInterrupt:
        raise Interrupted("interrupted; nothing was created") from None


def settle(folder: Path) -> None:
    """Put right what an exchange at this name left that was killed half-way."""
    home = folder.resolve()
    if not home.parent.is_dir():
        return
    for old in _leftovers(home, "old"):
        with _held(old) as is_free:
            if is_free and _is_vacant(home) and (old / "state.db").exists():
                old.rename(home)  # the new one never came
            elif is_free and (home / "state.db").exists():
                _remove(old, home)
    for left in [*_leftovers(home, "new"), *_leftovers(home, "gone")]:
        with _held(left) as is_free:
            if is_free:
                shutil.rmtree(left, ignore_errors=True)


@contextmanager
def _beside(folder: Path) -> Iterator[Path]:
    from expunge.store import FolderLock, Store

    Store.open(folder).close()  # refuses what is no deployment, and one that another process has open
    home = folder.resolve()
    workshop = _hidden(home, "new")
    workshop.mkdir(mode=0o700)
    lock = FolderLock(workshop)
    try:
        place = workshop / home.name
        try:
            yield place
        except StoreError as error:  # about the folder that was asked for
            raise type(error)(str(error).replace(str(place), str(folder))) from error
        _exchange(place, home)
    finally:
        shutil.rmtree(workshop, ignore_errors=True)
        lock.release()


def _exchange(place: Path, home: Path) -> None:
    from expunge.store import FolderLock, flush_file

    lock = FolderLock(home)  # nobody opens it from here on, nor settles what is half done
    try:
        aside = home.rename(_hidden(home, "old"))
        try:
            place.rename(home)
        except BaseException:
            aside.rename(home)
            raise
        flush_file(home.parent)
        _remove(aside, home)
    finally:
        lock.release()


def _remove(old: Path, home: Path) -> None:
    """Remove it under a name by which it would never be taken for a whole one."""
    gone = old.rename(_hidden(home, "gone"))
    shutil.rmtree(gone)


def _hidden(home: Path, ending: str) -> Path:
    return home.with_name(f".{home.name}.{secrets.token_hex(4)}.{ending}")


def _leftovers(home: Path, ending: str) -> list[Path]:
    return sorted(home.parent.glob(f".{glob.escape(home.name)}.{'[0-9a-f]' * 8}.{ending}"))


def _is_vacant(folder: Path) -> bool:
    return not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))


@contextmanager
def _held(folder: Path) -> Iterator[bool]:
    """Whether nobody is at work there; nobody else is, meanwhile."""
    from expunge.store import FolderLock

    lock: FolderLock | None = None
    try:
        lock = FolderLock(folder)
    except StoreError:  # somebody is at work there, or it may not be changed from here
        yield False
        return
    try:
        yield True
    finally:
        lock.release()
