"""What the first convolution of a block sees, as one row of a table."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from expunge.learners.jax._fused.layout import FIRST, GRID, SECOND, SIDE
from expunge.learners.jax.layers import Array

FIELD = 128  # pixels of a row: 10 × 10 for the four patches of a block, 2 apart, and zeros
_SEEN = 10
BLOCKS = GRID * FIELD  # pixels of a picture's table


@jax.jit  # type: ignore[untyped-decorator]
def block_plane(canvas: Array) -> Array:
    """(pictures, 64 blocks, 128 pixels), flat, from pictures with their margins."""
    places = 4 * np.arange(SIDE)[:, None] + np.arange(_SEEN)  # of 8 blocks in a row, 4 apart
    seen = canvas[:, places][..., places]  # (pictures, 8, 10, 8, 10)
    flat = seen.transpose(0, 1, 3, 2, 4).reshape(len(canvas), GRID, _SEEN * _SEEN)
    return jnp.pad(flat, ((0, 0), (0, 0), (0, FIELD - _SEEN * _SEEN))).astype(jnp.bfloat16).reshape(-1).view(jnp.int16)


def spread_filters(w1: Array, channels: int) -> Array:
    """(models, channels · 64, 16) over the block's pixels: (models, channels, 128, 4 parities · 16)."""
    models = w1.shape[0]
    filters = w1.reshape(models, channels, 8, 8, FIRST)
    found = []
    for down in (0, 2):
        for across in (0, 2):
            edges = ((0, 0), (0, 0), (down, 2 - down), (across, 2 - across), (0, 0))
            found.append(jnp.pad(filters, edges).reshape(models, channels, _SEEN * _SEEN, FIRST))
    edges = ((0, 0), (0, 0), (0, FIELD - _SEEN * _SEEN), (0, 0))
    return jnp.pad(jnp.concatenate(found, axis=3), edges)


def spread_taps(w2: Array) -> Array:
    """(models, 4 taps · 16 · 4 parities, 32) in another order: (models, 2, 4 parities · 16, 2 taps · 32)."""
    models = w2.shape[0]
    cut = w2.reshape(models, 2, 2, FIRST, 4, SECOND).transpose(0, 1, 4, 3, 2, 5)
    return cut.reshape(models, 2, GRID, 2 * SECOND)


def turned_taps(w2: Array) -> Array:
    """The same, every tap turned: (models, 4 taps, 32, 16 · 4 parities)."""
    return w2.reshape(w2.shape[0], 4, GRID, SECOND).swapaxes(2, 3)
