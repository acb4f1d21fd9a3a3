"""What a JAX learner trains: a built-in network, your own pure functions, or a module of Equinox or Flax.

The built-in networks are the paper's (its appendix on experiments), a multi-layer perceptron and a logistic model. A
`Network` is plain data, so learners made of it can be stored and sent to other processes.

Modules of Equinox and Flax are checked before they are trained, and what would go wrong silently is refused. Layers
that draw random numbers (dropout) or keep running statistics (batch normalisation) need a key or a state at every call,
and behave differently in training and in voting. A learner calls a network as one pure function of weights and
examples, so it takes neither.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, Protocol, cast, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from expunge.core.checks import require_choice
from expunge.core.errors import ExpungeError, InputError, ParameterError
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
_OWN_STATE_ERRORS = ("InvalidRngError", "ModifyScopeVariableError")  # of linen
_UNSUPPORTED = (
    "layers with randomness or running statistics of their own (dropout, batch normalisation) are not supported: "
    "use LayerNorm or GroupNorm, and weight decay"
)


@runtime_checkable
class Architecture(Protocol):
    """What a learner needs of a network: two pure functions and the shape of an example."""

    @property
    def input_shape(self) -> Shape:
        """The shape of one example. Rows of features are given this shape."""

    def init(self, key: Array, num_classes: int) -> Any:
        """Fresh weights, any tree of arrays."""

    def apply(self, parameters: Any, x: Array) -> Array:
        """Scores of a batch, (batch, classes)."""


@dataclass(frozen=True)
class Network:
    """Layers one after another, from examples of one shape to a score for each class.

    It is plain data: it can be stored, compared and sent to other processes.

    Parameters
    ----------
    layers
        The layers in order. The last one gives a score for each class, as `Dense()` does.
    input_shape
        The shape of one example.
    precision
        The type of the products' operands, "float32" or "bfloat16". Weights, sums and everything else are float32.

    Raises
    ------
    ParameterError
        If there is no layer, or the layers do not fit one another.

    Examples
    --------
    >>> network = Network((Flatten(), Dense(32), Activation("relu"), Dense()), input_shape=(8, 8))
    >>> network.num_parameters(10)
    2410
    """

    layers: tuple[Layer, ...]
    input_shape: Shape
    precision: Precision = "float32"

    def __post_init__(self) -> None:
        require_choice("precision", self.precision, _DTYPES)
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
        """The layers, with an output layer for so many classes."""
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
        """Fresh weights: a dictionary for each layer."""
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
        """The number of weights."""
        shapes = jax.eval_shape(lambda: self.init(jax.random.key(0), num_classes))
        return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes))

    def example_operations(self, num_classes: int) -> dict[str, int]:
        """Multiplications and additions for one example: of a forward pass, and of a clipped gradient with it.

        Only products are counted. Of a convolution's two ways to compute norms, the one with fewer operations counts.
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

    The paper's listing has the activation before the pool. Both are monotone, so pooling first gives the same function,
    with fewer activations to compute. The pools have stride 1.

    Parameters
    ----------
    activation
        "tanh" as in the paper's listing, or "relu" as in its released code for CIFAR-10.
    input_shape
        The shape of one image: rows, columns, channels.
    precision
        The type of the products' operands, "float32" or "bfloat16".

    Returns
    -------
    Network
        The network.

    Raises
    ------
    ParameterError
        If an option is none of these, or the images are too small.

    Examples
    --------
    >>> paper_network().num_parameters(10)
    26010
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
    """A multi-layer perceptron: dense layers, an activation after each, and the output layer.

    Parameters
    ----------
    hidden
        The widths of the layers before the output layer.
    input_shape
        The shape of one example.
    activation
        "relu" or "tanh".
    precision
        The type of the products' operands, "float32" or "bfloat16".

    Returns
    -------
    Network
        The network.

    Raises
    ------
    ParameterError
        If an option is out of range.

    Examples
    --------
    >>> mlp(hidden=(32,), input_shape=(64,)).num_parameters(10)
    2410
    """
    if not isinstance(hidden, Sequence):
        raise ParameterError(f"hidden must be a sequence of widths, as (64,), got {hidden!r}")
    layers: list[Layer] = [Flatten()]
    for width in hidden:
        layers += [Dense(width), Activation(activation)]
    return Network((*layers, Dense()), as_shape(input_shape), precision)


def logistic(*, input_shape: Shape, precision: Precision = "float32") -> Network:
    """Multinomial logistic regression.

    Parameters
    ----------
    input_shape
        The shape of one example.
    precision
        The type of the products' operands, "float32" or "bfloat16".

    Returns
    -------
    Network
        The network.

    Raises
    ------
    ParameterError
        If an option is out of range.

    Examples
    --------
    >>> logistic(input_shape=(64,)).num_parameters(10)
    650
    """
    return mlp(hidden=(), input_shape=input_shape, precision=precision)


