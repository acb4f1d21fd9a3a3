"""What one release costs: frozen events whose meaning never changes.

An event says how far the law of a release can move when one coordinate r_i of the secret randomness (one shard's
sampling and training coins) is replaced. Mechanisms state their event; accountants compose events; nothing else is
said about privacy anywhere in the package.

How much privacy loss one generation may spend.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from expunge.core.errors import ParameterError


@dataclass(frozen=True, slots=True)
class PureDP:
    """ε-differential privacy: every probability moves by a factor of at most e^ε."""

    epsilon: float

    def __post_init__(self) -> None:
        _require(math.isfinite(self.epsilon) and self.epsilon >= 0, "epsilon", self.epsilon)


@dataclass(frozen=True, slots=True)
class BoundedRange:
    """ε-DP whose log-likelihood ratio lies in an interval of length ε (the exponential mechanism).

    Implies ε-DP and ε²/8-zCDP (Lemma 0).
    """

    epsilon: float

    def __post_init__(self) -> None:
        _require(math.isfinite(self.epsilon) and self.epsilon >= 0, "epsilon", self.epsilon)


@dataclass(frozen=True, slots=True)
class GaussianDP:
    """A Gaussian mechanism whose l2-sensitivity over standard deviation is `1 / noise_multiplier`.

    It is ρ-zCDP with ρ = 1 / (2 noise_multiplier²).
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        _require(
            math.isfinite(self.noise_multiplier) and self.noise_multiplier > 0,
            "noise_multiplier",
            self.noise_multiplier,
        )


@dataclass(frozen=True, slots=True)
class ConcentratedDP:
    """ρ-zero-concentrated differential privacy."""

    rho: float

    def __post_init__(self) -> None:
        _require(math.isfinite(self.rho) and self.rho >= 0, "rho", self.rho)


@dataclass(frozen=True, slots=True)
class ApproximateDP:
    """(ε,δ)-differential privacy, nothing more known."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        _require(math.isfinite(self.epsilon) and self.epsilon >= 0, "epsilon", self.epsilon)
        _require(0 <= self.delta <= 1, "delta", self.delta)


@dataclass(frozen=True, slots=True)
class NonPrivate:
    """No bound at all: the release may be a function of the secret randomness (plain majority)."""


Event = PureDP | BoundedRange | GaussianDP | ConcentratedDP | ApproximateDP | NonPrivate


def _require(condition: bool, name: str, value: float) -> None:
    if not condition:
        raise ParameterError(f"{name} of a privacy event is out of range: {value!r}")


@dataclass(frozen=True, slots=True)
class PrivacyBudget:
    """(ε,δ): everything published in one generation must be (ε,δ)-DP in the secret randomness r.

    Paper: the parameters ε and δ of PrivatePredictionInteraction. `delta=0` asks for pure differential privacy.
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.epsilon) and self.epsilon > 0):
            raise ParameterError(f"epsilon of a privacy budget must be positive and finite, got {self.epsilon!r}")
        if not 0 <= self.delta < 1:
            raise ParameterError(f"delta of a privacy budget must be in [0, 1), got {self.delta!r}")
