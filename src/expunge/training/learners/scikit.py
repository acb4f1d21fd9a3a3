"""Any scikit-learn classifier, regressor or Pipeline as a learner."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import has_fit_parameter

from expunge.core.errors import ParameterError
from expunge.core.features import Features, codes_of, is_frame, num_rows
from expunge.training.learners.boosting import adapted
from expunge.training.learners.linear import (
    LinearScores,
    LinearVote,
    LinearVoter,
    common_link,
    is_linear_regressor,
    linear_scores,
    linear_values,
    scaler_factors,
)
from expunge.training.learners.protocol import Abstainer, Codes, Floats, Model, OneByOneVoter, Voter, Weights
from expunge.training.surroundings import alone


@dataclass(frozen=True)
class ConstantModel:
    """The model of a shard with one class.

    Parameters
    ----------
    code
        The class code.

    Examples
    --------
    >>> ConstantModel(1).predict(np.zeros((2, 1)))
    array([1, 1])
    """

    code: int

    def predict(self, X: Features) -> Codes:
        """That class code for every row."""
        return np.full(num_rows(X), self.code, dtype=np.int64)

    def probabilities(self, X: Features, num_classes: int) -> Floats:
        """1 for that class, 0 for the others."""
        table = np.zeros((num_rows(X), num_classes))
        table[:, self.code] = 1.0
        return table

    def scores(self, X: Features, num_classes: int) -> Floats:
        """1 for that class, -1 for the others."""
        return 2 * self.probabilities(X, num_classes) - 1


@dataclass(frozen=True)
class ScikitModel:
    """A fitted scikit-learn estimator that answers in class codes. `ScikitLearner` makes it.

    Parameters
    ----------
    estimator
        The fitted estimator.
    classes
        What the estimator was trained on in place of each class code, such as labels; None if on the codes themselves.
    """

    estimator: Any
    classes: NDArray[Any] | None

    def predict(self, X: Features) -> Codes:
        """The estimator's predictions as class codes."""
        labels = self.estimator.predict(X)
        if self.classes is None:
            return np.asarray(labels, dtype=np.int64)
        return codes_of(labels, self.classes)

    @available_if(lambda self: hasattr(self.estimator, "predict_proba"))  # type: ignore[untyped-decorator]
    def probabilities(self, X: Features, num_classes: int) -> Floats:
        """The estimator's `predict_proba` by class code; 0 for a class that it never saw."""
        return self.spread(self.estimator.predict_proba(X), num_classes)

    @available_if(lambda self: hasattr(self.estimator, "decision_function"))  # type: ignore[untyped-decorator]
    def scores(self, X: Features, num_classes: int) -> Floats:
        """The estimator's `decision_function` by class code.

        The score s of two classes stands for -s and s. A class that the estimator never saw has its lowest score, or
        -1 if that is lower. Raises `ParameterError` if there is not one score for each class.
        """
        found = np.asarray(self.estimator.decision_function(X), dtype=np.float64)
        if found.ndim == 1:
            found = np.stack([-found, found], axis=1)
        return self.spread(found, num_classes, unseen=np.minimum(found.min(axis=1), -1.0))

    def spread(self, found: Any, num_classes: int, unseen: Any = 0.0) -> Floats:
        """Columns of the estimator's own classes as columns of all class codes; `unseen` elsewhere."""
        found, own = np.asarray(found, dtype=np.float64), self.estimator.classes_
        codes = own if self.classes is None else codes_of(own, self.classes)
        if found.ndim != 2 or found.shape[1] != len(codes):
            name = type(self.estimator).__name__
            raise ParameterError(f"{name} gives {found.shape[1:]} numbers a row for {len(codes)} classes, not one each")
        table = np.empty((len(found), num_classes))
        table[:] = np.broadcast_to(unseen, len(found))[:, np.newaxis]
        table[:, np.asarray(codes, dtype=np.int64)] = found
        return table


