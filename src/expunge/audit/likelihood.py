"""Membership inference on deleted records in the style of LiRA (Carlini et al. 2022), with shadow trainings.

Shadows trained with the targets (on D) and without them (on D^t) give, for every target, two normal laws of the
ensemble's confidence in its label. The statistic of a state is the sum over the targets of the log-likelihood ratio:
large if the state looks as if it had been trained with them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from expunge.audit.scenario import Play
from expunge.audit.schemes import Scheme
from expunge.audit.statistics import confidences
from expunge.errors import ParameterError
from expunge.features import Features
from expunge.randomness import Randomness
from expunge.records import Delete, RecordId, Records

# Confidence is brought this far from 0 and 1 before its logit is taken, and no spread is believed to be smaller.
_EDGE = 1e-3
_LEAST_SPREAD = 0.05


@dataclass(frozen=True)
class LikelihoodRatio:
    """log p(confidence | trained with) − log p(confidence | trained without), summed over the targets."""

    points: Features
    codes: NDArray[np.int64]
    num_classes: int
    mean_with: NDArray[np.float64]
    mean_without: NDArray[np.float64]
    spread_with: NDArray[np.float64]
    spread_without: NDArray[np.float64]

    def __call__(self, scheme: Scheme[Any], state: Any, play: Play, coins: Randomness) -> float:
        """The score of the state."""
        seen = _logits(confidences(scheme, state, self.points, self.codes, self.num_classes))
        inside = _log_density(seen, self.mean_with, self.spread_with)
        outside = _log_density(seen, self.mean_without, self.spread_without)
        return float((inside - outside).sum())


@dataclass(frozen=True)
class MeanConfidence:
    """The mean confidence in the targets' labels: the same question without a model of the answer."""

    points: Features
    codes: NDArray[np.int64]
    num_classes: int

    def __call__(self, scheme: Scheme[Any], state: Any, play: Play, coins: Randomness) -> float:
        """The mean."""
        return float(confidences(scheme, state, self.points, self.codes, self.num_classes).mean())


def fit_likelihood_ratio(
    scheme: Scheme[Any], records: Records, targets: Sequence[RecordId], *, num_shadows: int, rng: Randomness
) -> LikelihoodRatio:
    """Train `num_shadows` shadows with the targets and as many without, and fit the laws."""
    if num_shadows < 2:
        raise ParameterError(f"num_shadows must be at least 2, got {num_shadows!r}")
    points, codes = target_rows(records, targets)
    without = records.apply([Delete(target) for target in targets])[0]

    def shadows(data: Records) -> NDArray[np.float64]:
        states = (scheme.learn(data, rng) for _ in range(num_shadows))
        return np.stack([_logits(confidences(scheme, s, points, codes, records.num_classes)) for s in states])

    seen_with, seen_without = shadows(records), shadows(without)
    return LikelihoodRatio(
        points=points,
        codes=codes,
        num_classes=records.num_classes,
        mean_with=seen_with.mean(axis=0),
        mean_without=seen_without.mean(axis=0),
        spread_with=np.maximum(seen_with.std(axis=0), _LEAST_SPREAD),
        spread_without=np.maximum(seen_without.std(axis=0), _LEAST_SPREAD),
    )


def target_rows(records: Records, targets: Sequence[RecordId]) -> tuple[Features, NDArray[np.int64]]:
    """Features and class codes of the targets, in the order of the records."""
    slots = np.array(sorted(records.slot_of(target) for target in targets), dtype=np.int64)
    points, codes, _ = records.gather(slots)
    return points, codes.astype(np.int64)


def _logits(confidence: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(logit(np.clip(confidence, _EDGE, 1 - _EDGE)))


def _log_density(x: NDArray[np.float64], mean: NDArray[np.float64], spread: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(-(((x - mean) / spread) ** 2) / 2 - np.log(spread) - math.log(2 * math.pi) / 2)
