"""Membership inference on deleted records: does the unlearned ensemble still look as if it had seen them?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from expunge.audit.likelihood import MeanConfidence, fit_likelihood_ratio, target_rows
from expunge.audit.requesters import DeleteThese
from expunge.audit.scenario import Scenario, Statistic, Task
from expunge.audit.scenarios._shared import Bound
from expunge.audit.schemes import Scheme
from expunge.errors import ParameterError
from expunge.interaction import Requester
from expunge.randomness import Randomness
from expunge.records import RecordId, Records

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
