"""What a JAX learner trains: a built-in network, or anybody's pure functions, Equinox module or Flax module."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol, cast, runtime_checkable

import jax
import jax.numpy as jnp
from numpy.typing import NDArray

from expunge.errors import InputError, ParameterError
from expunge.learners.jax.layers import Array, Shape, as_shape


@runtime_checkable
class Architecture(Protocol):
    """Two pure functions and the shape of an example."""

    @property
    def input_shape(self) -> Shape:
        """Of one example; rows of features are given this shape."""

    def init(self, key: Array, num_classes: int) -> Any:
        """Fresh weights, any tree of arrays."""

    def apply(self, parameters: Any, x: Array) -> Array:
        """Scores of a batch, (batch, classes)."""


@dataclass(frozen=True)
class Functions:
    """`init(key) -> parameters` and `apply(parameters, batch) -> scores`, as they are."""

    init_function: Callable[[Array], Any]
    apply_function: Callable[[Any, Array], Array]
    input_shape: Shape

    def init(self, key: Array, num_classes: int) -> Any:
        """What the function gives; it knows the number of classes itself."""
        return self.init_function(key)

    def apply(self, parameters: Any, x: Array) -> Array:
        """What the function gives."""
        return self.apply_function(parameters, x)


@dataclass(frozen=True)
class Equinox:
    """An Equinox module, from a function `make(key)`; the module takes one example."""

    make: Callable[[Array], Any]
    input_shape: Shape

    def _split(self, key: Array) -> tuple[Any, Any]:
        import equinox

        return cast("tuple[Any, Any]", equinox.partition(self.make(key), equinox.is_array))

    def init(self, key: Array, num_classes: int) -> Any:
        """The module's arrays."""
        return self._split(key)[0]

    def apply(self, parameters: Any, x: Array) -> Array:
        """The module of these arrays, of every example."""
        import equinox

        # What is not an array does not depend on the key, so any key gives it.
        _, static = self._split(jax.random.key(0, impl="threefry2x32"))
        return cast("Array", jax.vmap(equinox.combine(parameters, static))(x))


@dataclass(frozen=True)
class Flax:
    """A Flax (linen) module, or anything with its `init(key, batch)` and `apply(variables, batch)`."""

    module: Any
    input_shape: Shape

    def init(self, key: Array, num_classes: int) -> Any:
        """The module's variables."""
        return self.module.init(key, jnp.zeros((1, *self.input_shape)))

    def apply(self, parameters: Any, x: Array) -> Array:
        """The module's scores."""
        return cast("Array", self.module.apply(parameters, x))


@dataclass(frozen=True)
class FlaxNNX:
    """A Flax NNX module, from a function `make(key)`; the module takes a batch. Only its `Param`s are trained."""

    make: Callable[[Array], Any]
    input_shape: Shape

    def _split(self, key: Array) -> tuple[Any, Any, Any]:
        from flax import nnx

        definition, parameters, others = nnx.split(self.make(key), nnx.Param, ...)
        return definition, parameters, others

    def init(self, key: Array, num_classes: int) -> Any:
        """The module's parameters."""
        return self._split(key)[1]

    def apply(self, parameters: Any, x: Array) -> Array:
        """The module with these parameters, of a batch."""
        from flax import nnx

        # What is no parameter stays as a fixed key makes it.
        definition, _, others = self._split(jax.random.key(0, impl="threefry2x32"))
        return cast("Array", nnx.merge(definition, parameters, others)(x))


def as_architecture(given: Any, input_shape: Shape | None) -> Architecture:
    """A built-in network as it is; a pair of functions, a module or a module's factory wrapped."""
    if isinstance(given, Architecture):
        return given
    if input_shape is None:
        raise ParameterError("input_shape must be given with functions or modules of your own")
    shape = as_shape(input_shape)
    if isinstance(given, tuple) and len(given) == 2 and all(callable(part) for part in given):
        return Functions(given[0], given[1], shape)
    if hasattr(given, "init") and hasattr(given, "apply"):
        return Flax(given, shape)
    if callable(given):
        return FlaxNNX(given, shape) if _makes_nnx(given) else Equinox(given, shape)
    raise ParameterError(f"the network must be a Network, (init, apply), a Flax module or key -> module, got {given!r}")


def check_rows(architecture: Architecture, rows: NDArray[Any]) -> None:
    """Refuse rows that are not examples of the network."""
    if math.prod(rows.shape[1:]) != math.prod(architecture.input_shape):
        raise InputError(
            f"rows of the shape {rows.shape[1:]} do not fit the network's input_shape {architecture.input_shape}"
        )


@lru_cache(maxsize=64)
def check_scores(architecture: Architecture, num_classes: int) -> None:
    """Refuse a network that does not give one score a class; computes nothing."""

    def scores() -> Any:
        parameters = architecture.init(jax.random.key(0, impl="threefry2x32"), num_classes)
        return architecture.apply(parameters, jnp.zeros((2, *architecture.input_shape), jnp.float32))

    found = getattr(jax.eval_shape(scores), "shape", None)
    if found != (2, num_classes):
        raise ParameterError(
            f"the network must give {num_classes} scores an example, one a class; of two examples it gives the shape "
            f"{found}"
        )


def _makes_nnx(make: Callable[[Array], Any]) -> bool:
    """Whether a function from a key makes modules of Flax NNX; nobody who has not imported Flax has one."""
    if "flax" not in sys.modules:
        return False
    from flax import nnx

    return isinstance(make(jax.random.key(0, impl="threefry2x32")), nnx.Module)
