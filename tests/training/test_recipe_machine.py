"""T6, tried: after any history the state is, byte for byte, what `learn` gives on the records that are left.

Each scenario is a learner with a kind of table. A machine adds, deletes, re-adds, batches, compacts, pickles and renews
the key, and hands over its records in every form that a caller may choose. The records that are left are then built
anew: in another order, as one plain table. Compared are the members of every shard by id, exactly what a training is
given (values, types, memory layout, seeds), the bytes of every model, and the answers of all shards together. Broken
variants are shown to be caught.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import RandomForestRegressor
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression, Perceptron, Ridge, SGDClassifier, SGDRegressor
from sklearn.naive_bayes import BernoulliNB
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeRegressor

from expunge.core import features, records
from expunge.core.features import num_rows
from expunge.core.prf import RecipeKey
from expunge.core.records import Add, AddMany, Delete, DeleteMany, DeleteSubject, Records
from expunge.folder.codec import encode_model
from expunge.training import ensemble
from expunge.training.ensemble import learn, update
from expunge.training.execution import Processes, Serial
from expunge.training.learners import (
    AbstainingLearner,
    LookupTableLearner,
    NearestTableLearner,
    ScikitLearner,
    SlicedScikitLearner,
    scikit,
    tabular,
)
from expunge.training.learners.named import exact_names, learner_names, named_learner, regressor_names
from expunge.training.parcels import make_key, result_of, seal, work
from expunge.training.recipe import Recipe, digest_contents
from expunge.training.sampling import IndependentSampler, PartitionSampler

LABELS = np.array(["no", "perhaps, but very unlikely", "yes"])
WORDS = ("red", "green", "zo\u00eb", "zoe\u0308", "blue")
QUICK: dict[str, dict[str, Any]] = {  # the same code, fewer rounds
    "forest": {"n_estimators": 3},
    "extra-trees": {"n_estimators": 3},
    "boosting": {"max_iter": 2, "min_samples_leaf": 2},
    "mlp": {"hidden_layer_sizes": [3], "max_iter": 3},
    "forest-exact": {"num_trees": 3, "share": 0.7},
    "forest-exact-regression": {"num_trees": 3, "share": 0.7},
    "xgboost": {"n_estimators": 2, "max_depth": 2},
    "lightgbm": {"n_estimators": 2, "min_child_samples": 2},
    "catboost": {"iterations": 2, "depth": 2},
    "forest-regression": {"n_estimators": 3},
    "extra-trees-regression": {"n_estimators": 3},
    "mlp-regression": {"hidden_layer_sizes": [3], "max_iter": 3},
    "xgboost-regression": {"n_estimators": 2, "max_depth": 2, "subsample": 0.7},
    "lightgbm-regression": {"n_estimators": 2, "min_child_samples": 2, "subsample": 0.7, "subsample_freq": 1},
    "catboost-regression": {"iterations": 2, "depth": 2},
    "boosting-regression": {"max_iter": 2, "min_samples_leaf": 2},
}


@dataclass(frozen=True)
class Person:
    """One record in plain values."""

    numbers: tuple[float, float, float]
    count: int
    word: str | None
    flag: bool
    text: str
    gap: float
    label: str
    subject: str | None
    weight: float


def make_person(number: int) -> Person:
    rng = random.Random(number)
    label = rng.randrange(3)
    numbers = tuple(round(rng.gauss(label, 1.0), 3) for _ in range(3))
    return Person(
        numbers=numbers,  # type: ignore[arg-type]
        count=rng.randrange(5) + label,
        word=rng.choice([*WORDS, None]),
        flag=rng.random() < 0.5,
        text=" ".join(rng.choices(WORDS, k=3)),
        gap=rng.choice([float("nan"), 1.0, 2.5]),
        label=str(LABELS[label]),
        subject=rng.choice([None, "ann", "bob", "zo\u00eb"]),
        weight=rng.choice([0.0, 0.5, 1.0, 2.0]),
    )


Table = Callable[[list[Person], random.Random | None], Any]


def arrays(dtype: Any) -> Table:
    """Arrays, of any layout that holds the same numbers; without a `random.Random` the plain one."""

    def make(people, way):
        rows = np.array([(*p.numbers, p.count) for p in people], dtype=np.float64).reshape(-1, 4)
        rows = np.round(rows).astype(dtype) if np.dtype(dtype).kind == "i" else rows.astype(dtype)
        match way.randrange(4) if way else 0:
            case 1:
                return np.asfortranarray(rows)
            case 2:
                return np.repeat(rows, 2, axis=0)[::2]
            case 3:
                return rows.astype(rows.dtype.newbyteorder(">"))
        return rows

    return make


def sparse(people, way):
    dense = arrays(np.float64)(people, None)
    dense[dense < 0.5] = 0.0
    table = scipy.sparse.csr_matrix(dense)
    match way.randrange(4) if way else 0:
        case 1:
            return scipy.sparse.csr_array(dense)
        case 2:  # every number in two halves, the columns backwards, and zeros
            rows, columns = np.nonzero(np.ones_like(dense))
            rows, columns = np.repeat(rows[::-1], 2), np.repeat(columns[::-1], 2)
            values = np.repeat(dense[::-1, ::-1].ravel(), 2) / 2
            order = np.argsort(rows, kind="stable")
            starts = np.searchsorted(rows[order], np.arange(len(dense) + 1))
            return scipy.sparse.csr_matrix((values[order], columns[order], starts), shape=dense.shape)
        case 3:
            table.indices, table.indptr = table.indices.astype(np.int64), table.indptr.astype(np.int64)
    return table


def frame(people, way):
    columns = {
        "age": [p.count for p in people],
        "height": [p.numbers[0] for p in people],
        "town": [p.word for p in people],
        "kind": pd.Categorical([p.word for p in people]),
        "flag": [p.flag for p in people],
        "income": [p.gap for p in people],
        "weight": [p.numbers[1] for p in people],
    }
    types = {
        "age": "int64",
        "height": "float64",
        "town": "str",
        "flag": "bool",
        "income": "float64",
        "weight": "float64",
    }
    made = pd.DataFrame(columns).astype(types)
    if way is None:
        return made
    if way.random() < 0.5:  # other categories, in another order
        made["kind"] = pd.Categorical([p.word for p in people], categories=["gone", *WORDS[::-1]])
    if way.random() < 0.3:
        made["kind"] = pd.Series([p.word for p in people], dtype=object)  # with None instead of NaN
    if way.random() < 0.5:
        made["age"] = made["age"].astype(way.choice(["float64", "int32"]))
    if way.random() < 0.5:
        made.index = pd.Index(way.sample(range(1000), len(made)), name="row")
    if way.random() < 0.5:  # every column in a block of its own
        made = pd.concat([made[[name]] for name in made], axis=1)
    made.attrs["from"] = "a file"
    return made


def texts(people, way):
    listed = [p.text for p in people]
    return np.array(listed, dtype=str) if way and listed and way.random() < 0.5 else np.array(listed, dtype=object)


def mixed(people, way):
    """Python values of several kinds, in lists or in arrays of objects, some of them NumPy's."""
    listed = [[p.count, p.word or "", p.numbers[0], p.flag] for p in people]
    if way and listed and way.random() < 0.5:
        return listed
    if way and way.random() < 0.5:
        listed = [[np.int64(a), np.str_(b), np.float64(c), np.bool_(d)] for a, b, c, d in listed]
    return np.array(listed, dtype=object).reshape(-1, 4)


