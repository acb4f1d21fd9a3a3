"""After `applied`, no byte of any file tells of who was deleted: features, ids, subjects, labels, keys, old models."""

from __future__ import annotations

import errno
import hashlib
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.naive_bayes import BernoulliNB, MultinomialNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import expunge
import expunge.folder.store.database
import expunge.folder.store.ensembles
import expunge.training.ensemble
from expunge import AddMany, Delete
from expunge.core.errors import StoreError
from expunge.core.place import Place
from expunge.folder.store import Store, steps
from expunge.folder.store.slabs import RecordFolder
from expunge.training.learners import LookupTableLearner, UnlearningForest

NUM_PEOPLE = 40
OPTIONS = {"n_shards": 5, "inclusion_probability": 1.0, "promise": "unguarded"}
PROCESSES = Path(__file__).parent / "processes"


def token(what: str, number: int) -> str:
    """A text that does not occur by accident, with characters that JSON may write in two ways."""
    return f"{what}-Zoë-{hashlib.sha256(f'{what} {number}'.encode()).hexdigest()[:20]}"


def word(number: int) -> str:
    """The same as one plain word, which a vectoriser keeps whole."""
    return "w" + hashlib.sha256(f"word {number}".encode()).hexdigest()[:20]


def draw(number: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(number).normal(size=shape)


def sparse_row(number: int) -> np.ndarray:
    row = np.zeros(30)
    row[np.random.default_rng(number).choice(30, 5, replace=False)] = draw(number, 5)
    return row


def frame_of(numbers: list[int]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "income": [draw(n, 1)[0] for n in numbers],
            "name": [token("name", n) for n in numbers],
            "age": np.array([n % 7 for n in numbers], dtype=np.int16),
        }
    )


@dataclass(frozen=True)
class Kind:
    """One kind of table: how numbers become rows, which of a row's bytes are looked for, and who learns from it."""

    table: Callable[[list[int]], Any]
    patterns: Callable[[Any, int], list[bytes]]
    learner: Callable[[], Any] = LookupTableLearner


def as_stored_and_as_learned(scanning: Any, row: np.ndarray) -> list[bytes]:
    """The row in its own type, and in the one in which the lookup table keeps it."""
    return [*scanning.row_patterns(row), *scanning.row_patterns(row.astype(np.float64))]


KINDS = {
    "float64": Kind(
        lambda numbers: np.array([draw(n, 4) for n in numbers]), lambda s, n: as_stored_and_as_learned(s, draw(n, 4))
    ),
    "float64, in a forest": Kind(
        lambda numbers: np.array([draw(n, 4) for n in numbers]),
        lambda s, n: as_stored_and_as_learned(s, draw(n, 4)),
        lambda: UnlearningForest(num_trees=3, num_candidates=2),
    ),
    "float32": Kind(
        lambda numbers: np.array([draw(n, 6) for n in numbers], dtype=np.float32),
        lambda s, n: as_stored_and_as_learned(s, draw(n, 6).astype(np.float32)),
    ),
    "images": Kind(
        lambda numbers: np.array([draw(n, 2, 3, 2) for n in numbers], dtype=np.float32),
        lambda s, n: as_stored_and_as_learned(s, draw(n, 2, 3, 2).astype(np.float32).reshape(-1)),
    ),
    "whole numbers": Kind(
        lambda numbers: np.array([np.random.default_rng(n).integers(2**62, size=3) for n in numbers]),
        lambda s, n: as_stored_and_as_learned(s, np.random.default_rng(n).integers(2**62, size=3)),
    ),
    "sparse": Kind(
        lambda numbers: scipy.sparse.csr_matrix(np.array([sparse_row(n) for n in numbers])),
        lambda s, n: s.row_patterns(sparse_row(n)[sparse_row(n) != 0]),
    ),
    "texts": Kind(
        lambda numbers: np.array([*(f"Dear {word(n)}, {token('text', n)} and {n % 5}" for n in numbers), None])[:-1],
        lambda s, n: [*s.text_patterns(word(n)), *s.text_patterns(token("text", n)[-20:])],
        lambda: make_pipeline(CountVectorizer(), MultinomialNB()),
    ),
    "data frame": Kind(
        frame_of,
        lambda s, n: [*s.text_patterns(token("name", n)), draw(n, 1).tobytes()],
        lambda: make_pipeline(OneHotEncoder(handle_unknown="ignore"), BernoulliNB()),
    ),
}


