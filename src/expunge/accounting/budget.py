"""How much privacy loss one generation may spend."""

from __future__ import annotations

import math
from dataclasses import dataclass

from expunge.errors import ParameterError


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
