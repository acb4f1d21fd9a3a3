"""Exact sufficient statistics of rows: sums, sums of squares and sums of products.

Every float is cut into digits of 18 bits on one fixed grid, x = Σ_j q_j 2^(18 j) with |q_j| ≤ 2^17. Products of digits
are integers of at most 2^34, so that sums over thousands of rows are below 2^53 and the floating-point units compute
them without rounding, in any order (the idea of the Ozaki scheme for exact matrix products). Data of few bits, such as
pixels or counts, have one digit and cost what plain floats cost; arbitrary floats have four or five.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from expunge.fallback._exact import DIGIT_BITS, ExactArray, Integers
from expunge.fallback._rows import Rows

Floats = NDArray[np.float64]

_ELEMENTS_AT_ONCE = 1 << 17  # floats of a chunk: its digits stay in cache
_ROWS_AT_ONCE = 1 << 12  # × 2^34 a product × at most 47 products a place is below 2^53


def digits_of(table: Floats) -> dict[int, Floats]:
    """The digits of every element: place j -> q_j, integers as floats; absent where zero throughout.

    Assumes magnitudes between 2^-400 and 2^400 (or zero), so that no power of two here leaves the range of floats.
    """
    largest = float(np.abs(table).max(initial=0.0))
    digits: dict[int, Floats] = {}
    if largest == 0.0:
        return digits
    exponent = int(np.frexp(largest)[1])
    place = -((DIGIT_BITS - 1 - exponent) // DIGIT_BITS)  # the lowest j with largest ≤ 2^(18 j + 17)
    rest = table
    while rest.any():
        digit = np.rint(rest * 2.0 ** (-DIGIT_BITS * place))
        if digit.any():
            rest = rest - digit * 2.0 ** (DIGIT_BITS * place)  # exact: a multiple of the last bit, and no larger
            digits[place] = digit
        place -= 1
    return digits


def class_sums(rows: Rows, num_classes: int) -> ExactArray:
    """Σ x over the rows of each class: shape (classes, features)."""
    total = ExactArray.zeros(num_classes, rows.num_features)
    for chunk in _by_class(rows):
        digits = digits_of(chunk.table)
        total += _class_parts(digits, chunk.codes, total.shape)
    return total


def class_moments(rows: Rows, num_classes: int) -> tuple[ExactArray, ExactArray]:
    """Σ x and Σ x² over the rows of each class: shapes (classes, features)."""
    sums = squares = ExactArray.zeros(num_classes, rows.num_features)
    for chunk in _by_class(rows):
        digits = digits_of(chunk.table)
        sums += _class_parts(digits, chunk.codes, sums.shape)
        squares += _class_parts(_square(digits), chunk.codes, sums.shape)
    return sums, squares


def gram(rows: Rows) -> ExactArray:
    """Σ x xᵀ over all rows: shape (features, features)."""
    shape = (rows.num_features, rows.num_features)
    total = ExactArray.zeros(*shape)
    pending: dict[int, Integers] = {}
    # A chunk of fewer rows than columns would spend its time on the (features, features) results.
    for number, chunk in enumerate(_chunks(rows, least=2 * rows.num_features)):
        for place, part in _gram_parts(digits_of(chunk.table)).items():
            pending[place] = pending[place] + part if place in pending else part
        if number % 256 == 255:  # 256 chunks of at most 2^53 are below 2^62
            total, pending = total + ExactArray.from_parts(shape, pending), {}
    return total + ExactArray.from_parts(shape, pending)


def _chunks(rows: Rows, *, least: int = 1) -> Iterator[Rows]:
    at_once = min(_ROWS_AT_ONCE, max(least, _ELEMENTS_AT_ONCE // rows.num_features))
    for first in range(0, len(rows), at_once):
        yield rows.slice(first, first + at_once)


def _by_class(rows: Rows) -> Iterator[Rows]:
    for chunk in _chunks(rows):
        yield chunk.take(np.argsort(chunk.codes, kind="stable"))


def _class_parts(digits: dict[int, Floats], codes: NDArray[np.int32], shape: tuple[int, ...]) -> ExactArray:
    """Digits summed over the runs of equal codes."""
    starts = np.flatnonzero(np.diff(codes, prepend=-1))
    parts = {}
    for place, digit in digits.items():
        part = np.zeros(shape, dtype=np.int64)
        part[codes[starts]] = np.add.reduceat(digit, starts, axis=0).astype(np.int64)
        parts[place] = part
    return ExactArray.from_parts(shape, parts)


def _square(digits: dict[int, Floats]) -> dict[int, Floats]:
    """The places of x², from the digits of x."""
    places = sorted(digits)
    result: dict[int, Floats] = {}
    for index, first in enumerate(places):
        for second in places[index:]:
            product = digits[first] * digits[second]
            if first != second:
                product *= 2.0
            result[first + second] = result[first + second] + product if first + second in result else product
    return result


def _gram_parts(digits: dict[int, Floats]) -> dict[int, Integers]:
    """The places of Σ x xᵀ: one matrix product for each place, and its transpose for the other half of the pairs."""
    places = sorted(digits)
    pairs: dict[int, list[tuple[int, int]]] = {}
    for index, first in enumerate(places):
        for second in places[index + 1 :]:
            pairs.setdefault(first + second, []).append((first, second))
    parts: dict[int, Integers] = {}
    for place, chosen in pairs.items():
        left = np.concatenate([digits[first] for first, _ in chosen])
        right = np.concatenate([digits[second] for _, second in chosen])
        half = (left.T @ right).astype(np.int64)
        parts[place] = half + half.T
    for place in places:
        own = (digits[place].T @ digits[place]).astype(np.int64)
        parts[2 * place] = parts[2 * place] + own if 2 * place in parts else own
    return parts
