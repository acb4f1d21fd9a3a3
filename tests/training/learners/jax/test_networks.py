from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from expunge.core.errors import ParameterError
from expunge.training.learners.jax import (
    Conv,
    Dense,
    Flatten,
    MaxPool,
    Network,
    Optimizer,
    adam,
    logistic,
    mlp,
    paper_network,
    sgd,
)
from expunge.training.learners.jax.layers import PatchGeometry


def test_the_paper_network_has_26010_weights() -> None:
    assert paper_network().num_parameters(10) == 26_010
    assert paper_network(activation="relu", input_shape=(32, 32, 3)).num_parameters(10) == 37_274 + 0


def test_operations_of_the_paper_network() -> None:
    """By hand: 196·64·16 + 25·256·32 + 512·32 + 32·10 multiplications forward."""
    assert paper_network().example_operations(10)["forward"] == 2 * (200_704 + 204_800 + 16_384 + 320)
    backward = 2 * 200_704 + 1024 + 3 * (204_800 + 16_384 + 320) + 8192 + 512 + 32
    assert paper_network().example_operations(10)["gradient"] == 2 * backward


def test_initial_weights_have_the_stated_spread() -> None:
    """Relative standard error of a deviation of n normals is 1/sqrt(2n); 12 of them, false alarm below 1e-30."""
    layers = jax.jit(lambda: paper_network().init(jax.random.key(1), 10))()
    weights = layers[7]["weights"]
    assert np.std(weights) == pytest.approx((2 / (512 + 32)) ** 0.5, rel=12 / (2 * weights.size) ** 0.5)
    assert np.abs(layers[0]["bias"]).max() < 1e-5


@pytest.mark.parametrize(
    ("layers", "shape", "words"),
    [
        ((Dense(),), (2, 2), "Flatten"),
        ((Conv(2, 5), Flatten(), Dense()), (4, 4, 1), "does not fit"),
        ((Conv(2, 2), Flatten(), Dense()), (4, 4), "rows, columns, channels"),
        ((), (4,), "at least one layer"),
        ((Dense(),), (0,), "positive sizes"),
    ],
)
def test_networks_that_cannot_be(layers: tuple[object, ...], shape: tuple[int, ...], words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        Network(layers, shape)  # type: ignore[arg-type]


def test_an_output_of_the_wrong_width_is_named() -> None:
    with pytest.raises(ParameterError, match="3 classes"):
        Network((Dense(4),), (2,)).init(jax.random.key(0), 3)


def test_mlp_and_logistic_shapes() -> None:
    assert mlp(hidden=(7, 3), input_shape=(2, 5)).num_parameters(4) == 10 * 7 + 7 + 7 * 3 + 3 + 3 * 4 + 4
    assert logistic(input_shape=(6,)).num_parameters(3) == 6 * 3 + 3


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_patches_equal_jax_convolution_and_spread_is_their_transpose(size: int, stride: int, padding: str) -> None:
    geometry = PatchGeometry(9, 7, 2, size, stride, padding)  # type: ignore[arg-type]
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 9, 7, 2)).astype(np.float32)
    kernel = rng.normal(size=(size, size, 2, 3)).astype(np.float32)
    there = rng.normal(size=jax.eval_shape(geometry.extract, x).shape).astype(np.float32)

    @jax.jit
    def both(x: Any, kernel: Any, there: Any) -> tuple[Any, ...]:
        numbers = ("NHWC", "HWIO", "NHWC")
        theirs = jax.lax.conv_general_dilated(x, kernel, (stride,) * 2, padding, dimension_numbers=numbers)
        matrix, patches = geometry.matrix(kernel), geometry.extract(x)
        ours = (patches @ matrix).reshape(theirs.shape)
        return theirs, ours, geometry.kernel(matrix), patches, geometry.spread(there)

    theirs, ours, kernel_again, patches, spread = both(x, kernel, there)
    assert np.allclose(ours, theirs, atol=1e-4)
    assert np.array_equal(kernel_again, kernel)
    assert np.vdot(patches, there) == pytest.approx(np.vdot(x, spread), rel=1e-4)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Conv(2, 3, padding="same"), "padding must be one of SAME, VALID, got 'same'"),
        (lambda: MaxPool(2.5), "the window of a max-pool must be an integer from 1 to 15, got 2.5"),
        (lambda: MaxPool(16), "the window of a max-pool must be an integer from 1 to 15, got 16"),
        (lambda: Network((Flatten, Dense()), (4,)), "layers must be layers, as Dense"),
        (lambda: Network(Dense(), (4,)), "layers must be a sequence"),
        (lambda: sgd("a"), "learning_rate must be a finite number > 0, got 'a'"),
        (lambda: sgd(float("inf")), "learning_rate must be a finite number > 0, got inf"),
        (lambda: adam(None), "learning_rate must be a finite number > 0, got None"),
        (lambda: Optimizer(3, {}), "an optimiser's name must be a text, got 3"),
        (lambda: Optimizer("adam", 3), "an optimiser's arguments must be names with numbers, got 3"),
    ],
)
def test_parts_that_cannot_be(make, words):
    with pytest.raises(ParameterError, match=words):
        make()


def test_lists_will_do():
    assert Network([Flatten(), Dense()], [8, 8]) == Network((Flatten(), Dense()), (8, 8))
    assert hash(Network([Flatten(), Dense()], [8, 8])) == hash(Network((Flatten(), Dense()), (8, 8)))
