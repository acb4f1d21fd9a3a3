"""Many small shards: training and voting with all of them together, against scikit-learn, one model after another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.naive_bayes import GaussianNB, MultinomialNB

from expunge.training.learners import ScikitLearner
from expunge.training.learners.named import named_learner
from expunge.training.learners.protocol import ShardData, fit_many, mean_opinion
from expunge.training.surroundings import training, voting
from expunge_lab.bench.measurement import Advance, Clock, Line, Progress, Target, Task, race
from expunge_lab.bench.workload import make_records


@dataclass(frozen=True, slots=True)
class Size:
    """How much to measure."""

    shards: int
    large_shards: int  # of ensembles
    records: int  # of a shard
    rows: int
    repeats: int


FULL = Size(shards=1_000, large_shards=100, records=200, rows=1_000, repeats=3)
QUICK = Size(shards=5, large_shards=3, records=60, rows=20, repeats=1)
NEAR_FLOOR, TOGETHER = Target.ratio_at_most(3), Target.ratio_at_least(5)
Make = Callable[[], Any]

VOTERS: dict[str, Make] = {
    "Gaussian naive Bayes": lambda: ScikitLearner(GaussianNB()),
    "multinomial naive Bayes": lambda: ScikitLearner(MultinomialNB()),
    "trees": lambda: named_learner("tree"),
    "neighbours": lambda: named_learner("neighbours"),
}
ENSEMBLES: dict[str, Make] = {
    "forests of 100": lambda: named_learner("forest"),
    "boosting": lambda: named_learner("boosting"),
    "gradient boosting": lambda: ScikitLearner(GradientBoostingClassifier()),
}


TRAINED = (
    ("logistic", 2),
    ("logistic", 4),
    ("ridge", 2),
    ("linear-svm", 2),
    ("naive-bayes", 2),
)


def run(*, quick: bool, progress: Progress) -> list[Line]:
    """The suite."""
    size = QUICK if quick else FULL
    steps = 2 * size.repeats * (len(TRAINED) + 2 * len(VOTERS) + 2 * len(ENSEMBLES) + 4)
    with progress("shards", steps) as advance, voting():
        trained = [_train(*each, size, advance) for each in TRAINED]
        lines = [
            line for name, make in VOTERS.items() for line in voting_lines(name, make(), size, size.shards, advance)
        ]
        lines += [
            line
            for name, make in ENSEMBLES.items()
            for line in voting_lines(name, make(), size, size.large_shards, advance)
        ]
        return [*trained, *lines, *floor_lines(size, advance)]


def _train(name: str, num_classes: int, size: Size, advance: Advance) -> Line:
    """All shards in one call, as `batched=True` does, and one by one."""
    shards = _shards(size, size.shards, name, num_classes)
    tasks = [
        Task(partial(fit_many, named_learner(name, batched=is_batched), shards), repeatable=False)
        for is_batched in (True, False)
    ]
    with training():
        ours, other = race(tasks, repeats=size.repeats, advance=advance)
    what = f"train {name}, {num_classes} classes, k={size.shards:,} of {size.records:,} records"
    return Line.faster(what, ours, "one model after another", other, target=TOGETHER if num_classes == 2 else None)


def _shards(size: Size, num_shards: int, name: str, num_classes: int = 2) -> list[ShardData]:
    X, y = make_records(size.records * num_shards, num_classes=num_classes)
    X = np.abs(X).round() if "multinomial" in name else X
    cuts = [slice(size.records * shard, size.records * (shard + 1)) for shard in range(num_shards)]
    return [ShardData(shard, X[cut], y[cut], None, shard) for shard, cut in enumerate(cuts)]


def _queries(size: Size, name: str) -> NDArray[np.float64]:
    X = make_records(2 * size.rows)[0][size.rows :]
    return np.abs(X).round() if "multinomial" in name else X


def voting_lines(
    name: str, learner: Any, size: Size, num_shards: int, advance: Advance, *, clock: Clock | None = None
) -> list[Line]:
    """The mean of the models' probabilities, for one row and for many."""
    models = fit_many(learner, _shards(size, num_shards, name))
    voter, queries, lines = learner.make_voter(models, 2), _queries(size, name), []
    for rows in (1, size.rows):
        X = queries[:rows]
        ours, other = race(
            [
                Task(partial(voter.mean_probabilities, X)),
                Task(partial(mean_opinion, models, X, 2, "probabilities"), repeatable=False),
            ],
            repeats=size.repeats,
            advance=advance,
            clock=clock,
        )
        what = f"average {name}, {rows:,} row{'s' * (rows > 1)}, k={num_shards:,}"
        lines.append(Line.faster(what, ours, "one model after another", other))
    return lines


def floor_lines(size: Size, advance: Advance, *, clock: Clock | None = None) -> list[Line]:
    """Against the same in a few lines of NumPy, or a loop over the compiled trees."""
    lines = []
    floors: list[tuple[str, str, Callable[[list[Any]], Callable[[NDArray[np.float64]], object]]]] = [
        ("Gaussian naive Bayes", "a few lines of NumPy", _bayes_floor),
        ("trees", "a loop over compiled trees", _tree_floor),
    ]
    for name, other_name, make in floors:
        learner, queries = VOTERS[name](), _queries(size, name)
        models = fit_many(learner, _shards(size, size.shards, name))
        voter, floor = learner.make_voter(models, 2), make([model.estimator for model in models])  # type: ignore[attr-defined]
        for rows in (1, size.rows):
            X = queries[:rows]
            tasks = [Task(partial(voter.mean_probabilities, X)), Task(partial(floor, X))]
            ours, other = race(tasks, repeats=size.repeats, advance=advance, clock=clock)
            what = f"average {name}, {rows:,} row{'s' * (rows > 1)}, k={size.shards:,}"
            lines.append(Line.cost(what, ours, other_name, other, target=NEAR_FLOOR))
    return lines


def _bayes_floor(models: list[Any]) -> Callable[[NDArray[np.float64]], object]:
    means, variances = np.stack([m.theta_ for m in models]), np.stack([m.var_ for m in models])
    priors = np.log(np.stack([m.class_prior_ for m in models])) - np.log(2 * np.pi * variances).sum(axis=2) / 2

    def average(X: NDArray[np.float64]) -> object:
        found = []
        for first in range(0, len(X), 4):  # so that it stays in the cache
            rows = X[first : first + 4, np.newaxis, np.newaxis]
            joint = priors - ((rows - means) ** 2 / variances).sum(axis=3) / 2
            powers = np.exp(joint - joint.max(axis=2, keepdims=True))
            found.append((powers / powers.sum(axis=2, keepdims=True)).mean(axis=1))
        return np.concatenate(found)

    return average


def _tree_floor(models: list[Any]) -> Callable[[NDArray[np.float64]], object]:
    trees = [model.tree_ for model in models]

    def average(X: NDArray[np.float64]) -> object:
        rows = X.astype(np.float32)
        return sum(tree.predict(rows) for tree in trees) / len(trees)

    return average
