import json
import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import expunge.theory as package
from expunge.core.errors import ParameterError, UnknownEventError
from expunge.privacy.accounting.events import (
    ApproximateDP,
    BoundedRange,
    ConcentratedDP,
    GaussianDP,
    NonPrivate,
    PureDP,
)
from expunge.theory import all_bounds, certify, t1, t2_approximate, t2_zcdp
from expunge.theory.composition import PrivacyTotals, bounded_range_rho, pure_rho

LEVEL = {"beta": 1e-3, "gamma": 1e-3}


def test_all_names_exist_and_are_sorted_once():
    assert len(set(package.__all__)) == len(package.__all__)
    assert all(hasattr(package, name) for name in package.__all__)


def test_costs_add_up():
    cost = PrivacyTotals.of({BoundedRange(0.1): 3, PureDP(0.2): 2, NonPrivate(): 0})
    assert cost.epsilon == pytest.approx(0.7)
    assert cost.rho == pytest.approx(3 * 0.01 / 8 + 2 * 0.2 * math.tanh(0.1))
    assert cost.num_events == 5
    assert cost.is_private
    mixed = PrivacyTotals.of({GaussianDP(10.0): 4, ConcentratedDP(0.01): 1, ApproximateDP(0.1, 1e-9): 2})
    assert mixed.epsilon == math.inf
    assert mixed.rho == pytest.approx(4 / 200 + 0.01)
    assert (mixed.approximate_epsilon, mixed.delta) == (pytest.approx(0.2), pytest.approx(2e-9))
    assert mixed.mu is None
    assert PrivacyTotals.of({GaussianDP(10.0): 4}).mu == pytest.approx(0.2)
    assert PrivacyTotals.of({ApproximateDP(0.1, 0.0): 2}) == PrivacyTotals.of({PureDP(0.1): 2})
    assert not PrivacyTotals.of({ApproximateDP(0.1, 1.0): 1}).is_private


@pytest.mark.parametrize("epsilon", [1e-3, 0.5, 3.0, 20.0])
def test_pure_rho_is_exact_for_randomised_response(epsilon):
    """sup over orders of D_s/s of randomised response, which dominates ε-DP; half of it would be caught."""
    gaps = np.geomspace(1e-5, 1e4, 4000)  # the order minus one
    # D_s = [ln cosh((s−½)ε) − ln cosh(ε/2)]/(s−1), written so that small gaps do not cancel.
    log_ratio = gaps * epsilon + np.log1p(-np.expm1(-2 * gaps * epsilon) * -1 / (1 + math.exp(epsilon)))
    rates = log_ratio / gaps / (1 + gaps)
    assert np.max(rates) <= pure_rho(epsilon) * (1 + 1e-6)
    assert np.max(rates) > 0.99 * pure_rho(epsilon)
    assert pure_rho(epsilon) <= epsilon**2 / 2
    assert bounded_range_rho(epsilon) <= min(epsilon**2 / 8, pure_rho(epsilon))


def test_takes_the_best_theorem_and_says_which():
    few = certify({BoundedRange(0.01): 6}, num_shards=100, **LEVEL)
    assert few.theorem.startswith("T1")
    assert few.gamma == 0
    assert few.alpha == t1(num_shards=100, epsilon=0.06, beta=1e-3).alpha
    many = certify({BoundedRange(0.001): 300}, num_shards=100, **LEVEL)
    assert many.theorem.startswith("T2")
    assert many.parameters["num_generations"] == 1
    assert len(many.assumptions) >= 4
    json.dumps(many.to_dict(), allow_nan=False)
    bounds = all_bounds({BoundedRange(0.001): 300}, num_shards=100, **LEVEL)
    assert {bound.theorem.split(" ")[0] for bound in bounds} == {"T1", "T2", "T3", "mutual"}
    assert many.alpha == min(bound.alpha for bound in bounds if bound.beta <= 1e-3)


def test_mutual_information_wins_when_alpha_zero_is_in_reach():
    found = certify({ConcentratedDP(1e-16): 1}, num_shards=10, beta=1e-3, gamma=1e-3)
    assert found.alpha == 0
    loose = certify({ConcentratedDP(1e-9): 1}, num_shards=10, beta=0.1, gamma=0.1)
    assert loose.alpha == 0


