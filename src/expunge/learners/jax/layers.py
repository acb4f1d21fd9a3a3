"""The layers of built-in networks: forward, backward, and the norms of every example's gradient without the gradients.

A layer is plain data. `forward` returns what the backward pass needs as well; `backward` takes the gradient of the
output to that of the input. A layer with weights also says, for every example of a batch, the squared l2 norm of the
gradient of its weights (`square_norms`), and sums those gradients with a weight an example (`gradient`): clipping then
costs one backward pass and one product a layer, and no table of examples × parameters exists
(dense layers: Goodfellow 2015; convolutions: Rochette et al. 2019, Bu et al. 2022).

`dtype` is what products are computed in; they are summed in float32 whatever it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, Literal, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from expunge.errors import ParameterError
from expunge.learners.jax._options import check_whole
from expunge.learners.jax._patches import Padding, PatchGeometry
from expunge.learners.jax._pooling import max_pool, pool_with_winners, unpool

Array = Any  # a jax.Array
Shape = tuple[int, ...]
Parameters = dict[str, Array]
DType = Any


def as_shape(given: Any) -> Shape:
    """The shape of one example as a tuple of positive sizes."""
    shape = tuple(given) if isinstance(given, tuple | list) else ()
    if not shape or not all(isinstance(size, int | np.integer) and size > 0 for size in shape):
        raise ParameterError(f"input_shape must be a tuple of positive sizes, got {given!r}")
    return tuple(int(size) for size in shape)


_CONV_BIAS = 1e-6
_DENSE_BIAS = 1e-2


class Layer(Protocol):
    """One step of a network."""

    def out_shape(self, in_shape: Shape) -> Shape:
        """The shape of an example's output."""

    def init(self, key: Array, in_shape: Shape) -> Parameters:
        """Random weights; an empty dictionary for a layer without any."""

    def forward(self, parameters: Parameters, x: Array, dtype: DType) -> tuple[Array, Any]:
        """The output, and what the backward pass needs."""

    def backward(self, parameters: Parameters, cache: Any, delta: Array, dtype: DType) -> Array:
        """The gradient of the input from that of the output."""


class WeightedLayer(Layer, Protocol):
    """A layer with weights."""

    def square_norms(self, cache: Any, delta: Array, dtype: DType) -> tuple[Array, Any]:
        """Of every example, the squared norm of the weights' gradient; and whatever `gradient` can use again."""

    def gradient(self, cache: Any, delta: Array, kept: Any, scale: Array, dtype: DType) -> Parameters:
        """The sum over examples of `scale` times the gradient of the weights."""


def multiply(spec: str, left: Array, right: Array, dtype: DType) -> Array:
    """An einsum of operands in `dtype`, summed in float32; float32 operands are multiplied in full precision."""
    precision = jax.lax.Precision.HIGHEST if dtype == jnp.float32 else None
    return jnp.einsum(
        spec, left.astype(dtype), right.astype(dtype), precision=precision, preferred_element_type=jnp.float32
    )


def glorot_normal(key: Array, shape: Shape) -> Array:
    """Normal weights of variance 2 / (fan in + fan out); the last two axes are in and out, those before a window."""
    window = prod(shape[:-2])
    variance = 2.0 / (window * (shape[-2] + shape[-1]))
    return jax.random.normal(key, shape, jnp.float32) * variance**0.5


@dataclass(frozen=True)
class Dense:
    """x ↦ x·W + b; `units=None` is the output layer, as wide as there are classes."""

    units: int | None = None

    def __post_init__(self) -> None:
        if self.units is not None:
            check_whole("the number of units", self.units)

    def out_shape(self, in_shape: Shape) -> Shape:
        """The units."""
        if len(in_shape) != 1:
            raise ParameterError(f"a dense layer needs flat inputs, got the shape {in_shape}: put Flatten before it")
        return (self._width,)

    @property
    def _width(self) -> int:
        if self.units is None:
            raise ParameterError("the number of classes is not known: give num_classes")
        return self.units

    def init(self, key: Array, in_shape: Shape) -> Parameters:
        """Glorot normal weights, biases of standard deviation 0.01."""
        first, second = jax.random.split(key)
        weights = glorot_normal(first, (in_shape[0], self._width))
        return {"weights": weights, "bias": _DENSE_BIAS * jax.random.normal(second, (self._width,), jnp.float32)}

    def forward(self, parameters: Parameters, x: Array, dtype: DType) -> tuple[Array, Array]:
        """One product."""
        return multiply("bi,io->bo", x, parameters["weights"], dtype) + parameters["bias"], x

    def backward(self, parameters: Parameters, cache: Array, delta: Array, dtype: DType) -> Array:
        """One product."""
        return multiply("bo,io->bi", delta, parameters["weights"], dtype)

    def square_norms(self, cache: Array, delta: Array, dtype: DType) -> tuple[Array, None]:
        """‖x δᵀ‖² = ‖x‖²‖δ‖², and ‖δ‖² for the bias."""
        inputs = jnp.sum(jnp.square(cache.astype(jnp.float32)), axis=1)
        return (inputs + 1.0) * jnp.sum(jnp.square(delta), axis=1), None

    def gradient(self, cache: Array, delta: Array, kept: None, scale: Array, dtype: DType) -> Parameters:
        """One product."""
        scaled = delta * scale[:, None]
        return {"weights": multiply("bi,bo->io", cache, scaled, dtype), "bias": scaled.sum(axis=0)}


