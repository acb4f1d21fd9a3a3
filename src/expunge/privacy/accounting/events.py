"""What one release costs: frozen events whose meaning never changes.

An event says how far the law of a release can move when one coordinate r_i of the secret randomness (one shard's
sampling and training coins) is replaced. Mechanisms state their event; accountants compose events; nothing else is
said about privacy anywhere in the package.

How much privacy loss one generation may spend.
"""

from __future__ import annotations

from dataclasses import dataclass

from expunge.core.checks import require_number, require_probability


@dataclass(frozen=True, slots=True)
class PureDP:
    """ε-differential privacy: every probability moves by a factor of at most e^ε."""

    epsilon: float

    def __post_init__(self) -> None:
        require_number("epsilon of a privacy event", self.epsilon, least=0)


@dataclass(frozen=True, slots=True)
class BoundedRange:
    """ε-DP whose log-likelihood ratio lies in an interval of length ε (the exponential mechanism).

    Implies ε-DP and ε²/8-zCDP (Lemma 0).
    """

    epsilon: float

    def __post_init__(self) -> None:
        require_number("epsilon of a privacy event", self.epsilon, least=0)


@dataclass(frozen=True, slots=True)
class GaussianDP:
    """A Gaussian mechanism whose l2-sensitivity over standard deviation is `1 / noise_multiplier`.

    It is ρ-zCDP with ρ = 1 / (2 noise_multiplier²).
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        require_number("noise_multiplier of a privacy event", self.noise_multiplier, above=0)


@dataclass(frozen=True, slots=True)
class ConcentratedDP:
    """ρ-zero-concentrated differential privacy."""

    rho: float

    def __post_init__(self) -> None:
        require_number("rho of a privacy event", self.rho, least=0)


@dataclass(frozen=True, slots=True)
class ApproximateDP:
    """(ε,δ)-differential privacy, nothing more known."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        require_number("epsilon of a privacy event", self.epsilon, least=0)
        require_probability("delta of a privacy event", self.delta)


@dataclass(frozen=True, slots=True)
class NonPrivate:
    """No bound at all: the release may be a function of the secret randomness (plain majority)."""


Event = PureDP | BoundedRange | GaussianDP | ConcentratedDP | ApproximateDP | NonPrivate


@dataclass(frozen=True, slots=True)
class PrivacyBudget:
    """(ε,δ): everything published in one generation must be (ε,δ)-DP in the secret randomness r.

    Paper: the parameters ε and δ of PrivatePredictionInteraction. `delta=0` asks for pure differential privacy.
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        require_number("epsilon of a privacy budget", self.epsilon, above=0)
        require_number("delta of a privacy budget", self.delta, least=0, below=1)
