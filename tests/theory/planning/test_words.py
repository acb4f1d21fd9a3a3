import math

import pytest

from expunge.theory.planning.words import chance, count, duration, passes, percent


@pytest.mark.parametrize(
    ("value", "words"),
    [(0, "0"), (2, "2"), (1234567, "1,234,567"), (1234.5, "1,234"), (0.015, "0.015"), (3.14159, "3.14"),
     (2e-7, "2.0e-07"), (10**15, "1.0e+15"), (math.inf, "∞")],
)  # fmt: skip
def test_count(value, words):
    assert count(value) == words


def test_certainty_is_not_claimed_by_rounding():
    assert percent(1) == "100%"
    assert percent(0) == "0%"
    assert percent(0.9999999) == "99.999%"
    assert percent(0.9995) == "99.950%"
    assert percent(0.5) == "50%"
    assert percent(1e-6) == "1.0e-04%"


def test_chance_duration_and_passes():
    assert chance(0) == "nothing"
    assert chance(1e-3) == "1 in 1,000"
    assert chance(0.3) == "1 in 3.33"
    assert chance(0.0010000000000005) == "1 in 999"
    assert chance(1.001e-13) == "1 in 9.9e+12"
    assert duration(None) == "without end"
    assert duration(730) == "2 years"
    assert duration(3) == "3 days"
    assert duration(0.5) == "12 hours"
    assert duration(1 / 288) == "5 minutes"
    assert duration(1 / 86400) == "1 seconds"
    assert (passes(1), passes(0.5)) == ("1 pass", "0.5 passes")
