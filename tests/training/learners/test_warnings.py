"""Warnings of models that train and vote are suppressed, in every thread."""

from __future__ import annotations

import threading
import warnings

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from expunge.core.prf import RecipeKey
from expunge.core.records import Records
from expunge.training.ensemble import learn
from expunge.training.learners.scikit import ScikitLearner
from expunge.training.learners.warnings import silenced
from expunge.training.recipe import Recipe
from expunge.training.sampling import IndependentSampler


def test_nothing_is_shown_or_raised_inside_and_filters_are_restored_afterwards():
    with warnings.catch_warnings(record=True) as heard, np.errstate(all="raise"):
        warnings.simplefilter("error")
        with silenced(), silenced():
            warnings.warn("a shard lacks this category", UserWarning, stacklevel=1)
            assert np.isinf(np.float64(1e308) * 10)
        with pytest.raises(FloatingPointError):
            np.float64(1e308) * 10
        with pytest.raises(UserWarning, match="afterwards"):
            warnings.warn("afterwards", UserWarning, stacklevel=1)
    assert not heard


def test_a_thread_that_leaves_does_not_restore_warnings_for_another():
    has_entered, may_leave = threading.Event(), threading.Event()

    def stay():
        with silenced():
            has_entered.set()
            may_leave.wait(30)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = list(warnings.filters)
        first = threading.Thread(target=stay)
        first.start()
        assert has_entered.wait(30)
        with silenced():
            may_leave.set()
            first.join()
            warnings.warn("the other one has left", UserWarning, stacklevel=1)
        assert warnings.filters == before


def test_an_overflow_in_a_vote_is_not_reported():
    """Whether a product overflows depends on the weights of the shards' models, and therefore on r."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 1))
    records = Records.build(X, (X[:, 0] > 0).astype(int))
    learner = ScikitLearner(LogisticRegression(C=100))
    state = learn(records, Recipe(learner, 5, IndependentSampler(0.5), RecipeKey.from_seed(0)))
    huge = np.array([[1.7e308]])
    with np.errstate(all="raise"), pytest.raises(FloatingPointError):
        huge * max(abs(float(model.estimator.coef_[0, 0])) for model in state.models)
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        assert state.count_votes(huge).shape == (1, 2)
        assert state.votes(huge).shape == (1, 5)
