"""Predicting with linear models, against asking them one after another and counting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expunge.core.features import Features
from expunge.serving.estimator import UnlearningClassifier
from expunge.training.learners import ScikitModel
from expunge_lab.bench.measurement import Advance, Line, Progress, Target, Task, race
from expunge_lab.bench.workload import fit_table_voters, fit_voters, make_queries, make_table


@dataclass(frozen=True, slots=True)
class Size:
    """How much to measure."""

    num_records: int
    num_shards: int
    num_rows: int
    repeats: int
    table_shards: int = 100  # of the table with categories
    table_rows: int = 1_000


FULL = Size(num_records=50_000, num_shards=1_000, num_rows=10_000, repeats=5)
QUICK = Size(num_records=2_000, num_shards=10, num_rows=50, repeats=2, table_shards=5, table_rows=20)

_CLASSES = (2, 10)
ONE_ROW, MANY_ROWS = Target.ratio_at_least(50), Target.ratio_at_least(4)


def run(*, quick: bool, progress: Progress) -> list[Line]:
    """The suite."""
    size = QUICK if quick else FULL
    with progress("predict", (len(_CLASSES) + 1) * 4 * size.repeats) as advance:
        plain = [
            line
            for num_classes in _CLASSES
            for line in measure(size, num_classes=num_classes, advance=advance, one_row=ONE_ROW, many_rows=MANY_ROWS)
        ]
        return [*plain, *measure_table(size, advance=advance)]


def measure(
    size: Size,
    *,
    advance: Advance,
    num_classes: int = 2,
    one_row: Target | None = None,
    many_rows: Target | None = None,
) -> list[Line]:
    """One row and many, through the estimator; the last two are the targets."""
    model = fit_voters(size.num_records, size.num_shards, num_classes=num_classes)
    cases = ((make_queries(1), one_row), (make_queries(size.num_rows), many_rows))
    about = f"k={size.num_shards:,}, {num_classes} classes"
    return [
        _compare(model, X, num_classes, about, "one model after another", target, size.repeats, advance)
        for X, target in cases
    ]


def measure_table(size: Size, *, advance: Advance) -> list[Line]:
    """A table with categories and gaps, which every shard's pipeline would code anew."""
    model = fit_table_voters(size.num_records, size.table_shards)
    about = f"k={size.table_shards:,}, a table with categories"
    return [
        _compare(model, make_table(rows)[0], 2, about, "one pipeline after another", None, size.repeats, advance)
        for rows in (1, size.table_rows)
    ]


def _compare(
    model: UnlearningClassifier,
    X: Features,
    num_classes: int,
    about: str,
    other: str,
    target: Target | None,
    repeats: int,
    advance: Advance,
) -> Line:
    """The estimator against its own models, asked in turn."""
    fitted = [each.estimator for each in model.deployment_.inside.state.models if isinstance(each, ScikitModel)]
    tasks = [Task(partial(model.predict, X)), Task(partial(majority_of, fitted, X, num_classes))]
    together, in_turn = race(tasks, repeats=repeats, advance=advance)
    rows = "1 row" if len(X) == 1 else f"{len(X):,} rows"
    return Line.faster(f"predict {rows}, {about}", together, other, in_turn, target=target)


def majority_of(models: Sequence[Any], X: Features, num_classes: int) -> NDArray[np.int64]:
    """What a user would write: every model's labels, then the most frequent of each row."""
    votes = np.stack([model.predict(X) for model in models])
    cells = np.arange(len(X)) * num_classes + votes
    counts = np.bincount(cells.ravel(), minlength=len(X) * num_classes)
    winners: NDArray[np.int64] = counts.reshape(len(X), num_classes).argmax(axis=1)
    return winners
