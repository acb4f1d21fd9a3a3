"""The first convolution's inputs, in two orders: by blocks for the forward pass, by strips for gradients."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from expunge.learners.jax._fused.layout import FILTER, GRID, SIDE, Shape, at
from expunge.learners.jax.layers import Array

_MARGIN = 3  # pixels before a picture
_ROWS = 38  # of a picture with its margins: 16 patches of 8 rows, 2 apart
_PLACES = 16  # patches of a row
_STRIP = SIDE * _PLACES  # values of a row of strips: 8 pixels of every patch
STRIPS = _ROWS * _STRIP  # values of a picture
SEEN = 10  # pixels of a block's four patches, 2 apart, across and down
FIELD = 128  # the same in all, and zeros
BLOCKS = GRID * FIELD  # values of a picture
MOST = 1 << 17  # pictures of a table: more would not fit into 31 bits


class Pictures(NamedTuple):
    """Flat arrays, one a channel, which keeps places within 31 bits. bfloat16 holds bytes exactly."""

    # (pictures, 64 blocks, 128 pixels) in bfloat16, as integers of the same bits: what is loaded as such and then
    # converted the compiler keeps in registers, of which there are more than shared memory.
    blocks: tuple[Array, ...]
    # (pictures, 38 rows, 16 places, 8 pixels): a patch is 8 of the rows, so patches that overlap up and down share
    # them, and stay in a multiprocessor's cache while all of a picture's are used.
    strips: tuple[Array, ...]


def patch_table(images: Array, shape: Shape) -> Pictures:
    """Of all images, made on the device: 26 kB a picture and channel."""
    number, side = len(images), shape.side
    if number >= MOST:
        raise ValueError(f"a table holds fewer than {MOST} pictures, got {number}")
    pictures = jnp.asarray(images, jnp.uint8).reshape(number, side, side, shape.channels)
    margins = _MARGIN, _ROWS - _MARGIN - side
    canvases = [jnp.pad(pictures[..., channel], ((0, 0), margins, margins)) for channel in range(shape.channels)]
    return Pictures(tuple(map(_blocks, canvases)), tuple(map(_strips, canvases)))


@jax.jit  # type: ignore[untyped-decorator]
def _blocks(canvas: Array) -> Array:
    places = 4 * np.arange(SIDE)[:, None] + np.arange(SEEN)  # what 8 blocks in a row see
    seen = canvas[:, places][..., places].transpose(0, 1, 3, 2, 4).reshape(len(canvas), GRID, SEEN * SEEN)
    filled = jnp.pad(seen, ((0, 0), (0, 0), (0, FIELD - SEEN * SEEN)))
    return filled.astype(jnp.bfloat16).view(jnp.int16).reshape(-1)


@jax.jit  # type: ignore[untyped-decorator]
def _strips(canvas: Array) -> Array:
    pixels = [canvas[:, :, column : column + 2 * _PLACES - 1 : 2] for column in range(SIDE)]
    return jnp.stack(pixels, axis=-1).astype(jnp.bfloat16).reshape(-1)


def load_blocks(plane: Any, row: Array) -> Array:
    """Of one picture and channel, (64 blocks, 128 pixels)."""
    return jax.lax.bitcast_convert_type(plane[at(GRID, FIELD, row * BLOCKS)], jnp.bfloat16)


def load_patches(plane: Any, row: Array, parity: int) -> Array:
    """Of one picture, channel and parity, (64 blocks, 64 pixels).

    Eight pixels that follow each other do so in memory too; divisions are written so that the compiler sees it.
    """
    block = jax.lax.broadcasted_iota(jnp.int32, (GRID, FILTER), 0)
    pixel = jax.lax.broadcasted_iota(jnp.int32, (GRID, FILTER), 1)
    start = row * STRIPS + 2 * (parity // 2) * _STRIP + (parity % 2) * SIDE
    down = jax.lax.div(block, SIDE) * (4 * _STRIP) + jax.lax.rem(block, SIDE) * (2 * SIDE)
    found: Array = plane[start + down + jax.lax.div(pixel, SIDE) * _STRIP + jax.lax.rem(pixel, SIDE)]
    return found
