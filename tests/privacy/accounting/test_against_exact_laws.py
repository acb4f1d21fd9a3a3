"""No accountant may claim less than what a concrete system really loses, computed exactly."""

from __future__ import annotations

import itertools
import math

import mpmath
import pytest

from expunge.core.errors import UnknownEventError
from expunge.privacy.accounting import (
    ACCOUNTANT_NAMES,
    ApproximateDP,
    BoundedRange,
    GaussianDP,
    PrivacyBudget,
    PureDP,
    accountant,
    compose,
)


def exact_delta(losses, epsilon):
    """sup_F P(F) − e^ε Q(F) of a finite privacy loss distribution {loss: probability under P}."""
    return float(mpmath.fsum(p * (1 - mpmath.exp(epsilon - x)) for x, p in losses.items() if x > epsilon))


def rounded_up(epsilon):
    """ε with the rounding error of a float given back, which matters to δ = 1e-9."""
    return min(epsilon, 1e6) * (1 + 1e-15)


def two_point(top, length):
    """The pair whose loss is `top` or `top − length`: randomised response when length = 2·top."""
    p = mpmath.expm1(top - length) / mpmath.expm1(-length)
    return {mpmath.mpf(top): p, mpmath.mpf(top) - length: 1 - p}


def repeated(base, count):
    """The loss distribution of `count` repetitions of a two-point pair."""
    (high, p), (low, q) = base.items()
    return {high * j + low * (count - j): mpmath.binomial(count, j) * p**j * q ** (count - j) for j in range(count + 1)}


def product(*parts):
    law: dict = {}
    for combination in itertools.product(*(part.items() for part in parts)):
        loss = mpmath.fsum(x for x, _ in combination)
        law[loss] = law.get(loss, 0) + mpmath.fprod(p for _, p in combination)
    return law


SYSTEMS = {
    "one randomised response": ({PureDP(0.5): 1}, two_point(0.5, 1.0)),
    "many randomised responses": ({PureDP(0.1): 60}, repeated(two_point(0.1, 0.2), 60)),
    "large randomised responses": ({PureDP(2.0): 5}, repeated(two_point(2.0, 4.0), 5)),
    "mixed randomised responses": (
        {PureDP(0.1): 12, PureDP(0.33): 4},
        product(repeated(two_point(0.1, 0.2), 12), repeated(two_point(0.33, 0.66), 4)),
    ),
    "one bounded range": ({BoundedRange(0.4): 1}, two_point(0.2, 0.4)),
    "lopsided bounded range": ({BoundedRange(0.4): 1}, two_point(0.35, 0.4)),
    "many bounded ranges": ({BoundedRange(0.1): 80}, repeated(two_point(0.05, 0.1), 80)),
    "bounded ranges of two shapes": (
        {BoundedRange(0.3): 16},
        product(repeated(two_point(0.2, 0.3), 8), repeated(two_point(0.1, 0.3), 8)),
    ),
    "pure and bounded range": (
        {PureDP(0.2): 5, BoundedRange(0.3): 10},
        product(repeated(two_point(0.2, 0.4), 5), repeated(two_point(0.15, 0.3), 10)),
    ),
}


@pytest.mark.parametrize("delta", [0.0, 1e-9, 1e-6, 1e-3, 0.05])
@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("name", ACCOUNTANT_NAMES)
def test_the_claimed_epsilon_holds_for_a_real_system(name, system, delta):
    events, law = SYSTEMS[system]
    epsilon = accountant(name).epsilon(events, delta)
    assert exact_delta(law, rounded_up(epsilon)) <= delta * (1 + 1e-9)


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("name", ACCOUNTANT_NAMES)
def test_the_claimed_delta_holds_for_a_real_system(name, system):
    events, law = SYSTEMS[system]
    for epsilon in (0.0, 0.05, 0.3, 0.9, 2.5):
        assert exact_delta(law, epsilon) <= accountant(name).delta(events, epsilon) * (1 + 1e-9) + 1e-18


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_privacy_curve_of_a_composition_holds(system):
    events, law = SYSTEMS[system]
    summary = compose(events)
    for epsilon in (0.0, 0.05, 0.3, 0.9, 2.5):
        assert exact_delta(law, epsilon) <= summary.delta(epsilon) * (1 + 1e-9) + 1e-18
    for delta in (1e-9, 1e-3):
        assert exact_delta(law, rounded_up(summary.epsilon(delta))) <= delta * (1 + 1e-9)


def test_a_claim_without_the_factor_two_is_caught():
    """Negative control: pretending that ε-DP were ε-bounded-range is refuted by the same exact law."""
    events, law = SYSTEMS["many randomised responses"]
    lie = {BoundedRange(event.epsilon): count for event, count in events.items()}
    assert exact_delta(law, accountant("zcdp").epsilon(lie, 1e-6)) > 1e-6
    assert exact_delta(law, accountant("pld").epsilon(lie, 1e-6)) > 1e-6


def test_pld_of_randomised_response_is_nearly_exact():
    events, law = SYSTEMS["many randomised responses"]
    epsilon = accountant("pld").epsilon(events, 1e-6)
    assert exact_delta(law, epsilon * 0.995) > 1e-6


@pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-2])
def test_gaussians_against_the_exact_curve(delta):
    """l Gaussians with multiplier m are one with m/√l (Balle and Wang 2018 give its exact curve)."""
    events = {GaussianDP(10.0): 9, GaussianDP(5.0): 4}
    mu = mpmath.sqrt(mpmath.mpf(9) / 100 + mpmath.mpf(4) / 25)

    def exact(epsilon):
        return mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - epsilon / mu)

    for name in ("zcdp", "pld", "best"):
        assert exact(accountant(name).epsilon(events, delta)) <= delta
    assert exact(accountant("pld").epsilon(events, delta) * 0.999) > delta


def test_failures_of_approximate_events_add_up():
    """(ε,δ) events realised as "reveal with probability δ, else randomised response"."""
    events = {ApproximateDP(0.2, 1e-4): 20}
    failure = -math.expm1(20 * math.log1p(-1e-4))
    law = repeated(two_point(0.2, 0.4), 20)
    for name in ACCOUNTANT_NAMES:
        if name == "paper":
            with pytest.raises(UnknownEventError):
                accountant(name).epsilon(events, 0.01)
            continue
        assert accountant(name).epsilon(events, failure * 0.999) == math.inf
        epsilon = accountant(name).epsilon(events, 0.01)
        assert failure + (1 - failure) * exact_delta(law, rounded_up(epsilon)) <= 0.01 * (1 + 1e-9)


@pytest.mark.parametrize(
    ("name", "count"), [("paper", 22), ("basic", 50), ("advanced", 87), ("zcdp", 531), ("best", 531)]
)
def test_how_many_exponential_mechanism_answers_a_budget_allows(name, count):
    assert accountant(name).remaining({}, BoundedRange(0.01), PrivacyBudget(0.5, 1e-6)) == count


def test_the_paper_form_outside_its_range_falls_back_to_a_smaller_delta():
    """ln(1/δ) < (ε/4)(e^{ε0} − 1)/ε0: the printed √(8 S ln(1/δ)) is smaller, and an exact system refutes it."""
    law = repeated(two_point(1.0, 2.0), 60)
    delta, events = 0.4, {PureDP(1.0): 60}
    printed = math.sqrt(8 * 60 * math.log(1 / delta))
    assert exact_delta(law, printed) > delta
    assert exact_delta(law, accountant("paper").epsilon(events, delta)) <= delta
