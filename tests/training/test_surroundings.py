"""Threads, settings of scikit-learn and warnings: what a process sets for itself decides no bit, and tells nothing."""

from __future__ import annotations

import os
import signal
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import sklearn
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Binarizer, StandardScaler
from sklearn.svm import LinearSVR
from threadpoolctl import threadpool_info, threadpool_limits

from expunge.core.prf import RecipeKey
from expunge.core.records import Records
from expunge.folder.codec import encode_model
from expunge.training.ensemble import learn
from expunge.training.learners.scikit import ConstantModel, ScikitLearner
from expunge.training.recipe import Recipe
from expunge.training.sampling import IndependentSampler
from expunge.training.surroundings import alone, silenced, voting


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


class Watches:
    """A learner that notes how many threads BLAS and OpenMP may use while it trains."""

    def __init__(self, before=lambda: None):
        self.before = before
        self.found = {}

    def fit(self, X, y, seed, *, weights=None):
        self.before()
        self.found = threads_now()
        return ConstantModel(0)


def threads_now():
    return {each["filepath"]: each["num_threads"] for each in threadpool_info()}


def train(learner):
    return learn(Records.build(np.eye(4), [0, 1, 0, 1]), Recipe(learner, 1, key=RecipeKey.from_seed(0)))


def test_a_training_has_one_thread_and_leaves_the_process_as_it_was():
    watcher = Watches()
    with threadpool_limits(limits=2):
        before = threads_now()
        train(watcher)
        assert threads_now() == before
    assert set(before.values()) == {2}
    assert set(watcher.found.values()) == {1}


def test_a_training_that_ends_first_gives_no_threads_to_another():
    has_entered, may_leave = threading.Event(), threading.Event()

    def hold():
        has_entered.set()
        may_leave.wait(30)

    with threadpool_limits(limits=2, user_api="blas"):
        before = threads_now()
        first = threading.Thread(target=train, args=(Watches(hold),))
        first.start()
        assert has_entered.wait(30)

        def let_go():
            may_leave.set()
            first.join()

        second = Watches(let_go)
        train(second)
        assert threads_now() == before
    assert set(second.found.values()) == {1}


def test_another_thread_that_has_set_the_number_does_not_keep_it():
    """threadpoolctl listens to the first thread that set a number for OpenBLAS, and to no other."""
    watcher = Watches()
    try:
        threadpool_limits(limits=2, user_api="blas")  # for good, as at the start of a program
        trained = threading.Thread(target=train, args=(watcher,))
        trained.start()
        trained.join()
        assert {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"} == {2}
    finally:
        threadpool_limits(limits=1, user_api="blas")
    assert set(watcher.found.values()) == {1}


def test_one_thread_at_a_time_is_alone():
    order = []

    def enter():
        with alone():
            order.append("second")

    with alone(), alone():  # a thread may enter again
        second = threading.Thread(target=enter)
        second.start()
        second.join(0.1)
        order.append("first")
    second.join(30)
    assert order == ["first", "second"]


def test_a_forked_process_does_not_wait_for_a_thread_that_it_has_not():
    may_leave, has_entered = threading.Event(), threading.Event()

    def hold():
        with alone():
            has_entered.set()
            may_leave.wait(30)

    holding = threading.Thread(target=hold)
    holding.start()
    assert has_entered.wait(30)
    try:
        child = os.fork()
        if not child:
            signal.alarm(20)  # ends a child that waits
            with alone():
                os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        may_leave.set()
        holding.join()


def test_trainings_that_draw_from_one_generator_for_all_threads_do_not_meet():
    """LIBLINEAR's generator is seeded and drawn from without the interpreter's lock."""
    X = np.random.default_rng(0).normal(size=(4000, 6))
    records = Records.build(X, X[:, 0] + np.random.default_rng(1).normal(size=4000), is_regression=True)

    def values(seed):
        recipe = Recipe(ScikitLearner(LinearSVR(max_iter=100)), 2, key=RecipeKey.from_seed(seed))
        return learn(records, recipe).values(X[:5], "mean").tobytes()

    alone_ = [values(seed) for seed in (1, 2)]
    for _ in range(3):
        with ThreadPoolExecutor(2) as threads:
            assert list(threads.map(values, (1, 2))) == alone_


def test_settings_of_scikit_learn_decide_no_bit_and_no_vote():
    X = np.random.default_rng(0).normal(size=(80, 3))
    records = Records.build(X, (X[:, 0] > 0).astype(int))
    pipeline = make_pipeline(StandardScaler(), Binarizer(), LogisticRegression())  # voted on step by step
    recipe = Recipe(ScikitLearner(pipeline), 2, key=RecipeKey.from_seed(0))
    plain = learn(records, recipe)
    with sklearn.config_context(transform_output="pandas"):
        other = learn(records, recipe)
    for one, two in zip(plain.models, other.models, strict=True):
        assert encode_model(recipe.learner, one).data == encode_model(recipe.learner, two).data
    with sklearn.config_context(transform_output="polars"):  # which need not be installed
        assert plain.count_votes(X).sum() == 2 * len(X)
        assert np.isfinite(plain.mean_probabilities(X)).all()


def test_a_vote_uses_one_thread_as_a_training_does():
    numbers = []

    class Model:
        def predict(self, X):
            numbers.append({each["num_threads"] for each in threadpool_info()})
            return np.zeros(len(X), dtype=np.int64)

    class Learns:
        def fit(self, X, y, seed, *, weights=None):
            return Model()

    records = Records.build(np.zeros((8, 1)), np.arange(8) % 2)
    state = learn(records, Recipe(Learns(), 2, key=RecipeKey.from_seed(0)))
    with threadpool_limits(3):
        state.count_votes(np.zeros((1, 1)))
        assert {each["num_threads"] for each in threadpool_info()} == {3}
    assert numbers == [{1}, {1}]


def test_a_thread_that_is_inside_votes_without_changing_anything_again():
    with voting():
        inside = list(warnings.filters)
        with voting():
            assert warnings.filters == inside
        assert {each["num_threads"] for each in threadpool_info()} == {1}
