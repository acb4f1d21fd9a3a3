"""The backward pass of a program's examples, one example at a time."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from expunge.learners.jax._fused.forward import first_code, moved, second_code
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
        won = scratch.win2[place] == second_code(number)
        total += jnp.where(won, scratch.da2[place].astype(jnp.float32), 0.0)
    return total


def first_deltas(kernel: Kernel, a1: Array, moved: list[Array], taps: list[Array]) -> Array:
    """The gradient before the first activation, at the pool's outputs: (64 blocks, 16 · 4 parities)."""
    delta = dot(moved[0], taps[0])
    for d2, tap in zip(moved[1:], taps[1:], strict=True):
        delta += dot(d2, tap)
    return delta * kernel.slope(a1.astype(jnp.float32))


def unpool_first(d1: Array, codes: Array, moves: dict[int, Array]) -> list[Array]:
    """The gradient of the first convolution's output of every parity: of every window that it won, the delta.

    `d1` and `codes` are at the pool's outputs: (64 blocks, 4 parities · 16).
    """
    deltas, winners = jnp.split(d1, 4, axis=1), jnp.split(codes, 4, axis=1)

    def won(of: int, move: int) -> Array:
        code = first_code(TABLES.index((of, move)))
        outs = [out for out, candidates in enumerate(CANDIDATES) if (of, move) in candidates]
        return sum(jnp.where(winners[out] == code, deltas[out], 0.0) for out in outs)

    found: list[Array] = [won(parity, 0) for parity in range(4)]
    for move in MOVES[1:]:
        needed = [parity for parity, by in TABLES if by == move]
        for parity, table in zip(needed, moved(moves[move], *(won(of, move) for of in needed)), strict=True):
            found[parity] += table
    return found


def first_gradients(kernel: Kernel, example: Array, row: Array, strips: Any, sent: Any) -> tuple[Any, Array]:
    """Of every channel, patches times the gradients that the pool sends to them; and the bias's, in every row."""
    sums: list[Any] = [jnp.zeros((FILTER, FIRST), jnp.float32) for _ in range(kernel.shape.channels)]
    deltas = [sent[at(GRID, FIRST, example * GRID * 64 + parity * FIRST, 64)] for parity in range(4)]
    for first in range(0, 4, kernel.tuning.ahead):
        parities = range(first, min(first + kernel.tuning.ahead, 4))
        loaded = [kernel.patches(strips, row, parity) for parity in parities]
        for parity, planes in zip(parities, loaded, strict=True):
            for channel, plane in enumerate(planes):
                sums[channel] += dot(plane.T, deltas[parity])
    return [total * (1.0 / 255.0) for total in sums], column_sums(sum(deltas))


def column_sums(table: Array) -> Array:
    """Of (64, width), in each of 64 rows: a product is cheaper than a reduction, and sums in float32 too."""
    return dot(jnp.ones((GRID, GRID), jnp.bfloat16), table)
