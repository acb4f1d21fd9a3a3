"""The theorems on plain numbers: hand-checked values, extremes, monotonicity, speed."""

import math
import time
import warnings
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expunge.core.errors import ParameterError
from expunge.core.guarantee import Guarantee
from expunge.theory import (
    description_length,
    mutual_information,
    t1,
    t2_approximate,
    t2_curve,
    t2_gaussian,
    t2_mixed,
    t2_zcdp,
    t3,
)
from expunge.theory.ceiling import IllustrativeBound, paper_illustration, rogers_style
from expunge.theory.conversion import smallest_alpha
from expunge.theory.pure import t1_closed_form

shards = st.integers(1, 10**7)
small = st.floats(1e-12, 0.5)
costs = st.floats(1e-12, 1e3)
factors = st.floats(1, 10)

# Every theorem as alpha(num_shards, cost, beta, gamma), with cost whatever it composes in.
BOUNDS = {
    "t1": lambda k, cost, b, g: t1(num_shards=k, epsilon=cost, beta=b),
    "t1 closed": lambda k, cost, b, g: t1_closed_form(num_shards=k, epsilon=cost, beta=b),
    "t2 approximate": lambda k, cost, b, g: t2_approximate(
        num_shards=k, epsilon=cost, delta=min(1.0, cost * 1e-25), beta=b, gamma=g
    ),
    "t2 zcdp": lambda k, cost, b, g: t2_zcdp(num_shards=k, rho=cost, beta=b, gamma=g),
    "t2 gaussian": lambda k, cost, b, g: t2_gaussian(num_shards=k, mu=cost, beta=b, gamma=g),
    "t2 mixed": lambda k, cost, b, g: t2_mixed(
        num_shards=k, rho=cost, epsilon=cost, delta=min(1.0, cost * 1e-25), beta=b, gamma=g
    ),
    "t3": lambda k, cost, b, g: t3(num_shards=k, rho=cost, beta=b, gamma=g),
    "rogers": lambda k, cost, b, g: rogers_style(num_shards=k, epsilon=cost, delta=1e-60, beta=b, gamma=g),
}


def test_t1_is_never_below_the_exact_product():
    rng = np.random.default_rng(0)
    for num_shards, exponent in zip(rng.integers(1, 10**4, 2000).tolist(), rng.uniform(-6, 1, 2000), strict=True):
        epsilon = float(10**exponent)
        alpha = t1(num_shards=num_shards, epsilon=epsilon, beta=0.0).alpha
        exact = num_shards * Fraction(epsilon)
        assert exact <= Fraction(alpha) <= exact * (1 + Fraction(1, 10**11))
    assert t1(num_shards=7, epsilon=0.0, beta=0.0).alpha == 0


def test_t1_does_not_claim_pinsker_below_its_edge():
    rng = np.random.default_rng(0)
    for num_shards, exponent in zip(rng.integers(2, 10**4, 2000).tolist(), rng.uniform(-6, -2, 2000), strict=True):
        epsilon = float(10**exponent)
        beta = epsilon * math.sqrt(num_shards) / 4
        if t1(num_shards=num_shards, epsilon=epsilon, beta=beta).alpha == 0:
            assert 16 * Fraction(beta) ** 2 >= num_shards * Fraction(epsilon) ** 2
        assert t1(num_shards=num_shards, epsilon=epsilon, beta=beta * (1 + 1e-11)).alpha == 0


def test_the_other_closed_forms_are_never_below_either():
    rng = np.random.default_rng(0)
    for _ in range(300):
        num_shards, cost, gamma = int(rng.integers(1, 10**4)), float(10 ** rng.uniform(-6, 1)), float(rng.uniform(0, 1))
        with mpmath.workdps(40):
            k, exact_cost, exact_gamma = mpmath.mpf(num_shards), mpmath.mpf(cost), mpmath.mpf(gamma)
            length = description_length(log_num_transcripts=cost, gamma=gamma)
            assert length.alpha >= exact_cost - mpmath.log(exact_gamma)
            information = mutual_information(num_shards=num_shards, rho=cost, gamma=gamma)
            assert information.beta >= mpmath.sqrt(k * exact_cost / (2 * exact_gamma))
            closed = t1_closed_form(num_shards=num_shards, epsilon=cost, beta=gamma)
            root = mpmath.sqrt(-k * mpmath.log(exact_gamma) / 2)
            assert closed.alpha >= k * exact_cost**2 / 8 + exact_cost * root


