"""Membership inference on deleted records: does the unlearned ensemble still look as if it had seen them?

Membership inference on deleted records in the style of LiRA (Carlini et al. 2022), with shadow trainings.

Shadows trained with the targets (on D) and without them (on D^t) give, for every target, two normal laws of the
ensemble's confidence in its label. The statistic of a state is the sum over the targets of the log-likelihood ratio:
large if the state looks as if it had been trained with them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from expunge.audit.requesters import DeleteThese
from expunge.audit.scenario import Play, Scenario, Statistic, Task
from expunge.audit.scenarios.shared import Bound
from expunge.audit.schemes import Scheme
from expunge.audit.statistics import confidences
from expunge.core.errors import ParameterError
from expunge.core.features import Features
from expunge.core.randomness import Randomness
from expunge.core.records import Delete, RecordId, Records
from expunge.serving.interaction import Requester

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


_TARGET_SEED = 5201


@dataclass(frozen=True)
class _Shadows:
    """Trains the shadows when the scheme is known."""

    records: Records
    targets: tuple[RecordId, ...]
    num_shadows: int

    def __call__(self, scheme: Scheme[Any], rng: Randomness) -> Mapping[str, Statistic]:
        points, codes = target_rows(self.records, self.targets)
        ratio = fit_likelihood_ratio(scheme, self.records, self.targets, num_shadows=self.num_shadows, rng=rng)
        return {
            "likelihood ratio of the deleted records": ratio,
            "confidence in the deleted records' labels": MeanConfidence(points, codes, self.records.num_classes),
        }


@dataclass(frozen=True)
class _DeleteTargets:
    targets: tuple[RecordId, ...]

    def __call__(self, task: Task, rng: Randomness) -> Requester:
        return DeleteThese(self.targets)


def membership_scenario(
    task: Task, *, num_targets: int = 30, num_shadows: int = 16, mislabelled: bool = True
) -> Scenario:
    """Train with `num_targets` canaries, delete them, and ask shadow models whether they are still there.

    The targets are drawn once. With `mislabelled` each of them carries a wrong label, which only a model that saw it
    would give; that is how an audit looks for a trace, and it is the auditor's copy of the data that is changed. The
    requester is oblivious: a correct unlearner, even SISA, must pass.
    """
    ids = task.columns[0]
    if not 1 <= num_targets < len(ids):
        raise ParameterError(f"num_targets must be between 1 and {len(ids) - 1}, got {num_targets!r}")
    chosen = np.random.default_rng(_TARGET_SEED).permutation(len(ids))[:num_targets]
    planted = _with_canaries(task, chosen) if mislabelled else task
    targets = tuple(ids[place] for place in sorted(chosen.tolist()))
    return Scenario(
        name="membership",
        about=f"{task.name}; {num_targets} records with wrong labels are deleted, and shadow models look for a trace",
        task=planted,
        points=target_rows(planted.records, targets)[0],
        make_requester=Bound(_DeleteTargets(targets), planted),
        prepare=_Shadows(planted.records, targets, num_shadows),
        settings=("labels", "models"),
        parameters={
            "task": task.name,
            "num_records": len(ids),
            "learner": task.learner_name,
            "num_targets": num_targets,
            "num_shadows": num_shadows,
            "mislabelled": mislabelled,
            "requester": "these",
        },
    )


def _with_canaries(task: Task, chosen: Any) -> Task:
    ids, points, codes = task.columns
    classes = task.records.classes
    if len(classes) < 2:
        raise ParameterError("mislabelled targets need two classes or more")
    wrong = codes.copy()
    wrong[chosen] = (codes[chosen] + 1) % len(classes)
    records = Records.build(points, classes[wrong], ids=ids, classes=classes, allow_missing=task.records.allow_missing)
    return Task(task.name, records, task.learner, task.test_points, task.test_codes, task.pool)
