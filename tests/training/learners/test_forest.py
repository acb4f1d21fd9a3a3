"""The exact forest as a learner; `test_exact.py` tries it together with the other exact learners."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from scipy.sparse import csr_array

import expunge
from expunge.core.errors import InputError, MissingExtraError, ParameterError, TrainingError
from expunge.core.prf import RecipeKey
from expunge.core.records import Delete, DeleteSubject, Records
from expunge.training.ensemble import learn, update
from expunge.training.learners import Abstainer, ShardData, UnlearningForest
from expunge.training.learners.named import named_learner
from expunge.training.recipe import Recipe

SMALL = UnlearningForest(num_trees=5, share=0.7, num_candidates=4)


def rows(count: int = 120):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(count, 4))
    return X, (X[:, 0] + X[:, 1] > 0).astype(int)


def state_of(learner, X, y, key=0, **options):
    return learn(Records.build(X, y, **options), Recipe(learner, 1, key=RecipeKey.from_seed(key)))


def test_the_key_decides_the_forest_and_the_ids_do():
    X, y = rows()
    same, other = state_of(SMALL, X, y), state_of(SMALL, X, y, key=1)
    sizes = [each.models[0].forest.trees().sizes.tolist() for each in (state_of(SMALL, X, y), same, other)]
    assert sizes[0] == sizes[1] != sizes[2]
    renamed = state_of(SMALL, X, y, ids=[f"p{n}" for n in range(len(y))])
    assert renamed.models[0].forest.trees().sizes.tolist() != sizes[0]


def test_a_subject_leaves_with_all_records():
    X, y = rows()
    subjects = [f"s{number % 30}" for number in range(len(y))]
    state, report = update(state_of(SMALL, X, y, subjects=subjects), [DeleteSubject("s3")])
    assert report.removed == 4
    left = np.flatnonzero(np.array(subjects) != "s3")
    fresh = state_of(SMALL, X[left], y[left], ids=left, subjects=[subjects[number] for number in left])
    first, second = (each.learner.dump_model(each.models[0]) for each in (state, fresh))
    assert all(np.array_equal(first[name], second[name]) for name in first)


def test_what_it_cannot_use_is_named():
    X, y = rows(10)
    with pytest.raises(ParameterError, match="counts every record once: leave the weights out"):
        state_of(SMALL, X, y, weights=np.arange(10) + 1.0)
    with pytest.raises(InputError, match=r"got the weight 2\.0"):
        SMALL.fit(X, y, 0, weights=np.full(10, 2.0))
    with pytest.raises(TrainingError, match="predicts one number a record"):
        state_of(UnlearningForest(is_regression=True), X, np.stack([y, y], axis=1) * 1.0, is_regression=True)
    with pytest.raises(ParameterError, match="'forest-exact' has no option 'depth': it has max_depth, min_leaf, num"):
        named_learner("forest-exact", depth=3)
    with pytest.raises(ParameterError, match=r"share must be a number .* got 2"):
        named_learner("forest-exact", share=2)


def test_without_numba_one_line_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    words = r"needs numba, which is not installed: pip install 'expunge\[forest\]'"
    with pytest.raises(MissingExtraError, match=words):
        named_learner("forest-exact")
    with pytest.raises(MissingExtraError, match=words):
        expunge.UnlearningClassifier(SMALL, n_shards=1).fit(*rows())


def test_records_without_names_are_trained_anew():
    X, y = rows()
    model = SMALL.fit(X, y, 0)
    part = ShardData(0, X[:1], y[:1], None, 0)
    assert SMALL.refit(model, part, part) is None
    assert SMALL.refit(Abstainer(), part, part) is None


def test_a_forest_that_sees_no_record_abstains():
    X, y = rows(2)
    learner = UnlearningForest(num_trees=1, share=1e-9)
    model = learner.fit(X, y, 0)
    assert model.predict(X).tolist() == [-1, -1]
    assert np.isnan(model.probabilities(X, 2)).all()


def test_numbers_of_any_scale_are_predicted_and_follow_deletions():
    X, _ = rows(600)
    y = np.where(X[:, 0] > 0, 3.0, 1.0) + 0.1 * X[:, 1]
    for scale in (1e-12, 1.0, 1e9):
        learner = named_learner("forest-exact-regression", num_trees=10)
        model = expunge.UnlearningRegressor(learner, n_shards=1, random_state=0)
        model.fit(X[:500], y[:500] * scale, ids=range(500))
        assert model.score(X[500:], y[500:] * scale) > 0.9
        largest = np.argsort(-y[:500])[:60]  # the scale of fixed-point numbers changes on the way
        for number in largest.tolist():
            model.delete([number])
        left = np.setdiff1d(np.arange(500), largest)
        fresh = expunge.UnlearningRegressor(learner, n_shards=1, random_state=0)
        fresh.fit(X[left], y[left] * scale, ids=left)
        assert np.array_equal(model.predict(X), fresh.predict(X))


def test_gaps_and_sparse_rows_need_no_option():
    X, y = rows()
    X[5, 1] = np.nan
    model = expunge.UnlearningClassifier(SMALL, n_shards=1, random_state=0).fit(X, y, ids=range(120)).delete([3])
    left = np.delete(np.arange(120), 3)
    fresh = expunge.UnlearningClassifier(SMALL, n_shards=1, random_state=0).fit(X[left], y[left], ids=left)
    assert np.array_equal(model.predict_proba(X), fresh.predict_proba(X))
    few = np.where(X > 1, X, 0.0)
    dense = expunge.UnlearningClassifier(SMALL, n_shards=1, random_state=0).fit(few, y).delete([3])
    sparse = expunge.UnlearningClassifier(SMALL, n_shards=1, random_state=0).fit(csr_array(few), y).delete([3])
    assert np.array_equal(dense.predict_proba(few), sparse.predict_proba(csr_array(few)))


def test_two_updates_of_one_state_do_not_meet():
    X, y = rows()
    state = state_of(SMALL, X, y)
    answers = state.mean_probabilities(X)
    first, second = (update(state, [Delete(number)])[0] for number in (3, 4))
    assert np.array_equal(state.mean_probabilities(X), answers)
    for number, each in ((3, first), (4, second)):
        left = np.delete(np.arange(len(y)), number)
        fresh = state_of(SMALL, X[left], y[left], ids=left)
        assert np.array_equal(each.mean_probabilities(X), fresh.mean_probabilities(X))
