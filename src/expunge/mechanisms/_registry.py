"""Mechanisms by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType

from expunge.errors import ParameterError
from expunge.mechanisms._exponential import ExponentialMechanism
from expunge.mechanisms._gaussian import ConfidentGaussianNoisyMax, GaussianNoisyMax
from expunge.mechanisms._laplace import LaplaceNoisyMax
from expunge.mechanisms._majority import Majority
from expunge.mechanisms._mechanism import Mechanism
from expunge.mechanisms._permute_and_flip import PermuteAndFlip

Constructor = Callable[..., Mechanism]

# Each name with the ways to build it, told apart by the names of their parameters.
_CONSTRUCTORS: Mapping[str, tuple[Constructor, ...]] = MappingProxyType(
    {
        ExponentialMechanism.name: (ExponentialMechanism,),
        PermuteAndFlip.name: (PermuteAndFlip,),
        LaplaceNoisyMax.name: (LaplaceNoisyMax,),
        GaussianNoisyMax.name: (GaussianNoisyMax, GaussianNoisyMax.from_epsilon),
        ConfidentGaussianNoisyMax.name: (ConfidentGaussianNoisyMax, ConfidentGaussianNoisyMax.from_epsilon),
        Majority.name: (Majority,),
    }
)

MECHANISM_NAMES: tuple[str, ...] = tuple(_CONSTRUCTORS)
"""The names that `mechanism` knows."""


def mechanism(name: str, **parameters: float) -> Mechanism:
    """The mechanism of that name, as in `mechanism("exponential", epsilon=0.1)`.

    The Gaussian ones take their noise (`sigma`, …), or `epsilon` for as much zCDP as the exponential mechanism there.
    """
    if name not in _CONSTRUCTORS:
        raise ParameterError(f"mechanism must be one of {', '.join(_CONSTRUCTORS)}, got {name!r}")
    signatures = {constructor: tuple(inspect.signature(constructor).parameters) for constructor in _CONSTRUCTORS[name]}
    for constructor, expected in signatures.items():
        if set(expected) == set(parameters):
            return constructor(**parameters)
    choices = " or ".join(f"({', '.join(expected)})" for expected in signatures.values())
    raise ParameterError(f"mechanism {name!r} takes the parameters {choices}, got ({', '.join(parameters)})")