KINDS = {
    "age": "number", "height": "number", "town": "category", "kind": "category",
    "flag": "category", "income": "number", "weight": "number",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Scenario:
    """A learner, the kind of table it is trained on, and how its shards are drawn."""

    learner: Any
    table: Table
    is_weighted: bool = False
    sampler: Any = field(default_factory=PartitionSampler)
    num_shards: int = 3
    outputs: tuple[int, ...] | None = None  # of a regressor

    def labels(self, people: list[Person], way: random.Random | None = None) -> Any:
        """Labels as a caller may give them; numbers in any type and memory layout that holds them."""
        if self.outputs is None:
            return np.array([p.label for p in people], dtype=str) if way is None else [p.label for p in people]
        targets = np.array([[p.numbers[0] * 2 + p.count, p.gap if p.gap == p.gap else -p.count] for p in people])
        targets = targets.reshape(-1, 2)[:, 0] if self.outputs == () else targets.reshape(-1, 2)
        match way.randrange(4) if way else 0:
            case 1:
                return np.asfortranarray(targets)
            case 2:
                return targets.astype(object)
            case 3:
                return targets.tolist() if len(people) else targets
        return targets

    def build(self, people: dict[Any, Person], way: random.Random | None = None) -> Records:
        everybody = list(people.values())
        table = self.table(everybody, way)
        if self.table is frame and table["age"].dtype == np.int32:
            table["age"] = table["age"].astype(np.int64)  # a type of 32 bits would be declared by this
        return Records.build(
            table,
            self.labels(everybody),
            ids=list(people),
            subjects=[p.subject for p in everybody],
            weights=[p.weight for p in everybody] if self.is_weighted else None,
            classes=LABELS if self.outputs is None else None,
            is_regression=self.outputs is not None,
            allow_missing=True,
        )


class SeesAll(ClassifierMixin, BaseEstimator):
    """Like a classifier of another package: its model is everything that it was given, down to the memory layout."""

    def __init__(self, random_state=None):
        self.random_state = random_state

    def fit(self, X, y, sample_weight=None):
        self.classes_ = np.unique(y)
        self.seen_ = repr((looks_of(X), digest_contents(X, y, sample_weight).hex(), y.dtype, self.random_state))
        return self

    def predict(self, X):
        return np.full(num_rows(X), self.classes_[0])


class SeesNumbers(SeesAll):
    """Takes the labels 0, 1, … and no others, as XGBoost does."""

    def fit(self, X, y, sample_weight=None):
        if not np.array_equal(np.unique(y), np.arange(len(np.unique(y)))):
            raise ValueError("the labels are not 0, 1, …")
        return super().fit(X, y, sample_weight)


class Plain:
    """A learner with nothing but `fit`."""

    def fit(self, X, y, seed, *, weights=None):
        return PlainModel((looks_of(X), looks_of(y), digest_contents(X, y, weights), str(y.dtype), seed))


class PlainNumbers(Plain):
    """The same for numbers."""

    predicts_values = True

    def fit(self, X, y, seed, *, weights=None):
        return PlainValues(super().fit(X, y, seed, weights=weights).seen, y[0])


@dataclass(frozen=True)
class PlainModel:
    seen: tuple[Any, ...]

    def predict(self, X):
        return np.zeros(num_rows(X), dtype=np.int64)


@dataclass(frozen=True)
class PlainValues(PlainModel):
    first: Any

    def values(self, X):
        return np.broadcast_to(self.first, (num_rows(X), *np.shape(self.first)))


def looks_of(X) -> tuple[Any, ...]:
    """How a container lies in memory: whatever a learner could tell apart besides its values."""
    if isinstance(X, pd.DataFrame):
        blocks = [(str(b.dtype), b.mgr_locs.as_array.tolist(), _flags(b.values)) for b in X._mgr.blocks]
        columns = (str(X.columns.dtype), X.columns.name, X.columns.tolist())
        return "frame", blocks, repr(X.index), columns, str(X.dtypes.to_dict()), dict(X.attrs)
    if scipy.sparse.issparse(X):
        parts = [(part.dtype.str, part.tolist()) for part in (X.indptr, X.indices, X.data)]
        return type(X).__name__, X.shape, parts
    return type(X).__name__, X.dtype.str, X.shape, _flags(X)


def _flags(values):
    if not isinstance(values, np.ndarray):
        return None
    return values.flags.c_contiguous, values.flags.f_contiguous, values.flags.writeable


def trace(state) -> list[Any]:
    """The whole state as a value: members by id, what every training is given, and the bytes of every model."""
    found = []
    for shard, (slots, model) in enumerate(zip(state.members, state.models, strict=True)):
        data = state.contents(shard)
        given = digest_contents(data.X, data.y, data.weights), looks_of(data.X), str(data.y.dtype)
        seeds = getattr(data, "seeds", None) or data.seed
        found.append((sorted(map(str, state.records.ids_of(slots).tolist())), given, seeds, bytes_of(state, model)))
    return found


def bytes_of(state, model) -> Any:
    seen = getattr(model, "seen", None) or getattr(getattr(model, "estimator", None), "seen_", None)
    return seen if seen is not None else encode_model(state.learner, model).data


def torch_network():
    from torch import nn

    return nn.Linear(4, 3)


def jax_learner():
    jax = pytest.importorskip("expunge.training.learners.jax")
    return jax.JaxLearner(jax.logistic(input_shape=(4,)), epochs=1, batch_size=4)


def torch_learner():
    torch = pytest.importorskip("expunge.training.learners.pytorch")
    return torch.TorchLearner(torch_network, epochs=1, batch_size=4)


BOOSTING = ("xgboost", "lightgbm", "catboost")
TAKES_WEIGHTS = {
    "logistic",
    "linear-svm",
    "ridge",
    "sgd",
    "naive-bayes",
    "tree",
    "forest",
    "extra-trees",
    "boosting",
    "svm",
    *BOOSTING,
}
FLOATS, HALVES, WHOLE = arrays(np.float64), arrays(np.float32), arrays(np.int64)
HALF = IndependentSampler(0.5)

SCENARIOS: dict[str, Callable[[], Scenario]] = {
    f"{name}, arrays": lambda name=name: Scenario(
        named_learner(name, **QUICK.get(name, {})), FLOATS, is_weighted=name in TAKES_WEIGHTS
    )
    for name in learner_names()
}
SCENARIOS |= {
    f"{name}, frames": lambda name=name: Scenario(
        named_learner(name, columns=KINDS, **QUICK.get(name, {})), frame, sampler=HALF
    )
    for name in learner_names()
}
SCENARIOS |= {
    f"{name}, {kind}": lambda name=name, table=table, shards=shards: Scenario(
        named_learner(name, **QUICK.get(name, {})), table, sampler=HALF, num_shards=shards
    )
    for name in exact_names()
    for kind, table, shards in [("arrays", FLOATS, 3), ("sparse", sparse, 3)]
}
SCENARIOS |= {
    f"{name}, one shard": lambda name=name: Scenario(
        AbstainingLearner(named_learner(name, **QUICK.get(name, {}))), WHOLE, num_shards=1
    )
    for name in exact_names()
}
SCENARIOS |= {
    f"{name}, {kind}": lambda name=name, kinds=kinds, table=table: Scenario(
        named_learner(name, columns=kinds, **QUICK.get(name, {})), table, outputs=()
    )
    for name in regressor_names()
    for kind, kinds, table in [("arrays", None, FLOATS), ("frames", KINDS, frame)]
}
SCENARIOS |= {
    f"{name}, one by one": lambda name=name: Scenario(
        named_learner(name, batched=False), FLOATS, is_weighted=name != "ridge", sampler=HALF
    )
    for name in ("logistic", "ridge", "linear-svm", "naive-bayes")
}
SCENARIOS |= {
    "thresholds, arrays": lambda: Scenario(
        named_learner("naive-bayes", thresholds=True), FLOATS, is_weighted=True, sampler=HALF
    ),
    "thresholds, frames": lambda: Scenario(named_learner("tree", columns=KINDS, thresholds=True), frame),
    "words in a frame": lambda: Scenario(
        named_learner("logistic", columns={**KINDS, "town": "text"}), frame, sampler=HALF
    ),
    "texts": lambda: Scenario(ScikitLearner(make_pipeline(CountVectorizer(), BernoulliNB())), texts),
    "slices by partial_fit": lambda: Scenario(SlicedScikitLearner(SGDClassifier(), 3), FLOATS, is_weighted=True),
    "slices by warm start": lambda: Scenario(
        SlicedScikitLearner(LogisticRegression(max_iter=5), 3, mode="warm_start"), HALVES, sampler=HALF
    ),
    "slices of sparse rows": lambda: Scenario(SlicedScikitLearner(Perceptron(), 2), sparse),
    "lookup table": lambda: Scenario(LookupTableLearner(), FLOATS),
    "nearest table": lambda: Scenario(NearestTableLearner(1.0), FLOATS),
    "another package, frames": lambda: Scenario(ScikitLearner(SeesAll()), frame, is_weighted=True),
    "another package, sparse": lambda: Scenario(ScikitLearner(SeesAll()), sparse, sampler=HALF),
    "another package, float32": lambda: Scenario(ScikitLearner(SeesAll()), HALVES),
    "another package, numbered labels": lambda: Scenario(ScikitLearner(SeesNumbers()), FLOATS, sampler=HALF),
    "another package, integers": lambda: Scenario(AbstainingLearner(SeesAll()), WHOLE, is_weighted=True),
    "only fit, frames": lambda: Scenario(Plain(), frame, num_shards=1),
    "only fit, sparse": lambda: Scenario(Plain(), sparse, is_weighted=True),
    "only fit, arrays": lambda: Scenario(Plain(), FLOATS),
    "only fit, Python values": lambda: Scenario(Plain(), mixed, is_weighted=True),
    "ridge, sparse": lambda: Scenario(ScikitLearner(LogisticRegression(max_iter=20)), sparse),
    "regression, ridge": lambda: Scenario(ScikitLearner(Ridge()), FLOATS, is_weighted=True, outputs=()),
    "regression, ridge of two": lambda: Scenario(ScikitLearner(Ridge()), sparse, outputs=(2,)),
    "regression, trees of two": lambda: Scenario(
        ScikitLearner(DecisionTreeRegressor()), HALVES, is_weighted=True, sampler=HALF, outputs=(2,)
    ),
    "regression, forest of two": lambda: Scenario(
        AbstainingLearner(RandomForestRegressor(n_estimators=3)), FLOATS, outputs=(2,)
    ),
    "regression, slices by partial_fit": lambda: Scenario(
        SlicedScikitLearner(SGDRegressor(), 3), FLOATS, is_weighted=True, outputs=()
    ),
    "regression, slices by warm start": lambda: Scenario(
        SlicedScikitLearner(SGDRegressor(max_iter=3), 2, mode="warm_start"), HALVES, outputs=()
    ),
    "only fit, numbers": lambda: Scenario(PlainNumbers(), FLOATS, is_weighted=True, outputs=()),
    "only fit, rows of numbers": lambda: Scenario(PlainNumbers(), frame, sampler=HALF, outputs=(2,)),
    "jax": lambda: Scenario(jax_learner(), HALVES, num_shards=2),
    "pytorch": lambda: Scenario(torch_learner(), HALVES, num_shards=2),
}


class History:
    """A deployment's records and state, changed step by step."""

    def __init__(self, scenario: Scenario, seed: int, executor: Any = None, updater: Any = update) -> None:
        self.scenario, self.way = scenario, random.Random(seed)
        self.executor, self.updater = executor or Serial(), updater
        self.fresh = iter(range(1000, 10**6))
        self.people = {self.new_id(): make_person(self.way.randrange(40)) for _ in range(14)}
        recipe = Recipe(scenario.learner, scenario.num_shards, scenario.sampler, RecipeKey.from_seed(seed))
        self.state = learn(scenario.build(self.people, self.way), recipe, executor=self.executor)
        self.left: list[Any] = []

    def new_id(self) -> Any:
        number = next(self.fresh)
        return number if number % 3 else f"zoe\u0308 {number}"

    def update(self, batch) -> None:
        self.state, _ = self.updater(self.state, batch, executor=self.executor)

    def add(self, people: dict[Any, Person], *, one: bool = False):
        everybody = list(people.values())
        table, labels = self.scenario.table(everybody, self.way), self.scenario.labels(everybody, self.way)
        self.people |= people
        weights = [p.weight for p in everybody] if self.scenario.is_weighted else None
        if one:
            (name, person), rows = next(iter(people.items())), table
            if self.scenario.table is frame and self.way.random() < 0.5:
                rows = {column: table[column].tolist()[0] for column in table}
            if self.scenario.table in (texts, mixed):
                rows = table[0]
            weight = person.weight if self.scenario.is_weighted else 1.0
            return Add(id=name, features=rows, label=labels[0], subject=person.subject, weight=weight)
        return AddMany(
            ids=list(people),
            features=table,
            labels=labels,
            subjects=[p.subject for p in everybody],
            weights=weights,
        )

    def some(self, count: int) -> list[Any]:
        chosen = self.way.sample(list(self.people), min(count, len(self.people)))
        for name in chosen:
            del self.people[name]
        self.left += chosen
        return chosen

    def step(self, kind: str) -> None:
        way = self.way
        match kind:
            case "add":
                self.update([self.add({self.new_id(): make_person(way.randrange(40))}, one=True)])
            case "add many":
                self.update([self.add({self.new_id(): make_person(way.randrange(40)) for _ in range(4)})])
            case "delete":
                self.update([Delete(name) for name in self.some(1)])
            case "delete many":
                self.update([DeleteMany(self.some(6))])
            case "delete subject":
                subject = way.choice(["ann", "bob", "zoe\u0308"])
                gone = [n for n, p in self.people.items() if p.subject == subject.replace("zoe\u0308", "zo\u00eb")]
                if gone:
                    self.left += gone
                    self.people = {n: p for n, p in self.people.items() if n not in gone}
                    self.update([DeleteSubject(subject)])
            case "return" if self.left:
                back = self.left.pop(way.randrange(len(self.left)))
                self.update([self.add({back: make_person(way.randrange(40))}, one=way.random() < 0.5)])
            case "batch":
                gone, new = self.some(2), self.new_id()
                passing = self.new_id()
                batch = [Delete(name) for name in gone] + [self.add({passing: make_person(way.randrange(40))})]
                batch.append(self.add({new: make_person(way.randrange(40)), self.new_id(): make_person(1)}))
                if gone:  # leaves and comes back within the batch, as another record
                    self.left.remove(gone[0])
                    batch.append(self.add({gone[0]: make_person(way.randrange(40))}, one=True))
                del self.people[passing]
                self.update([*batch, Delete(passing)])
            case "compact":
                self.state = self.state.compacted()
            case "pickle":
                self.state = pickle.loads(pickle.dumps(self.state))
            case "renew":
                self.state = learn(self.state.records, self.state.recipe.renewed(), executor=self.executor)

    def anew(self):
        """What the recipe gives on the records that are left, listed in another order, in a plain table."""
        left = dict(sorted(self.people.items(), key=lambda item: (str(item[0])[::-1], str(item[0]))))
        return learn(self.scenario.build(left), self.state.recipe)

    def answers(self, state) -> list[bytes]:
        """Votes, probabilities or values of all shards together, about rows that no history changes."""
        rows = self.scenario.table([make_person(number) for number in range(100, 106)], None)
        if self.scenario.outputs is not None:
            return [np.asarray(state.values(rows, how)).tobytes() for how in ("mean", "median")]
        return [
            state.votes(rows).tobytes(),
            state.count_votes(rows).tobytes(),
            state.mean_probabilities(rows).tobytes(),
        ]

    def check(self) -> None:
        anew = self.anew()
        assert trace(self.state) == trace(anew)
        assert self.answers(self.state) == self.answers(anew)


STEPS = ("add", "add many", "delete", "delete many", "delete subject", "return", "batch", "compact", "pickle", "renew")


def machine_of(name: str, executor: Any = None) -> type[RuleBasedStateMachine]:
    """The machine of a scenario; the records that are left are built anew at the end of every history."""

    class Machine(RuleBasedStateMachine):
        history: History | None = None

        @initialize(seed=st.integers(0, 999))
        def create(self, seed):
            self.history = History(SCENARIOS[name](), seed, executor)

        @rule(kind=st.sampled_from(STEPS), asks=st.booleans())
        def change(self, kind, asks):
            self.history.step(kind)
            if asks:  # what votes for all shards is then carried on by the next updates, and not made anew
                self.history.answers(self.history.state)

        def teardown(self):
            if self.history is not None:
                self.history.check()

    return Machine


@pytest.fixture(autouse=True)
def soon_compacted(monkeypatch):
    monkeypatch.setattr(ensemble, "_DEAD_SLOTS_ALLOWED", 3)


def run_machine(machine, examples: int, steps: int) -> None:
    options = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(machine, settings=options)


@pytest.mark.parametrize("name", SCENARIOS)
def test_after_any_history_the_state_is_what_the_recipe_gives(name):
    is_quick = name.startswith(("only", "another", "lookup"))
    run_machine(machine_of(name), *((12, 12) if is_quick else (3, 6)))


class InThreads:
    """Trains shards in threads of this process, side by side."""

    num_workers, is_remote = 2, False

    def map(self, function, items):
        with ThreadPoolExecutor(self.num_workers) as pool:
            yield from pool.map(function, items)


def live_with(name: str, executor: Any, steps: tuple[str, ...]) -> None:
    """Shards are trained elsewhere; what is compared is trained one after another, in this thread."""
    history = History(SCENARIOS[name](), 5, executor)
    for kind in steps:
        history.step(kind)
    history.executor = Serial()
    history.check()


REAL = [name for name in SCENARIOS if not name.startswith(("only fit", "another"))]


@pytest.mark.parametrize("name", REAL)
def test_threads_give_the_same_bits(name):
    live_with(name, InThreads(), ("add many", "delete many", "batch"))


class Sealed:
    """Trains as on another machine: what is asked for and what comes back travels in parcels alone."""

    num_workers, is_remote = 2, True

    def map(self, function, items):
        key = make_key()
        for place in range(len(items)):
            yield result_of(key, work(key, seal(key, function), seal(key, items[place])))


@pytest.mark.parametrize("name", REAL[::5])
def test_what_travels_in_parcels_gives_the_same_bits(name):
    live_with(name, Sealed(), ("add many", "delete many", "batch"))


@pytest.mark.parametrize("name", ["tree, frames", "slices by warm start", *(f"{name}, arrays" for name in BOOSTING)])
def test_worker_processes_give_the_same_bits(name):
    live_with(name, Processes(2), ("add many", "delete many", "batch", "delete"))


@pytest.mark.long
@pytest.mark.parametrize("name", REAL)
def test_worker_processes_give_the_same_bits_for_every_learner(name):
    live_with(name, Processes(2), ("add many", "delete many", "batch"))


def fails(name: str, *, seeds: int = 14, updater: Any = update) -> bool:
    """Whether a history finds a difference."""
    for seed in range(seeds):
        history = History(SCENARIOS[name](), seed, updater=updater)
        for kind in random.Random(seed).choices(STEPS, k=1 + seed):
            history.answers(history.state)
            history.step(kind)
        try:
            history.check()
        except AssertionError:
            return True
    return False


def keeps_old_seeds(state, batch, **options):
    done, report = update(state, batch, **options)
    models = list(done.models)
    for shard in report.touched:
        now, before = done.contents(shard), state.contents(shard)
        if len(now.y) and len(before.y):
            models[shard] = done.learner.fit(now.X, now.y, before.seed, weights=now.weights)
    return replace(done, models=tuple(models)), report


def skips_a_shard(state, batch, **options):
    done, report = update(state, batch, **options)
    models = list(done.models)
    for shard in report.touched[:1]:
        models[shard] = state.models[shard]
    return replace(done, models=tuple(models)), report


def take_with_old_index(rows, positions):
    return rows.iloc[positions] if features.is_frame(rows) else rows[positions]


def same(rows):
    return rows


BROKEN = {
    "order of arrival": ("only fit, arrays", lambda: mock.patch.object(RecipeKey, "order", return_value=slice(None))),
    "categories and number types of the first table": (
        "only fit, frames",
        lambda: mock.patch.object(records, "standard_types", same),
    ),
    "arrays as they came": ("only fit, arrays", lambda: mock.patch.object(records, "plain_form", same)),
    "sparse rows as they came": ("only fit, sparse", lambda: mock.patch.object(features, "_plain_sparse", same)),
    "Python values as they came": ("only fit, Python values", lambda: mock.patch.object(features, "_SCALARS", ())),
    "gaps as they came": ("only fit, frames", lambda: mock.patch.object(records, "plain_form", same)),
    "block layout of a frame": ("only fit, frames", lambda: mock.patch.object(records, "settle", same)),
}


@pytest.mark.parametrize("variant", BROKEN)
def test_a_leak_of_history_is_caught(variant):
    name, broken = BROKEN[variant]
    assert not fails(name)
    with broken():
        assert fails(name)


def test_the_row_index_of_a_frame_is_caught(monkeypatch):
    from expunge.core import blocks
    from expunge.training import recipe

    for module in (blocks, records, recipe):
        monkeypatch.setattr(module, "take", take_with_old_index)
    assert fails("only fit, frames")


@pytest.mark.parametrize("broken", [keeps_old_seeds, skips_a_shard])
@pytest.mark.parametrize("name", ["only fit, arrays", "only fit, rows of numbers"])
def test_a_broken_update_is_caught(broken, name):
    assert fails(name, updater=broken)


@pytest.mark.parametrize(
    ("name", "voter"), [("logistic, one by one", scikit._FrameTolerantVoter), ("tree, arrays", tabular.PerShardVoter)]
)
def test_votes_of_models_that_are_gone_are_caught(name, voter, monkeypatch):
    """All models are what they should be; the table that they vote from is the one of the round before."""
    assert not fails(name, seeds=4)
    monkeypatch.setattr(voter, "with_changed", lambda self, models: self)
    assert fails(name)


def test_targets_measured_by_those_of_the_first_table_are_caught(monkeypatch):
    """Scaling that is learned once, when the records come in, remembers those that have left since."""

    def gather(self, slots, order=None):
        X, y, weights = unbroken(self, slots, order)
        return X, y - self.blocks[0].labels.mean(axis=0), weights

    unbroken = Records.gather
    assert not fails("only fit, numbers")
    monkeypatch.setattr(Records, "gather", gather)
    assert fails("only fit, numbers")


def test_weights_that_outlive_the_record_that_had_one_are_caught(monkeypatch):
    def gather(self, slots, order=None):
        X, y, _ = unbroken(self, slots, order)
        return X, y, np.ones(len(y)) if any(block.weights is not None for block in self.blocks) else None

    unbroken = Records.gather
    monkeypatch.setattr(Records, "gather", gather)
    monkeypatch.setattr(Records, "_own_weights", lambda self, block: block.weights)
    monkeypatch.setattr(ensemble, "_DEAD_SLOTS_ALLOWED", 100)
    history = History(SCENARIOS["only fit, arrays"](), 1)
    history.check()
    history.update([Add(id="heavy", features=[0.0] * 4, label="no", weight=2.0)])
    history.update([Delete("heavy")])
    history.step("add many")
    with pytest.raises(AssertionError):
        history.check()