@dataclass(frozen=True)
class Conv:
    """A square convolution, computed as patches × matrix."""

    channels: int
    filter_size: int
    stride: int = 1
    padding: Padding = "VALID"

    def __post_init__(self) -> None:
        for name in ("channels", "filter_size", "stride"):
            check_whole(name, getattr(self, name))
        if self.padding not in ("SAME", "VALID"):
            raise ParameterError(f"padding must be 'SAME' or 'VALID', got {self.padding!r}")

    def geometry(self, in_shape: Shape) -> PatchGeometry:
        """Where its patches lie."""
        if len(in_shape) != 3:
            raise ParameterError(f"a convolution needs inputs (rows, columns, channels), got the shape {in_shape}")
        return PatchGeometry(*in_shape, self.filter_size, self.stride, self.padding)

    def out_shape(self, in_shape: Shape) -> Shape:
        """(rows, columns, channels)."""
        found = self.geometry(in_shape)
        if min(found.out_height, found.out_width) < 1:
            raise ParameterError(f"a filter of size {self.filter_size} does not fit inputs of the shape {in_shape}")
        return found.out_height, found.out_width, self.channels

    def init(self, key: Array, in_shape: Shape) -> Parameters:
        """Glorot normal weights, biases of standard deviation 1e-6."""
        first, second = jax.random.split(key)
        shape = (self.filter_size, self.filter_size, in_shape[2], self.channels)
        return {
            "weights": glorot_normal(first, shape),
            "bias": _CONV_BIAS * jax.random.normal(second, (self.channels,), jnp.float32),
        }

    def forward(self, parameters: Parameters, x: Array, dtype: DType) -> tuple[Array, tuple[Array, PatchGeometry]]:
        """The patches times the kernel."""
        geometry = self.geometry(x.shape[1:])
        patches = geometry.extract(x.astype(dtype))
        out = multiply("bpi,io->bpo", patches, geometry.matrix(parameters["weights"]), dtype) + parameters["bias"]
        return out.reshape(x.shape[0], *self.out_shape(x.shape[1:])), (patches, geometry)

    def backward(self, parameters: Parameters, cache: tuple[Array, PatchGeometry], delta: Array, dtype: DType) -> Array:
        """The gradients of the patches, put where they came from and added up."""
        _, geometry = cache
        flat = delta.reshape(delta.shape[0], geometry.num_patches, self.channels)
        matrix = geometry.matrix(parameters["weights"])
        return geometry.spread(multiply("bpo,io->bpi", flat, matrix, dtype).astype(dtype)).astype(jnp.float32)

    def square_norms(
        self, cache: tuple[Array, PatchGeometry], delta: Array, dtype: DType
    ) -> tuple[Array, Array | None]:
        """‖PᵀΔ‖² of every example, directly or as ⟨PPᵀ, ΔΔᵀ⟩."""
        patches, geometry = cache
        flat = delta.reshape(delta.shape[0], geometry.num_patches, self.channels)
        of_bias = jnp.sum(jnp.square(flat.sum(axis=1)), axis=1)
        if self._is_direct(geometry):
            each = multiply("bpi,bpo->boi", patches, flat, dtype)
            return jnp.sum(jnp.square(each), axis=(1, 2)) + of_bias, each
        inputs = multiply("bpi,bqi->bpq", patches, patches, dtype)
        outputs = multiply("bpo,bqo->bpq", flat, flat, dtype)
        # The sum can come out a rounding error below zero where the gradient vanishes.
        return jnp.maximum(jnp.sum(inputs * outputs, axis=(1, 2)), 0.0) + of_bias, None

    def _is_direct(self, geometry: PatchGeometry) -> bool:
        """Whether every example's gradient of this layer is computed for its norm.

        It is where that takes fewer operations than the products of the other form. It also spares the product of
        `gradient`, which on a CPU, where arithmetic is dear and memory is not, decides as long as the gradients take at
        most twice the room of the patches they come from.
        """
        if jax.default_backend() == "cpu" and self.channels <= 2 * geometry.num_patches:
            return True
        direct_cost = geometry.num_patches * geometry.patch_size * self.channels
        return direct_cost <= geometry.num_patches**2 * (geometry.patch_size + self.channels)

    def gradient(
        self, cache: tuple[Array, PatchGeometry], delta: Array, kept: Array | None, scale: Array, dtype: DType
    ) -> Parameters:
        """One product over all patches of all examples, or the sum of what the direct norm computed."""
        patches, geometry = cache
        scaled = delta.reshape(delta.shape[0], geometry.num_patches, self.channels) * scale[:, None, None]
        if kept is None:
            matrix = multiply("bpi,bpo->io", patches, scaled, dtype)
        else:
            rows = kept.reshape(kept.shape[0], -1)
            matrix = jnp.dot(scale, rows, precision=jax.lax.Precision.HIGHEST).reshape(self.channels, -1).T
        return {"weights": geometry.kernel(matrix), "bias": scaled.sum(axis=(0, 1))}


