"""α as a function of the number of predictions in a generation: the lines of the picture."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np

from expunge.accounting import Event
from expunge.guarantees import SMALLEST_EVENT, Guarantee, all_bounds, max_predictions
from expunge.planning.limits import PAPER, ROGERS, Standing, TheoremLimit, published_limits, theorem_limits

_NUM_POINTS: Final = 60
_NUM_LEVELS: Final = 200
_HIGHEST_LEVEL: Final = 1e3
_LOWEST_LEVEL: Final = 1e-4


@dataclass(frozen=True, slots=True)
class Curve:
    """α by one theorem at increasing numbers of predictions; `limit` is how many are within the target.

    `standing` is that of the theorem itself: "certified" for all that are proved here, used by deployments or not.
    """

    theorem: str
    standing: Standing
    limit: int
    predictions: tuple[int, ...]
    alphas: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """What is drawn: predictions of one kind at one target."""

    event: Event
    num_shards: int
    target: Guarantee
    num_generations: int
    num_outcomes: int

    @property
    def vacuous_alpha(self) -> float:
        """From here on a guarantee with the target's β is vacuous."""
        return math.log1p(-self.target.beta) - math.log(SMALLEST_EVENT)

    def curves(self) -> list[Curve]:
        """One curve for each theorem that has a finite α; mutual information has none (its α is 0, its β grows)."""
        limits = theorem_limits(
            self.event,
            num_shards=self.num_shards,
            target=self.target,
            num_generations=self.num_generations,
            num_outcomes=self.num_outcomes,
        )
        published = [limit for limit in limits if limit.theorem in (ROGERS, PAPER)]
        proved = [replace(limit, standing="certified") for limit in limits if limit not in published]
        found = [self._proved(proved), self._published(published)]
        return [curve for curves in found for curve in curves if curve.predictions]

    @cached_property
    def widest(self) -> int:
        """A number of predictions well beyond the last one that can be certified."""
        loosest = Guarantee(max(self.vacuous_alpha, self.target.alpha), self.target.beta, self.target.gamma)
        last = max_predictions(
            loosest,
            event=self.event,
            num_shards=self.num_shards,
            num_generations=self.num_generations,
            num_outcomes=self.num_outcomes,
        )
        return int(min(max(100, 10 ** math.ceil(math.log10(5 * last + 1))), 10**12))

    def _proved(self, limits: list[TheoremLimit]) -> list[Curve]:
        counts = sorted({int(count) for count in np.geomspace(1, self.widest, _NUM_POINTS)})
        points: dict[str, list[tuple[int, float]]] = {}
        for count in counts:
            for bound in all_bounds(
                {self.event: count},
                num_shards=self.num_shards,
                beta=self.target.beta,
                gamma=self.target.gamma,
                num_generations=self.num_generations,
                num_outcomes=self.num_outcomes,
            ):
                if 0 < bound.alpha < math.inf:
                    points.setdefault(bound.theorem, []).append((count, bound.alpha))
        return [_curve(limit, points.get(limit.theorem, [])) for limit in limits]

    def _published(self, limits: list[TheoremLimit]) -> list[Curve]:
        """Drawn the other way round: the most predictions at each α."""
        points: dict[str, list[tuple[int, float]]] = {}
        for alpha in np.geomspace(_LOWEST_LEVEL, _HIGHEST_LEVEL, _NUM_LEVELS):
            target = Guarantee(float(alpha), self.target.beta, self.target.gamma)
            for limit in published_limits(
                self.event, num_shards=self.num_shards, target=target, num_generations=self.num_generations
            ):
                if limit.predictions > 0:
                    # What is within reach at this α includes all smaller numbers; each number at its smallest α.
                    so_far = points.setdefault(limit.theorem, [(1, target.alpha)])
                    if limit.predictions > so_far[-1][0]:
                        so_far.append((limit.predictions, target.alpha))
        return [_curve(limit, points.get(limit.theorem, [])) for limit in limits]


def _curve(limit: TheoremLimit, points: list[tuple[int, float]]) -> Curve:
    predictions = tuple(count for count, _ in points)
    alphas = tuple(alpha for _, alpha in points)
    return Curve(limit.theorem, limit.standing, limit.predictions, predictions, alphas)
