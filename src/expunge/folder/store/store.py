"""One deployment's folder: what is where, and the few things that are changed one by one.

    state.db (+ -wal, -shm)   everything small: settings, requests, shards and seeds, books, ledger
    records/EPOCH/            the records as columns (`slabs`)
    models/                   one file a model
    waiting/                  records of accepted additions that are not applied yet
    design/                   the certified tables of the consensus gate
    keys/                     the signing key, and the key that ids are hashed with
    lock                      held by the one process that may write
    dirty                     whether a consensus failed, for when state.db has no room (`mark`)

Everything in it but keys/*.pub and certificates made from it is inside the trust boundary.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expunge.core.errors import FormatError, StoreError
from expunge.core.files import flush_file
from expunge.folder.store.columns import Form
from expunge.folder.store.database import Database, require_deployment
from expunge.folder.store.files import FolderLock, explain_errors, remove_paths, require_own
from expunge.folder.store.slabs import RecordFolder
from expunge.folder.store.steps import report_step
from expunge.folder.store.threads import for_each

_FOLDERS = ("records", "models", "waiting", "design", "keys")
_WAITING = "SELECT file FROM requests WHERE file IS NOT NULL"
_BLOCKS = 64  # a budget is reserved in about so many pieces
_LARGEST_BLOCK = 10_000


@dataclass(frozen=True, slots=True)
class Position:
    """Where the deployment stands."""

    generation: int
    round: int
    epoch: int
    num_slots: int
    models_trained: int
    serving: dict[str, Any]


class Store:
    """A deployment's folder, open; made by `new` or `open`."""

    def __init__(self, folder: Path, database: Database, lock: FolderLock | None) -> None:
        self.folder = folder
        self.database = database
        self._lock = lock
        self._process = os.getpid()

    @classmethod
    def new(cls, folder: Path) -> Store:
        """An empty folder made ready; it must not exist."""
        with explain_errors(folder):
            folder.mkdir(mode=0o700, parents=True)
            for name in _FOLDERS:
                (folder / name).mkdir(mode=0o700)
        lock = FolderLock(folder)
        return cls(folder, Database(folder, is_new=True), lock)

    @classmethod
    def open(cls, folder: Path, *, read_only: bool = False) -> Store:
        """An existing folder; for writing only one process at a time may have it."""
        require_deployment(folder)  # before a lock is made in somebody else's folder
        if read_only:
            return cls(folder, Database(folder, read_only=True), None)
        lock = FolderLock(folder)
        try:
            store = cls(folder, Database(folder), lock)
        except BaseException:
            lock.release()
            raise
        try:
            report_step("open.locked")
            with explain_errors(folder):
                store._check_writable()
                store._recover()
            return store
        except BaseException:
            store.close()
            raise

    def _check_writable(self) -> None:
        """Find out now, and not after an hour of training."""
        probe = self.folder / "models" / ".probe"
        probe.touch()
        probe.unlink()

    def _recover(self) -> None:
        """Finish what a crash cut short, before anything is read: a row half overwritten is no row.

        A reader that holds the log keeps nobody from opening the folder: nothing counts as erased before the log is
        empty.
        """
        self.sweep()
        self.overwrite()
        with contextlib.suppress(StoreError):
            self.database.checkpoint()
        report_step("open.swept")

    def close(self) -> None:
        """Leave nothing in the log, and let go. In a forked child there is nothing to let go of."""
        if not self.is_own:
            return
        with contextlib.suppress(StoreError, sqlite3.Error):
            if self._lock is not None:
                self.database.checkpoint()
        self.database.close()
        if self._lock is not None:
            self._lock.release()

    @property
    def is_own(self) -> bool:
        """Whether this process opened it, and no process that it was forked from."""
        return self._process == os.getpid()

    def require_own(self) -> None:
        """An error in every other process."""
        require_own(self._process, self.folder)

    def fact(self, name: str) -> Any:
        """A fact of the deployment."""
        row = self.database.row("SELECT value FROM facts WHERE name = ?", (name,))
        if row is None:
            raise FormatError(f"{self.folder} lacks the fact {name!r}: it is damaged")
        return json.loads(row[0])

    def write_fact(self, name: str, value: Any) -> None:
        """Write a fact down."""
        self.database.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, json.dumps(value)))

    def object(self, name: str) -> tuple[str, bytes] | None:
        """An encoded object: format and bytes."""
        row = self.database.row("SELECT format, data FROM objects WHERE name = ?", (name,))
        return None if row is None else (row[0], row[1])

    def put_object(self, name: str, form: str, data: bytes) -> None:
        """Write an encoded object down."""
        self.database.execute("INSERT OR REPLACE INTO objects VALUES (?, ?, ?)", (name, form, data))

    @property
    def position(self) -> Position:
        """Where the deployment stands."""
        row = self.database.row(
            "SELECT generation, round, epoch, num_slots, models_trained, serving FROM position WHERE only = 1"
        )
        if row is None:
            raise FormatError(f"{self.folder} was never finished: create it again")
        generation, round_, epoch, num_slots, models_trained, serving = row
        return Position(generation, round_, epoch, num_slots, models_trained, json.loads(serving))

    def is_at(self, generation: int, round: int) -> bool:
        """Whether the folder stands there: an interruption between disk and memory parts the two for good."""
        row = self.database.row("SELECT generation, round FROM position WHERE only = 1")
        return row == (generation, round)

    @property
    def form(self) -> Form:
        """How the records are stored."""
        return Form.from_json(self.fact("form"))

    @property
    def records(self) -> RecordFolder:
        """The records' columns."""
        return RecordFolder(self.epoch_path(self.position.epoch), self.form)

    def epoch_path(self, epoch: int) -> Path:
        """Where an epoch's columns are."""
        return self.folder / "records" / f"{epoch:06d}"

    def sweep(self) -> None:
        """Remove all that the database does not know: replaced models, and leftovers of what never happened.

        Only while nothing is being staged. Requests may be accepted meanwhile.
        """
        num_slots, strays, records = self.position.num_slots, self._strays(), self.records
        self.remove(strays)
        records.cut(num_slots)

    def _strays(self) -> list[Path]:
        current = self.epoch_path(self.position.epoch)
        old = [path for path in (self.folder / "records").iterdir() if path != current]
        return [*self._unknown("models", "SELECT file FROM shards"), *self._unknown("waiting", _WAITING), *old]

    def remove(self, strays: list[Path]) -> None:
        """These files and epochs, for good."""
        remove_paths(strays)

    def erase(self) -> None:
        """Overwrite deleted records, remove replaced files, empty the log: all at once, for it is waiting for the disk.

        Nothing of it depends on the rest, and all of it may be repeated at will.
        """
        num_slots, strays, records = self.position.num_slots, self._strays(), self.records
        slots = self._slots_to_erase()

        def overwrite() -> None:
            records.erase(slots)
            records.cut(num_slots)  # after it: rows that are erased at the end of a file go altogether
            report_step("erase.slots")

        def sweep() -> None:
            self.remove(strays)
            report_step("erase.files")

        def empty_log() -> None:
            self.database.checkpoint()
            report_step("erase.checkpoint")

        for_each(lambda act: act(), [overwrite, sweep, empty_log])

    def overwrite(self) -> None:
        """Zeros over every deleted record that is not known to be overwritten. May be repeated at will."""
        self.records.erase(self._slots_to_erase())

    def _slots_to_erase(self) -> NDArray[np.int64]:
        rows = self.database.rows("SELECT slot FROM dead WHERE erased = 0 ORDER BY slot")
        return np.array(rows, dtype=np.int64).reshape(-1)

    def tidy(self) -> None:
        """After a failure: remove what it has left, as far as the disk permits; only while nothing is being staged.

        The log is emptied first, so that a commit which failed half-way cannot come back from it without its files.
        """
        with contextlib.suppress(StoreError, OSError):
            self.database.checkpoint()
            self.sweep()

    def drop_refused(self) -> None:
        """The same for a request that could not be accepted; also while something is being staged."""
        with contextlib.suppress(StoreError, OSError):
            self.database.checkpoint()
            remove_paths(self._unknown("waiting", _WAITING))

    def _unknown(self, folder: str, query: str) -> list[Path]:
        """Files are listed before the database is asked, which answers when the transaction that wrote one is over."""
        there = list((self.folder / folder).iterdir())
        report_step("sweep.listed")
        known = {row[0] for row in self.database.rows(query)}
        return [path for path in there if path.name not in known]

    def reserved(self, generation: int) -> tuple[int, bool, dict[str, Any]]:
        """The books of a generation: predictions paid for, dirty, and the secret of its gate."""
        row = self.database.row("SELECT reserved, dirty, gate FROM generations WHERE generation = ?", (generation,))
        if row is None:
            raise FormatError(f"{self.folder} lacks the books of generation {generation}: it is damaged")
        return row[0], bool(row[1]) or DirtyFlag(self.folder, generation).is_set, json.loads(row[2])

    def add_generation(self, generation: int, predictions: int, dirty: bool, secret: dict[str, Any]) -> None:
        """The books of a new generation. The secret of the one before has served its time."""
        self.database.execute("UPDATE generations SET gate = '{}'")
        self.database.execute(
            "INSERT INTO generations VALUES (?, ?, ?, ?)", (generation, predictions, int(dirty), json.dumps(secret))
        )

    @contextlib.contextmanager
    def explain_errors(self) -> Iterator[None]:
        """What the disk says, as one line."""
        with explain_errors(self.folder):
            yield


