from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expunge.training.fallback.statistics import ExactArray

parts = st.dictionaries(st.integers(-20, 20), st.lists(st.integers(-(2**61), 2**61), min_size=3, max_size=3))


def make(table):
    return ExactArray.from_parts((3,), {place: np.array(values) for place, values in table.items()})


def exact(array):
    values = [Fraction(0)] * int(np.prod(array.shape))
    for place, limb in array.limbs.items():
        values = [value + Fraction(2) ** (36 * place) * int(x) for value, x in zip(values, limb.ravel(), strict=True)]
    return values


def of_parts(table):
    return [sum((Fraction(2) ** (18 * s) * values[i] for s, values in table.items()), Fraction(0)) for i in range(3)]


@given(parts)
def test_value_is_kept(table):
    assert exact(make(table)) == of_parts(table)


@given(parts)
def test_limbs_are_balanced_and_none_is_empty(table):
    for limb in make(table).limbs.values():
        assert (limb >= -(2**35)).all()
        assert (limb < 2**35).all()
        assert limb.any()


@given(parts, parts)
def test_sum_and_difference(first, second):
    one, other = make(first), make(second)
    assert exact(one + other) == [a + b for a, b in zip(exact(one), exact(other), strict=True)]
    assert exact(one - other) == [a - b for a, b in zip(exact(one), exact(other), strict=True)]


@given(parts, parts)
def test_what_is_added_and_taken_away_leaves_the_very_same_limbs(first, second):
    one, other = make(first), make(second)
    assert (one + other) - other == one
    assert (one - one).limbs == {}


def test_equal_means_equal_values():
    one = make({0: [1, 0, 0]})
    assert one != make({0: [1, 0, 1]})
    assert one != make({1: [1, 0, 0]})
    assert one != "one"
    assert make({0: [2**18, 0, 0]}) == make({1: [1, 0, 0]})


@given(parts, st.integers(-(2**27) + 1, 2**27 - 1))
def test_scaled(table, factor):
    assert exact(make(table).scaled(factor)) == [value * factor for value in of_parts(table)]


@given(parts)
@settings(max_examples=30)
def test_outer_square(table):
    values = of_parts(table)
    assert exact(make(table).outer_square()) == [a * b for a in values for b in values]


@given(parts)
def test_floats_are_within_two_ulps(table):
    array = make(table)
    for found, value in zip(array.to_float(), of_parts(table), strict=True):
        assert abs(Fraction(float(found)) - value) <= 2 * Fraction(2) ** -52 * abs(value)


@given(parts)
def test_integers(table):
    array = make(table)
    lowest = array.lowest()
    assert [Fraction(int(v)) * Fraction(2) ** (36 * lowest) for v in array.to_integers(lowest)] == of_parts(table)


@pytest.mark.parametrize("axis", [0, 1])
def test_total_and_row(axis):
    values = np.arange(12).reshape(3, 4) * 2**40 - 2**41
    array = ExactArray.from_parts((3, 4), {-3: values, 0: values})
    expected = ExactArray.from_parts((12 // (3, 4)[axis],), {-3: values.sum(axis=axis), 0: values.sum(axis=axis)})
    assert array.total(axis=axis) == expected
    assert array.row(1) == ExactArray.from_parts((4,), {-3: values[1], 0: values[1]})
    assert array.total(axis=axis).shape == expected.shape
