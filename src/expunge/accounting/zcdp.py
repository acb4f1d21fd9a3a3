"""Zero-concentrated differential privacy: ρ adds up, and is converted once at the end."""

from __future__ import annotations

from typing import ClassVar, final

from expunge.accounting._accountant import Accountant
from expunge.accounting._conversion import epsilon_from_rho, log_delta_from_rho
from expunge.accounting.composition import Events, rho_of, total
from expunge.accounting.events import ApproximateDP, BoundedRange, ConcentratedDP, GaussianDP, PureDP


@final
class ZCDPAccountant(Accountant):
    """zCDP composition with the optimal Rényi conversion, as a Rényi accountant with all real orders computes it.

    One event costs ρ = ε²/8 if it is of bounded range (Lemma 0; Cesar and Rogers 2021), ε²/2 if it is only ε-DP (Bun
    and Steinke 2016), 1/(2m²) for a Gaussian. Bounds every kind of event.
    """

    name: ClassVar[str] = "zcdp"
    supported: ClassVar[tuple[type, ...]] = (PureDP, BoundedRange, GaussianDP, ConcentratedDP, ApproximateDP)

    def _epsilon(self, counts: Events, delta: float) -> float:
        return epsilon_from_rho(total(counts, rho_of), delta)

    def _log_delta(self, counts: Events, epsilon: float) -> float:
        return log_delta_from_rho(total(counts, rho_of), epsilon)
