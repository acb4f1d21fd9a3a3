"""Thresholds for classes, learned inside shards, so that rare classes are found under the exact promise.

A model that saw twenty records of a rare class gives it small probabilities, also where it is right. The mean over
many such models still ranks rows well, but no mean is a half any more, and the class is never answered. So each shard
learns, besides its model, what that model says of records it was not trained on: the mean probability of each class
among the class's own records, and among all others. A class is answered from half-way between the two on.

What a shard learns is a function of its own records, so it leaves with them, and T6 holds as for any learner.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from expunge.core.errors import ParameterError
from expunge.core.features import Features, take
from expunge.training.learners import protocol
from expunge.training.learners.abstaining import as_learner
from expunge.training.learners.parts import model_of, parts_of
from expunge.training.learners.protocol import (
    Codes,
    Floats,
    Model,
    ShardData,
    SharedShard,
    SlicedLearner,
    Voter,
    Weights,
)
from expunge.training.learners.scikit import ScikitLearner

FOLDS: Final = 3
_LEAST: Final = 1e-300  # instead of a division by zero
_NO_PROBABILITIES = "thresholds need models with probabilities, and those of {name} have none"


@dataclass(frozen=True)
class ThresholdModel:
    """A shard's model, and what it says of records that it was not trained on. `ThresholdLearner` makes it.

    Parameters
    ----------
    model
        The model.
    asked
        How many records of each class there are, or the sum of their weights.
    given
        For each class, a row: the sum of the probabilities that its records got, of every class.
    """

    model: Any
    asked: Floats
    given: Floats

    def predict(self, X: Features) -> Codes:
        """The model's own votes."""
        codes: Codes = self.model.predict(X)
        return codes

    def probabilities(self, X: Features, num_classes: int) -> Floats:
        """The model's own probabilities."""
        return np.asarray(self.model.probabilities(X, num_classes))


