"""Mechanisms by name, calibration to a wanted accuracy, and plain majority, which has no privacy."""

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
from expunge.privacy.mechanisms.consensus import plurality
from expunge.privacy.mechanisms.mechanism import Mechanism
from expunge.privacy.mechanisms.noisy_max import ConfidentGaussianNoisyMax, GaussianNoisyMax, LaplaceNoisyMax


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class Majority(Mechanism):
    """Release the class with the most votes; ties, also between empty counts, go to the lowest class code.

    Notes
    -----
    Sensitivity: one vote can decide a near tie with certainty.

    Privacy: none. The event is `NonPrivate()`: accountants answer ∞ and the guarantee is vacuous. The tie rule is a
    fixed order of the classes, so ties reveal nothing about the order of the shards.

    Utility: the class with the most votes always wins.

    Examples
    --------
    >>> Majority().law([8, 2])
    array([1., 0.])
    """

    name: ClassVar[str] = "majority"

    @property
    def event(self) -> NonPrivate:
        """No privacy bound."""
        return NonPrivate()

    def _release(self, counts: NDArray[np.int64], rng: Randomness) -> NDArray[np.int64]:
        return plurality(counts)

    def _law(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        law = np.zeros(len(counts))
        law[np.argmax(counts)] = 1
        return law


Constructor = Callable[..., Mechanism]

# The constructors of each name; they differ in the names of their parameters.
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
    """Build the mechanism of a given name.

    Parameters
    ----------
    name
        One of `MECHANISM_NAMES`.
    **parameters
        The mechanism's parameters. The Gaussian ones take their noise (`sigma`, …), or `epsilon` for as much zCDP as
        the exponential mechanism at that ε0.

    Returns
    -------
    Mechanism
        The mechanism.

    Raises
    ------
    ParameterError
        If the name is unknown, or the parameters are not those of the mechanism. The message lists the choices.

    Examples
    --------
    >>> mechanism("exponential", epsilon=0.1)
    ExponentialMechanism(epsilon=0.1)
    >>> mechanism("gaussian", epsilon=0.5).sigma
    5.656854249492381
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
    """Find the mechanism of a given name with the smallest ε0 that answers a vote rightly often enough.

    For the exponential mechanism and a unanimous vote of two classes that is ε0 = 2 ln(accuracy/(1−accuracy)) / k.

    Parameters
    ----------
    name
        One of `MECHANISM_NAMES`. Plain majority has no noise, and is returned as it is.
    num_shards, num_classes
        The size of the vote.
    share
        The share of the votes that the top class has.
    accuracy
        The wanted probability of answering the top class, strictly between 0 and 1. The other votes are placed where
        they do most harm.
    threshold_share
        Where the threshold of a confident mechanism lies, as a share of the votes. A declined answer counts as wrong.

    Returns
    -------
    Mechanism
        The mechanism.

    Raises
    ------
    ParameterError
        If an option is out of range, or no noise level reaches the accuracy.

    Examples
    --------
    >>> found = calibrated_mechanism("exponential", num_shards=100, num_classes=2)
    >>> round(found.epsilon, 4)
    0.0919
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
