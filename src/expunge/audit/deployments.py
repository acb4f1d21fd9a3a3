"""Audit a deployment in a folder, through a copy of its learner, its data and its settings.

The folder is opened for reading only: nothing in it changes, and nothing is charged. Its models and its secret
randomness are not read. Every trial trains ensembles of its own, with the folder's settings, from randomness of its
own. The copy of the records is in memory while the audit runs; with `--resume` only statistics go to the disk.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expunge.audit.scenario import Task
from expunge.audit.schemes import DeploymentScheme, LearnerFactory
from expunge.core.checks import require_count
from expunge.core.errors import InputError
from expunge.core.randomness import Randomness
from expunge.core.records import Records
from expunge.folder import contents
from expunge.folder.configuration import Settings
from expunge.serving.publishing import Front, StudentFront

_HELD_OUT_SHARE = 5  # one record in five is held out, for the scenarios that need test points
_FEWEST = 10
_COPY_SEED = 71


@dataclass(frozen=True)
class DeploymentCopy:
    """What an audit takes from a folder.

    Parameters
    ----------
    task
        The data and the learner.
    settings
        How the deployment assigns records to shards, and how it publishes.
    front
        What stands between its publisher and its users.
    """

    task: Task
    settings: Settings
    front: Front

    def scheme(self) -> DeploymentScheme:
        """Make the deployment's own scheme. Budget and threshold start anew in every arm of every trial."""
        settings = self.settings
        return DeploymentScheme(
            name="deployment",
            make_learner=LearnerFactory(self.task.learner),
            sampler=settings.make_sampler(),
            num_shards=settings.n_shards,
            publisher=settings.promise.make_publisher(
                settings.n_shards, self.task.records.num_classes, Randomness.from_seed(0)
            ),
            front=self.front,
            max_generations=settings.promise.max_generations,
        )


def copy_deployment(
    path: str | os.PathLike[str], *, trust: Sequence[str] = (), num_records: int | None = None
) -> DeploymentCopy:
    """Copy a deployment's data and settings out of its folder, also while another process serves it.

    A fifth of the records is held out for testing.

    Parameters
    ----------
    path
        The folder.
    trust
        The user's own code that the folder was created with, by name. It must be named, or it is not loaded.
    num_records
        How many records to train on, drawn once; None means all that are not held out. Fewer are quicker, and audit a
        smaller system.

    Returns
    -------
    DeploymentCopy
        For the option `copy` of `AuditRequest`.

    Raises
    ------
    FormatError
        If the folder is not a deployment.
    InputError
        If it has too few records, or predicts numbers.
    ParameterError
        If it does not have `num_records` to train on.
    """
    with contents(path, trust=trust) as found:
        if found.records.is_regression:
            raise InputError(f"the attacks look at labels, and {path} predicts numbers: use `expunge audit recompute`")
        train, test = _parts(found.records, num_records)
    test_points, test_codes, _ = test.gather(test.live_slots())
    pool = found.front.pool if isinstance(found.front, StudentFront) else None
    learner: Any = found.learner
    task = Task(f"the data of {found.name}", train, learner, test_points, test_codes.astype(np.int64), pool)
    return DeploymentCopy(task, found.settings, found.front)


def _parts(records: Records, num_records: int | None) -> tuple[Records, Records]:
    """Copy records to train on, and records to test with, out of the folder."""
    slots = records.live_slots()
    if len(slots) < _FEWEST:
        raise InputError(f"an audit needs at least {_FEWEST} records, the deployment has {len(slots)}")
    order = np.random.default_rng(_COPY_SEED).permutation(len(slots))
    held_out = len(slots) // _HELD_OUT_SHARE
    most = len(slots) - held_out
    wanted = most if num_records is None else require_count("num_records", num_records, least=_FEWEST // 2, most=most)
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