@pytest.mark.parametrize("budget", [1e-3, 0.1, 3.0, 40.0, 600.0])
@pytest.mark.parametrize("curvature", [1e-30, 1e-6, 0.1, 30.0, 1e9])
def test_conversion_is_the_minimum_over_lambda_and_never_below(budget, curvature):
    found = float(smallest_alpha(budget, curvature=curvature))
    with mpmath.workdps(60):

        def bound(log_lambda):
            lam = mpmath.exp(log_lambda)
            log_c = lam * mpmath.log(lam) - (1 + lam) * mpmath.log(1 + lam)
            return (log_c + mpmath.mpf(budget)) / lam + lam * mpmath.mpf(curvature)

        low, high = mpmath.mpf(-60), mpmath.mpf(700)
        for _ in range(150):
            middle = (low + high) / 2
            slope = mpmath.mpf(curvature) * mpmath.exp(2 * middle) + mpmath.log(1 + mpmath.exp(middle)) - budget
            low, high = (low, middle) if slope > 0 else (middle, high)
        exact = max(mpmath.mpf(0), bound(high))
        assert found >= exact
        assert found - exact <= 1e-10 * (1 + exact)


def test_t1_by_hand():
    assert t1(num_shards=100, epsilon=0.01, beta=0.02500000001).alpha == 0  # β = ε√k/4, but for rounding
    assert t1(num_shards=10, epsilon=0.5, beta=0.0).alpha == pytest.approx(5, rel=1e-11)  # L ≤ kε
    closed = t1_closed_form(num_shards=100, epsilon=0.06, beta=1e-3)
    assert closed.alpha == pytest.approx(100 * 0.06**2 / 8 + 0.06 * math.sqrt(100 * math.log(1e3) / 2))
    better = t1(num_shards=100, epsilon=0.06, beta=1e-3)
    assert better.alpha < closed.alpha
    assert (better.gamma, better.beta) == (0, 1e-3)


def test_t2_matches_its_formula_at_a_feasible_point():
    """No better than a dense search over the free parameters, and within half a percent of it."""
    k, rho, beta, gamma = 100, 3e-5, 1e-3, 1e-3
    best = math.inf
    for nu in np.geomspace(1e-3, 0.3, 120):
        for share in np.linspace(0.02, 0.6, 80):
            omega = -math.expm1(-nu / k)
            c = rho + 2 * math.sqrt(rho * -math.log(omega * gamma * beta * share / k))
            lam = np.geomspace(0.5, 500, 400)
            log_c = lam * np.log(lam) - (1 + lam) * np.log1p(lam)
            k_of_lam = (1 + lam) * nu + lam * (1 + lam) * k * c * c / 8
            best = min(best, float(np.min((log_c - math.log(beta * (1 - share)) + k_of_lam) / lam)))
    assert t2_zcdp(num_shards=k, rho=rho, beta=beta, gamma=gamma).alpha == pytest.approx(best, rel=5e-3)


def test_t2_variants_agree_where_they_meet():
    common = {"num_shards": 50, "beta": 1e-3, "gamma": 1e-3}
    zcdp = t2_zcdp(rho=1e-4, **common).alpha
    assert t2_mixed(rho=1e-4, **common).alpha == pytest.approx(zcdp, rel=0.02)
    assert t2_mixed(rho=0.0, epsilon=0.02, delta=1e-14, **common).alpha == pytest.approx(
        t2_approximate(epsilon=0.02, delta=1e-14, **common).alpha, rel=0.02
    )
    # Gaussian DP with μ²/2 = ρ knows more than ρ-zCDP.
    gaussian = t2_gaussian(mu=math.sqrt(2e-4), **common).alpha
    assert 0.8 * zcdp < gaussian < zcdp


def test_t2_curve_agrees_with_the_curves_it_is_given():
    from scipy.stats import norm

    common = {"num_shards": 50, "beta": 1e-3, "gamma": 1e-3}
    mu = 0.05

    def curve(epsilon):
        return float(norm.cdf(-epsilon / mu + mu / 2) - math.exp(epsilon) * norm.cdf(-epsilon / mu - mu / 2))

    assert t2_curve(curve=curve, **common).alpha == pytest.approx(t2_gaussian(mu=mu, **common).alpha, rel=0.03)

    def step(epsilon):
        return 1e-14 if epsilon >= 0.02 else 1.0

    expected = t2_approximate(epsilon=0.02, delta=1e-14, **common).alpha
    assert expected <= t2_curve(curve=step, **common).alpha * (1 + 1e-9)
    assert t2_curve(curve=step, **common).alpha == pytest.approx(expected, rel=0.03)
    with pytest.raises(ParameterError, match="not a number"):
        t2_curve(curve=lambda epsilon: math.nan, **common)


def test_t3_is_at_least_as_good_as_its_tail_form():
    k, rho, beta, gamma = 4, 0.01, 0.01, 0.01
    tail = k * rho + 2 * k * math.sqrt(rho * math.log(1 / (beta * gamma)))
    assert 0.5 * tail < t3(num_shards=k, rho=rho, beta=beta, gamma=gamma).alpha < tail


