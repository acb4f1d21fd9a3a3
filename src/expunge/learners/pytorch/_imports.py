"""Torch and Opacus, loaded when first used; the user's own functions, found by name; and what they complain of."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from expunge.errors import ParameterError

Named = Callable[..., Any] | str


class MissingExtraError(ParameterError, ImportError):
    """An optional package is not installed."""


def import_extra(name: str) -> Any:
    """The module `name` of torch or Opacus, or one line that says how to install it."""
    package = name.partition(".")[0]
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != package:
            raise
        message = f"this needs {package}, which is not installed: pip install 'expunge[torch]'"
        raise MissingExtraError(message) from None


def resolve(named: Named, *, option: str) -> Callable[..., Any]:
    """A callable as it is, or the one that 'package.module:name' stands for."""
    found: Any = named
    if isinstance(named, str):
        module, colon, path = named.partition(":")
        if not (module and colon and path):
            raise ParameterError(f"{option} must be a callable or 'package.module:name', got {named!r}")
        try:
            found = import_module(module)
            for name in path.split("."):
                found = getattr(found, name)
        except (ImportError, AttributeError) as error:
            raise ParameterError(f"{option} {named!r} cannot be found: {error}") from None
    if not callable(found):
        raise ParameterError(f"{option} must be a callable or 'package.module:name', got {named!r}")
    return found  # type: ignore[no-any-return]


def first_line(error: Exception) -> str:
    """What torch, Opacus or the user's module says, without the pages that may follow."""
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}".removesuffix(": ")
