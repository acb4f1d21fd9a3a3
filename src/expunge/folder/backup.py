"""Back-ups of a folder, and restoring one: what was deleted since is taken out before it serves anybody.

A back-up is a tar file with the files of a folder as of one moment. A restored folder may be older than the one that
was lost. So a restore is given something newer: the lost folder, a later back-up, or one of the log alone. From this it
takes the log, the requests and the keyed hashes of what was deleted. The log then goes on as one history, records that
were deleted or changed since are taken out, everything is trained again with a new key, and the log says so.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import stat
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from expunge.core.errors import FormatError, InputError, ParameterError, StoreError
from expunge.core.files import flush_file
from expunge.core.place import Place
from expunge.core.records import DeleteMany, RecordId, Records, Update
from expunge.core.version import __version__
from expunge.folder.checkup import check
from expunge.folder.configuration import hides_counts, load_settings
from expunge.folder.evidence import KEY_FILES, Evidence
from expunge.folder.opening import open as open_folder
from expunge.folder.store import Store, is_vacant, recover_replacement
from expunge.folder.store.database import NAME, Database
from expunge.folder.store.ensembles import read_records
from expunge.folder.store.files import explain_damage, explain_errors
from expunge.folder.store.replacement import hidden_name, remove_abandoned, remove_made, workshop
from expunge.folder.store.requests import Request
from expunge.folder.store.slabs import RECORD_FILE
from expunge.folder.store.steps import report_step
from expunge.folder.store.tally import MOMENT
from expunge.folder.store.waiting import WAITING_FILE
from expunge.training.engines import make_executor
from expunge.training.ensemble import Advance, ignore_progress
from expunge.training.execution import Executor

_ABOUT: Final = "backup.json"
_FORMAT: Final = 1
_ATTEMPTS: Final = 5
_MOST_ABOUT: Final = 10_000  # bytes
#: What a file of a back-up may be called. Any other name is refused.
_NAMES: Final = re.compile(
    rf"{re.escape(NAME)}|{MOMENT}|dirty|design/[A-Za-z0-9._-]+|keys/({'|'.join(map(re.escape, KEY_FILES))})|"
    rf"records/[0-9]{{6,}}/{RECORD_FILE.pattern}|models/[0-9]{{5,}}-[0-9a-f]{{16}}\.[a-z]+|waiting/{WAITING_FILE.pattern}"
)
_FOLDERS: Final = ("records", "models", "waiting", "design", "keys")
#: What a back-up of the log alone leaves out: the recipe key, models, learner and the secrets of gates.
_SECRET: Final = ("recipe", "shards", "objects", "environments", "dead", "lake", "parts")
#: The tables that tell of requests. A restored folder takes them from what is newer.
_TABLES: Final = (
    *("ledger", "openings", "times", "checkpoints", "hashes", "forgotten", "requests"),
    *("petitions", "callbacks"),
)


@dataclass(frozen=True, slots=True)
class BackUp:
    """What a back-up says about itself.

    Attributes
    ----------
    deployment, name
        The deployment's id and name.
    entries
        How many entries its log had.
    at
        The time of the last of them.
    has_records
        Whether it can be restored; False for one of the log alone.
    """

    deployment: str
    name: str
    entries: int
    at: str
    has_records: bool


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore did.

    Attributes
    ----------
    back_up
        What was restored.
    known_until
        The time of the last entry of the log that was known; that of the back-up if nothing newer was given.
    is_continued
        Whether a newer log was given and goes on.
    deleted
        The records of the back-up that were deleted after it, and have been taken out.
    changed
        The records of the back-up that were corrected, or deleted and added again, after it. They have been taken out
        too: what they say now is not in the back-up.
    lost
        Requests whose content is not in the back-up and that have been cancelled: they were pending, and are not
        deletions.
    num_records
        The number of records now.
    """

    back_up: BackUp
    known_until: str
    is_continued: bool
    deleted: tuple[RecordId, ...]
    changed: tuple[RecordId, ...]
    lost: tuple[str, ...]
    num_records: int


