"""Composition theorems for pure differential privacy: the paper's count, basic and advanced composition."""

from __future__ import annotations

import math
from typing import ClassVar, final

from expunge.accounting._accountant import Accountant
from expunge.accounting.composition import Events, pure_epsilon_of, square, total
from expunge.accounting.events import ApproximateDP, BoundedRange, PureDP


@final
class PaperAccountant(Accountant):
    """The paper's count ⌊ε²/(8ε0² ln(1/δ))⌋ (Algorithm PrivatePredictionInteraction), made safe.

    Events: pure DP and bounded range, of any mixture. With S = Σε_i² the transcript is (ε,δ)-DP with
    ε = √(8 S ln(1/δ)), provided that ln(1/δ) ≥ (ε/4)·c, c = (e^{ε_max} − 1)/ε_max.

    Proof. Advanced composition gives ε' = √(2 S ln(1/δ)) + Σε_i(e^{ε_i} − 1). Since (e^x − 1)/x increases, the sum is
    at most cS. The condition says 4 ln(1/δ) ≥ c√(8 S ln(1/δ)), that is cS ≤ √(2 S ln(1/δ)); hence
    ε' ≤ 2√(2 S ln(1/δ)) = ε. ∎

    The condition is the same as ln(1/δ) ≥ c²S/2. Where it fails, the theorem is used at the smaller δ' that meets it
    (being (ε,δ')-DP with δ' ≤ δ is stronger): ε = √(8 S max(ln(1/δ), c²S/2)), which is monotone in events and in δ.
    """

    name: ClassVar[str] = "paper"
    supported: ClassVar[tuple[type, ...]] = (PureDP, BoundedRange)

    def _epsilon(self, counts: Events, delta: float) -> float:
        squares = _sum_of_squares(counts)
        if squares == 0:
            return 0.0
        return math.sqrt(8 * max(_log_inverse(delta), _least_log_inverse(counts))) * math.sqrt(squares)

    def _log_delta(self, counts: Events, epsilon: float) -> float:
        squares = _sum_of_squares(counts)
        if squares == 0:
            return -math.inf
        log_inverse = epsilon * (epsilon / (8 * squares))
        return -log_inverse if log_inverse >= _least_log_inverse(counts) else 0.0


@final
class BasicAccountant(Accountant):
    """Basic composition: the ε add up; (ε,δ) events fail with probability 1 − Π(1−δ_i) in all."""

    name: ClassVar[str] = "basic"
    supported: ClassVar[tuple[type, ...]] = (PureDP, BoundedRange, ApproximateDP)

    def _epsilon(self, counts: Events, delta: float) -> float:
        return total(counts, pure_epsilon_of)

    def _log_delta(self, counts: Events, epsilon: float) -> float:
        return -math.inf if epsilon >= total(counts, pure_epsilon_of) else 0.0


@final
class AdvancedAccountant(Accountant):
    """Advanced composition (Dwork, Rothblum, Vadhan 2010), in its exact form and for mixed events.

    ε = Σε_i(e^{ε_i} − 1) + √(2 ln(1/δ) Σε_i²). Proof: given the past, the privacy loss of release i lies in
    [−ε_i, ε_i] and has mean at most ε_i(e^{ε_i} − 1); Azuma's inequality bounds the sum. ∎
    (Sharper constants exist, for the mean ε_i·tanh(ε_i/2); `zcdp` and `pld` are never worse than either.)
    """

    name: ClassVar[str] = "advanced"
    supported: ClassVar[tuple[type, ...]] = (PureDP, BoundedRange, ApproximateDP)

    def _epsilon(self, counts: Events, delta: float) -> float:
        squares = _sum_of_squares(counts)
        if squares == 0:
            return 0.0
        return _drift(counts) + math.sqrt(2 * _log_inverse(delta)) * math.sqrt(squares)

    def _log_delta(self, counts: Events, epsilon: float) -> float:
        excess = epsilon - _drift(counts)
        if _sum_of_squares(counts) == 0:
            return -math.inf
        return -excess * (excess / (2 * _sum_of_squares(counts))) if excess > 0 else 0.0


def _sum_of_squares(counts: Events) -> float:
    return total(counts, lambda event: square(pure_epsilon_of(event)))


def _drift(counts: Events) -> float:
    """Return Σε_i(e^{ε_i} − 1), the bound on the mean privacy loss."""
    return total(counts, lambda event: square(pure_epsilon_of(event)) * _growth(pure_epsilon_of(event)))


def _least_log_inverse(counts: Events) -> float:
    """Return c²S/2, the least ln(1/δ) at which the paper's form is proved."""
    largest = max(map(pure_epsilon_of, counts))
    return _growth(largest) * _growth(largest) * _sum_of_squares(counts) / 2


def _growth(epsilon: float) -> float:
    """Return (e^ε − 1)/ε."""
    if epsilon == 0:
        return 1.0
    return math.expm1(epsilon) / epsilon if epsilon < 700 else math.inf


def _log_inverse(delta: float) -> float:
    return -math.log(delta) if delta > 0 else math.inf
