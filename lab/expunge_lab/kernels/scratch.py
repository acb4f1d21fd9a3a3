"""What the programs leave in memory, for themselves and for the next kernel."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import jax.numpy as jnp

from expunge.training.learners.jax.layers import Array
from expunge_lab.kernels.layout import GRID, GROUP, HIDDEN, OUT, PAD, SECOND, Shape
from expunge_lab.kernels.pictures import STRIPS, field_size


class Own:
    """A program's part of a flat array."""

    def __init__(self, ref: Any, start: Array) -> None:
        self._ref, self._start = ref, start

    def __getitem__(self, place: Array) -> Array:
        return self._ref[self._start + place]

    def __setitem__(self, place: Array, values: Array) -> None:
        self._ref[self._start + place] = values


class Scratch(NamedTuple):
    """Arrays of a program, of all its examples unless it says otherwise; None where a kernel does without."""

    a1: Any = None  # bfloat16, GROUP tables of (64, 16 · 4 parities)
    win1: Any = None  # int8, PAD rows, then GROUP tables of (64, 16 · 4): which of TABLES won
    a2: Any = None  # bfloat16, PAD rows, then GROUP tables of (64, 32)
    win2: Any = None  # int8, PAD rows of OUTSIDE, then GROUP tables of (64, 32): which of MOVES won
    da2: Any = None  # bfloat16, PAD rows, then GROUP tables of (64, 32): the gradient before the second activation
    d2: Any = None  # bfloat16, PAD rows of zeros, then GROUP tables of (64, 32)
    d1: Any = None  # bfloat16, PAD rows of zeros, then GROUP tables of (64, 16 · 4)


SCRATCH_SIZES = Scratch(
    a1=GROUP * GRID * 64,
    win1=(PAD + GROUP * GRID) * 64,
    a2=(PAD + GROUP * GRID) * SECOND,
    win2=(PAD + GROUP * GRID) * SECOND,
    da2=(PAD + GROUP * GRID) * SECOND,
    d2=(PAD + GROUP * GRID) * SECOND,
    d1=(PAD + GROUP * GRID) * 64,
)
SCRATCH_TYPES = Scratch(jnp.bfloat16, jnp.int8, jnp.bfloat16, jnp.int8, jnp.bfloat16, jnp.bfloat16, jnp.bfloat16)


class Dense(NamedTuple):
    """What the hidden and the output layer leave for the sums, (GROUP, …) a program."""

    h3: Any
    delta3: Any
    delta4: Any
    norms: Any  # squared norms of their gradients


DENSE_WIDTHS = Dense(HIDDEN, HIDDEN, OUT, 1)

_LOADED = ("a1", "win2", "da2", "a1", "win1", "d2", "d1", "a1", "d2", "a2")  # by the kernels after the forward pass


def example_bytes(shape: Shape) -> int:
    """What an example moves through a device's memory: everything that a kernel needs once, caches aside."""
    places = Scratch(
        *(size * jnp.dtype(kind).itemsize for size, kind in zip(SCRATCH_SIZES, SCRATCH_TYPES, strict=True))
    )
    kept = sum(places) + sum(getattr(places, name) for name in _LOADED)
    sums = 2 * 4 * sum(prod(size) for size in shape.sizes())  # written by a group, read to be added up
    pictures = 2 * (field_size(shape.channels) + STRIPS * shape.channels)
    return int(pictures + (kept + sums) // GROUP)
