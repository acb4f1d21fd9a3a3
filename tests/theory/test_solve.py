import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expunge.core.errors import ParameterError
from expunge.core.guarantee import Guarantee
from expunge.privacy.accounting.events import BoundedRange, GaussianDP, NonPrivate, PureDP
from expunge.theory import LARGEST_COUNT, certify, max_epsilon, max_num_shards, max_predictions

TARGET = Guarantee(1.0, 1e-3, 1e-3)


def meets(target, events, num_shards, num_generations=1):
    found = certify(
        events, num_shards=num_shards, beta=target.beta, gamma=target.gamma, num_generations=num_generations
    )
    return found.covers(target)


@settings(max_examples=15, deadline=None)
@given(
    st.floats(0.1, 8), st.floats(1e-6, 0.3), st.floats(0, 0.3), st.floats(1e-5, 0.2), st.integers(1, 10**5),
    st.integers(1, 50),
)  # fmt: skip
def test_predictions_are_exact(alpha, beta, gamma, epsilon, num_shards, generations):
    target = Guarantee(alpha, beta, gamma)
    event = BoundedRange(epsilon)
    count = max_predictions(target, event=event, num_shards=num_shards, num_generations=generations)
    assert meets(target, {event: count}, num_shards, generations)
    assert not meets(target, {event: count + 1}, num_shards, generations)


@pytest.mark.parametrize("event", [BoundedRange, PureDP])
@pytest.mark.parametrize("num_predictions", [1, 100, 10**6])
def test_epsilon_is_on_the_safe_side(event, num_predictions):
    epsilon = max_epsilon(TARGET, num_predictions=num_predictions, num_shards=1000, event=event)
    assert epsilon > 0
    assert meets(TARGET, {event(epsilon): num_predictions}, 1000)
    assert not meets(TARGET, {event(epsilon * (1 + 1e-6)): num_predictions}, 1000)


def test_shards_are_exact_and_fewer_are_fine():
    events = {BoundedRange(0.001): 20}
    most = max_num_shards(TARGET, events=events)
    assert meets(TARGET, events, most)
    assert not meets(TARGET, events, most + 1)
    assert all(meets(TARGET, events, num_shards) for num_shards in (1, most // 2))
    assert max_num_shards(TARGET, events={GaussianDP(0.01): 1}) == 0
    assert max_num_shards(TARGET, events={}) == LARGEST_COUNT


def test_edges():
    assert max_predictions(TARGET, event=NonPrivate(), num_shards=10) == 0
    # ln(3^l/γ) ≤ 9.2 for l = 2
    loose = Guarantee(9.2, 0.0, 1e-3)
    assert max_predictions(loose, event=NonPrivate(), num_shards=10, num_outcomes=3) == 2
    assert max_predictions(TARGET, event=BoundedRange(0.0), num_shards=10) == LARGEST_COUNT
    assert max_epsilon(TARGET, num_predictions=0, num_shards=10) == math.inf
    assert max_epsilon(Guarantee(0, 0, 0), num_predictions=1, num_shards=10) == 0
    with pytest.raises(ParameterError, match="target"):
        max_predictions(Guarantee(1, 1, 0), event=BoundedRange(0.1), num_shards=10)