@dataclass(frozen=True)
class ScikitRegression:
    """A fitted scikit-learn regressor. `ScikitLearner` makes it.

    Parameters
    ----------
    estimator
        The fitted estimator.
    """

    estimator: Any

    def values(self, X: Features) -> Floats:
        """The numbers predicted for every row.

        Linear models are computed term by term: a product of whole matrices may round a row otherwise when it is asked
        together with others.
        """
        *before, last = _steps(self.estimator)
        for step in before if is_linear_regressor(last) else ():
            X = step.transform(X)
        found = linear_values(last, X) if is_linear_regressor(last) else self.estimator.predict(X)
        return np.asarray(found, dtype=np.float64)

    def predict(self, X: Features) -> Any:
        """The same."""
        return self.values(X)


@dataclass(frozen=True)
class ScikitLearner:
    """Train a clone of a scikit-learn classifier, regressor or Pipeline on every shard.

    Every parameter named `random_state`, of the estimator or of anything nested in it, is set from the shard's seed. An
    estimator without one is assumed to be deterministic. Every parameter named `n_jobs` becomes 1: shards are what is
    trained in parallel. So does None, unless the estimator is one of scikit-learn, for which None means 1; other
    packages take all processors. A `memory`, in which a Pipeline keeps what it has computed, becomes None, because
    nothing would delete records there. A shard with a single class gets a `ConstantModel`; the estimator is not
    trained. A regressor gets the numbers as they are and gives a `ScikitRegression`.
    Preprocessing that looks at data belongs in a Pipeline, so that it is part of the shard. Estimators of XGBoost,
    LightGBM and CatBoost are exchanged for `BoostedClassifier` and `BoostedRegressor`, wherever they are in it.

    Parameters
    ----------
    estimator
        The classifier or regressor. It is cloned, never fitted itself.
    classes
        The labels that the class codes stand for; None trains the estimator on the codes themselves.

    Attributes
    ----------
    random_parameters
        The names of the parameters that are set from the seed.

    Raises
    ------
    ParameterError
        If the estimator is no classifier or regressor of scikit-learn; if it holds a random generator, or, without a
        seed, a splitter that shuffles or an estimator in a table of choices: what these draw depends on what was drawn
        before; or if it holds a `FrozenEstimator`, whose model would outlive deletions.

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> learner = ScikitLearner(DecisionTreeClassifier())
    >>> learner.random_parameters
    ('random_state',)
    >>> learner.fit(np.array([[0.0], [1.0]]), np.array([1, 0]), seed=7).predict(np.array([[0.9]]))
    array([0])
    """

    estimator: Any
    classes: NDArray[Any] | None = None
    random_parameters: tuple[str, ...] = field(init=False, repr=False)
    _settings: Mapping[str, Any] = field(init=False, repr=False, compare=False)
    _shares_generator: bool = field(init=False, repr=False)
    _has_distributions: bool = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "estimator", adapted(self.estimator))
        is_tagged = hasattr(self.estimator, "__sklearn_tags__")
        # Some classifiers, such as StackingClassifier, have predict only after fit.
        if not hasattr(self.estimator, "fit") or not (is_tagged or hasattr(self.estimator, "predict")):
            raise ParameterError(f"the estimator must have fit and predict, got {self.estimator!r}")
        if is_tagged and not is_classifier(self.estimator) and not is_regressor(self.estimator):
            raise ParameterError(f"the estimator must be a classifier or a regressor, got {self.estimator!r}")
        object.__setattr__(self, "random_parameters", _random_parameters(self.estimator))
        object.__setattr__(self, "_settings", _settings(self.estimator))
        has_distributions = any(_is_distribution(value) for _, value in _contents(self.estimator, ""))
        object.__setattr__(self, "_has_distributions", has_distributions)
        shares = any(_may_share_generator(value) for _, value in _contents(self.estimator, ""))
        object.__setattr__(self, "_shares_generator", shares)
        _require_repeatable(self.estimator)

    @property
    def predicts_values(self) -> bool:
        """Whether the estimator is a regressor."""
        return hasattr(self.estimator, "__sklearn_tags__") and is_regressor(self.estimator)

    def for_classes(self, classes: NDArray[Any]) -> ScikitLearner:
        """The same learner, but trained on these labels instead of their codes."""
        is_plain = np.array_equal(classes, np.arange(len(classes)))
        return replace(self, classes=None if is_plain else classes)

    def labels(self, y: Codes) -> NDArray[Any]:
        """The labels of class codes, in the form in which the estimator is trained on them.

        Texts are as wide as the longest one here. The width of the list of classes would tell of labels elsewhere.
        """
        if self.classes is None:
            return np.asarray(y)
        if self.classes.dtype.kind != "U":
            return self.classes[y]
        seen, places = np.unique(y, return_inverse=True)
        return np.array(self.classes[seen].tolist())[places]

    def seeded(self, seed: int) -> Any:
        """A new clone whose only randomness is `seed`."""
        settings = dict(self._settings)
        if self.random_parameters:
            states = np.random.SeedSequence(seed).generate_state(len(self.random_parameters))
            settings.update(zip(self.random_parameters, states.tolist(), strict=True))
        fresh = clone(self.estimator).set_params(**settings)
        for _, value in _contents(fresh, "") if self._has_distributions else ():
            if _is_distribution(value):  # it would be stored with the generator of the whole process
                value.random_state = 0
        return fresh

    def train(self, seeded: Any, X: Features, y: Any, **arguments: Any) -> Any:
        """Fit what `seeded` gave; one at a time in a process, if its library may have one generator for all threads."""
        with alone() if self._shares_generator else nullcontext():
            return seeded.fit(X, y, **arguments)

    def fit(self, X: Features, y: Codes, seed: int, *, weights: Weights | None = None) -> Model:
        """A clone trained on the shard.

        An estimator of another package that refuses the labels is trained on the numbers 0, 1, … instead, one for each
        class of the shard.

        Raises `ParameterError` if there are weights and the estimator does not take them.
        """
        if self.predicts_values:
            return ScikitRegression(self.train(self.seeded(seed), X, y, **weight_arguments(self.estimator, weights)))
        if (y == y[0]).all():
            return ConstantModel(int(y[0]))
        labels, arguments = self.labels(y), weight_arguments(self.estimator, weights)
        try:
            return ScikitModel(self.train(self.seeded(seed), X, labels, **arguments), self.classes)
        except ValueError as error:
            seen, numbers = np.unique(y, return_inverse=True)
            if _is_of_scikit_learn(_steps(self.estimator)[-1]) or np.array_equal(labels, numbers):
                raise
            return self._renumbered(X, seen.astype(np.int64), numbers, seed, arguments, error)

    def _renumbered(
        self, X: Features, seen: Codes, numbers: Codes, seed: int, arguments: dict[str, Weights], error: ValueError
    ) -> ScikitModel:
        """A model that is trained on 0, 1, … for the classes of its shard, which is all that XGBoost takes."""
        try:
            estimator = self.train(self.seeded(seed), X, numbers, **arguments)
        except ValueError:
            raise error from None
        classes = np.full(int(seen[-1]) + 1, -1)
        classes[seen] = np.arange(len(seen))
        return ScikitModel(estimator, classes)

    def is_plain(self, model: Model) -> bool:
        """Whether the model, if it holds an estimator, was trained on the learner's own labels."""
        return is_plain(model, self.classes)

    def check_weights(self) -> None:
        """Raise a `ParameterError` if the estimator does not take weights."""
        weight_arguments(self.estimator, np.ones(1))

    def make_voter(self, models: Sequence[Model], num_classes: int) -> Voter:
        """A voter that takes one matrix product for linear models, and asks other models one after another."""
        from expunge.training.learners.tabular import table_voter  # it needs the named learners, which need this module

        if not all(self.is_plain(model) for model in models):
            return OneByOneVoter(models, num_classes)
        shards = [_linear_vote(model, self.classes) for model in models]
        widths = {shard[0].shape[1] for shard in shards if isinstance(shard, tuple)}
        if any(shard is _OTHER for shard in shards) or len(widths) != 1:
            fitted = [m.estimator if isinstance(m, ScikitModel) else s for m, s in zip(models, shards, strict=True)]
            single = OneByOneVoter(models, num_classes)
            return table_voter(fitted, self.classes, num_classes, single) or single
        link = common_link([model.estimator for model in models if isinstance(model, ScikitModel)])
        linear = LinearVoter([s for s in shards if not isinstance(s, _Other)], num_classes, widths.pop(), link)
        return _FrameTolerantVoter(linear, self.classes, next(s[0].shape[1] for s in shards if isinstance(s, tuple)))


