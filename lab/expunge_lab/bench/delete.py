"""Deleting one record, against retraining the ensemble and against retraining one model on all data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.linear_model import LogisticRegression

from expunge.serving.estimator import UnlearningClassifier
from expunge_lab.bench.measurement import Advance, Line, Progress, Target, Task, race
from expunge_lab.bench.workload import make_records


@dataclass(frozen=True, slots=True)
class Size:
    """How much to measure; N^t has mean 1 and varies, so many deletions make up one repeat."""

    num_records: int
    num_shards: int
    deletions: int
    repeats: int

    @property
    def steps(self) -> int:
        """How often progress advances."""
        return 3 * self.repeats


FULL = Size(num_records=200_000, num_shards=100, deletions=100, repeats=7)
QUICK = Size(num_records=2_000, num_shards=5, deletions=5, repeats=2)

AGAINST_ENSEMBLE, AGAINST_ONE_MODEL = Target.ratio_at_least(50), Target.ratio_at_least(10)


def run(*, quick: bool, progress: Progress) -> list[Line]:
    """The suite."""
    size = QUICK if quick else FULL
    with progress("delete", size.steps) as advance:
        return measure(size, advance=advance, against_ensemble=AGAINST_ENSEMBLE, against_one_model=AGAINST_ONE_MODEL)


def measure(
    size: Size,
    *,
    advance: Advance,
    against_ensemble: Target | None = None,
    against_one_model: Target | None = None,
) -> list[Line]:
    """Delete records in random order, one a request, through the estimator; the last two are the targets."""
    X, y = make_records(size.num_records)
    model = UnlearningClassifier(LogisticRegression(), n_shards=size.num_shards).fit(X, y)
    ids = iter(np.random.default_rng(5).permutation(size.num_records).tolist())

    def delete_some() -> None:
        for _ in range(size.deletions):
            model.delete([next(ids)])

    deleting, retraining, fitting = race(
        [
            Task(delete_some, operations=size.deletions, repeatable=False),
            Task(model.deployment_.rekey, repeatable=False),
            Task(lambda: LogisticRegression().fit(X, y)),
        ],
        repeats=size.repeats,
        advance=advance,
    )
    what = f"delete a record, n={size.num_records:,}, k={size.num_shards:,}"
    one_model = "retrain one logistic regression on all data"
    return [
        Line.faster(what, deleting, "retrain the ensemble", retraining, target=against_ensemble),
        Line.faster(what, deleting, one_model, fitting, target=against_one_model),
    ]
