"""Sums that can be taken back: arrays of numbers held exactly, whatever was added and subtracted in whatever order.

Floating-point addition is not associative, so a float that had a record added and subtracted again differs in its last
bits from one that never saw the record, and in principle remembers it. An `ExactArray` holds the sum itself, as limbs
of 36 bits in balanced form, which is unique: two of them are equal, bit for bit, if and only if the sums are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

DIGIT_BITS = 18
LIMB_BITS = 2 * DIGIT_BITS
MAX_FACTOR = 1 << 27  # what a limb can be multiplied with and still fit into 63 bits

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ExactArray:
    """Σ_i limbs[i] · 2^(36 i), elementwise, with every limb in [-2^35, 2^35); one that is zero throughout is absent.

    The limbs are never written to after they are made, so arrays may share them.
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
            if place & 1:  # half a limb up: the upper bits belong to the next limb
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
        """Times integers below 2^27 in magnitude, which are broadcast."""
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
        """Nearly the nearest floats (within an ulp or so): a function of the sum alone."""
        value = np.zeros(self.shape)
        for place in sorted(self.limbs):
            value += np.ldexp(self.limbs[place].astype(np.float64), LIMB_BITS * place)
        return value

    def lowest(self) -> int:
        """The lowest limb in use, 0 for the empty sum."""
        return min(self.limbs, default=0)

    def to_integers(self, lowest: int) -> NDArray[Any]:
        """The sum times 2^(-36 lowest) as Python integers, for `lowest` no higher than `lowest()`."""
        value = np.zeros(self.shape, dtype=object)
        for place, limb in self.limbs.items():
            value += limb.astype(object) << (LIMB_BITS * (place - lowest))
        return value

    def _digits(self) -> dict[int, NDArray[np.float64]]:
        """The limbs cut in two: digits[j] at 2^(18 j), at most 2^17 in magnitude."""
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
    """Carries done from the lowest limb upwards; the result is the one balanced form of the value."""
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
