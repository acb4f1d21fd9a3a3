"""Clopper–Pearson limits: exact, and never too short."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from expunge.audit.inference import clopper_pearson, lower_limit, upper_limit
from expunge.core.errors import ParameterError


@pytest.mark.parametrize(("count", "trials"), [(0, 1), (0, 20), (3, 20), (20, 20), (137, 200)])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 1 - 1e-8])
def test_they_are_scipys(count, trials, confidence):
    expected = stats.binomtest(count, trials).proportion_ci(confidence, method="exact")
    found = clopper_pearson(count, trials, confidence=confidence)
    assert found == pytest.approx((expected.low, expected.high), abs=1e-12)


@pytest.mark.parametrize("trials", [1, 7, 30])
@pytest.mark.parametrize("failure", [0.3, 0.05, 1e-3])
def test_each_limit_fails_at_most_as_often_as_stated(trials, failure):
    """By enumeration of every count, for many true probabilities: no sampling."""
    low = np.array([lower_limit(count, trials, failure=failure) for count in range(trials + 1)])
    high = np.array([upper_limit(count, trials, failure=failure) for count in range(trials + 1)])
    worst = 0.0
    for p in np.linspace(0.001, 0.999, 97):
        law = stats.binom(trials, p).pmf(np.arange(trials + 1))
        assert law[low > p].sum() <= failure * (1 + 1e-9)
        assert law[high < p].sum() <= failure * (1 + 1e-9)
        worst = max(worst, law[low > p].sum())
    if trials == 30 and failure > 0.01:
        assert worst > failure / 3  # and they are not needlessly long


@pytest.mark.parametrize(("count", "trials"), [(-1, 5), (6, 5)])
def test_impossible_counts_are_refused(count, trials):
    with pytest.raises(ParameterError, match=f"got {count}"):
        clopper_pearson(count, trials)


@pytest.mark.parametrize("confidence", [0, 1, -0.1, float("nan")])
def test_impossible_confidence_is_refused(confidence):
    with pytest.raises(ParameterError, match="confidence"):
        clopper_pearson(1, 2, confidence=confidence)
