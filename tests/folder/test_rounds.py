"""A round that fails on its way to the disk, or while what it replaced is erased, at every place where it can."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import expunge
from expunge import Add, Delete
from expunge.core.errors import ExpungeError, StoreError
from expunge.folder import DurableDeployment
from expunge.folder.store import Store, ensembles, files, packs, slabs, steps
from expunge.folder.store.database import Database
from expunge.folder.store.slabs import RecordFolder
from expunge.training.learners import LookupTableLearner

X = np.random.default_rng(0).normal(size=(20, 3))
NAMES = [f"person-{number}" for number in range(20)]


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[DurableDeployment]:
    made = expunge.create(
        tmp_path / "folder",
        LookupTableLearner(),
        X,
        np.arange(20) % 2,
        ids=NAMES,
        n_shards=8,
        inclusion_probability=0.9,
        promise="unguarded",
    )
    yield made
    made.close()


def files_of(deployment: DurableDeployment) -> dict[str, bytes]:
    """Everything but the books."""
    found = (deployment.path / name for name in ("models", "records", "waiting"))
    return {str(path): path.read_bytes() for each in found for path in each.rglob("*") if path.is_file()}


def events_of(deployment: DurableDeployment) -> list[str]:
    return [json.loads(row[0])["event"] for row in deployment._store.database.rows("SELECT entry FROM ledger")]


def fail(*_: Any, **__: Any) -> Any:
    raise OSError(5, "Input/output error")


def interrupt(*_: Any, **__: Any) -> Any:
    raise KeyboardInterrupt


class FailsAtTheThird:
    """Passes two calls on."""

    def __init__(self, act: Any, how: Any) -> None:
        self.act, self.how, self.calls = act, how, 0
        self._lock = threading.Lock()

    def __call__(self, *args: Any, **options: Any) -> Any:
        with self._lock:
            self.calls += 1
            fails = self.calls >= 3
        return self.how() if fails else self.act(*args, **options)

    def __get__(self, one: Any, _: Any = None) -> Any:
        return lambda *args, **options: self(one, *args, **options)


ON_ITS_WAY = {
    "training": (LookupTableLearner, "fit"),
    "a model's file": (packs.Shelf, "add"),
    "a model's bytes": (ensembles, "encode_model"),
    "the records": (slabs, "_append"),
    "a folder's list": (ensembles, "flush_files"),
}


@pytest.mark.parametrize("how", [fail, interrupt])
@pytest.mark.parametrize("what", ON_ITS_WAY)
def test_what_fails_on_its_way_leaves_nothing_and_is_applied_later(
    deployment: DurableDeployment, monkeypatch: pytest.MonkeyPatch, what: str, how: Any
) -> None:
    before, place = files_of(deployment), ON_ITS_WAY[what]
    asked = deployment.submit([Delete("person-3"), Add(id="new", features=[7.0, 8.0, 9.0], label=1)])
    waiting = {name: data for name, data in files_of(deployment).items() if name not in before}
    with monkeypatch.context() as patch:
        wrong = FailsAtTheThird(getattr(*place), how)
        wrong.calls = 2 if what == "a folder's list" else 0
        patch.setattr(*place, wrong)
        with pytest.raises((ExpungeError, KeyboardInterrupt)):
            deployment.apply()
    assert files_of(deployment) == {**before, **waiting}, "what was staged is gone, and nothing else"
    assert deployment.request(asked.request).state == "pending"
    assert deployment.apply() == 1
    assert {*deployment.records.ids()} == {*NAMES, "new"} - {"person-3"}
    deployment.close()
    with expunge.open(deployment.path) as found:
        assert found.records.ids() == deployment.records.ids()
        assert found.records.gather(np.array([20]))[0].tolist() == [[7.0, 8.0, 9.0]]


WHILE_ERASING = {
    "overwriting": (RecordFolder, "erase"),
    "cutting": (RecordFolder, "cut"),
    "removing": (Store, "remove"),
    "removing one": (files, "remove_place"),
    "emptying the log": (Database, "checkpoint"),
    "flushing": (os, "fdatasync"),
}


@pytest.mark.parametrize("how", [fail, interrupt])
@pytest.mark.parametrize("what", WHILE_ERASING)
def test_nothing_counts_as_applied_before_all_of_it_is_erased(
    deployment: DurableDeployment, monkeypatch: pytest.MonkeyPatch, what: str, how: Any
) -> None:
    """The parts of an erasure are done side by side: that the others succeed is not enough."""
    with monkeypatch.context() as patch:

        def sabotage(step: str) -> None:
            if step == "switch.done":
                patch.setattr(*WHILE_ERASING[what], how)

        patch.setattr(steps, "on_step", sabotage)
        with pytest.raises((StoreError, KeyboardInterrupt)):
            deployment.delete(["person-3"])
    (asked,) = deployment.requests()
    assert (asked.state, asked.public_state, asked.applied_by) == ("switched", "pending", None)
    assert events_of(deployment) == ["created", "accepted"]
    assert deployment.apply() is None
    assert deployment.request(asked.request).state == "applied"
    assert events_of(deployment) == ["created", "accepted", "applied"]
    deployment.close()
    everything = b"".join(path.read_bytes() for path in deployment.path.rglob("*") if path.is_file())
    assert b"person-3" not in everything
    assert X[3].tobytes() not in everything
    assert X[4].tobytes() in everything