def number_id(number: int) -> int:
    return 2**61 + (number + 1) * 0x1F83D9ABFB41BD6B % 2**61


def create(folder: Path, kind: Kind, *, ids: Callable[[int], Any] = number_id, **options: Any) -> Any:
    numbers = list(range(NUM_PEOPLE))
    return expunge.create(
        folder,
        kind.learner(),
        kind.table(numbers),
        [f"label {n % 2}" for n in numbers],
        ids=[ids(n) for n in numbers],
        subjects=[token("household", n // 3) for n in numbers],
        **{**OPTIONS, **options},
    )


def addition(kind: Kind, numbers: list[int], ids: Callable[[int], Any] = number_id) -> AddMany:
    return AddMany(
        ids=[ids(n) for n in numbers],
        features=kind.table(numbers),
        labels=[f"label {n % 2}" for n in numbers],
        subjects=[token("household", n // 3) for n in numbers],
    )


def name_patterns(scanning: Any, name: Any) -> list[bytes]:
    return scanning.number_patterns(name) if isinstance(name, int) else scanning.text_patterns(name)


def models_of(deployment: Any, records: list[Any]) -> list[bytes]:
    """The digests of the models that were trained on any of these, as bytes and as digits."""
    inside, held = deployment.inside.state, set()
    for record in records:
        held |= set(inside.shards_of(inside.records.slot_of(record)))
    rows = deployment._store.database.rows("SELECT shard, digest FROM shards")
    digests = [bytes(digest) for shard, digest in rows if shard in held]
    assert digests
    return [form for digest in digests for form in (digest, digest.hex().encode())]


def assert_gone(scanning: Any, folder: Path, patterns: list[bytes], digests: list[bytes] = ()) -> None:
    files = scanning.files_under(folder.parent)
    assert not scanning.traces(files, [*patterns, *digests])
    assert not {hashlib.sha256(content).digest() for content in files.values()} & set(digests)


@pytest.fixture
def folder(quick_folder: Path, request: pytest.FixtureRequest) -> Path:
    """A folder with nothing beside it, so that what is left beside it is seen."""
    parent = quick_folder / f"{len(list(quick_folder.iterdir())):04d}"
    parent.mkdir()
    return parent / "folder"


@pytest.mark.parametrize("ids", [number_id, lambda n: token("id", n)], ids=["numbers", "texts"])
@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_nothing_is_left_of_who_was_deleted(folder, scanning, kind, ids):
    """By id, by subject, in a batch, and of people who came in an earlier session."""
    create(folder, kind, ids=ids).close()
    with expunge.open(folder) as deployment:
        deployment.update([addition(kind, [50, 51, 60], ids)])
    deployment = expunge.open(folder)
    key = token("key", 0)
    gone, household = [7, 8, 50, 51], [12, 13, 14]
    patterns = {n: kind.patterns(scanning, n) for n in [*gone, *household]}
    names = [name_patterns(scanning, ids(n)) for n in [*gone, *household]]
    names.append(scanning.text_patterns(token("household", 4)))
    files = scanning.files_under(folder.parent)
    for found in [*patterns.values(), *names]:
        assert scanning.traces(files, found), "the scanner does not see what is there"
    digests = models_of(deployment, [ids(n) for n in [*gone, *household]])
    assert scanning.traces(files, digests)

    deployment.delete([ids(7)], key=key)
    deployment.delete(subjects=[token("household", 4)])
    receipt = deployment.delete([ids(n) for n in (8, 50, 51)])
    assert receipt.state == "applied"
    everything = [pattern for found in [*patterns.values(), *names] for pattern in found]
    assert_gone(scanning, folder, [*everything, *scanning.text_patterns(key)], digests)
    deployment.close()
    assert_gone(scanning, folder, everything, digests)
    expunge.open(folder).close()
    assert_gone(scanning, folder, everything, digests)
    assert scanning.traces(scanning.files_under(folder), kind.patterns(scanning, 60)), "others have to stay"


def test_what_was_pending_and_cancelled_is_gone(folder, scanning):
    kind = KINDS["float64"]
    deployment = create(folder, kind, apply="manual")
    key = token("key", 1)
    added = deployment.submit([addition(kind, [70, 71])], key=key)
    deleted = deployment.submit([Delete(number_id(3))])
    patterns = [*kind.patterns(scanning, 70), *scanning.number_patterns(number_id(70))]
    patterns += scanning.text_patterns(token("household", 23))
    assert scanning.traces(scanning.files_under(folder), patterns)
    deployment.cancel(deleted.request)
    deployment.cancel(added.request)
    assert_gone(scanning, folder, [*patterns, *scanning.text_patterns(key)])
    assert str(number_id(3)).encode() not in b"".join(scanning.files_under(folder).values())
    deployment.close()


def test_while_pending_the_ids_wait_and_afterwards_they_are_gone(folder, scanning):
    kind = KINDS["float32"]
    deployment = create(folder, kind, ids=lambda n: token("id", n), apply="at 3")
    names = [pattern for n in (1, 2, 3) for pattern in scanning.text_patterns(token("id", n))]
    for number in (1, 2):
        assert deployment.delete([token("id", number)]).state == "pending"
    assert scanning.traces(scanning.files_under(folder), names)
    assert deployment.delete([token("id", 3)]).state == "applied"
    assert_gone(scanning, folder, names)
    deployment.close()


def test_a_correction_erases_what_it_corrects(folder, scanning):
    kind = KINDS["float64"]
    with create(folder, kind) as deployment:
        new = AddMany(ids=[number_id(9)], features=kind.table([99]), labels=["label 1"])
        assert deployment.update([Delete(number_id(9)), new]).state == "applied"
        assert_gone(scanning, folder, kind.patterns(scanning, 9))
        assert scanning.traces(scanning.files_under(folder), kind.patterns(scanning, 99))


def test_records_written_anew_leave_no_old_copy(folder, scanning, monkeypatch):
    monkeypatch.setattr(expunge.training.ensemble, "_DEAD_SLOTS_ALLOWED", -10)
    kind = KINDS["sparse"]
    with create(folder, kind) as deployment:
        gone = [4, 5, 6, 7]
        for number in gone:
            deployment.delete([number_id(number)])
        assert [path.name for path in (folder / "records").iterdir()] > ["000001"]
        assert_gone(scanning, folder, [pattern for n in gone for pattern in kind.patterns(scanning, n)])


def test_many_requests_leave_nothing_in_the_pages_of_the_database(folder, scanning):
    """Rows of all lengths come, shrink and go, in any order: pages split, merge and are freed."""
    chance = random.Random(5)
    numbers = list(range(600))
    ids = [token("id", n) + "x" * chance.randint(0, 90) for n in numbers]
    X = np.zeros((600, 1))
    deployment = expunge.create(
        folder, LookupTableLearner(), X, np.arange(600) % 2, ids=ids, apply="manual", **{**OPTIONS, "n_shards": 2}
    )
    chance.shuffle(numbers)
    gone: list[str] = []
    while numbers:
        asked = {}
        for size in [chance.choice([1, 1, 2, 9, 40]) for _ in range(12)]:
            taken, numbers = numbers[:size], numbers[size:]
            if taken:
                asked[deployment.submit([Delete(ids[n]) for n in taken]).request] = taken
        for request in chance.sample(sorted(asked), 3 if len(asked) > 4 else 0):
            deployment.cancel(request)
            numbers += asked.pop(request)
        deployment.apply()
        gone += [ids[n][:30] for taken in asked.values() for n in taken]
        files = scanning.files_under(folder)
        assert not [name for name in gone if any(name.encode() in content for content in files.values())]
        assert not scanning.traces(files, [pattern for name in gone[-5:] for pattern in scanning.text_patterns(name)])
    deployment.close()


def full_disk() -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def fail_to_commit(database: Any) -> None:
    database._connection.execute("ROLLBACK")
    full_disk()


def test_a_request_that_could_not_be_applied_and_is_cancelled_leaves_nothing(folder, scanning, monkeypatch):
    """Its rows and the models trained on them were written already when the disk was full."""
    kind = KINDS["float64"]
    deployment = create(folder, kind, apply="manual")
    request = deployment.submit([addition(kind, [80])])
    written = []

    def write_some(place: Place, content: bytes, *, write: Any = Place.write_new, **options: Any) -> None:
        written.append(place)
        write(place, content, **options) if len(written) < 3 else full_disk()

    for switched in (False, True):  # full before the switch, and at the very commit of it
        with monkeypatch.context() as patch:
            if switched:
                patch.setattr(expunge.folder.store.database.Database, "_commit", fail_to_commit)
            else:
                patch.setattr(Place, "write_new", write_some)
                patch.setattr(expunge.folder.store.packs.Shelf, "finish", lambda _: full_disk())
            with pytest.raises(StoreError, match="no space left on the disk; nothing was lost"):
                deployment.apply()
    assert deployment.request(request.request).state == "pending"
    deployment.cancel(request.request)
    assert_gone(scanning, folder, kind.patterns(scanning, 80))
    assert len(list((folder / "models").iterdir())) == OPTIONS["n_shards"]
    deployment.delete([number_id(1)], apply=True)
    deployment.close()


def test_a_request_that_could_not_be_accepted_leaves_nothing(folder, scanning, monkeypatch):
    kind = KINDS["float64"]
    deployment = create(folder, kind, apply="manual")
    with monkeypatch.context() as patch:
        patch.setattr(expunge.folder.store.database.Database, "_commit", fail_to_commit)
        with pytest.raises(StoreError, match="no space left on the disk"):
            deployment.submit([addition(kind, [81])])
    assert_gone(scanning, folder, [*kind.patterns(scanning, 81), *scanning.number_patterns(number_id(81))])
    assert deployment.status.pending == 0
    deployment.close()


def test_what_is_accepted_during_a_sweep_stays(folder, monkeypatch):
    """Files are listed first and the database asked afterwards: else an addition accepted in between would be lost."""
    kind = KINDS["float64"]
    deployment = create(folder, kind, apply="manual")
    deployment.submit([Delete(number_id(1))])
    accepted: list[Any] = []

    def accept_meanwhile(step: str) -> None:
        if step == "sweep.listed" and not accepted:
            accepted.append(None)
            accepted[0] = deployment.submit([addition(kind, [82])])

    monkeypatch.setattr(steps, "on_step", accept_meanwhile)
    deployment.apply()
    assert deployment.request(accepted[0].request).state == "pending"
    deployment.apply()
    assert number_id(82) in deployment.records
    deployment.close()


def test_the_scan_finds_what_a_plain_search_finds(scanning):
    """Pieces of the files and of nothing, whole or with the last byte changed, of any length."""
    chance = random.Random(3)
    files = {Path(f"file {size}"): chance.randbytes(size) for size in (0, 1, 7, 8, 9, 300, 5000)}
    patterns = [b"nothing of the kind", b"short"]
    for content in files.values():
        for length in (1, 5, 7, 8, 9, 15, 16, 40):
            for start in {0, max(0, len(content) - length), chance.randint(0, len(content))}:
                piece = content[start : start + length]
                patterns += [piece, piece[:-1] + bytes(each ^ 1 for each in piece[-1:])]
    patterns = [pattern for pattern in patterns if pattern]
    expected = [
        f"{path.name} holds {pattern!r} at byte {content.index(pattern)}"
        for pattern in patterns
        for path, content in files.items()
        if pattern in content
    ]
    assert len(expected) > 100
    assert scanning.traces(files, patterns) == expected
    assert [line for each in patterns for line in scanning.traces(files, [each])] == expected


@pytest.mark.parametrize("broken", ["secure_delete", "rows", "files", "log"])
def test_the_scan_finds_what_a_broken_erasure_leaves(folder, scanning, monkeypatch, broken):
    kind = KINDS["float64"]
    if broken == "secure_delete":
        pragmas = ["journal_mode = WAL", "synchronous = FULL", "secure_delete = OFF"]
        monkeypatch.setattr(expunge.folder.store.database, "_PRAGMAS", pragmas)
    ids = lambda n: token("id", n)  # noqa: E731
    deployment = create(folder, kind, ids=ids, apply="at 3")
    digests = models_of(deployment, [ids(6)])
    match broken:
        case "rows":
            monkeypatch.setattr(RecordFolder, "erase", lambda *_: None)
        case "files":
            monkeypatch.setattr(Store, "remove", lambda *_: None)
        case "log":
            monkeypatch.setattr(expunge.folder.store.database.Database, "checkpoint", lambda *_: None)
    batches = [range(0, 6), range(6, 20), range(20, 26)]
    assert [deployment.delete([ids(n) for n in batch]).state for batch in batches][-1] == "applied"
    names = [pattern for batch in batches for n in batch for pattern in scanning.text_patterns(ids(n))]
    if broken == "secure_delete":  # what is in the database tells of nobody, but a request that is cancelled leaves it
        digests = [pattern for n in range(26, 30) for pattern in _hashes_once_cancelled(deployment, ids(n))]
    assert scanning.traces(scanning.files_under(folder), [*kind.patterns(scanning, 6), *names, *digests])
    deployment.close()


def _hashes_once_cancelled(deployment: Any, name: str) -> list[bytes]:
    request = deployment.submit([Delete(name)]).request
    hashes = deployment._evidence.requests.hashes_of(request)
    deployment.cancel(request)
    return [bytes.fromhex(text) for text in hashes]


@pytest.mark.parametrize("copies", ["piped", "mapped"])
def test_worker_processes_leave_nothing_in_temporary_files(folder, scanning, copies):
    """Not even when they are killed in the middle of training, all at once; the copies that joblib makes are found."""
    temporary = folder.parent / "temporary"
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary), "JOBLIB_TEMP_FOLDER": str(temporary)}
    command = [sys.executable, str(PROCESSES / "two_workers.py"), str(folder), copies]
    with subprocess.Popen(command, env=environment) as process:
        assert process.wait(timeout=120) == -signal.SIGKILL
    for semaphore in Path("/dev/shm").glob(f"sem.loky-{process.pid}-*"):  # no process is left to remove them
        semaphore.unlink()
    rows = np.random.default_rng(7).normal(size=(2400, 200))
    patterns = [rows[n, :2].tobytes() for n in range(0, 2400, 10)]
    assert scanning.traces(scanning.files_under(folder.parent), patterns)  # the records themselves
    assert bool(scanning.traces(scanning.files_under(temporary), patterns)) == (copies == "mapped")


@pytest.mark.parametrize("kind", ["float64", "data frame"])
def test_no_checksum_of_who_was_deleted_stays(folder: Path, scanning: Any, kind: str) -> None:
    """Neither the record's own, nor the total of which it was a part."""
    with create(folder, KINDS[kind]) as deployment:
        store = deployment._store
        slot, before = deployment.records.slot_of(number_id(7)), store.position.total
        row = np.fromfile(folder / "records" / "000001" / "checksums.slab", dtype="<u8").reshape(-1, 2)[slot]
        patterns = [row[0].tobytes(), row[1].tobytes(), str(before).encode()]
        found = [bool(scanning.traces(scanning.files_under(folder), [pattern])) for pattern in patterns]
        assert all(found), "what is looked for is there before"
        deployment.delete([number_id(7)])
        assert store.position.total != before
        assert not scanning.traces(scanning.files_under(folder), patterns)


@pytest.mark.parametrize("order", [1, -1])
def test_the_last_row_of_a_file_goes_altogether(folder: Path, monkeypatch: pytest.MonkeyPatch, order: int) -> None:
    """Whichever part of the erasure comes first, opening the folder again finds nothing to cut off."""

    def one_after_another(act: Callable[[Any], None], things: list[Any], **_: Any) -> None:
        for thing in things[::order]:
            act(thing)

    monkeypatch.setattr("expunge.folder.store.store.for_each", one_after_another)
    ids = [f"person-{number}" for number in range(10)]
    heap = folder / "records" / "000001" / "ids.heap"
    with expunge.create(folder, LookupTableLearner(), np.eye(10), [0, 1] * 5, ids=ids, n_shards=2) as deployment:
        size = heap.stat().st_size
        deployment.delete(deployment.records.ids()[-1:])
    assert heap.stat().st_size * 10 == size * 9
    before = heap.read_bytes()
    expunge.open(folder).close()
    assert heap.read_bytes() == before
