"""Privacy loss distributions of single events on a grid, and their composition by dp-accounting.

Every event has a dominating pair: two laws whose hockey-stick curve H(x) = sup_F P(F) − e^x Q(F) lies above that of the
event for every x. Dominating pairs compose adaptively (Zhu, Dong, Wang 2022, Theorem 10). All pairs here are symmetric.

- ε-DP: randomised response.
- ε-bounded range: H(x) = (1 − e^{(x−ε)/2})² / (1 − e^{−ε}) for |x| ≤ ε.
  Proof. The loss lies in some [t−ε, t]. H is the mean of the convex function (e^S − e^x)_+ of e^S, which has mean 1
  under Q, so it is largest when S sits at the two ends: H_t(x) = (1 − e^{t−ε})(1 − e^{x−t})/(1 − e^{−ε}). The supremum
  over t, at t = (x+ε)/2, is the curve above. A supremum of such curves is again one (convex in e^x), so it belongs to a
  dominating pair of all of them; its loss has the density e^{x/2}/(4 sinh(ε/2)) on [−ε, ε]. ∎
- Gaussian: itself. Several Gaussians are one, whose 1/m² is the sum of theirs.

Discretisation connects the dots of the curve (Doroshenko et al. 2022), which only raises it. Grid steps are powers of
two that grow with the events. So grids are nested, and adding events never moves a curve below its old one.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from expunge.privacy.accounting.composition import Events, square, total
from expunge.privacy.accounting.events import BoundedRange, Event, GaussianDP, PureDP

if TYPE_CHECKING:
    from numpy.typing import NDArray

GRID_POINTS = 2**17
"""How many grid points the composed distribution may span: enough for 0.3% at a million equal events."""

_WIDEST = 2.0**12
_NARROWEST = 2.0**-24
_MOST_EVENTS = 2**34
_CURVE_POINTS = 64
_RADIX = 16
_TAIL = 1e-15
# The mass cut from the tails at every composition. It counts as revealing everything. So it also covers the rounding
# errors of the Fourier transforms, which grow with the number of events in the same way.


def compose_distributions(counts: Events) -> Any | None:
    """Compose events into a pessimistic privacy loss distribution; return None when they span too wide a range.

    Events must be pure, bounded-range or Gaussian. The result answers `get_epsilon_for_delta` and
    `get_delta_for_epsilon`.
    """
    costly = {event: count for event, count in counts.items() if _variance(event) > 0}
    if total(costly, _variance) >= _WIDEST:
        return None
    merged = _merge_gaussians(costly)
    step = _grid_step(merged)
    if step is None:
        return None
    return _composed(tuple(sorted(merged.items(), key=repr)), step)


@lru_cache(maxsize=16)
def _composed(items: tuple[tuple[Event, int], ...], step: float) -> Any:
    from dp_accounting.pld import privacy_loss_distribution

    result = privacy_loss_distribution.identity(value_discretization_interval=step)
    for event, count in items:
        for level, digit in enumerate(_digits(count)):
            if digit:
                result = result.compose(_block(event, step, level).self_compose(digit, _TAIL), _TAIL)
    return result


@lru_cache(maxsize=64)
def _block(event: Event, step: float, level: int) -> Any:
    """Return the distribution of _RADIX**level repetitions of an event.

    The library bounds the width of a repetition well only for moderate counts, hence the radix.
    """
    if level > 0:
        return _block(event, step, level - 1).self_compose(_RADIX, _TAIL)
    from dp_accounting.pld import privacy_loss_distribution

    if isinstance(event, GaussianDP):
        return privacy_loss_distribution.from_gaussian_mechanism(
            standard_deviation=event.noise_multiplier, value_discretization_interval=step
        )
    from dp_accounting.pld import pld_pmf

    assert isinstance(event, PureDP | BoundedRange)
    indices = _curve_indices(event, step)
    curve = _hockey_stick(event, indices.astype(np.float64) * step)
    pmf = pld_pmf.create_pmf_pessimistic_connect_dots(step, indices, curve)
    return privacy_loss_distribution.PrivacyLossDistribution(pmf)


def _curve_indices(event: PureDP | BoundedRange, step: float) -> NDArray[np.int64]:
    """Return the grid points that carry the event's curve: few, but enough, all multiples of the step."""
    reach = event.epsilon / step
    if isinstance(event, PureDP):
        # The curve is linear in e^x between −ε and ε: four points hold all of it.
        return np.array(sorted({math.floor(-reach), math.ceil(-reach), math.floor(reach), math.ceil(reach)}))
    stride = max(1, 2 ** math.ceil(math.log2(2 * reach / _CURVE_POINTS)))
    bound = math.ceil(reach / stride)
    return np.arange(-bound, bound + 1, dtype=np.int64) * np.int64(stride)


def _hockey_stick(event: PureDP | BoundedRange, x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return H at every x; 1 − e^x below −ε and 0 above ε, as for every ε-DP release."""
    epsilon = event.epsilon
    inside = np.clip(x, -epsilon, epsilon)
    if isinstance(event, PureDP):
        curve = -np.expm1(inside - epsilon) / (1 + math.exp(-epsilon))
    else:
        curve = np.square(np.expm1((inside - epsilon) / 2)) / -math.expm1(-epsilon)
    return np.where(x <= -epsilon, -np.expm1(np.minimum(x, 0.0)), np.where(x >= epsilon, 0.0, curve))


def _merge_gaussians(counts: Events) -> dict[Event, int]:
    merged: dict[Event, int] = {e: count for e, count in counts.items() if not isinstance(e, GaussianDP)}
    precision = total({e: count for e, count in counts.items() if isinstance(e, GaussianDP)}, _variance)
    if precision > 0:
        merged[GaussianDP(1 / math.sqrt(precision))] = 1
    return merged


def _grid_step(counts: Events) -> float | None:
    """Return a power of two that lets the composed distribution span GRID_POINTS, non-decreasing in the events."""
    variance = total(counts, _variance)
    width = variance + 20 * math.sqrt(variance)
    if width >= _WIDEST or sum(counts.values()) > _MOST_EVENTS:
        return None
    # A floor on the step: the library's differences of curves lose their digits on finer grids.
    return 2.0 ** math.ceil(math.log2(max(width, _NARROWEST) / GRID_POINTS))


def _variance(event: Event) -> float:
    """Return (nearly) the variance of the privacy loss of one event; twice its mean."""
    match event:
        case PureDP(epsilon):
            return square(epsilon)
        case BoundedRange(epsilon):
            return square(epsilon) / 3
        case GaussianDP(noise_multiplier):
            return square(1 / noise_multiplier)
        case _:
            return 0.0


def _digits(count: int) -> list[int]:
    """Return the digits of a count in base _RADIX, lowest first."""
    digits = []
    while count:
        count, digit = divmod(count, _RADIX)
        digits.append(digit)
    return digits
