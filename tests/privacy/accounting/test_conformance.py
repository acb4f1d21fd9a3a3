"""The contract that every accountant keeps."""

from __future__ import annotations

import math
import warnings

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from expunge.core.errors import ParameterError, UnknownEventError
from expunge.privacy.accounting import (
    ACCOUNTANT_NAMES,
    Accountant,
    ApproximateDP,
    BoundedRange,
    ConcentratedDP,
    GaussianDP,
    NonPrivate,
    PrivacyBudget,
    PureDP,
    accountant,
)

BUDGET = PrivacyBudget(0.5, 1e-6)
PURE = {PureDP(0.02), BoundedRange(0.05)}
SUPPORTED = {
    "paper": PURE,
    "basic": PURE | {ApproximateDP(0.03, 1e-9)},
    "advanced": PURE | {ApproximateDP(0.03, 1e-9)},
    "zcdp": PURE | {ApproximateDP(0.03, 1e-9), GaussianDP(20.0), ConcentratedDP(1e-4)},
    "pld": PURE | {ApproximateDP(0.03, 1e-9), GaussianDP(20.0)},
    "best": PURE | {ApproximateDP(0.03, 1e-9), GaussianDP(20.0), ConcentratedDP(1e-4)},
}
EVERY_KIND = SUPPORTED["best"]
# The composed distributions of `pld` carry rounding errors of about 1e-15 of mass; the closed forms are exact to 1e-12.
RELATIVE = {"pld": 1e-6, "best": 1e-6}


@pytest.fixture(params=ACCOUNTANT_NAMES)
def rule(request: pytest.FixtureRequest) -> Accountant:
    return accountant(request.param)


def slack(rule: Accountant) -> float:
    return 1 + RELATIVE.get(rule.name, 1e-11)


def at_scale(event, scale):
    """The same kind of event, `scale` times as large."""
    match event:
        case PureDP(epsilon):
            return PureDP(epsilon * scale)
        case BoundedRange(epsilon):
            return BoundedRange(epsilon * scale)
        case ApproximateDP(epsilon, delta):
            return ApproximateDP(epsilon * scale, delta)
        case GaussianDP(multiplier):
            return GaussianDP(multiplier / scale)
        case ConcentratedDP(rho):
            return ConcentratedDP(rho * scale**2)
    raise AssertionError(event)


def mixtures(rule: Accountant, most: int):
    kinds = sorted(SUPPORTED[rule.name], key=repr)
    scaled = st.builds(at_scale, st.sampled_from(kinds), st.sampled_from([0.01, 0.3, 1.0, 4.0]))
    return st.dictionaries(scaled, st.integers(0, most), max_size=3)


def test_nothing_published_costs_nothing(rule):
    assert rule.epsilon({}, 1e-6) == 0
    assert rule.epsilon({}, 0.0) == 0
    assert rule.epsilon({PureDP(0.1): 0}, 1e-6) == 0
    assert rule.delta({}, 0.0) == 0


def test_supported_events_are_bounded_and_others_refused(rule):
    for event in EVERY_KIND:
        if event in SUPPORTED[rule.name]:
            assert 0 < rule.epsilon({event: 3}, 1e-6) < 1
        else:
            with pytest.raises(UnknownEventError, match=rule.name):
                rule.epsilon({event: 3}, 1e-6)
            with pytest.raises(UnknownEventError, match=rule.name):
                rule.remaining({}, event, BUDGET)


def test_what_is_no_event_is_refused(rule):
    with pytest.raises(UnknownEventError):
        rule.epsilon({"exponential": 3}, 1e-6)
    with pytest.raises(UnknownEventError):
        rule.remaining({}, 0.1, BUDGET)


def test_a_release_without_privacy_is_infinitely_expensive(rule):
    events = {PureDP(0.01): 2, NonPrivate(): 1}
    assert rule.epsilon(events, 1e-6) == math.inf
    assert rule.delta(events, 3.0) == 1
    assert rule.remaining({}, NonPrivate(), BUDGET) == 0
    assert rule.remaining(events, PureDP(0.01), BUDGET) == 0


def test_free_events_are_unlimited(rule):
    assert rule.remaining({PureDP(0.01): 3}, PureDP(0.0), BUDGET) == math.inf
    assert rule.remaining({PureDP(0.01): 10**6}, PureDP(0.0), BUDGET) == 0


