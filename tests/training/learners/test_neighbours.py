"""Nearest neighbours that rows leave and join: the same answers as from scratch, whatever the index went through."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import expunge
from expunge.core.errors import InputError
from expunge.folder.codec import encode_model
from expunge.training.fallback import NearestNeighbours
from expunge.training.learners import ExactLearner, neighbours
from expunge.training.learners.named import named_learner
from expunge.training.learners.neighbours import Drift, Living
from expunge.training.learners.protocol import ShardData

KIND = NearestNeighbours(num_neighbours=3, margin_neighbours=5)
NOTHING = ShardData(0, np.empty((0, 0)), np.empty(0, np.int32), None, 0)


def part(X, y):
    return ShardData(0, X, y, None, 0)


def table(rng, count: int, *, columns: int = 3, digits: int = 0):
    """Rows of few different values, so that many are equal or equally far."""
    return np.round(rng.normal(size=(count, columns)) * rng.choice([1.0, 3.0], columns), digits) + 0.0


def by_hand(learner, X, y, queries):
    """Codes of the nearest rows by (distance, code), each pair by itself."""
    numbers = learner.table(X)
    model = learner.fit(X, y, 0)
    scales, form = model._scales, model.kept.form
    found = []
    for query in learner.table(queries):
        own, others = form.split(query[None]), form.split(numbers)
        apart = scales.apply(own[0]) - scales.apply(others[0])
        distances = np.einsum("ij,ij->i", apart, apart)
        distances += (np.isnan(own[0]) != np.isnan(others[0])).sum(axis=1)
        distances += 2 * (own[1] != others[1]).sum(axis=1)
        found.append(y[np.lexsort((y, distances))])
    return np.array(found)


@pytest.fixture
def small(monkeypatch):
    """Blocks, tiles and trees of a few rows."""
    monkeypatch.setattr(neighbours, "_SMALLEST_TREE", 4)
    monkeypatch.setattr(neighbours, "_SMALLEST_TILE", 2)
    monkeypatch.setattr(neighbours, "_DISTANCES_AT_ONCE", 4)
    monkeypatch.setattr(neighbours, "_SMALL_BLOCK", 2)


@pytest.mark.parametrize("columns", [1, 3, 12])
@pytest.mark.parametrize("has_gaps", [False, True])
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_any_history_gives_the_neighbours_of_what_is_there(columns, has_gaps, data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(neighbours, "_SMALLEST_TREE", data.draw(st.sampled_from([4, 1024])))
        patch.setattr(neighbours, "_SMALLEST_TILE", 2)
        patch.setattr(neighbours, "_DISTANCES_AT_ONCE", 4)
        patch.setattr(neighbours, "_SMALL_BLOCK", data.draw(st.sampled_from([2, 1024])))
        patch.setattr(neighbours, "_MOST_STRETCH", data.draw(st.sampled_from([1.0, 1.01, 3.0])))
        patch.setattr(neighbours, "_MOST_SHIFT", 2.0)
        learner = ExactLearner(KIND, 3, has_gaps=has_gaps)
        X, y = table(rng, 60, columns=columns), rng.integers(0, 3, 60).astype(np.int32)
        if has_gaps:
            X[rng.random(X.shape) < 0.2] = np.nan
        here = list(range(30))
        model = learner.fit(X[here], y[here], 0)
        for _ in range(data.draw(st.integers(1, 6))):
            gone = rng.choice(here, data.draw(st.integers(0, 8)), replace=False).tolist()
            new = [row for row in rng.integers(0, 60, data.draw(st.integers(0, 8))).tolist() if row not in here]
            new = sorted(set(new))
            if len(here) - len(gone) + len(new) < 5:
                continue
            before, asked = model, X[rng.integers(0, 60, 4)]
            answers = before.probabilities(asked, 3)
            model = learner.refit(model, part(X[gone], y[gone]), part(X[new], y[new]))
            assert np.array_equal(before.probabilities(asked, 3), answers)  # an older version stays what it was
            here = [row for row in here if row not in gone] + new
            fresh = learner.fit(X[here[::-1]], y[here[::-1]], 0)
            assert encode_model(learner, model).data == encode_model(learner, fresh).data
            width = len(here)
            found = model.kept.nearest(learner.table(asked), model._scales, width)
            same = fresh.kept.nearest(learner.table(asked), fresh._scales, width)
            assert np.array_equal(found.distances, same.distances)
            assert np.array_equal(found.codes, same.codes)
            assert np.array_equal(found.codes[:, :3], by_hand(learner, X[here], y[here], asked)[:, :3])


def test_an_old_index_is_asked_for_more_than_the_new_scales_need(small, monkeypatch):
    """Neighbours under new scales are found in an index of the old ones; without the wider radius they are missed."""
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(400, 2)), rng.integers(0, 3, 400).astype(np.int32)
    learner = ExactLearner(KIND, 3)
    monkeypatch.setattr(neighbours, "_MOST_STRETCH", 100.0)

    def differences():
        model = learner.fit(X, y, 0)
        model.predict(X[:2])  # makes the index
        outlier = np.array([[40.0, 0.0]])
        model = learner.refit(model, NOTHING, part(outlier, y[:1]))
        fresh = learner.fit(np.concatenate([X, outlier]), np.append(y, y[0]), 0)
        pair = [each.kept.nearest(X, each._scales, 3).distances for each in (model, fresh)]
        return int((pair[0] != pair[1]).sum())

    assert differences() == 0
    monkeypatch.setattr(Drift, "widen", lambda _, distances: distances)
    assert differences() > 0


def test_equal_rows_leave_one_after_another(small):
    learner = ExactLearner(KIND, 2)
    X, y = np.zeros((9, 2)), np.array([0, 1] * 4 + [0], np.int32)
    model = learner.fit(X, y, 0)
    model = learner.refit(model, part(X[:3], np.array([0, 0, 1], np.int32)), NOTHING)
    assert model.counts.tolist() == [3, 3]
    assert model.probabilities(X[:1], 2).tolist() == [[1.0, 0.0]]  # ties go to the lower class
    with pytest.raises(InputError, match="the rows to delete are not in the model"):
        learner.refit(model, part(X[:4], np.ones(4, np.int32)), NOTHING)
    assert model.num_records == 6


def test_an_older_version_may_be_updated_too():
    living = Living.all_of(5)
    first = living.without(np.array([1]))
    second = living.without(np.array([2]))  # of the same version as the first
    third = first.without(np.array([3]))
    everything = slice(None)
    assert [each.at(everything).tolist() for each in (living, first, second, third)] == [
        [True] * 5,
        [True, False, True, True, True],
        [True, True, False, True, True],
        [True, False, True, False, True],
    ]
    assert [each.count for each in (living, first, second, third)] == [5, 4, 4, 3]


def test_numbers_of_any_size_are_asked_about():
    learner = ExactLearner(KIND, 2)
    X = np.random.default_rng(0).normal(size=(50, 3))
    model = learner.fit(X, (X[:, 0] > 0).astype(np.int32), 0)
    far = np.array([[1e300, 0, 0], [-1e300, 0, 0], [0, 1e-300, 0]])
    assert model.predict(far).shape == (3,)
    assert np.isfinite(model.kept.nearest(learner.table(far), model._scales, 3).distances).all()


def test_more_categories_than_other_learners_take():
    learner = ExactLearner(KIND, 2, categories=("town",))
    towns = pd.DataFrame({"size": np.arange(3000.0) % 7, "town": [f"town {n // 3}" for n in range(3000)]})
    y = (np.arange(3000) // 3 % 2).astype(np.int32)
    model = learner.fit(towns, y, 0)
    assert (model.predict(towns[:600]) == y[:600]).mean() > 0.9


def test_no_deleted_value_is_pickled():
    learner = ExactLearner(KIND, 2)
    X = np.random.default_rng(0).normal(size=(100, 3))
    y = (X[:, 0] > 0).astype(np.int32)
    model = learner.fit(X, y, 0)
    model.predict(X[:1])
    model = learner.refit(model, part(X[4:5], y[4:5]), NOTHING)
    content = pickle.dumps(model)
    assert X[4].tobytes() not in content
    assert X[5].tobytes() in content
    assert np.array_equal(pickle.loads(content).probabilities(X, 2), model.probabilities(X, 2))


@pytest.mark.parametrize("num_shards", [1, 3])
def test_a_folder_writes_as_little_for_many_records_as_for_few(num_shards, tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(1500, 4)), rng.integers(0, 2, 1500)
    learner = named_learner("neighbours-exact")
    sizes = []
    for count in (150, 1500):
        path = tmp_path / str(count)
        with expunge.create(path, learner, X[:count], y[:count], ids=range(count), n_shards=num_shards) as made:
            made.delete([3])
            made.add(X[:1] + 5, [1], ["new"])
            probabilities = made.predict_proba(X[:20])
            state = made.inside.state
        sizes.append(sum(each.stat().st_size for each in (path / "models").rglob("*") if each.is_file()))
        content = b"".join(each.read_bytes() for each in path.rglob("*") if each.is_file())
        assert X[3].tobytes() not in content
        with expunge.open(path) as again:
            assert np.array_equal(again.predict_proba(X[:20]), probabilities)
            again.delete([7])
            again.rekey()  # all records are written anew
            again.delete([9])
            kept = again.inside.state
            fresh = expunge.learn(kept.records, kept.recipe)
            for left, right in zip(kept.models, fresh.models, strict=True):
                assert encode_model(kept.learner, left).data == encode_model(kept.learner, right).data
        assert len(state.records) == count
    assert sizes[1] < 1.1 * sizes[0] + 500


def test_records_that_are_not_the_models_are_refused():
    learner = ExactLearner(KIND, 2)
    X = np.random.default_rng(0).normal(size=(40, 3))
    y = (X[:, 0] > 0).astype(np.int32)
    summary = learner.dump_summary(learner.fit(X, y, 0))
    assert learner.load_summary(summary, lambda: part(X, y)).predict(X).shape == (40,)
    with pytest.raises(InputError, match="the records are not those of the stored model"):
        learner.load_summary(summary, lambda: part(X[:-1], y[:-1])).predict(X)
    with pytest.raises(InputError, match="do not fit together"):
        learner.load_summary(summary | {"present": np.array([40, 40])}, lambda: part(X, y))
    assert replace(learner).dump_summary(learner.fit(X, y, 0)).keys() == summary.keys()
