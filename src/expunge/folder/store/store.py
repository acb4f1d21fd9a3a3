"""One deployment's folder: what is where, and the parts that are changed one by one.

    state.db (+ -wal, -shm)   everything small: settings, requests, shards and seeds, budgets, ledger
    records/EPOCH/            the records as columns (`slabs`); their features may be elsewhere (`lake`)
    models/                   one file for each model, one for those of an update, or one with all (`packs`)
    waiting/                  what pending requests ask for (`waiting`)
    design/                   the certified tables of the consensus gate
    keys/                     the signing key, and the key that ids are hashed with
    lock                      held by the one process that may write
    replicas/                 a file for each process that answers beside it (`leases`)
    moment                    the number of the last transaction of state.db (`tally`)
    dirty                     whether a consensus failed, for when state.db has no room (`DirtyFlag`)

Everything in it but the public key, and the certificates made from it, is inside the trust boundary.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sqlite3
import struct
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expunge.core.errors import FormatError, StoreError
from expunge.core.place import Place
from expunge.folder.store.columns import Form
from expunge.folder.store.database import Database, require_deployment, require_sound_files
from expunge.folder.store.files import (
    FolderLock,
    explain_damage,
    explain_errors,
    flush_files,
    remove_place,
    remove_places,
    require_own,
)
from expunge.folder.store.keyfile import KeyFile
from expunge.folder.store.lake import (
    Lake,
    LakeRows,
    begin_lake,
    read_lake,
    read_number,
    read_parts,
    remove_gone,
    sweep_parts,
    verify_parts,
)
from expunge.folder.store.leases import REPLICAS, Point
from expunge.folder.store.packs import is_pack, is_shelf, overwrite_shelved, shelved
from expunge.folder.store.slabs import RECORD_FILE, RecordFolder
from expunge.folder.store.steps import report_step
from expunge.folder.store.tally import MOMENT
from expunge.folder.store.threads import for_each
from expunge.folder.store.waiting import Span, Waiting

KEY_FILE = "erasure.key"
_FOLDERS = ("records", "models", "waiting", "design", "keys")
_WAITING = "SELECT file, start, length FROM requests WHERE state = 'pending'"
# What the names of files look like that may be removed once the database does not name them: those that are made here.
_MODEL = re.compile(r"[0-9]{5,}-[0-9a-f]{16}\.[a-z]+")
_EPOCH = re.compile(r"[0-9]{6,}")
_BLOCKS = 64  # a budget is reserved in about so many pieces
_LARGEST_BLOCK = 10_000
_FEW_FILES, _FEW_ROWS = 8, 1 << 10  # that are erased one after another: to start threads would take longer
_LOG_ROOM, _LOG_ROOM_A_SHARD = 1 << 21, 1 << 9  # bytes: the log of a round, whatever it holds


def _slots(raw: bytes, count: int) -> NDArray[np.int64]:
    """Slots of a row of the table of deleted records."""
    if len(raw) != 8 * count:
        raise FormatError("the list of deleted records in state.db is damaged")
    return np.frombuffer(raw, dtype="<i8").astype(np.int64)


@dataclass(frozen=True, slots=True)
class Replaced:
    """Models that are no longer in force: whole files, and the models of some shards on shelves that hold others."""

    files: Sequence[Place]
    shelves: Sequence[tuple[Place, Collection[int]]] = ()
    cells: Sequence[int] = ()  # of the keys that they are encrypted with, and of requests that were applied


@dataclass(frozen=True, slots=True)
class Position:
    """Which generation, round and files are in force.

    `epoch` counts how often all records were rewritten; `total` is that of their checksums.
    """

    generation: int
    round: int
    epoch: int
    num_slots: int
    total: int
    models_trained: int


class Store:
    """A deployment's folder, open. Make one by `Store.new` or `Store.open`.

    Parameters
    ----------
    folder
        The folder.
    database
        Its open database.
    lock
        The lock of the process that may write; None if the store is read only.
    place
        The folder, held open: every file in it is reached from there.
    """

    def __init__(self, folder: Path, database: Database, lock: FolderLock | None, place: Place) -> None:
        self.folder = folder
        self.place = place
        self.database = database
        self.waiting = Waiting(place / "waiting")
        self.keys: KeyFile | None = None
        self._is_packed: bool | None = None
        self.lake: Lake | None = None
        self._form: tuple[Any, Form] | None = None  # as it is kept, and as it was read from that
        self._position: tuple[int, Position] | None = None  # after how many transactions it was read
        self._lock = lock
        self._process = os.getpid()

    @classmethod
    def new(cls, folder: Path) -> Store:
        """Make an empty folder; it must not exist yet."""
        with explain_errors(folder):
            folder.mkdir(mode=0o700, parents=True)
            place = Place.hold(folder)
            for name in _FOLDERS:
                (place / name).mkdir()
        lock = FolderLock(place)
        return cls(folder, Database(place, is_new=True), lock, place)

    @classmethod
    def open(cls, folder: Path, *, read_only: bool = False) -> Store:
        """Open an existing folder. Only one process at a time may open it for writing."""
        place = require_deployment(folder, read_only=read_only)  # before a lock is made in another folder
        _require_own_files(place)
        if read_only:
            seen = cls(folder, Database(place, read_only=True), None, place)
            try:
                with explain_damage(folder):
                    seen._open_keys(read_only=True)
                    seen.lake = read_lake(seen.database)
            except BaseException:
                seen.close()
                raise
            return seen
        lock = FolderLock(place)
        try:
            store = cls(folder, Database(place), lock, place)
        except BaseException:
            lock.release()
            raise
        try:
            report_step("open.locked")
            with explain_damage(folder):
                store._open_keys(read_only=False)
                store._check_writable()
                store.lake = read_lake(store.database)
                if store.lake is not None:
                    store.lake.take(read_number(store.database))
                store._recover()
                if store.is_packed:
                    store.database.reserve_log(_LOG_ROOM + _LOG_ROOM_A_SHARD * store.fact("settings")["n_shards"])
            return store
        except BaseException:
            store.close()
            raise

    def encrypt(self) -> None:
        """Encrypt everything that is written from now on, in a new folder; inside the caller's transaction."""
        self.keys = KeyFile.new(self.place / "keys" / KEY_FILE)
        self.write_fact("encryption", {"identity": self.keys.identity.hex()})

    @property
    def records_at(self) -> str | None:
        """Where the records lie, if not in the folder."""
        return None if self.lake is None else self.lake.objects.url

    def begin_lake(self, url: str) -> None:
        """Keep features under this URL from now on, in a new folder; inside the caller's transaction."""
        self.lake = begin_lake(self.database, url)

    def keep_lake(self, lake: Lake | None) -> None:
        """Go on with the lake of the store that made this folder: its records are read through it."""
        if lake is not None and self.lake is not None:
            lake.succeed(self.lake)
            self.lake = lake

    def abandon_lake(self) -> None:
        """Remove everything that was written there: the folder was not completed."""
        assert self.lake is not None
        with contextlib.suppress(StoreError):
            self.lake.abandon()

    def lake_rows(self, num_slots: int) -> LakeRows:
        """The features as they lie in the lake, in the parts that are in force."""
        assert self.lake is not None
        return LakeRows(self.lake, self.form, read_parts(self.database), self.records.stored_sums(num_slots))

    def _open_keys(self, *, read_only: bool) -> None:
        row = self.database.row("SELECT value FROM facts WHERE name = 'encryption'")
        if row is not None:
            identity = bytes.fromhex(json.loads(row[0])["identity"])
            self.keys = KeyFile.open(self.place / "keys" / KEY_FILE, identity, read_only=read_only)

    def seal(self, content: bytes) -> tuple[bytes, int | None]:
        """Encrypt a model or a request under a new key, if the folder is encrypted. Also return where the key lies."""
        if self.keys is None:
            return content, None
        cell = int(self.keys.add(1)[0])
        return self.keys.seal(content, cell), cell

    def seal_some(self, contents: Mapping[int, bytes], count: int) -> dict[int, tuple[bytes, int | None]]:
        """Encrypt some of `count` models, and draw as many keys as if it were all: the file of keys grows by the same.

        A key that is not used goes with those of the models that are replaced.
        """
        if self.keys is None:
            return {shard: (content, None) for shard, content in contents.items()}
        cells = self.keys.add(count).tolist()
        return {shard: (self.keys.seal(content, cells[shard]), cells[shard]) for shard, content in contents.items()}

    def unseal(self, content: bytes, cell: int | None) -> bytes | None:
        """Decrypt what `seal` gave; None if it is not what was written."""
        if cell is None or self.keys is None:
            return content
        return self.keys.unseal(content, cell)

    def flush_keys(self) -> None:
        """Wait until new keys are on the disk. What is encrypted with them may count afterwards."""
        if self.keys is not None:
            self.keys.flush()

    def destroy_keys(self) -> None:
        """Overwrite all keys but those of records, models and pending requests. Nothing may be staged meanwhile."""
        if self.keys is None:
            return
        with self.database.alone():  # the key of what is being accepted is drawn and named in one transaction
            live = np.setdiff1d(np.arange(self.position.num_slots), np.array(self.deleted_slots()[0], dtype=np.int64))
            named = self.database.rows(
                "SELECT cell FROM shards UNION ALL SELECT cell FROM requests WHERE state = 'pending'"
            )
            self.keys.destroy_all_but(
                np.array([*self.records.cells(live), *(cell for (cell,) in named)], dtype=np.int64)
            )
        report_step("erase.keys")

    def _check_writable(self) -> None:
        """Find out that the folder cannot be written to before anything is trained."""
        probe = self.place / "models" / ".probe"
        probe.unlink(missing_ok=True)
        probe.write_new(b"", flush=False)
        probe.unlink()

    def _recover(self) -> None:
        """Finish what a crash cut short, before anything is read: rows may be half overwritten.

        Before anything is overwritten or removed, the records must be those that the database counts, and the models
        that it names must be there: a database that was set back would have everything since removed. A reader that
        holds the log does not keep the folder from being opened. Nothing counts as erased until the log is empty.
        """
        self.require_total()
        self.require_models()
        self.destroy_keys()
        self.overwrite()
        self.sweep()
        with contextlib.suppress(StoreError):
            self.database.checkpoint()
        report_step("open.swept")

    def close(self) -> None:
        """Empty the log, close the database and release the lock. In a forked child, do nothing."""
        if not self.is_own:
            return
        with contextlib.suppress(StoreError, sqlite3.Error):
            if self._lock is not None:
                self.database.checkpoint()
        self.waiting.close()
        self.database.close()
        if self._lock is not None:
            self._lock.release()

    def note_address(self, address: str) -> None:
        """Write down where this process listens, for replicas and for those who find the folder in use."""
        if self._lock is not None:
            self._lock.note(address)

    @property
    def is_own(self) -> bool:
        """Whether this very process opened the folder, and not one that it was forked from."""
        return self._process == os.getpid()

    def require_own(self) -> None:
        """Raise an error unless this process opened the folder."""
        require_own(self._process, self.folder)

    def fact(self, name: str) -> Any:
        """Return a fact of the deployment by its name."""
        row = self.database.row("SELECT value FROM facts WHERE name = ?", (name,))
        if row is None:
            raise FormatError(f"{self.folder} lacks the fact {name!r}: it is damaged")
        with explain_damage(self.folder):
            return json.loads(row[0])

    def write_fact(self, name: str, value: Any) -> None:
        """Write a fact, or replace one. Nothing is written if it is there already."""
        told = json.dumps(value)
        if self.database.row("SELECT value FROM facts WHERE name = ?", (name,)) != (told,):
            self.database.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, told))

    def object(self, name: str) -> tuple[str, bytes] | None:
        """Return the format and the bytes of an encoded object, or None if there is none."""
        row = self.database.row("SELECT format, data FROM objects WHERE name = ?", (name,))
        return None if row is None else (row[0], row[1])

    def put_object(self, name: str, form: str, data: bytes) -> None:
        """Write an encoded object, or replace one."""
        self.database.execute("INSERT OR REPLACE INTO objects VALUES (?, ?, ?)", (name, form, data))

    @property
    def position(self) -> Position:
        """Which generation, round and files are in force."""
        if self._lock is None or self.database.is_inside:  # another process may write, or this thread has just done so
            return self._read_position()
        ended = self.database.num_ended
        if self._position is None or self._position[0] != ended:
            self._position = ended, self._read_position()
        return self._position[1]

    def _read_position(self) -> Position:
        row = self.database.row(
            "SELECT generation, round, epoch, num_slots, total, models_trained FROM position WHERE only = 1"
        )
        if row is None:
            raise FormatError(f"{self.folder} was never finished: create it again")
        generation, round_, epoch, num_slots, total, models_trained = row
        if not all(type(each) is int and each >= 0 for each in (generation, round_, epoch, num_slots, models_trained)):
            raise FormatError(f"{self.folder} is damaged: its position is none")
        return Position(generation, round_, epoch, num_slots, int(total), models_trained)

    def read_point(self) -> Point:
        """Read the generation and the round in force, as another process may have put them in force just now.

        Raises
        ------
        StoreError
            If what SQLite shows is older than what the process that writes has committed.
        """
        moment = self.database.moment()  # before the database
        row = self.database.row("SELECT generation, round, number FROM position, tally")
        if row is None or row[2] < moment:
            raise StoreError(f"{self.folder} cannot be followed: what is read of it is out of date")
        return int(row[0]), int(row[1])

    def is_at(self, generation: int, round: int) -> bool:
        """Return whether the folder is at this generation and round."""
        row = self.database.row("SELECT generation, round FROM position WHERE only = 1")
        return row == (generation, round)

    @property
    def form(self) -> Form:
        """How records become columns in this folder."""
        told = self.fact("form")
        if self._form is None or self._form[0] != told:
            self._form = told, Form.from_json(told)
        return self._form[1]

    @property
    def records(self) -> RecordFolder:
        """The files of the records in force."""
        return self.records_of(self.position.epoch)

    def records_of(self, epoch: int) -> RecordFolder:
        """The files of the records of an epoch."""
        return RecordFolder(self.epoch_place(epoch), self.form, self.keys, has_features=self.lake is None)

    def deleted_slots(self) -> tuple[list[int], list[int]]:
        """The slots whose record was deleted, ascending, and those of them that are overwritten."""
        rows = self.database.rows("SELECT slots, count, erased FROM dead")
        parts = [(_slots(raw, count), erased) for raw, count, erased in rows]
        dead = np.sort(np.concatenate([_slots(b"", 0), *(slots for slots, _ in parts)]))
        if len(dead) and (dead[0] < 0 or dead[-1] >= self.position.num_slots or not np.diff(dead).all()):
            raise FormatError(f"{self.folder} is damaged: it names a deleted record that it never had")
        erased = np.sort(np.concatenate([_slots(b"", 0), *(slots for slots, done in parts if done)]))
        return dead.tolist(), erased.tolist()

    def require_total(self) -> None:
        """Raise an error unless the records on the disk are those that the database counts.

        A file or a database that was set back to an earlier state, or belongs to another folder, is noticed here.
        """
        dead, _ = self.deleted_slots()
        found, position = self.records.total(self.position.num_slots, dead), self.position
        if found != position.total:
            raise FormatError(
                f"{self.epoch_place(position.epoch)} is damaged, or not of the same moment as state.db: the checksums "
                "of its records have another total. Put the folder back as a whole; nothing was changed"
            )

    def require_models(self) -> None:
        """Raise an error unless every shard names a model, and its file is there."""
        rows = self.database.rows("SELECT shard, file FROM shards ORDER BY shard")
        settings = self.fact("settings")
        if not isinstance(settings, dict) or [shard for shard, _ in rows] != [*range(settings.get("n_shards", 0))]:
            raise FormatError(f"{self.folder} does not name a model for each shard: it is damaged; nothing was changed")
        models = self.place / "models"
        there = set(models.names())
        for _, name in rows:
            if name not in there:
                raise FormatError(
                    f"the model file {models / name} is missing: it was lost, or state.db is of "
                    "another moment. Put the folder back as a whole; nothing was changed"
                )

    @property
    def is_packed(self) -> bool:
        """Whether the models in force are in one file. That stays so as long as there is a folder."""
        if self._is_packed is None:
            row = self.database.row("SELECT file FROM shards LIMIT 1")
            if row is None:
                return False
            self._is_packed = is_pack(row[0])
        return self._is_packed

    def verify_records(self, advance: Callable[[int], None] = lambda _: None) -> Iterator[str]:
        """Read all records in pieces, and yield one line for each thing that is not as it was written.

        Nothing is changed. The folder may be open for reading only. `advance` is called with numbers of rows.
        """
        with self.explain_errors():
            dead, erased = self.deleted_slots()
            yield from self.records.verify(self.position.num_slots, dead, erased, advance)
            if self.lake is not None:
                yield from verify_parts(self.lake_rows(self.position.num_slots), self.position.num_slots, dead)
            try:
                self.require_total()
            except FormatError as error:
                yield str(error)

    def epoch_place(self, epoch: int) -> Place:
        """Return the folder of an epoch's columns."""
        return self.place / "records" / f"{epoch:06d}"

    def sweep(self) -> None:
        """Remove what the database does not name: replaced models, and leftovers of failed updates.

        Nothing may be staged at the same time. Requests may be accepted.
        """
        num_slots, strays, records = self.position.num_slots, self._strays(), self.records
        self.destroy_keys()
        self.remove(strays.files)
        self.overwrite_models(strays.shelves)
        if self.lake is not None:
            remove_gone(self.database, self.lake)
            sweep_parts(self.database, self.lake)
        self.sweep_waiting()
        records.cut(num_slots)

    def sweep_waiting(self) -> None:
        """Overwrite, and remove, what the files of requests hold that is not pending. Requests may be accepted."""
        if self.waiting.is_empty:
            return
        with self.database.alone():  # what is being accepted is appended and named in one transaction
            report_step("sweep.listed")
            kept = [Span(*row) for row in self.database.rows(_WAITING)]
            gone = self.waiting.overwrite_all_but(kept)
            for_each(remove_place, gone)  # they are zeros: it does no harm if a name comes back after a loss of power
            self.waiting.is_empty = not kept
        report_step("waiting.swept")

    def drop_request(self, cell: int | None) -> None:
        """Remove what a cancelled request asked for, also while something is staged: its key, and its rows."""
        if self.keys is not None and cell is not None:
            self.keys.destroy(np.array([cell], dtype=np.int64))
        self.sweep_waiting()

    def _strays(self) -> Replaced:
        current = self.epoch_place(self.position.epoch)
        old = [place for place in (self.place / "records").iterdir() if place != current and _is_epoch(place)]
        models = self._unknown("models", _MODEL, "SELECT file FROM shards")
        known = dict(self.database.rows("SELECT shard, file FROM shards"))
        shelves = [self.place / "models" / name for name in sorted({*filter(is_shelf, known.values())})]
        gone = [(place, {shard for shard in shelved(place) if known.get(shard) != place.name}) for place in shelves]
        return Replaced([*models, *old], [(place, shards) for place, shards in gone if shards])

    def overwrite_models(self, shelves: Iterable[tuple[Place, Collection[int]]]) -> None:
        """Overwrite models on shelves that hold others too."""
        for place, shards in shelves:
            overwrite_shelved(place, shards)
            report_step("remove.file")

    def remove(self, strays: Iterable[Place]) -> None:
        """Remove these files and epochs for good."""
        remove_places(strays)

    def erase(self, replaced: Replaced | None = None, *, empties_log: bool = True) -> None:
        """Overwrite deleted records, remove replaced files and applied requests, and empty the log.

        These do not depend on one another, and each may be repeated. They are done at the same time where that is
        worth a thread.

        Parameters
        ----------
        replaced
            The models that were replaced, if that is known. Otherwise all files are listed, to find those that the
            database does not name, and rows of an update that failed are cut off.
        empties_log
            Whether the log may hold what has to be erased. It does not after an update that only deletes or adds
            records under the exact promise: rows of `state.db` say nothing once the files that they name are erased.
        """
        num_slots, records = self.position.num_slots, self.records
        strays = self._strays() if replaced is None else replaced
        slots = self._slots_to_erase()
        if replaced is None:
            self.destroy_keys()  # first of all: from here on nothing of them can be read
        elif self.keys is not None:
            self.keys.destroy(np.unique([*replaced.cells, *records.cells(slots)]))
            report_step("erase.keys")

        def overwrite() -> None:
            records.erase(slots)
            if replaced is None or records.form.has_heaps:
                records.cut(num_slots)  # afterwards, so that rows are erased before they are cut off
            report_step("erase.slots")

        def sweep() -> None:
            self.remove(strays.files)
            self.overwrite_models(strays.shelves)
            if self.lake is not None:
                remove_gone(self.database, self.lake)
            self.sweep_waiting()
            report_step("erase.files")

        def empty_log() -> None:
            self.database.checkpoint()
            report_step("erase.checkpoint")

        parts = [overwrite, sweep, *([empty_log] if empties_log else [])]
        is_little = len(strays.files) <= _FEW_FILES and len(slots) <= _FEW_ROWS
        for_each(lambda act: act(), parts, fewest=len(parts) + is_little)

    def overwrite(self) -> None:
        """Write zeros over each deleted record that is not known to be overwritten. This may be repeated."""
        self.records.erase(self._slots_to_erase())

    def _slots_to_erase(self) -> NDArray[np.int64]:
        rows = self.database.rows("SELECT slots, count FROM dead WHERE erased = 0")
        slots = np.sort(np.concatenate([_slots(b"", 0), *(_slots(*row) for row in rows)]))
        if len(slots) and (slots[0] < 0 or slots[-1] >= self.position.num_slots):
            raise FormatError(f"{self.folder} is damaged: it names a deleted record that it never had")
        return slots

    def tidy(self) -> None:
        """Remove what a failure left behind, as far as the disk permits. Nothing may be staged at the same time.

        The log is emptied first. Otherwise a commit that failed half-way could come back from it without its files.
        """
        with contextlib.suppress(StoreError, OSError):
            self.database.checkpoint()
            self.sweep()

    def drop_refused(self) -> None:
        """Remove what a refused request left behind, also while something is staged."""
        with contextlib.suppress(StoreError, OSError):
            self.database.checkpoint()
            self.sweep_waiting()

    def _unknown(self, folder: str, form: re.Pattern[str], query: str) -> list[Place]:
        """List the files that the database does not name. Files come first: their transaction may still be open.

        A file with a name of another form was not written here, and stays.
        """
        there = (self.place / folder).iterdir()
        report_step("sweep.listed")
        known = {row[0] for row in self.database.rows(query)}
        return [place for place in there if form.fullmatch(place.name) and place.name not in known]

    def reserved(self, generation: int) -> tuple[int, bool, dict[str, Any]]:
        """Return how many predictions of a generation are paid for, whether it is dirty, and its gate's secret."""
        row = self.database.row("SELECT reserved, dirty, gate FROM generations WHERE generation = ?", (generation,))
        if row is None:
            raise FormatError(f"{self.folder} lacks the budget of generation {generation}: it is damaged")
        return row[0], bool(row[1]) or DirtyFlag(self.place, generation).is_set, json.loads(row[2])

    def released(self, generation: int) -> int:
        """Return how many predictions of a generation are known to have been released, of those that are paid for."""
        row = self.database.row("SELECT released FROM generations WHERE generation = ?", (generation,))
        return 0 if row is None else int(row[0])

    def forfeited(self, generation: int) -> int:
        """Return how many predictions of a generation are paid for and not known to have been released."""
        row = self.database.row("SELECT reserved - released FROM generations WHERE generation = ?", (generation,))
        return 0 if row is None else int(row[0])

    def add_generation(self, generation: int, predictions: int, dirty: bool, secret: dict[str, Any]) -> None:
        """Add a new generation, and erase the gate's secret of the one before."""
        self.database.execute("UPDATE generations SET gate = '{}'")
        self.database.execute(
            "INSERT INTO generations VALUES (?, ?, ?, ?, ?)",
            (generation, predictions, predictions, int(dirty), json.dumps(secret)),
        )

    @contextlib.contextmanager
    def explain_errors(self) -> Iterator[None]:
        """Turn errors of the disk into one line that names the folder."""
        with explain_errors(self.folder):
            yield