class DurableJournal:
    """The `Journal` of one generation's publisher: reserves predictions in durable blocks, before they are released.

    A crash forfeits the rest of a block: the reserved number counts as published from then on.
    """

    def __init__(self, store: Store, generation: int, reserved: int, *, block: int | None = None) -> None:
        self._store = store
        self._generation = generation
        self._reserved = reserved
        self._block = block
        self._flag = DirtyFlag(store.folder, generation)
        self._flag.prepare()
        self._owes_dirty = self._flag.is_set  # and the database may not know

    def reserve(self, total: int, limit: float) -> None:
        """Have `total` on the disk, and a block more if the limit leaves room."""
        self._store.require_own()
        if self._owes_dirty:
            self.mark_dirty()
        if total <= self._reserved:
            return
        block = self._block if self._block is not None else int(max(min(limit / _BLOCKS, _LARGEST_BLOCK), 1))
        wanted = int(max(total, min(total + block - 1, limit)))
        report_step("reserve.open")
        self._store.database.execute(
            "UPDATE generations SET reserved = MAX(reserved, ?) WHERE generation = ?", (wanted, self._generation)
        )
        self._reserved = wanted
        report_step("reserve.done")

    def mark_dirty(self) -> None:
        """Have it on the disk before the answer that made it so leaves; if the disk fails, before any later answer.

        A disk that is full is no failure: an error here would be seen by whoever asked, at no other time than now.
        """
        self._store.require_own()
        self._owes_dirty = True
        is_flagged = self._flag.set()
        report_step("dirty.flagged")
        try:
            self._store.database.execute("UPDATE generations SET dirty = 1 WHERE generation = ?", (self._generation,))
        except (StoreError, sqlite3.Error):
            if not is_flagged:
                raise
            return
        self._owes_dirty = False
        report_step("dirty.done")

    def close(self, predictions: int | None) -> None:
        """At an orderly end, give the unused rest of the block back; None if it is not known what was used.

        Only what this very object has reserved is given back: if the disk says another number, somebody else has.
        """
        self._store.require_own()
        if self._owes_dirty:
            self.mark_dirty()
        report_step("close.open")
        if predictions is not None:
            self._store.database.execute(
                "UPDATE generations SET reserved = CASE reserved WHEN ? THEN ? ELSE MAX(reserved, ?) END "
                "WHERE generation = ?",
                (self._reserved, predictions, predictions, self._generation),
            )
        report_step("close.done")


