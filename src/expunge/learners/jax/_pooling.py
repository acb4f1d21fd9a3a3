"""Max-pooling with stride 1 as the maximum of shifted slices, with its own backward pass.

XLA's `reduce_window` and its gradient are slow on CPU; slices are elementwise and fuse. Where several entries of a
window are equal the first one, row by row, gets the whole gradient, as in `reduce_window`.
"""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp

Array = Any  # a jax.Array


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def max_pool(x: Array, window: int) -> Array:
    """(batch, rows, columns, channels) → the maxima of all window × window squares."""
    pooled, _ = pool_with_winners(x, window)
    return pooled


def pool_with_winners(x: Array, window: int) -> tuple[Array, Array]:
    """The maxima, and for each of them which entry of its window it was (a byte: row · window + column)."""
    slices = [_shifted(x, window, *shift) for shift in product(range(window), repeat=2)]
    best, winner = slices[0], jnp.zeros(slices[0].shape, jnp.uint8)
    for number, candidate in enumerate(slices[1:], start=1):
        higher = candidate > best
        best = jnp.where(higher, candidate, best)
        winner = jnp.where(higher, jnp.uint8(number), winner)
    return best, winner


def unpool(cotangent: Array, winner: Array, window: int) -> Array:
    """The gradient of the pool's input: every maximum's gradient goes to the entry it came from."""
    more = window - 1
    total = None
    for number, (row, column) in enumerate(product(range(window), repeat=2)):
        part = jnp.where(winner == number, cotangent, jnp.zeros((), cotangent.dtype))
        padding = ((0, 0), (row, more - row), (column, more - column), (0, 0))
        part = jnp.pad(part, padding)
        total = part if total is None else total + part
    assert total is not None
    return total


def _shifted(x: Array, window: int, row: int, column: int) -> Array:
    height, width = x.shape[1] - window + 1, x.shape[2] - window + 1
    return x[:, row : row + height, column : column + width, :]


def _forward(x: Array, window: int) -> tuple[Array, Array]:
    return pool_with_winners(x, window)


def _backward(window: int, winner: Array, cotangent: Array) -> tuple[Array]:
    return (unpool(cotangent, winner, window),)


max_pool.defvjp(_forward, _backward)
