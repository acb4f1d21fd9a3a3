"""The backward pass of a program's examples, one example at a time."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from expunge.training.learners.jax.layers import Array
from expunge_lab.kernels.forward import first_code, second_code
from expunge_lab.kernels.kernel import Kernel
from expunge_lab.kernels.layout import (
    CANDIDATES,
    FILTER,
    FIRST,
    GRID,
    MOVES,
    PAD,
    SECOND,
    SIDE,
    TABLES,
    at,
)
from expunge_lab.kernels.pictures import load_patches
from expunge_lab.kernels.scratch import Scratch
from expunge_lab.kernels.tables import column_sums, cut_parities, dot


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


def first_gradients(kernel: Kernel, example: Array, row: Array, strips: Any, scratch: Scratch) -> tuple[Any, Array]:
    """Of every channel, patches times the gradients that the pool sends to them; and the bias's, in every row."""
    sums: list[Any] = [jnp.zeros((FILTER, FIRST), jnp.float32) for _ in range(kernel.shape.channels)]
    sent = _unpool_first(example, scratch)
    for parity in range(4):
        for channel, plane in enumerate(strips):
            sums[channel] += dot(load_patches(plane, kernel.known(row), parity).T, sent[parity])
    return [total * (1.0 / 255.0) for total in sums], column_sums(sum(sent))


def moved_deltas(example: Array, d2: Any) -> Array:
    """An example's table of d2, moved back by all moves: (64 blocks, 4 moves · 32)."""
    row = jax.lax.broadcasted_iota(jnp.int32, (GRID, 4 * SECOND), 0)
    column = jax.lax.broadcasted_iota(jnp.int32, (GRID, 4 * SECOND), 1)
    number = jax.lax.div(column, SECOND)
    move = jax.lax.rem(number, 2) + jax.lax.div(number, 2) * SIDE  # MOVES[number]
    found: Array = d2[(PAD + example * GRID + row - move) * SECOND + jax.lax.rem(column, SECOND)]
    return found


def _unpool_first(example: Array, scratch: Scratch) -> list[Array]:
    """The gradient of the first convolution's output of every parity: of every window that it won, the delta."""
    total: list[Any] = [jnp.zeros((GRID, FIRST), jnp.bfloat16)] * 4
    for move in MOVES:
        place = at(GRID, 64, (PAD + example * GRID - move) * 64)
        deltas, codes = cut_parities(scratch.d1[place]), cut_parities(scratch.win1[place])
        for out, candidates in enumerate(CANDIDATES):
            for of, by in candidates:
                if by == move:
                    won = codes[out] == first_code(TABLES.index((of, by)))
                    total[of] += jnp.where(won, deltas[out], jnp.zeros((), jnp.bfloat16))
    return total