@pytest.mark.parametrize(
    ("events", "delta"), [({PureDP(0.1): -1}, 0.1), ({PureDP(0.1): 1.5}, 0.1), ({}, 1.0), ({}, -0.1)]
)
def test_bad_counts_and_deltas_are_refused(rule, events, delta):
    with pytest.raises(ParameterError):
        rule.epsilon(events, delta)


@pytest.mark.parametrize("epsilon", [-1.0, math.inf, math.nan])
def test_bad_epsilons_are_refused(rule, epsilon):
    with pytest.raises(ParameterError):
        rule.delta({}, epsilon)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_more_events_never_lower_epsilon_and_a_larger_delta_never_raises_it(rule, data):
    fewer = data.draw(mixtures(rule, 60))
    more = dict(fewer)
    for event, count in data.draw(mixtures(rule, 60)).items():
        more[event] = more.get(event, 0) + count
    small, large = sorted(data.draw(st.tuples(*[st.sampled_from([0.0, 1e-12, 1e-7, 1e-6, 1e-3, 0.2])] * 2)))
    assert rule.epsilon(fewer, small) <= rule.epsilon(more, small) * slack(rule)
    assert rule.epsilon(more, large) <= rule.epsilon(more, small) * slack(rule)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_delta_and_epsilon_are_inverse(rule, data):
    events = data.draw(mixtures(rule, 60))
    delta = data.draw(st.sampled_from([1e-7, 1e-5, 1e-2]))
    epsilon = rule.epsilon(events, delta)
    if epsilon < math.inf:
        assert rule.delta(events, epsilon * (1 + 1e-12)) <= delta * (1 + 1e-6)
        smaller = rule.delta(events, epsilon)
        assert rule.delta(events, epsilon + 0.1) <= smaller * (1 + 1e-6)


def test_remaining_is_exactly_the_last_count_that_fits(rule):
    spent = {PureDP(0.02): 3}
    for event in SUPPORTED[rule.name]:
        count = rule.remaining(spent, event, BUDGET)
        before = spent.get(event, 0)
        assert rule.affords({**spent, event: before + count}, BUDGET)
        assert not rule.affords({**spent, event: before + count + 1}, BUDGET)


def test_decimal_budgets_are_met_exactly():
    assert accountant("basic").remaining({}, PureDP(0.1), PrivacyBudget(0.3, 0.0)) == 3


EXTREMES = [
    ({PureDP(1e-6): 10**9}, 1e-6),
    ({BoundedRange(1e-6): 10**9}, 1e-300),
    ({BoundedRange(1e-6): 1}, 1e-6),
    ({PureDP(1e-6): 1, BoundedRange(3.0): 10**9}, 1e-6),
    ({PureDP(1e-200): 10**9}, 1e-6),
    ({PureDP(1e200): 10**9}, 1e-6),
    ({PureDP(5.0): 1}, 0.0),
    ({PureDP(0.5): 10**400}, 0.5),
    ({PureDP(1e-6): 10**12}, 1e-6),
    ({PureDP(5e-324): 1}, 0.9999999),
]


@pytest.mark.parametrize(("events", "delta"), EXTREMES)
def test_extremes_give_numbers_without_warnings(rule, events, delta):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        epsilon = rule.epsilon(events, delta)
        assert epsilon >= 0
        assert 0 <= rule.delta(events, 0.1) <= 1
    if delta == 0 and rule.name not in {"basic", "pld", "best"}:
        assert epsilon == math.inf


@pytest.mark.parametrize("multiplier", [1e-300, 1e-3, 1e3, 1e9, 1e200])
@pytest.mark.parametrize("name", ["zcdp", "pld", "best"])
def test_extreme_gaussians_give_numbers_without_warnings(name, multiplier):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one, many = (accountant(name).epsilon({GaussianDP(multiplier): count}, 1e-6) for count in (1, 10**9))
        assert 0 <= one <= many
        assert 0 <= accountant(name).delta({GaussianDP(multiplier): 10**9}, 0.1) <= 1


def test_a_tiny_event_is_not_free(rule):
    assert rule.remaining({}, PureDP(1e-200), BUDGET) < math.inf


def test_remaining_is_quick_for_large_counts():
    for name in ("paper", "basic", "advanced", "zcdp"):
        assert accountant(name).remaining({}, BoundedRange(1e-6), BUDGET) >= 500_000


@pytest.mark.parametrize("name", ["renyi", "", None, ["zcdp"]])
def test_an_unknown_name_is_refused_in_one_line(name):
    with pytest.raises(ParameterError, match="accountant must be one of paper, basic, advanced, zcdp, pld, best"):
        accountant(name)
