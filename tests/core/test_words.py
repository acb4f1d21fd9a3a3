from __future__ import annotations

import math
from datetime import timedelta
from decimal import Decimal, localcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge.core.errors import ParameterError
from expunge.core.guarantee import Guarantee
from expunge.core.words import bound, ceiling, chance, day_and_time, factor, percent, period, plural, read_period


def _value(text: str) -> Decimal:
    return Decimal(text.replace(",", ""))


@given(st.floats(1e-300, 1e300))
def test_a_bound_is_never_shown_smaller_than_it_is(value):
    shown_value = _value(ceiling(value))
    assert Decimal(repr(value)) <= shown_value <= Decimal(repr(value)) * Decimal("1.01")


@given(st.floats(1e-300, 0.6))
def test_a_chance_is_never_shown_smaller_than_it_is(probability):
    many = _value(chance(probability).removeprefix("1 in "))
    written = Decimal(repr(probability))
    assert many * written <= 1
    assert many * written >= Decimal("0.98")


@pytest.mark.parametrize("digits", [10, 125, 333, 999])
@pytest.mark.parametrize("power", range(-9, -3))
def test_a_hair_above_a_round_number_is_shown_above_it(digits, power):
    round_number = Decimal(digits).scaleb(power)
    above = math.nextafter(float(round_number), 1)
    assert _value(percent(above).removesuffix("%")) > 100 * round_number
    assert _value(chance(above).removeprefix("1 in ")) * round_number < 1


@given(st.floats(1e-30, 13))
def test_a_factor_is_never_shown_smaller_than_it_is(alpha):
    with localcontext(prec=60):
        exact = Decimal(repr(alpha)).exp()
    assert exact < _value(factor(Guarantee(alpha, 0, 0))) <= exact * Decimal("1.0101")


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (factor(Guarantee(1, 0, 0)), "2.72"),
        (factor(Guarantee(5, 0, 0)), "149"),
        (factor(Guarantee(0, 0, 0)), "1"),
        (percent(1e-3), "0.1%"),
        (percent(0.0), "0%"),
        (percent(1e-12), "1.00e-10%"),
        (chance(1e-3), "1 in 1,000"),
        (chance(0.0010000000000005), "1 in 999"),
        (chance(0.003), "1 in 333"),
        (chance(0), "never"),
        (chance(0.9), "always"),
        (ceiling(123456.0), "124,000"),
        (plural(1, "record"), "1 record"),
        (plural(2000, "record"), "2,000 records"),
        (period(1), "1 second"),
        (period(90), "90 seconds"),
        (period(7200), "2 hours"),
        (period(86400), "1 day"),
        (day_and_time("2026-11-06T02:00:09Z"), "6 November 2026, 02:00:09 UTC"),
    ],
)
def test_words(made, expected):
    assert made == expected


@given(st.floats(0, 13), st.floats(0, 0.9), st.floats(0, 1))
def test_the_bound_is_that_of_the_definition(alpha, beta, probability):
    """As numbers are written, and never less."""
    found = bound(Guarantee(alpha, beta, 0), probability)
    with localcontext(prec=60):
        exact = min(Decimal(1), Decimal(repr(alpha)).exp() * Decimal(repr(probability)) + Decimal(repr(beta)))
        assert exact <= found <= min(1, exact * (1 + Decimal("1e-45")))
    assert float(found) == pytest.approx(min(1.0, math.exp(alpha) * probability + beta), rel=1e-12)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("90d", 7_776_000),
        ("1.5h", 5400),
        (" 30 m", 1800),
        ("3600s", 3600),
        (7, 7),
        (0.5, 0.5),
        (timedelta(days=2), 172_800),
    ],
)
def test_a_length_of_time_is_read(value, seconds):
    assert read_period("--if-older-than", value) == seconds


@pytest.mark.parametrize(
    "value", ["", "d", "90", "-1d", "0s", "1e3s", "٩d", 0, -1, True, None, math.nan, math.inf, timedelta(0)]
)
def test_what_is_no_length_of_time_is_refused(value):
    with pytest.raises(ParameterError, match="--if-older-than must be a time such as 90d, 12h, 30m or 3600s, got"):
        read_period("--if-older-than", value)