def _is_epoch(place: Place) -> bool:
    """Whether it is a folder of records as it is written here, and nothing else lies in it."""
    if not _EPOCH.fullmatch(place.name) or not place.is_folder():
        return False
    return all(RECORD_FILE.fullmatch(name) for name in place.names())


def _require_own_files(place: Place) -> None:
    """Refuse a folder with links or special files where files of a deployment belong, or with files of other users.

    Nothing is opened before all have been looked at.
    """
    with explain_errors(place.path):
        require_sound_files(place)
        for name in ("lock", "dirty", MOMENT):
            if (place / name).exists():
                (place / name).stat()
        for name in _FOLDERS:
            (place / name).require_sound()
        if (place / REPLICAS).exists():
            (place / REPLICAS).require_sound()


class DurableJournal:
    """The `Journal` of one generation's publisher: it reserves predictions on the disk before they are released.

    Predictions are reserved in blocks. A crash forfeits the rest of a block: the reserved number then counts as
    published. How many of these are known to have been released is counted too, and never too high.
    """

    def __init__(
        self, store: Store, generation: int, reserved: int, *, forfeited: int = 0, block: int | None = None
    ) -> None:
        self._store = store
        self._generation = generation
        self._reserved = reserved
        self._block = block
        self._forfeited = forfeited
        self._is_closed = False
        self._flag = DirtyFlag(store.place, generation)
        self._flag.prepare()
        self._owes_dirty = self._flag.is_set  # the database may not say so

    def released(self, total: int) -> int:
        """How many are known to have been released, of `total` that count as published."""
        return max(0, total - self._forfeited)

    def reserve(self, total: int, limit: float) -> None:
        """Reserve `total` predictions on the disk, and the rest of a block if the limit allows it."""
        self._require_open()
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
        """Write that the generation is dirty, before the answer that made it so is released.

        If the disk fails, it is written before any later answer. A full disk is no failure if the flag could be set: an
        error here would tell the requester that the consensus failed.
        """
        self._require_open()
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

    def close(self, predictions: int | None, *, is_dirty: bool = False) -> None:
        """Give back the unused rest of the block, and refuse every later prediction.

        `predictions` is None if their number is not known, and `is_dirty` says whether the generation is. Only what
        this object reserved is given back. If the disk has another number, another process reserved it.
        """
        self._require_open()
        try:
            if is_dirty or self._owes_dirty:
                self.mark_dirty()
            report_step("close.open")
            if predictions is not None:
                self._store.database.execute(
                    "UPDATE generations SET released = CASE reserved WHEN ?1 THEN ?3 ELSE released END, "
                    "reserved = CASE reserved WHEN ?1 THEN ?2 ELSE MAX(reserved, ?2) END WHERE generation = ?4",
                    (self._reserved, predictions, self.released(predictions), self._generation),
                )
            report_step("close.done")
        finally:
            self._is_closed = True

    def _require_open(self) -> None:
        self._store.require_own()
        if self._is_closed:
            raise StoreError(f"{self._store.folder} has been closed")


