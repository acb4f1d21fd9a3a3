"""Learners by short name, ready for a company's table, and by `package.module:factory`.

A named learner is a scikit-learn pipeline whose preprocessing is part of every shard's own training, as it must be:
scaling, filling of gaps and the list of categories are learned from the shard alone. Which columns are numbers and
which are categories is the public layout of the table and is told from outside (`column_kinds` reads it off the types,
never off the values). A table of numbers alone gets no column transformer, so that linear models vote as one matrix
product.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, RidgeClassifier, SGDClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils import get_tags

from expunge.core.errors import ParameterError
from expunge.core.features import Features, is_frame
from expunge.training.learners.protocol import Learner, SlicedLearner
from expunge.training.learners.scikit import ScikitLearner

ColumnKind = Literal["number", "category"]
_MISSING = "(missing)"


@dataclass(frozen=True)
class _Recipe:
    """How a named learner is made: its classifier, what it needs, and a line for the command line's help."""

    classifier: Callable[[], Any]
    words: str
    is_scaled: bool = True
    takes_sparse: bool = True
    needs_values: bool = False  # fails where a shard has no value at all in a column


_RECIPES: Mapping[str, _Recipe] = {
    "logistic": _Recipe(lambda: LogisticRegression(max_iter=1000), "logistic regression: fast, a good first choice"),
    "linear-svm": _Recipe(lambda: LinearSVC(dual="auto", max_iter=5000), "linear support vector machine"),
    "ridge": _Recipe(RidgeClassifier, "least squares with a penalty: the fastest to train"),
    "sgd": _Recipe(lambda: SGDClassifier(loss="log_loss"), "logistic regression by stochastic gradient descent"),
    "naive-bayes": _Recipe(GaussianNB, "Gaussian naive Bayes", is_scaled=False, takes_sparse=False),
    "neighbours": _Recipe(KNeighborsClassifier, "the five nearest neighbours; its models are the shard's records"),
    "tree": _Recipe(DecisionTreeClassifier, "one decision tree", is_scaled=False),
    "forest": _Recipe(RandomForestClassifier, "random forest of 100 trees", is_scaled=False),
    "extra-trees": _Recipe(ExtraTreesClassifier, "100 extremely randomised trees", is_scaled=False),
    "boosting": _Recipe(
        lambda: HistGradientBoostingClassifier(early_stopping=False),
        "gradient boosting of trees: often the most accurate on tables",
        is_scaled=False,
        takes_sparse=False,
        needs_values=True,
    ),
    "mlp": _Recipe(
        lambda: MLPClassifier(hidden_layer_sizes=(64,), max_iter=300), "neural network with one hidden layer of 64"
    ),
}


def learner_names() -> dict[str, str]:
    """Every short name with one line about it."""
    return {name: recipe.words for name, recipe in _RECIPES.items()}


