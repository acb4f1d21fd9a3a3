"""`create --force`: a new deployment in an old one's place, which stays in force until the new one is complete.

The renaming is that of `expunge.store.replacement`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from expunge.cli.app import Interrupted
from expunge.errors import InputError, StoreError


@contextmanager
def replacing(folder: Path, *, force: bool) -> Iterator[Path]:
    """Where to make a new deployment, which must be closed at the end; what fails or is interrupted changes nothing.

    With `force` that is beside an old deployment, which is then replaced. Nothing but a deployment that no other
    process has open is ever removed.
    """
    from expunge.store import is_vacant

    settle(folder)
    is_first = is_vacant(folder)
    if not is_first and not force:
        raise InputError(f"{folder} exists already; choose another folder, or replace what is in it with --force")
    try:
        if is_first:
            yield folder
        else:
            with _beside(folder) as place:
                yield place
    except KeyboardInterrupt:
        raise Interrupted("interrupted; nothing was created") from None


def settle(folder: Path) -> None:
    """Put right what an exchange at this name left that was killed half-way."""
    from expunge.store import settle as settle_folder

    settle_folder(folder)


@contextmanager
def _beside(folder: Path) -> Iterator[Path]:
    from expunge.store import FolderLock, Store, exchange, hidden

    Store.open(folder).close()  # refuses what is no deployment, and one that another process has open
    home = folder.resolve()
    workshop = hidden(home, "new")
    workshop.mkdir(mode=0o700)
    lock = FolderLock(workshop)
    try:
        place = workshop / home.name
        try:
            yield place
        except StoreError as error:  # about the folder that was asked for
            raise type(error)(str(error).replace(str(place), str(folder))) from error
        exchange(place, home)
    finally:
        shutil.rmtree(workshop, ignore_errors=True)
        lock.release()
