"""The backward pass of a program's examples, one example at a time."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from expunge.learners.jax._fused.kernel import Kernel, dot
from expunge.learners.jax._fused.layout import (
    CANDIDATES,
    FILTER,
    FIRST,
    GRID,
    MOVES,
    PAD,
    SECOND,
    TABLES,
    at,
    first_places,
)
from expunge.learners.jax._fused.scratch import Scratch
from expunge.learners.jax.layers import Array


def second_places(example: Array, move: int) -> Array:
    """Of an example's table in a2, win2, da2 and d2, moved back."""
    return at(GRID, SECOND, (PAD + example * GRID - move) * SECOND)


def unpool_second(example: Array, scratch: Scratch) -> Array:
    """The gradient of the second convolution's output: of every window that it won, the delta."""
    total = jnp.zeros((GRID, SECOND), jnp.float32)
    for number, move in enumerate(MOVES):
        place = second_places(example, move)
        won = scratch.win2[place] == number
        total += jnp.where(won, scratch.da2[place].astype(jnp.float32), 0.0)
    return total


def first_deltas(kernel: Kernel, example: Array, second: list[Array], scratch: Scratch) -> None:
    """d1, the gradient before the first activation, at the pool's outputs: (64 blocks, 4 parities · 16)."""
    moved = [scratch.d2[second_places(example, move)] for move in MOVES]
    a1 = scratch.a1[at(GRID, 64, example * GRID * 64)]
    delta = dot(moved[0], second[0].T)
    for d2, tap in zip(moved[1:], second[1:], strict=True):
        delta += dot(d2, tap.T)
    d1 = delta * kernel.slope(a1.astype(jnp.float32))
    scratch.d1[at(GRID, 64, (PAD + example * GRID) * 64)] = d1.astype(jnp.bfloat16)


def first_gradients(kernel: Kernel, example: Array, row: Array, table: Any, scratch: Scratch) -> tuple[Any, Array]:
    """Of every channel, patches times the gradients that the pool sends to them; and the bias's, in every row."""
    sums: list[Any] = [jnp.zeros((FILTER, FIRST), jnp.float32) for _ in range(kernel.shape.channels)]
    bias = jnp.zeros((GRID, FIRST), jnp.float32)
    for first in range(0, 4, kernel.tuning.ahead):
        parities = range(first, min(first + kernel.tuning.ahead, 4))
        loaded = [kernel.patches(table, row, parity, 0) for parity in parities]
        for parity, planes in zip(parities, loaded, strict=True):
            mine = _unpool_first(example, parity, scratch)
            bias += column_sums(mine)
            for channel, plane in enumerate(planes):
                sums[channel] += dot(plane.T, mine)
    return [total * (1.0 / 255.0) for total in sums], bias


def column_sums(table: Array) -> Array:
    """Of (64, width), in each of 64 rows: a product is cheaper than a reduction, and sums in float32 too."""
    return dot(jnp.ones((GRID, GRID), jnp.bfloat16), table)


def _unpool_first(example: Array, parity: int, scratch: Scratch) -> Array:
    """The gradient of the first convolution's output of one parity: of every window that it won, the delta."""
    total = jnp.zeros((GRID, FIRST), jnp.bfloat16)
    for out, candidates in enumerate(CANDIDATES):
        for of, move in candidates:
            if of == parity:
                place = first_places(example, out, move)
                won = scratch.win1[place] == TABLES.index((of, move))
                total += jnp.where(won, scratch.d1[place], jnp.zeros((), jnp.bfloat16))
    return total
