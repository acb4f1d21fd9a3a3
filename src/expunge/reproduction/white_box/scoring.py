"""Forward passes of many models through the fused kernel, and what is read off their scores."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from expunge.learners.jax import _fused as fused

Table = fused.Pictures


@jax.jit  # type: ignore[untyped-decorator]
def log_chances(scores: Any, labels: Any) -> Any:
    """log softmax at the labels, relative to the highest score: models are told apart by how near to one they are."""
    found = jax.nn.log_softmax(scores, axis=2)
    return jnp.take_along_axis(found, labels[:, :, None], axis=2)[:, :, 0]


@partial(jax.jit, static_argnames=("shape", "part", "interpret"))
def scores_in_parts(
    table: Table, rows: Any, weights: fused.Weights, *, shape: fused.Shape, part: int, interpret: bool
) -> Any:
    """(models, images, classes), `part` images at a time: every program of the kernel has scratch memory of its own."""
    models = rows.shape[0]
    parts = rows.reshape(models, -1, part).swapaxes(0, 1)
    found = jax.lax.map(lambda own: fused.scores(shape, table, own, weights, interpret=interpret), parts)
    return found.swapaxes(0, 1).reshape(models, -1, shape.num_classes)


def fill_up(rows: NDArray[np.int32], part: int) -> NDArray[np.int32]:
    """Filled up with image 0 to a multiple of `part`."""
    return np.pad(rows, ((0, 0), (0, -rows.shape[1] % part)))


@jax.jit  # type: ignore[untyped-decorator]
def gather(checks: fused.Weights, check: Any, model: Any) -> Any:
    """The weights of some pairs of check and model; `checks` has checks first, then models."""
    return jax.tree.map(lambda leaf: leaf[check, model], checks)
