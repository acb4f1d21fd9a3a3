"""A promise holds its options, refuses what is impossible with one line, and makes publisher and front."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

from expunge import Guarantee, IndependentSampler, PartitionSampler, PrivacyBudget, Randomness, Records
from expunge.core.errors import ParameterError
from expunge.privacy.mechanisms import ExponentialMechanism, Majority
from expunge.serving.promises import (
    PROMISE_NAMES,
    Consensus,
    Exact,
    Noise,
    Promise,
    Router,
    Student,
    Unguarded,
    as_budget,
    as_promise,
    make_statements,
    refusal,
)
from expunge.serving.publishing import (
    ConsensusPublisher,
    DirectFront,
    ExactFront,
    ExactPublisher,
    NoisyPublisher,
    RouterFront,
    StudentFront,
)
from expunge.training.fallback import NearestNeighbours, RidgeFallback
from expunge.training.learners import LookupTableLearner, TableFallback, as_learner

RECORDS = Records.build(np.arange(400.0).reshape(200, 2), np.arange(200) % 2)
RNG = Randomness.from_seed(0)
LEARNER = LookupTableLearner()
POOL = np.ones((2, 2))
TRANSCRIPT = Guarantee(8.0, 0.05, 0.05, form="transcript")
ALL: list[Promise] = [Exact(), Consensus(), Router(), Student(POOL), Noise(), Unguarded()]


def test_short_names() -> None:
    assert PROMISE_NAMES == ("exact", "consensus", "router", "noise", "unguarded")
    for name in PROMISE_NAMES:
        assert as_promise(name).name == name
    own = Noise("laplace")
    assert as_promise(own) is own
    with pytest.raises(ParameterError, match="needs a pool of public points"):
        as_promise("student")
    for wrong in ("Exact", "", 3, Exact, None):
        with pytest.raises(ParameterError, match="promise must be one of exact, consensus"):
            as_promise(wrong)  # type: ignore[arg-type]


def test_sizes_are_taken_or_planned_or_measured() -> None:
    learner = as_learner(GaussianNB())
    assert Exact().sizes(10, None, RECORDS, learner) == (10, None)
    assert Consensus().sizes(np.int64(7), 0.5, RECORDS, learner) == (7, 0.5)  # type: ignore[arg-type]
    auto, probability = Consensus(target=Guarantee(20.0, 0.4, 0.4)).sizes("auto", None, RECORDS, learner)
    assert auto >= 1
    assert probability is not None
    assert 0 < probability <= 1
    assert Consensus().sizes("auto", 0.25, RECORDS, learner)[1] == 0.25
    for none in (Exact(), Unguarded()):  # a refit is quick
        assert none.sizes("auto", None, RECORDS, learner) == (1, None)


@pytest.mark.parametrize("wrong", [0, -3, True, 2.5, "many", None])
def test_sizes_that_are_none(wrong: Any) -> None:
    with pytest.raises(ParameterError, match="n_shards must be a whole number from 1 to 10,000,000 or 'auto'"):
        Consensus().sizes(wrong, None, RECORDS, as_learner(GaussianNB()))


def test_samplers() -> None:
    assert Exact().make_sampler(None, None) == PartitionSampler()
    assert Exact().make_sampler(None, 0.5) == IndependentSampler(0.5)
    for promise in ALL[1:]:
        assert promise.make_sampler(None, None) == IndependentSampler()
        assert promise.make_sampler("independent", 0.2) == IndependentSampler(0.2)
        assert promise.make_sampler("partition", None) == PartitionSampler()
    own = IndependentSampler(0.7)
    assert Consensus().make_sampler(own, None) is own
    for sampling in ("partition", own):
        with pytest.raises(ParameterError, match="inclusion_probability needs sampling='independent'"):
            Consensus().make_sampler(sampling, 0.5)  # type: ignore[arg-type]
    for wrong in ("sideways", 3, IndependentSampler):
        with pytest.raises(ParameterError, match="sampling must be one of independent, partition"):
            Consensus().make_sampler(wrong, None)  # type: ignore[arg-type]


def test_publishers() -> None:
    assert isinstance(Exact().make_publisher(5, 2, RNG), ExactPublisher)
    for promise in (Consensus(), Router(), Student(POOL)):
        assert isinstance(promise.make_publisher(5, 2, RNG), ConsensusPublisher)
    noisy = Noise("laplace", budget=(2.0, 1e-6)).make_publisher(50, 2, RNG)
    assert isinstance(noisy, NoisyPublisher)
    assert noisy.capacity > 0
    assert math.isinf(Noise("laplace").make_publisher(50, 2, RNG).capacity)
    assert Noise("laplace", max_predictions=9).make_publisher(50, 2, RNG).capacity == 9
    target = Noise("laplace", target=Guarantee(8.0, 0.05, 0.05)).make_publisher(1000, 2, RNG)
    both = Noise("laplace", target=Guarantee(8.0, 0.05, 0.05), max_predictions=2)
    assert both.make_publisher(1000, 2, RNG).capacity == min(2, target.capacity)
    majority = Unguarded().make_publisher(50, 2, RNG)
    assert isinstance(majority, NoisyPublisher)
    assert majority.mechanism == Majority()
    assert majority.guarantee(num_shards=50, beta=None, gamma=None, num_generations=1).is_vacuous


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        (Consensus, {"target": (1.0, 0.1, 0.1)}, "target must be a Guarantee"),
        (Consensus, {"target": TRANSCRIPT}, "in the paper's form, got one in transcript form"),
        (Noise, {"mechanism": "laplace", "target": TRANSCRIPT}, "in the paper's form, got one in transcript form"),
        (Noise, {"mechanism": "nonsense"}, "mechanism must be one of exponential"),
        (Noise, {"mechanism": "consensus"}, "mechanism must be one of exponential"),
        (Noise, {"mechanism": 7}, "mechanism must be one of exponential"),
        (Noise, {"mechanism": "majority"}, "promise='unguarded'"),
        (Noise, {"mechanism": Majority()}, "promise='unguarded'"),
        (Noise, {"budget": 3}, "budget must be a PrivacyBudget or a pair"),
        (Noise, {"budget": (1, 2, 3)}, "budget must be a PrivacyBudget or a pair"),
        (Noise, {"accountant": "nobody"}, "accountant must be one of"),
        (Noise, {"on_exhausted": "shrug"}, "on_exhausted must be one of"),
        (Noise, {"max_predictions": "9"}, "max_predictions must be a whole number"),
        (Noise, {"max_generations": 1.5}, "max_generations must be an integer >= 1"),
        (Consensus, {"max_predictions": 0}, "max_predictions must be an integer >= 1"),
        (Consensus, {"max_generations": True}, "max_generations must be an integer >= 1"),
        (Router, {"fallback": "ridge"}, "fallback must be one of"),
        (Router, {"dirty_chance": 2.0}, "dirty_chance"),
        (Student, {"pool": None}, "needs a pool of public points"),
        (Student, {"pool": np.empty((0, 2))}, "needs a pool of public points"),
    ],
)
def test_options_that_cannot_be(kind: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ParameterError, match=words) as caught:
        kind(**options)
    assert "\n" not in str(caught.value)


def test_fronts() -> None:
    assert Exact().make_front(LEARNER) == ExactFront()
    for promise in (Consensus(), Noise(), Unguarded()):
        assert promise.make_front(LEARNER) == DirectFront()
    assert Router().make_front(LEARNER) == RouterFront()
    assert Router(fallback=NearestNeighbours()).make_front(LEARNER) == RouterFront(
        TableFallback(kind=NearestNeighbours())
    )
    own = Router(fallback=RidgeFallback(), threshold=1.0, num_queries=7, dirty_chance=0.5, num_throw_away=3)
    assert own.make_front(LEARNER) == RouterFront(
        TableFallback(kind=RidgeFallback()), threshold=1.0, num_queries=7, dirty_chance=0.5, num_throw_away=3
    )
    taught = Student(POOL, selection_share=0.75, pool_ids=("a", "b")).make_front(LEARNER)
    assert isinstance(taught, StudentFront)
    assert taught.pool is POOL
    assert taught.student is LEARNER
    assert (taught.selection_share, taught.pool_ids) == (0.75, ("a", "b"))
    other = LookupTableLearner()
    assert Student(POOL, student=other).make_front(LEARNER).student is other


@pytest.mark.parametrize("promise", ALL, ids=lambda promise: promise.name)
def test_scikit_learn_can_copy_a_promise_and_set_its_options(promise: Promise) -> None:
    copy = clone(promise)
    assert copy is not promise
    assert type(copy) is type(promise)
    assert str(copy.get_params()) == str(promise.get_params())
    with pytest.raises(ParameterError, match=f"{type(promise).__name__} has no option 'nonsense'"):
        copy.set_params(nonsense=1)
    if "max_generations" in copy.get_params():
        assert copy.set_params(max_generations=3) is copy
        assert copy.max_generations == 3
        assert promise.max_generations == 100
        with pytest.raises(ParameterError, match="max_generations"):
            copy.set_params(max_predictions=5, max_generations=0)
        assert copy.max_predictions is None  # nothing was set


def test_options_of_a_student_are_nested() -> None:
    promise = Student(POOL, student=LogisticRegression(C=2.0))
    assert promise.get_params()["student__C"] == 2.0
    copy = clone(promise).set_params(student__C=5.0)
    assert (copy.student.C, promise.student.C) == (5.0, 2.0)


def test_budgets() -> None:
    assert as_budget(None) is None
    assert as_budget((1.0, 1e-6)) == PrivacyBudget(1.0, 1e-6)
    budget = PrivacyBudget(2.0, 0.0)
    assert as_budget(budget) is budget


def test_statements_are_never_mixed() -> None:
    books = Exact().make_publisher(5, 2, RNG)
    exact, other = make_statements(books.guarantee(num_shards=5, beta=None, gamma=None, num_generations=1))
    assert exact.is_claimed
    assert "same recipe" in exact.compares_with
    assert "fresh" not in exact.statement
    assert not other.is_claimed
    assert other.statement == "not claimed"
    assert str(other).startswith("(α,β,γ): not claimed, because everything may be published")
    noise = Noise(ExponentialMechanism(epsilon=0.1), max_predictions=1).make_publisher(30, 2, RNG)
    exact, other = make_statements(noise.guarantee(num_shards=30, beta=None, gamma=None, num_generations=1))
    assert exact.is_claimed
    assert other.is_claimed
    assert "fresh randomness" in other.compares_with
    assert "recipe" not in other.statement
    vacuous = make_statements(Guarantee(math.inf, 0, 0, note="majority has no bound"))[1]
    assert (vacuous.is_claimed, vacuous.reason) == (False, "majority has no bound")
    assert other.to_dict()["claimed"] is True


def test_a_refusal_says_why_and_what_to_do() -> None:
    words = refusal(Noise(), "predict_proba")
    assert "\n" not in words
    assert "labels only" in words
    assert "promise='exact'" in words
