"""Whether the kernels, as compiled for the device at hand, compute what the layers do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from expunge.training.learners.jax import paper_network
from expunge.training.learners.jax.gradients import clipped_sum, cross_entropy
from expunge_lab.kernels.launch import clipped_sums, scores
from expunge_lab.kernels.layout import Shape, native, standard
from expunge_lab.kernels.pictures import patch_table
from expunge_lab.kernels.tuning import USUAL, Tunings

_CLIP_NORM = 0.1
# Rounding to bfloat16 makes up to 0.08 and 0.005, since a pool may choose another of two nearly equal values; rows that
# are moved to wrong places in one kernel make 0.28 and more.
_LARGEST_SUMS, _LARGEST_SCORES = 0.15, 0.02


@dataclass(frozen=True)
class Differences:
    """Relative distances of clipped sums and of scores from the layers' in float32."""

    sums: float
    scores: float

    @property
    def are_small(self) -> bool:
        """Whether rounding explains them."""
        return self.sums < _LARGEST_SUMS and self.scores < _LARGEST_SCORES


def differences(
    shape: Shape, *, models: int = 2, batch: int = 32, tunings: Tunings = USUAL, interpret: bool = False
) -> Differences:
    """Of a few untrained models on pictures of noise."""
    rng = np.random.default_rng(0)
    pictures = noisy_pictures(shape, 2 * batch, rng)
    network = paper_network(activation=shape.activation, input_shape=pictures.shape[1:])  # type: ignore[arg-type]
    keys = jax.random.split(jax.random.key(0), models)
    parameters = jax.vmap(lambda key: network.init(key, shape.num_classes))(keys)
    table, weights = patch_table(pictures, shape), native(parameters, shape)
    rows = rng.integers(0, len(pictures), (models, batch)).astype(np.int32)
    labels = rng.integers(0, shape.num_classes, (models, batch)).astype(np.int32)

    @jax.jit  # type: ignore[untyped-decorator]
    def by_kernels(table: Any, rows: Any, labels: Any, weights: Any) -> Any:
        options: Any = {"tunings": tunings, "interpret": interpret}
        sums = clipped_sums(shape, table, rows, labels, weights, clip_norm=_CLIP_NORM, **options)
        return standard(sums, shape), scores(shape, table, rows, weights, **options)

    @jax.jit  # type: ignore[untyped-decorator]
    @jax.vmap  # type: ignore[untyped-decorator]
    def by_layers(own: Any, x: Any, y: Any) -> Any:
        sums = clipped_sum(network, cross_entropy, own, x, y, jnp.ones(batch), _CLIP_NORM)
        return sums, network.apply(own, x)

    found = by_kernels(table, jnp.asarray(rows), jnp.asarray(labels), weights)
    expected = by_layers(parameters, pictures[rows].astype(np.float32) / 255, labels)
    return Differences(*(_distance(own, other) for own, other in zip(found, expected, strict=True)))


def noisy_pictures(shape: Shape, number: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Bytes at random, below some rows that are dark: there all candidates of a pool tie."""
    side = shape.side
    lit = np.arange(side)[None, :, None, None] >= rng.integers(0, side, (number, 1, 1, 1))
    return rng.integers(0, 256, (number, side, side, shape.channels), dtype=np.uint8) * lit


def _distance(first: Any, second: Any) -> float:
    left, other = (np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)]) for tree in (first, second))
    return float(np.linalg.norm(left - other) / np.linalg.norm(other))
