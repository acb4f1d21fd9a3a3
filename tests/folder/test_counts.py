"""What a deletion asks of the disk is bounded, and the same for few shards and for many."""

from __future__ import annotations

import os
import shutil
import threading
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import expunge
from expunge.folder.checkup import check
from expunge.folder.store.store import Store
from expunge.training.learners import LookupTableLearner

DELETIONS = 4


def count_deletions(
    folder: Path, num_shards: int, monkeypatch: pytest.MonkeyPatch, *, batch: int = 1
) -> tuple[Counter[str], Counter[str]]:
    """Calls of the operating system, and statements of the database, in a few deletions of so many records each."""
    X = np.arange(800.0).reshape(400, 2)
    calls, statements = Counter[str](), Counter[str]()
    with expunge.create(folder, LookupTableLearner(), X, np.arange(400) % 2, n_shards=num_shards) as deployment:
        deployment.delete([0])

        def counted(owner: object, name: str, kind: str) -> None:
            original = getattr(owner, name)

            def call(*arguments: object, **options: object) -> object:
                calls[kind] += 1
                return original(*arguments, **options)

            monkeypatch.setattr(owner, name, call)

        with monkeypatch.context():
            for name in ("fsync", "fdatasync"):
                counted(os, name, "syncs")
            for name in ("write", "pwrite"):
                counted(os, name, "writes")
            for name in ("listdir", "scandir"):
                counted(os, name, "listings")
            counted(threading.Thread, "start", "threads")
            counted(Store, "_strays", "sweeps")
            trace = deployment._store.database._connection.set_trace_callback
            trace(lambda text: statements.update([text.split(" ")[0]] if not text.startswith("--") else []))
            for first in range(1, 1 + batch * DELETIONS, batch):
                deployment.delete(range(first, first + batch))
            trace(None)
        monkeypatch.undo()
    return calls, statements


def test_a_deletion_asks_no_more_of_the_disk_where_there_are_more_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few, _ = count_deletions(tmp_path / "few", 3, monkeypatch)
    calls, statements = count_deletions(tmp_path / "many", 120, monkeypatch)
    for kind in ("syncs", "writes", "listings", "sweeps", "threads"):
        assert few[kind] == calls[kind]
    assert calls["syncs"] <= 7 * DELETIONS  # the new model and its name, the rows in four files, the old model
    assert calls["writes"] <= 8 * DELETIONS
    assert calls["threads"] == 0
    assert calls["listings"] == 0
    assert calls["sweeps"] == 0
    assert statements["COMMIT"] == 2 * DELETIONS  # accepted and switched; applied
    assert statements["SELECT"] <= 24 * DELETIONS
    assert statements["PRAGMA"] == 0  # the log is not emptied


def test_a_deletion_of_many_records_writes_one_file_of_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many it trains; what it replaces lies in few files after the first such deletions."""
    calls, statements = count_deletions(tmp_path / "many", 4, monkeypatch, batch=40)
    assert calls["syncs"] <= 7 * DELETIONS + 4  # at first each model has a file of its own
    assert calls["threads"] == 0
    assert statements["COMMIT"] == 2 * DELETIONS


def test_a_model_on_a_shelf_is_overwritten_when_it_is_replaced(tmp_path: Path) -> None:
    """And the whole file goes with the last one. A table model holds the rows of its shard as they are."""
    X = np.random.default_rng(0).normal(size=(60, 2))
    with expunge.create(tmp_path / "folder", LookupTableLearner(), X, np.arange(60) % 2, n_shards=5) as deployment:
        models = tmp_path / "folder" / "models"
        deployment.delete(range(30))
        (shelf,) = models.glob("*.shelf")
        assert len(list(models.iterdir())) == 1
        for gone in range(30, 60):
            assert X[gone].tobytes() in b"".join(path.read_bytes() for path in models.iterdir())
            deployment.delete([gone])
            assert X[gone].tobytes() not in b"".join(path.read_bytes() for path in models.iterdir())
        assert not shelf.exists()
    assert check(tmp_path / "folder").is_sound


def test_a_model_that_was_left_on_a_shelf_is_overwritten_at_the_next_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = np.random.default_rng(0).normal(size=(60, 2))
    folder = tmp_path / "folder"
    with expunge.create(folder, LookupTableLearner(), X, np.arange(60) % 2, n_shards=5) as deployment:
        deployment.delete(range(30))
        with monkeypatch.context() as patch:
            patch.setattr(Store, "overwrite_models", lambda *_: (_ for _ in ()).throw(OSError("the disk failed")))
            with pytest.raises(expunge.ExpungeError):
                deployment.delete([30])
        assert X[30].tobytes() in b"".join(path.read_bytes() for path in folder.glob("models/*"))
        shutil.copytree(folder, tmp_path / "killed")
    with expunge.open(tmp_path / "killed") as found:
        assert 30 not in found.records
        assert [one.state for one in found.requests()] == ["applied", "applied"]
        assert X[30].tobytes() not in b"".join(path.read_bytes() for path in tmp_path.glob("killed/models/*"))
        found.predict(X[:1])


def test_a_file_that_no_database_names_goes_at_the_next_opening(tmp_path: Path) -> None:
    """And so does a replaced model whose removal was cut short: after an error all files are looked at."""
    X = np.arange(80.0).reshape(40, 2)
    expunge.create(tmp_path / "folder", LookupTableLearner(), X, np.arange(40) % 2, n_shards=3).close()
    stray = tmp_path / "folder" / "models" / f"00001-{16 * 'a'}.model"
    with expunge.open(tmp_path / "folder") as deployment:
        stray.write_bytes(b"left behind")
        deployment.delete([1])
        assert stray.exists()
        assert len(list(stray.parent.iterdir())) == 4  # the model that was replaced is gone
    with expunge.open(tmp_path / "folder"):
        assert not stray.exists()


def test_after_a_failed_removal_all_files_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.arange(80.0).reshape(40, 2)
    with expunge.create(tmp_path / "folder", LookupTableLearner(), X, np.arange(40) % 2, n_shards=3) as deployment:
        models = tmp_path / "folder" / "models"

        def fail(*arguments: object) -> None:
            raise OSError("the disk failed")

        with monkeypatch.context() as patch:
            patch.setattr(Store, "remove", fail)
            with pytest.raises(expunge.ExpungeError):
                deployment.delete([1])
        assert len(list(models.iterdir())) == 4
        deployment.delete([2])
        assert len(list(models.iterdir())) == 3
