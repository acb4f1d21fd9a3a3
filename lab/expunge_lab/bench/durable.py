"""Deployments in a folder, against the same work in memory."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from expunge.folder import DurableDeployment, create
from expunge.folder import open as open_folder
from expunge.serving.estimator import UnlearningClassifier
from expunge.serving.promises import Noise
from expunge.training.learners.named import column_kinds, named_learner
from expunge_lab.bench.measurement import Advance, Line, Progress, Target, Task, race
from expunge_lab.bench.workload import make_queries, make_records, make_table


@dataclass(frozen=True, slots=True)
class Size:
    """How much to measure."""

    num_records: int
    num_shards: int
    calls: int  # predictions of one row in a repeat
    rows: int  # of the larger prediction
    batches: tuple[tuple[int, int], ...]  # deletions in a batch, batches in a repeat
    repeats: int
    large_records: int
    large_features: int
    large_repeats: int
    table_records: int = 50_000
    table_shards: int = 677  # what the planner recommends for the consensus promise

    @property
    def steps(self) -> int:
        """How often progress advances."""
        return (5 + 2 * len(self.batches)) * self.repeats + 3 * self.large_repeats


FULL = Size(200_000, 100, 500, 1_000, ((1, 100), (100, 10), (10_000, 1)), 5, 1_000_000, 100, 2)
QUICK = Size(2_000, 5, 5, 20, ((1, 2), (10, 1)), 2, 2_000, 10, 1, table_records=500, table_shards=5)

_MANY = 10_000_000  # predictions that a generation allows, so that none is ever refused
PREDICTIONS, DELETIONS = Target.ratio_at_least(0.8), Target.ratio_at_least(0.8)
CREATION, OPENING = Target.ratio_at_most(1.3), Target.ours_at_most(2.0)
ONE_ROW = Target.ours_at_most(0.010)


def run(*, quick: bool, progress: Progress) -> list[Line]:
    """The suite."""
    size = QUICK if quick else FULL
    with progress("durable", size.steps) as advance, temporary_folder() as folder:
        return [
            *measure(size, folder, advance=advance),
            *measure_table(size, folder, advance=advance),
            *measure_large(size, folder, advance=advance),
        ]


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder that is removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="expunge-bench-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def measure(size: Size, folder: Path, *, advance: Advance) -> list[Line]:
    """Predictions and deletions, in a folder and in memory."""
    X, y = make_records(size.num_records)
    noise = Noise("exponential", max_predictions=_MANY)
    model = UnlearningClassifier(LogisticRegression(), n_shards=size.num_shards, promise=noise).fit(X, y)
    with create(folder / "small", LogisticRegression(), X, y, n_shards=size.num_shards, promise=noise) as durable:
        predictions = [
            *_predictions(model, durable, 1, size.calls, size, advance),
            *_predictions(model, durable, size.rows, 5, size, advance),
        ]
        deletions = _deletions(model, durable, size, advance)
    return [*predictions, *deletions]


def _predictions(
    model: UnlearningClassifier, durable: DurableDeployment, rows: int, calls: int, size: Size, advance: Advance
) -> list[Line]:
    """New rows at every call: a repeated one would be answered from memory."""
    generator = np.random.default_rng(rows)

    def queries() -> list[NDArray[np.float64]]:
        return np.split(make_queries(rows * calls) + generator.normal(), calls)

    def ask(predict: object, batches: list[NDArray[np.float64]]) -> None:
        for batch in batches:
            predict(batch)  # type: ignore[operator]

    fresh = iter([queries() for _ in range(4 * size.repeats + 8)])
    inside, outside = race(
        [
            Task(lambda: ask(durable.predict, next(fresh)), operations=calls, repeatable=False),
            Task(lambda: ask(model.predict, next(fresh)), operations=calls, repeatable=False),
        ],
        repeats=size.repeats,
        advance=advance,
    )
    what = f"predict {rows:,} row{'s' * (rows > 1)} in a folder, k={size.num_shards:,}"
    return [Line.faster(what, inside, "the estimator in memory", outside, target=PREDICTIONS)]


def _deletions(model: UnlearningClassifier, durable: DurableDeployment, size: Size, advance: Advance) -> list[Line]:
    order = np.random.default_rng(6).permutation(size.num_records)
    lines, at = [], 0
    for batch, batches in size.batches:
        needed = batch * batches * size.repeats
        chosen = np.split(order[at : at + needed], batches * size.repeats)
        at += needed
        here, there = iter(chosen), iter(chosen)

        def delete_here(batches: int = batches, here: Iterator[NDArray[np.int64]] = here) -> None:
            for _ in range(batches):
                durable.delete(next(here).tolist())

        def delete_there(batches: int = batches, there: Iterator[NDArray[np.int64]] = there) -> None:
            for _ in range(batches):
                model.delete(next(there).tolist())

        inside, outside = race(
            [
                Task(delete_here, operations=batch * batches, repeatable=False),
                Task(delete_there, operations=batch * batches, repeatable=False),
            ],
            repeats=size.repeats,
            advance=advance,
        )
        what = f"delete a record in a folder, {batch:,} at a time, n={size.num_records:,}, k={size.num_shards:,}"
        target = DELETIONS if batch >= 100 else None
        lines.append(Line.faster(what, inside, "the estimator in memory", outside, target=target))
    return lines


def measure_table(size: Size, folder: Path, *, advance: Advance) -> list[Line]:
    """One row of a table with categories and gaps, asked of a folder that was opened; its models have been read."""
    X, y = make_table(size.table_records)
    learner = named_learner("logistic", columns=column_kinds(X))
    create(folder / "table", learner, X, y, n_shards=size.table_shards, allow_missing=True).close()
    questions = make_table(size.calls * size.repeats)[0]
    rows = iter([questions[place : place + 1] for place in range(len(questions))])
    with open_folder(folder / "table") as deployment:

        def ask() -> None:
            for _ in range(size.calls):
                deployment.predict(next(rows))

        deployment.predict(X[:1])
        (asking,) = race([Task(ask, operations=size.calls, repeatable=False)], repeats=size.repeats, advance=advance)
    what = f"predict 1 row of a table with categories in an opened folder, k={size.table_shards:,}"
    return [Line.alone(what, asking, target=ONE_ROW)]


def measure_large(size: Size, folder: Path, *, advance: Advance) -> list[Line]:
    """Creating and opening a large folder."""
    generator = np.random.default_rng(7)
    X = generator.standard_normal((size.large_records, size.large_features), dtype=np.float32)
    y = (X[:, 0] + generator.standard_normal(len(X), dtype=np.float32) > 0).astype(np.int64)
    paths = iter(folder / f"large-{number}" for number in range(100))
    last = folder

    def create_folder() -> None:
        nonlocal last
        shutil.rmtree(last, ignore_errors=True) if last != folder else None
        last = next(paths)
        create(last, LogisticRegression(), X, y, n_shards=size.num_shards).close()

    def save_and_fit() -> None:
        np.save(folder / "plain.npy", X)
        UnlearningClassifier(LogisticRegression(), n_shards=size.num_shards).fit(X, y)

    creating, plain, opening = race(
        [
            Task(create_folder, repeatable=False),
            Task(save_and_fit, repeatable=False),
            Task(lambda: open_folder(last).close(), repeatable=False),
        ],
        repeats=size.large_repeats,
        advance=advance,
    )
    sizes = f"{size.large_records:,} × {size.large_features}, k={size.num_shards:,}"
    return [
        Line.cost(f"create a folder of {sizes}", creating, "np.save and fit in memory", plain, target=CREATION),
        Line.alone(f"open it, {sizes}", opening, target=OPENING),
    ]
