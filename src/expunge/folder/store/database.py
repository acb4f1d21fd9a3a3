"""The small state of a deployment: one SQLite file, WAL, every commit on the disk, nothing left behind in free pages.

`secure_delete` overwrites what is deleted with zeros; `checkpoint` empties the write-ahead log, in which older contents
would otherwise stay. The format's version is SQLite's `user_version`; a folder of another version is refused.
`application_id` says that the file belongs to a deployment: the database of another program is never written to.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from expunge.core.errors import FormatError, StoreError
from expunge.core.place import Place
from expunge.folder.store.files import (
    explain_errors,
    keep_for_good,
    own,
    require_not_inherited,
    require_own,
    take_blocks,
)
from expunge.folder.store.tally import TALLY, Tally

VERSION = 1  # stays 1 until something is released: until then every folder is of the present code
_SCHEMA = (
    # Facts of the deployment, as JSON. They are public, except perhaps `provenance`.
    "CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    # Learner and front, in formats that cannot run code.
    "CREATE TABLE objects (name TEXT PRIMARY KEY, format TEXT NOT NULL, data BLOB NOT NULL)",
    # Which generation, round and files are in force; one row. `total` is that of the records' checksums.
    "CREATE TABLE position (only INTEGER PRIMARY KEY CHECK (only = 1), generation INTEGER NOT NULL, "
    "round INTEGER NOT NULL, epoch INTEGER NOT NULL, num_slots INTEGER NOT NULL, total TEXT NOT NULL, "
    "models_trained INTEGER NOT NULL)",
    # Of each generation: how many predictions are paid for, how many of them are known to have been released, and
    # whether it is dirty. The gate is secret.
    "CREATE TABLE generations (generation INTEGER PRIMARY KEY, reserved INTEGER NOT NULL, released INTEGER NOT NULL, "
    "dirty INTEGER NOT NULL, gate TEXT)",
    # The key that everything secret follows from: which records a shard holds, their order and slices, the seeds. When
    # it was drawn, and why the key before it was replaced. How a witness had a part in it, as JSON, or nothing.
    "CREATE TABLE recipe (only INTEGER PRIMARY KEY CHECK (only = 1), secret BLOB NOT NULL, is_system INTEGER NOT NULL, "
    "drawn_at TEXT NOT NULL, reason TEXT NOT NULL, draw TEXT NOT NULL)",
    # The file of each shard's model, the SHA-256 of what the file holds of it, and the environment that it was trained
    # in. The salt of the commitment that auditors are given is here if one file has all models; else it is in the
    # model's own file (`packs`). It is erased with its model: then the commitment cannot be opened any more.
    "CREATE TABLE shards (shard INTEGER PRIMARY KEY, file TEXT NOT NULL, format TEXT NOT NULL, digest BLOB NOT NULL, "
    "salt BLOB NOT NULL, environment INTEGER NOT NULL, "
    "cell INTEGER)",
    # The environments that models in service were trained in, as JSON.
    "CREATE TABLE environments (number INTEGER PRIMARY KEY, facts TEXT NOT NULL UNIQUE)",
    # Slots whose record was deleted, 8 bytes each, in a row for each round; and whether they have been overwritten.
    "CREATE TABLE dead (round INTEGER PRIMARY KEY, slots BLOB NOT NULL, count INTEGER NOT NULL, "
    "erased INTEGER NOT NULL)",
    "CREATE INDEX dead_to_erase ON dead (round) WHERE erased = 0",
    # Where the records' features lie, if not in the folder; what shows that they are this folder's; and how often their
    # objects were changed.
    "CREATE TABLE lake (only INTEGER PRIMARY KEY CHECK (only = 1), url TEXT NOT NULL, secret BLOB NOT NULL, "
    "number INTEGER NOT NULL)",
    # The objects that they lie in there: runs of slots, 16 bytes each, and a digest. One that is gone is named until it
    # is removed.
    "CREATE TABLE parts (name TEXT PRIMARY KEY, shard INTEGER NOT NULL, runs BLOB NOT NULL, digest BLOB NOT NULL, "
    "gone INTEGER NOT NULL)",
    # The requests. What a pending one asks for is in a file of `waiting`, from `start` on; never in here.
    "CREATE TABLE requests (number INTEGER PRIMARY KEY AUTOINCREMENT, request TEXT NOT NULL UNIQUE, "
    "key BLOB UNIQUE, fingerprint BLOB NOT NULL, kind TEXT NOT NULL, state TEXT NOT NULL, "
    "accepted_at TEXT NOT NULL, applied_by TEXT, "
    "generation INTEGER, round INTEGER, deletions INTEGER NOT NULL, additions INTEGER NOT NULL, "
    "corrections INTEGER NOT NULL, "
    "file TEXT, start INTEGER, length INTEGER, cell INTEGER)",
    "CREATE INDEX requests_by_state ON requests (state, number)",
    # The keyed hashes of a request's records, 32 bytes each, in a table of their own: a change of the request's state
    # does not write them again.
    "CREATE TABLE hashes (request TEXT PRIMARY KEY, hashes BLOB NOT NULL)",
    # Keyed hashes of what was deleted on request, so that it does not come back unnoticed; and by which request, as
    # long as that is kept.
    "CREATE TABLE forgotten (hash BLOB PRIMARY KEY, request INTEGER) WITHOUT ROWID",
    # Requests as other systems sent them, under names of the senders' own; and whom to tell when one is done. What was
    # asked for is a keyed hash. A callback is removed when its address was told.
    "CREATE TABLE petitions (number INTEGER PRIMARY KEY AUTOINCREMENT, sender TEXT NOT NULL, id TEXT NOT NULL, "
    "fingerprint BLOB NOT NULL, request TEXT NOT NULL, received_at TEXT NOT NULL, UNIQUE (sender, id))",
    "CREATE INDEX petitions_by_request ON petitions (request)",
    "CREATE TABLE callbacks (number INTEGER PRIMARY KEY AUTOINCREMENT, petition INTEGER NOT NULL, "
    "message TEXT NOT NULL, form TEXT NOT NULL, url TEXT NOT NULL, attempts INTEGER NOT NULL, "
    "next_at INTEGER NOT NULL, given_up INTEGER NOT NULL DEFAULT 0)",
    "CREATE INDEX callbacks_by_petition ON callbacks (petition)",
    # The log of public facts: its entries, and the hash of each as a leaf of the tree.
    "CREATE TABLE ledger (sequence INTEGER PRIMARY KEY, entry TEXT NOT NULL, leaf BLOB NOT NULL)",
    # What the log's entries about requests commit to. Without its salt an entry says nothing about any request.
    "CREATE TABLE openings (sequence INTEGER PRIMARY KEY, request TEXT NOT NULL, salt BLOB NOT NULL, "
    "facts TEXT NOT NULL)",
    "CREATE INDEX openings_by_request ON openings (request)",
    # The latest time in the log that was read from the clock ("moment"), and the latest that is a tick.
    "CREATE TABLE times (kind TEXT PRIMARY KEY, at TEXT NOT NULL) WITHOUT ROWID",
    # The checkpoint that was signed after the last entry, and what the tree needs to go on; the last one that a witness
    # cosigned.
    "CREATE TABLE checkpoints (kind TEXT PRIMARY KEY, note TEXT NOT NULL, nodes BLOB NOT NULL) WITHOUT ROWID",
    TALLY,
)

NAME = "state.db"
_BESIDE, _JOURNAL = (f"{NAME}-wal", f"{NAME}-shm"), f"{NAME}-journal"
APPLICATION = 0x45585047  # "EXPG"
_HEADER, _MAGIC, _AT = 100, b"SQLite format 3\0", slice(68, 72)  # of a SQLite file, and where the application is named
# FULL: a commit is on the disk when it returns. secure_delete: freed bytes become zeros. MEMORY: no temporary files.
_PRAGMAS = (
    "journal_mode = WAL",
    "synchronous = FULL",
    "secure_delete = ON",
    "temp_store = MEMORY",
    "foreign_keys = ON",
)
_PATIENCE = 30.0  # seconds to wait for a reader to end
_PAGE, _LOG_HEAD, _FRAME_HEAD = 8192, 32, 24  # bytes
_NESTED = contextlib.nullcontext()


class Database:
    """One connection to the database, shared by the threads of the process that has the folder open."""

    def __init__(self, folder: Path | Place, *, is_new: bool = False, read_only: bool = False) -> None:
        if is_new:
            place = Place.hold(folder)
            (place / NAME).write_new(b"", flush=False)  # readable by its owner only
        else:
            place = require_deployment(folder, read_only=read_only)
            require_sound_files(place)
            if not read_only:  # closing a connection that may write would change a damaged log
                Database(place, read_only=True).close()
        self._place, self._folder = place, place.path
        self._path = self._folder / NAME
        self._process = os.getpid()
        folder = self._folder
        require_not_inherited(folder, self._path.resolve())
        self._lock = threading.RLock()
        self._inside: int | None = None  # the thread whose transaction is open
        self._ended = self._failed = 0
        self._reserved = 0  # bytes of the log
        self._is_closed = False
        with explain_errors(folder):
            mode = "rw" if not read_only else "ro&immutable=1" if self._is_sealed else "ro"
            target = f"file:{_quoted(self._path)}?mode={mode}"
            self._connection = sqlite3.connect(
                target, uri=True, isolation_level=None, check_same_thread=False, timeout=_PATIENCE
            )
            self._tally = Tally(self._connection, place)
            try:
                self._prepare(is_new=is_new, read_only=read_only)
                self._require_same_file()
            except BaseException:
                self._connection.close()
                raise
        own(self)

    @property
    def _is_sealed(self) -> bool:
        """Whether no process can write here. Then reading needs no log, which could not be made either."""
        return not os.access(self._folder, os.W_OK) and not self._path.with_name(f"{NAME}-wal").exists()

    def _require_same_file(self) -> None:
        """Raise an error unless the path leads to the file that was checked: SQLite opens it by its path."""
        found, checked = os.stat(self._path), (self._place / NAME).stat()
        if (found.st_dev, found.st_ino) != (checked.st_dev, checked.st_ino):
            raise FormatError(f"{self._path} was exchanged while it was opened")

    def _prepare(self, *, is_new: bool, read_only: bool) -> None:
        if is_new:
            self._connection.execute(f"PRAGMA page_size = {_PAGE}")
            self._connection.execute(f"PRAGMA application_id = {APPLICATION}")  # before there is a log: into the file
        try:
            application = int(self._connection.execute("PRAGMA application_id").fetchone()[0])
            version = int(self._connection.execute("PRAGMA user_version").fetchone()[0])
        except sqlite3.DatabaseError as error:
            if "not a database" in str(error):
                raise FormatError(f"{self._path} is damaged: {error}") from None
            raise
        if application != APPLICATION:
            raise _foreign(self._folder)
        if not is_new and version != VERSION:
            raise FormatError(f"{self._folder} has format {version}; this version of expunge reads format {VERSION}")
        if read_only:
            for line in self._damage():
                raise FormatError(line)
        if read_only:
            return
        for pragma in _PRAGMAS:
            self._connection.execute(f"PRAGMA {pragma}")
        # If opening the file or its log failed once, SQLite opens it for reading only, and says so at the first change.
        for statement in ("BEGIN IMMEDIATE", f"PRAGMA user_version = {version}", "ROLLBACK"):
            self._connection.execute(statement)
        if is_new:
            with self.transaction():
                for statement in _SCHEMA:
                    self._connection.execute(statement)
                self._connection.execute(f"PRAGMA user_version = {VERSION}")
                self._tally.start()
        self._tally.watch()

    def moment(self) -> int:
        """The number of the last transaction, from the file beside the database."""
        return self._tally.moment()

    def damage(self) -> list[str]:
        """Read everything, and return a line for each thing that is not as it was written."""
        with self._held():
            return list(self._damage())

    def _damage(self) -> Iterator[str]:
        try:
            moment = self._tally.moment()
            with self.snapshot():
                yield from self._tally.damage(moment, _SCHEMA)
        except FormatError as error:
            yield str(error)
        except sqlite3.OperationalError as error:
            if "malformed" not in str(error) and "decode" not in str(error):  # the disk, or another process
                raise
            yield f"{self._path} is damaged: {error}. Put the folder back from a copy, as a whole; nothing was changed"
        except (sqlite3.DatabaseError, ValueError) as error:
            yield f"{self._path} is damaged: {error}. Put the folder back from a copy, as a whole; nothing was changed"

    def transaction(self) -> contextlib.AbstractContextManager[None]:
        """Commit the whole block or nothing. Inside another transaction the block belongs to that one."""
        return _NESTED if self.is_inside else self._begun("BEGIN IMMEDIATE")

    def snapshot(self) -> contextlib.AbstractContextManager[None]:
        """Read everything in the block as of one moment, even if another process commits in the meantime."""
        return _NESTED if self.is_inside else self._begun("BEGIN")

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """No other thread writes to the database, or is in the middle of a transaction, in the block."""
        with self._held():
            yield

    @property
    def num_ended(self) -> int:
        """How many transactions have ended. What was read outside one is true for as long as this stays the same."""
        return self._ended

    @property
    def num_failed(self) -> int:
        """How many transactions were rolled back. What one wrote is true for as long as this stays the same."""
        return self._failed

    @property
    def is_inside(self) -> bool:
        """Whether this thread is in the middle of a transaction."""
        return self._inside == threading.get_ident()

    @contextlib.contextmanager
    def _begun(self, statement: str) -> Iterator[None]:
        with self._held():
            self._connection.execute(statement)
            self._inside = threading.get_ident()
            try:
                yield
                self._tally.write()
            except BaseException:
                self._failed += 1
                with contextlib.suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                raise
            else:
                self._commit()
                self._tally.committed()
            finally:
                self._tally.forget()
                self._ended += 1
                self._inside = None

    def roll_back(self) -> None:
        """Undo the transaction that this thread is in the middle of, if it is. The folder is about to be closed."""
        if self.is_inside:
            self._failed += 1
            self._connection.execute("ROLLBACK")
            self._tally.forget()
            self._inside = None

    @contextlib.contextmanager
    def _held(self) -> Iterator[None]:
        """Hold the connection for one thread, and turn errors into one line."""
        require_own(self._process, self._folder)  # before the lock: a thread of the parent may hold it
        with self._lock, explain_errors(self._folder):
            self._require_open()
            yield

    def _require_open(self) -> None:
        if self._is_closed:
            raise StoreError(f"{self._folder} has been closed")

    def _commit(self) -> None:
        try:
            self._connection.execute("COMMIT")
        except BaseException:
            self._failed += 1
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
            raise

    def execute(self, statement: str, values: Sequence[Any] = ()) -> int:
        """Run a statement and return the number of rows that it changed."""
        with self.transaction(), explain_errors(self._folder):
            return self._connection.execute(statement, values).rowcount

    def execute_many(self, statement: str, rows: Any) -> None:
        """Run a statement for each row."""
        with self.transaction(), explain_errors(self._folder):
            self._connection.executemany(statement, rows)

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""
        require_own(self._process, self._folder)
        with self._lock, explain_errors(self._folder):
            self._require_open()
            return self._connection.execute(statement, values).fetchall()

    def row(self, statement: str, values: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        """Return the first row of a query, or None if there is none."""
        found = self.rows(statement, values)
        return found[0] if found else None

    def copy_to(self, path: Path) -> None:
        """Write the database as of one moment into a new file, readable by its owner only."""
        with self._held():
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            with contextlib.closing(sqlite3.connect(path)) as target:
                self._connection.backup(target)

    def checkpoint(self) -> None:
        """Move the log into the file, overwrite it and empty it, so that neither holds older contents.

        The log is overwritten where nothing needs it any more: once it begins anew, that is all that follows its first
        page. This page is the first one of the file, which tells of tables only.
        """
        with self._held():
            is_busy, _ = self._move_log("RESTART")
            if not is_busy and (log := self._place / _BESIDE[0]).exists():
                self._connection.execute(f"PRAGMA user_version = {VERSION}")  # begins the log anew, with one page
                is_busy, pages = self._move_log("FULL")
                if pages == 1 and not is_busy:
                    log.overwrite(_LOG_HEAD + _FRAME_HEAD + _PAGE)
                    is_busy, _ = self._move_log("TRUNCATE")
                else:
                    is_busy = True
            self._reserve()
        if is_busy:
            raise StoreError(
                f"{self._folder}: a reader keeps old contents of the log in use; try again when it is done"
            )

    def _move_log(self, how: str) -> tuple[bool, int]:
        """Move the log into the file. Return whether a reader prevented it, and how many pages the log has."""
        busy, pages, moved = self._connection.execute(f"PRAGMA wal_checkpoint({how})").fetchone()
        return bool(busy) or pages != moved, int(pages)

    def reserve_log(self, size: int) -> None:
        """Keep so many bytes of the disk for the log, whether it is empty or not.

        Any user of the machine can read how many blocks are free. Within this size the log neither takes nor gives back
        any, so a transaction does not show. On systems other than Linux nothing is reserved.
        """
        with self._held():
            self._reserved = size
            self._reserve()

    def _reserve(self) -> None:
        place = self._place / _BESIDE[0]
        if self._reserved and place.exists():
            take_blocks(place, self._reserved)

    def close(self) -> None:
        """Close the connection."""
        if self._process != os.getpid():
            return
        with self._lock:
            self._is_closed = True
            self._connection.close()

    def abandon(self) -> None:
        """Leave the parent's file alone, in a forked child."""
        if not self._is_closed:
            keep_for_good(self._connection, self._path.resolve())


