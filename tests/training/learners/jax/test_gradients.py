"""Clipping from norms agrees with clipping every example's gradient, for every layer type and with JAX's own layers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from expunge.training.learners.jax import (
    Activation,
    Conv,
    Dense,
    Flatten,
    Functions,
    MaxPool,
    Network,
    logistic,
    mlp,
    paper_network,
)
from expunge.training.learners.jax.gradients import clip_factors, clipped_one_by_one, clipped_sum, cross_entropy

RELATIVE = 1e-5
CLASSES = 4

NETWORKS = {
    "logistic": logistic(input_shape=(5,)),
    "mlp": mlp(hidden=(7, 3), input_shape=(2, 3)),
    "conv-direct": Network((Conv(2, 3, padding="SAME"), Flatten(), Dense()), (6, 6, 2)),
    "conv-gram": Network((Conv(16, 4, stride=2), Activation("relu"), Flatten(), Dense()), (7, 7, 8)),
    "conv-uneven-stride": Network((Conv(3, 3, stride=2, padding="SAME"), Flatten(), Dense()), (7, 8, 2)),
    "two-convs-and-pools": Network(
        (Conv(3, 3), MaxPool(2), Activation("tanh"), Conv(4, 2, stride=2), MaxPool(2), Flatten(), Dense()), (9, 9, 1)
    ),
    "wide-pool": Network((Conv(2, 2), Activation("relu"), MaxPool(3), Flatten(), Dense(3), Dense()), (6, 5, 1)),
    "paper-relu": paper_network(activation="relu", input_shape=(32, 32, 3)),
}


def draw(network: Network, batch: int = 9) -> tuple[Any, Any, Any, Any]:
    rng = np.random.default_rng(3)
    shapes = jax.eval_shape(lambda: network.init(jax.random.key(0), CLASSES))
    parameters = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape, scale=0.3).astype(np.float32), shapes)
    x = rng.uniform(size=(batch, *network.input_shape)).astype(np.float32)
    y = rng.integers(0, CLASSES, batch)
    present = (np.arange(batch) != 4).astype(np.float32)
    return parameters, x, y, present


def distance(first: Any, second: Any) -> float:
    left, right = (np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)]) for tree in (first, second))
    return float(np.linalg.norm(left - right) / np.linalg.norm(right))


@pytest.mark.parametrize("name", NETWORKS)
def test_norms_and_one_weighted_pass_equal_the_naive_way(name: str) -> None:
    network = NETWORKS[name]
    data = draw(network)
    ours, naive = (
        jax.jit(lambda *given, by=function: by(network, cross_entropy, *given))
        for function in (clipped_sum, clipped_one_by_one)
    )
    for clip_norm in (0.05, 0.5, 1e4):
        fast, right = ours(*data, clip_norm), naive(*data, clip_norm)
        assert jax.tree.structure(fast) == jax.tree.structure(right)
        assert distance(fast, right) < RELATIVE


def test_an_absent_example_and_a_wrong_norm_would_be_noticed() -> None:
    network = NETWORKS["mlp"]
    parameters, x, y, present = draw(network)
    run = jax.jit(lambda present, clip_norm: clipped_sum(network, cross_entropy, parameters, x, y, present, clip_norm))
    right, all_present, unclipped = run(present, 0.05), run(np.ones(len(y)), 0.05), run(present, 1e4)
    assert distance(right, all_present) > 100 * RELATIVE
    assert distance(right, unclipped) > 100 * RELATIVE


def reference_scores(parameters: Any, x: jax.Array) -> jax.Array:
    """The paper's listing, activation before pool, from JAX's own convolution and reduce_window."""

    def convolve(x: jax.Array, layer: Any, padding: str) -> jax.Array:
        numbers = ("NHWC", "HWIO", "NHWC")
        out = jax.lax.conv_general_dilated(x, layer["weights"], (2, 2), padding, dimension_numbers=numbers)
        return jnp.tanh(out + layer["bias"])

    def pool(x: jax.Array) -> jax.Array:
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 1, 1, 1), "VALID")

    first, second, third, fourth = [layer for layer in parameters if layer]
    x = pool(convolve(x, first, "SAME"))
    x = pool(convolve(x, second, "VALID")).reshape(x.shape[0], -1)
    x = jnp.tanh(x @ third["weights"] + third["bias"])
    return x @ fourth["weights"] + fourth["bias"]


def test_the_paper_network_is_the_listing_and_so_are_its_clipped_gradients() -> None:
    network = paper_network()
    parameters, x, y, present = draw(network, batch=5)
    ours, theirs = (jax.jit(scores)(parameters, x) for scores in (network.apply, reference_scores))
    assert np.allclose(ours, theirs, atol=1e-5)
    listing = Functions(lambda key: parameters, reference_scores, network.input_shape)

    def run(architecture: Any, function: Any) -> Any:
        return jax.jit(lambda *data: function(architecture, cross_entropy, *data, 0.1))(parameters, x, y, present)

    assert distance(run(network, clipped_sum), run(listing, clipped_sum)) < RELATIVE


def test_half_precision_is_close_and_not_equal() -> None:
    shape = (6,)
    data = draw(mlp(hidden=(7,), input_shape=shape))
    networks = [mlp(hidden=(7,), input_shape=shape, precision=precision) for precision in ("bfloat16", "float32")]
    half, full = (
        jax.jit(lambda *given, by=network: clipped_sum(by, cross_entropy, *given, 0.1))(*data) for network in networks
    )
    assert 1e-5 < distance(half, full) < 2e-2


def test_an_unknown_layer_is_clipped_example_by_example() -> None:
    class Halved(Activation):
        """Not one of the layers whose norms are known."""

        def forward(self, parameters: Any, x: Any, dtype: Any) -> Any:
            out, _ = super().forward(parameters, x, dtype)
            return out / 2, None

        def backward(self, *unused: Any) -> Any:
            raise AssertionError("the fast path must not be taken")

    network = Network((Dense(3), Halved("tanh"), Dense()), (4,))
    parameters, x, y, present = draw(network)
    fast, naive = (
        jax.jit(lambda *data, by=function: by(network, cross_entropy, *data, 0.05))(parameters, x, y, present)
        for function in (clipped_sum, clipped_one_by_one)
    )
    assert distance(fast, naive) < RELATIVE


def test_factors_clip_long_gradients_only_and_survive_a_vanishing_one() -> None:
    factors = clip_factors(jnp.array([0.0, 0.01, 1.0, 100.0]), 1.0)
    assert np.allclose(factors, [1.0, 1.0, 1.0, 0.1])


def test_both_ways_take_a_slope_of_zero_where_a_relu_gets_zero() -> None:
    network = mlp(hidden=(3,), input_shape=(2,))
    parameters, x, y, present = draw(network)
    blank = [{name: np.zeros_like(own[name]) for name in own} for own in parameters]
    blank[-1] = parameters[-1]
    fast, naive = (
        jax.jit(lambda *data, by=function: by(network, cross_entropy, *data, 1.0))(blank, x, y, present)
        for function in (clipped_sum, clipped_one_by_one)
    )
    assert not np.any(naive[1]["bias"])
    assert distance(fast, naive) < RELATIVE


def test_of_equal_values_in_a_window_the_first_gets_the_gradient() -> None:
    x = jnp.zeros((1, 2, 2, 1))
    gradient = jax.grad(lambda x: MaxPool(2).apply(x).sum())(x)
    assert gradient.ravel().tolist() == [1.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("name", ["mlp", "conv-direct", "conv-gram"])
@pytest.mark.parametrize("batch", [64, 65, 150])
def test_a_large_batch_is_clipped_part_by_part(name: str, batch: int) -> None:
    """On a CPU; the last part is filled up, and who fills it does not count twice."""
    network = NETWORKS[name]
    data = draw(network, batch)
    other = Functions(lambda key: data[0], network.apply, network.input_shape)
    right = jax.jit(lambda *given: clipped_one_by_one(network, cross_entropy, *given, 0.05))(*data)
    for architecture in (network, other):
        found = jax.jit(lambda *given, by=architecture: clipped_sum(by, cross_entropy, *given, 0.05))(*data)
        assert distance(found, right) < RELATIVE


def test_the_norm_of_weights_of_few_bits_is_bounded_too() -> None:
    """Taken in bfloat16 it is wrong by up to a part in 128, and a clipped gradient longer than it may be."""
    network = NETWORKS["mlp"]
    parameters, x, y, _ = draw(network, 40)
    short = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), parameters)
    one = jax.jit(lambda x, y: clipped_one_by_one(network, cross_entropy, short, x, y, jnp.ones(1), 0.05))
    for row, label in zip(x, y, strict=True):
        leaves = jax.tree.leaves(one(row[None], label[None]))
        assert sum(float(np.sum(np.square(np.asarray(leaf, np.float64)))) for leaf in leaves) ** 0.5 < 0.05 * 1.00001
