from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expunge.training.fallback import statistics
from expunge.training.fallback.protocol import Rows
from expunge.training.fallback.statistics import ExactArray, class_moments, class_sums, digits_of, gram

numbers = st.floats(-(2.0**400), 2.0**400).map(lambda x: x if abs(x) >= 2.0**-400 else 0.0) | st.floats(-1, 1).map(
    lambda x: x if abs(x) >= 2.0**-400 else 0.0
)
tables = st.integers(1, 3).flatmap(
    lambda width: st.lists(st.lists(numbers, min_size=width, max_size=width), min_size=1, max_size=6)
)


def value(array, *cell):
    return sum((Fraction(2) ** (36 * place) * int(limb[cell]) for place, limb in array.limbs.items()), Fraction(0))


def rows(table, codes=None):
    size = len(table)
    labels = np.arange(size) % 2 if codes is None else codes
    return Rows(np.array(table, dtype=np.float64), np.asarray(labels, dtype=np.int32), np.arange(size))


@given(tables)
def test_digits_are_small_integers_that_add_up(table):
    array = np.array(table)
    digits = digits_of(array)
    for digit in digits.values():
        assert (digit == np.rint(digit)).all()
        assert (np.abs(digit) <= 2**17).all()
    for cell in np.ndindex(array.shape):
        total = sum((Fraction(2) ** (18 * j) * Fraction(float(q[cell])) for j, q in digits.items()), Fraction(0))
        assert total == Fraction(float(array[cell]))


@given(tables)
@settings(max_examples=50)
def test_sums_squares_and_products_are_exact(table):
    data = rows(table)
    exact = [[Fraction(float(x)) for x in row] for row in data.table]
    sums, squares = class_moments(data, 3)
    products = gram(data)
    assert sums == class_sums(data, 3)
    for code in range(3):
        chosen = [row for row, label in zip(exact, data.codes, strict=True) if label == code]
        for column in range(data.num_features):
            assert value(sums, code, column) == sum(row[column] for row in chosen)
            assert value(squares, code, column) == sum(row[column] ** 2 for row in chosen)
    for first in range(data.num_features):
        for second in range(data.num_features):
            assert value(products, first, second) == sum(row[first] * row[second] for row in exact)


def test_chunks_and_order_make_no_difference(monkeypatch):
    generator = np.random.default_rng(1)
    data = rows(generator.normal(size=(700, 5)) * 10.0 ** generator.integers(-9, 9, size=(700, 5)))
    whole = *class_moments(data, 2), gram(data)
    shuffled = data.take(generator.permutation(700))
    monkeypatch.setattr(statistics, "_ELEMENTS_AT_ONCE", 5 * 2)  # hundreds of chunks: beyond one batch of carries
    assert (*class_moments(shuffled, 2), gram(shuffled)) == whole


def test_full_chunks_of_the_largest_digits_do_not_round():
    # All digits at their bound and as many rows and places at once as ever happen: the sums of products stay exact.
    largest = sum(2.0 ** (18 * place + 17) for place in (-2, -1)) * (1 - 2.0**-36)
    size = statistics._ROWS_AT_ONCE
    data = rows(np.full((size, 2), largest) * np.array([1.0, -1.0]), np.zeros(size))
    assert value(gram(data), 0, 1) == -size * Fraction(largest) ** 2
    assert value(class_moments(data, 1)[1], 0, 0) == size * Fraction(largest) ** 2


@pytest.mark.parametrize("kind", [np.int64, np.float32])
def test_few_bits_need_few_digits(kind):
    assert len(digits_of(np.arange(256).astype(kind).astype(np.float64).reshape(-1, 1))) == 1


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
