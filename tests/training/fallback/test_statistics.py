from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expunge.training.fallback import statistics as _statistics
from expunge.training.fallback.protocol import Rows
from expunge.training.fallback.statistics import class_moments, class_sums, digits_of, gram

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
    monkeypatch.setattr(_statistics, "_ELEMENTS_AT_ONCE", 5 * 2)  # hundreds of chunks: beyond one batch of carries
    assert (*class_moments(shuffled, 2), gram(shuffled)) == whole


def test_full_chunks_of_the_largest_digits_do_not_round():
    # All digits at their bound and as many rows and places at once as ever happen: the sums of products stay exact.
    largest = sum(2.0 ** (18 * place + 17) for place in (-2, -1)) * (1 - 2.0**-36)
    size = _statistics._ROWS_AT_ONCE
    data = rows(np.full((size, 2), largest) * np.array([1.0, -1.0]), np.zeros(size))
    assert value(gram(data), 0, 1) == -size * Fraction(largest) ** 2
    assert value(class_moments(data, 1)[1], 0, 0) == size * Fraction(largest) ** 2


@pytest.mark.parametrize("kind", [np.int64, np.float32])
def test_few_bits_need_few_digits(kind):
    assert len(digits_of(np.arange(256).astype(kind).astype(np.float64).reshape(-1, 1))) == 1
