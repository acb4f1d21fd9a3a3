"""Exact sufficient statistics of rows: sums, sums of squares and sums of products.

Floating-point addition is not associative. So if a record is added to a float and subtracted again, the last bits
differ from those of a float that never saw the record, and in principle reveal it. An `ExactArray` holds the sum
itself, as limbs of 36 bits in balanced form. That form is unique: two arrays are equal, bit for bit, if and only if
the sums are equal. The order of additions and subtractions does not matter.

The sums over rows are computed by splitting every float into digits of 18 bits on one fixed grid, x = Σ_j q_j 2^(18 j)
with |q_j| ≤ 2^17. Products of digits are integers of at most 2^34, so sums over thousands of rows are below 2^53 and
the floating-point units compute them without rounding, in any order (the idea of the Ozaki scheme for exact matrix
products). Data of few bits, such as pixels or counts, have one digit and cost as much as plain floats; arbitrary floats
have four or five.

`CountedModel`, `decide` and `odds_margin` are what the models of such statistics share.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expunge.core.errors import InputError
from expunge.training.fallback.protocol import Codes, FallbackModel, Floats, Rows

DIGIT_BITS = 18
LIMB_BITS = 2 * DIGIT_BITS
LEAST_VARIANCE = 2.0**-1000
MAX_FACTOR = 1 << 27  # a limb multiplied by it still fits into 63 bits

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ExactArray:
    """Σ_i limbs[i] · 2^(36 i), elementwise, with every limb in [-2^35, 2^35); a limb that is all zeros is absent.

    Nothing writes to the limbs after they are made, so arrays may share them.
    """

    shape: tuple[int, ...]
    limbs: Mapping[int, Integers]

    @classmethod
    def zeros(cls, *shape: int) -> ExactArray:
        """The empty sum."""
        return cls(shape, {})

    @classmethod
    def from_parts(cls, shape: tuple[int, ...], parts: Mapping[int, Integers]) -> ExactArray:
        """Σ_s parts[s] · 2^(18 s), for parts below 2^62 in magnitude."""
        raw: dict[int, Integers] = {}
        for place, part in parts.items():
            limb = place >> 1
            if place & 1:  # half a limb higher: the upper bits belong to the next limb
                upper = part >> DIGIT_BITS
                _accumulate(raw, limb, (part - (upper << DIGIT_BITS)) << DIGIT_BITS)
                _accumulate(raw, limb + 1, upper)
            else:
                _accumulate(raw, limb, part)
        return cls(shape, _balanced(raw))

    def __add__(self, other: ExactArray) -> ExactArray:
        if not self.limbs:
            return other
        raw = dict(self.limbs)
        for place, limb in other.limbs.items():
            _accumulate(raw, place, limb)
        return ExactArray(self.shape, _balanced(raw))

    def __neg__(self) -> ExactArray:
        return ExactArray(self.shape, _balanced({place: -limb for place, limb in self.limbs.items()}))

    def __sub__(self, other: ExactArray) -> ExactArray:
        raw = dict(self.limbs)
        for place, limb in other.limbs.items():
            _accumulate(raw, place, -limb)
        return ExactArray(self.shape, _balanced(raw))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ExactArray):
            return NotImplemented
        return (
            self.shape == other.shape
            and self.limbs.keys() == other.limbs.keys()
            and all(np.array_equal(limb, other.limbs[place]) for place, limb in self.limbs.items())
        )

    __hash__ = None  # type: ignore[assignment]

    def scaled(self, factor: int | Integers) -> ExactArray:
        """The array times integers below 2^27 in magnitude, which are broadcast."""
        raw = {place: limb * factor for place, limb in self.limbs.items()}
        return ExactArray(np.broadcast_shapes(self.shape, np.shape(factor)), _balanced(raw))

    def total(self, *, axis: int) -> ExactArray:
        """The sum along an axis of fewer than 2^27 elements."""
        shape = (*self.shape[:axis], *self.shape[axis + 1 :])
        return ExactArray(shape, _balanced({place: limb.sum(axis=axis) for place, limb in self.limbs.items()}))

    def row(self, place: int) -> ExactArray:
        """One row."""
        limbs = {limb_place: limb[place] for limb_place, limb in self.limbs.items() if limb[place].any()}
        return ExactArray(self.shape[1:], limbs)

    def rearranged(self, places: Integers, *, axis: int) -> ExactArray:
        """The rows or columns at these places; zeros for -1. What is left out must be all zeros."""
        limbs = {}
        for limb_place, limb in self.limbs.items():
            found = np.take(limb, np.maximum(places, 0), axis=axis)
            found[(slice(None),) * axis + (places < 0,)] = 0
            limbs[limb_place] = found
        return ExactArray((*self.shape[:axis], len(places), *self.shape[axis + 1 :]), limbs)

    def outer_square(self) -> ExactArray:
        """v vᵀ of a vector v."""
        digits = self._digits()
        pairs: dict[int, list[tuple[int, int]]] = {}
        for first in digits:
            for second in digits:
                pairs.setdefault(first + second, []).append((first, second))
        parts = {}
        for place, chosen in pairs.items():  # at most 2^34 a product, and few of them: exact in floating point
            left = np.stack([digits[first] for first, _ in chosen])
            right = np.stack([digits[second] for _, second in chosen])
            parts[place] = (left.T @ right).astype(np.int64)
        return ExactArray.from_parts((*self.shape, *self.shape), parts)

    def to_float(self) -> NDArray[np.float64]:
        """Floats that are within about one ulp of the sums, and a function of the sums alone."""
        value = np.zeros(self.shape)
        for place in sorted(self.limbs):
            value += np.ldexp(self.limbs[place].astype(np.float64), LIMB_BITS * place)
        return value

    def lowest(self) -> int:
        """The place of the lowest limb, 0 for the empty sum."""
        return min(self.limbs, default=0)

    def to_integers(self, lowest: int) -> NDArray[Any]:
        """The sum times 2^(-36 lowest) as Python integers; `lowest` must be at most `lowest()`."""
        value = np.zeros(self.shape, dtype=object)
        for place, limb in self.limbs.items():
            value += limb.astype(object) << (LIMB_BITS * (place - lowest))
        return value

    def _digits(self) -> dict[int, NDArray[np.float64]]:
        """Each limb as two digits: digits[j] stands at 2^(18 j) and is at most 2^17 in magnitude."""
        digits = {}
        half = 1 << (DIGIT_BITS - 1)
        for place, limb in self.limbs.items():
            upper = (limb + half) >> DIGIT_BITS
            digits[2 * place] = (limb - (upper << DIGIT_BITS)).astype(np.float64)
            digits[2 * place + 1] = upper.astype(np.float64)
        return digits


def _accumulate(raw: dict[int, Integers], place: int, limb: Integers) -> None:
    raw[place] = raw[place] + limb if place in raw else limb


def _balanced(raw: dict[int, Integers]) -> dict[int, Integers]:
    """Carry from the lowest limb upwards; the result is the only balanced form of the value."""
    limbs = dict(raw)
    half = 1 << (LIMB_BITS - 1)
    done: dict[int, Integers] = {}
    while limbs:
        place = min(limbs)
        limb = limbs.pop(place)
        carry = (limb + half) >> LIMB_BITS
        if carry.any():
            limb = limb - (carry << LIMB_BITS)
            _accumulate(limbs, place + 1, carry)
        if limb.any():
            done[place] = limb
    return done


_ELEMENTS_AT_ONCE = 1 << 17  # floats of a chunk: its digits stay in cache
_ROWS_AT_ONCE = 1 << 12  # × 2^34 a product × at most 47 products a place is below 2^53


def digits_of(table: Floats) -> dict[int, Floats]:
    """The digits of every element: place j -> q_j, integers as floats; a place that is all zeros is absent.

    The magnitudes must be zero or between 2^-400 and 2^400, so that no power of two here leaves the range of floats.
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
    # With fewer rows than columns, most of the time would go into the (features, features) results.
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
    """Sum the digits over each run of equal codes."""
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


