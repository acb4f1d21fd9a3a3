"""Auditing a deployment in a folder: its learner, its data and its settings, in a copy.

The folder is opened for reading only. Nothing in it changes, nothing is charged, its models and its secret randomness
are not looked at: every trial trains ensembles of its own, as the folder's settings say, from randomness of its own.
The copy of the records is in memory for as long as the audit runs; with `--resume` only statistics go to the disk.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expunge.audit.catalogue import Fresh
from expunge.audit.scenario import Task
from expunge.audit.schemes import DeploymentScheme
from expunge.core.errors import FormatError, InputError, ParameterError
from expunge.core.randomness import Randomness
from expunge.core.records import Records
from expunge.folder import contents
from expunge.serving.publishing import Front, StudentFront
from expunge.serving.settings import Settings

_HELD_OUT_SHARE = 5  # one record in five is held out, for the scenarios that need points nobody trains on
_FEWEST = 10
_COPY_SEED = 71


@dataclass(frozen=True)
class DeploymentCopy:
    """What an audit takes from a folder: data and learner, and how the deployment shards and publishes."""

    task: Task
    settings: Settings
    front: Front

    def scheme(self) -> DeploymentScheme:
        """The deployment's own scheme; books and threshold start anew in every arm of every trial."""
        settings = self.settings
        if not isinstance(settings.n_shards, int):
            raise FormatError(f"the folder does not say how many shards it has, but {settings.n_shards!r}")
        return DeploymentScheme(
            name="deployment",
            make_learner=Fresh(self.task.learner),
            sampler=settings.make_sampler(settings.inclusion_probability),
            num_shards=settings.n_shards,
            publisher=settings.make_publisher(
                settings.n_shards, self.task.records.num_classes, Randomness.from_seed(0)
            ),
            front=self.front,
            max_generations=settings.max_generations,
        )


def copy_deployment(
    path: str | os.PathLike[str], *, trust: Sequence[str] = (), num_records: int | None = None
) -> DeploymentCopy:
    """Read a deployment's folder, also while another process serves it.

    A fifth of the records is held out. `num_records` trains on fewer, drawn once: quicker, and an audit of a smaller
    system. `trust` must name the code of the user's own that the folder was created with.
    """
    with contents(path, trust=trust) as found:
        train, test = _parts(found.records, num_records)
    test_points, test_codes, _ = test.gather(test.live_slots())
    pool = found.front.pool if isinstance(found.front, StudentFront) else None
    learner: Any = found.learner
    task = Task(f"the data of {found.name}", train, learner, test_points, test_codes.astype(np.int64), pool)
    return DeploymentCopy(task, found.settings, found.front)


def _parts(records: Records, num_records: int | None) -> tuple[Records, Records]:
    """Records to train on and records to test with, both copied out of the folder."""
    slots = records.live_slots()
    if len(slots) < _FEWEST:
        raise InputError(f"an audit needs at least {_FEWEST} records, the deployment has {len(slots)}")
    order = np.random.default_rng(_COPY_SEED).permutation(len(slots))
    held_out = len(slots) // _HELD_OUT_SHARE
    most = len(slots) - held_out
    if num_records is not None and not _FEWEST // 2 <= num_records <= most:
        raise ParameterError(f"num_records must be between {_FEWEST // 2} and {most} here, got {num_records!r}")
    wanted = most if num_records is None else num_records
    return _copied(records, slots[order[held_out : held_out + wanted]]), _copied(records, slots[order[:held_out]])


def _copied(records: Records, slots: NDArray[np.int64]) -> Records:
    ascending = np.sort(slots)
    features, codes, weights = records.gather(ascending)
    return Records.build(
        features,
        records.classes[codes],
        ids=[records.id_of(int(slot)) for slot in ascending],
        weights=weights,
        classes=records.classes,
        allow_missing=records.allow_missing,
    )
