"""Forward passes of many models through the fused kernel, and what is read off their scores."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from expunge_lab import kernels as fused

Table = fused.Pictures


@jax.jit  # type: ignore[untyped-decorator]
def log_chances(scores: Any, labels: Any) -> Any:
    """log softmax at the labels, relative to the highest score: models are told apart by how near to one they are."""
    found = jax.nn.log_softmax(scores, axis=2)
    return jnp.take_along_axis(found, labels[:, :, None], axis=2)[:, :, 0]


@partial(jax.jit, static_argnames=("shape", "part", "interpret"))
def scores_in_parts(
    table: Table,
    rows: Any,
    operands: fused.Weights,
    owners: Any,
    *,
    shape: fused.Shape,
    part: int,
    interpret: bool,
) -> Any:
    """(owners, images, classes), `part` images at a time: every program of the kernel has scratch memory of its own."""
    lines = rows.shape[0]
    parts = rows.reshape(lines, -1, part).swapaxes(0, 1)
    found = jax.lax.map(
        lambda own: fused.owners_scores(shape, table, own, operands, owners, interpret=interpret), parts
    )
    return found.swapaxes(0, 1).reshape(lines, -1, shape.num_classes)


@partial(jax.jit, static_argnames="channels")
def make_operands(weights: fused.Weights, channels: int) -> Any:
    """The operands of forward passes of all models. The models' axes, however many, are made one."""
    leading = weights.b1.ndim - 1
    flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[leading:]), weights)
    return fused.forward_operands(flat, channels)


def fill_up(rows: NDArray[np.int32], part: int) -> NDArray[np.int32]:
    """Filled up with image 0 to a multiple of `part`."""
    return np.pad(rows, ((0, 0), (0, -rows.shape[1] % part)))


@jax.jit  # type: ignore[untyped-decorator]
def gather(checks: fused.Weights, check: Any, model: Any) -> Any:
    """The weights of some pairs of check and model; `checks` has checks first, then models."""
    return jax.tree.map(lambda leaf: leaf[check, model], checks)
