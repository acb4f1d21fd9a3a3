"""The test of (0,0,0) and the bound on α are valid: checked by enumeration, with negative controls."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from expunge.audit import Event, alpha_lower_bound, sign_test
from expunge.audit.inference import allowance, choose_events, log_binomial_tail, most_significant
from expunge.core.errors import ParameterError


def arms(up: int, down: int, ties: int) -> tuple[np.ndarray, np.ndarray]:
    unlearned = np.array([1.0] * up + [0.0] * down + [0.5] * ties)
    retrained = np.array([0.0] * up + [1.0] * down + [0.5] * ties)
    return unlearned, retrained


@pytest.mark.parametrize(("up", "down", "ties"), [(0, 0, 5), (3, 3, 0), (7, 1, 2), (0, 30, 4), (55, 45, 100)])
def test_the_sign_test_is_the_exact_binomial_test(up, down, ties):
    found = sign_test("s", *arms(up, down, ties))
    assert (found.unlearned_larger, found.retrained_larger, found.ties) == (up, down, ties)
    expected = 1.0 if up + down == 0 else stats.binomtest(up, up + down).pvalue
    assert found.p_value == pytest.approx(expected, rel=1e-9)


def test_undefined_statistics_count_as_ties():
    found = sign_test("s", np.array([np.nan, 1.0, 2.0]), np.array([0.0, np.nan, 1.0]))
    assert (found.unlearned_larger, found.retrained_larger, found.ties) == (1, 0, 2)


def test_tiny_p_values_keep_their_exponent():
    found = sign_test("s", *arms(5000, 0, 0))
    assert found.log10_p == pytest.approx(-4999 * math.log10(2), rel=1e-9)
    assert found.p_value == 0.0 or found.p_value < 1e-300


@pytest.mark.parametrize("trials", [1, 8, 25])
def test_under_exchangeable_arms_the_p_value_is_valid(trials):
    """P(p ≤ a) ≤ a for every a, by enumeration of every split."""
    law = stats.binom(trials, 0.5).pmf(np.arange(trials + 1))
    p = np.array([sign_test("s", *arms(up, trials - up, 0)).p_value for up in range(trials + 1)])
    for a in np.unique(p):
        assert law[p <= a * (1 + 1e-12)].sum() <= a * (1 + 1e-9)


def test_the_binomial_tail():
    assert log_binomial_tail(0, 5) == 0.0
    assert math.exp(log_binomial_tail(4, 9)) == pytest.approx(stats.binom(9, 0.5).sf(3))


def test_several_statistics_are_paid_for():
    tests = [sign_test("a", *arms(10, 0, 0)), sign_test("b", *arms(5, 5, 0)), sign_test("c", *arms(6, 4, 0))]
    best, log10_p = most_significant(tests)
    assert best.statistic == "a"
    assert 10**log10_p == pytest.approx(3 * 2 * 2**-10)


def test_the_bound_is_the_stated_formula():
    low = stats.beta.ppf(0.025, 90, 11)
    high = stats.beta.ppf(0.975, 6, 95)
    eta = 1 - (1 - 0.01) * (1 - 0.02)
    found = alpha_lower_bound(90, 5, 100, beta=0.01, gamma=0.02, confidence=0.95)
    assert found == pytest.approx(math.log((low - eta) / high))
    assert allowance(beta=0.01, gamma=0.02) == pytest.approx(eta)


@pytest.mark.parametrize("wrong", [{"beta": -0.1}, {"gamma": 1.5}, {"confidence": 1.0}, {"confidence": 0}])
def test_impossible_parameters_are_refused(wrong):
    options = {"beta": 0.1, "gamma": 0.1, "confidence": 0.9, **wrong}
    with pytest.raises(ParameterError, match=next(iter(wrong))):
        alpha_lower_bound(1, 1, 2, **options)


def chance_of_exceeding(p1: float, p0: float, alpha: float, *, trials: int, **options: float) -> float:
    """P(bound > α) with independent arms, by enumeration."""
    laws = [stats.binom(trials, p).pmf(np.arange(trials + 1)) for p in (p1, p0)]
    total = 0.0
    for one in range(trials + 1):
        for zero in range(trials + 1):
            if alpha_lower_bound(one, zero, trials, **options) > alpha:
                total += laws[0][one] * laws[1][zero]
    return total


@pytest.mark.parametrize(("alpha", "p0"), [(0.0, 0.3), (0.5, 0.4), (1.0, 0.2), (2.0, 0.05)])
@pytest.mark.parametrize(("beta", "gamma"), [(0.0, 0.0), (0.05, 0.1)])
def test_the_bound_fails_at_most_as_often_as_stated(alpha, p0, beta, gamma):
    """The worst system that is (α,β,γ): a share γ of the requests gives the event away, the rest is at the limit."""
    p1 = (1 - gamma) * min(1.0, math.exp(alpha) * p0 + beta) + gamma
    options = {"trials": 25, "beta": beta, "gamma": gamma, "confidence": 0.8}
    assert chance_of_exceeding(p1, p0, alpha, **options) <= 0.2


def test_forgetting_gamma_is_caught():
    """Negative control: a scheme that is perfect but for γ of the requests is accused if only β is allowed for."""
    p0, gamma = 0.02, 0.3
    p1 = (1 - gamma) * p0 + gamma
    options = {"trials": 40, "beta": 0.0, "confidence": 0.8}
    assert chance_of_exceeding(p1, p0, 0.0, gamma=gamma, **options) <= 0.2
    assert chance_of_exceeding(p1, p0, 0.0, gamma=0.0, **options) > 0.9


def test_a_choice_on_the_same_trials_cheats_and_on_others_does_not():
    """Two equal arms, 400 audits, bounds at 80%: chosen on other trials at most a fifth may exceed 0 (false alarm
    1e-6: Bin(400, 0.2) is above 121 with probability 2.6e-7); chosen on the same trials far more do."""
    rng = np.random.default_rng(7)
    honest = cheating = 0
    for _ in range(400):
        unlearned, retrained = rng.normal(size=(2, 60))
        for same in (True, False):
            chosen_on = slice(None) if same else slice(0, 30)
            tested_on = slice(None) if same else slice(30, None)
            (event,) = choose_events(
                {"s": unlearned[chosen_on]}, {"s": retrained[chosen_on]}, most=1, beta=0.0, gamma=0.0
            )
            counts = [int(event.happened(arm[tested_on]).sum()) for arm in (unlearned, retrained)]
            size = len(unlearned[tested_on])
            exceeded = alpha_lower_bound(*counts, size, beta=0.0, gamma=0.0, confidence=0.8) > 0
            cheating += same and exceeded
            honest += not same and exceeded
    assert honest <= 121
    assert cheating > 2 * honest + 40


def test_events_and_how_they_are_chosen():
    unlearned, retrained = {"s": np.array([0.1, 0.2, 0.1, 0.3])}, {"s": np.array([0.7, 0.8, 0.9, 0.6])}
    event = choose_events(unlearned, retrained, most=3, beta=0.0, gamma=0.0)[0]
    assert event == Event("s", "at most", pytest.approx(0.45))
    assert event.happened(unlearned["s"]).all()
    assert not event.happened(retrained["s"]).any()
    assert not Event("s", "at least", 0.0).happened(np.array([np.nan])).any()
    assert choose_events({"s": np.full(3, np.nan)}, {"s": np.full(3, np.nan)}, most=3, beta=0, gamma=0) == []
    assert str(event) == "s at most 0.45"
