from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge.privacy.accounting.accountants import MAX_COUNT, largest_count


@given(
    answer=st.integers(0, 10**12),
    power=st.sampled_from([0.3, 0.5, 1.0, 2.0]),
    jump=st.sampled_from([1.0, 5.0, math.inf]),
    guess=st.integers(0, 10**13),
)
def test_finds_the_last_count_within_the_limit(answer, power, jump, guess):
    limit = float(answer + 1) ** power

    def cost(count: int) -> float:
        value = float(count) ** power if count <= answer else jump * (float(count) + 1) ** power
        assert count >= 0
        return value if count <= answer else max(value, math.nextafter(limit, math.inf))

    assert largest_count(cost, limit, guess=guess) == answer


def test_costs_that_never_reach_the_limit_stop_at_the_largest_count():
    assert largest_count(lambda count: 0.0, 1.0) == MAX_COUNT


@pytest.mark.parametrize("answer", [7, 531, 5_313_219])
def test_a_smooth_cost_is_asked_few_times(answer):
    asked = []

    def cost(count: int) -> float:
        asked.append(count)
        return 0.01 * math.sqrt(count) + 1e-4 * count

    assert largest_count(cost, cost(answer) * (1 + 1e-12), guess=answer // 2 + 1) == answer
    assert len(asked) <= 16
