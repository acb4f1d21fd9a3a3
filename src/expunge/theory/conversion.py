"""From a moment bound to α: the Conversion of the theory, minimised exactly.

With C(λ) = λ^λ/(1+λ)^{1+λ}, (1−e^{−x})_+ ≤ C(λ)e^{λx}, so E[e^{λL}|m] ≤ e^{K(λ)} for λ > 0 gives
H(m) = sup_F [P(F|m) − e^a P(F)] ≤ b as soon as a ≥ [ln(C(λ)/b) + K(λ)]/λ, for any λ > 0.

Every theorem here has K(λ) = (1+λ)ν + λ·drift + λ²·curvature, so that the bound is
ln C(λ)/λ + B/λ + λ·curvature + ν + drift with B = ln(1/b) + ν. Its derivative has the sign of
curvature·λ² + ln(1+λ) − B, which increases in λ: there is one minimum, and Newton's method on ln λ (where that
function is convex and increasing) runs into it from the right without overshooting.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Beyond this curvature alpha is too large to mean anything; the answer is then infinity.
_LARGEST_CURVATURE: Final = 1e120
_SMALLEST_CURVATURE: Final = 1e-280
_NEWTON_STEPS: Final = 60
# Far above the rounding errors of the formulas: what is reported is never below the exact value.
_ROUNDING: Final = 1e-12


def smallest_alpha(log_inverse_beta: Array | float, *, curvature: Array | float, shift: Array | float = 0.0) -> Array:
    """Minimise [ln C(λ) + B]/λ + λ·curvature + shift over λ, elementwise, rounded up and never below 0.

    Any λ is valid, so an inexact minimum only loosens the bound.

    Parameters
    ----------
    log_inverse_beta
        B >= 0.
    curvature
        The coefficient of λ in the bound.
    shift
        The part of the bound that does not depend on λ.

    Returns
    -------
    Array
        α, elementwise; infinite where an argument is infinite or the curvature is beyond 1e120.
    """
    budget, curve, added = np.broadcast_arrays(
        np.asarray(log_inverse_beta, dtype=np.float64),
        np.asarray(curvature, dtype=np.float64),
        np.asarray(shift, dtype=np.float64),
    )
    hopeless = ~(np.isfinite(budget) & (curve <= _LARGEST_CURVATURE) & np.isfinite(added))
    budget = np.clip(np.where(hopeless, 1.0, budget), 1e-12, None)
    curve = np.clip(np.where(hopeless, 1.0, curve), _SMALLEST_CURVATURE, None)
    log_lambda = _minimiser(budget, curve)
    lam = np.exp(log_lambda)
    log_one_plus = np.logaddexp(0.0, log_lambda)
    alpha = log_lambda - log_one_plus + (budget - log_one_plus) / lam + lam * curve + np.where(hopeless, 0.0, added)
    alpha = alpha + _ROUNDING * (1 + np.abs(alpha))
    return np.where(hopeless, np.inf, np.maximum(alpha, 0.0))


def rounded_up(value: float) -> float:
    """A product or sum of a few floats, made no smaller than its exact value; 0 stays 0."""
    return value * (1 + _ROUNDING)


def _minimiser(budget: Array, curvature: Array) -> Array:
    """ln λ with curvature·λ² + ln(1+λ) = budget."""
    log_curvature = np.log(curvature)
    # Each term alone is at most the budget, which gives two upper limits for the root.
    alone = np.where(budget > 30, budget, np.log(np.expm1(np.minimum(budget, 30.0))))
    x = np.minimum(0.5 * (np.log(budget) - log_curvature), alone)
    for _ in range(_NEWTON_STEPS):
        square = np.exp(log_curvature + 2 * x)
        log_one_plus = np.logaddexp(0.0, x)
        step = (square + log_one_plus - budget) / (2 * square + np.exp(x - log_one_plus))
        x = x - step
        if np.max(np.abs(step), initial=0.0) < 1e-9:
            break
    return x
