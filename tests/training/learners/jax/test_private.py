from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

from expunge.core.errors import ParameterError
from expunge.training.learners.jax import JaxLearner, JaxModel, PrivateSGD, logistic, sgd
from expunge.training.learners.protocol import Abstainer, ShardData


def test_the_budget_is_that_of_dp_accounting_and_moves_the_right_way() -> None:
    def epsilon(multiplier: float, steps: int = 100) -> float:
        private = PrivateSGD(1.0, multiplier, sampling="poisson")
        found = private.budget(delta=1e-5, num_records=6000, batch_size=60, num_steps=steps)
        assert found.delta == 1e-5
        return found.epsilon

    assert epsilon(2.0) < epsilon(1.0) < epsilon(0.6)
    assert epsilon(1.0, 50) < epsilon(1.0, 500)
    from dp_accounting import dp_event, pld

    accountant = pld.PLDAccountant()
    accountant.compose(dp_event.PoissonSampledDpEvent(0.01, dp_event.GaussianDpEvent(1.0)), 100)
    assert accountant.get_epsilon(1e-5) <= epsilon(1.0)  # Rényi accounting is never tighter than the exact law


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sampling": "shuffle"}, "shuffled"),
        ({"noise_multiplier": 0.0}, "without noise"),
    ],
)
def test_no_budget_is_claimed_that_is_not_there(options: dict[str, Any], words: str) -> None:
    settings: dict[str, Any] = {"clip_norm": 1.0, "noise_multiplier": 1.0, "sampling": "poisson"} | options
    with pytest.raises(ParameterError, match=words):
        PrivateSGD(**settings).budget(delta=1e-5, num_records=100, batch_size=10, num_steps=5)


@pytest.mark.parametrize(
    "budget",
    [
        {"delta": 0.0},
        {"delta": 1e-17, "num_steps": 1000},
        {"batch_size": 0},
        {"num_records": 0},
        {"num_steps": 1.5},
        {"num_steps": 0},
    ],
)
def test_impossible_budgets(budget: dict[str, Any]) -> None:
    asked = {"delta": 1e-5, "num_records": 100, "batch_size": 10, "num_steps": 5} | budget
    with pytest.raises(ParameterError):
        PrivateSGD(1.0, 1.0, sampling="poisson").budget(**asked)


def test_a_shard_smaller_than_its_batch_is_sampled_whole() -> None:
    private = PrivateSGD(1.0, 2.0, sampling="poisson")
    whole, larger = (
        private.budget(delta=1e-5, num_records=50, batch_size=batch, num_steps=10).epsilon for batch in (50, 64)
    )
    assert larger == whole
    from dp_accounting import dp_event, rdp

    accountant = rdp.RdpAccountant()
    accountant.compose(dp_event.GaussianDpEvent(2.0), 10)
    assert larger == pytest.approx(accountant.get_epsilon(1e-5))


def test_a_large_epsilon_is_told_or_refused_for_what_it_is() -> None:
    private = PrivateSGD(1.0, 0.4, sampling="poisson")
    assert private.budget(delta=1e-5, num_records=150, batch_size=64, num_steps=30).epsilon > 30  # no batch is cut
    with pytest.raises(ParameterError, match=r"ε would be \d\d\.\d, and above 25\.8 .* use more noise"):
        private.budget(delta=1e-5, num_records=200, batch_size=64, num_steps=30)
    with pytest.raises(ParameterError, match="delta is too small for 1000 steps: got 1e-17"):
        private.budget(delta=1e-17, num_records=200, batch_size=64, num_steps=1000)


@pytest.mark.parametrize(
    "options",
    [
        {"clip_norm": 0.0},
        {"clip_norm": "a"},
        {"noise_multiplier": -1.0},
        {"noise_multiplier": None},
        {"sampling": "uniform"},
    ],
)
def test_impossible_options(options: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match=next(iter(options))):
        PrivateSGD(**({"clip_norm": 1.0, "noise_multiplier": 1.0} | options))


def test_noise_has_the_stated_deviation(
    make_learner: Callable[..., JaxLearner], make_shard: Callable[..., ShardData]
) -> None:
    """One step with noise and one without differ by normals; 8 standard errors of their deviation, P < 1e-14."""
    from expunge.training.learners.jax import mlp

    shard = make_shard(1)
    quiet, noisy = (
        make_learner(
            network=mlp(hidden=(20,), input_shape=(8, 8)),
            steps=1,
            optimizer=sgd(0.5),
            privacy=PrivateSGD(2.0, multiplier),
        ).fit(shard.X, shard.y, 4)
        for multiplier in (0.0, 3.0)
    )
    pairs: Any = zip(jax.tree.leaves(quiet.parameters), jax.tree.leaves(noisy.parameters), strict=True)
    difference = np.concatenate([(left - right).ravel() for left, right in pairs])
    expected = 0.5 * 2.0 * 3.0 / 16
    assert np.std(difference) == pytest.approx(expected, rel=8 / (2 * len(difference)) ** 0.5)


@pytest.mark.parametrize("sampling", ["shuffle", "poisson"])
def test_one_class_is_trained_with_noise_and_no_rows_abstain(
    make_learner: Callable[..., JaxLearner], make_shard: Callable[..., ShardData], sampling: Any
) -> None:
    """A constant would tell that no record is of another class."""
    shard = make_shard(1, 20, classes=1)
    learner = make_learner(privacy=PrivateSGD(0.5, 50.0, sampling=sampling))
    first, second, empty = learner.fit_many(
        [shard, replace(shard, seed=8), replace(shard, X=shard.X[:0], y=shard.y[:0])]
    )
    assert isinstance(first, JaxModel)
    assert isinstance(second, JaxModel)
    assert not np.array_equal(first.predict(shard.X), second.predict(shard.X))
    assert empty == Abstainer()


@pytest.mark.parametrize("sampling", ["shuffle", "poisson"])
def test_the_noisy_sum_is_divided_by_the_batch_size_in_a_small_shard_too(
    make_learner: Callable[..., JaxLearner], make_shard: Callable[..., ShardData], sampling: Any
) -> None:
    """All of 20 rows are in the one batch, so a hundredfold batch size is a hundredth of the step."""
    shard = make_shard(1, 20)
    steps = []
    for batch_size in (20, 2000):
        learner = make_learner(
            network=logistic(input_shape=(8, 8)),
            batch_size=batch_size,
            steps=1,
            optimizer=sgd(1.0),
            privacy=PrivateSGD(1.0, 0.5, sampling=sampling),
        )
        init_key = jax.random.split(jax.random.wrap_key_data(np.array([0, 4], np.uint32), impl="threefry2x32"))[0]
        start = learner.architecture.init(init_key, 3)
        model: Any = learner.fit(shard.X, shard.y, 4)
        steps.append(jax.tree.map(lambda old, new: old - new, start, model.parameters))
    for left, right in zip(*(jax.tree.leaves(step) for step in steps), strict=True):
        assert np.allclose(left, 100 * right, atol=1e-3)
        assert np.abs(left).max() > 1e-2


def test_poisson_training_runs_and_is_repeatable(
    make_learner: Callable[..., JaxLearner], make_shard: Callable[..., ShardData]
) -> None:
    from expunge.training.learners.jax import same_parameters

    learner, shard = make_learner(privacy=PrivateSGD(0.5, 0.3, sampling="poisson")), make_shard(1)
    first, second = (learner.fit(shard.X, shard.y, 4) for _ in range(2))
    assert same_parameters(first.parameters, second.parameters)
    assert not same_parameters(first.parameters, learner.fit(shard.X, shard.y, 5).parameters)
