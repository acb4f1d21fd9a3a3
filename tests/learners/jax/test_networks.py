from __future__ import annotations

import jax
import numpy as np
import pytest

from expunge.errors import ParameterError
from expunge.learners.jax import Conv, Dense, Flatten, Network, logistic, mlp, paper_network
from expunge.learners.jax._patches import PatchGeometry


def test_the_paper_network_has_26010_weights() -> None:
    assert paper_network().num_parameters(10) == 26_010
    assert paper_network(activation="relu", input_shape=(32, 32, 3)).num_parameters(10) == 37_274 + 0


def test_operations_of_the_paper_network() -> None:
    """By hand: 196·64·16 + 25·256·32 + 512·32 + 32·10 multiplications forward."""
    assert paper_network().example_operations(10)["forward"] == 2 * (200_704 + 204_800 + 16_384 + 320)
    backward = 2 * 200_704 + 1024 + 3 * (204_800 + 16_384 + 320) + 25 * 25 * 288 + 512 + 32
    assert paper_network().example_operations(10)["gradient"] == 2 * backward


def test_initial_weights_have_the_stated_spread() -> None:
    """Relative standard error of a deviation of n normals is 1/sqrt(2n); 12 of them, false alarm below 1e-30."""
    weights = paper_network().init(jax.random.key(1), 10)[7]["weights"]
    assert np.std(weights) == pytest.approx((2 / (512 + 32)) ** 0.5, rel=12 / (2 * weights.size) ** 0.5)
    assert np.abs(paper_network().init(jax.random.key(1), 10)[0]["bias"]).max() < 1e-5


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
    keys = jax.random.split(jax.random.key(0), 3)
    x = jax.random.normal(keys[0], (2, 9, 7, 2))
    kernel = jax.random.normal(keys[1], (size, size, 2, 3))
    out = jax.lax.conv_general_dilated(x, kernel, (stride,) * 2, padding, dimension_numbers=("NHWC", "HWIO", "NHWC"))
    ours = (geometry.extract(x) @ geometry.matrix(kernel)).reshape(out.shape)
    assert np.allclose(ours, out, atol=1e-4)
    assert np.array_equal(geometry.kernel(geometry.matrix(kernel)), kernel)
    there = jax.random.normal(keys[2], geometry.extract(x).shape)
    assert np.vdot(geometry.extract(x), there) == pytest.approx(np.vdot(x, geometry.spread(there)), rel=1e-4)