def is_plain(model: Model, classes: NDArray[Any] | None) -> bool:
    """Whether a model, if it holds an estimator, was trained on these labels; None stands for the class codes."""
    own = getattr(model, "classes", None)
    return own is classes or own is None or np.array_equal(own, classes)  # type: ignore[arg-type]


def _steps(estimator: Any) -> list[Any]:
    """The steps of a fitted Pipeline, or the estimator itself."""
    if not isinstance(estimator, Pipeline):
        return [estimator]
    return [step for _, step in estimator.steps if step not in (None, "passthrough")]


class _FrameTolerantVoter:
    """Turn a numeric data frame into an array for a linear voter."""

    def __init__(self, voter: LinearVoter, classes: NDArray[Any] | None, num_features: int) -> None:
        self._voter, self._classes, self._num_features = voter, classes, num_features

    def with_changed(self, models: Mapping[int, Model]) -> _FrameTolerantVoter | None:
        """The same voter with some models replaced; None if it is to be made anew."""
        votes: dict[int, LinearVote] = {}
        for shard, model in models.items():
            vote = _linear_vote(model, self._classes)
            if isinstance(vote, _Other) or not is_plain(model, self._classes):
                return None
            if isinstance(vote, tuple):
                is_same = common_link([getattr(model, "estimator", None)]) == self._voter.link
                if vote[0].shape[1] != self._num_features or not is_same:
                    return None
            votes[shard] = vote
        changed = self._voter.with_changed(votes)
        return None if changed is None else _FrameTolerantVoter(changed, self._classes, self._num_features)

    def count(self, X: Features) -> NDArray[np.int64]:
        """Votes for each class."""
        return self._voter.count(X.to_numpy() if is_frame(X) else X)

    def votes(self, X: Features) -> Codes:
        """Every shard's vote."""
        return self._voter.votes(X.to_numpy() if is_frame(X) else X)

    def mean_probabilities(self, X: Features) -> Floats | None:
        """The mean of the shards' probabilities; None if the models have none."""
        return self._voter.mean_probabilities(X.to_numpy() if is_frame(X) else X)