def test_companions_by_hand():
    information = mutual_information(num_shards=100, rho=2e-9, gamma=1e-3)
    assert (information.alpha, information.beta) == (0, pytest.approx(0.01))
    length = description_length(log_num_transcripts=5 * math.log(10), gamma=0.01)
    assert (length.alpha, length.beta, length.gamma) == (pytest.approx(math.log(1e7)), 0, 0.01)
    assert description_length(log_num_transcripts=0.0, gamma=0.0).alpha == 0


def test_t2_beats_the_rogers_style_form():
    common = {"num_shards": 1000, "epsilon": 0.005, "delta": 1e-21, "beta": 1e-3, "gamma": 1e-3}
    rogers = rogers_style(**common)
    assert math.isfinite(rogers.alpha)
    assert t2_approximate(**common).alpha < rogers.alpha
    by_hand = 1e-21 / -math.expm1(-0.005)
    drift = -1000 * math.log1p(-math.sqrt(by_hand))
    curve = 1000 * 0.005**2 / 2
    tail = 1e-6 - 1000 * math.sqrt(by_hand)
    assert rogers.alpha == pytest.approx(drift + curve + 2 * math.sqrt(curve * (math.log(1 / tail) + drift)))


def test_the_illustration_is_no_guarantee():
    shown = paper_illustration(num_shards=1000, epsilon=0.1, delta=1e-12)
    assert isinstance(shown, IllustrativeBound)
    assert not isinstance(shown, Guarantee)
    assert not hasattr(shown, "covers")
    assert shown.label == "illustrative, not a bound"
    assert shown.alpha == pytest.approx(0.1**2 * 1000 + 1000 * math.sqrt(1e-11))
    for bad in ({"epsilon": 0.6, "delta": 1e-3}, {"epsilon": 0.1, "delta": 0.2}):
        with pytest.raises(ParameterError):
            paper_illustration(num_shards=10, **bad)


@pytest.mark.parametrize("name", BOUNDS)
@settings(max_examples=25, deadline=None)
@given(shards, costs, small, small, factors)
def test_monotone_in_every_argument(name, k, cost, beta, gamma, factor):
    bound = BOUNDS[name]
    alpha = bound(k, cost, beta, gamma).alpha
    assert not math.isnan(alpha)
    slack = 1 + 1e-9
    assert bound(math.ceil(k * factor), cost, beta, gamma).alpha * slack + 1e-9 >= alpha
    assert bound(k, cost * factor, beta, gamma).alpha * slack + 1e-9 >= alpha
    assert bound(k, cost, beta / factor, gamma).alpha * slack + 1e-9 >= alpha
    assert bound(k, cost, beta, gamma / factor).alpha * slack + 1e-9 >= alpha


@pytest.mark.parametrize("name", BOUNDS)
@pytest.mark.parametrize("k", [1, 10**7])
@pytest.mark.parametrize("cost", [0.0, 1e-300, 1e-15, 1e9, 1e200, math.inf])
@pytest.mark.parametrize("beta", [0.0, 1e-300, 0.5, 1.0])
def test_extremes_give_numbers_without_warnings(name, k, cost, beta):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for gamma in (0.0, 1e-300, 0.5):
            alpha = BOUNDS[name](k, cost, beta, gamma).alpha
            assert alpha >= 0
            assert not (cost > 1e8 and beta < 1 and alpha < 1e6)


@pytest.mark.parametrize(
    "call",
    [
        lambda: t1(num_shards=0, epsilon=0.1, beta=0.1),
        lambda: t1(num_shards=1, epsilon=-0.1, beta=0.1),
        lambda: t1(num_shards=1, epsilon=0.1, beta=1.1),
        lambda: t2_zcdp(num_shards=1.5, rho=0.1, beta=0.1, gamma=0.1),
        lambda: t2_zcdp(num_shards=1, rho=math.nan, beta=0.1, gamma=0.1),
        lambda: t2_approximate(num_shards=1, epsilon=0.1, delta=2.0, beta=0.1, gamma=0.1),
        lambda: t3(num_shards=1, rho=0.1, beta=0.1, gamma=-0.1),
        lambda: description_length(log_num_transcripts=-1.0, gamma=0.1),
    ],
)
def test_bad_parameters_are_named(call):
    with pytest.raises(ParameterError, match=r"^\w+ must be .*got"):
        call()


def test_speed():
    """Under 100 ms each at k = l = 10^6 (best of three, so that a busy machine does not fail it)."""
    calls = [
        lambda: t2_zcdp(num_shards=10**6, rho=10**6 * 1e-12 / 8, beta=1e-3, gamma=1e-3),
        lambda: t2_gaussian(num_shards=10**6, mu=1e-4, beta=1e-3, gamma=1e-3),
        lambda: t2_mixed(num_shards=10**6, rho=1e-9, delta=1e-25, beta=1e-3, gamma=1e-3),
    ]
    for call in calls:
        seconds = []
        for _ in range(3):
            start = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - start)
        assert min(seconds) < 0.1