class ClosedJournal:
    """The journal of a deployment that has been closed: nothing may be released any more."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def reserve(self, total: int, limit: float) -> None:
        """Refuse."""
        raise StoreError(f"{self._folder} has been closed")

    def mark_dirty(self) -> None:
        """Refuse."""
        raise StoreError(f"{self._folder} has been closed")


_FORM = struct.Struct("<QB")  # the generation, and whether it is dirty


class DirtyFlag:
    """Of one generation; setting it takes no new space, on file systems that overwrite in place."""

    def __init__(self, folder: Path, generation: int) -> None:
        self._path, self._generation = folder / "dirty", generation

    @property
    def is_set(self) -> bool:
        """Whether this generation is marked, for all that can be known."""
        try:
            return self._read() == (self._generation, 1)
        except FileNotFoundError:  # the disk had no room for it
            return False
        except OSError:
            return True

    def prepare(self) -> None:
        """Set the byte aside, unless it is there; a disk that has no room even for that keeps nobody from going on."""
        with contextlib.suppress(OSError):
            if not self._path.exists() or self._read()[0] != self._generation:
                self._write(dirty=False)

    def set(self) -> bool:
        """Whether it is on the disk."""
        try:
            self._write(dirty=True)
        except OSError:
            return False
        return True

    def _read(self) -> tuple[int, int]:
        """Generation and mark; none of either in a file that is cut short."""
        content = self._path.read_bytes()[: _FORM.size]
        return _FORM.unpack(content) if len(content) == _FORM.size else (-1, -1)

    def _write(self, *, dirty: bool) -> None:
        is_new = not self._path.exists()
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            content = _FORM.pack(self._generation, dirty)
            if os.pwrite(descriptor, content, 0) != len(content):
                raise OSError("the mark was not written whole")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if is_new:
            flush_file(self._path.parent)
