"""How many predictions of one kind a generation may publish: what each theorem certifies within the target."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache, lru_cache
from typing import Any, Final, Literal

import numpy as np

from expunge.privacy.accounting import BoundedRange, ConcentratedDP, Event, GaussianDP, PureDP
from expunge.theory import LARGEST_COUNT, Guarantee, all_bounds, paper_predictions

Standing = Literal["certified", "comparison", "illustrative"]


ROGERS: Final = "paper's count, Rogers-style"


PAPER: Final = "paper's statement"


DESCRIPTION_LENGTH: Final = "description length"


_SPLITS: Final = np.geomspace(1e-3, 0.999, 60)


@dataclass(frozen=True, slots=True)
class TheoremLimit:
    """The most predictions that a theorem allows in a generation within the target.

    `standing`: "certified" counts; "comparison" is valid but nothing that a deployment certifies, for display;
    "illustrative" has constants set to one where the literature leaves them open and is no bound. `pays_gamma`: whether
    the theorem may fail, so that its γ is paid once per generation; without that any number of generations is covered.
    """

    theorem: str
    predictions: int
    pays_gamma: bool
    standing: Standing = "certified"

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able mapping."""
        return asdict(self)


@lru_cache(maxsize=512)
def theorem_limits(
    event: Event, *, num_shards: int, target: Guarantee, num_generations: int, num_outcomes: int
) -> tuple[TheoremLimit, ...]:
    """The limit by each theorem that applies to predictions that cost `event` and have so many possible answers.

    Description length is for comparison: a deployment does not vouch for the number of its possible answers.
    """

    @cache
    def bounds(one: Event, count: int) -> dict[str, Guarantee]:
        # One evaluation serves the searches of all theorems.
        found = all_bounds(
            {one: count},
            num_shards=num_shards,
            beta=target.beta,
            gamma=target.gamma,
            num_generations=num_generations,
            num_outcomes=num_outcomes,
        )
        return {bound.theorem: bound for bound in found}

    def limit(one: Event, theorem: str, guess: int = 1) -> TheoremLimit:
        predictions = largest_count(lambda count: bounds(one, count)[theorem].covers(target), guess=guess)
        standing: Standing = "comparison" if theorem == DESCRIPTION_LENGTH else "certified"
        return TheoremLimit(theorem, predictions, bounds(one, 1)[theorem].gamma > 0, standing)

    plain = _without_curve(event)
    proved = [limit(plain, theorem) for theorem in bounds(plain, 1)]
    # What zCDP alone certifies is a good guess for the theorem that is slow to evaluate.
    most = max(found.predictions for found in proved)
    proved += [limit(event, theorem, most) for theorem in bounds(event, 1) if theorem not in bounds(plain, 1)]
    return (*proved, *published_limits(event, num_shards=num_shards, target=target, num_generations=num_generations))


def _without_curve(event: Event) -> Event:
    """The event as the theorems see it that do not look at its whole privacy curve."""
    if isinstance(event, GaussianDP):
        return ConcentratedDP((1 / event.noise_multiplier) * (0.5 / event.noise_multiplier))
    return event


def published_limits(
    event: Event, *, num_shards: int, target: Guarantee, num_generations: int
) -> tuple[TheoremLimit, ...]:
    """What the literature's own statements give, for mechanisms with an ε0; for display only."""
    if not isinstance(event, PureDP | BoundedRange):
        return ()
    rogers = paper_predictions(
        num_shards=num_shards,
        epsilon=event.epsilon,
        alpha=target.alpha,
        beta=target.beta,
        gamma=target.gamma / num_generations,
    )
    illustrative = illustrative_predictions(num_shards=num_shards, epsilon=event.epsilon, target=target)
    return (
        TheoremLimit(ROGERS, rogers, True, "comparison"),
        TheoremLimit(PAPER, illustrative, True, "illustrative"),
    )


def illustrative_predictions(*, num_shards: int, epsilon: float, target: Guarantee) -> int:
    """The paper's count ⌊ε²/(8ε0² ln(1/δ))⌋ where Theorem 4.1 with every constant in O(·) set to 1 meets the target.

    Illustrative, not a bound: α = ε²k + λ and β = γ = √(e^{−ε²k} + λ), λ = k√(δ/ε), with 0 < δ < ε ≤ ½, and γ paid once
    for all generations, as printed. For each way to share β² between the two terms the largest ε has a closed form.
    """
    allowed = min(target.beta, target.gamma) ** 2
    if allowed <= 0 or epsilon <= 0:
        return 0
    leak = np.minimum(_SPLITS * allowed, num_shards)
    least_square = -np.log((1 - _SPLITS) * allowed) / num_shards
    square = np.minimum((target.alpha - leak) / num_shards, 0.25)
    feasible = square >= least_square
    if not np.any(feasible):
        return 0
    largest = np.sqrt(square[feasible])
    log_inverse_delta = -np.log(largest) - 2 * np.log(leak[feasible] / num_shards)
    counts = (largest / epsilon) ** 2 / (8 * log_inverse_delta)
    return min(LARGEST_COUNT, math.floor(float(np.max(counts))))


def largest_count(holds: Callable[[int], bool], *, guess: int = 1) -> int:
    """The largest count up to LARGEST_COUNT for which a monotone condition holds; 0 if it does not hold at 1.

    The closer the guess, the fewer counts are tried: from it the steps double until they have passed the answer.
    """
    low, high = 0, LARGEST_COUNT + 1
    probe, step = max(1, min(guess, LARGEST_COUNT)), max(1, guess // 64)
    while low < probe < high:
        if holds(probe):
            low, probe = probe, probe + step
        else:
            high, probe = probe, probe - step
        step *= 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
