"""The first convolution's inputs, in two orders: what blocks see for the forward pass, strips for gradients."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from expunge.training.learners.jax.layers import Array
from expunge_lab.kernels.layout import FILTER, GRID, SIDE, Shape, at

_MARGIN = 3  # pixels before a picture
_ROWS = 38  # of a picture with its margins: 16 patches of 8 rows, 2 apart
_PLACES = 16  # patches of a row
_STRIP = SIDE * _PLACES  # values of a row of strips: 8 pixels of every patch
STRIPS = _ROWS * _STRIP  # values of a picture
SEEN = 10  # pixels of a block's four patches, 2 apart, across and down
STEP = 16  # pixels that a product takes in at a time
_WIDEST = 128  # pixels of a product: more of them would have to wait in registers


class Pictures(NamedTuple):
    """Flat arrays. bfloat16 holds bytes exactly."""

    # What every block sees, in all channels: (pictures, steps, 32, 32) in bfloat16, as integers of the same bits. In a
    # step, eight values that follow each other are what one thread holds of a product's left operand: once loaded they
    # are where they are needed. (`_by_threads` and `load_fields` know the order.)
    fields: Array
    # (pictures, 38 rows, 16 places, 8 pixels): a patch is 8 of the rows, so patches that overlap up and down share
    # them, and stay in a multiprocessor's cache while all of a picture's are used.
    # One array a channel, which keeps places within 31 bits.
    strips: tuple[Array, ...]


def field_parts(channels: int) -> list[int]:
    """The pixels that a block sees, in parts of powers of two, each a product; a few are added to spare products."""
    whole, rest = divmod(channels * SEEN * SEEN, _WIDEST)
    steps = -(-rest // STEP)
    while steps.bit_count() > 2:
        steps += steps & -steps
    return [_WIDEST] * whole + [STEP << bit for bit in reversed(range(steps.bit_length())) if steps >> bit & 1]


def field_size(channels: int) -> int:
    """Values of a picture in `Pictures.fields`."""
    return GRID * sum(field_parts(channels))


def most_pictures(channels: int) -> int:
    """Of a table, a power of two: places are 31 bits wide."""
    return 1 << ((2**31 - 1) // max(field_size(channels), STRIPS)).bit_length() - 1


def patch_table(images: Array, shape: Shape) -> Pictures:
    """Of all images, made on the device: some 25 kB a picture and channel."""
    number, side = len(images), shape.side
    if number >= (most := most_pictures(shape.channels)):
        raise ValueError(f"a table holds fewer than {most} pictures, got {number}")
    pictures = jnp.asarray(images, jnp.uint8).reshape(number, side, side, shape.channels)
    margins = _MARGIN, _ROWS - _MARGIN - side
    canvases = [jnp.pad(pictures[..., channel], ((0, 0), margins, margins)) for channel in range(shape.channels)]
    return Pictures(_fields(canvases), tuple(map(_strips, canvases)))


@jax.jit  # type: ignore[untyped-decorator]
def _fields(canvases: list[Array]) -> Array:
    places = 4 * np.arange(SIDE)[:, None] + np.arange(SEEN)  # what 8 blocks in a row see
    number, width = len(canvases[0]), sum(field_parts(len(canvases)))
    seen = [
        canvas[:, places][..., places].transpose(0, 1, 3, 2, 4).reshape(number, GRID, SEEN * SEEN)
        for canvas in canvases
    ]
    fields = jnp.concatenate(seen, axis=2)
    filled = jnp.pad(fields, ((0, 0), (0, 0), (0, width - fields.shape[2])))
    return _by_threads(filled.astype(jnp.bfloat16).view(jnp.int16)).reshape(-1)


def _by_threads(fields: Array) -> Array:
    """(pictures, 64 rows, columns) in the order in which 4 warps of 8 · 4 threads hold a product's left operand."""
    number, _, width = fields.shape
    # Rows are (warp, upper or lower half, thread), columns (step, half, thread, pair).
    cut = fields.reshape(number, 4, 2, 8, width // STEP, 2, 4, 2)
    return cut.transpose(0, 4, 1, 3, 6, 2, 5, 7)


@jax.jit  # type: ignore[untyped-decorator]
def _strips(canvas: Array) -> Array:
    pixels = [canvas[:, :, column : column + 2 * _PLACES - 1 : 2] for column in range(SIDE)]
    return jnp.stack(pixels, axis=-1).astype(jnp.bfloat16).reshape(-1)


def load_fields(fields: Any, row: Array, channels: int) -> list[Array]:
    """Of one picture what every block sees, (64 blocks, pixels) for each of `field_parts`."""
    found, start = [], row * field_size(channels)
    for width in field_parts(channels):
        steps = width // STEP
        flat = fields[at(steps * 32, 32, start)].reshape(steps, 4, 8, 4, 2, 2, 2)
        part = flat.transpose(1, 4, 2, 0, 5, 3, 6).reshape(GRID, width)
        found.append(jax.lax.bitcast_convert_type(part, jnp.bfloat16))
        start += GRID * width
    return found


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