@dataclass(frozen=True)
class Functions:
    """A network of your own, as two pure functions.

    Parameters
    ----------
    init_function
        `init(key) -> parameters`: fresh weights, as any tree of arrays.
    apply_function
        `apply(parameters, batch) -> scores`: a score for each class of every example.
    input_shape
        The shape of one example.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> network = Functions(lambda key: jnp.zeros((4, 3)), lambda weights, x: x @ weights, (4,))
    >>> network.apply(network.init(None, 3), jnp.ones((2, 4))).shape
    (2, 3)
    """

    init_function: Callable[[Array], Any]
    apply_function: Callable[[Any, Array], Array]
    input_shape: Shape

    def init(self, key: Array, num_classes: int) -> Any:
        """Fresh weights as arrays. The function knows the number of classes itself."""
        return jax.tree.map(jnp.asarray, self.init_function(key))

    def apply(self, parameters: Any, x: Array) -> Array:
        """Scores of a batch, (batch, classes)."""
        return self.apply_function(parameters, x)


@dataclass(frozen=True)
class Equinox:
    """An Equinox module. It takes one example. Only its arrays of floats are trained.

    What is not trained stays as one fixed key makes it, the same in every shard.

    Parameters
    ----------
    make
        A function from a key to a module.
    input_shape
        The shape of one example.
    """

    make: Callable[[Array], Any]
    input_shape: Shape

    def _split(self, key: Array) -> tuple[Any, Any]:
        import equinox

        return cast("tuple[Any, Any]", equinox.partition(self.make(key), equinox.is_inexact_array))

    def init(self, key: Array, num_classes: int) -> Any:
        """The module's arrays of floats."""
        return self._split(key)[0]

    def apply(self, parameters: Any, x: Array) -> Array:
        """Scores of every example by the module with these arrays."""
        import equinox

        # What is not trained stays as a fixed key makes it.
        _, static = self._split(fixed_key())
        return cast("Array", jax.vmap(equinox.combine(parameters, static))(x))


@dataclass(frozen=True)
class Flax:
    """A Flax (linen) module, or anything with its `init(key, batch)` and `apply(variables, batch)`.

    Of a module's collections `params` is trained. The others stay as one fixed key makes them.

    Parameters
    ----------
    module
        The module.
    input_shape
        The shape of one example.
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
        """The collections that are not trained, computed once for each compilation."""
        found = jax.eval_shape(self._variables, fixed_key())
        if not _has_params(found) or len(found) == 1:
            return {}
        if "batch_stats" in found:
            raise own_state_error()
        with jax.ensure_compile_time_eval():
            variables = self._variables(fixed_key())
        return {name: value for name, value in variables.items() if name != "params"}

    def __hash__(self) -> int:
        """Leave out the module's own fields, which may be lists. Equal modules are of one type."""
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
    """A Flax NNX module. It takes a batch. Only its `Param`s are trained.

    What is not trained stays as one fixed key makes it, the same in every shard.

    Parameters
    ----------
    make
        A function from a key to a module.
    input_shape
        The shape of one example.
    """

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
        """Scores of a batch by the module with these parameters."""
        from flax import nnx

        # What is no parameter stays as a fixed key makes it.
        definition, _, others = self._split(fixed_key())
        return cast("Array", nnx.merge(definition, parameters, others)(x))


def _has_params(variables: Any) -> bool:
    return isinstance(variables, Mapping) and "params" in variables


def as_architecture(given: Any, input_shape: Shape | None) -> Architecture:
    """Wrap a pair of functions, a module or a module's factory. A built-in network stays as it is."""
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
    """Refuse rows that do not fit the network: they need its shape, up to axes of length one, unless one is flat.

    A picture whose colours come first has the same number of values, and would be scrambled.
    """
    shape = np.shape(rows)[1:]
    found, wanted = ([length for length in given if length != 1] for given in (shape, architecture.input_shape))
    if math.prod(found) != math.prod(wanted) or (min(len(found), len(wanted)) > 1 and found != wanted):
        raise InputError(f"{what} of the shape {shape} do not fit the network's input_shape {architecture.input_shape}")


@lru_cache(maxsize=64)
def check_scores(architecture: Architecture, num_classes: int) -> None:
    """Refuse a network that has no weights or does not give one score for each class. Computes nothing."""

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


def fixed_key() -> Any:
    """The key from which everything is made that is not trained."""
    return jax.random.key(0, impl="threefry2x32")


def is_module(given: Any) -> bool:
    """Whether it is a module of Equinox or NNX. A program that has imported neither has none."""
    return _is_nnx(given) or ("equinox" in sys.modules and isinstance(given, sys.modules["equinox"].Module))


def check_module(make: Callable[[Any], Any]) -> Literal["nnx", "equinox"]:
    """Name the library whose modules a function makes from a key. Refuse modules with a state of their own."""
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
    """The error about dropout and batch normalisation."""
    return ParameterError(_UNSUPPORTED)


def _traced(make: Callable[[Any], Any]) -> Any:
    """Make the module without computing anything, to inspect it."""
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
    """The error's type and its first line."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
