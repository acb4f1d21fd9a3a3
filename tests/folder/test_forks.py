"""Processes that are forked from the one that has a folder open: they publish nothing, and damage nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import expunge
from expunge.core.errors import FolderBusyError, StoreError
from expunge.folder import DurableDeployment, open_view
from expunge.training.learners import LookupTableLearner

X = np.arange(40, dtype=np.float32).reshape(20, 2)
Y = np.arange(20) % 2


@pytest.fixture
def deployment(tmp_path: Path) -> Any:
    options = {"n_shards": 3, "promise": expunge.Noise("exponential", max_predictions=6400)}
    made = expunge.create(tmp_path / "folder", LookupTableLearner(), X, Y, **options)
    yield made
    made.close()


def said_by_child(act: Callable[[], object]) -> str:
    """What the child's error says, or nothing."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # a child that waits for a lock of a thread that is not there
        try:
            act()
        except BaseException as error:
            os.write(writing, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.close(writing)
    _, status = os.waitpid(child, 0)
    assert status == 0
    with os.fdopen(reading) as pipe:
        return pipe.read()


def books(deployment: DurableDeployment) -> Any:
    return deployment._store.database.row("SELECT reserved FROM generations")


ACTS: dict[str, Callable[[DurableDeployment], object]] = {
    "predict": lambda deployment: deployment.predict(X[3:8]),
    "delete": lambda deployment: deployment.delete([1]),
    "submit": lambda deployment: deployment.submit([expunge.Delete(1)]),
    "apply": lambda deployment: deployment.apply(),
    "retrain": lambda deployment: deployment.rekey(),
    "cancel": lambda deployment: deployment.cancel("x"),
    "status": lambda deployment: deployment.status,
    "certificate": lambda deployment: deployment.certificate(),
    "reserve": lambda deployment: deployment.inside.publisher.journal.reserve(1, 10.0),
    "mark dirty": lambda deployment: deployment.inside.publisher.journal.mark_dirty(),
    "close the journal": lambda deployment: deployment.inside.publisher.journal.close(0),
}


@pytest.mark.parametrize("act", ACTS)
def test_a_child_is_refused(deployment: DurableDeployment, act: str) -> None:
    deployment.predict(X[:3])
    before = books(deployment)
    with (
        deployment._deployment._updating,
        deployment._inbox.lock,
        deployment._store.database._lock,
    ):  # as a thread might
        said = said_by_child(lambda: ACTS[act](deployment))
    assert said == f"StoreError: {deployment.path} was opened by another process; open it there"
    assert books(deployment) == before
    deployment.delete([1])
    assert deployment.status.budget.predictions == 3


def test_a_child_neither_opens_nor_looks_at_what_it_inherited(deployment: DurableDeployment) -> None:
    for act in (open_view, expunge.open):
        said = said_by_child(lambda act=act: act(deployment.path))  # type: ignore[misc]
        assert "was open when this process was forked" in said or FolderBusyError.__name__ in said


def test_a_child_that_closes_changes_nothing(deployment: DurableDeployment) -> None:
    deployment.predict(X[:3])
    before = books(deployment)
    assert before[0] > 3  # a block, which only the parent gives back
    assert said_by_child(deployment.close) == ""
    assert said_by_child(deployment._store.close) == ""
    assert books(deployment) == before
    deployment.predict(X[3:5])
    with pytest.raises(FolderBusyError):
        expunge.open(deployment.path)
    deployment.close()
    with expunge.open(deployment.path) as other:
        assert other.status.budget.predictions == 5


def test_a_child_does_not_keep_the_lock(deployment: DurableDeployment) -> None:
    assert deployment._store._lock is not None
    assert not os.get_inheritable(deployment._store._lock._descriptor)  # for programs that are started
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writable, b"!")
        signal.pause()
        os._exit(0)
    os.read(readable, 1)  # the child runs, and has released the lock
    try:
        deployment.close()
        with expunge.open(deployment.path) as other:
            assert other.status.budget.predictions == 0
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


ENDS = """
import os, sys, numpy as np, expunge
from expunge.training.learners import LookupTableLearner
X = np.arange(40.0).reshape(20, 2)
deployment = expunge.create(sys.argv[1], LookupTableLearner(), X, np.arange(20) % 2, n_shards=3, apply="manual",
                            promise=expunge.Noise("exponential", max_predictions=6400))
deployment.predict(X[:3])
deployment.delete([1])
with deployment._store.database.transaction():
    deployment._store.write_fact("name", "half")
    if (child := os.fork()) == 0:
        sys.exit(0)  # through every context manager and the end of the interpreter
    os.waitpid(child, 0)
    deployment._store.write_fact("name", "whole")
log = os.path.getsize(os.path.join(sys.argv[1], "state.db-wal"))
if (child := os.fork()) == 0:
    del deployment
    sys.exit(0)
os.waitpid(child, 0)
assert os.path.getsize(os.path.join(sys.argv[1], "state.db-wal")) == log
deployment.predict(X[3:5])
deployment.delete([2])
print(deployment.status.pending, deployment.status.budget.predictions)
deployment.close()
"""


def test_a_child_that_ends_damages_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ENDS, str(tmp_path / "folder")], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["2", "5"]
    with expunge.open(tmp_path / "folder") as deployment:
        assert deployment.status.pending == 2
        assert deployment.status.budget.predictions == 5
        assert deployment.status.name == "whole"


def test_what_another_has_reserved_is_not_given_back(deployment: DurableDeployment) -> None:
    deployment.predict(X[:3])
    deployment._store.database.execute("UPDATE generations SET reserved = 1000")
    deployment.close()
    with expunge.open(deployment.path) as other:
        assert other.status.budget.predictions == 1000


def test_the_view_of_a_parent_is_refused_too(deployment: DurableDeployment) -> None:
    with open_view(deployment.path) as view:
        assert "another process" in said_by_child(lambda: view.status)
        assert view.status.pending == 0
    with pytest.raises(StoreError, match="closed"):
        _ = view.status