class CountedModel(FallbackModel):
    """A model with the number of records of each class and the exact sum of each feature over them."""

    counts: NDArray[np.int64]
    sums: ExactArray

    @property
    def num_classes(self) -> int:
        """The number of classes, whether or not a record has them."""
        return len(self.counts)

    @property
    def num_features(self) -> int:
        """How many columns a row has."""
        return self.sums.shape[1]

    @property
    def num_records(self) -> int:
        """|D^t|: how many records the model is fitted to."""
        return int(self.counts.sum())

    def _counts_with(self, rows: Rows) -> NDArray[np.int64]:
        return self.counts + rows.counts(self.num_classes)

    def _counts_without(self, rows: Rows) -> NDArray[np.int64]:
        left = self.counts - rows.counts(self.num_classes)
        if (left < 0).any():
            raise InputError("the rows to delete are not in the dataset")
        return left


def decide(scores: Floats) -> tuple[Codes, Floats]:
    """The class of the highest score (the lowest code among equals) and its lead over the next (+∞ without a next)."""
    codes = scores.argmax(axis=1).astype(np.int64)
    if scores.shape[1] == 1:
        return codes, np.full(len(scores), np.inf)
    best = np.partition(scores, scores.shape[1] - 2, axis=1)[:, -2:]
    return codes, best[:, 1] - best[:, 0]


def odds_margin(log_odds: Floats) -> Floats:
    """g/(1+g), which rises from 0 to 1 and saturates more slowly than a probability."""
    return 1.0 - 1.0 / (1.0 + log_odds)
