"""What all programs share: the activation, the barrier, and what the compiler is told."""

from __future__ import annotations

import jax.numpy as jnp
from jax.experimental.pallas import triton as plgpu

from expunge.learners.jax._fused.layout import Shape
from expunge.learners.jax._fused.pictures import most_pictures
from expunge.learners.jax._fused.tuning import Tuning
from expunge.learners.jax.layers import Array


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

    def known(self, row: Array) -> Array:
        """A picture's number, whose bound the compiler can see (`Tuning.bounded`)."""
        return row & (most_pictures(self.shape.channels) - 1) if self.tuning.bounded else row
