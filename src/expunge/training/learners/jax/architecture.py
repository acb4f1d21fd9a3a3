"""What a JAX learner trains: a built-in network, or anybody's pure functions, Equinox module or Flax module.

Modules of Equinox and Flax, looked at before they are trained: what would go wrong silently is refused.

Layers that draw random numbers (dropout) or keep running statistics (batch normalisation) need a key or a state at
every call, and behave differently in training and in voting. A learner calls a network as one pure function of weights
and examples, so it takes neither.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, Protocol, cast, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from expunge.core.errors import ExpungeError, InputError, ParameterError
from expunge.training.learners.jax.layers import Array, Shape, as_shape

_OWN_STATE_ERRORS = ("InvalidRngError", "ModifyScopeVariableError")  # of linen
_UNSUPPORTED = (
    "layers with randomness or running statistics of their own (dropout, batch normalisation) are not supported: "
    "use LayerNorm or GroupNorm, and weight decay"
)


def fixed_key() -> Any:
    """The key of everything about a network that is not trained."""
    return jax.random.key(0, impl="threefry2x32")


def is_module(given: Any) -> bool:
    """Whether it is a module of Equinox or NNX; nobody who has not imported either has one."""
    return _is_nnx(given) or ("equinox" in sys.modules and isinstance(given, sys.modules["equinox"].Module))


def check_module(make: Callable[[Any], Any]) -> Literal["nnx", "equinox"]:
    """Whose modules a function makes from a key; refuses those with a state of their own, and what is no module."""
    module = _traced(make)
    if _is_nnx(module):
        _check_nnx(module)
        return "nnx"
    _check_equinox(module)
    return "equinox"


def failure(error: Exception, shape: tuple[int, ...]) -> ParameterError:
    """One line about a network that cannot be applied."""
    if type(error).__name__ in _OWN_STATE_ERRORS:
        return own_state_error()
    return ParameterError(f"the network fails on a batch of examples of the shape {shape}: {one_line(error)}")


def own_state_error() -> ParameterError:
    """What is said about dropout and batch normalisation."""
    return ParameterError(_UNSUPPORTED)


def _traced(make: Callable[[Any], Any]) -> Any:
    """The module with nothing computed, to look at."""
    made: list[Any] = []
    try:
        jax.eval_shape(lambda key: made.append(make(key)), fixed_key())
    except Exception as error:
        raise ParameterError(f"the network's function does not make a module from a key: {one_line(error)}") from error
    return made[0]


def _is_nnx(given: Any) -> bool:
    if "flax" not in sys.modules:
        return False
    from flax import nnx

    return isinstance(given, nnx.Module)


def _check_nnx(module: Any) -> None:
    from flax import nnx

    if len(nnx.state(module, (nnx.RngState, nnx.BatchStat))):
        raise own_state_error()


def _check_equinox(module: Any) -> None:
    try:
        import equinox
    except ImportError:
        words = "a function from a key to a module needs Equinox or Flax NNX: pip install equinox"
        raise ParameterError(f"{words}; it made a {type(module).__name__}") from None

    layers = (equinox.nn.Dropout, equinox.nn.StateIndex)
    parts = jax.tree.leaves(module, is_leaf=lambda part: isinstance(part, layers))
    for part in parts:
        is_idle = isinstance(part, equinox.nn.Dropout) and (part.inference or part.p == 0)
        if isinstance(part, layers) and not is_idle:
            raise own_state_error()
    if not callable(module):
        raise ParameterError(f"the network's function must make a module from a key, got a {type(module).__name__}")


def one_line(error: Exception) -> str:
    """What kind of error, and its first line."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__


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
        """What the function gives, as arrays; it knows the number of classes itself."""
        return jax.tree.map(jnp.asarray, self.init_function(key))

    def apply(self, parameters: Any, x: Array) -> Array:
        """What the function gives."""
        return self.apply_function(parameters, x)


@dataclass(frozen=True)
class Equinox:
    """An Equinox module, from a function `make(key)`; the module takes one example. Only its floats are trained."""

    make: Callable[[Array], Any]
    input_shape: Shape

    def _split(self, key: Array) -> tuple[Any, Any]:
        import equinox

        return cast("tuple[Any, Any]", equinox.partition(self.make(key), equinox.is_inexact_array))

    def init(self, key: Array, num_classes: int) -> Any:
        """The module's arrays of floats."""
        return self._split(key)[0]

    def apply(self, parameters: Any, x: Array) -> Array:
        """The module of these arrays, of every example."""
        import equinox

        # What is not trained stays as a fixed key makes it.
        _, static = self._split(fixed_key())
        return cast("Array", jax.vmap(equinox.combine(parameters, static))(x))


