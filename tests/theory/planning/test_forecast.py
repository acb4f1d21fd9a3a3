import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom

from expunge.theory import design_consensus
from expunge.theory.planning.question import CleanLaw, forecast, is_sure


@pytest.fixture(scope="module")
def design():
    return design_consensus(num_shards=300, max_queries=1000, generations=1, alpha=5, beta=1e-2, gamma=1e-2)


def shares_of(dissent):
    return 1 - np.asarray(dissent) / 300


def test_the_gate_has_a_grey_zone(design):
    assert 0 < design.sure_dissent < design.max_dissent
    assert 0 < design.survival[design.max_dissent] < 1


def test_what_is_sure_is_the_designs(design):
    dissent = np.array([0, design.sure_dissent, design.sure_dissent + 1, design.max_dissent, 200])
    assert is_sure(design, shares_of(dissent)).tolist() == [True, True, False, False, False]
    assert is_sure(design, np.array([design.sure_release_share])).all()


def test_one_query_is_clean_with_the_survival(design):
    for dissent in (0, design.sure_dissent + 1, (design.sure_dissent + design.max_dissent) // 2, design.max_dissent):
        law = CleanLaw.from_sample(design, shares_of([dissent]))
        assert law.clean_chance(1) == pytest.approx(design.survival[dissent], rel=1e-9)
        # T is drawn once: asking the same again and again tells nothing new.
        assert law.clean_chance(1000) == pytest.approx(design.survival[dissent], rel=1e-9)
    assert CleanLaw.from_sample(design, shares_of([design.max_dissent + 1])).clean_chance(1) == 0
    assert CleanLaw.from_sample(design, shares_of([0, 1])).clean_chance(10**9) == 1


def play(design, dissent, *, queries_per_update, max_queries, generations, rng):
    """Generations as the protocol runs them: how many updates each took, the full retraining at its end included."""
    lengths = []
    for _ in range(generations):
        threshold = np.count_nonzero(rng.random() < design.survival) - 1
        asked, updates, dirty = 0, 0, False
        while True:
            for _ in range(queries_per_update):
                asked += 1
                dirty = dirty or rng.choice(dissent) > threshold or asked >= max_queries
            updates += 1
            if dirty:
                break
        lengths.append(updates)
    return np.array(lengths)


def test_generations_last_as_long_as_when_played(design):
    grey = design.sure_dissent + 2
    dissent = np.array([0] * 51 + [grey] * 5 + [grey + 3] * 3 + [design.max_dissent + 1])
    law = CleanLaw.from_sample(design, shares_of(dissent))
    predicted = law.updates_per_generation(queries_per_update=Fraction(3), max_queries=40)
    lengths = play(
        design, dissent, queries_per_update=3, max_queries=40, generations=2000, rng=np.random.default_rng(3)
    )
    # Five standard deviations of the mean: false alarm below 1e-6.
    assert lengths.mean() == pytest.approx(predicted, abs=5 * lengths.std() / math.sqrt(2000))
    assert lengths.max() <= 14
    # A law that forgets that T is drawn once is caught by the same test.
    wrong = CleanLaw(np.ones(1), np.array([law.clean_chance(1)]))
    wrong_length = wrong.updates_per_generation(queries_per_update=Fraction(3), max_queries=40)
    assert abs(lengths.mean() - wrong_length) > 5 * lengths.std() / math.sqrt(2000)


@pytest.mark.parametrize(
    ("queries", "most", "length"),
    [
        (Fraction(10), 100, 10),
        (Fraction(10), 101, 11),
        (Fraction(1000), 100, 1),
        (Fraction(1, 3), 1, 3),
        (7, 10**9, 142857143),
    ],
)
def test_without_hard_queries_only_their_number_ends_a_generation(queries, most, length):
    law = CleanLaw.always_clean()
    assert law.updates_per_generation(queries_per_update=Fraction(queries), max_queries=most) == length


def test_a_constant_chance_is_a_geometric_series():
    law = CleanLaw.constant(0.01, queries=500)
    assert law.clean_chance(500) == pytest.approx(0.99)
    found = law.updates_per_generation(queries_per_update=Fraction(500), max_queries=10**4)
    assert found == pytest.approx(sum(0.99**j for j in range(20)))
    tiny = CleanLaw.constant(1e-15, queries=1)
    assert tiny.updates_per_generation(queries_per_update=Fraction(1), max_queries=1000) == pytest.approx(1000)
    always = CleanLaw.constant(1.0, queries=1)
    assert always.updates_per_generation(queries_per_update=Fraction(1), max_queries=1000) == 1


def test_a_forecast_counts_and_bounds(design):
    dissent = [0] * 990 + [design.sure_dissent + 1] * 4 + [250] * 6
    seen = forecast(design, shares_of(dissent), queries_per_update=Fraction(20), max_queries=1000)
    assert (seen.sampled, seen.below_sure) == (1000, 0.01)
    # Clopper and Pearson: at the bound, ten or fewer would be seen with probability 5%.
    assert binom.cdf(10, 1000, seen.below_sure_at_most) == pytest.approx(0.05, rel=1e-6)
    law = CleanLaw.from_sample(design, shares_of(dissent))
    assert seen.dirty_before_update == pytest.approx(1 - law.clean_chance(20))
    assert 1 - 0.994**20 <= seen.dirty_before_update <= 1 - 0.99**20
    assert seen.dirty_generations == pytest.approx(1 - law.clean_chance(1000))


def test_the_ends_of_a_forecast(design):
    none = forecast(design, shares_of([0] * 100), queries_per_update=Fraction(1), max_queries=1000)
    assert (none.below_sure, none.dirty_generations) == (0, 0)
    assert none.below_sure_at_most == pytest.approx(1 - 0.05 ** (1 / 100))
    every = forecast(design, shares_of([250] * 5), queries_per_update=Fraction(1), max_queries=1000)
    assert (every.below_sure, every.below_sure_at_most, every.dirty_before_update) == (1, 1, 1)


def test_the_mean_number_of_queries_is_that_of_generations_played(design):
    """The mean of 4,000 generations is within 5 standard errors: a false-alarm probability below 1e-6."""
    rng, most = np.random.default_rng(8), 200
    dissent = np.array([0] * 95 + [design.sure_dissent + 2] * 4 + [design.max_dissent + 1])
    law = CleanLaw.from_sample(design, shares_of(dissent))
    lengths = []
    for _ in range(4000):
        threshold = np.count_nonzero(rng.random() < design.survival) - 1
        dirty = np.flatnonzero(rng.choice(dissent, most) > threshold)
        lengths.append(dirty[0] + 1 if len(dirty) else most)
    error = np.std(lengths) / np.sqrt(len(lengths))
    assert abs(law.mean_queries(most) - np.mean(lengths)) < 5 * error
    assert CleanLaw.always_clean().mean_queries(most) == most
    assert CleanLaw.from_sample(design, shares_of([299])).mean_queries(most) == pytest.approx(1)
