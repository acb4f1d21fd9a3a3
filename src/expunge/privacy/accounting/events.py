"""Privacy events, which say what one release costs, and the budget of one generation.

An event says how far the law of a release can move when one coordinate r_i of the secret randomness (one shard's
sampling and training coins) is replaced. Mechanisms state their event and accountants compose events; nothing else in
the package makes statements about privacy. Events are frozen, and their meaning never changes.
"""

from __future__ import annotations

from dataclasses import dataclass

from expunge.core.checks import require_number, require_probability


@dataclass(frozen=True, slots=True)
class PureDP:
    """ε-differential privacy: every probability moves by a factor of at most e^ε.

    Parameters
    ----------
    epsilon
        ε, finite and not negative.
    """

    epsilon: float

    def __post_init__(self) -> None:
        require_number("epsilon of a privacy event", self.epsilon, least=0)


@dataclass(frozen=True, slots=True)
class BoundedRange:
    """ε-DP whose log-likelihood ratio lies in an interval of length ε (the exponential mechanism).

    It implies ε-DP and ε²/8-zCDP (Lemma 0).

    Parameters
    ----------
    epsilon
        ε, finite and not negative.
    """

    epsilon: float

    def __post_init__(self) -> None:
        require_number("epsilon of a privacy event", self.epsilon, least=0)


@dataclass(frozen=True, slots=True)
class GaussianDP:
    """A Gaussian mechanism whose l2-sensitivity over standard deviation is `1 / noise_multiplier`.

    It is ρ-zCDP with ρ = 1 / (2 noise_multiplier²).

    Parameters
    ----------
    noise_multiplier
        Standard deviation over l2-sensitivity, finite and positive.
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        require_number("noise_multiplier of a privacy event", self.noise_multiplier, above=0)


@dataclass(frozen=True, slots=True)
class ConcentratedDP:
    """ρ-zero-concentrated differential privacy.

    Parameters
    ----------
    rho
        ρ, finite and not negative.
    """

    rho: float

    def __post_init__(self) -> None:
        require_number("rho of a privacy event", self.rho, least=0)


@dataclass(frozen=True, slots=True)
class ApproximateDP:
    """(ε,δ)-differential privacy; nothing more is known about the release.

    Parameters
    ----------
    epsilon
        ε, finite and not negative.
    delta
        δ, in [0, 1].
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        require_number("epsilon of a privacy event", self.epsilon, least=0)
        require_probability("delta of a privacy event", self.delta)


@dataclass(frozen=True, slots=True)
class NonPrivate:
    """No bound at all: the release may be a function of the secret randomness (plain majority)."""


Event = PureDP | BoundedRange | GaussianDP | ConcentratedDP | ApproximateDP | NonPrivate

EVENT_KINDS: dict[str, type[Event]] = {
    "pure": PureDP,
    "bounded_range": BoundedRange,
    "gaussian": GaussianDP,
    "concentrated": ConcentratedDP,
    "approximate": ApproximateDP,
    "non_private": NonPrivate,
}
"""The names of events in storage. They and the events' fields are part of the format: never reuse one."""


@dataclass(frozen=True, slots=True)
class PrivacyBudget:
    """The privacy loss that one generation may spend.

    Everything published in the generation must together be (ε,δ)-DP in the secret randomness r. In the paper these are
    the parameters ε and δ of PrivatePredictionInteraction.

    Parameters
    ----------
    epsilon
        ε, finite and positive.
    delta
        δ, in [0, 1). Zero asks for pure differential privacy.

    Raises
    ------
    ParameterError
        If a value is out of range.

    Examples
    --------
    >>> PrivacyBudget(epsilon=1.0, delta=1e-6)
    PrivacyBudget(epsilon=1.0, delta=1e-06)
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        require_number("epsilon of a privacy budget", self.epsilon, above=0)
        require_number("delta of a privacy budget", self.delta, least=0, below=1)