def back_up(path: str | os.PathLike[str], file: str | os.PathLike[str], *, log_only: bool = False) -> BackUp:
    """Write a folder as of one moment to a file. Another process may be serving the folder.

    Parameters
    ----------
    path
        The folder. An encrypted one is refused: a back-up of its keys would undo what it is for.
    file
        The new file, readable by its owner only. It holds people's records, keys and models: deletions do not reach it.
    log_only
        Only the log, the requests and the keyed hashes of what was deleted: small, and enough as what is newer in a
        later restore. It holds no record, no model, and not the recipe key.

    Returns
    -------
    BackUp
        What was written.

    Raises
    ------
    StoreError
        If the file is there already or cannot be written, or the folder changes faster than it can be read.
    FormatError
        If the folder is not a deployment, or is damaged.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from expunge.folder import create
    >>> home = Path(tempfile.mkdtemp())
    >>> X, y = np.arange(40.0).reshape(20, 2), np.arange(20) % 2
    >>> with create(home / "churn", GaussianNB(), X, y, n_shards=3) as deployment:
    ...     made = back_up(home / "churn", home / "monday.backup")
    ...     _ = deployment.delete([7])
    >>> found = restore(home / "monday.backup", home / "again", newer=home / "churn")
    >>> found.deleted, found.num_records
    ((7,), 19)
    """
    target = Path(path).resolve(), Path(file).absolute()
    if target[0] in target[1].parents:
        raise InputError(f"{str(file)!r} lies in the deployment's folder; write it elsewhere")
    if os.path.lexists(file):
        raise StoreError(f"{file} exists already: a back-up replaces nothing")
    store = Store.open(Path(path), read_only=True)
    try:
        if store.keys is not None and not log_only:
            raise InputError(
                f"{path} is encrypted: a back-up of its keys would outlive deletions. Copy the folder without "
                "keys/erasure.key, and keep that file where it can be overwritten (docs/durability.md)"
            )
        if store.lake is not None and not log_only:
            raise InputError(
                f"the records of {path} lie in {store.lake.objects.url}: expunge does not back them up. --log-only "
                "backs up the log (docs/lake.md)"
            )
        beside = target[1].with_name("backup")  # not the file's own name: the next back-up has another one
        remove_abandoned(beside)
        with explain_errors(target[1].parent), workshop(beside, "partial") as room:
            for _ in range(_ATTEMPTS):
                before = _moment_of(store)
                try:
                    found = _write(store, room, log_only=log_only)
                except (OSError, StoreError):
                    if _moment_of(store) == before:
                        raise
                    continue
                if _moment_of(store) == before:
                    flush_file(room / "backup")
                    report_step("backup.written")
                    os.link(room / "backup", target[1])  # appears whole, and replaces nothing
                    report_step("backup.named")
                    flush_file(target[1].parent)
                    return found
        raise StoreError(f"{path} is changed faster than it can be copied; try again later")
    finally:
        store.close()


def _moment_of(store: Store) -> Any:
    """What changes when files of the folder do: the round, and the pending requests."""
    return store.position, store.database.rows("SELECT request FROM requests WHERE state IN ('pending', 'switched')")


