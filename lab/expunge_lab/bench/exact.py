"""What exact unlearning costs where it was slow: each figure before and after, or with few shards and many, in one run.

"Before" is the same work as it would be done without the fast path: models trained or asked one after another, a voter
made anew, a model retrained.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import make_classification
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from expunge.folder import DurableDeployment, create
from expunge.serving.estimator import UnlearningClassifier
from expunge.training.learners.named import named_learner
from expunge.training.learners.protocol import ShardData, fit_many, make_voter
from expunge.training.surroundings import training, voting
from expunge_lab.bench.measurement import Advance, Line, Progress, Target, Task, race
from expunge_lab.bench.shards import Size as VotingSize
from expunge_lab.bench.shards import floor_lines, voting_lines
from expunge_lab.bench.workload import make_records


@dataclass(frozen=True, slots=True)
class Size:
    """How much to measure."""

    records: int
    shards: int
    deletions: int
    small_shards: int  # that are trained together
    many: tuple[int, int]  # records and shards of a large deployment, with as many records a shard as `few`
    few: tuple[int, int]
    folder_many: tuple[int, int]
    one_shard: tuple[int, int]  # records of a model that is not trained again, many and few
    forest: int
    rare: int
    rare_shards: int
    repeats: int

    @property
    def steps(self) -> int:
        """How often progress advances."""
        return 77 * self.repeats + 2


FULL = Size(
    records=200_000,
    shards=100,
    deletions=20,
    small_shards=1_000,
    many=(5_000_000, 10_000),
    few=(50_000, 100),
    folder_many=(500_000, 1_000),
    one_shard=(1_000_000, 10_000),
    forest=50_000,
    rare=50_000,
    rare_shards=100,
    repeats=3,
)
QUICK = Size(600, 5, 2, 5, (2_000, 20), (500, 5), (2_000, 20), (600, 300), 300, 1_500, 10, 1)

TOGETHER, IN_FOLDER, BATCHES = Target.ratio_at_least(5), Target.ratio_at_most(1.5), Target.ratio_at_least(0.8)
FLAT = Target.ratio_at_most(3)
VOTING = {"Gaussian naive Bayes": "naive-bayes", "trees": "tree"}
INCREMENTAL = ("ridge-exact", "naive-bayes-exact", "neighbours-exact", "forest-exact")


def run(*, quick: bool, progress: Progress) -> list[Line]:
    """The suite."""
    size = QUICK if quick else FULL
    with progress("exact", size.steps) as advance, ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="expunge-bench-")))
        lines = [
            *_training(size, advance),
            *_voting(size, advance),
            *_deleting(size, stack, place, advance),
            *_growing(size, stack, place, advance),
            *_growing_models(size, stack, place, advance),
            *_without_training(size, stack, place, advance),
        ]
        lines += _rare(size)
        advance(1)
        lines += _right(size)
        advance(1)
        return lines


def _training(size: Size, advance: Advance) -> list[Line]:
    """Many small shards together, one by one, and one model on everything."""
    X, y = make_records(200 * size.small_shards)
    parts = np.split(np.arange(len(y)), size.small_shards)
    shards = [ShardData(shard, X[rows], y[rows], None, shard) for shard, rows in enumerate(parts)]
    together, single = (named_learner("logistic", batched=each) for each in (None, False))
    with training():
        ours, before, one = race(
            [
                Task(partial(fit_many, together, shards), repeatable=False),
                Task(partial(fit_many, single, shards), repeatable=False),
                Task(lambda: LogisticRegression(max_iter=1000).fit(X, y), repeatable=False),
            ],
            repeats=size.repeats,
            advance=advance,
            clock=process_time,
        )
    what = f"train logistic, k={size.small_shards:,} of 200 records"
    return [
        Line.faster(what, ours, "one model after another", before, target=TOGETHER),
        Line.cost(what, ours, "one logistic regression on everything", one),
    ]


def _voting(size: Size, advance: Advance) -> list[Line]:
    """The answer of all models together: before, one model after another; and against what cannot be spared."""
    records = 200 if size.small_shards >= 1_000 else 60
    asked = VotingSize(size.small_shards, size.small_shards, records, min(1_000, 4 * size.records), size.repeats)
    with voting():
        lines = [
            line
            for name, short in VOTING.items()
            for line in voting_lines(name, named_learner(short), asked, asked.shards, advance, clock=process_time)
        ]
        return [*lines, *floor_lines(asked, advance, clock=process_time)]


def _deletions(delete: Callable[[list[int]], Any], ids: Iterator[int], size: Size, batch: int = 1) -> Task:
    """Deletions, one a request or a batch a request; the figure is that of one request."""
    number = size.deletions if batch == 1 else max(1, size.deletions // 10)

    def work() -> None:
        for _ in range(number):
            delete([next(ids) for _ in range(batch)])

    return Task(work, operations=number, repeatable=False)


def _deleting(size: Size, stack: ExitStack, place: Path, advance: Advance) -> list[Line]:
    """One record of a table: in memory and in a folder against fitting one shard; and a hundred records."""
    X, y = make_records(size.records)
    floor = LogisticRegression()
    order = np.random.default_rng(5).permutation(size.records).tolist()
    lines: list[Line] = []
    for words, learner in (("scikit-learn's logistic", floor), ("logistic", named_learner("logistic"))):
        model = UnlearningClassifier(learner, n_shards=size.shards).fit(X, y)
        folder = place / f"delete-{len(lines)}"
        durable: DurableDeployment = stack.enter_context(create(folder, learner, X, y, n_shards=size.shards))
        rows = model.deployment_.inside.state.members[0]
        one_shard = [ShardData(0, X[rows], y[rows], None, 0)]
        held: Any = model.deployment_.inside.state.learner
        here, there = iter(order), iter(order)
        with training():
            memory, in_folder, fitting = race(
                [
                    _deletions(model.delete, here, size),
                    _deletions(durable.delete, there, size),
                    Task(partial(fit_many, held, one_shard)),
                ],
                repeats=size.repeats,
                advance=advance,
                clock=process_time,
            )
            (again,) = race(
                [Task(lambda: LogisticRegression(max_iter=1000).fit(X, y), repeatable=False)],
                repeats=size.repeats,
                advance=advance,
                clock=process_time,
            )
            batch, batch_in_folder = race(
                [_deletions(model.delete, here, size, 100), _deletions(durable.delete, there, size, 100)],
                repeats=size.repeats,
                advance=advance,
                clock=process_time,
            )
        at = f"n={size.records:,}, k={size.shards:,}, {words}"
        lines += [
            Line.cost(f"delete a record, {at}", memory, "training its shard alone", fitting),
            Line.faster(f"delete a record, {at}", memory, "one logistic regression fitted again", again),
            Line.cost(f"delete a record in a folder, {at}", in_folder, "in memory", memory, target=IN_FOLDER),
            Line.faster(f"delete 100 records in a folder, {at}", batch_in_folder, "in memory", batch, target=BATCHES),
        ]
    return lines


def _growing(size: Size, stack: ExitStack, place: Path, advance: Advance) -> list[Line]:
    """The same with few records and shards and with many, as many records a shard; and the voter after a deletion."""
    learner = named_learner("naive-bayes")
    many, few = (_Growing.of(learner, *each) for each in (size.many, size.few))
    lines = []
    for what, make in (
        ("delete a record", _Growing.deletions),
        ("add a record", _Growing.additions),
        ("delete one and predict a row", _Growing.questions),
    ):
        large, small = race(
            [make(many, size.deletions), make(few, size.deletions)],
            repeats=size.repeats,
            advance=advance,
            clock=process_time,
        )
        lines.append(Line.cost(f"{what}, {_at(*size.many)}", large, _at(*size.few), small, target=FLAT))
    models = many.model.deployment_.inside.state.models
    with voting():
        voter: Any = make_voter(learner, models, 2)
        patched, anew = race(
            [Task(lambda: voter.with_changed({3: models[4]})), Task(lambda: make_voter(learner, models, 2))],
            repeats=size.repeats,
            advance=advance,
            clock=process_time,
        )
    lines.append(Line.faster(f"the voter after a deletion, k={size.many[1]:,}", patched, "made anew", anew))
    deletions = []
    for name, (records, shards) in (("many", size.folder_many), ("few", size.few)):
        X, y = _table(records)
        durable = stack.enter_context(create(place / name, learner, X, y, n_shards=shards))
        deletions.append(_deletions(durable.delete, iter(range(records)), size))
    large, small = race(deletions, repeats=size.repeats, advance=advance, clock=process_time)
    what = f"delete a record in a folder, {_at(*size.folder_many)}"
    return [*lines, Line.cost(what, large, _at(*size.few), small, target=FLAT)]


def _table(records: int) -> tuple[NDArray[Any], NDArray[Any]]:
    rng = np.random.default_rng(4)
    X = rng.normal(size=(records, 10)).astype(np.float32)
    return X, (X[:, 0] + rng.normal(size=records) > 0).astype(np.int64)


@dataclass(frozen=True)
class _Growing:
    """A deployment in memory that records leave and join."""

    model: UnlearningClassifier
    row: NDArray[Any]
    gone: Iterator[int]
    new: Iterator[int]

    @classmethod
    def of(cls, learner: Any, records: int, shards: int) -> _Growing:
        """One that has been asked."""
        X, y = _table(records)
        model = UnlearningClassifier(learner, n_shards=shards).fit(X, y, ids=range(records))
        model.predict(X[:1])
        return cls(model, X[:1], iter(range(records)), iter(range(records, 2 * records)))

    def deletions(self, number: int) -> Task:
        """One by one."""
        return self._each(number, lambda: self.model.delete([next(self.gone)]))

    def additions(self, number: int) -> Task:
        """One by one."""
        return self._each(number, lambda: self.model.add(self.row, np.array([1]), ids=[next(self.new)]))

    def questions(self, number: int) -> Task:
        """After a deletion each."""
        return self._each(number, lambda: self.model.delete([next(self.gone)]).predict(self.row))

    @staticmethod
    def _each(number: int, act: Callable[[], Any]) -> Task:
        def work() -> None:
            for _ in range(number):
                act()

        return Task(work, operations=number, repeatable=False)


def _at(records: int, shards: int) -> str:
    return f"n={records:,}, k={shards:,}"


def _without_training(size: Size, stack: ExitStack, place: Path, advance: Advance) -> list[Line]:
    """Models that unlearn without training, in memory and in a folder, against fitting boosting again."""
    X, y = make_classification(size.forest, 20, n_informative=5, random_state=0)
    lines = []
    for name in INCREMENTAL:
        model = UnlearningClassifier(named_learner(name), n_shards=1).fit(X, y)
        durable = stack.enter_context(create(place / name, named_learner(name), X, y, n_shards=1))
        tasks = [
            _deletions(model.delete, iter(range(size.forest)), size),
            _deletions(durable.delete, iter(range(size.forest)), size),
            Task(lambda: HistGradientBoostingClassifier().fit(X, y), repeatable=False),
        ]
        memory, in_folder, boosting = race(tasks, repeats=size.repeats, advance=advance, clock=process_time)
        what = f"delete a record from {name}, n={size.forest:,}"
        lines += [
            Line.faster(what, memory, "one boosting fitted again", boosting),
            Line.cost(f"{what}, in a folder", in_folder, "in memory", memory),
        ]
    return lines


def _growing_models(size: Size, stack: ExitStack, place: Path, advance: Advance) -> list[Line]:
    """Models that unlearn without training, of few records and of many: one model, no shards."""
    lines = []
    for name in INCREMENTAL[:3]:
        learner = named_learner(name)
        tables = [_table(records) for records in size.one_shard]
        many, few = (_Growing.of(learner, records, 1) for records in size.one_shard)
        durable = [
            stack.enter_context(create(place / f"{name}-{len(y)}", learner, X, y, n_shards=1)) for X, y in tables
        ]
        for each in durable:
            each.delete([len(each.records) - 1])  # the first of a process reads the model
        for what, tasks in (
            ("delete a record from", [one.deletions(size.deletions) for one in (many, few)]),
            ("add a record to", [one.additions(size.deletions) for one in (many, few)]),
            ("delete one from, and ask,", [one.questions(size.deletions) for one in (many, few)]),
            (
                "delete a record in a folder from",
                [_deletions(each.delete, iter(range(size.one_shard[0])), size) for each in durable],
            ),
        ):
            large, small = race(tasks, repeats=size.repeats, advance=advance, clock=process_time)
            found = f"{what} {name}, n={size.one_shard[0]:,}"
            lines.append(Line.cost(found, large, f"n={size.one_shard[1]:,}", small, target=FLAT))
    return lines


def _right(size: Size) -> list[Line]:
    """How many answers are right, of models that unlearn without training and of a forest that does not."""
    X, y = make_classification(size.forest * 5 // 4, 20, n_informative=5, random_state=0)
    table, labels, asked, truth = X[: size.forest], y[: size.forest], X[size.forest :], y[size.forest :]
    forest = RandomForestClassifier(100, random_state=0).fit(table, labels)
    theirs = [float((forest.predict(asked) == truth).mean())]
    sharded = UnlearningClassifier(named_learner("logistic"), n_shards=size.shards, random_state=0).fit(table, labels)
    linear = [float((sharded.predict(asked) == truth).mean())]
    lines = []
    for name in INCREMENTAL:
        model = UnlearningClassifier(named_learner(name), n_shards=1, random_state=0).fit(table, labels)
        right = [float((model.predict(asked) == truth).mean())]
        against = (
            ("a random forest of 100", theirs) if name == "forest-exact" else (f"logistic, k={size.shards}", linear)
        )
        lines.append(Line.share(f"right answers, {name}, n={size.forest:,}", right, *against))
    return lines


def _rare(size: Size) -> list[Line]:
    """How much of a class with one record in fifty is found; no time is measured."""
    X, y = make_classification(size.rare * 5 // 4, 20, n_informative=5, weights=[0.98], flip_y=0.0, random_state=0)
    table, labels, asked, truth = X[: size.rare], y[: size.rare], X[size.rare :], y[size.rare :]

    def found(num_shards: int, **options: Any) -> list[float]:
        has_thresholds = options.pop("thresholds", False)
        learner = named_learner("tree", thresholds=has_thresholds)
        model = UnlearningClassifier(learner, n_shards=num_shards, random_state=0, **options).fit(table, labels)
        return [max(1e-3, float((model.predict(asked[truth == 1]) == 1).mean()))]

    k = size.rare_shards
    one, plain = found(1), found(k)
    overlap = found(k, sampling="independent", inclusion_probability=5 / k)
    what = f"found of a class with 2% of the records, trees, k={k:,}"
    return [
        Line.share(f"{what}, thresholds", found(k, thresholds=True), "mean probabilities", plain),
        Line.share(f"{what}, 5 shards a record", overlap, "mean probabilities", plain),
        Line.share(what, plain, "one tree", one),
    ]
