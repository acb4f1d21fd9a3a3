"""The JAX stack is an extra: whoever has not got it is told in one line how to get it."""

from __future__ import annotations

from importlib import import_module

from expunge.errors import ExpungeError

_NEEDED = ("jax", "optax")


class MissingExtraError(ExpungeError, ImportError):
    """A part of expunge was used whose optional packages are not installed."""


def require_jax() -> None:
    """Nothing where JAX and Optax can be imported, a one-line error otherwise."""
    for name in _NEEDED:
        try:
            import_module(name)
        except ImportError as error:
            message = f"the JAX learner needs {name}, which is not installed: pip install 'expunge[jax]'"
            raise MissingExtraError(message) from error
