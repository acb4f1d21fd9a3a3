"""The slow-down attack: a requester who looks for records that sit in many shards, so that deleting them is slow."""

from __future__ import annotations

import numpy as np

from expunge.audit.requesters import DeleteMostShards
from expunge.audit.scenario import Scenario, Setting, Task
from expunge.audit.scenarios.shared import Bound, MakeRequester, Ready, requester_name
from expunge.audit.statistics import NamedHolders
from expunge.core.errors import ParameterError
from expunge.core.randomness import Randomness
from expunge.core.records import Records
from expunge.serving.interaction import Requester
from expunge.training.learners import NearestTableLearner

HOLDERS = "shards that the next deletion would retrain"
_TAU = 0.3


def slow_down_scenario(
    task: Task | None = None,
    *,
    num_rounds: int = 3,
    setting: Setting = "models",
    num_records: int = 200,
    requester: MakeRequester | None = None,
) -> Scenario:
    """Delete, round after round, the record believed to sit in the most shards; then count the shards of the next one.

    The control arm retrains everything and is asked about the same record: its count is Bin(k,p). Shown lookup tables
    the requester knows the counts, which is the worst case (Theorem 4.2 holds for any requester).
    """
    if num_rounds < 1:
        raise ParameterError(f"num_rounds must be at least 1, got {num_rounds!r}")
    attacked = task or _points_task(num_records)
    if num_rounds >= len(attacked.records):
        raise ParameterError(f"num_rounds must be below the {len(attacked.records)} records, got {num_rounds!r}")
    return Scenario(
        name="slow-down",
        about=f"{attacked.name}; all {'models' if setting == 'models' else 'labels'} are published",
        task=attacked,
        points=attacked.columns[1],
        make_requester=Bound(requester or _most_shards, attacked),
        prepare=Ready({HOLDERS: NamedHolders()}),
        setting=setting,
        settings=("models", "labels"),
        max_rounds=num_rounds,
        looks_ahead=True,
        parameters={
            "task": attacked.name,
            "num_records": len(attacked.records),
            "num_rounds": num_rounds,
            "setting": setting,
            "requester": requester_name(requester, "most-shards"),
        },
    )


def _most_shards(task: Task, rng: Randomness) -> Requester:
    return DeleteMostShards(*task.columns)


def _points_task(num_records: int) -> Task:
    if num_records < 2:
        raise ParameterError(f"num_records must be at least 2, got {num_records!r}")
    points = np.arange(num_records, dtype=np.float64).reshape(-1, 1)
    codes = np.arange(num_records, dtype=np.int64) % 2
    records = Records.build(points, codes, classes=[0, 1])
    return Task("lookup tables", records, NearestTableLearner(_TAU), points, codes, points + 0.25)