@dataclass(frozen=True)
class ThresholdLearner:
    """Train as another learner does, and learn in each shard from which mean probability on a class is answered.

    Under the exact promise, `predict` answers the class whose mean probability is highest above its threshold;
    probabilities stay as they are. It helps where a class is rare: its threshold is then far below a half. It costs
    accuracy, since more records are taken for the rare class than there are, and three trainings more, on two thirds
    of the shard each.

    Parameters
    ----------
    learner
        A `Learner` whose models have probabilities, or a scikit-learn classifier. Its other methods and attributes can
        be used through this object.
    num_classes
        The number of classes. `learn` sets it; by default as many as the rows show.

    Raises
    ------
    ParameterError
        If the learner learns numbers, is sliced, unlearns without training, or has no probabilities.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from expunge import UnlearningClassifier
    >>> X = np.arange(200.0)[:, np.newaxis]
    >>> y = np.where((X[:, 0] % 20 < 2) & (X[:, 0] > 60), "rare", "usual")
    >>> plain = UnlearningClassifier(LogisticRegression(), n_shards=5, random_state=0).fit(X, y)
    >>> model = UnlearningClassifier(ThresholdLearner(LogisticRegression()), n_shards=5, random_state=0).fit(X, y)
    >>> int((plain.predict(X) == "rare").sum()), bool((model.predict(X) == "rare").any())
    (0, True)
    """

    learner: Any
    num_classes: int | None = None
    has_thresholds: ClassVar[bool] = True

    def __post_init__(self) -> None:
        learner: Any = as_learner(self.learner)
        name = _name_of(learner)
        if isinstance(learner, SlicedLearner):
            raise ParameterError("thresholds are for learners without slices")
        if protocol.predicts_values(learner):
            raise ParameterError(f"thresholds are for classes, and {name} learns numbers")
        if hasattr(learner, "refit"):
            raise ParameterError(f"thresholds take trainings of their own, and {name} deletes without any")
        if isinstance(learner, ScikitLearner) and not hasattr(learner.estimator, "predict_proba"):
            raise ParameterError(_NO_PROBABILITIES.format(name=name))
        object.__setattr__(self, "learner", learner)

    def for_classes(self, classes: NDArray[Any]) -> ThresholdLearner:
        """The same learner, told the labels."""
        return replace(self, learner=protocol.for_classes(self.learner, classes), num_classes=len(classes))

    def fit(self, X: Features, y: Codes, seed: int, *, weights: Weights | None = None) -> Model:
        """The model of one shard."""
        return self.fit_many([ShardData(0, X, y, weights, seed)])[0]

    def fit_many(self, shards: Sequence[ShardData | SharedShard]) -> list[Model]:
        """The models of these shards, and of their parts, trained together if the learner can."""
        whole = [ShardData(each.shard, each.X, each.y, each.weights, each.seed) for each in shards]
        parts = [(place, held) for place, each in enumerate(whole) for held in _held_out(each.y)]
        others = [_without(whole[place], held) for place, held in parts]
        models = protocol.fit_many(self.learner, [*whole, *others])
        found = [self._start(model, each) for model, each in zip(models, whole, strict=False)]
        for (place, held), model in zip(parts, models[len(whole) :], strict=True):
            self._ask(found[place], model, whole[place], held)
        return list(found)

    def _start(self, model: Model, shard: ShardData) -> ThresholdModel:
        """Nothing asked yet; of a shard with one class it is known what its model says."""
        num_classes = self.num_classes if self.num_classes is not None else int(shard.y.max()) + 1
        weights = np.ones(len(shard.y)) if shard.weights is None else shard.weights
        asked = np.bincount(shard.y, weights=weights, minlength=num_classes).astype(np.float64)
        is_single = np.count_nonzero(np.bincount(shard.y)) == 1
        return ThresholdModel(model, asked, np.diag(asked) if is_single else np.zeros((num_classes, num_classes)))

    def _ask(self, found: ThresholdModel, model: Model, shard: ShardData, held: NDArray[np.intp]) -> None:
        """Add what a model of a part says of the records held out; nothing if it abstains."""
        rows, codes = take(shard.X, held), shard.y[held]
        table = protocol.mean_opinion([model], rows, len(found.asked), "probabilities")
        if table is None:
            raise ParameterError(_NO_PROBABILITIES.format(name=_name_of(self.learner)))
        weights = np.ones(len(held)) if shard.weights is None else shard.weights[held]
        np.add.at(found.given, codes, np.nan_to_num(table) * weights[:, np.newaxis])

    def make_voter(self, models: Sequence[Model], num_classes: int) -> Voter:
        """The voter of the learner itself, with the thresholds of all shards."""
        inner = protocol.make_voter(self.learner, [getattr(each, "model", each) for each in models], num_classes)
        return _Voter.of(inner, models, num_classes)

    def dump_model(self, model: Model) -> dict[str, Any]:
        """What a model is made of."""
        assert isinstance(model, ThresholdModel)
        return {"model": parts_of(self.learner, model.model), "asked": model.asked, "given": model.given}

    def load_model(self, parts: Mapping[str, Any]) -> Model:
        """The model that `dump_model` took apart. Raises `ValueError` if the parts do not fit together."""
        asked, given = np.asarray(parts["asked"]), np.asarray(parts["given"])
        is_right = (
            asked.ndim == 1 and given.shape == (len(asked), len(asked)) and asked.dtype == given.dtype == np.float64
        )
        if not is_right or not np.isfinite(given).all() or len(asked) != (self.num_classes or len(asked)):
            raise ValueError("the thresholds of a stored model do not fit together")
        return ThresholdModel(model_of(self.learner, parts["model"]), asked, given)

    def __getattr__(self, name: str) -> Any:
        """Any other attribute of the learner, such as `environment`."""
        if name.startswith("__") or name in ("learner", "num_classes", "shares_rows"):
            raise AttributeError(name)
        return getattr(self.learner, name)


def _name_of(learner: Any) -> str:
    """The class that learns, at the end of a pipeline."""
    estimator = getattr(learner, "estimator", learner)
    steps = getattr(estimator, "steps", None)
    return type(steps[-1][1] if steps else estimator).__name__


