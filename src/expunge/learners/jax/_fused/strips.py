"""The first convolution's inputs, in an order that the kernels load in long words."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from expunge.learners.jax._fused.blocks import block_plane
from expunge.learners.jax._fused.layout import FILTER, GRID, SIDE, Shape
from expunge.learners.jax.layers import Array

_ROWS = 38  # of a picture with its margin: 16 patches of 8 rows, 2 apart
_PLACES = 16  # patches of a row
_STRIP = SIDE * _PLACES  # values of a row: 8 pixels of every patch
PICTURE = _ROWS * _STRIP
MOST = 1 << 17  # pictures of a table, the zero at its end included: more would not fit into 31 bits


class Pictures(NamedTuple):
    """A flat array a channel each."""

    blocks: tuple[Array, ...]  # (images, 64 blocks, 128 pixels)
    strips: tuple[Array, ...]  # (images, 38 rows, 16 places, 8 pixels)


def patch_table(images: Array, shape: Shape) -> Pictures:
    """Every row of every 8 × 8 patch: a flat array a channel, of (images + 1, 38 rows, 16 places, 8 pixels).

    A patch is 8 rows of this, so patches that overlap up and down share them: 9.7 kB an image and channel, which stays
    in a multiprocessor's cache while all its patches are used. Made on the device from bytes, which bfloat16 holds
    exactly. One array a channel keeps places within 31 bits. The last image is zero, for tables moved over the end.
    """
    number, side = len(images), shape.side
    if number >= MOST:
        raise ValueError(f"a table holds fewer than {MOST} pictures, got {number}")
    pictures = jnp.asarray(images, jnp.uint8).reshape(number, side, side, shape.channels)
    after = _ROWS - 3 - side
    edges = ((0, 0), (3, after), (3, after))
    canvases = [jnp.pad(pictures[..., channel], edges) for channel in range(shape.channels)]
    return Pictures(tuple(map(block_plane, canvases)), tuple(map(_plane, canvases)))


@jax.jit  # type: ignore[untyped-decorator]
def _plane(canvas: Array) -> Array:
    """The strips of one channel."""
    pixels = [canvas[:, :, column : column + 2 * _PLACES - 1 : 2] for column in range(SIDE)]
    return jnp.stack(pixels, axis=-1).astype(jnp.bfloat16).reshape(-1)


def table_places(row: Array, parity: int) -> Array:
    """Where the patches of one parity are: (64 blocks, 64 pixels).

    Eight pixels that follow each other do so in memory too; divisions are written so that the compiler sees it.
    """
    block = jax.lax.broadcasted_iota(jnp.int32, (GRID, FILTER), 0)
    pixel = jax.lax.broadcasted_iota(jnp.int32, (GRID, FILTER), 1)
    start = row * PICTURE + 2 * (parity // 2) * _STRIP + (parity % 2) * SIDE
    down = jax.lax.div(block, SIDE) * (4 * _STRIP) + jax.lax.rem(block, SIDE) * (2 * SIDE)
    return start + down + jax.lax.div(pixel, SIDE) * _STRIP + jax.lax.rem(pixel, SIDE)
