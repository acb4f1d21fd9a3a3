"""The ways to honour a deletion that are compared: what each does, and what it promises."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Protocol, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.ensemble import BaggingClassifier, RandomForestClassifier
from sklearn.linear_model import SGDClassifier

import expunge
from expunge.training.learners import SlicedScikitLearner
from expunge.training.learners.named import named_learner
from expunge_lab.compare.tables import DATASETS

Kind = Literal["refitted", "bagging", "sisa", "exact", "consensus", "incremental"]
_LEAST_ROWS = 20  # of a shard
_MOST_KEPT = 100_000  # records that are compared with every query, or that a forest is grown from
NUMBERS_OF_SHARDS = (1, 10, 100, 500)
SLICES = {"table": 10, "network": 50}


class Running(Protocol):
    """A model that was fitted and can forget."""

    def fit(self, X: Any, y: Any) -> None:
        """Fit it; the ids of rows are their numbers."""

    def delete(self, ids: list[int]) -> None:
        """Forget rows."""

    def add(self, X: Any, y: Any, ids: list[int]) -> None:
        """Add rows."""

    def predict(self, X: Any) -> NDArray[Any]:
        """A class code for each row; negative where there is no answer."""

    def probabilities(self, X: Any) -> NDArray[np.float64] | None:
        """Of each class; None if there are none."""

    def retrain(self) -> None:
        """Do again what fitting did, compiled by now."""

    def store(self, folder: Path, X: Any, y: Any) -> Any:
        """Write all that is needed to go on; what then deletes from there, if anything does."""


@dataclass
class Refitted:
    """An estimator of scikit-learn, fitted on everything again after every change."""

    estimator: Any
    rows: dict[str, Any] = field(default_factory=dict)

    def fit(self, X: Any, y: Any) -> None:
        """Fit it."""
        self.rows = {"X": X, "y": y, "ids": np.arange(len(y))}
        self.retrain()

    def retrain(self) -> None:
        """Fit a copy without a past."""
        self.estimator = clone(self.estimator).fit(self.rows["X"], self.rows["y"])

    def delete(self, ids: list[int]) -> None:
        """Fit on the others."""
        stays = ~np.isin(self.rows["ids"], ids)
        self.rows = {name: each[stays] for name, each in self.rows.items()}
        self.retrain()

    def add(self, X: Any, y: Any, ids: list[int]) -> None:
        """Fit on more."""
        new = {"X": X, "y": y, "ids": np.array(ids)}
        self.rows = {name: np.concatenate([each, new[name]]) for name, each in self.rows.items()}
        self.retrain()

    def predict(self, X: Any) -> NDArray[Any]:
        """The estimator's."""
        return np.asarray(self.estimator.predict(X))

    def probabilities(self, X: Any) -> NDArray[np.float64] | None:
        """The estimator's."""
        return np.asarray(self.estimator.predict_proba(X)) if hasattr(self.estimator, "predict_proba") else None

    def store(self, folder: Path, X: Any, y: Any) -> Any:
        """Rows and model, as one would write them."""
        folder.mkdir()
        np.savez(folder / "rows.npz", **self.rows)
        (folder / "model").write_bytes(pickle.dumps(self.estimator))


@dataclass
class Deployed:
    """A classifier of this package."""

    learner: Any
    num_shards: int | str
    options: dict[str, Any] = field(default_factory=dict)
    model: Any = None

    def fit(self, X: Any, y: Any) -> None:
        """Fit it."""
        made = expunge.UnlearningClassifier(self.learner, n_shards=self.num_shards, random_state=0, **self.options)
        self.model = made.fit(X, y, ids=range(len(y)))

    def retrain(self) -> None:
        """With a new key."""
        self.model.deployment_.rekey()

    def delete(self, ids: list[int]) -> None:
        """Retrain the shards that hold them."""
        self.model.delete(ids)

    def add(self, X: Any, y: Any, ids: list[int]) -> None:
        """Retrain the shards that get them."""
        self.model.add(X, y, ids=ids)

    def predict(self, X: Any) -> NDArray[Any]:
        """What is released."""
        found = self.model.predict(X)
        return np.array([-1 if each is None else each for each in found]) if found.dtype == object else found

    def probabilities(self, X: Any) -> NDArray[np.float64] | None:
        """Under the exact promise."""
        return np.asarray(self.model.predict_proba(X)) if hasattr(self.model, "predict_proba") else None

    def store(self, folder: Path, X: Any, y: Any) -> Any:
        """A folder, whose deletions are on the disk and erased."""
        options = dict(self.options)
        return expunge.create(folder, self.learner, X, y, ids=range(len(y)), n_shards=self.num_shards, **options)


