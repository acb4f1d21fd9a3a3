from __future__ import annotations

import math

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge.core.errors import ParameterError, UnknownEventError
from expunge.privacy.accounting import (
    ApproximateDP,
    BoundedRange,
    ConcentratedDP,
    GaussianDP,
    NonPrivate,
    PureDP,
    accountant,
    compose,
)


def test_totals_of_pure_and_bounded_range():
    summary = compose({PureDP(0.1): 3, BoundedRange(0.2): 5})
    assert summary.pure_epsilon == pytest.approx(1.3)
    assert summary.rho == pytest.approx(3 * 0.01 / 2 + 5 * 0.04 / 8)
    assert summary.failure == 0


def test_a_delta_below_all_floats_is_not_zero():
    """2000 releases of ε = 0.01 at ε = 18: δ is about 8.8e-431."""
    events = {PureDP(0.01): 2000}
    smallest = math.ulp(0.0)
    assert compose(events).log_delta(18.0) < -745
    assert compose(events).delta(18.0) == smallest
    for name in ("paper", "advanced", "zcdp", "best"):
        assert accountant(name).delta(events, 19.0) >= smallest
    for event in (GaussianDP(1e3), ConcentratedDP(1e-12), GaussianDP(1e100)):
        for epsilon in (1e3, 1e200, 1e308):
            assert compose({event: 1}).delta(epsilon) == smallest
            assert accountant("zcdp").delta({event: 1}, epsilon) == smallest


def test_a_delta_that_is_zero_is_said_to_be_zero():
    events = {PureDP(0.01): 2000}
    for epsilon in (20.0, 1e6):
        assert compose(events).delta(epsilon) == 0
        assert accountant("best").delta(events, epsilon) == 0
    assert compose({}).delta(0.0) == 0


def test_totals_of_gaussians_and_concentrated_events():
    summary = compose({GaussianDP(10.0): 4, ConcentratedDP(0.01): 2})
    assert summary.pure_epsilon == math.inf
    assert summary.rho == pytest.approx(4 / 200 + 0.02)


def test_approximate_events_put_their_deltas_into_the_failure():
    summary = compose({ApproximateDP(0.1, 1e-3): 10})
    assert summary.failure == pytest.approx(1 - 0.999**10)
    assert summary.pure_epsilon == pytest.approx(1.0)
    assert summary.delta(1.0) == pytest.approx(summary.failure)
    assert summary.epsilon(summary.failure / 2) == math.inf


def test_a_release_without_privacy_has_no_curve():
    summary = compose({NonPrivate(): 1, PureDP(0.1): 1})
    assert (summary.pure_epsilon, summary.rho, summary.failure) == (math.inf, math.inf, 1.0)
    assert summary.delta(100.0) == 1
    assert summary.epsilon(0.5) == math.inf
    assert compose({ApproximateDP(0.1, 1.0): 1}).delta(1.0) == 1


def test_log_delta_reaches_below_the_smallest_float():
    assert compose({GaussianDP(100.0): 1}).log_delta(1.0) < -2000
    assert compose({GaussianDP(100.0): 1}).delta(1.0) == math.ulp(0.0)


@pytest.mark.parametrize("rho", [1e-12, 1e-4, 0.02, 0.7, 30.0])
@pytest.mark.parametrize("delta", [1e-200, 1e-6, 1e-2])
def test_the_conversion_finds_the_best_order(rho, delta):
    """Against a fine grid of orders in high precision: never below it (validity), within 1e-6 above it."""
    log_inverse = -mpmath.log(delta)

    def at(x):
        return rho * (1 + x) - mpmath.log1p(1 / x) + (log_inverse - mpmath.log1p(x)) / x

    centre = mpmath.sqrt(log_inverse / rho)
    best = max(mpmath.mpf(0), min(at(centre * mpmath.mpf(10) ** (mpmath.mpf(j) / 200)) for j in range(-800, 201)))
    ours = accountant("zcdp").epsilon({ConcentratedDP(rho): 1}, delta)
    if ours > 0:
        assert ours == pytest.approx(float(best), rel=1e-4)
        assert compose({ConcentratedDP(rho): 1}).log_delta(ours) == pytest.approx(math.log(delta), rel=1e-6)


@given(
    rho=st.floats(1e-300, 1e6),
    factor=st.floats(1.0, 10.0),
    delta=st.floats(1e-300, 0.99),
    epsilon=st.floats(0.0, 1e4),
)
def test_the_conversion_is_monotone_and_finite(rho, factor, delta, epsilon):
    small, large = compose({ConcentratedDP(rho): 1}), compose({ConcentratedDP(rho * factor): 1})
    assert 0 <= small.epsilon(delta) <= large.epsilon(delta) * (1 + 1e-9) + 1e-300
    assert small.epsilon(delta) >= small.epsilon(min(0.999, delta * factor)) * (1 - 1e-9)
    assert small.log_delta(epsilon) <= large.log_delta(epsilon) * (1 - 1e-9) + 1e-12
    assert small.log_delta(epsilon * factor) <= small.log_delta(epsilon) * (1 - 1e-9) + 1e-12


def test_pure_curves_are_those_of_randomised_response():
    summary = compose({PureDP(3.0): 1})
    assert summary.delta(2.5) == pytest.approx((math.e**3 - math.e**2.5) / (math.e**3 + 1))
    assert summary.delta(3.0) == 0
    assert summary.epsilon(0.0) == 3.0
    assert summary.epsilon(summary.delta(2.5)) == pytest.approx(2.5)


def test_bad_input_is_refused():
    with pytest.raises(UnknownEventError, match="not a privacy event"):
        compose({3: 1})
    with pytest.raises(ParameterError, match="count"):
        compose({PureDP(1.0): True})
    with pytest.raises(ParameterError, match="epsilon"):
        compose({}).delta(-1.0)
    with pytest.raises(ParameterError, match="delta"):
        compose({}).epsilon(1.0)
