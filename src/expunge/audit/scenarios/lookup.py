"""The lookup-table attack (Section 5.1, Theorem 5.1) on any scheme."""

from __future__ import annotations

import numpy as np

from expunge.audit.lookup import make_pairs
from expunge.audit.scenario import Scenario, Task
from expunge.audit.scenarios._shared import Bound, MakeRequester, NamedRequester, Ready, requester_name
from expunge.audit.statistics import DeletedSupport, SurvivorAccuracy, SurvivorSupport
from expunge.errors import ParameterError
from expunge.learners import NearestTableLearner
from expunge.records import Records

# Points are whole numbers, so this table knows exactly what it was shown; public points lie a quarter beside them.
_TAU = 0.3
_BESIDE = 0.25
_ADDING_ROUNDS = 4


def lookup_scenario(*, num_pairs: int = 50, requester: str | MakeRequester = "correct") -> Scenario:
    """Two copies of `num_pairs` points (one, if copies are to be added), lookup tables, labels published.

    A requester that deletes what is labelled rightly leaves records that sit where nobody expects them; the statistics
    ask how many shards still know a surviving record, how many are labelled rightly, and how much is left of the
    deleted ones.
    """
    if num_pairs < 2:
        raise ParameterError(f"num_pairs must be at least 2, got {num_pairs!r}")
    adds = requester == "add"
    records = _singles(num_pairs) if adds else make_pairs(num_pairs)
    points = np.arange(float(num_pairs)).reshape(-1, 1)
    # Its answers on whole numbers are the lookup table's; unlike it, it also answers beside them.
    task = Task("lookup tables", records, NearestTableLearner(_TAU), points, _labels(num_pairs), points + _BESIDE)
    make = NamedRequester(requester, size=num_pairs // 2) if isinstance(requester, str) else requester
    return Scenario(
        name="lookup",
        about=f"every training point {'once' if adds else 'twice'}, lookup tables",
        task=task,
        points=task.columns[1],
        make_requester=Bound(make, task),
        prepare=Ready(
            {
                "shards that know a surviving record": SurvivorSupport(),
                "accuracy on surviving records": SurvivorAccuracy(),
                "shards that know a deleted record": DeletedSupport(),
            }
        ),
        max_rounds={"one-by-one": len(records), "add": _ADDING_ROUNDS}.get(str(requester), 1),
        parameters={"num_pairs": num_pairs, "requester": requester_name(requester)},
    )


def _labels(num_points: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.arange(num_points, dtype=np.int64) % 2


def _singles(num_points: int) -> Records:
    points = np.arange(num_points, dtype=np.float64).reshape(-1, 1)
    return Records.build(points, _labels(num_points), classes=[0, 1])
