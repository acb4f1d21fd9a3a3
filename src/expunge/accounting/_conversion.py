"""From ρ-zCDP to (ε,δ)-DP, by the optimal Rényi conversion.

ρ-zCDP means D_order ≤ ρ·order for every Rényi order. With x = order − 1, every x > 0 gives

    ln δ(ε) ≤ x(ρ(1+x) − ε) − x ln(1 + 1/x) − ln(1 + x)

(Canonne, Kamath, Steinke 2020, Proposition 12; it is the factor C(λ) = λ^λ/(1+λ)^(1+λ) of the theory's Conversion with
λ = x). Both the δ at a given ε and the ε at a given δ have one stationary point in x, found by a safeguarded Newton
iteration. Every x is valid, so an imprecise root only loosens the bound.

At ε = 0 the total variation distance gives more: KL ≤ ρ, so δ(0) ≤ √(ρ/2) (Pinsker) and δ(0) ≤ √(1 − e^{−ρ})
(Bretagnolle and Huber).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable

_TINY = sys.float_info.min
_ITERATIONS = 200


def epsilon_from_rho(rho: float, delta: float) -> float:
    """Return an ε such that every ρ-zCDP release is (ε,δ)-DP; non-decreasing in ρ, non-increasing in δ."""
    if rho == 0:
        return 0.0
    if delta == 0 or rho == math.inf:
        return math.inf
    if delta >= total_variation(rho):
        return 0.0
    log_inverse = -math.log(delta)

    # The derivative in x vanishes where ρx² + ln(1+x) = ln(1/δ), whose left side increases.
    def slope(x: float) -> float:
        return rho * x * x + math.log1p(x) - log_inverse

    x = _root(slope, lambda x: 2 * rho * x + 1 / (1 + x), high=_over(math.sqrt(log_inverse), math.sqrt(rho)))
    return max(0.0, rho * (1 + x) - math.log1p(1 / x) + (log_inverse - math.log1p(x)) / x)


def log_delta_from_rho(rho: float, epsilon: float) -> float:
    """Return ln δ such that every ρ-zCDP release is (ε,δ)-DP; −∞ where δ = 0."""
    if rho == 0 or epsilon == math.inf:
        return -math.inf
    if rho == math.inf:
        return 0.0

    # The bound is convex in x; its derivative is ρ(1+2x) − ε − ln(1 + 1/x), and ln(1 + 1/x) ≤ 1/x bounds the root.
    def slope(x: float) -> float:
        return rho * (1 + 2 * x) - epsilon - math.log1p(1 / x)

    excess = epsilon - rho
    high = _over(excess + math.hypot(excess, math.sqrt(8 * rho)), 4 * rho)
    x = _root(slope, lambda x: 2 * rho + 1 / (x * (1 + x)), high=high)
    bound = x * (rho * (1 + x) - epsilon) - x * math.log1p(1 / x) - math.log1p(x)
    # An overflow must not read as δ = 0.
    return min(0.0, max(bound, -sys.float_info.max), math.log(total_variation(rho)))


def total_variation(rho: float) -> float:
    """Return a bound on the total variation distance between neighbours of a ρ-zCDP release."""
    return min(1.0, math.sqrt(rho / 2), math.sqrt(-math.expm1(-rho)))


def _over(numerator: float, denominator: float) -> float:
    """Return the quotient, kept inside 1e-150..1e150 so that its square and inverse stay finite."""
    return min(max(numerator / max(denominator, _TINY), 1e-150), 1e150)


def _root(slope: Callable[[float], float], derivative: Callable[[float], float], *, high: float) -> float:
    """Return (nearly) the root of an increasing function on (0, high]; Newton steps, or halving in ln x."""
    low, x = 1e-300, high
    if slope(high) <= 0:
        return high
    for _ in range(_ITERATIONS):
        value = slope(x)
        low, high = (x, high) if value < 0 else (low, x)
        candidate = x - value / derivative(x)
        if not low < candidate < high:
            candidate = math.sqrt(low) * math.sqrt(high)
        if abs(candidate - x) <= 1e-12 * x:
            return candidate
        x = candidate
    return x
