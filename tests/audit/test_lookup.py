"""Theorem 5.1: the adaptive sequence makes an event certain that full retraining makes vanishingly rare."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from expunge.audit import DeleteCorrect, PublishVotes, attack_deployment, attack_lookup, make_pairs
from expunge.audit.scenarios import each_point_has_one_shard
from expunge.core.prf import RecipeKey
from expunge.core.randomness import Randomness
from expunge.serving.interaction import EnsemblePair, interact
from expunge.serving.promises import Unguarded
from expunge.training.learners import LookupTableLearner
from expunge.training.sampling import IndependentSampler, PartitionSampler

SISA = PartitionSampler()


@pytest.fixture
def random_keys(monkeypatch, random_function):
    """Recipe keys that are random functions, whose values an exact law walks through."""
    monkeypatch.setattr(RecipeKey, "from_randomness", staticmethod(random_function))


def test_the_event_has_exactly_the_stated_probability_under_retraining(exact_law, random_keys):
    """3^-m for m pairs, by enumeration of every assignment."""
    for pairs in (1, 2, 3):
        pair = EnsemblePair(LookupTableLearner(), SISA, 3)
        law = exact_law(lambda rng, n=pairs, p=pair: each_point_has_one_shard(p.learn(make_pairs(n), rng)))
        assert law[True] == Fraction(1, 3**pairs)


def test_the_event_is_certain_after_the_adaptive_sequence(exact_law, random_keys):
    """Probability one, by enumeration: for every partition the survivors are in the event."""

    def attacked(rng):
        return attack_lookup(2, rng=rng).event_unlearned

    assert exact_law(attacked) == {True: Fraction(1)}


@pytest.mark.parametrize("num_pairs", [1, 5, 50, 200])
def test_the_event_after_the_attack_at_every_size(num_pairs):
    """With many pairs the retrained arm's event has probability 3^-(survivors): never seen (chance < 1e-6 at 200)."""
    rng = Randomness.from_seed(num_pairs)
    results = [attack_lookup(num_pairs, rng=rng) for _ in range(10)]
    assert all(result.event_unlearned for result in results)
    assert all(result.accuracy_unlearned == (0.0 if result.num_surviving_pairs else 1.0) for result in results)
    if num_pairs == 200:
        assert not any(result.event_retrained for result in results)


def test_survivors_and_retrained_accuracy_follow_their_laws():
    """Surviving pairs ~ Bin(n, 1/3), and a retrained pair is right with probability 2/3: exact tests at 1e-6."""
    rng = Randomness.from_seed(9)
    results = [attack_lookup(100, rng=rng) for _ in range(60)]
    survived = sum(result.num_surviving_pairs for result in results)
    assert stats.binomtest(survived, 6000, 1 / 3).pvalue > 1e-6
    right = sum(round(result.accuracy_retrained * result.num_surviving_pairs) for result in results)
    assert stats.binomtest(right, survived, 2 / 3).pvalue > 1e-6


def test_small_events_are_as_frequent_as_stated():
    """Retraining two pairs ends in the event with probability 1/9: exact test at 1e-6."""
    rng = Randomness.from_seed(10)
    pair = EnsemblePair(LookupTableLearner(), SISA, 3)
    happened = sum(each_point_has_one_shard(pair.learn(make_pairs(2), rng)) for _ in range(3000))
    assert stats.binomtest(happened, 3000, 1 / 9).pvalue > 1e-6


def test_one_deletion_a_round_ends_in_the_same_place():
    records = make_pairs(20)
    points, codes, _ = records.gather(records.live_slots())
    pair = EnsemblePair(LookupTableLearner(), SISA, 3)
    requester = DeleteCorrect(records.ids(), codes, at_once=False)
    played = interact(pair, PublishVotes(points), requester, records, rng=Randomness.from_seed(3), max_rounds=100)
    assert each_point_has_one_shard(played.state)
    assert len(played.asked) == int((played.published[0] == codes).sum())


def test_the_published_mode_counts_abstentions():
    pair = EnsemblePair(LookupTableLearner(), IndependentSampler(1.0), 3)
    state = pair.learn(make_pairs(2), Randomness.from_seed(0))
    assert PublishVotes(np.array([[0.0], [1.0], [7.0]]))(0, state).tolist() == [0, 1, -1]


def test_consensus_publishing_ends_as_a_fresh_training_does():
    """A surviving pair, of label 1, is known with probability 1 − (1 − 1/k)^2k in both arms: exact tests at 1e-6."""
    rng = Randomness.from_seed(11)
    results = [attack_deployment(400, rng=rng) for _ in range(4)]
    survived = sum(result.num_surviving_pairs for result in results)
    assert survived > 50
    known = 1 - (1 - 1 / 1000) ** 2000
    for name in ("accuracy_in_service", "accuracy_retrained"):
        right = sum(round(getattr(result, name) * result.num_surviving_pairs) for result in results)
        assert stats.binomtest(right, survived, known).pvalue > 1e-6
    for result in results:
        assert result.models_retrained == result.num_shards == 1000
        assert result.same_models
        assert not result.guarantee.is_vacuous


def test_without_the_full_retraining_every_survivor_is_wrong():
    """The same game under plain majority voting, where only touched shards are retrained."""
    found = attack_deployment(400, rng=Randomness.from_seed(12), promise=Unguarded())
    assert found.num_surviving_pairs > 20
    assert found.accuracy_in_service == 0
    assert found.models_retrained < found.num_shards
    assert found.guarantee.is_vacuous
