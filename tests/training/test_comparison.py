"""Numbers of shards compared: on real learners, and with a clock that counts rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from expunge.core.errors import ParameterError, TrainingError
from expunge.core.prf import RecipeKey
from expunge.core.records import Records
from expunge.training import comparison
from expunge.training.choice import about_rare
from expunge.training.comparison import compare
from expunge.training.ensemble import learn
from expunge.training.folds import FOLDS, Folds
from expunge.training.learners import ConstantModel
from expunge.training.learners.named import named_learner
from expunge.training.recipe import Recipe
from expunge.training.sampling import IndependentSampler, PartitionSampler


class Clock:
    """Time that passes only when something is trained."""

    def __init__(self) -> None:
        self.now = 0.0

    def process_time(self) -> float:
        return self.now

    monotonic = process_time


@dataclass
class Slow:
    """A learner that takes rows**growth / 1000 seconds of the clock."""

    clock: Clock
    growth: float = 1.0
    fixed: float = 0.0
    most: int = 10**9

    def fit(self, X, y, seed, *, weights=None):
        if len(y) > self.most:
            raise MemoryError("too many rows")
        self.clock.now += self.fixed + len(y) ** self.growth / 1000
        return ConstantModel(int(np.bincount(y).argmax()))


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    monkeypatch.setattr(comparison, "time", found)
    return found


def noisy(count, *, seed=0, subjects=False):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, 5))
    y = X @ [1.0, -1.0, 0.5, 0, 0] + rng.normal(size=count) > 0
    return Records.build(X, y, subjects=(np.arange(count) // 3).tolist() if subjects else None)


def test_folds_hold_out_people_whole_and_are_the_same_each_time():
    records = noisy(3000, subjects=True)
    folds, again = Folds.of(records), Folds.of(records)
    assert (folds.fold_of == again.fold_of).all()
    assert (folds.fold_of.reshape(-1, 3) == folds.fold_of[::3, np.newaxis]).all()
    assert folds.num_units == 1000
    # A fifth each, about; the coins are fixed, so nothing here is left to chance.
    assert all(450 < np.count_nonzero(folds.fold_of == fold) < 750 for fold in range(FOLDS))


def test_folds_are_not_the_shards():
    """With one key for both, what is held out would be shards of the ensemble, and others would stay whole."""
    records = noisy(2000)
    members = Recipe(named_learner("ridge"), 10, key=comparison.PUBLIC_KEY).members(records)
    sizes = [
        len(slots) / len(whole) for slots, whole in zip(Folds.of(records).trained(members, 0), members, strict=True)
    ]
    assert 0.6 < min(sizes) <= max(sizes) < 0.95


def test_costs_are_those_of_all_records(clock):
    found = compare(noisy(2000), Slow(clock, fixed=0.05), num_shards=[1, 2, 10, 20], seconds=1e6)
    assert [each.num_shards for each in found.candidates] == [1, 2, 10, 20]
    for each in found.candidates:
        shard = 0.05 + 2 / each.num_shards
        assert each.deletion == pytest.approx(shard, rel=0.05)
        assert each.training == pytest.approx(each.num_shards * shard, rel=0.05)
        assert (each.retrained, each.measured) == (1, each.num_shards)
    assert (found.refit, found.is_estimated) == (found.one.training, False)
    assert (found.folds, found.tested, found.skipped) == (FOLDS, 2000, ())


@pytest.mark.parametrize("growth", [1.0, 1.6])
def test_a_training_that_grows_faster_is_scaled_by_its_own_growth(growth, clock):
    found = compare(noisy(2000), Slow(clock, growth), num_shards=[1, 4, 20], seconds=1e6)
    for each in found.candidates:
        assert each.deletion == pytest.approx((2000 / each.num_shards) ** growth / 1000, rel=0.1)


def test_independent_shards_share_records(clock):
    found = compare(noisy(2000), Slow(clock), num_shards=[1, 20], sampler=IndependentSampler(0.2), seconds=1e6)
    assert found.find(20).retrained == pytest.approx(4)
    assert found.find(20).deletion == pytest.approx(4 * 0.4, rel=0.1)
    assert found.one.deletion == pytest.approx(2.0, rel=0.05)  # one model has all records
    assert found.find(20).day(10, 24) == pytest.approx(10 * found.find(20).deletion)


def test_deletions_that_are_applied_together_retrain_a_shard_once(clock):
    found = compare(noisy(2000), Slow(clock), num_shards=[1, 10], seconds=1e6)
    one, ten = found.candidates
    assert one.day(1000, 4) == pytest.approx(4 * one.deletion)
    assert ten.day(1000, 4) == pytest.approx(4 * 10 * ten.deletion, rel=1e-6)
    assert ten.day(4, 1000) == pytest.approx(4 * ten.deletion)
    assert ten.day(20, 10) == pytest.approx(10 * 10 * (1 - 0.9**2) * ten.deletion)
    assert ten.day(0, 10) == 0


@pytest.mark.parametrize("seconds", [1.0, 5.0, 20.0, 100.0])
def test_it_ends_in_time(seconds, clock):
    told = []
    found = compare(noisy(4000), Slow(clock), seconds=seconds, advance=told.append)
    assert clock.now < 2.5 * seconds
    assert sum(told) == int(seconds)
    assert found.candidates
    left_out = {each.partition(":")[0] for each in found.skipped}
    assert len(found.candidates) + len(left_out) == 7
    if seconds < 10:
        assert "one model" in left_out
        assert found.one is None
        assert found.is_estimated
        assert found.refit == pytest.approx(4.0, rel=0.3)
        assert found.candidates[0].against_one is None


def test_where_time_is_short_some_shards_are_trained_and_it_says_so(clock):
    found = compare(noisy(4000), Slow(clock, fixed=0.2), seconds=30)
    hundred = found.find(100)
    assert 3 <= hundred.measured < 100
    assert hundred.training == pytest.approx(100 * 0.24, rel=0.1)


def test_fixed_costs_leave_no_candidate_out(clock):
    """One of 200 shards takes 70 ms, of them 50 fixed. One model takes 4.05 s, and not 200 times as long."""
    found = compare(noisy(4000), Slow(clock, fixed=0.05), num_shards=[1, 200], seconds=16)
    assert found.skipped == ()
    assert found.one.deletion == pytest.approx(4.05, rel=0.1)
    left_out = compare(noisy(4000), Slow(clock, fixed=0.05), num_shards=[1, 200], seconds=8)
    assert left_out.one is None


def test_one_model_can_be_enough(clock):
    found = compare(noisy(2000), Slow(clock), is_enough=lambda refit: refit < 3, seconds=100)
    assert [each.num_shards for each in found.candidates] == [1]
    found = compare(noisy(2000), Slow(clock), is_enough=lambda refit: refit < 1, seconds=100)
    assert len(found.candidates) > 1


def test_a_candidate_that_fails_is_left_out(clock):
    found = compare(noisy(2000), Slow(clock, most=500), num_shards=[1, 10], seconds=1e6)
    assert [each.num_shards for each in found.candidates] == [10]
    assert found.skipped == ("one model: MemoryError: too many rows",)
    with pytest.raises(TrainingError, match="too many rows"):
        compare(noisy(2000), Slow(clock, most=5), num_shards=[1, 10], seconds=1e6)


def test_the_same_coins_give_the_same_scores():
    learner = named_learner("tree")
    first, second = (compare(noisy(300), learner, num_shards=[1, 5]) for _ in range(2))
    assert [each.scores for each in first.candidates] == [each.scores for each in second.candidates]


def test_learners_that_unlearn_exactly_are_candidates():
    found = compare(
        noisy(300), named_learner("tree"), num_shards=[1, 5], others={"ridge-exact": named_learner("ridge-exact")}
    )
    assert [each.name for each in found.candidates] == ["one model", "5 shards", "ridge-exact"]
    exact = found.candidates[-1]
    assert (exact.retrained, exact.measured) == (0, 1)
    assert exact.day(100, 1) == pytest.approx(100 * exact.deletion)
    alone = compare(noisy(300), named_learner("naive-bayes-exact"), num_shards=[1])
    assert alone.one.retrained == 0


def test_regressors_are_scored_by_r2():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    records = Records.build(X, X[:, 0] + 0.5 * rng.normal(size=400), is_regression=True)
    found = compare(records, named_learner("ridge-regression"), num_shards=[1, 4])
    assert 0.6 < found.one.scores.main.value < 0.9  # 0.8 without an end of data
    assert abs(found.find(4).against_one.value) < 0.1
    assert found.baseline.main.value == pytest.approx(0, abs=0.02)
    assert found.most_frequent == ""


def test_too_few_records_are_refused():
    with pytest.raises(ParameterError, match="too few records"):
        compare(noisy(9), named_learner("ridge"), num_shards=[1])
    with pytest.raises(ParameterError, match="seconds"):
        compare(noisy(90), named_learner("ridge"), seconds=0)


def make(count, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, 10))
    return X, X[:, 0] + X[:, 1] * X[:, 2] + 0.7 * rng.normal(size=count) > 0


@pytest.mark.parametrize("name", ["logistic", "tree"])
def test_what_is_said_is_what_then_happens(name):
    """The accuracy of a deployment with a key of its own, on 40,000 new rows, lies near what was said.

    The bar is 2.6 times the half-width of the 95% interval: 5.1 standard deviations, a false-alarm probability below
    1e-6 for the rows that were asked about; another 2 points are for the key, and for training on four fifths.
    """
    X, y = make(3000, 0)
    records, learner = Records.build(X, y), named_learner(name)
    found = compare(records, learner, num_shards=[1, 10], seconds=1e6)
    new, truth = make(40_000, 1)
    for each in found.candidates:
        state = learn(records, Recipe(learner, each.num_shards, PartitionSampler(), key=RecipeKey.from_seed(7)))
        real = (state.mean_probabilities(new).argmax(axis=1) == truth).mean()
        score = each.scores.main
        assert abs(real - score.value) < 1.3 * (score.high - score.low) + 0.02
    trained = learn(records, Recipe(learner, 1, key=RecipeKey.from_seed(7)))
    seen = (trained.mean_probabilities(X).argmax(axis=1) == y).mean()
    if name == "tree":  # asking about records that were trained on is the mistake that this test would catch
        score = found.one.scores.main
        assert seen - score.value > 1.3 * (score.high - score.low) + 0.02


def test_however_short_the_time_is_something_is_measured(clock):
    others = {"naive-bayes-exact": named_learner("naive-bayes-exact")}
    found = compare(noisy(4000), Slow(clock, fixed=1.0), num_shards=[1, 7], others=others, seconds=0.01)
    assert [each.num_shards for each in found.candidates if not each.learner] == [7]
    assert found.skipped[0].startswith("one model: training a model may take ")


def rare(count, *, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, 4))
    return Records.build(X, np.where(X[:, 0] + 0.5 * rng.normal(size=count) > 1.9, "fraud", "fine"))


def test_what_helps_a_rare_class_is_measured_beside_the_numbers_of_shards():
    found = compare(rare(1500), named_learner("naive-bayes"), num_shards=[1, 10], helps_rare=True, seconds=20)
    names = [each.name for each in found.candidates]
    assert names == [
        "one model",
        "10 shards",
        "one model, thresholds",
        "10 shards, thresholds",
        "10 shards, 3 a record",
        "10 shards, 5 a record",
    ]
    assert found.find(10).name == "10 shards"
    plain, single, thresholds, three, five = found.candidates[1:]
    assert thresholds.scores.recalls["fraud"].value > plain.scores.recalls["fraud"].value
    assert thresholds.deletion > plain.deletion
    assert (three.retrained, five.retrained) == pytest.approx((3.0, 5.0))
    assert three.deletion > 1.5 * plain.deletion
    assert single.num_shards == 1
    told = " ".join(about_rare(found))
    assert told.startswith("Of the class fraud these find: one model ")
    assert " by --sampling independent --probability 0.5" in told
    assert " by --set thresholds=true" in told


def test_only_a_rare_class_is_helped_and_not_by_thresholds_where_votes_are_counted():
    even = compare(noisy(300), named_learner("naive-bayes"), num_shards=[1, 10], helps_rare=True, seconds=20)
    assert [each.name for each in even.candidates] == ["one model", "10 shards"]
    assert about_rare(even) == []
    votes = compare(rare(600), named_learner("ridge"), num_shards=[10], helps_rare=True, by_votes=True, seconds=20)
    assert [each.name for each in votes.candidates] == ["10 shards", "10 shards, 3 a record", "10 shards, 5 a record"]
