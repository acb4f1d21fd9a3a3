"""What all programs share: the activation, the barrier, and what the compiler is told."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.experimental.pallas import triton as plgpu

from expunge.training.learners.jax.layers import Array
from expunge_lab.kernels.layout import SIDE, Shape
from expunge_lab.kernels.pictures import most_pictures
from expunge_lab.kernels.tuning import Tuning

# In a product's output every four threads of a warp hold a row, and the warp's eight rows are a row of the grid.
_FROM_NEXT = "shfl.sync.down.b32 $0, $1, 4, 31, 0xffffffff;"
_FROM_PREVIOUS = "{ .reg .pred p; shfl.sync.up.b32 $0|p, $1, 4, 0, 0xffffffff; @!p mov.b32 $0, 0; }"


class Kernel:
    """One program: GROUP examples of one model."""

    def __init__(self, shape: Shape, tuning: Tuning, *, interpreted: bool) -> None:
        self.shape, self.tuning = shape, tuning
        self._interpreted = interpreted

    def activate(self, z: Array) -> Array:
        """tanh (the hardware's) or ReLU."""
        if self.shape.activation == "relu":
            return jnp.maximum(z, 0.0)
        return jnp.tanh(z) if self._interpreted else plgpu.approx_tanh(z)

    def slope(self, a: Array) -> Array:
        """The activation's derivative, from its value."""
        return (a > 0).astype(jnp.float32) if self.shape.activation == "relu" else 1.0 - a * a

    def barrier(self) -> None:
        """What was stored before can be loaded after it."""
        if not self._interpreted:
            plgpu.debug_barrier()

    def hand_on(self, table: Array, direction: int) -> Array:
        """Of every block the values of the next one in its row of the grid (1) or of the one before (-1).

        The table must be a product's output, or computed of such value by value: it rests on how the compiler spreads
        these over threads, and `differences` says whether the results are right. What comes from outside of the grid is
        undefined from the right, and zero from the left.
        """
        if self._interpreted:
            rows = jnp.pad(table.reshape(SIDE, SIDE, -1), ((0, 0), (1, 1), (0, 0)))
            return rows[:, 1 + direction : 1 + direction + SIDE].reshape(table.shape)
        [found] = plgpu.elementwise_inline_asm(
            _FROM_NEXT if direction > 0 else _FROM_PREVIOUS,
            args=[table],
            constraints="=r,r",
            pack=4 // table.dtype.itemsize,  # what a thread hands on has 32 bits
            result_shape_dtypes=[jax.ShapeDtypeStruct(table.shape, table.dtype)],
        )
        return found

    def known(self, row: Array) -> Array:
        """A picture's number, whose bound the compiler can see (`Tuning.bounded`)."""
        return row & (most_pictures(self.shape.channels) - 1) if self.tuning.bounded else row