@dataclass(frozen=True)
class LearnerSpec:
    """How a learner is made, in plain values that a deployment's folder can keep.

    name : a short name, or `package.module:factory`.
    options : settings of the classifier (`{"C": 0.1}`), or keyword arguments of the factory.
    columns : the kind of every column of a table, in order; None for arrays and tables of numbers.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    columns: Mapping[str, ColumnKind] | None = None

    def __post_init__(self) -> None:
        try:
            json.dumps(self.to_json(), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ParameterError(f"the options of learner {self.name!r} must be plain values: {error}") from error

    @property
    def module(self) -> str | None:
        """The module of a factory, which the operator trusts by naming it; None for a short name."""
        return self.name.partition(":")[0] if ":" in self.name else None

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        columns = None if self.columns is None else [[name, kind] for name, kind in self.columns.items()]
        return {"name": self.name, "options": dict(self.options), "columns": columns}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """The spec of `to_json`."""
        columns = values["columns"]
        return cls(values["name"], dict(values["options"]), None if columns is None else dict(columns))

    def make(self) -> Learner | SlicedLearner:
        """The learner."""
        if ":" in self.name:
            return _from_factory(self.name, self.options)
        return named_learner(self.name, columns=self.columns, **self.options)


def named_learner(
    name: str, *, columns: Mapping[str, ColumnKind] | None = None, fills_gaps: bool = False, **options: Any
) -> ScikitLearner:
    """The learner of a short name; `options` are settings of its classifier.

    With `fills_gaps` missing numbers become the median of the shard's own, where the classifier does not take them as
    they are. A table with categories has its gaps filled in any case.
    """
    recipe = _RECIPES.get(name)
    if recipe is None:
        raise ParameterError(
            f"unknown learner {name!r}: use one of {', '.join(_RECIPES)}, or package.module:factory for one of your own"
        )
    classifier = _configured(name, recipe.classifier(), options)
    if columns is None or "category" not in columns.values():
        steps = [StandardScaler()] * recipe.is_scaled + [ZerosForNothing()] * recipe.needs_values
        learner = ScikitLearner(make_pipeline(*steps, classifier) if steps else classifier)
        return ScikitLearner(_filling(learner.estimator)) if fills_gaps and not takes_gaps(learner) else learner
    return ScikitLearner(Pipeline([("columns", _transformer(recipe, columns)), ("classifier", classifier)]))


def _configured(name: str, classifier: Any, options: Mapping[str, Any]) -> Any:
    known = sorted(set(classifier.get_params(deep=False)) - {"random_state", "warm_start"})
    for option in options:
        if option not in known:
            raise ParameterError(f"learner {name!r} has no option {option!r}: it has {', '.join(known)}")
    classifier.set_params(**options)
    try:
        classifier._validate_params()
    except ValueError as error:
        raise ParameterError(f"learner {name!r}: {_first_line(error)}") from error
    return classifier


def _transformer(recipe: _Recipe, columns: Mapping[str, ColumnKind]) -> ColumnTransformer:
    for column, kind in columns.items():
        if kind not in ("number", "category"):
            raise ParameterError(f"the kind of column {column!r} must be number or category, got {kind!r}")
        if not isinstance(column, str):
            raise ParameterError(f"columns must have names that are texts, got {column!r}")
    filled = _median()
    numbers = make_pipeline(filled, StandardScaler()) if recipe.is_scaled else filled
    encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=recipe.takes_sparse)
    parts = [
        ("numbers", numbers, [column for column, kind in columns.items() if kind == "number"]),
        ("categories", make_pipeline(AsText(), encoder), [c for c, kind in columns.items() if kind == "category"]),
    ]
    threshold = 0.3 if recipe.takes_sparse else 0.0
    return ColumnTransformer([part for part in parts if part[2]], sparse_threshold=threshold)


def takes_gaps(learner: Learner | SlicedLearner) -> bool:
    """Whether a learner is known to take missing numbers as they are: its every step says so."""
    if not isinstance(learner, ScikitLearner):
        return False
    estimator = learner.estimator
    steps = [step for _, step in estimator.steps] if isinstance(estimator, Pipeline) else [estimator]
    if isinstance(steps[0], ColumnTransformer):
        return True
    tags = [get_tags(step).input_tags.allow_nan for step in steps if hasattr(step, "__sklearn_tags__")]
    # A scaler lets gaps pass; the classifier behind it has to know what to do with them.
    return len(tags) == len(steps) and all(tags)


def _filling(estimator: Any) -> Pipeline:
    """Gaps filled with the median of the shard, before anything else."""
    steps = list(estimator.steps) if isinstance(estimator, Pipeline) else [("classifier", estimator)]
    return Pipeline([("fill", _median()), *steps])


def _median() -> SimpleImputer:
    """A shard may have no value at all in a column; it must keep the column nevertheless."""
    return SimpleImputer(strategy="median", keep_empty_features=True)


class AsText(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Every value as text and gaps as a text of their own: categories of mixed types can be told apart and sorted."""

    def fit(self, X: Features, y: Any = None) -> Self:
        """Nothing is learned."""
        return self

    def transform(self, X: Features) -> NDArray[Any]:
        """The texts."""
        import pandas as pd

        values = X.astype(object).to_numpy() if is_frame(X) else np.asarray(X, dtype=object)
        texts: NDArray[Any] = np.frompyfunc(str, 1, 1)(values)
        texts[pd.isna(values)] = _MISSING
        return texts

    def __sklearn_is_fitted__(self) -> bool:
        return True


class ZerosForNothing(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Zeros in the columns in which a shard has no value at all; other gaps stay as they are.

    Where deletions take the last value of a column out of a shard, it must be possible to train it nevertheless.
    """

    def fit(self, X: Features, y: Any = None) -> Self:
        """Find the columns."""
        self.empty_ = np.isnan(np.asarray(X, dtype=np.float64)).all(axis=0)
        return self

    def transform(self, X: Features) -> NDArray[np.float64]:
        """The table."""
        table = np.array(X, dtype=np.float64)
        table[:, self.empty_] = 0.0
        return table

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def column_kinds(frame: Any) -> dict[str, ColumnKind] | None:
    """Which columns of a data frame are numbers and which are categories, by their types; None for an array."""
    if not is_frame(frame):
        return None
    from pandas.api.types import is_bool_dtype, is_datetime64_any_dtype, is_numeric_dtype, is_timedelta64_dtype

    kinds: dict[str, ColumnKind] = {}
    for name, dtype in zip(frame.columns, frame.dtypes, strict=True):
        if is_datetime64_any_dtype(dtype) or is_timedelta64_dtype(dtype):
            raise ParameterError(f"column {name!r} holds dates: turn it into numbers or categories first")
        kinds[name] = "number" if is_numeric_dtype(dtype) and not is_bool_dtype(dtype) else "category"
    return kinds


def _from_factory(name: str, options: Mapping[str, Any]) -> Learner | SlicedLearner:
    factory = _factory(name)
    try:
        made = factory(**options)
    except Exception as error:
        message = f"learner {name!r}: the factory failed: {type(error).__name__}: {_first_line(error)}"
        raise ParameterError(message) from error
    if isinstance(made, SlicedLearner):
        return made
    if not hasattr(made, "fit"):
        raise ParameterError(f"{name} returned a {type(made).__name__}, which has no fit")
    if hasattr(made, "get_params"):
        return ScikitLearner(made)
    learner: Learner = made
    return learner


def _factory(name: str) -> Callable[..., Any]:
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except ImportError as error:
        raise ParameterError(f"learner {name!r}: the module {module!r} cannot be imported: {error}") from error
    except (AttributeError, ValueError):
        raise ParameterError(f"learner {name!r}: the module {module!r} has no {attribute!r}") from None
    if not callable(found):
        raise ParameterError(f"learner {name!r}: {attribute!r} is not a function that makes a learner")
    factory: Callable[..., Any] = found
    return factory


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "")
