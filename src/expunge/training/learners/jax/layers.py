"""The layers of built-in networks: forward, backward, and the norms of every example's gradient without the gradients.

A layer is plain data. `forward` returns what the backward pass needs as well; `backward` takes the gradient of the
output to that of the input. A layer with weights also says, for every example of a batch, the squared l2 norm of the
gradient of its weights (`square_norms`), and sums those gradients with a weight an example (`gradient`): clipping then
costs one backward pass and one product a layer, and no table of examples × parameters exists
(dense layers: Goodfellow 2015; convolutions: Rochette et al. 2019, Bu et al. 2022).

`dtype` is the type in which products are computed. They are always summed in float32.

A convolution is a matrix product: `PatchGeometry` writes the patches of an image as rows, and adds up what comes back.
With a stride that divides the filter, the image is first cut into stride × stride blocks whose pixels become channels
(space to depth). The convolution then has stride 1 and its filter (size / stride)² taps: 16 slices instead of 64 for
the first layer of the paper's network, 4 instead of 16 for the second. Otherwise every tap is a strided slice.

Max-pooling with stride 1 is the maximum of shifted slices, with its own backward pass. XLA's `reduce_window` and its
gradient are slow on CPU; slices are elementwise and fuse. Where several entries of a window are equal, the first one,
row by row, gets the whole gradient, as in `reduce_window`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import product
from math import prod
from typing import Any, Literal, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from expunge.core.checks import require_choice, require_count
from expunge.core.errors import ParameterError

Array = Any  # a jax.Array
Padding = Literal["SAME", "VALID"]


@dataclass(frozen=True)
class PatchGeometry:
    """Where the patches of images of one shape lie."""

    height: int
    width: int
    channels: int
    filter_size: int
    stride: int
    padding: Padding

    @property
    def out_height(self) -> int:
        """Rows of patches."""
        return self._out(self.height)

    @property
    def out_width(self) -> int:
        """Columns of patches."""
        return self._out(self.width)

    @property
    def num_patches(self) -> int:
        """Patches an image."""
        return self.out_height * self.out_width

    @property
    def patch_size(self) -> int:
        """Values a patch."""
        return self.filter_size**2 * self.channels

    @property
    def _block(self) -> int:
        return self.stride if self.filter_size % self.stride == 0 else 1

    def _out(self, size: int) -> int:
        return -(-size // self.stride) if self.padding == "SAME" else (size - self.filter_size) // self.stride + 1

    def _edges(self, size: int) -> tuple[int, int]:
        """How much the patches reach over the image on either side; negative where they do not reach its end."""
        over = (self._out(size) - 1) * self.stride + self.filter_size - size
        return (over // 2, over - over // 2) if self.padding == "SAME" and over > 0 else (0, over)

    def extract(self, x: Array) -> Array:
        """(batch, height, width, channels) → (batch, patches, values)."""
        fitted = self._fit(x)
        blocks = self._to_depth(fitted)
        taps = [self._tap(blocks, row, column) for row, column in self._tap_places()]
        return jnp.concatenate(taps, axis=-1).reshape(x.shape[0], self.num_patches, self.patch_size)

    def spread(self, patches: Array) -> Array:
        """The transpose of `extract`: what falls on every pixel, added up."""
        batch, places = patches.shape[0], self._tap_places()
        table = patches.reshape(batch, self.out_height, self.out_width, len(places), -1)
        step = self.stride // self._block
        rows, columns = (
            (self._out(size) - 1) * step + self.filter_size // self._block for size in (self.height, self.width)
        )
        total = None
        for number, (row, column) in enumerate(places):
            tap = table[:, :, :, number, :]
            used_rows, used_columns = (self.out_height - 1) * step + 1, (self.out_width - 1) * step + 1
            config = (
                (0, 0, 0),
                (row, rows - used_rows - row, step - 1),
                (column, columns - used_columns - column, step - 1),
                (0, 0, 0),
            )
            part = jax.lax.pad(tap, jnp.zeros((), tap.dtype), config)
            total = part if total is None else total + part
        assert total is not None
        return self._unfit(self._from_depth(total))

    def matrix(self, kernel: Array) -> Array:
        """A kernel (rows, columns, channels, outputs) as a matrix with the rows in the order of a patch's values."""
        block, taps = self._block, self.filter_size // self._block
        cut = kernel.reshape(taps, block, taps, block, self.channels, -1)
        return cut.transpose(0, 2, 1, 3, 4, 5).reshape(self.patch_size, -1)

    def kernel(self, matrix: Array) -> Array:
        """The inverse of `matrix`."""
        block, taps = self._block, self.filter_size // self._block
        cut = matrix.reshape(taps, taps, block, block, self.channels, -1)
        size = self.filter_size
        return cut.transpose(0, 2, 1, 3, 4, 5).reshape(size, size, self.channels, -1)

    def _tap_places(self) -> list[tuple[int, int]]:
        taps = range(self.filter_size // self._block)
        return [(row, column) for row in taps for column in taps]

    def _tap(self, blocks: Array, row: int, column: int) -> Array:
        step = self.stride // self._block
        rows = slice(row, row + (self.out_height - 1) * step + 1, step)
        columns = slice(column, column + (self.out_width - 1) * step + 1, step)
        return blocks[:, rows, columns, :]

    def _fit(self, x: Array) -> Array:
        (top, bottom), (left, right) = self._edges(self.height), self._edges(self.width)
        x = x[:, : self.height + min(bottom, 0), : self.width + min(right, 0), :]
        return jnp.pad(x, ((0, 0), (top, max(bottom, 0)), (left, max(right, 0)), (0, 0)))

    def _unfit(self, x: Array) -> Array:
        (top, bottom), (left, right) = self._edges(self.height), self._edges(self.width)
        x = x[:, top : top + self.height, left : left + self.width, :]
        return jnp.pad(x, ((0, 0), (0, max(-bottom, 0)), (0, max(-right, 0)), (0, 0)))

    def _to_depth(self, x: Array) -> Array:
        block = self._block
        if block == 1:
            return x
        batch, height, width, channels = x.shape
        cut = x.reshape(batch, height // block, block, width // block, block, channels)
        return cut.transpose(0, 1, 3, 2, 4, 5).reshape(batch, height // block, width // block, -1)

    def _from_depth(self, x: Array) -> Array:
        block = self._block
        if block == 1:
            return x
        batch, height, width, _ = x.shape
        cut = x.reshape(batch, height, width, block, block, self.channels)
        return cut.transpose(0, 1, 3, 2, 4, 5).reshape(batch, height * block, width * block, self.channels)


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def max_pool(x: Array, window: int) -> Array:
    """(batch, rows, columns, channels) → the maxima of all window × window squares."""
    pooled, _ = pool_with_winners(x, window)
    return pooled


def pool_with_winners(x: Array, window: int) -> tuple[Array, Array]:
    """The maxima, and for each of them which entry of its window it was (a byte: row · window + column)."""
    slices = [_shifted(x, window, *shift) for shift in product(range(window), repeat=2)]
    best, winner = slices[0], jnp.zeros(slices[0].shape, jnp.uint8)
    for number, candidate in enumerate(slices[1:], start=1):
        higher = candidate > best
        best = jnp.where(higher, candidate, best)
        winner = jnp.where(higher, jnp.uint8(number), winner)
    return best, winner


def unpool(cotangent: Array, winner: Array, window: int) -> Array:
    """The gradient of the pool's input: every maximum's gradient goes to the entry it came from."""
    more = window - 1
    total = None
    for number, (row, column) in enumerate(product(range(window), repeat=2)):
        part = jnp.where(winner == number, cotangent, jnp.zeros((), cotangent.dtype))
        padding = ((0, 0), (row, more - row), (column, more - column), (0, 0))
        part = jnp.pad(part, padding)
        total = part if total is None else total + part
    assert total is not None
    return total


def _shifted(x: Array, window: int, row: int, column: int) -> Array:
    height, width = x.shape[1] - window + 1, x.shape[2] - window + 1
    return x[:, row : row + height, column : column + width, :]


def _forward(x: Array, window: int) -> tuple[Array, Array]:
    return pool_with_winners(x, window)


def _backward(window: int, winner: Array, cotangent: Array) -> tuple[Array]:
    return (unpool(cotangent, winner, window),)


max_pool.defvjp(_forward, _backward)


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
        """The squared norm of the weights' gradient of every example, and intermediate results for `gradient`."""

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
    """A dense layer, x ↦ x·W + b.

    Parameters
    ----------
    units
        How many values it gives. None makes it the output layer, with one value for each class.

    Raises
    ------
    ParameterError
        If `units` is not a positive integer.

    Examples
    --------
    >>> Dense(32).out_shape((64,))
    (32,)
    """

    units: int | None = None

    def __post_init__(self) -> None:
        if self.units is not None:
            require_count("the number of units", self.units, most=2**31 - 1)

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
    """A square convolution, computed as patches times a matrix.

    Parameters
    ----------
    channels
        How many values it gives for each place.
    filter_size
        The length of the filter's sides.
    stride
        The distance between two places.
    padding
        "SAME" pads the image with zeros so that its edges count; "VALID" uses whole patches of the image alone.

    Raises
    ------
    ParameterError
        If an option is out of range.

    Examples
    --------
    >>> Conv(16, 8, stride=2, padding="SAME").out_shape((28, 28, 1))
    (14, 14, 16)
    """

    channels: int
    filter_size: int
    stride: int = 1
    padding: Padding = "VALID"

    def __post_init__(self) -> None:
        for name in ("channels", "filter_size", "stride"):
            require_count(name, getattr(self, name), most=2**31 - 1)
        require_choice("padding", self.padding, ("SAME", "VALID"))

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

        It is where that takes fewer operations than the products of the other form. It also saves the product in
        `gradient`. On a CPU, where arithmetic costs more than memory, that decides as long as the gradients take at
        most twice the memory of the patches they come from.
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
    """The hyperbolic tangent or ReLU of every value.

    Parameters
    ----------
    name
        "tanh" or "relu".

    Raises
    ------
    ParameterError
        If the name is another.

    Examples
    --------
    >>> Activation("tanh").out_shape((8, 8, 1))
    (8, 8, 1)
    """

    name: Literal["tanh", "relu"]

    def __post_init__(self) -> None:
        require_choice("the activation", self.name, ("tanh", "relu"))

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
    """Maxima over square windows with stride 1. Of equal values the first gets the gradient.

    Parameters
    ----------
    window
        The length of the window's sides, from 1 to 15.

    Raises
    ------
    ParameterError
        If the window is out of range.

    Examples
    --------
    >>> MaxPool(2).out_shape((14, 14, 16))
    (13, 13, 16)
    """

    window: int = 2

    def __post_init__(self) -> None:
        require_count("the window of a max-pool", self.window, most=15)

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
    """All values of an example in one row.

    Examples
    --------
    >>> Flatten().out_shape((8, 8, 1))
    (64,)
    """

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
