"""Optimisers as plain data, so that a learner can be stored; any Optax transformation works too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import optax

from expunge.errors import ParameterError
from expunge.learners.jax._options import is_number


@dataclass(frozen=True)
class Optimizer:
    """An Optax optimiser by its name and numbers: `Optimizer("adam", {"learning_rate": 1e-3})`, or pairs of them."""

    name: str
    arguments: tuple[tuple[str, float | bool], ...]

    def __init__(self, name: str, arguments: Mapping[str, float | bool] | Iterable[tuple[str, float | bool]]) -> None:
        if not isinstance(name, str):
            raise ParameterError(f"an optimiser's name must be a text, got {name!r}")
        try:
            pairs = tuple(dict(arguments).items())
        except (TypeError, ValueError):
            raise ParameterError(f"an optimiser's arguments must be names with numbers, got {arguments!r}") from None
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "arguments", pairs)

    def build(self) -> optax.GradientTransformation:
        """The transformation."""
        make = getattr(optax, self.name, None)
        if not callable(make):
            raise ParameterError(f"Optax has no optimiser {self.name!r}")
        try:
            made = make(**dict(self.arguments))
        except (TypeError, ValueError) as error:
            raise ParameterError(f"the optimizer {self.name!r} of Optax refuses its arguments: {error}") from error
        if not isinstance(made, optax.GradientTransformation):
            raise ParameterError(f"{self.name!r} of Optax is no optimiser, but makes a {type(made).__name__}")
        return made


def sgd(learning_rate: float, *, momentum: float = 0.0) -> Optimizer:
    """Stochastic gradient descent."""
    _check_rate(learning_rate)
    if not is_number(momentum) or not 0 <= momentum < 1:
        raise ParameterError(f"momentum must be in [0, 1), got {momentum!r}")
    return Optimizer("sgd", (("learning_rate", learning_rate), ("momentum", momentum)))


def adam(learning_rate: float) -> Optimizer:
    """Adam with Optax's defaults."""
    _check_rate(learning_rate)
    return Optimizer("adam", (("learning_rate", learning_rate),))


def _check_rate(learning_rate: Any) -> None:
    if not is_number(learning_rate) or learning_rate <= 0:
        raise ParameterError(f"learning_rate must be a positive number, got {learning_rate!r}")


def as_transformation(given: Any) -> optax.GradientTransformation:
    """The Optax transformation behind an `Optimizer`, or the given one."""
    if isinstance(given, Optimizer):
        return given.build()
    if hasattr(given, "init") and hasattr(given, "update"):
        return given
    raise ParameterError(f"the optimizer must be an Optimizer or an Optax transformation, got {given!r}")
