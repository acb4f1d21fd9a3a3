"""What other users of the machine can read: free inodes and blocks do not tell how many shards a round trained.

`statvfs` counts them for a whole file system. Here the files and blocks of the folder alone are counted, at every step
of a round: they are what the round changes, and no other program disturbs them.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

import expunge
from expunge import Consensus, Noise
from expunge.core.errors import FormatError
from expunge.folder import opening
from expunge.folder.checkup import check
from expunge.folder.store import ensembles, steps
from expunge.serving.deployment import Deployment

RNG = np.random.default_rng(0)
X = RNG.normal(size=(240, 3))
Y = (X[:, 0] + 0.5 * RNG.normal(size=240) > 0).astype(int)  # so that trees differ in size
Footprint = tuple[int, int]
# While these are done side by side, the log is for an instant empty. It always is.
SIDE_BY_SIDE = ("erase.", "remove.", "sweep.", "waiting.")


@pytest.fixture
def home(quick_folder: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=quick_folder) as name:
        yield Path(name)


def footprint(folder: Path) -> Footprint:
    """How many inodes and blocks the folder takes."""
    files, blocks = 0, 0
    for root, _, names in os.walk(folder):
        for name in (".", *names):
            try:
                found = os.lstat(Path(root, name))
            except FileNotFoundError:
                continue
            files, blocks = files + 1, blocks + found.st_blocks
    return files, blocks


def watched(deployment: Any, act: Any, monkeypatch: pytest.MonkeyPatch) -> list[Footprint]:
    """The footprints at the steps of what is done, one after another, as long as they differ."""
    seen = [footprint(deployment.path)]

    def look(step: str) -> None:
        now = footprint(deployment.path)
        if not step.startswith(SIDE_BY_SIDE) and now != seen[-1]:
            seen.append(now)

    with monkeypatch.context() as patched:
        patched.setattr(steps, "on_step", look)
        act()
    look("end")
    return seen


def made(folder: Path, promise: Any, **more: Any) -> Path:
    learner = DecisionTreeClassifier(random_state=0)
    options = {"n_shards": 20, "inclusion_probability": 0.25, "promise": promise, **more}
    expunge.create(folder, learner, X, Y, **options).close()
    return folder


def rounds(
    home: Path, first: Path, monkeypatch: pytest.MonkeyPatch, count: int = 8
) -> tuple[list[int], list[list[Footprint]]]:
    """In copies of one folder, delete one record each: how many shards were trained, and the footprints."""
    touched, seen = [], []
    for record in range(count):
        copy = Path(shutil.copytree(first, home / f"{first.name}-{record}"))
        with expunge.open(copy) as deployment:
            seen.append(watched(deployment, lambda: deployment.delete([record]), monkeypatch))  # noqa: B023
            touched.append(deployment.inside.last_report.num_retrained)
        shutil.rmtree(copy)
    return touched, seen


PROMISES = [Consensus(max_predictions=1000), Noise("exponential", max_predictions=1000)]


@pytest.mark.parametrize("promise", PROMISES, ids=["consensus", "noise"])
def test_files_and_blocks_do_not_tell_how_many_shards_were_trained(
    home: Path, promise: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = made(home / "first", promise)
    assert len(list((first / "models").iterdir())) == 1
    touched, seen = rounds(home, first, monkeypatch)
    assert len(set(touched)) >= 3, touched
    assert all(each == seen[0] for each in seen)
    assert seen[0][0] == seen[0][-1]  # and nothing is left of a round


def test_the_file_of_keys_does_not_tell_it_either(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an encrypted folder every model has a key, and those of a round are there twice for a moment."""
    keys = "keys/erasure.key"
    first = made(home / "first", PROMISES[0], encrypt=True)
    touched, sizes = set[int](), list[list[int]]()
    for record in range(8):
        copy = Path(shutil.copytree(first, home / f"copy-{record}"))
        with expunge.open(copy) as deployment:
            seen = [os.stat(copy / keys).st_size]
            monkeypatch.setattr(steps, "on_step", lambda _: seen.append(os.stat(copy / keys).st_size))  # noqa: B023
            deployment.delete([record])
            monkeypatch.undo()
            touched.add(deployment.inside.last_report.num_retrained)
            assert deployment._store.keys.num_keys == len(deployment.records) + 20
        sizes.append(sorted(set(seen)))
        assert check(copy).is_sound
        shutil.rmtree(copy)
    assert len(touched) >= 3
    assert all(each == sizes[0] for each in sizes)
    assert sizes[0][-1] > sizes[0][0]


