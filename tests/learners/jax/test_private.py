from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

from expunge.errors import ParameterError
from expunge.learners.jax import JaxLearner, PrivateSGD
from expunge.learners.protocol import ShardData


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
        {"batch_size": 101},
        {"num_steps": 0},
    ],
)
def test_impossible_budgets(budget: dict[str, Any]) -> None:
    asked = {"delta": 1e-5, "num_records": 100, "batch_size": 10, "num_steps": 5} | budget
    with pytest.raises(ParameterError):
        PrivateSGD(1.0, 1.0, sampling="poisson").budget(**asked)


@pytest.mark.parametrize("options", [{"clip_norm": 0.0}, {"noise_multiplier": -1.0}, {"sampling": "uniform"}])
def test_impossible_options(options: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match=next(iter(options))):
        PrivateSGD(**({"clip_norm": 1.0, "noise_multiplier": 1.0} | options))


def test_noise_has_the_stated_deviation(
    make_learner: Callable[..., JaxLearner], make_shard: Callable[..., ShardData]
) -> None:
    """One step with noise and one without differ by normals; 8 standard errors of their deviation, P < 1e-14."""
    from expunge.learners.jax import mlp, sgd

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


def test_poisson_training_runs_and_is_repeatable(
    make_learner: Callable[..., JaxLearner], make_shard: Callable[..., ShardData]
) -> None:
    from expunge.learners.jax import same_parameters

    learner, shard = make_learner(privacy=PrivateSGD(0.5, 0.3, sampling="poisson")), make_shard(1)
    first, second = (learner.fit(shard.X, shard.y, 4) for _ in range(2))
    assert same_parameters(first.parameters, second.parameters)
    assert not same_parameters(first.parameters, learner.fit(shard.X, shard.y, 5).parameters)
