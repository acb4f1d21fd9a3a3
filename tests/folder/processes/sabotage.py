"""The protocol with one part left out: the checks must notice each of these."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from typing import Any

import expunge.core.files
import expunge.core.place
from expunge.core.place import Place
from expunge.folder.store import Store, slabs
from expunge.folder.store.requests import RequestBook
from expunge.folder.store.slabs import RecordFolder
from expunge.folder.store.store import DurableJournal


def _nothing(*_: Any, **__: Any) -> None:
    pass


def apply_twice() -> None:
    """A request stays pending when its round is switched."""
    RequestBook.mark_switched = _nothing  # type: ignore[method-assign]


def forget_the_ledger_of_predictions() -> None:
    """Answers leave before they are paid for on the disk."""
    DurableJournal.reserve = _nothing  # type: ignore[method-assign]


def forget_dirt() -> None:
    """A failed consensus is kept in memory only."""
    DurableJournal.mark_dirty = _nothing  # type: ignore[method-assign]


def leave_files() -> None:
    """Replaced models and leftovers stay."""
    Store.remove = _nothing  # type: ignore[method-assign]


def leave_rows() -> None:
    """Deleted rows are not overwritten."""
    RecordFolder.erase = _nothing  # type: ignore[method-assign]


def leave_the_log() -> None:
    """The write-ahead log is cut off as it is."""
    Place.overwrite = _nothing  # type: ignore[method-assign]


def leave_bytes() -> None:
    """Files are removed as they are."""
    expunge.core.place.overwrite = _nothing  # type: ignore[attr-defined]


def leave_zeros_in_memory() -> None:
    """What is overwritten is not flushed before it is removed."""
    expunge.core.files.flush_data = _nothing  # type: ignore[assignment]


def keep_names_in_the_database() -> None:
    """A request is named after its key."""
    RequestBook._key = lambda self, key: key.encode()  # type: ignore[assignment,method-assign,union-attr]


def go_on_out_of_step() -> None:
    """An interrupted switch goes on with the round before it."""
    Store.is_at = lambda *_: True  # type: ignore[assignment,method-assign]


def flush_nothing() -> None:
    """Files and folders that SQLite does not write are never flushed."""
    os.fsync = _nothing


def flush_no_folders() -> None:
    """Files are flushed, and their names are not."""
    flush = os.fsync
    os.fsync = lambda descriptor: None if stat.S_ISDIR(os.fstat(descriptor).st_mode) else flush(descriptor)


def write_once() -> None:
    """What a call did not write is not written."""

    def write(descriptor: int, content: Any, offset: int | None = None) -> None:
        view = memoryview(content).cast("B")
        _ = os.write(descriptor, view) if offset is None else os.pwrite(descriptor, view, offset)

    for module in expunge.core.files, expunge.core.place, slabs:
        module.write_all = write  # type: ignore[attr-defined]


SABOTAGE: dict[str, Callable[[], None]] = {
    act.__name__: act
    for act in (
        apply_twice,
        forget_the_ledger_of_predictions,
        forget_dirt,
        leave_files,
        leave_rows,
        leave_the_log,
        leave_bytes,
        leave_zeros_in_memory,
        keep_names_in_the_database,
        go_on_out_of_step,
        flush_nothing,
        flush_no_folders,
        write_once,
    )
}
