"""Replicas: the same answers from another process, from the round in force, and never from one that was left behind."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from numpy.typing import NDArray
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.naive_bayes import GaussianNB, MultinomialNB

import expunge
from expunge.core.errors import FolderBusyError, InputError, NotPublishedError, StoreError
from expunge.folder import DurableDeployment
from expunge.folder.replica import Replica, ReplicaEndedError, open_replica
from expunge.folder.store import leases, replace_folder
from expunge.folder.store.leases import LeaseError
from expunge.folder.store.models import StoredModels
from expunge.folder.store.slabs import RecordFolder
from expunge.folder.store.tally import _packed
from expunge.serving.promises import Consensus, Noise, Student
from expunge.training.learners import LookupTableLearner
from expunge.training.learners.named import named_learner

PROCESS = Path(__file__).parent / "processes" / "replica.py"
SECONDS = 0.5  # of a lease
rng = np.random.default_rng(0)
X = rng.normal(size=(120, 3))
Y = np.where(X[:, 0] > 0, "yes", "no")


def make(folder: Path, learner: Any = None, rows: Any = X, labels: Any = Y, **options: Any) -> DurableDeployment:
    return expunge.create(folder, learner or GaussianNB(), rows, labels, **{"n_shards": 5, **options})


def agree(deployment: DurableDeployment, replica: Replica, rows: Any) -> None:
    wants_probabilities = deployment.is_exact and not deployment.records.is_regression
    own, other = (each.answer(rows, probabilities=wants_probabilities) for each in (deployment, replica))
    assert own.round == other.round
    for name in ("codes", "values", "probabilities"):
        left, right = getattr(own, name), getattr(other, name)
        assert (left is None) == (right is None)
        assert left is None or np.array_equal(left, right, equal_nan=left.dtype.kind == "f")


def frame(size: int, seed: int = 0) -> pd.DataFrame:
    draw = np.random.default_rng(seed)
    colours = pd.Categorical.from_codes(draw.integers(0, 3, size), ["red", "green", "blue"])
    return pd.DataFrame({"a": draw.normal(size=size), "colour": colours})


KINDS: dict[str, tuple[Any, Any, Any]] = {
    "array": (GaussianNB(), X, Y),
    "votes": (LookupTableLearner(), np.round(X), Y),
    "linear": (LogisticRegression(), X, Y),
    "numbers": (LinearRegression(), X, X[:, 0] * 2),
    "neighbours": (named_learner("neighbours-exact"), X, Y),
    "sparse": (MultinomialNB(), scipy.sparse.csr_matrix(np.abs(np.round(X))), Y),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("encrypt", [False, True])
def test_a_replica_gives_the_deployments_own_answers_in_every_round(folder: Path, kind: str, encrypt: bool) -> None:
    learner, rows, labels = KINDS[kind]
    options = {"ids": [f"r{n}" for n in range(120)], "subjects": [f"s{n // 3}" for n in range(120)]}
    with make(folder, learner, rows, labels, encrypt=encrypt, **options) as deployment, open_replica(folder) as replica:
        agree(deployment, replica, rows)
        replica.start()
        assert deployment.delete(["r1"], subjects=["s10"]).state == "applied"
        agree(deployment, replica, rows)
        deployment.add(rows[:2], labels[:2], ["new", "newer"])
        agree(deployment, replica, rows)
        deployment.rekey()
        deployment.delete(["r7"])
        agree(deployment, replica, rows)
        assert replica.status == deployment.status
        assert replica.promise == deployment.promise
        assert replica.guarantee() == deployment.guarantee()


def test_a_data_frame_with_categories(folder: Path) -> None:
    from sklearn.compose import make_column_transformer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    encoder = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["colour"]), remainder="passthrough")
    rows = frame(120)
    with (
        make(folder, make_pipeline(encoder, LogisticRegression()), rows, Y) as deployment,
        open_replica(folder) as replica,
    ):
        replica.start()
        deployment.delete([5])
        agree(deployment, replica, rows[::-1])
        with pytest.raises(InputError, match="queries must have the form"):
            replica.answer(X)


def test_a_student_answers_in_replicas_too(folder: Path) -> None:
    side = np.arange(120) % 2
    points = rng.normal(size=(160, 3)) + 3 * (np.arange(160) % 2)[:, None]
    promise = Student(points[120:], target=expunge.Guarantee(8.0, 0.05, 0.05), max_generations=3, max_predictions=1000)
    options: dict[str, Any] = {"n_shards": 100, "inclusion_probability": 0.3, "promise": promise}
    with make(folder, GaussianNB(), points[:120], side, **options) as deployment, open_replica(folder) as replica:
        agree(deployment, replica, X)
        replica.start()
        deployment.delete([1, 2, 3])
        agree(deployment, replica, X)
        assert replica.status == deployment.status
        assert replica.status.budget is None
        with pytest.raises(NotPublishedError):
            replica.answer(X, probabilities=True)


@pytest.mark.parametrize("promise", [Noise("laplace"), Consensus(max_generations=3), "router", "unguarded"])
def test_a_promise_with_a_budget_is_refused_in_one_line(folder: Path, promise: Any) -> None:
    make(folder, LookupTableLearner(), np.round(X), promise=promise).close()
    with pytest.raises(InputError, match="every answer is paid for from one budget: one process serves it"):
        open_replica(folder)
    assert not (folder / "replicas").exists()


def test_a_replica_reads_no_record_and_only_the_models_that_changed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with make(folder, n_shards=20) as deployment:
        read: list[int] = []
        get = StoredModels.__getitem__
        with monkeypatch.context() as patched:
            patched.setattr(RecordFolder, "read", lambda *_: pytest.fail("a replica reads no record"))
            patched.setattr(
                StoredModels,
                "__getitem__",
                lambda self, n: read.extend(range(len(self))[n] if isinstance(n, slice) else [n]) or get(self, n),
            )
            replica = open_replica(folder)
            assert read == [*range(20)]
        deployment.submit([expunge.Delete(3)])
        deployment._keeper._followers.wait = lambda _: None  # type: ignore[method-assign]
        deployment.apply()
        with monkeypatch.context() as patched:
            del read[:]
            patched.setattr(StoredModels, "__getitem__", lambda self, n: read.append(n) or get(self, n))
            patched.setattr(RecordFolder, "read", lambda *_: pytest.fail("a replica reads no record"))
            replica.follow()
            assert len(read) == 1
        agree(deployment, replica, X)
        replica.close()


def contents_of(folder: Path) -> dict[str, bytes]:
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {name: content for name, content in found.items() if not name.startswith(("replicas/", "state.db-"))}


def test_a_replica_changes_nothing_but_its_own_file(folder: Path) -> None:
    with make(folder) as deployment:
        deployment.delete([1])
        before = contents_of(folder)
        with open_replica(folder) as replica:
            replica.start()
            replica.answer(X)
            assert len(list((folder / "replicas").iterdir())) == 1
            assert contents_of(folder) == before
        assert not list((folder / "replicas").iterdir())
        assert contents_of(folder) == before


def test_it_needs_no_writer(folder: Path) -> None:
    make(folder).close()
    with open_replica(folder, lease=SECONDS) as replica:
        replica.start()
        time.sleep(2 * SECONDS)
        assert replica.answer(X).round == 0
    with expunge.open(folder) as deployment:
        assert deployment.delete([1]).state == "applied"


def test_without_following_it_stops_answering_by_itself(folder: Path) -> None:
    with make(folder) as deployment, open_replica(folder, lease=SECONDS) as replica:
        begun = time.monotonic()
        assert deployment.delete([1]).state == "applied"  # it waits for the lease
        assert time.monotonic() - begun > SECONDS
        with pytest.raises(LeaseError, match="has not followed"):
            replica.answer(X)
        deployment.delete([2])
        replica.follow()
        agree(deployment, replica, X)


def test_a_schema_that_is_declared_anew_ends_it(folder: Path) -> None:
    with make(folder) as deployment, open_replica(folder) as replica:
        deployment.redeclare(add_classes=["maybe"])
        with pytest.raises(ReplicaEndedError, match="was declared anew: start the replica again"):
            replica.follow()
        with pytest.raises(LeaseError):
            replica.answer(X)
        deployment.delete([1])
    with expunge.open(folder) as deployment, open_replica(folder) as replica:
        agree(deployment, replica, X)


@pytest.mark.parametrize("how", ["moved", "removed", "replaced"])
def test_a_folder_that_is_not_there_any_more_ends_it(folder: Path, how: str) -> None:
    make(folder).close()
    with open_replica(folder) as replica:
        if how == "removed":
            shutil.rmtree(folder)
        else:
            folder.rename(folder.with_name("elsewhere"))
        if how == "replaced":
            make(folder).close()
        with pytest.raises(ReplicaEndedError, match="was removed, moved or replaced: start the replica again"):
            replica.follow()
        with pytest.raises(LeaseError):
            replica.answer(X)


def test_a_folder_with_replicas_is_not_replaced(folder: Path) -> None:
    make(folder).close()
    new = folder.with_name("new")
    make(new).close()
    with open_replica(folder), pytest.raises(FolderBusyError, match="is in use by a replica, process"):
        replace_folder(new, folder)
    with expunge.open(folder) as deployment:
        assert deployment.status.round == 0
    replace_folder(new, folder)


def test_a_folder_that_cannot_be_followed_says_so_and_is_tried_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with make(folder) as deployment, open_replica(folder, lease=SECONDS) as replica:
        replica.start()
        with monkeypatch.context() as patched:
            patched.setattr(type(replica._store), "read_point", lambda _: 1 // 0)
            deadline = time.monotonic() + 30
            while replica.failure is None and time.monotonic() < deadline:
                time.sleep(0.01)
            assert "cannot be followed: ZeroDivisionError" in str(replica.failure)
        assert deployment.delete([1]).state == "applied"
        deadline = time.monotonic() + 30
        while (replica.failure is not None or not replica.has_lease) and time.monotonic() < deadline:
            time.sleep(0.01)
        agree(deployment, replica, X)
        assert replica.failure is None


# Processes.


@contextmanager
def running(folder: Path, *, seconds: float = SECONDS) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(PROCESS), str(folder), str(seconds)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.communicate()


def end(process: subprocess.Popen[str]) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(process.communicate("end\n", timeout=60)[0])
    return told


def require_fresh(told: dict[str, Any], applied: list[tuple[float, int]]) -> None:
    """No question that came after a round was shown as applied may be answered from an earlier one."""
    for came, round_ in told["answers"]:
        shown = [each for at, each in applied if at < came]
        assert round_ >= max(shown, default=0)


def rows() -> tuple[NDArray[Any], NDArray[Any]]:
    return np.arange(400, dtype=np.float32).reshape(200, 2), np.arange(200) % 2


def test_two_replicas_one_of_them_stopped_and_continued_again_and_again(folder: Path) -> None:
    draw = random.Random(1)
    with make(folder, LookupTableLearner(), *rows()) as deployment, running(folder) as left, running(folder) as right:
        applied, is_stopped = [], False
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline:
            if draw.random() < 0.3:
                is_stopped = not is_stopped
                right.send_signal(signal.SIGSTOP if is_stopped else signal.SIGCONT)
            receipt = deployment.delete([len(applied)])
            assert receipt.round is not None
            applied.append((time.monotonic(), receipt.round))
        right.send_signal(signal.SIGCONT)
        time.sleep(2 * SECONDS)
        for process in (left, right):
            told = end(process)
            require_fresh(told, applied)
            assert told["answers"][-1][1] == applied[-1][1]
            assert told["refused"] == 0 or process is right
            assert told["failure"] == ""
        assert len(applied) > 5


def test_a_replica_that_is_stopped_costs_its_lease_once_and_one_that_is_killed_nothing(folder: Path) -> None:
    with make(folder, LookupTableLearner(), *rows()) as deployment, running(folder, seconds=1) as process:

        def delete() -> float:
            begun = time.monotonic()
            assert deployment.delete([deployment.status.round]).state == "applied"
            return time.monotonic() - begun

        process.send_signal(signal.SIGSTOP)
        assert delete() > 1
        process.send_signal(signal.SIGCONT)
        process.send_signal(signal.SIGKILL)
        process.wait()
        with running(folder, seconds=300) as longer:
            longer.send_signal(signal.SIGSTOP)
            longer.kill()
            longer.wait()
            assert delete() < 100
        assert not list((folder / "replicas").iterdir())


@pytest.mark.parametrize("step", ["switch.done", "replicas.followed"])
def test_a_writer_that_is_killed_after_its_switch(folder: Path, step: str) -> None:
    """The replica follows the round, and its request is shown as applied once there is a writer again."""
    make(folder).close()
    code = (
        "import os, signal, sys, expunge\n"
        "from expunge.folder.store import steps\n"
        "def at(step):\n"
        "    if step == sys.argv[2]: os.kill(os.getpid(), signal.SIGKILL)\n"
        "deployment = expunge.open(sys.argv[1])\n"
        "steps.on_step = at\n"
        "deployment.delete([3])\n"
    )
    with open_replica(folder, lease=60) as replica:
        replica.start()
        done = subprocess.run([sys.executable, "-c", code, str(folder), step], check=False, timeout=60)
        assert done.returncode == -signal.SIGKILL
        deadline = time.monotonic() + 30
        while replica.answer(X).round == 0 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert replica.answer(X).round == 1
        assert replica.status.pending == 1
        with expunge.open(folder) as deployment:
            assert [each.public_state for each in deployment.requests()] == ["applied"]
            agree(deployment, replica, X)


def test_what_sqlite_shows_may_not_be_older_than_the_last_transaction(folder: Path) -> None:
    with make(folder) as deployment, open_replica(folder) as replica:
        number = deployment._store.database.moment()
        (folder / "moment").write_bytes(_packed(number + 1))
        with pytest.raises(StoreError, match="what is read of it is out of date"):
            replica.follow()
        (folder / "moment").write_bytes(_packed(number))
        replica.follow()


def test_the_protocol_without_waiting_is_noticed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases.Followers, "outstanding", lambda _: [])
    with make(folder, LookupTableLearner(), *rows()) as deployment, running(folder, seconds=5) as process:
        process.send_signal(signal.SIGSTOP)
        receipt = deployment.delete([0])
        shown = [(time.monotonic(), receipt.round or 0)]
        process.send_signal(signal.SIGCONT)
        time.sleep(0.5)
        told = end(process)
        with pytest.raises(AssertionError):
            require_fresh(told, shown)
