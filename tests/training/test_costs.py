"""What a deletion costs, measured with a clock that counts rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from expunge.core.prf import RecipeKey
from expunge.core.records import Records
from expunge.training import costs
from expunge.training.costs import Costs, measure_costs
from expunge.training.ensemble import learn
from expunge.training.learners import ConstantModel
from expunge.training.learners.named import named_learner
from expunge.training.recipe import Recipe
from expunge.training.sampling import IndependentSampler, PartitionSampler


class Clock:
    """Processor time that passes only when something is trained."""

    def __init__(self) -> None:
        self.now = 0.0

    def process_time(self) -> float:
        return self.now


@dataclass
class Slow:
    """A learner that takes fixed + rows**growth / 1000 seconds of the clock."""

    clock: Clock
    growth: float = 1.0
    fixed: float = 0.0
    most: int = 10**9

    def fit(self, X, y, seed, *, weights=None):
        if len(y) > self.most:
            raise MemoryError("too many rows")
        self.clock.now += self.fixed + len(y) ** self.growth / 1000
        return ConstantModel(0)


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    monkeypatch.setattr(costs, "time", found)
    return found


def state_of(learner, count, shards, sampler=None):
    rng = np.random.default_rng(0)
    records = Records.build(rng.normal(size=(count, 2)), np.arange(count) % 2)
    return learn(records, Recipe(learner, shards, sampler or PartitionSampler(), key=RecipeKey.from_seed(0)))


def test_a_short_training_on_everything_is_measured(clock):
    found = measure_costs(state_of(Slow(clock), 2000, 20))
    assert found.refit == pytest.approx(2.0)
    assert not found.is_estimated
    assert found.deletion == pytest.approx(0.1, rel=0.2)
    assert found.models_retrained == 1
    assert found.savings == pytest.approx(20, rel=0.2)


@pytest.mark.parametrize(("growth", "seconds"), [(1.0, 40.0), (1.4, 40_000**1.4 / 1000)])
def test_a_long_training_is_estimated_from_short_ones(growth, seconds, clock):
    state = state_of(Slow(clock, growth, most=5000), 40_000, 400)
    before = clock.now
    found = measure_costs(state)
    assert found.is_estimated
    assert found.refit == pytest.approx(seconds, rel=0.2)
    assert clock.now - before < 12  # the training on everything did not take place


@pytest.mark.parametrize("shards", [4, 20, 100])
def test_fixed_costs_are_not_multiplied(shards, clock):
    """Twelve seconds for everything, of them two fixed: as many times a shard's two would be 8 to 200."""
    found = measure_costs(state_of(Slow(clock, fixed=2.0), 10_000, shards))
    assert found.is_estimated
    assert 12 / 1.8 < found.refit < 12 * 1.8


def test_a_long_training_allows_a_long_measurement(clock):
    state = state_of(Slow(clock, fixed=2.0), 10_000, 20)
    found = measure_costs(state, seconds_to_train=50.0)
    assert (found.refit, found.is_estimated) == (pytest.approx(12.0), False)


def test_what_is_known_of_one_model_is_not_measured_again(clock):
    state = state_of(Slow(clock, most=500), 2000, 20)
    found = measure_costs(state, refit=1.7)
    assert (found.refit, found.is_estimated) == (1.7, False)


def test_a_large_training_is_estimated_to_spare_memory(clock, monkeypatch):
    monkeypatch.setattr(costs, "_MOST_ROWS", 1999)
    found = measure_costs(state_of(Slow(clock, most=500), 2000, 20))
    assert found.is_estimated
    assert found.refit == pytest.approx(2.0, rel=0.2)


def test_a_training_that_fails_is_estimated(clock):
    found = measure_costs(state_of(Slow(clock, most=1000), 2000, 20))
    assert found.is_estimated
    assert found.refit == pytest.approx(2.0, rel=0.2)


def test_independent_shards_share_records(clock):
    found = measure_costs(state_of(Slow(clock), 2000, 20, IndependentSampler(0.2)))
    assert found.models_retrained == pytest.approx(4)
    assert found.deletion == pytest.approx(4 * 0.4, rel=0.2)


@pytest.mark.parametrize("most", [10**9, 1000])
def test_shards_that_hold_everything(most, clock, monkeypatch):
    monkeypatch.setattr(costs, "_MOST_ROWS", most)
    found = measure_costs(state_of(Slow(clock), 2000, 3, IndependentSampler(1.0)))
    assert (found.refit, found.is_estimated) == (pytest.approx(2.0), False)  # a shard is everything


def test_one_shard_costs_a_training_on_everything(clock):
    state = state_of(Slow(clock), 2000, 1)
    assert measure_costs(state) == Costs(2.0, 1.0, 2.0, is_estimated=False)
    before = clock.now
    assert measure_costs(state, seconds_to_train=99.0) == Costs(99.0, 1.0, 99.0, is_estimated=False)
    assert clock.now == before


def test_an_exact_learner_trains_nothing(clock):
    found = measure_costs(state_of(named_learner("naive-bayes-exact"), 50, 1))
    assert (found.models_retrained, found.refit) == (0, 0)


def test_nothing_is_measured_without_records(clock):
    records = Records.build(np.empty((0, 2)), np.empty(0, int), classes=[0, 1])
    assert measure_costs(learn(records, Recipe(Slow(clock), 3, key=RecipeKey.from_seed(0)))) is None


def test_the_state_stays_as_it_was(clock):
    state = state_of(named_learner("tree"), 200, 4)
    models, members = state.models, [slots.tolist() for slots in state.members]
    measure_costs(state)
    assert state.models is models
    assert [slots.tolist() for slots in state.members] == members
