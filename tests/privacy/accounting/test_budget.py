from __future__ import annotations

import dataclasses
import math

import pytest

from expunge.core.errors import ParameterError
from expunge.privacy.accounting import PrivacyBudget


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan])
def test_epsilon_must_be_positive_and_finite(epsilon):
    with pytest.raises(ParameterError, match="epsilon of a privacy budget"):
        PrivacyBudget(epsilon, 1e-6)


@pytest.mark.parametrize("delta", [-0.1, 1.0, math.nan])
def test_delta_must_be_a_small_probability(delta):
    with pytest.raises(ParameterError, match="delta of a privacy budget"):
        PrivacyBudget(0.5, delta)


def test_a_budget_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        PrivacyBudget(0.5, 0.0).epsilon = 3.0