def test_generations_share_gamma():
    events = {BoundedRange(0.001): 300}
    ten = certify(events, num_shards=100, num_generations=10, **LEVEL)
    tenth = t2_zcdp(num_shards=100, rho=300 * 1e-6 / 8, beta=1e-3, gamma=1e-4)
    assert ten.alpha == pytest.approx(tenth.alpha, rel=1e-9)
    assert ten.gamma <= 1e-3
    assert ten.parameters["num_generations"] == 10
    # T1 has no gamma to share.
    pure = {BoundedRange(0.01): 6}
    assert certify(pure, num_shards=100, num_generations=10**6, **LEVEL).alpha == pytest.approx(
        certify(pure, num_shards=100, **LEVEL).alpha
    )


@pytest.mark.parametrize("num_generations", [3, 7, 49, 10**6 + 3])
@pytest.mark.parametrize("gamma", [1e-3, 0.1, 1 / 3])
def test_generations_never_spend_more_than_gamma(num_generations, gamma):
    bounds = all_bounds(
        {BoundedRange(1e-4): 10}, num_shards=10, beta=0.01, gamma=gamma, num_generations=num_generations
    )
    assert all(bound.gamma <= gamma for bound in bounds)


def test_approximate_events_keep_their_delta():
    events = {ApproximateDP(1e-3, 1e-16): 5}
    found = certify(events, num_shards=20, **LEVEL)
    direct = t2_approximate(num_shards=20, epsilon=5e-3, delta=5e-16, **LEVEL)
    assert found.alpha <= direct.alpha
    with_more = certify({**events, BoundedRange(1e-3): 5}, num_shards=20, **LEVEL)
    assert found.alpha < with_more.alpha < math.inf
    without = certify({PureDP(1e-3): 5}, num_shards=20, **LEVEL)
    assert without.alpha < found.alpha


def test_nothing_published_is_perfect_and_majority_is_vacuous():
    nothing = certify({}, num_shards=10, beta=0.0, gamma=0.0)
    assert (nothing.alpha, nothing.beta, nothing.gamma) == (0, 0, 0)
    clear = certify({NonPrivate(): 1, BoundedRange(0.1): 3}, num_shards=10, **LEVEL)
    assert clear.is_vacuous
    assert "without privacy" in clear.reason
    counted = certify({NonPrivate(): 2}, num_shards=10, num_outcomes=3, **LEVEL)
    assert counted.alpha == pytest.approx(math.log(9 / 1e-3))
    assert certify({NonPrivate(): 2}, num_shards=10, num_outcomes=1, **LEVEL).alpha == 0


def test_refuses_what_it_does_not_know():
    with pytest.raises(UnknownEventError):
        certify({"event": 1}, num_shards=10, **LEVEL)
    with pytest.raises(ParameterError, match="count of PureDP"):
        certify({PureDP(0.1): -1}, num_shards=10, **LEVEL)
    with pytest.raises(ParameterError, match="num_generations"):
        certify({PureDP(0.1): 1}, num_shards=10, num_generations=0, **LEVEL)


@settings(max_examples=15, deadline=None)
@given(
    st.sampled_from([BoundedRange, PureDP, lambda e: GaussianDP(1 / e), lambda e: ApproximateDP(e, e * 1e-20)]),
    st.floats(1e-6, 1),
    st.integers(1, 10**9),
    st.integers(1, 10**7),
    st.integers(1, 1000),
    st.floats(1e-9, 0.5),
    st.floats(1e-9, 0.5),
    st.floats(1, 5),
)
def test_monotone_in_everything(make, epsilon, count, num_shards, generations, beta, gamma, factor):
    def alpha(epsilon=epsilon, count=count, num_shards=num_shards, generations=generations, beta=beta, gamma=gamma):
        return certify(
            {make(epsilon): count}, num_shards=num_shards, beta=beta, gamma=gamma, num_generations=generations
        ).alpha

    base = alpha()
    assert not math.isnan(base)
    for more in (
        alpha(epsilon=epsilon * factor),
        alpha(count=math.ceil(count * factor)),
        alpha(num_shards=math.ceil(num_shards * factor)),
        alpha(generations=math.ceil(generations * factor)),
        alpha(beta=beta / factor),
        alpha(gamma=gamma / factor),
    ):
        assert more * (1 + 1e-9) + 1e-9 >= base


def test_speed_at_a_million_shards_and_predictions():
    """Under 100 ms (best of three, so that a busy machine does not fail it)."""
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        certify({BoundedRange(1e-6): 10**6}, num_shards=10**6, **LEVEL)
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 0.1