def test_with_a_file_a_model_they_would_tell(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "hides_counts", lambda promise: False)
    monkeypatch.setattr(ensembles, "_FEW", 1_000)  # no models of a round in one file
    touched, seen = rounds(home, made(home / "first", PROMISES[0]), monkeypatch)
    most = [max(files for files, _ in each) - each[0][0] for each in seen]
    assert [each - min(most) for each in most] == [each - min(touched) for each in touched]


def test_nothing_tells_that_a_consensus_failed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = made(home / "first", PROMISES[0])
    expected = rounds(home, first, monkeypatch, count=1)[1][0]
    with expunge.open(first) as deployment:
        mark = watched(deployment, deployment.inside.publisher.journal.mark_dirty, monkeypatch)
        assert len(mark) == 1
        monkeypatch.setattr(Deployment, "_must_retrain", True)
        full = watched(deployment, lambda: deployment.delete([0]), monkeypatch)
        assert deployment.inside.generation == 2
        assert deployment.inside.last_report.num_retrained == 20
    assert full == expected


def test_the_salts_of_all_commitments_are_new_in_every_round(home: Path) -> None:
    with expunge.open(made(home / "first", PROMISES[0])) as deployment:

        def salts() -> dict[int, bytes]:
            return dict(deployment._store.database.rows("SELECT shard, salt FROM shards"))

        before = salts()
        deployment.delete([0])
        assert deployment.inside.last_report.num_retrained < 20
        assert not set(salts().values()) & set(before.values())


def test_models_that_were_not_read_are_read_from_the_new_file(home: Path) -> None:
    first = made(home / "first", PROMISES[1])
    with expunge.open(first) as deployment:
        old = deployment.inside.state
        deployment.delete([0])
        deployment.delete([1])
        new = deployment.inside.state
        assert 0 < new.models.num_read < 20  # those that were trained
        assert old.count_votes(X[:5]).sum() == 5 * 20  # a prediction under way goes on with the old round
        votes = new.votes(X)
    with expunge.open(first) as deployment:
        assert (deployment.inside.state.votes(X) == votes).all()
        assert check(first).is_sound


def test_a_changed_part_is_told_by_the_checkup_and_where_it_is_read(home: Path) -> None:
    first = made(home / "first", PROMISES[1])
    (path,) = (first / "models").iterdir()
    data = bytearray(path.read_bytes())
    data[16 + 20 * 16 + 5] ^= 1  # in the first model
    path.write_bytes(data)
    (line,) = check(first).damage
    assert f"the model file {path} is not what was written" in line
    with expunge.open(first) as deployment:
        with pytest.raises(FormatError, match="has another digest"):
            deployment.inside.state.models[0]
        assert deployment.inside.state.models[1] is not None
        deployment.rekey()
    assert check(first).is_sound


def test_the_log_keeps_its_room_and_a_full_disk_is_no_hindrance(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with expunge.open(made(home / "first", PROMISES[0])) as deployment:
        log = deployment.path / "state.db-wal"
        rooms = {os.stat(log).st_blocks}
        for record in range(3):
            deployment.delete([record], apply=False)
            rooms.add(os.stat(log).st_blocks)
        deployment.apply()
        rooms.add(os.stat(log).st_blocks)
        assert len(rooms) == 1
        assert 512 * rooms.pop() >= 1 << 21
        deployment._store.database.reserve_log(1 << 50)  # there is no such disk
        assert deployment.delete([3]).state == "applied"
