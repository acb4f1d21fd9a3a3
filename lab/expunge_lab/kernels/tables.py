"""Tables of 64 rows within a program: moved, cut and put together, without a way through memory of our own."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from expunge.training.learners.jax.layers import Array
from expunge_lab.kernels.kernel import Kernel
from expunge_lab.kernels.layout import FIRST, GRID, STEPS, at


def dot(left: Array, right: Array) -> Array:
    """A product of bfloat16 operands, summed in float32."""
    return jnp.dot(left.astype(jnp.bfloat16), right.astype(jnp.bfloat16), preferred_element_type=jnp.float32)


class Moves:
    """Moves tables up (1) or down (-1). Matrices, loaded before a loop, stay in the multiprocessor."""

    def __init__(self, kernel: Kernel, moving: Any, direction: int) -> None:
        self._kernel, self._direction = kernel, direction
        self.still, self._side = (moving[at(GRID, GRID, number * GRID * GRID)] for number in range(len(STEPS)))

    def along(self, table: Array) -> Array:
        """By a block, from thread to thread; no output within a picture sees what comes from outside of the grid."""
        return self._kernel.hand_on(table, self._direction)

    def side(self, table: Array) -> Array:
        """By a row of the grid, in float32; exact for bfloat16, since every value is one of them times one."""
        return dot(self._side, table)

    def both_aside(self, left: Array, right: Array) -> tuple[Array, Array]:
        """Two tables by a row of the grid, in one product."""
        beside = jnp.stack([left, right], axis=-1).transpose(0, 2, 1).reshape(GRID, -1)
        first, second = jnp.split(self.side(beside), 2, axis=1)
        return first, second


def interleave(parities: list[Array]) -> Array:
    """Four tables (64, 16) as one (64, 16 · 4): a word that is loaded holds all parities of a value."""
    pairs = [jnp.stack([parities[one], parities[one + 2]], axis=-1).reshape(GRID, 2 * FIRST) for one in (0, 1)]
    return jnp.stack(pairs, axis=-1).reshape(GRID, 4 * FIRST)


def cut_parities(table: Array) -> list[Array]:
    """The inverse of `interleave`."""
    halves = [half.reshape(GRID, FIRST, 2) for half in jnp.unstack(table.reshape(GRID, 2 * FIRST, 2), axis=-1)]
    pairs = [jnp.unstack(half, axis=-1) for half in halves]
    return [pairs[parity % 2][parity // 2] for parity in range(4)]


def column_sums(table: Array) -> Array:
    """Of (64, width), in each of 64 rows: a product is cheaper than a reduction, and sums in float32 too."""
    return dot(jnp.ones((GRID, GRID), jnp.bfloat16), table)