def require_deployment(folder: Path | Place, *, read_only: bool = False) -> Place:
    """Hold the folder, which must have a database of this package. Damage is found when it is opened."""
    path = folder.path if isinstance(folder, Place) else folder
    if not isinstance(folder, Place) and not path.is_dir():
        missing = f"is not a deployment: it has no {NAME}" if path.exists() else "does not exist"
        raise FormatError(f"{path} {missing}")
    with explain_errors(path):
        place = Place.hold(folder, only_reads=read_only)
        if not (place / NAME).exists():
            raise FormatError(f"{path} is not a deployment: it has no {NAME}")
        if not is_database(place, or_none=True):
            raise _foreign(path)
    return place


def is_database(place: Place, *, or_none: bool = False) -> bool:
    """Whether the folder's database belongs to this package, by its header; or is none at all, and so damaged."""
    with os.fdopen((place / NAME).open(), "rb") as file:
        header = file.read(_HEADER)
    if not header.startswith(_MAGIC):
        return or_none
    return int.from_bytes(header[_AT]) == APPLICATION


def require_sound_files(place: Place) -> None:
    """Raise an error unless the database and its log are files that pass all checks.

    A rollback journal is refused: this package keeps none, and SQLite removes files that a journal names.
    """
    with explain_errors(place.path):
        for name in (NAME, *_BESIDE):
            if (place / name).exists():
                with contextlib.suppress(FileNotFoundError):  # a process that closes the folder removes its log
                    (place / name).stat()
        if (place / _JOURNAL).exists():
            raise FormatError(f"{place / _JOURNAL} does not belong to a deployment; remove it")


def _foreign(folder: Path) -> FormatError:
    return FormatError(f"{folder} is not a deployment: its {NAME} belongs to another program")


def _quoted(path: Path) -> str:
    return str(path.resolve()).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
