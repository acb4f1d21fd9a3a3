"""Built-in networks: the paper's (its appendix on experiments), a multi-layer perceptron, a logistic model.

A `Network` is plain data, so that learners made of it can be stored and sent to other processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Literal

import jax
import jax.numpy as jnp

from expunge.core.errors import ParameterError
from expunge.training.learners.jax.layers import (
    Activation,
    Array,
    Conv,
    Dense,
    Flatten,
    Layer,
    MaxPool,
    Parameters,
    Shape,
    as_shape,
)

Precision = Literal["float32", "bfloat16"]
_DTYPES = {"float32": jnp.float32, "bfloat16": jnp.bfloat16}


@dataclass(frozen=True)
class Network:
    """Layers one after another, from examples of `input_shape` to a score a class.

    `precision` is that of the products' operands; weights, sums and everything else are float32.
    """

    layers: tuple[Layer, ...]
    input_shape: Shape
    precision: Precision = "float32"

    def __post_init__(self) -> None:
        if self.precision not in _DTYPES:
            raise ParameterError(f"precision must be one of {', '.join(_DTYPES)}, got {self.precision!r}")
        object.__setattr__(self, "input_shape", as_shape(self.input_shape))
        if not isinstance(self.layers, Sequence) or not self.layers:
            raise ParameterError(f"layers must be a sequence of at least one layer, got {self.layers!r}")
        object.__setattr__(self, "layers", tuple(self.layers))
        for layer in self.layers:
            if isinstance(layer, type) or not callable(getattr(layer, "forward", None)):
                raise ParameterError(f"layers must be layers, as Dense(32), got {layer!r}")
        self.shapes(2)  # layers that do not fit one another are an error here, not in training

    @property
    def dtype(self) -> Any:
        """What products are computed in."""
        return _DTYPES[self.precision]

    def sized_layers(self, num_classes: int) -> tuple[Layer, ...]:
        """The layers, with an output layer that wide."""
        return tuple(
            replace(layer, units=num_classes) if isinstance(layer, Dense) and layer.units is None else layer
            for layer in self.layers
        )

    def shapes(self, num_classes: int) -> list[Shape]:
        """The shape of an example before every layer, and after the last."""
        shapes = [self.input_shape]
        for layer in self.sized_layers(num_classes):
            shapes.append(layer.out_shape(shapes[-1]))
        return shapes

    def init(self, key: Array, num_classes: int) -> list[Parameters]:
        """Fresh weights: a dictionary a layer."""
        shapes = self.shapes(num_classes)
        if shapes[-1] != (num_classes,):
            raise ParameterError(
                f"the network's output has the shape {shapes[-1]} where there are {num_classes} classes"
            )
        layers = self.sized_layers(num_classes)
        keys = jax.random.split(key, len(layers))
        return [layer.init(own, shape) for layer, own, shape in zip(layers, keys, shapes[:-1], strict=True)]

    def apply(self, parameters: Sequence[Parameters], x: Array) -> Array:
        """Scores of a batch, (batch, classes)."""
        out = x.reshape(x.shape[0], *self.input_shape)
        for layer, own in zip(self.layers, parameters, strict=True):
            out = layer.apply(out) if isinstance(layer, MaxPool) else layer.forward(own, out, self.dtype)[0]
        return out

    def num_parameters(self, num_classes: int) -> int:
        """How many weights there are."""
        shapes = jax.eval_shape(lambda: self.init(jax.random.key(0), num_classes))
        return sum(prod(leaf.shape) for leaf in jax.tree.leaves(shapes))

    def example_operations(self, num_classes: int) -> dict[str, int]:
        """Multiplications and additions of one example: of a forward pass, and of a clipped gradient with it.

        Products alone, and of a convolution's two ways to its norms the one that takes fewer.
        """
        shapes = self.shapes(num_classes)
        forward, gradient, is_first = 0, 0, True
        for layer, shape in zip(self.sized_layers(num_classes), shapes[:-1], strict=True):
            if isinstance(layer, Dense):
                own = shape[0] * layer.out_shape(shape)[0]
                clipped = own + shape[0]
            elif isinstance(layer, Conv):
                found = layer.geometry(shape)
                own = found.num_patches * found.patch_size * layer.channels
                # The direct norm is the example's gradient itself, which then only has to be added up.
                direct = own + found.patch_size * layer.channels
                gram = found.num_patches**2 * (found.patch_size + layer.channels) + own
                clipped = min(direct, gram)
            else:
                continue
            forward += own
            gradient += own + clipped + (0 if is_first else own)
            is_first = False
        return {"forward": 2 * forward, "gradient": 2 * gradient}


def paper_network(
    *,
    activation: Literal["tanh", "relu"] = "tanh",
    input_shape: Shape = (28, 28, 1),
    precision: Precision = "float32",
) -> Network:
    """The network of the paper's experiments: 26,010 weights on 28 × 28 × 1 and ten classes.

    The listing has the activation before the pool. Both are monotone, so pooling first gives the same function, with
    fewer activations to compute. The pools have stride 1.
    """
    layers = (
        Conv(16, 8, stride=2, padding="SAME"),
        MaxPool(2),
        Activation(activation),
        Conv(32, 4, stride=2, padding="VALID"),
        MaxPool(2),
        Activation(activation),
        Flatten(),
        Dense(32),
        Activation(activation),
        Dense(),
    )
    return Network(layers, as_shape(input_shape), precision)


def mlp(
    *,
    hidden: Sequence[int] = (64,),
    input_shape: Shape,
    activation: Literal["tanh", "relu"] = "relu",
    precision: Precision = "float32",
) -> Network:
    """Dense layers of the given widths, an activation after each, and the output layer."""
    if not isinstance(hidden, Sequence):
        raise ParameterError(f"hidden must be a sequence of widths, as (64,), got {hidden!r}")
    layers: list[Layer] = [Flatten()]
    for width in hidden:
        layers += [Dense(width), Activation(activation)]
    return Network((*layers, Dense()), as_shape(input_shape), precision)


def logistic(*, input_shape: Shape, precision: Precision = "float32") -> Network:
    """Multinomial logistic regression."""
    return mlp(hidden=(), input_shape=input_shape, precision=precision)