@dataclass(frozen=True)
class Flax:
    """A Flax (linen) module, or anything with its `init(key, batch)` and `apply(variables, batch)`.

    Of a module's collections `params` is trained; the others stay as a fixed key makes them.
    """

    module: Any
    input_shape: Shape

    def init(self, key: Array, num_classes: int) -> Any:
        """The module's parameters."""
        variables = self._variables(key)
        return {"params": variables["params"]} if _has_params(variables) else variables

    def apply(self, parameters: Any, x: Array) -> Array:
        """The module's scores."""
        others = self._others()
        return cast("Array", self.module.apply({**others, **parameters} if others else parameters, x))

    def _variables(self, key: Array) -> Any:
        return self.module.init(key, jnp.zeros((1, *self.input_shape)))

    def _others(self) -> dict[str, Any]:
        """The collections that are not trained, computed once a compilation; nothing where there are none."""
        found = jax.eval_shape(self._variables, fixed_key())
        if not _has_params(found) or len(found) == 1:
            return {}
        if "batch_stats" in found:
            raise own_state_error()
        with jax.ensure_compile_time_eval():
            variables = self._variables(fixed_key())
        return {name: value for name, value in variables.items() if name != "params"}

    def __hash__(self) -> int:
        """Not of the module's own fields, which may be lists; equal modules are of one type."""
        return hash((type(self.module), self.input_shape))

    def __eq__(self, other: object) -> bool:
        """Modules whose fields cannot be compared (arrays) are equal if they are the same one."""
        if not isinstance(other, Flax) or self.input_shape != other.input_shape:
            return False
        try:
            return self.module is other.module or bool(self.module == other.module)
        except (TypeError, ValueError):
            return False


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
        definition, _, others = self._split(fixed_key())
        return cast("Array", nnx.merge(definition, parameters, others)(x))


def as_architecture(given: Any, input_shape: Shape | None) -> Architecture:
    """A built-in network as it is; a pair of functions, a module or a module's factory wrapped."""
    if isinstance(given, Architecture) and not isinstance(given, type):
        if input_shape is not None and as_shape(input_shape) != tuple(given.input_shape):
            raise ParameterError(f"input_shape {input_shape} contradicts the network's own, {given.input_shape}")
        if isinstance(given, Equinox | FlaxNNX):
            check_module(given.make)
        return given
    if is_module(given):
        raise ParameterError(
            f"the network must be a function from a key to a {type(given).__name__}, got the module itself"
        )
    if input_shape is None:
        raise ParameterError("input_shape must be given with functions or modules of your own")
    shape = as_shape(input_shape)
    if isinstance(given, tuple) and len(given) == 2 and all(callable(part) for part in given):
        return Functions(given[0], given[1], shape)
    if hasattr(given, "init") and hasattr(given, "apply"):
        if isinstance(given, type):
            raise ParameterError(f"the network must be a Flax module, got its class {given.__name__}")
        return Flax(given, shape)
    if callable(given):
        return FlaxNNX(given, shape) if check_module(given) == "nnx" else Equinox(given, shape)
    raise ParameterError(f"the network must be a Network, (init, apply), a Flax module or key -> module, got {given!r}")


def check_rows(architecture: Architecture, rows: Any, *, what: str = "rows") -> None:
    """Refuse rows that are not examples of the network: of its shape but for axes of length one, unless one is flat.

    A picture with its colours in front has as many numbers, and would be scrambled.
    """
    shape = np.shape(rows)[1:]
    found, wanted = ([length for length in given if length != 1] for given in (shape, architecture.input_shape))
    if math.prod(found) != math.prod(wanted) or (min(len(found), len(wanted)) > 1 and found != wanted):
        raise InputError(f"{what} of the shape {shape} do not fit the network's input_shape {architecture.input_shape}")


@lru_cache(maxsize=64)
def check_scores(architecture: Architecture, num_classes: int) -> None:
    """Refuse a network without weights, or that does not give one score a class; computes nothing."""

    def trace() -> tuple[Any, Any]:
        parameters = architecture.init(fixed_key(), num_classes)
        return parameters, architecture.apply(parameters, jnp.zeros((2, *architecture.input_shape), jnp.float32))

    try:
        weights, scores = jax.eval_shape(trace)
    except ExpungeError:
        raise
    except Exception as error:
        raise failure(error, architecture.input_shape) from error
    if not jax.tree.leaves(weights):
        raise ParameterError("the network has no weights to train")
    found = getattr(scores, "shape", None)
    if found != (2, num_classes):
        raise ParameterError(
            f"the network must give {num_classes} scores an example, one a class; of two examples it gives the shape "
            f"{found}"
        )


def _has_params(variables: Any) -> bool:
    return isinstance(variables, Mapping) and "params" in variables