def _write(store: Store, room: Path, *, log_only: bool) -> BackUp:
    """Write the tar file. The files come first, and the database last, which names them."""
    copy = room / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir(mode=0o700)
    with suppress(FileNotFoundError):
        (room / "backup").unlink()
    moment = (store.place / MOMENT).read_bytes()
    descriptor = os.open(room / "backup", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as raw, tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as tar:

        def put(name: str, stream: IO[bytes]) -> None:
            told = tarfile.TarInfo(name)
            told.size, told.mode = stream.seek(0, os.SEEK_END), 0o600
            stream.seek(0)
            tar.addfile(told, stream)

        if not log_only:
            for name in _files(store):
                with os.fdopen(_below(store, name).open(), "rb") as stream:
                    put(name, stream)
        store.database.copy_to(copy / NAME)
        (copy / MOMENT).write_bytes(moment)
        report_step("backup.copied")
        if log_only:
            _strip(copy)
        for name in (NAME, MOMENT):
            with (copy / name).open("rb") as stream:
                put(name, stream)
        found = _described(store, has_records=not log_only)
        about = {name: getattr(found, name) for name in BackUp.__dataclass_fields__}
        put(_ABOUT, io.BytesIO(json.dumps({"format": _FORMAT, "software": __version__, **about}).encode()))
    return found


def _described(store: Store, *, has_records: bool) -> BackUp:
    row = store.database.row("SELECT COUNT(*) FROM ledger")
    entries = int(row[0]) if row else 0
    return BackUp(store.fact("deployment"), store.fact("name"), entries, _latest(store), has_records)


def _files(store: Store) -> list[str]:
    """The files of the folder that the database names, and those beside it."""
    epoch = f"{store.position.epoch:06d}"
    models = {row[0] for row in store.database.rows("SELECT file FROM shards")}
    waiting = {row[0] for row in store.database.rows("SELECT file FROM requests WHERE state = 'pending'")}
    return [
        *(f"keys/{name}" for name in KEY_FILES),
        *(f"design/{name}" for name in (store.place / "design").names()),
        *(f"records/{epoch}/{name}" for name in store.epoch_place(store.position.epoch).names()),
        *(f"models/{name}" for name in sorted(models)),
        *(f"waiting/{name}" for name in sorted(waiting)),
        *(["dirty"] if (store.place / "dirty").exists() else []),
    ]


def _below(store: Store, name: str) -> Place:
    place = store.place
    for part in name.split("/"):
        place = place / part
    return place


def _strip(copy: Path) -> None:
    """Leave secrets out of a copy of the database."""
    with closing(Database(copy)) as database:
        with database.transaction():
            for table in _SECRET:
                database.execute(f"DELETE FROM {table}")
            database.execute("UPDATE generations SET gate = '{}'")
            database.execute("UPDATE requests SET file = NULL, start = NULL, length = NULL, cell = NULL")
            database.execute("DELETE FROM facts WHERE name = 'provenance'")
        database.checkpoint()


def _latest(store: Store) -> str:
    row = store.database.row("SELECT MAX(json_extract(entry, '$.at')) FROM ledger")
    return str(row[0]) if row else ""


def restore(
    file: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    newer: str | os.PathLike[str] | None = None,
    without_newer: bool = False,
    trust: Sequence[str] = (),
    n_jobs: int | None = None,
    executor: str | Executor | None = None,
    advance: Advance = ignore_progress,
) -> Restored:
    """Make a folder from a back-up. The folder appears when nothing in it serves what was deleted since, or not at all.

    Everything is trained again with a new key, because the books of the back-up do not count what was published after
    it. Without anything newer it cannot be known what was deleted after the back-up, so that has to be asked for.

    Parameters
    ----------
    file
        The back-up.
    path
        Where the folder goes. Nothing may be there but an empty folder.
    newer
        The lost folder (its `state.db` and `moment` are enough), a later back-up, or one of the log alone.
    without_newer
        Restore without anything newer. What was asked for after the back-up has to be asked for again, and the log of
        the restored folder does not continue what was published since. Refused under an (α,β,γ) promise, whose
        guarantee would count too few generations.
    trust, n_jobs, executor
        As for `expunge.open`.
    advance
        Called with the progress of the training.

    Returns
    -------
    Restored
        What was taken out, and what cannot be known.

    Raises
    ------
    InputError
        If nothing newer is given, or it is of another deployment, of another history, or older than the back-up.
    FormatError
        If the back-up is damaged.
    StoreError
        If the path is taken, or cannot be written to.
    """
    if (newer is None) != without_newer:
        raise InputError(
            "a back-up does not know what was deleted after it: give something newer (the lost folder, a later back-up "
            "or one of the log), or say that there is nothing"
            if newer is None
            else "something newer is given, and it is said that there is nothing"
        )
    engine, folder = make_executor(n_jobs, executor), Path(path)
    recover_replacement(folder)
    if not is_vacant(folder):
        raise StoreError(f"{folder} exists already; choose another folder, or remove it first")
    absolute = folder.absolute()
    remove_abandoned(absolute)
    partial = hidden_name(absolute, "partial")
    try:
        with explain_errors(folder):
            about = _unpack(Path(file), partial)
        if not about.has_records:
            raise InputError(f"{file} is a back-up of the log alone: it has no records to restore")
        for line in check(partial).damage[:1]:
            raise FormatError(f"{file} is damaged: {line.replace(str(partial), 'in it')}")
        report_step("restore.unpacked")
        done = _brought_up(partial, absolute, Path(file), about, newer, tuple(trust), engine, advance)
        report_step("restore.done")
        with explain_errors(folder):
            partial.rename(absolute)
            flush_file(absolute.parent)
        return done
    except BaseException as error:
        remove_made(partial)
        if isinstance(error, StoreError) and str(partial) in str(error):
            raise type(error)(str(error).replace(str(partial), str(folder))) from error
        raise


def _unpack(file: Path, folder: Path, *, only: Sequence[str] = ()) -> BackUp:
    """Write the files of a back-up into a new folder. A name that does not belong to one is refused.

    So is a member with holes: a small file could stand for a terabyte of zeros.
    """
    about: dict[str, Any] | None = None
    folder.mkdir(mode=0o700)
    for name in _FOLDERS:
        (folder / name).mkdir(mode=0o700)
    try:
        with _opened(file) as stream, tarfile.open(fileobj=stream, mode="r:") as tar:
            for each in tar:
                is_plain = each.isreg() and not each.issparse() and each.size >= 0  # a negative one leads back
                content = tar.extractfile(each) if is_plain else None
                if content is None or not (each.name == _ABOUT or _NAMES.fullmatch(each.name)):
                    raise FormatError(f"{file} is not a back-up: {each.name!r:.80} does not belong in one")
                if each.name == _ABOUT:
                    about = json.loads(content.read(_MOST_ABOUT))
                elif not only or each.name in only:
                    target = folder / each.name
                    target.parent.mkdir(mode=0o700, exist_ok=True)
                    with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as made:
                        shutil.copyfileobj(content, made, 1 << 20)
                        made.flush()
                        os.fsync(made.fileno())
    except (tarfile.TarError, EOFError, ValueError, RecursionError, FileExistsError) as error:
        raise FormatError(f"{file} is not a back-up, or is damaged: {' '.join(str(error).split())}") from None
    if not isinstance(about, dict) or about.get("format") != _FORMAT:
        raise FormatError(f"{file} is not a back-up of this format, or it is cut off")
    try:
        return BackUp(**{name: about[name] for name in BackUp.__dataclass_fields__})
    except KeyError as error:
        raise FormatError(f"{file} is damaged: it does not say its {error.args[0]}") from None


@contextmanager
def _opened(file: Path) -> Iterator[IO[bytes]]:
    """The file, which must be a regular one: to open a pipe could wait for ever."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise InputError(f"there is no file {str(file)!r}") from None
    except OSError as error:
        raise InputError(f"{str(file)!r} cannot be read: {(error.strerror or str(error)).lower()}") from None
    with os.fdopen(descriptor, "rb") as stream:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise InputError(f"{str(file)!r} is not a file")
        yield stream


@contextmanager
def _newer_database(newer: Path, folder: Path) -> Iterator[Database]:
    """The database of a folder, or of a back-up that is unpacked beside the folder that is made, for reading."""
    if newer.is_dir():
        with closing(Database(newer, read_only=True)) as database:
            yield database
        return
    with workshop(folder, "partial") as room:
        _unpack(newer, room / folder.name, only=(NAME, MOMENT))
        with closing(Database(room / folder.name, read_only=True)) as database:
            yield database


def _brought_up(
    partial: Path,
    folder: Path,
    file: Path,
    about: BackUp,
    newer: str | os.PathLike[str] | None,
    trust: tuple[str, ...],
    executor: Executor,
    advance: Advance,
) -> Restored:
    """Bring a restored folder up to what is known, before it serves anybody."""
    deleted: list[RecordId] = []
    changed: list[RecordId] = []
    lost: list[str] = []
    store = Store.open(partial)
    try:
        with explain_damage(partial):
            evidence = Evidence(store)
            if about != _described(store, has_records=True):
                raise FormatError(f"{file} is damaged: it says something else of itself than its log does")
            if newer is None and hides_counts(load_settings(store.fact("settings")).promise):
                raise ParameterError(
                    "without something newer an (α,β,γ) promise cannot be restored: how many generations were used "
                    "since is not known. Create the deployment anew"
                )
            if newer is not None:
                with _newer_database(Path(newer), folder) as database, database.snapshot():
                    later = _take_over(store, evidence, database, str(newer))
                records = read_records(store)
                deleted, changed = _stale(evidence, records, later)
                lost = _revive(store, evidence, records, later, taken={*deleted, *changed})
            with store.database.transaction():
                evidence.ledger.write(
                    "restored",
                    evidence.clock.now(),
                    entries=about.entries,
                    continued=newer is not None,
                    learner=store.fact("learner"),
                    num_shards=store.fact("settings")["n_shards"],
                )
            known = about.at if newer is None else later.at
    finally:
        store.close()
    report_step("restore.merged")
    with open_folder(partial, trust=trust, executor=executor, apply_pending=False) as deployment:
        batch: list[Update] = [DeleteMany([*deleted, *changed])] if deleted or changed else []
        deployment.restart(batch, advance=advance)
        left = len(deployment.records)
    return Restored(about, known, newer is not None, tuple(deleted), tuple(changed), tuple(lost), left)


@dataclass(frozen=True, slots=True)
class _Later:
    """What came after the back-up: requests in force, pending ones, and the last time in the log."""

    applied: tuple[Request, ...]
    pending: tuple[Request, ...]
    at: str


def _take_over(store: Store, evidence: Evidence, newer: Database, source: str) -> _Later:
    """Replace the log, the requests and the guard by the newer ones, in one transaction."""
    fact = newer.row("SELECT value FROM facts WHERE name = 'deployment'")
    if fact is None or json.loads(fact[0]) != evidence.deployment_id:
        raise InputError(f"{source} is of another deployment than the back-up")
    own = store.database.rows("SELECT sequence, leaf FROM ledger ORDER BY sequence")
    theirs = newer.rows("SELECT sequence, leaf FROM ledger ORDER BY sequence")
    if len(theirs) < len(own):
        raise InputError(
            f"{source} is older than the back-up: its log has {len(theirs):,} entries, and that of the back-up "
            f"{len(own):,}"
        )
    if theirs[: len(own)] != own:
        raise InputError(f"{source} and the back-up are of two histories: the log of one does not continue the other")
    before = store.position
    files = store.database.rows("SELECT request, file, start, length, cell FROM requests WHERE state = 'pending'")
    position = newer.row("SELECT generation, round FROM position")
    if position is None:
        raise FormatError(f"{source} does not say where it stands: it is damaged")
    generation, round_ = position
    with store.database.transaction():
        gate = store.database.row("SELECT gate FROM generations WHERE generation = ?", (before.generation,))
        for table in _TABLES:
            rows = newer.rows(f"SELECT * FROM {table}")
            store.database.execute(f"DELETE FROM {table}")
            if rows:
                marks = ", ".join("?" * len(rows[0]))
                store.database.execute_many(f"INSERT INTO {table} VALUES ({marks})", rows)
        books = newer.rows("SELECT generation, reserved, released, dirty FROM generations")
        store.database.execute("DELETE FROM generations")
        store.database.execute_many("INSERT INTO generations VALUES (?, ?, ?, ?, '{}')", books)
        store.database.execute(
            "UPDATE generations SET gate = ? WHERE generation = ?", (gate[0] if gate else "{}", generation)
        )
        store.database.execute("UPDATE position SET generation = ?, round = ?", (generation, round_))
        store.database.execute("UPDATE requests SET file = NULL, start = NULL, length = NULL, cell = NULL")
        store.database.execute_many(
            "UPDATE requests SET file = ?2, start = ?3, length = ?4, cell = ?5 "
            "WHERE request = ?1 AND state = 'pending'",
            files,
        )
        evidence.ledger.check()  # whole, and signed with this deployment's key
    known = {row[0] for row in files}
    requests = evidence.requests.all()
    applied = [each for each in requests if each.state in ("switched", "applied") and (each.round or 0) > before.round]
    pending = [each for each in requests if each.state == "pending" and each.request not in known]
    return _Later(tuple(applied), tuple(pending), _latest(store))


def _stale(evidence: Evidence, records: Records, later: _Later) -> tuple[list[RecordId], list[RecordId]]:
    """The records of the back-up that were deleted since, and those that a later request changed."""
    requests = evidence.requests
    ids = records.ids()
    subjects = records.subjects_of(records.live_slots())
    owners = [None] * len(ids) if subjects is None else subjects.tolist()
    guard = requests.guard()
    gone = {
        record
        for record, owner in zip(ids, owners, strict=True)
        if guard
        and (
            requests.hash_of("record", record) in guard
            or (owner is not None and requests.hash_of("subject", owner) in guard)
        )
    }
    named = {record for each in later.applied for record in requests.find_named(each.request, ids)}
    return [each for each in ids if each in gone], [each for each in ids if each in named - gone]


def _revive(store: Store, evidence: Evidence, records: Records, later: _Later, *, taken: set[RecordId]) -> list[str]:
    """Make pending deletions anew from their keyed hashes, and cancel other requests whose content is lost."""
    requests, lost = evidence.requests, list[str]()
    waiting = [requests.batch_of(each.request) for each in requests.in_state("pending") if each not in later.pending]
    coming = [record for each in waiting for what, record in each.added if what == "record"]
    ids = [each for each in dict.fromkeys([*records.ids(), *coming]) if each not in taken]
    with store.database.transaction():
        for each in later.pending:
            if each.kind == "deletion":
                requests.revive(each.request, requests.find_named(each.request, ids))
            else:
                now = evidence.clock.now()
                requests.mark_cancelled(each.request, now=evidence.ledger.date("cancelled", now))
                evidence.ledger.write("cancelled", now, request=each.request)
                lost.append(each.request)
    return lost
