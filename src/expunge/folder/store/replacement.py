"""Replacing a deployment's folder by renaming: at every moment the old one or the new one is complete.

    .NAME.xxxxxxxx.new/NAME   the new deployment is made here, under its own name
    .NAME.xxxxxxxx.old        the old deployment, between the two renamings
    .NAME.xxxxxxxx.gone       the old deployment, while it is removed

The old folder is renamed, the new one takes its name, and the old one is removed. A process that is killed in between
leaves these folders behind; `recover_replacement` restores order before the folder is used again. A process that works
on one of them holds its lock.
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
    """Finish, or undo, a replacement of this folder that was killed half-way.

    If the new deployment is in place, the old one is removed. If no deployment is there, the old one is put back.

    Parameters
    ----------
    folder
        The folder's own name. Nothing needs to be there.
    """
    home = folder.resolve()
    if not home.parent.is_dir():
        return
    for old in _leftovers(home, "old"):
        with _held(old) as is_free:
            if is_free and is_vacant(home) and (old / "state.db").exists():
                with explain_errors(home):
                    old.rename(home)  # the new one was never put in place
                    flush_file(home.parent)
            elif is_free and (home / "state.db").exists():
                with contextlib.suppress(OSError):  # the new one can be used even if the old one cannot be removed
                    _remove(old, home)
    for left in [*_leftovers(home, "new"), *_leftovers(home, "gone")]:
        with _held(left) as is_free:
            if is_free:
                shutil.rmtree(left, ignore_errors=True)


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
    lock = FolderLock(home)  # from here on no process can open it, or recover it
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
    """Remove the old folder, under a name that marks it as incomplete."""
    gone = old.rename(hidden_name(home, "gone"))
    shutil.rmtree(gone)


def hidden_name(home: Path, ending: str) -> Path:
    """Make a new hidden name beside a folder, of the kind that `recover_replacement` looks for.

    Parameters
    ----------
    home
        The folder.
    ending
        "new", "old" or "gone".

    Returns
    -------
    Path
        The name, such as `.NAME.xxxxxxxx.new`.
    """
    return home.with_name(f".{home.name}.{secrets.token_hex(4)}.{ending}")


def _leftovers(home: Path, ending: str) -> list[Path]:
    return sorted(home.parent.glob(f".{glob.escape(home.name)}.{'[0-9a-f]' * 8}.{ending}"))


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
    return not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))


@contextmanager
def _held(folder: Path) -> Iterator[bool]:
    """Lock a folder for the block, and yield whether that succeeded."""
    lock: FolderLock | None = None
    try:
        lock = FolderLock(folder)
    except StoreError:  # another process is at work there, or it may not be changed from here
        yield False
        return
    try:
        yield True
    finally:
        lock.release()
