"""Ensembles on disk: what is read is what was written, and what is staged counts for nothing until it is switched."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from expunge import IndependentSampler, Records, learn, update
from expunge.core.errors import FormatError, InputError, StoreError
from expunge.core.prf import RecipeKey
from expunge.core.records import Add, AddMany, Delete
from expunge.folder.store import Store
from expunge.folder.store.ensembles import (
    EnsembleWriter,
    FirstEnsembleWriter,
    StagedEnsemble,
    activate,
    dump_classes,
    erase,
    load_classes,
    read_records,
    read_state,
    write_key,
)
from expunge.folder.store.packs import Shelf
from expunge.training.ensemble import EnsembleState
from expunge.training.learners.lookup import LookupTableLearner
from expunge.training.recipe import Recipe

LEARNER, SAMPLER = LookupTableLearner(), IndependentSampler(0.5)
X = np.arange(40, dtype=np.float32).reshape(20, 2)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store.new(tmp_path / "folder")
    yield made
    made.close()


def put(store: Store, staged: Any, *, round: int = 0) -> None:
    with store.database.transaction():
        activate(store, staged, generation=1, round=round, models_trained=4)


def write_ensemble(store: Store, state: EnsembleState, touched: Any, change: Any, *, trusted: Any) -> StagedEnsemble:
    """Write an ensemble that is trained already."""
    with EnsembleWriter(store, trusted=trusted) as made:
        made.start(state, change)
        for shard in touched:
            made.add(shard, state.models[shard])
        return made.collect(state)


@pytest.fixture
def state(store: Store) -> EnsembleState:
    records = Records.build(X, np.arange(20) % 2)
    for name, value in {"classes": dump_classes(records.classes), "allow_missing": False, "numerics": "strict"}.items():
        store.write_fact(name, value)
    recipe = Recipe(LEARNER, 4, SAMPLER, RecipeKey.from_seed(1))
    with FirstEnsembleWriter(store, trusted=()) as first:
        made = learn(first.write(records, recipe), recipe)
        put(store, first.write_models(made))
    with store.database.transaction():
        write_key(store, recipe.key, at="", reason="")
    return made


def read(store: Store) -> EnsembleState:
    return read_state(store, LEARNER, SAMPLER, trusted=())


def assert_same(found: EnsembleState, expected: EnsembleState) -> None:
    """The same ensemble up to the numbering of slots."""
    assert contents_of(found) == contents_of(expected)
    assert found.key == expected.key
    assert found.models == expected.models
    for shard in range(4):
        ids = [{one.records.id_of(int(slot)) for slot in one.members[shard]} for one in (found, expected)]
        assert ids[0] == ids[1]
    for record in expected.records.ids():
        assert found.shards_of(found.records.slot_of(record)) == expected.shards_of(expected.records.slot_of(record))


def contents_of(state: EnsembleState) -> dict[Any, Any]:
    """What is known of every record, by its id."""
    rows, labels, _ = state.records.gather(state.records.live_slots())
    return dict(zip(state.records.ids(), zip(rows.tolist(), labels.tolist(), strict=True), strict=True))


def changed(state: EnsembleState, *batch: Any) -> tuple[EnsembleState, Any]:
    return update(state, list(batch))


def models(store: Store) -> set[str]:
    return {path.name for path in (store.folder / "models").iterdir()}


def test_what_was_written_is_read(store: Store, state: EnsembleState) -> None:
    assert_same(read(store), state)


def test_staged_files_count_for_nothing_until_they_are_switched(store: Store, state: EnsembleState) -> None:
    before = models(store)
    after, report = changed(state, Delete(3), AddMany(ids=[50, 51], features=X[:2] + 100, labels=[0, 1]))
    staged = write_ensemble(store, after, report.touched, report.change, trusted=())
    assert models(store) > before
    assert_same(read(store), state)
    store.sweep()  # as opening does after a crash
    assert models(store) == before
    assert_same(read(store), state)
    staged = write_ensemble(store, after, report.touched, report.change, trusted=())
    put(store, staged, round=1)
    assert not staged.rewritten
    assert_same(read(store), after)
    erase(store)
    assert_same(read(store), after)
    assert models(store) == {file for (file,) in store.database.rows("SELECT file FROM shards")}


@pytest.mark.parametrize(
    "batch",
    [
        [Delete(3), AddMany(ids=[50, 51], features=X[:2] + 100, labels=[0, 1])],
        [Delete(3), Add(id="a text", features=[1.0, 2.0], label=0)],
    ],
    ids=["appended", "rewritten"],
)
def test_what_is_staged_while_it_is_trained_is_what_was_trained(store: Store, state: EnsembleState, batch: Any) -> None:
    with EnsembleWriter(store, trusted=()) as begun:
        after, _ = update(state, batch, writer=begun)
        assert_same(read(store), state)
        staged = begun.collect(after)
    assert_same(staged.state, after)
    assert staged.rewritten == (staged.state is not after)
    put(store, staged, round=1)
    erase(store)
    assert_same(read(store), staged.state)
    assert models(store) == {file for (file,) in store.database.rows("SELECT file FROM shards")}


def test_a_stage_that_fails_says_why_and_is_swept(
    store: Store, state: EnsembleState, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = models(store)

    def fail(shelf: Shelf) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(Shelf, "finish", fail)
    with EnsembleWriter(store, trusted=()) as begun:
        after, _ = update(state, [Delete(record) for record in range(10)], writer=begun)
        with pytest.raises(StoreError, match="no space left on the disk; nothing was lost"):
            begun.collect(after)
    assert len(models(store)) == len(before) + 1
    store.tidy()
    assert models(store) == before
    assert_same(read(store), state)


def test_the_rows_of_an_attempt_that_failed_do_not_stay(store: Store, state: EnsembleState) -> None:
    """An addition that was staged and never switched, and is deleted again before the next attempt."""
    pattern = np.array([[12345.5, 54321.5]], dtype=np.float32)
    with_it, report = changed(state, Add(id=50, features=pattern[0], label=0))
    write_ensemble(store, with_it, report.touched, report.change, trusted=())
    slab = store.epoch_place(1) / "features.slab"
    assert pattern.tobytes() in slab.read_bytes()
    without, report = changed(state, Delete(3), Add(id=50, features=pattern[0], label=0), Delete(50))
    put(store, write_ensemble(store, without, report.touched, report.change, trusted=()), round=1)
    erase(store)
    assert pattern.tobytes() not in slab.read_bytes()
    assert_same(read(store), without)


@pytest.mark.parametrize(
    "addition",
    [
        Add(id="a text", features=[1.0, 2.0], label=0),
        Add(id=77, features=[1.0, 2.0], label=0, subject="somebody"),
    ],
    ids=["str id", "subject"],
)
def test_a_new_kind_of_column_has_all_records_written_anew(store: Store, state: EnsembleState, addition: Add) -> None:
    first, report = changed(state, Delete(0), Delete(7))
    put(store, write_ensemble(store, first, report.touched, report.change, trusted=()), round=1)
    erase(store)
    after, report = changed(first, addition, Delete(9))
    staged = write_ensemble(store, after, report.touched, report.change, trusted=())
    assert staged.rewritten
    assert staged.state.records.num_slots == len(staged.state.records) == 18
    assert isinstance(staged.state.records.blocks[0].features.base, np.memmap)
    assert_same(read(store), first)
    put(store, staged, round=2)
    assert_same(read(store), after)
    assert_same(staged.state, after)
    erase(store)
    assert [path.name for path in (store.folder / "records").iterdir()] == ["000002"]
    assert_same(read(store), staged.state)
    last, report = changed(staged.state, Delete(10))
    put(store, write_ensemble(store, last, report.touched, report.change, trusted=()), round=3)
    assert_same(read(store), last)


def test_a_model_file_that_is_missing_or_changed_is_named(store: Store, state: EnsembleState) -> None:
    path = min((store.folder / "models").iterdir())
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(FormatError, match=f"{path.name} is not what was written"):
        read(store).models[0]
    path.unlink()
    with pytest.raises(FormatError, match=path.name):
        read(store)


def test_an_update_leaves_the_models_of_other_shards_unread(store: Store, state: EnsembleState) -> None:
    opened = read(store)
    after, report = changed(opened, Delete(3))
    assert 0 < len(report.touched) < 4
    assert opened.models.num_read == 0
    assert after.models.num_read == len(report.touched)
    staged = write_ensemble(store, after, report.touched, report.change, trusted=())
    put(store, staged, round=1)
    erase(store)
    assert after.models == changed(state, Delete(3))[0].models
    assert_same(read(store), after)


def test_records_are_read_without_the_models(store: Store, state: EnsembleState) -> None:
    shutil.rmtree(store.folder / "models")
    assert read_records(store).ids() == state.records.ids()


@pytest.mark.parametrize(
    "classes",
    [
        np.array([0, 1, 5]),
        np.array([-1.5, 0.0, np.inf]),
        np.array([False, True]),
        np.array(["a", "béta", "a longer one"]),
        np.array(["a", "b"], dtype=object),
        np.array([1, 2], dtype=np.uint8),
        np.array(["2020-01-01", "2021-01-01"], dtype="M8[ns]"),
    ],
    ids=lambda classes: str(classes.dtype),
)
def test_classes_come_back(classes: np.ndarray) -> None:
    found = load_classes(dump_classes(classes))
    assert found.dtype == classes.dtype
    assert np.array_equal(found, classes)


@pytest.mark.parametrize("classes", [np.array([b"a"]), np.array(["2020-01-01"], dtype="M8[D]"), np.array([1j])])
def test_classes_that_would_not_come_back_are_refused(classes: np.ndarray) -> None:
    with pytest.raises(InputError, match="a label must be a text or a number"):
        dump_classes(classes)
