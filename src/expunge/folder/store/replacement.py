"""A new deployment in an old one's place, by renaming: at every instant one of the two is there, whole.

    .NAME.xxxxxxxx.new/NAME   the new one is made here, under its own name
    .NAME.xxxxxxxx.old        the old one, between two renamings
    .NAME.xxxxxxxx.gone       what is being removed

The old one steps aside, the new one takes its name, the old one is removed. A process that is killed in between leaves
these behind; `recover_replacement` puts things right before the folder is used again. A process that works on one of
them holds its lock.
"""

from __future__ import annotations

import contextlib
import glob
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from expunge.core.errors import StoreError
from expunge.core.files import flush_file
from expunge.folder.store.files import FolderLock, explain_errors


def recover_replacement(folder: Path) -> None:
    """Put right what an replace_folder at this name left that was killed half-way."""
    home = folder.resolve()
    if not home.parent.is_dir():
        return
    for old in _leftovers(home, "old"):
        with _held(old) as is_free:
            if is_free and is_vacant(home) and (old / "state.db").exists():
                with explain_errors(home):
                    old.rename(home)  # the new one never came
                    flush_file(home.parent)
            elif is_free and (home / "state.db").exists():
                with contextlib.suppress(OSError):  # what cannot be removed keeps nobody from using the new one
                    _remove(old, home)
    for left in [*_leftovers(home, "new"), *_leftovers(home, "gone")]:
        with _held(left) as is_free:
            if is_free:
                shutil.rmtree(left, ignore_errors=True)


def replace_folder(place: Path, home: Path) -> None:
    """Put the deployment at `place`, closed, where another one is, which is removed."""
    lock = FolderLock(home)  # nobody opens it from here on, nor settles what is half done
    try:
        aside = home.rename(hidden_name(home, "old"))
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
    gone = old.rename(hidden_name(home, "gone"))
    shutil.rmtree(gone)


def hidden_name(home: Path, ending: str) -> Path:
    """A name beside the folder that `recover_replacement` knows."""
    return home.with_name(f".{home.name}.{secrets.token_hex(4)}.{ending}")


def _leftovers(home: Path, ending: str) -> list[Path]:
    return sorted(home.parent.glob(f".{glob.escape(home.name)}.{'[0-9a-f]' * 8}.{ending}"))


def is_vacant(folder: Path) -> bool:
    """Whether nothing is there."""
    return not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))


@contextmanager
def _held(folder: Path) -> Iterator[bool]:
    """Whether nobody is at work there; nobody else is, meanwhile."""
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