@dataclass(frozen=True)
class Method:
    """One way, on one dataset."""

    name: str
    kind: Kind
    make: Callable[[], Running]
    is_charged: bool = False  # for predictions, so they come after the deletions
    compiles: bool = False  # at first, so it is fitted twice


def methods_for(dataset: str, num_records: int, *, quick: bool = False) -> list[Method]:
    """What is compared on a dataset, in the order of the page; for a quick trial what takes no time."""
    learners = DATASETS[dataset].learners
    learners = learners[:1] if quick else learners
    if learners == ("network",):
        return [*_networks(dataset, num_records), *_incremental(dataset, num_records)]
    found: list[Method] = []
    for name in learners:
        base: Any = cast("Any", named_learner(name)).estimator
        found.append(Method(f"{name}, one model", "refitted", partial(Refitted, base)))
        if dataset != "rare":
            found.append(Method(f"{name}, bagging of 10", "bagging", partial(Refitted, BaggingClassifier(base))))
        found += [
            Method(f"{name}, {_shards(k)}", "exact", partial(Deployed, named_learner(name), k))
            for k in NUMBERS_OF_SHARDS
            if (k < 500 or name != "boosting" or dataset == "table")
            and num_records >= k * (10 * _LEAST_ROWS if quick else _LEAST_ROWS)
        ]
        found += list(_for_rare(name)) if dataset == "rare" else []
    if dataset == "table" and not quick:
        forest = RandomForestClassifier(100)
        found.append(Method("random forest of 100, one model", "refitted", partial(Refitted, forest)))
    sliced = SlicedScikitLearner(SGDClassifier(loss="log_loss"), num_slices=SLICES["table"])
    voting = {"promise": "unguarded", "sampling": "partition"}
    words = f"logistic by SGD, 20 shards of {SLICES['table']} slices"
    found.append(Method(words, "sisa", partial(Deployed, sliced, 20, voting)))
    if num_records > 10_000:
        consensus = {"promise": "consensus"}
        words = "logistic, as many shards as the target needs"
        found.append(
            Method(words, "consensus", partial(Deployed, named_learner("logistic"), "auto", consensus), is_charged=True)
        )
    return [*found, *_incremental(dataset, num_records)]


def _shards(k: int) -> str:
    return f"{k} shard{'s' * (k > 1)}"


def _for_rare(name: str) -> Iterator[Method]:
    """Thresholds, and shards that overlap."""
    for k in (10, 100, 500) if name != "boosting" else (10, 100):
        learner = named_learner(name, thresholds=True)
        yield Method(f"{name}, {_shards(k)}, thresholds", "exact", partial(Deployed, learner, k))
        for each in (3, 5) if name == "tree" and k < 500 else ():
            options = {"sampling": "independent", "inclusion_probability": each / k}
            words = f"{name}, {_shards(k)}, {each} a record"
            yield Method(words, "exact", partial(Deployed, named_learner(name), k, options))


def _incremental(dataset: str, num_records: int) -> Iterator[Method]:
    names = ["ridge-exact", "naive-bayes-exact"]
    if num_records <= _MOST_KEPT or dataset == "million":  # more rows of many columns take minutes to be compared
        names.append("neighbours-exact")
    if num_records <= _MOST_KEPT and find_spec("numba") is not None:
        names.append("forest-exact")
    for name in names:
        yield Method(name, "incremental", partial(Deployed, named_learner(name), 1))


def _networks(dataset: str, num_records: int) -> Iterator[Method]:
    """A network, trained for a number of steps that goes with the rows; the same work at any number of shards."""
    from expunge.training.learners.jax import JaxLearner, SlicedJaxLearner, mlp, paper_network, sgd

    network: Any = mlp(hidden=(128,), input_shape=(600,)) if dataset == "purchase" else paper_network()
    epochs = 4
    scale = 1.0 if dataset == "purchase" else 1 / 255

    def learner(**length: Any) -> Any:
        return JaxLearner(network, optimizer=sgd(0.1, momentum=0.9), input_scale=scale, **length)

    yield Method("one model", "refitted", partial(Deployed, learner(epochs=epochs), 1), compiles=True)
    for k in (20, 100, 500):
        if num_records >= k * _LEAST_ROWS:
            more = epochs if k < 500 else 2 * epochs  # small shards need more passes
            yield Method(f"{_shards(k)}", "exact", partial(Deployed, learner(epochs=more), k), compiles=True)
    slices = SLICES["network"]
    steps = max(1, num_records // 20 * epochs // 64 // slices)
    sliced = SlicedJaxLearner(learner(steps=steps), num_slices=slices)
    voting = {"promise": "unguarded", "sampling": "partition"}
    words = f"20 shards of {slices} slices"
    yield Method(words, "sisa", partial(Deployed, sliced, 20, voting), compiles=True)
