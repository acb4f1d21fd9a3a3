"""Convolution as a matrix product: the patches of an image as rows, and the way back.

With a stride that divides the filter, the image is first cut into stride × stride blocks whose pixels become channels
(space to depth). The convolution then has stride 1 and its filter (size / stride)² taps: 16 slices instead of 64 for
the first layer of the paper's network, 4 instead of 16 for the second. Otherwise every tap is a strided slice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp

Array = Any  # a jax.Array
Padding = Literal["SAME", "VALID"]


@dataclass(frozen=True)
class PatchGeometry:
    """Where the patches of images of one shape lie."""

    height: int
    width: int
    channels: int
    filter_size: int
    stride: int
    padding: Padding

    @property
    def out_height(self) -> int:
        """Rows of patches."""
        return self._out(self.height)

    @property
    def out_width(self) -> int:
        """Columns of patches."""
        return self._out(self.width)

    @property
    def num_patches(self) -> int:
        """Patches an image."""
        return self.out_height * self.out_width

    @property
    def patch_size(self) -> int:
        """Values a patch."""
        return self.filter_size**2 * self.channels

    @property
    def _block(self) -> int:
        return self.stride if self.filter_size % self.stride == 0 else 1

    def _out(self, size: int) -> int:
        return -(-size // self.stride) if self.padding == "SAME" else (size - self.filter_size) // self.stride + 1

    def _edges(self, size: int) -> tuple[int, int]:
        """How much the patches reach over the image on either side; negative where they do not reach its end."""
        over = (self._out(size) - 1) * self.stride + self.filter_size - size
        return (over // 2, over - over // 2) if self.padding == "SAME" and over > 0 else (0, over)

    def extract(self, x: Array) -> Array:
        """(batch, height, width, channels) → (batch, patches, values)."""
        fitted = self._fit(x)
        blocks = self._to_depth(fitted)
        taps = [self._tap(blocks, row, column) for row, column in self._tap_places()]
        return jnp.concatenate(taps, axis=-1).reshape(x.shape[0], self.num_patches, self.patch_size)

    def spread(self, patches: Array) -> Array:
        """The transpose of `extract`: what falls on every pixel, added up."""
        batch, places = patches.shape[0], self._tap_places()
        table = patches.reshape(batch, self.out_height, self.out_width, len(places), -1)
        step = self.stride // self._block
        rows, columns = (
            (self._out(size) - 1) * step + self.filter_size // self._block for size in (self.height, self.width)
        )
        total = None
        for number, (row, column) in enumerate(places):
            tap = table[:, :, :, number, :]
            used_rows, used_columns = (self.out_height - 1) * step + 1, (self.out_width - 1) * step + 1
            config = (
                (0, 0, 0),
                (row, rows - used_rows - row, step - 1),
                (column, columns - used_columns - column, step - 1),
                (0, 0, 0),
            )
            part = jax.lax.pad(tap, jnp.zeros((), tap.dtype), config)
            total = part if total is None else total + part
        assert total is not None
        return self._unfit(self._from_depth(total))

    def matrix(self, kernel: Array) -> Array:
        """A kernel (rows, columns, channels, outputs) as a matrix with the rows in the order of a patch's values."""
        block, taps = self._block, self.filter_size // self._block
        cut = kernel.reshape(taps, block, taps, block, self.channels, -1)
        return cut.transpose(0, 2, 1, 3, 4, 5).reshape(self.patch_size, -1)

    def kernel(self, matrix: Array) -> Array:
        """The inverse of `matrix`."""
        block, taps = self._block, self.filter_size // self._block
        cut = matrix.reshape(taps, taps, block, block, self.channels, -1)
        size = self.filter_size
        return cut.transpose(0, 2, 1, 3, 4, 5).reshape(size, size, self.channels, -1)

    def _tap_places(self) -> list[tuple[int, int]]:
        taps = range(self.filter_size // self._block)
        return [(row, column) for row in taps for column in taps]

    def _tap(self, blocks: Array, row: int, column: int) -> Array:
        step = self.stride // self._block
        rows = slice(row, row + (self.out_height - 1) * step + 1, step)
        columns = slice(column, column + (self.out_width - 1) * step + 1, step)
        return blocks[:, rows, columns, :]

    def _fit(self, x: Array) -> Array:
        (top, bottom), (left, right) = self._edges(self.height), self._edges(self.width)
        x = x[:, : self.height + min(bottom, 0), : self.width + min(right, 0), :]
        return jnp.pad(x, ((0, 0), (top, max(bottom, 0)), (left, max(right, 0)), (0, 0)))

    def _unfit(self, x: Array) -> Array:
        (top, bottom), (left, right) = self._edges(self.height), self._edges(self.width)
        x = x[:, top : top + self.height, left : left + self.width, :]
        return jnp.pad(x, ((0, 0), (0, max(-bottom, 0)), (0, max(-right, 0)), (0, 0)))

    def _to_depth(self, x: Array) -> Array:
        block = self._block
        if block == 1:
            return x
        batch, height, width, channels = x.shape
        cut = x.reshape(batch, height // block, block, width // block, block, channels)
        return cut.transpose(0, 1, 3, 2, 4, 5).reshape(batch, height // block, width // block, -1)

    def _from_depth(self, x: Array) -> Array:
        block = self._block
        if block == 1:
            return x
        batch, height, width, _ = x.shape
        cut = x.reshape(batch, height, width, block, block, self.channels)
        return cut.transpose(0, 1, 3, 2, 4, 5).reshape(batch, height * block, width * block, self.channels)
