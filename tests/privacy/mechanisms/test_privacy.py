"""The privacy that each mechanism claims, on its exact law and on what it really releases."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import chain, combinations

import numpy as np
import pytest
from scipy import stats

from expunge.core.randomness import Randomness
from expunge.privacy.accounting.events import BoundedRange, GaussianDP, NonPrivate, PureDP
from expunge.privacy.mechanisms import (
    ConfidentGaussianNoisyMax,
    ExponentialMechanism,
    GaussianNoisyMax,
    LaplaceNoisyMax,
    Majority,
    Mechanism,
    PermuteAndFlip,
)

RELEASES = 100_000
# One shard changes its vote: from class to class, from class to ⊥, from ⊥ to class, and into and out of a tie.
PAIRS = [
    ((6, 5, 1), (5, 6, 1)),
    ((6, 5, 1), (6, 4, 1)),
    ((6, 5, 1), (6, 5, 2)),
    ((4, 4, 0), (5, 3, 0)),
    ((5, 3, 3), (4, 4, 3)),
]


def weakened(mechanism: Mechanism) -> Mechanism:
    """A broken mechanism, which assumes that a changed vote moves only one count: the factor 2 (or √2) is gone.

    For the confident one both noises are halved: a √2 in one of the two is more than 100,000 releases can tell.
    """
    match mechanism:
        case ExponentialMechanism() | PermuteAndFlip() | LaplaceNoisyMax():
            return replace(mechanism, epsilon=2 * mechanism.epsilon)
        case GaussianNoisyMax():
            return replace(mechanism, sigma=mechanism.sigma / math.sqrt(2))
        case ConfidentGaussianNoisyMax():
            return replace(mechanism, sigma=mechanism.sigma / 2, threshold_sigma=mechanism.threshold_sigma / 2)
    raise AssertionError(mechanism)


def frequencies(mechanism: Mechanism, row: tuple[int, ...], seed: int) -> np.ndarray:
    """How often each class code came, DECLINED last as in `law`."""
    answers = mechanism.release(np.tile(row, (RELEASES, 1)), Randomness.from_seed(seed))
    counts = np.bincount(answers + 1, minlength=len(row) + 1)
    return np.roll(counts, -1)[: len(mechanism.law(np.array(row)))]


def events_of(size: int) -> list[list[int]]:
    """All sets of outputs but the empty one and the full one."""
    outputs = range(size)
    return [list(c) for c in chain.from_iterable(combinations(outputs, length) for length in range(1, size))]


def proportion_bounds(successes: int, failure: float) -> tuple[float, float]:
    """The Clopper-Pearson interval, wrong with probability at most `failure`."""
    low = stats.beta.ppf(failure / 2, successes, RELEASES - successes + 1) if successes else 0.0
    high = stats.beta.isf(failure / 2, successes + 1, RELEASES - successes) if successes < RELEASES else 1.0
    return float(low), float(high)


def observed_excess(mechanism: Mechanism, claimed, largest_allowed) -> float:
    """By how much the releases exceed the claim for sure: positive with probability at most 1e-6 if the claim is true.

    Clopper-Pearson bounds, shared out over both rows of each pair, both directions and all sets of outputs.
    """
    worst = -math.inf
    for seed, (first, second) in enumerate(PAIRS):
        observed = [frequencies(mechanism, row, 2 * seed + side) for side, row in enumerate((first, second))]
        sets = events_of(len(observed[0]))
        failure = 1e-6 / (len(PAIRS) * 2 * len(sets))
        for chosen in sets:
            (low, high), (other_low, other_high) = (proportion_bounds(int(o[chosen].sum()), failure) for o in observed)
            worst = max(worst, low - largest_allowed(claimed, other_high), other_low - largest_allowed(claimed, high))
    return worst


def exact_excess(mechanism: Mechanism, claimed, pairs, largest_allowed) -> float:
    """By how much the exact laws exceed the claim, over all pairs and all sets of outputs."""
    laws: dict[tuple[int, ...], np.ndarray] = {}
    worst = -math.inf
    for first, second in pairs:
        p, q = (laws.setdefault(row, mechanism.law(np.array(row))) for row in (first, second))
        for chosen in events_of(len(p)):
            worst = max(worst, p[chosen].sum() - largest_allowed(claimed, min(1.0, q[chosen].sum())))
    return worst


@pytest.mark.parametrize("row", sorted({row for pair in PAIRS for row in pair}))
def test_frequencies_match_the_exact_law(private, row, chi_square):
    # False alarm: 1e-6 for each row and mechanism.
    assert chi_square(frequencies(private, row, seed=sum(row)), private.law(np.array(row))) > 1e-6


def test_a_wrong_law_is_noticed(private, chi_square):
    observed = frequencies(weakened(private), (6, 5, 1), seed=3)
    assert chi_square(observed, private.law(np.array((6, 5, 1)))) < 1e-6


def test_releases_keep_the_claim(private, largest_allowed):
    # False alarm: 1e-6 for each mechanism.
    assert observed_excess(private, private.event, largest_allowed) <= 0


def test_releases_without_the_factor_two_break_the_claim(private, largest_allowed):
    assert observed_excess(weakened(private), private.event, largest_allowed) > 0


def test_laws_keep_the_claim_on_all_neighbours(private, neighbours, largest_allowed):
    assert exact_excess(private, private.event, neighbours(5, 3), largest_allowed) <= 1e-12


def test_laws_without_the_factor_two_break_the_claim(private, neighbours, largest_allowed):
    assert exact_excess(weakened(private), private.event, neighbours(3, 3), largest_allowed) > 1e-3


@pytest.mark.parametrize("epsilon", [1e-6, 0.01, 1.0, 8.0])
@pytest.mark.parametrize("kind", [ExponentialMechanism, PermuteAndFlip, LaplaceNoisyMax])
def test_log_ratios_stay_within_epsilon_and_reach_it(kind, epsilon, neighbours):
    mechanism = kind(epsilon=epsilon)
    far = math.ceil(40 / epsilon)
    pairs = [*neighbours(4, 3), ((0, far), (1, far - 1)), ((1, far - 1), (0, far)), ((7, 7), (8, 6))]
    losses = []
    for first, second in pairs:
        losses.append(np.abs(np.log(mechanism.law(np.array(first)) / mechanism.law(np.array(second)))).max())
    assert max(losses) <= epsilon * (1 + 1e-9) + 1e-13
    # The claim is also no larger than need be.
    assert max(losses) >= 0.9 * epsilon


def log_ratio_range(mechanism: Mechanism, pairs) -> float:
    ratios = (np.log(mechanism.law(np.array(a)) / mechanism.law(np.array(b))) for a, b in pairs)
    return max(float(np.ptp(ratio)) for ratio in ratios)


@pytest.mark.parametrize("epsilon", [1e-6, 0.01, 1.0, 8.0])
def test_the_exponential_mechanism_has_bounded_range(epsilon, neighbours):
    widest = log_ratio_range(ExponentialMechanism(epsilon=epsilon), neighbours(5, 3))
    assert widest == pytest.approx(epsilon, rel=1e-8)


@pytest.mark.parametrize("kind", [PermuteAndFlip, LaplaceNoisyMax])
def test_the_others_do_not_have_bounded_range_and_do_not_claim_it(kind, neighbours):
    mechanism = kind(epsilon=1.0)
    assert log_ratio_range(mechanism, neighbours(5, 3)) > 1.1
    assert not isinstance(mechanism.event, BoundedRange)


def test_two_classes_reach_the_gaussian_claim(largest_allowed):
    mechanism = GaussianNoisyMax(sigma=3.0)
    tied, moved = mechanism.law(np.array([7, 7])), mechanism.law(np.array([8, 6]))
    assert moved[0] == pytest.approx(largest_allowed(mechanism.event, tied[0]), abs=1e-12)


def test_the_events_are_the_proven_ones():
    assert ExponentialMechanism(epsilon=0.3).event == BoundedRange(0.3)
    assert PermuteAndFlip(epsilon=0.3).event == PureDP(0.3)
    assert LaplaceNoisyMax(epsilon=0.3).event == PureDP(0.3)
    # ρ = 1/σ² for the answer, 1/(2 σ_T²) for the check; a GaussianDP event is 1/(2 multiplier²)-zCDP.
    assert GaussianNoisyMax(sigma=4.0).event == GaussianDP(4.0 / math.sqrt(2))
    event = ConfidentGaussianNoisyMax(sigma=4.0, threshold=10, threshold_sigma=6.0).event
    assert 1 / (2 * event.noise_multiplier**2) == pytest.approx(1 / 16 + 1 / 72, rel=1e-14)
    assert Majority().event == NonPrivate()


@pytest.mark.parametrize("epsilon", [1e-3, 1.0])
def test_gaussian_noise_from_epsilon_costs_as_much_as_the_exponential_mechanism(epsilon):
    for mechanism in (
        GaussianNoisyMax.from_epsilon(epsilon=epsilon),
        ConfidentGaussianNoisyMax.from_epsilon(epsilon=epsilon, threshold=10),
    ):
        assert 1 / (2 * mechanism.event.noise_multiplier**2) == pytest.approx(epsilon**2 / 8, rel=1e-14)