_FORM = struct.Struct("<QBI")  # the generation, whether it is dirty, and a checksum of the two


_MOST_FLAG = 100  # bytes


def _flag_bytes(generation: int, dirty: int) -> bytes:
    return _FORM.pack(generation, dirty, zlib.crc32(_FORM.pack(generation, dirty, 0)))


class DirtyFlag:
    """A byte, set aside on the disk, that says whether a consensus failed in one generation.

    It can be set when the disk has no room for anything else, on file systems that overwrite in place. The requester
    has seen the answer, or the error, of the failed consensus. A folder that forgot it would go on with the same secret
    threshold, and could be asked again.
    """

    def __init__(self, folder: Place, generation: int) -> None:
        self._place, self._generation = folder / "dirty", generation

    @property
    def is_set(self) -> bool:
        """Whether this generation is dirty. A file that cannot be read, or is damaged, counts as set."""
        try:
            found = self._read()
            return found is None or found == (self._generation, 1)
        except FileNotFoundError:  # the disk had no room for it
            return False
        except OSError:
            return True

    def prepare(self) -> None:
        """Set the byte aside unless it is there. If the disk has no room for it, go on without."""
        with contextlib.suppress(OSError):
            found = self._read() if self._place.exists() else (-1, 0)
            if found is not None and found[0] != self._generation:
                self._write(dirty=False)

    def set(self) -> bool:
        """Set the flag, and return whether it is on the disk."""
        try:
            self._write(dirty=True)
        except OSError:
            return False
        return True

    @property
    def is_damaged(self) -> bool:
        """Whether there is a file, and it is not as it was written."""
        return self._place.exists() and self._read() is None

    def _read(self) -> tuple[int, int] | None:
        """Read the generation and the flag; None from a file that is damaged."""
        content = self._place.read_bytes(most=_MOST_FLAG)
        if not content:
            return -1, 0  # it was made, and the disk had no room for the rest
        if len(content) != _FORM.size:
            return None
        generation, dirty, _ = _FORM.unpack(content)
        return (generation, dirty) if content == _flag_bytes(generation, dirty) else None

    def _write(self, *, dirty: bool) -> None:
        is_new = not self._place.exists()
        descriptor = self._place.open(os.O_WRONLY | os.O_CREAT)
        try:
            content = _flag_bytes(self._generation, dirty)
            if os.pwrite(descriptor, content, 0) != len(content):
                raise OSError("the flag was not written whole")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if is_new:
            flush_files([self._place.parent])
