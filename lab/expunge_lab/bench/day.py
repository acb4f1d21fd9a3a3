"""The ordinary user's day (`docs/ordinary_day.py`): a deletion from a folder, against fitting one pipeline again."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.base import clone

from expunge.folder import create
from expunge.training.learners import ScikitLearner
from expunge.training.learners.named import column_kinds, named_learner
from expunge_lab.bench.measurement import Line, Progress, Target, Task, race
from expunge_lab.bench.workload import make_table


@dataclass(frozen=True, slots=True)
class Size:
    """How much to measure."""

    num_records: int
    num_shards: int
    deletions: int
    repeats: int


FULL, QUICK = Size(50_000, 20, 5, 5), Size(1_000, 4, 1, 1)
LEARNERS = ("boosting", "logistic")
FIT_DOMINATES = Target.ratio_at_least(5)


def run(*, quick: bool, progress: Progress) -> list[Line]:
    """The suite."""
    size = QUICK if quick else FULL
    with progress("day", 2 * size.repeats * len(LEARNERS)) as advance:
        return [line for name in LEARNERS for line in measure(size, name, advance=advance)]


def measure(size: Size, name: str, *, advance: Callable[[int], None]) -> list[Line]:
    """A deletion and a refit, in turns; the target is for learners whose fit dominates."""
    X, y = make_table(size.num_records)
    learner = named_learner(name, columns=column_kinds(X))
    assert isinstance(learner, ScikitLearner)
    ids = iter(np.random.default_rng(1).permutation(size.num_records).tolist())
    with (
        tempfile.TemporaryDirectory(prefix="expunge-bench-") as folder,
        create(Path(folder) / "day", learner, X, y, n_shards=size.num_shards, allow_missing=True) as deployment,
    ):

        def delete_some() -> None:
            for _ in range(size.deletions):
                deployment.delete([next(ids)])

        deleting, fitting = race(
            [
                Task(delete_some, operations=size.deletions, repeatable=False),
                Task(lambda: clone(learner.estimator).fit(X, y), repeatable=False),
            ],
            repeats=size.repeats,
            advance=advance,
        )
    what = f"delete a customer from a folder, {name}, n={size.num_records:,}, k={size.num_shards}"
    target = None if name == "logistic" else FIT_DOMINATES
    return [Line.faster(what, deleting, "fit one pipeline on everything", fitting, target=target)]
