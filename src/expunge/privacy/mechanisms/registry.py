"""Mechanisms by name.

Plain plurality, without privacy.

How much noise a vote can bear: the mechanism that answers a unanimous vote rightly often enough.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray

from expunge.core.checks import require_choice, require_number
from expunge.core.errors import ParameterError
from expunge.core.randomness import Randomness
from expunge.privacy.accounting.events import NonPrivate
from expunge.privacy.mechanisms.choice import ExponentialMechanism, PermuteAndFlip
from expunge.privacy.mechanisms.mechanism import Mechanism
from expunge.privacy.mechanisms.noisy_max import ConfidentGaussianNoisyMax, GaussianNoisyMax, LaplaceNoisyMax


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class Majority(Mechanism):
    """The class with the most votes; of several, and of none, the lowest class code.

    Sensitivity: one vote can turn a near tie for certain.
    Privacy: none, `NonPrivate()`: accountants answer ∞ and the guarantee is vacuous. The tie rule is a fixed order of
    the classes, so ties say nothing of the order of the shards.
    Utility: the most votes always win.
    """

    name: ClassVar[str] = "majority"

    @property
    def event(self) -> NonPrivate:
        """No bound at all."""
        return NonPrivate()

    def _release(self, counts: NDArray[np.int64], rng: Randomness) -> NDArray[np.int64]:
        winners: NDArray[np.int64] = np.argmax(counts, axis=1)
        return winners

    def _law(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        law = np.zeros(len(counts))
        law[np.argmax(counts)] = 1
        return law


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
    require_choice("mechanism", name, MECHANISM_NAMES)
    signatures = {constructor: tuple(inspect.signature(constructor).parameters) for constructor in _CONSTRUCTORS[name]}
    for constructor, expected in signatures.items():
        if set(expected) == set(parameters):
            return constructor(**parameters)
    choices = " or ".join(f"({', '.join(expected)})" for expected in signatures.values())
    raise ParameterError(f"mechanism {name!r} takes the parameters {choices}, got ({', '.join(parameters)})")


def calibrated_mechanism(
    name: str,
    *,
    num_shards: int,
    num_classes: int,
    share: float = 1.0,
    accuracy: float = 0.99,
    threshold_share: float = 0.6,
) -> Mechanism:
    """The mechanism of that name with the smallest ε0 whose answer to a vote of this `share` is right that often.

    For the exponential mechanism and a unanimous vote of two classes that is ε0 = 2 ln(accuracy/(1−accuracy)) / k. A
    confident mechanism declines below `threshold_share` of the votes, and a declined answer is not a right one.
    """
    require_choice("mechanism", name, MECHANISM_NAMES)
    if name == Majority.name:
        return Majority()
    require_number("accuracy", accuracy, above=0, below=1)
    sizes = {"share": share, "num_shards": num_shards, "num_classes": max(2, num_classes)}

    fixed = {"threshold": threshold_share * num_shards} if name == ConfidentGaussianNoisyMax.name else {}

    def enough(log_epsilon: float) -> bool:
        found = mechanism(name, epsilon=math.exp(log_epsilon), **fixed)
        return found.accuracy(**sizes) >= accuracy  # type: ignore[arg-type]

    low, high = math.log(1e-9), math.log(1e4)
    if not enough(high):
        raise ParameterError(f"no noise level answers a vote of share {share!r} rightly with probability {accuracy!r}")
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return mechanism(name, epsilon=math.exp(high), **fixed)