class _Other:
    """Marks a model that is not linear."""


_OTHER = _Other()


def _linear_vote(model: Model, classes: NDArray[Any] | None) -> LinearVote | _Other:
    if isinstance(model, Abstainer):
        return None
    if isinstance(model, ConstantModel):
        return model.code
    return _linear_scores(model.estimator, classes) if isinstance(model, ScikitModel) else _OTHER


def _linear_scores(estimator: Any, classes: NDArray[Any] | None) -> LinearScores | _Other:
    """Weights, intercepts and class codes of a linear classifier, including the scalers in front of it."""
    *scaling, estimator = _steps(estimator)
    found = linear_scores(estimator, classes)
    if found is None:
        return _OTHER
    weights, intercepts, codes = found
    for scaler in reversed(scaling):
        factors = scaler_factors(scaler)
        if factors is None:
            return _OTHER
        scale, shift = factors
        intercepts = intercepts + weights @ shift
        weights = weights * scale
    return weights, intercepts, codes


def _random_parameters(estimator: Any) -> tuple[str, ...]:
    if not hasattr(estimator, "get_params"):
        raise ParameterError(f"the estimator must be a scikit-learn estimator (get_params), got {estimator!r}")
    names: Mapping[str, Any] = estimator.get_params(deep=True)
    return tuple(sorted(name for name in names if name == "random_state" or name.endswith("__random_state")))


