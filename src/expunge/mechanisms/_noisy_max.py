"""Exact comparisons of noisy counts: which is largest, and which pass a threshold.

The noise is a real number (`_noise`), so ties have probability 0. Floats decide where the brackets are apart; otherwise
more of the noises is revealed and rationals are compared.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from expunge.mechanisms._lazy import FLOAT_SLACK, PREFIX_BITS
from expunge.mechanisms._noise import Noise, NoiseShape, draw_noise
from expunge.randomness import Randomness

# Shifts are clipped to FAR and whole parts from NEAR on are left to the slow step (they have probability below
# e^-500), so a clipped shift cannot change a fast decision, and float64 is good to FLOAT_SLACK on all that remain.
FAR = 1024.0
NEAR = 512


def noisy_argmax(
    gaps: NDArray[np.int64], unit: Fraction, shape: NoiseShape, rng: Randomness, *, bits: int = PREFIX_BITS
) -> NDArray[np.int64]:
    """The class with the largest noise − gap·unit in each row, one independent noise for each class and row."""
    return find_largest(draw_noise(shape, gaps.size, rng, bits=bits), gaps, unit, rng)


def find_largest(noise: Noise, gaps: NDArray[np.int64], unit: Fraction, rng: Randomness) -> NDArray[np.int64]:
    """The class with the largest noise − gap·unit in each row; `rng` only reveals more of the noise.

    Bracket: each value is known to 2^-(bits+1) and rounding, so a lead above 2^-bits + 2·FLOAT_SLACK is certain.
    """
    rows, num_classes = gaps.shape
    values = noise.approximate().reshape(gaps.shape) - np.minimum(gaps * float(unit), FAR)
    winners: NDArray[np.int64] = np.argmax(values, axis=1)
    every = np.arange(rows)
    best = values[every, winners]
    values[every, winners] = -np.inf
    unsure = best - values.max(axis=1) <= 2.0**-noise.bits + 2 * FLOAT_SLACK
    unsure |= (noise.whole.reshape(gaps.shape) >= NEAR).any(axis=1)
    for row in np.flatnonzero(unsure):
        first = int(row) * num_classes
        shifts = {first + code: gap * unit for code, gap in enumerate(gaps[row].tolist())}
        winners[row] = _largest_exactly(noise, shifts, rng) - first
    return winners


def _largest_exactly(noise: Noise, shifts: dict[int, Fraction], rng: Randomness) -> int:
    """The position with the largest noise − shift."""
    while True:
        bounds = {position: noise.bounds(position) for position in shifts}
        best = max(shifts, key=lambda position: bounds[position][0] - shifts[position])
        lead = bounds[best][0] - shifts[best]
        rivals = [position for position in shifts if position != best and bounds[position][1] - shifts[position] > lead]
        if not rivals:
            return best
        for position in (best, *rivals):
            noise.refine(position, rng)


def passes_threshold(
    noise: Noise, counts: NDArray[np.int64], threshold: float, scale: float, rng: Randomness
) -> NDArray[np.bool_]:
    """Whether count + scale·noise ≥ threshold, for each count; `rng` only reveals more of the noise.

    Bracket: the noise is known to 2^-(bits+1) and, since counts are floats too, the clipped shift to 2^-41.
    """
    shifts = np.clip((threshold - counts) / scale, -FAR, FAR)
    margin = noise.approximate() - shifts
    passes: NDArray[np.bool_] = margin >= 0
    unsure = (np.abs(margin) <= 2.0 ** -(noise.bits + 1) + FLOAT_SLACK) | (noise.whole >= NEAR)
    for position in np.flatnonzero(unsure):
        shift = (Fraction(threshold) - int(counts[position])) / Fraction(scale)
        passes[position] = _exceeds_exactly(noise, int(position), shift, rng)
    return passes


def _exceeds_exactly(noise: Noise, position: int, shift: Fraction, rng: Randomness) -> bool:
    while True:
        low, high = noise.bounds(position)
        if low >= shift:
            return True
        if high <= shift:
            return False
        noise.refine(position, rng)
