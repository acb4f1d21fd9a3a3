"""`zcdp` and `pld` beside the accountants of dp-accounting, on mixed sequences."""

from __future__ import annotations

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.pld import common, privacy_loss_distribution
from dp_accounting.pld import pld_privacy_accountant as library_pld
from dp_accounting.rdp import RdpAccountant

from expunge.privacy.accounting import ApproximateDP, BoundedRange, ConcentratedDP, GaussianDP, PureDP, accountant

FINE_ORDERS = 1 + np.geomspace(0.02, 5e4, 4000)

CONCENTRATED = [
    {BoundedRange(0.01): 531},
    {BoundedRange(0.01): 200, PureDP(0.02): 30, GaussianDP(15.0): 7},
    {GaussianDP(1.1): 3, ConcentratedDP(0.02): 5},
    {PureDP(1.0): 10, BoundedRange(2.0): 4},
    {BoundedRange(1e-4): 10**6, GaussianDP(300.0): 1000},
]


def rho(event):
    match event:
        case BoundedRange(epsilon):
            return epsilon**2 / 8
        case PureDP(epsilon):
            return epsilon**2 / 2
        case ConcentratedDP(value):
            return value
    raise AssertionError(event)


def library_rdp(events, delta, **options):
    account = RdpAccountant(**options)
    for event, count in events.items():
        if isinstance(event, GaussianDP):
            account.compose(dp_event.GaussianDpEvent(event.noise_multiplier), count)
        else:
            account.compose(dp_event.ZCDpEvent(rho(event)), count)
    return account.get_epsilon(delta)


@pytest.mark.parametrize("delta", [1e-10, 1e-6, 1e-3])
@pytest.mark.parametrize("events", CONCENTRATED)
def test_zcdp_is_the_librarys_renyi_accountant(events, delta):
    ours = accountant("zcdp").epsilon(events, delta)
    assert ours <= library_rdp(events, delta) * (1 + 1e-12)  # a real order is never worse than a listed one
    assert ours == pytest.approx(library_rdp(events, delta, orders=FINE_ORDERS), rel=1e-4)


@pytest.mark.parametrize("events", CONCENTRATED[:4])
def test_zcdp_is_within_one_percent_of_the_librarys_default_orders(events):
    assert accountant("zcdp").epsilon(events, 1e-6) == pytest.approx(library_rdp(events, 1e-6), rel=0.01)


def library_pessimistic(events, delta, interval=1e-4):
    """The library's own composition; pure events enter as (ε,δ) parameters, which it rounds up."""
    result = privacy_loss_distribution.identity(value_discretization_interval=interval)
    for event, count in events.items():
        match event:
            case GaussianDP(multiplier):
                part = privacy_loss_distribution.from_gaussian_mechanism(
                    multiplier, value_discretization_interval=interval
                )
            case PureDP(epsilon):
                part = privacy_loss_distribution.from_privacy_parameters(
                    common.DifferentialPrivacyParameters(epsilon, 0.0), value_discretization_interval=interval
                )
            case ApproximateDP(epsilon, failure):
                part = privacy_loss_distribution.from_privacy_parameters(
                    common.DifferentialPrivacyParameters(epsilon, failure), value_discretization_interval=interval
                )
        result = result.compose(part.self_compose(count))
    return result.get_epsilon_for_delta(delta)


# The ε are multiples of the library's interval, where its rounding is exact.
MIXED = [
    {PureDP(0.01): 156},
    {PureDP(0.5): 7, GaussianDP(3.0): 5},
    {PureDP(0.02): 40, PureDP(0.1): 3, GaussianDP(12.0): 4},
    {ApproximateDP(0.05, 1e-8): 20, GaussianDP(8.0): 2},
    {GaussianDP(2.0): 1},
]


@pytest.mark.parametrize("delta", [1e-8, 1e-6, 1e-3])
@pytest.mark.parametrize("events", MIXED)
def test_pld_is_within_one_percent_of_the_librarys_own(events, delta):
    ours = accountant("pld").epsilon(events, delta)
    assert ours == pytest.approx(library_pessimistic(events, delta), rel=0.01)


def test_pld_of_gaussians_is_the_librarys_accountant():
    account = library_pld.PLDAccountant()
    account.compose(dp_event.GaussianDpEvent(4.0), 11)
    assert accountant("pld").epsilon({GaussianDP(4.0): 11}, 1e-6) == pytest.approx(account.get_epsilon(1e-6), rel=1e-3)


def optimistic_gaussian(multiplier, interval=1e-4):
    return privacy_loss_distribution.from_gaussian_mechanism(
        multiplier, pessimistic_estimate=False, value_discretization_interval=interval, use_connect_dots=False
    )


@pytest.mark.parametrize("name", ["zcdp", "pld", "best"])
def test_never_below_the_optimistic_estimate(name):
    """Gaussians and a randomised response through the library's optimistic rounding: a valid lower bound."""
    response = privacy_loss_distribution.from_two_probability_mass_functions(
        {0: np.log(1 / (1 + np.exp(0.3))), 1: np.log(1 / (1 + np.exp(-0.3)))},
        {1: np.log(1 / (1 + np.exp(0.3))), 0: np.log(1 / (1 + np.exp(-0.3)))},
        pessimistic_estimate=False,
        value_discretization_interval=1e-4,
    )
    law = response.self_compose(6, 0).compose(optimistic_gaussian(3.0), 0)
    for delta in (1e-6, 1e-3):
        bound = law.get_epsilon_for_delta(delta)
        assert bound > 0.5
        assert accountant(name).epsilon({PureDP(0.3): 6, GaussianDP(3.0): 1}, delta) >= bound


def test_bounded_range_costs_pld_between_pure_and_concentrated():
    """The dominating pair has variance ε²/3: cheaper than ε-DP (ε²); the count is far above the pure one."""
    ranged = accountant("pld").epsilon({BoundedRange(0.01): 400}, 1e-6)
    pure = accountant("pld").epsilon({PureDP(0.01): 400}, 1e-6)
    assert ranged == pytest.approx(pure / np.sqrt(3), rel=0.05)


def test_many_tiny_events_stay_accurate():
    """A million events of 1e-4 are a Gaussian with μ = 0.1 up to terms of relative order 1e-3."""
    ours = accountant("pld").epsilon({PureDP(1e-4): 10**6}, 1e-6)
    gaussian = accountant("pld").epsilon({GaussianDP(10.0): 1}, 1e-6)
    assert ours == pytest.approx(gaussian, rel=0.01)
    assert ours >= gaussian * 0.999