def _held_out(y: NDArray[Any]) -> list[NDArray[np.intp]]:
    """The positions that are held out in each training: a third of each class, by the shard's own order."""
    order = np.argsort(y, kind="stable")
    counts = np.bincount(y)
    if np.count_nonzero(counts) < 2:
        return []
    rank = np.empty(len(y), dtype=np.intp)
    rank[order] = np.arange(len(y)) - np.repeat(np.cumsum(counts) - counts, counts)
    parts = [np.flatnonzero(rank % FOLDS == fold) for fold in range(FOLDS)]
    return [held for held in parts if 0 < len(held) < len(y)]


def _without(shard: ShardData, held: NDArray[np.intp]) -> ShardData:
    rows = np.delete(np.arange(len(shard.y)), held)
    weights = None if shard.weights is None else shard.weights[rows]
    return ShardData(shard.shard, take(shard.X, rows), shard.y[rows], weights, shard.seed)


@dataclass(frozen=True)
class _Voter:
    """The votes and probabilities of another voter, and the thresholds."""

    inner: Any
    models: Sequence[Model]
    num_classes: int
    asked: Floats  # (shards, classes); zeros for a shard that abstains
    given: Floats  # (shards, classes, classes)

    @classmethod
    def of(cls, inner: Voter, models: Sequence[Model], num_classes: int) -> _Voter:
        """Gather what all shards have learned."""
        asked, given = np.zeros((len(models), num_classes)), np.zeros((len(models), num_classes, num_classes))
        for shard, model in enumerate(models):
            if isinstance(model, ThresholdModel):
                asked[shard], given[shard] = model.asked, model.given
        return cls(inner, models, num_classes, asked, given)

    def count(self, X: Features) -> NDArray[np.int64]:
        """The models' own votes for each class."""
        return np.asarray(self.inner.count(X))

    def votes(self, X: Features) -> Codes:
        """The models' own votes."""
        codes: Codes = self.inner.votes(X)
        return codes

    def mean_probabilities(self, X: Features) -> Floats | None:
        """The mean of the models' probabilities, if they have them together."""
        return self.inner.mean_probabilities(X) if hasattr(self.inner, "mean_probabilities") else None

    def with_changed(self, models: Mapping[int, Model]) -> _Voter | None:
        """The same with some models replaced; None if all is to be made anew."""
        inner = None
        if hasattr(self.inner, "with_changed"):
            inner = self.inner.with_changed({shard: getattr(each, "model", each) for shard, each in models.items()})
        if inner is None:
            return None
        asked, given = self.asked.copy(), self.given.copy()
        for shard, model in models.items():
            asked[shard], given[shard] = (model.asked, model.given) if isinstance(model, ThresholdModel) else (0.0, 0.0)
        return replace(self, inner=inner, models=protocol.replaced(self.models, models), asked=asked, given=given)

    def margins(self, table: Floats) -> Floats:
        """How far mean probabilities are on the way from those of other classes' records to those of its own.

        A class is answered from a half on; of two classes exactly one reaches it. Where some class has no records, or
        gets no higher probability among its own records than among others, the probabilities themselves decide.
        """
        low, high = self._ends()
        is_there = self.asked.sum(axis=0) > 0
        if not (high[is_there] > low[is_there]).all() or np.count_nonzero(is_there) < 2:
            return table
        found = np.full_like(table, -np.inf)
        found[:, is_there] = (table[:, is_there] - low[is_there]) / (high[is_there] - low[is_there])
        found[np.isnan(table)] = np.nan
        return found

    def _ends(self) -> tuple[Floats, Floats]:
        """The mean probability of each class among others' records, and among its own."""
        asked, given = self.asked.sum(axis=0), self.given.sum(axis=0)
        means = given / np.maximum(asked, _LEAST)[:, np.newaxis]
        shares = np.count_nonzero(self.asked, axis=0) / max(1, np.count_nonzero(self.asked.any(axis=1)))
        for own in np.flatnonzero(asked):  # shards without a class give it no probability, and others more
            others = np.where(np.arange(len(asked)) == own, 0.0, means[own])
            others = others if others.sum() > _LEAST else np.where(np.arange(len(asked)) == own, 0.0, asked)
            means[own] = shares[own] * means[own] + (1 - shares[own]) * others / max(others.sum(), _LEAST)
        high = np.diag(means)
        return (asked @ means - asked * high) / np.maximum(asked.sum() - asked, _LEAST), high