def _settings(estimator: Any) -> dict[str, Any]:
    """Parameters that must not be as they are: those that ask for processes or threads, and folders for caches."""
    found: Mapping[str, Any] = estimator.get_params(deep=True)
    settings: dict[str, Any] = {}
    for name, value in found.items():
        outer, _, last = name.rpartition("__")
        if last == "n_jobs" and (value is not None or not _is_of_scikit_learn(found[outer] if outer else estimator)):
            settings[name] = 1
        elif last == "memory" and (isinstance(value, str | PathLike) or hasattr(value, "cache")):
            settings[name] = None
    return settings


def _is_of_scikit_learn(estimator: Any) -> bool:
    """Whether scikit-learn says what the parameters mean: also of a subclass that takes the same ones."""
    return getattr(type(estimator).__init__, "__module__", "").startswith("sklearn.")


def _require_repeatable(estimator: Any) -> None:
    """Refuse what would make trainings differ, or remember records."""
    seeded = {id(estimator), *map(id, estimator.get_params(deep=True).values())}  # by the shard's seed
    for place, value in _contents(estimator, type(estimator).__name__):
        kind = type(value).__name__
        is_own = id(value) in seeded or isinstance(value, type) or not hasattr(value, "get_params")
        given = () if is_own else value.get_params().items()
        if any(each is None for name, each in given if name.endswith("random_state")):
            raise ParameterError(f"{place} is a {kind} without a seed: set its random_state to a number")
        if isinstance(value, np.random.RandomState | np.random.Generator):
            raise ParameterError(f"{place} holds a {kind}, whose draws depend on earlier draws; give a number, or None")
        if hasattr(value, "split") and getattr(value, "random_state", 0) is None and getattr(value, "shuffle", True):
            raise ParameterError(f"{place} is a {kind} that shuffles without a seed: set its random_state to a number")
        if isinstance(value, FrozenEstimator):
            raise ParameterError(
                f"{place} is a FrozenEstimator, and what that has learned would outlive deletions; give it unfrozen, "
                "or make a transformer of your own from what was learned on public data"
            )


def _contents(value: Any, place: str) -> Iterator[tuple[str, Any]]:
    """A value and everything in it: parameters of estimators, lists, tables, and the generators of splitters."""
    yield place, value
    if isinstance(value, type) or _is_distribution(value):
        return
    if hasattr(value, "get_params"):
        inner: Any = value.get_params(deep=False).items()
    elif isinstance(value, Mapping):
        inner = value.items()
    elif isinstance(value, list | tuple):
        inner = enumerate(value)
    else:
        inner = [("random_state", value.random_state)] if hasattr(value, "random_state") else []
    for name, each in inner:
        yield from _contents(each, f"{place}.{name}")


def _is_distribution(value: Any) -> bool:
    """Whether this is a distribution of SciPy, which a search draws from with a generator of its own."""
    return hasattr(value, "rvs") and hasattr(value, "random_state")


def _may_share_generator(value: Any) -> bool:
    """Whether this part of an estimator may draw from a generator that all threads of the process share.

    LIBLINEAR and LIBSVM have one (a calibrated classifier is by default one of LIBLINEAR). What estimators of other
    packages draw from is not known.
    """
    if isinstance(value, str):
        return value == "liblinear"
    module = type(value).__module__
    if module.startswith(("sklearn.svm.", "sklearn.calibration")):
        return True
    return hasattr(value, "fit") and not isinstance(value, type) and not module.startswith(("sklearn.", "expunge."))


def weight_arguments(estimator: Any, weights: Weights | None) -> dict[str, Weights]:
    """The sample weights under the keyword that `fit` takes them by (a Pipeline takes them for its last step)."""
    if weights is None:
        return {}
    if isinstance(estimator, Pipeline):
        name, last = estimator.steps[-1]
        return {f"{name}__{keyword}": value for keyword, value in weight_arguments(last, weights).items()}
    if not has_fit_parameter(estimator, "sample_weight"):
        raise ParameterError(
            f"{type(estimator).__name__} cannot take weights: leave the weights out, or choose another learner"
        )
    return {"sample_weight": weights}
