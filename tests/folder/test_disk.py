"""Disks that are full, read-only, shared or damaged: one clear line, and nothing lost."""

from __future__ import annotations

import errno
import json
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import SGDClassifier

import expunge
import expunge.folder.store.database as database
from expunge import AddMany
from expunge.core.errors import ExpungeError, FolderBusyError, FormatError, StoreError
from expunge.core.place import Place
from expunge.folder import open_view
from expunge.folder.codec import encode_model
from expunge.folder.store.slabs import RecordFolder
from expunge.folder.store.store import DirtyFlag, DurableJournal
from expunge.serving.publishing import ConsensusPublisher
from expunge.training.ensemble import learn
from expunge.training.learners import LookupTableLearner, SlicedScikitLearner
from expunge.training.learners.named import named_learner

PROCESSES = Path(__file__).parent / "processes"
NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount"]
OPTIONS = {"n_shards": 3, "inclusion_probability": 1.0, "promise": "unguarded"}


def small_disk(disk: Path, mode: str, amounts: list[int]) -> Any:
    disk.mkdir()
    script = [sys.executable, str(PROCESSES / "small_disk.py"), mode, str(disk), json.dumps(amounts)]
    command = script if mode == "limit" else [*NAMESPACE, *script]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def may_mount() -> bool:
    try:
        mount = [*NAMESPACE, "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
        return subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def assert_one_line(message: str, *parts: object) -> None:
    assert message
    assert "\n" not in message
    for part in parts:
        assert str(part) in message


@pytest.mark.parametrize(
    ("mode", "amounts"),
    [
        pytest.param("full", [0, 24, 44, 56, 72, 92, 100, 116, 132, 148, 156, 164, 172, 180, 190, 1000]),
        ("limit", [0, 20, 40, 70, 90, 110, 1000]),
    ],
)
def test_a_full_disk_is_told_in_a_line_and_loses_nothing(tmp_path, mode, amounts):
    """At every amount of room the same life gets somewhat further; then there is room again, and it goes on."""
    if mode == "full" and not may_mount():
        mode, amounts = "limit", [10, 30, 50, 60, 80, 100, 1000]
    lives = small_disk(tmp_path / "disk", mode, amounts)
    for life in lives[:-1]:
        if life["met"]:
            assert_one_line(life["met"], tmp_path / "disk" / "folder", "no space left on the disk", "nothing was lost")
    assert not lives[-1]["met"]
    reached = {life["after"] for life in lives if life["met"]}
    assert {"", "asking"} <= reached  # at opening, and at an update
    assert sum(bool(life["met"]) for life in lives) >= len(lives) / 2


@pytest.mark.parametrize("learner_fails", [False, True])
def test_records_that_cannot_be_flushed_are_told_when_the_models_are_trained(tmp_path, monkeypatch, learner_fails):
    """They are flushed in the meantime. Another error is raised first, and no thread is left writing."""
    trained, told = threading.Event(), []

    def fail(folder: Any) -> None:
        trained.wait(30)
        told.append(folder)
        raise OSError(errno.ENOSPC, "No space left on device")

    def train(
        learner: Any, X: Any, y: Any, seed: int, *, weights: Any = None, fit: Any = LookupTableLearner.fit
    ) -> Any:
        if len(X) > 50:  # not in the trial before the records are written
            trained.set()
            if learner_fails:
                raise RuntimeError("the learner's own")
        return fit(learner, X, y, seed, weights=weights)

    monkeypatch.setattr(RecordFolder, "flush", fail)
    monkeypatch.setattr(LookupTableLearner, "fit", train)
    X = np.arange(200.0).reshape(100, 2)
    expected = "the learner's own" if learner_fails else "no space left on the disk; nothing was lost"
    with pytest.raises(ExpungeError, match=expected):
        expunge.create(tmp_path / "folder", LookupTableLearner(), X, np.arange(100) % 2, **OPTIONS)
    assert len(told) == 1
    assert not list(tmp_path.iterdir())


def test_what_is_written_is_not_what_the_caller_makes_of_it_later(tmp_path):
    """Rows are borrowed until they are on the disk, and no longer."""
    X, y = np.arange(200.0).reshape(100, 2), np.arange(100) % 2
    with expunge.create(tmp_path / "folder", LookupTableLearner(), X, y, **OPTIONS) as deployment:
        before = X.copy()
        X[:] = -1
        y[:] = 1
        records = deployment.inside.state.records
        found, labels, _ = records.gather(np.arange(100))
        np.testing.assert_array_equal(found, before[records.ids()])
        np.testing.assert_array_equal(labels, np.array(records.ids()) % 2)


def test_a_read_only_disk_is_told_in_a_line_and_can_be_looked_at(tmp_path):
    if not may_mount():
        pytest.skip("this machine does not permit mounts in a namespace of one's own")
    met = small_disk(tmp_path / "disk", "read-only", [])
    disk = tmp_path / "disk"
    assert_one_line(met["open"], disk / "folder", "cannot be written to", "nothing was lost")
    assert_one_line(met["create"], f"{disk / 'new'}:", "cannot be written to")
    assert met["view"] == "45"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A deployment with an addition pending, closed."""
    path = tmp_path / "folder"
    rng = np.random.default_rng(0)
    ids = [f"person {n}" for n in range(12)]
    with expunge.create(
        path, LookupTableLearner(), rng.normal(size=(12, 3)), np.arange(12) % 2, ids=ids, apply="manual", **OPTIONS
    ) as deployment:
        deployment.submit([AddMany(ids=["late"], features=rng.normal(size=(1, 3)), labels=[1])])
    return path


def contents(folder: Path) -> dict[Path, bytes]:
    """Every file but those that come and go with a reader."""
    passing = {"lock", "state.db-wal", "state.db-shm"}
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name not in passing}


def test_a_second_process_is_refused_and_a_killed_one_lets_go(folder):
    script = f"import expunge; d = expunge.open({str(folder)!r}); print('open', flush=True); input()"
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"open\n"
        with pytest.raises(FolderBusyError) as refused:
            expunge.open(folder)
        assert_one_line(str(refused.value), folder, f"process {other.pid}")
        with open_view(folder) as view:  # a view is permitted
            assert view.status.pending == 1
        other.send_signal(signal.SIGKILL)
        other.wait()
        with expunge.open(folder) as deployment:
            assert deployment.status.pending == 1


def user_version(folder: Path) -> int:
    with closing(sqlite3.connect(folder / "state.db")) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


@pytest.mark.parametrize("version", [0, database.VERSION + 1])
def test_another_format_is_refused(folder, version):
    assert user_version(folder) == database.VERSION
    with closing(sqlite3.connect(folder / "state.db")) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    before = contents(folder)
    for act in (expunge.open, open_view):
        with pytest.raises(FormatError) as refused:
            act(folder)
        assert_one_line(str(refused.value), folder, version, f"reads format {database.VERSION}")
    assert contents(folder) == before


def flip(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def overwrite(path: Path) -> None:
    path.write_bytes(b"no database at all" * 1000)


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        ("models/*", Path.unlink),
        ("records/*/features.slab", cut),
        ("records/*/features.slab", Path.unlink),
        ("records/*/labels.slab", cut),
        ("records/*/ids.heap", cut),
        ("records/*/ids.heap", Path.unlink),
        ("keys/hashing.key", Path.unlink),
        ("waiting/*", cut),
        ("waiting/*", Path.unlink),
        ("state.db", overwrite),
        ("state.db", Path.unlink),
    ],
)
def test_a_damaged_file_is_named_and_its_return_heals(folder, file, damage):
    path = sorted(folder.glob(file))[0]
    sound = path.read_bytes()
    damage(path)
    with pytest.raises(StoreError) as refused:
        expunge.open(folder)
    assert_one_line(str(refused.value), path.name)
    path.write_bytes(sound)
    with expunge.open(folder) as deployment:
        assert deployment.apply() == 1
        assert len(deployment.records) == 13


@pytest.mark.parametrize("damage", [flip, cut])
def test_a_damaged_model_is_named_when_it_is_needed_and_its_return_heals(folder, damage):
    path = sorted(folder.glob("models/*"))[0]
    sound = path.read_bytes()
    damage(path)
    with expunge.open(folder) as deployment:
        for _ in range(2):
            with pytest.raises(FormatError) as refused:
                deployment.predict(np.zeros((1, 3)))
            assert_one_line(str(refused.value), path.name)
        path.write_bytes(sound)
        deployment.predict(np.zeros((1, 3)))


@pytest.mark.parametrize(
    "learner",
    [
        LookupTableLearner(),
        SlicedScikitLearner(SGDClassifier(), num_slices=3),
        named_learner("naive-bayes-exact"),
        named_learner("forest-exact", num_trees=3),
    ],
    ids=["plain", "sliced", "exact", "forest"],
)
def test_a_deletion_is_applied_though_the_models_that_it_replaces_are_damaged(tmp_path, learner):
    """They only save time: the result is the one of a full training."""
    rows = np.random.default_rng(0).normal(size=(60, 3))
    path = tmp_path / "folder"
    chance = expunge.Randomness.from_seed(0)  # by which all three shards are touched
    expunge.create(path, learner, rows, np.arange(60) % 2, n_shards=3, rng=chance).close()
    with expunge.open(path) as deployment:
        assert deployment.inside.state.models.num_read == 0
        for file in path.glob("models/*"):
            flip(file)
        deployment.delete([*range(20)])
        state = deployment.inside.state
        assert deployment.inside.last_report.num_retrained == 3
        assert {path.name for path in path.glob("models/*")} == {
            name for (name,) in deployment._store.database.rows("SELECT file FROM shards")
        }
        fresh = learn(state.records, state.recipe)
        for shard in range(3):
            found, expected = (encode_model(state.learner, one.models[shard]).data for one in (state, fresh))
            assert found == expected
        deployment.rekey()
        deployment.predict(rows[:1])


def test_a_lost_signing_key_is_named(folder):
    (folder / "keys" / "signing.pem").unlink()
    with expunge.open(folder) as deployment, pytest.raises(expunge.ExpungeError) as refused:
        deployment.certificate()
    assert_one_line(str(refused.value), "signing.pem")


DISAGREEING = """
import os, sys
import numpy as np
import expunge
from expunge.core.errors import FormatError, StoreError
from sklearn.naive_bayes import GaussianNB

X = np.random.default_rng(0).normal(size=(300, 1))
with expunge.create(
    sys.argv[1], GaussianNB(), X, np.arange(300) % 2, n_shards=300, inclusion_probability=0.05,
    promise=expunge.Consensus(target=expunge.Guarantee(8.0, 0.05, 0.05), max_predictions=1000, max_generations=3),
) as deployment:
    execute = deployment._store.database.execute

    def full(statement, values=()):
        if "dirty = 1" in statement:
            raise StoreError("no space left on the disk")
        return execute(statement, values)

    deployment._store.database.execute = full
    deployment.predict(X[:1])  # half of the shards say one, half the other
    print(deployment.inside.budget.exhausted, flush=True)
    os._exit(9)
"""


def test_a_consensus_that_failed_on_a_full_disk_is_remembered_by_a_killed_process(tmp_path):
    """And the requester saw no error, which would not occur at other times."""
    folder = tmp_path / "folder"
    done = subprocess.run([sys.executable, "-c", DISAGREEING, folder], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("True\n", 9), done.stderr
    with expunge.open(folder) as deployment:
        assert deployment.inside.budget.exhausted
        deployment.predict(np.ones((1, 1)))
        assert deployment._store.database.rows("SELECT dirty FROM generations") == [(1,)]
        deployment.delete([5])
        assert deployment.inside.generation == 2
        assert not deployment.inside.budget.exhausted
    with expunge.open(folder) as deployment:
        assert not deployment.inside.budget.exhausted


def test_the_flag_is_of_one_generation(tmp_path):
    first, second = (DirtyFlag(Place.hold(tmp_path), generation) for generation in (1, 2))
    assert not first.is_set
    first.prepare()
    first.prepare()
    assert not first.is_set
    assert first.set()
    first.prepare()
    assert first.is_set
    assert not second.is_set
    second.prepare()
    assert not first.is_set
    for damaged in (b"cut", bytes(13), (tmp_path / "dirty").read_bytes()[:-1] + b"?"):
        (tmp_path / "dirty").write_bytes(damaged)
        assert second.is_damaged
        second.prepare()
        assert second.is_set  # rather once too often than forgotten
    (tmp_path / "dirty").unlink()
    second.prepare()
    assert second.set()
    assert second.is_set
    nowhere = DirtyFlag(Place.hold(tmp_path) / "nowhere", 1)
    nowhere.prepare()
    assert not nowhere.set()


class FullDatabase:
    """A database that is full for a while."""

    def __init__(self) -> None:
        self.is_full = False
        self.written: list[str] = []

    def execute(self, statement: str, _: Any) -> None:
        if self.is_full:
            raise StoreError("no space left on the disk")
        self.written.append(statement)


def test_dirt_that_could_not_be_written_is_written_before_the_next_answer(tmp_path):
    """A full disk at the very moment of a failed consensus must not make the folder forget it."""

    class OneDatabase:
        database = FullDatabase()
        folder = tmp_path / "nowhere"  # nor is there a flag
        place = Place.hold(tmp_path) / "nowhere"

        def require_own(self) -> None:
            pass

    full, books = OneDatabase.database, DurableJournal(OneDatabase(), 1, 100)  # type: ignore[arg-type]
    gate = ConsensusPublisher(
        num_shards=20,
        rng=expunge.Randomness.from_seed(0),
        target=expunge.Guarantee(30.0, 0.4, 0.4),
        max_predictions=50,
        max_generations=2,
        cache_folder=tmp_path,
    )
    gate.journal = books
    rng = expunge.Randomness.from_seed(1)
    full.is_full = True
    for _ in range(2):
        with pytest.raises(StoreError, match="no space left"):
            gate.release(np.array([[10, 10]]), rng)
    full.is_full = False
    assert gate.release(np.array([[20, 0]]), rng).tolist() == [0]
    assert any("dirty = 1" in statement for statement in full.written)
