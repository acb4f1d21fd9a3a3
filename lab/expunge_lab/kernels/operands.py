"""Weights in the orders in which the kernels multiply with them, and matrices that move rows."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from expunge.training.learners.jax.layers import Array
from expunge_lab.kernels.layout import FIRST, GRID, SECOND, STEPS, Weights
from expunge_lab.kernels.pictures import SEEN, field_parts


def forward_operands(weights: Weights, channels: int) -> Weights:
    """Matrices in bfloat16, biases in float32; both convolutions' filters in the forward pass's order."""
    half = [leaf.astype(jnp.bfloat16) if number % 2 == 0 else leaf for number, leaf in enumerate(weights)]
    found = Weights(*half)
    return found._replace(w1=_over_blocks(found.w1, channels), w2=_pairs_of_taps(found.w2))


def turned_taps(w2: Array) -> Array:
    """Of the second convolution, every tap turned, in bfloat16: (models, 4 taps, 32, 16 · 4 parities)."""
    return w2.astype(jnp.bfloat16).reshape(w2.shape[0], 4, GRID, SECOND).swapaxes(2, 3)


def moving_matrices(direction: int) -> Array:
    """For every one of STEPS, flat: a matrix that moves the rows of a table up (1) or down (-1); zeros follow.

    They are an input of the kernels, since the compiler keeps in registers what a program makes itself.
    """
    rows = np.arange(GRID)
    matrices = [rows[None, :] == rows[:, None] + direction * step for step in STEPS]
    return jnp.asarray(np.stack(matrices), jnp.bfloat16).reshape(-1)


def _over_blocks(w1: Array, channels: int) -> Array:
    """The first convolution's filters over all that a block sees: (models, pixels, 4 parities · 16)."""
    models = w1.shape[0]
    filters = w1.reshape(models, channels, 8, 8, FIRST)
    found = []
    for down in (0, 2):
        for across in (0, 2):
            place = ((0, 0), (0, 0), (down, 2 - down), (across, 2 - across), (0, 0))
            found.append(jnp.pad(filters, place).reshape(models, channels * SEEN * SEEN, FIRST))
    more = sum(field_parts(channels)) - channels * SEEN * SEEN
    return jnp.pad(jnp.concatenate(found, axis=2), ((0, 0), (0, more), (0, 0)))


def _pairs_of_taps(w2: Array) -> Array:
    """Of the second convolution, two taps side by side: (models, 2, 4 parities · 16, 2 taps · 32)."""
    models = w2.shape[0]
    cut = w2.reshape(models, 2, 2, FIRST, 4, SECOND).transpose(0, 1, 4, 3, 2, 5)
    return cut.reshape(models, 2, GRID, 2 * SECOND)