@dataclass(frozen=True)
class Activation:
    """tanh or ReLU, of every value."""

    name: Literal["tanh", "relu"]

    def __post_init__(self) -> None:
        if self.name not in ("tanh", "relu"):
            raise ParameterError(f"the activation must be 'tanh' or 'relu', got {self.name!r}")

    def out_shape(self, in_shape: Shape) -> Shape:
        """Unchanged."""
        return in_shape

    def init(self, key: Array, in_shape: Shape) -> Parameters:
        """No weights."""
        return {}

    def forward(self, parameters: Parameters, x: Array, dtype: DType) -> tuple[Array, Array]:
        """The activation; its own output is all that the backward pass needs."""
        out = jnp.tanh(x) if self.name == "tanh" else jax.nn.relu(x)
        return out, out

    def backward(self, parameters: Parameters, cache: Array, delta: Array, dtype: DType) -> Array:
        """Times 1 - tanh², or times 1 where positive."""
        return delta * (1.0 - jnp.square(cache)) if self.name == "tanh" else jnp.where(cache > 0, delta, 0.0)


@dataclass(frozen=True)
class MaxPool:
    """Maxima over square windows with stride 1; of equal values the first gets the gradient."""

    window: int = 2

    def __post_init__(self) -> None:
        check_whole("the window of a max-pool", self.window, most=15)

    def out_shape(self, in_shape: Shape) -> Shape:
        """Smaller by the window less one."""
        if len(in_shape) != 3 or min(in_shape[:2]) < self.window:
            raise ParameterError(f"a max-pool of window {self.window} does not fit inputs of the shape {in_shape}")
        return in_shape[0] - self.window + 1, in_shape[1] - self.window + 1, in_shape[2]

    def init(self, key: Array, in_shape: Shape) -> Parameters:
        """No weights."""
        return {}

    def apply(self, x: Array) -> Array:
        """The maxima, differentiable."""
        return max_pool(x, self.window)

    def forward(self, parameters: Parameters, x: Array, dtype: DType) -> tuple[Array, Array]:
        """The maxima and where they were."""
        return pool_with_winners(x, self.window)

    def backward(self, parameters: Parameters, cache: Array, delta: Array, dtype: DType) -> Array:
        """To the winners."""
        return unpool(delta, cache, self.window)


@dataclass(frozen=True)
class Flatten:
    """All values of an example in a row."""

    def out_shape(self, in_shape: Shape) -> Shape:
        """Their number."""
        return (prod(in_shape),)

    def init(self, key: Array, in_shape: Shape) -> Parameters:
        """No weights."""
        return {}

    def forward(self, parameters: Parameters, x: Array, dtype: DType) -> tuple[Array, Shape]:
        """A row an example."""
        return x.reshape(x.shape[0], -1), x.shape

    def backward(self, parameters: Parameters, cache: Shape, delta: Array, dtype: DType) -> Array:
        """The shape it had."""
        return delta.reshape(cache)
