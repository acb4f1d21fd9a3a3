"""Sums of clipped per-example gradients: by norms for built-in layers, example by example for all others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from expunge.training.learners.jax.layers import Activation, Array, Conv, Dense, Flatten, MaxPool, Parameters
from expunge.training.learners.jax.networks import Architecture, Network

Loss = Callable[[Array, Array], Array]  # scores and label of one example → a number

_KNOWN = (Activation, Conv, Dense, Flatten, MaxPool)
_TINY = 1e-12
_AT_ONCE_ON_CPU = 64  # examples: what larger batches keep for the backward pass does not fit into the caches


def cross_entropy(scores: Array, label: Array) -> Array:
    """-log softmax(scores)[label]."""
    return jax.nn.logsumexp(scores) - scores[label]


def clipped_sum(
    architecture: Architecture, loss: Loss, parameters: Any, x: Array, y: Array, present: Array, clip_norm: float
) -> Any:
    """Σ present · g · min(1, clip_norm / ‖g‖) over the examples' gradients g; on a CPU a large batch part by part."""
    known = isinstance(architecture, Network) and all(type(layer) in _KNOWN for layer in architecture.layers)
    one: Callable[..., Any] = _clipped_by_norms if known else clipped_one_by_one
    parts = -(-len(x) // _AT_ONCE_ON_CPU) if jax.default_backend() == "cpu" else 1
    if parts == 1:
        return one(architecture, loss, parameters, x, y, present, clip_norm)
    # Equal parts; the last one is filled up with the first example, which counts as absent there.
    size = -(-len(x) // parts)
    places = jnp.arange(parts * size)
    filled = jnp.where(places < len(x), places, 0)
    counted = jnp.where(places < len(x), present[filled], 0)

    def part(own: Array, counts: Array) -> Any:
        return one(architecture, loss, parameters, x[own], y[own], counts, clip_norm)

    cut = filled.reshape(parts, size), counted.reshape(parts, size)
    begin = jax.tree.map(
        lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(lambda: part(cut[0][0], cut[1][0]))
    )
    return jax.lax.scan(lambda total, own: (jax.tree.map(jnp.add, total, part(*own)), None), begin, cut)[0]


def clipped_one_by_one(
    architecture: Architecture, loss: Loss, parameters: Any, x: Array, y: Array, present: Array, clip_norm: float
) -> Any:
    """Clip by the definition: every example's gradient, its norm, the scaled sum. Right for every model, slow for most.

    Norms and sums are computed in float32 at least. With weights of fewer bits a clipped gradient would be too long.
    """

    def gradient(row: Array, label: Array) -> Any:
        return jax.grad(lambda own: loss(architecture.apply(own, row[None])[0], label))(parameters)

    each = jax.tree.map(lambda leaf: leaf.astype(jnp.promote_types(leaf.dtype, jnp.float32)), jax.vmap(gradient)(x, y))
    squares = [jnp.sum(jnp.square(leaf.reshape(leaf.shape[0], -1)), axis=1) for leaf in jax.tree.leaves(each)]
    scale = present * clip_factors(sum(squares[1:], squares[0]), clip_norm)
    precision = jax.lax.Precision.HIGHEST
    return jax.tree.map(lambda leaf: jnp.einsum("b,b...->...", scale, leaf, precision=precision), each)


def clip_factors(square_norms: Array, clip_norm: float) -> Array:
    """min(1, clip_norm / norm), 1 for a vanishing gradient."""
    return jnp.minimum(1.0, clip_norm / jnp.sqrt(jnp.maximum(square_norms, _TINY**2)))


def _clipped_by_norms(
    network: Network, loss: Loss, parameters: Any, x: Array, y: Array, present: Array, clip_norm: float
) -> list[Parameters]:
    """One forward and one backward pass, the layers' norms on the way, then one product a layer with weights."""
    dtype = network.dtype
    out, caches = x.reshape(x.shape[0], *network.input_shape), []
    for layer, own in zip(network.layers, parameters, strict=True):
        out, cache = layer.forward(own, out, dtype)
        caches.append(cache)
    delta = jax.vmap(jax.grad(loss))(out, y)
    first = next(number for number, own in enumerate(parameters) if own)
    deltas, square_norms = {}, jnp.zeros(x.shape[0])
    for number in range(len(network.layers) - 1, first - 1, -1):
        layer, own, cache = network.layers[number], parameters[number], caches[number]
        if isinstance(layer, Dense | Conv):
            squares, kept = layer.square_norms(cache, delta, dtype)
            square_norms = square_norms + squares
            deltas[number] = delta, kept
        if number > first:  # nothing before the first weights needs a gradient
            delta = layer.backward(own, cache, delta, dtype)
    scale = present * clip_factors(square_norms, clip_norm)
    sums: list[Parameters] = [{} for _ in network.layers]
    for number, (own_delta, kept) in deltas.items():
        layer = network.layers[number]
        assert isinstance(layer, Dense | Conv)
        sums[number] = layer.gradient(caches[number], own_delta, kept, scale, dtype)
    return sums


def weighted_mean(architecture: Architecture, loss: Loss, parameters: Any, x: Array, y: Array, weights: Array) -> Any:
    """The gradient of Σ weights · loss / number of examples present, without clipping."""

    def total(own: Any) -> Array:
        losses = jax.vmap(loss)(architecture.apply(own, x), y)
        return jnp.sum(weights * losses)

    present = jnp.maximum(jnp.sum(weights > 0), 1)
    return jax.tree.map(lambda leaf: leaf / present, jax.grad(total)(parameters))
