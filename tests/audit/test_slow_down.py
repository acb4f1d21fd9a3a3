"""The run-time theorem (4.2), corrected: how many shards one request retrains."""

from __future__ import annotations

from fractions import Fraction
from math import comb

import numpy as np
import pytest
from scipy import stats

from expunge.audit import DeleteMostShards, PublishedModels
from expunge.core.prf import RecipeKey, id_names
from expunge.core.records import Add, Delete, Records
from expunge.theory import adaptive_quantile, oblivious_quantile, printed_form
from expunge.training.ensemble import learn, update
from expunge.training.learners import LookupTableLearner
from expunge.training.recipe import Recipe
from expunge.training.sampling import IndependentSampler


def points(n: int) -> Records:
    return Records.build(np.arange(float(n)).reshape(-1, 1), np.zeros(n, dtype=int), classes=[0, 1])


@pytest.mark.parametrize("batch", [[Delete(0)], [Add(id=9, features=[9.0], label=0)]], ids=["delete", "add"])
def test_the_number_of_retrained_shards_is_exactly_binomial(exact_law, random_function, batch):
    """N^t ~ Bin(3, 1/4), by enumeration of every coin."""

    def retrained(rng):
        recipe = Recipe(LookupTableLearner(), 3, IndependentSampler(0.25), random_function(rng))
        return update(learn(points(1), recipe), batch)[1].num_retrained

    law = exact_law(retrained)
    assert law == {m: Fraction(comb(3, m) * 3 ** (3 - m), 64) for m in range(4)}


@pytest.mark.parametrize(("num_shards", "p"), [(20, None), (20, 0.3)])
def test_an_oblivious_request_touches_a_binomial_number_of_shards(num_shards, p):
    """N^t ~ Bin(k, p) for deletions and additions fixed in advance: χ² at 1e-6 on 800 requests."""
    sampler = IndependentSampler(p)
    state = learn(points(400), Recipe(LookupTableLearner(), num_shards, sampler, RecipeKey.from_seed(4)))
    touched = []
    for i in range(400):
        for batch in ([Delete(i)], [Add(id=1000 + i, features=[-1.0 - i], label=0)]):
            state, report = update(state, batch)
            touched.append(report.num_retrained)
    law = stats.binom(num_shards, sampler.inclusion_probability(num_shards))
    seen = np.bincount(touched, minlength=num_shards + 1)
    expected = 800 * law.pmf(np.arange(num_shards + 1))
    rare = expected < 5
    seen, expected = np.append(seen[~rare], seen[rare].sum()), np.append(expected[~rare], expected[rare].sum())
    assert stats.chisquare(seen, expected * seen.sum() / expected.sum()).pvalue > 1e-6


def test_the_slow_down_attack_stays_below_the_corrected_bound():
    """The bound at ξ = 1e-7 may fail with probability 1e-7 a round: 10 rounds, false alarm 1e-6."""
    n, k = 300, 20
    state = learn(points(n), Recipe(LookupTableLearner(), k, IndependentSampler(), RecipeKey.from_seed(5)))
    ids, rows, codes = state.records.ids(), np.arange(float(n)).reshape(-1, 1), np.zeros(n, dtype=int)
    requester, asked = DeleteMostShards(ids, rows, codes), []
    retrained = []
    for _ in range(10):
        batch = requester.next_batch([PublishedModels(state.models, 2)], asked)
        asked.append(batch)
        state, report = update(state, batch)
        retrained.append(report.num_retrained)
    bound = adaptive_quantile(num_shards=k, inclusion_probability=1 / k, num_records=n + 10, failure=1e-7)
    assert retrained[0] > oblivious_quantile(num_shards=k, inclusion_probability=1 / k, failure=0.1)
    assert max(retrained) <= bound


def test_the_bound_as_printed_fails():
    """Bin(100, 1/100) at ξ = 1e-3: the printed 4.72 is exceeded with probability 3.4e-3, and by sampled shards too."""
    printed = printed_form(mean=1.0, log_inverse=np.log(1e3))
    assert printed == pytest.approx(4.717, abs=1e-3)
    assert stats.binom(100, 0.01).sf(np.floor(printed)) == pytest.approx(3.4e-3, rel=0.02)
    key = RecipeKey.from_seed(6)
    _, positions = IndependentSampler().draw(id_names(range(60_000), key), 100, key)
    sizes = np.bincount(positions, minlength=60_000)
    exceeded = int((sizes > printed).sum())
    # If the printed bound held, at most 1e-3 of the records would exceed it: rejected at 1e-6.
    assert stats.binomtest(exceeded, len(sizes), 1e-3, alternative="greater").pvalue < 1e-6
