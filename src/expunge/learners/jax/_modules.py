"""Modules of Equinox and Flax, looked at before they are trained: what would go wrong silently is refused.

Layers that draw random numbers (dropout) or keep running statistics (batch normalisation) need a key or a state at
every call, and behave differently in training and in voting. A learner calls a network as one pure function of weights
and examples, so it takes neither.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Literal

import jax

from expunge.errors import ParameterError

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
