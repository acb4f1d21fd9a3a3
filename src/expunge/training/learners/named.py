"""Learners by short name, for tables of numbers and categories, and by `package.module:factory`.

A named learner is a scikit-learn pipeline. Its preprocessing is part of the training of every shard: scaling, filled
gaps, the list of categories and the weights of words are learned from the shard alone. Which columns are numbers,
categories and text is the public layout of the table, so the caller says it (`column_kinds` reads it from the types,
never from the values). A table of numbers alone gets no column transformer, so that linear models can vote in one
matrix product.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from functools import partial
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import (
    LinearRegression,
    LogisticRegression,
    Ridge,
    RidgeClassifier,
    SGDClassifier,
    SGDRegressor,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC, SVR, LinearSVC, LinearSVR
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.utils import get_tags

from expunge.core.checks import require_choice
from expunge.core.errors import MissingExtraError, ParameterError
from expunge.core.features import Features, is_frame, pandas_form
from expunge.core.imports import import_named
from expunge.training.fallback import GaussianNaiveBayes, NearestNeighbours, RidgeFallback
from expunge.training.learners.batched import BatchLearner
from expunge.training.learners.boosting import BoostedClassifier, BoostedRegressor
from expunge.training.learners.exact import ExactLearner
from expunge.training.learners.forest import UnlearningForest, require_numba
from expunge.training.learners.protocol import Learner, SlicedLearner
from expunge.training.learners.scikit import ScikitLearner
from expunge.training.learners.thresholds import ThresholdLearner

ColumnKind = Literal["number", "category", "text"]
_MISSING, _RARE = "(missing)", "(rare)"
_GIVEN = ("is_regression", "num_classes", "categories")  # fields of a forest that are no options
_WORD_COLUMNS = 1 << 14  # how many columns the words of a text are hashed into
_FEW_WORD_COLUMNS = 1 << 8  # for classifiers that need dense tables
_FEW_CATEGORIES = 1 << 8  # of one column, for these classifiers; the rarer ones become one


@dataclass(frozen=True)
class _Recipe:
    """How a named learner is made: its estimator, what that needs, and a line for the help of the command line."""

    classifier: Callable[[], Any]
    words: str
    is_scaled: bool = True
    takes_sparse: bool = True
    keeps_gaps: bool = False  # it has its own way with missing numbers


_KEEPS_GAPS: Any = {"is_scaled": False, "takes_sparse": False, "keeps_gaps": True}


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
        **_KEEPS_GAPS,
    ),
    "mlp": _Recipe(
        lambda: MLPClassifier(hidden_layer_sizes=(64,), max_iter=300), "neural network with one hidden layer of 64"
    ),
    "svm": _Recipe(SVC, "support vector machine with a Gaussian kernel, for a few thousand records a shard"),
    "xgboost": _Recipe(lambda: BoostedClassifier("xgboost"), "gradient boosting of XGBoost", **_KEEPS_GAPS),
    "lightgbm": _Recipe(lambda: BoostedClassifier("lightgbm"), "gradient boosting of LightGBM", **_KEEPS_GAPS),
    "catboost": _Recipe(
        lambda: BoostedClassifier("catboost", iterations=300), "gradient boosting of CatBoost, 300 trees", **_KEEPS_GAPS
    ),
}


_REGRESSORS: Mapping[str, _Recipe] = {
    "linear-regression": _Recipe(LinearRegression, "least squares, for numbers"),
    "ridge-regression": _Recipe(Ridge, "least squares with a penalty, for numbers: fast, a good first choice"),
    "forest-regression": _Recipe(RandomForestRegressor, "random forest of 100 trees, for numbers", is_scaled=False),
    "boosting-regression": _Recipe(
        lambda: HistGradientBoostingRegressor(early_stopping=False),
        "gradient boosting of trees, for numbers: often the most accurate on tables",
        **_KEEPS_GAPS,
    ),
    "sgd-regression": _Recipe(SGDRegressor, "least squares by stochastic gradient descent, for numbers"),
    "linear-svm-regression": _Recipe(
        lambda: LinearSVR(dual="auto", loss="squared_epsilon_insensitive", max_iter=5000),
        "linear support vector machine, for numbers",
    ),
    "svm-regression": _Recipe(SVR, "support vector machine with a Gaussian kernel, for numbers"),
    "neighbours-regression": _Recipe(KNeighborsRegressor, "the mean of the five nearest neighbours, for numbers"),
    "tree-regression": _Recipe(DecisionTreeRegressor, "one decision tree, for numbers", is_scaled=False),
    "extra-trees-regression": _Recipe(
        ExtraTreesRegressor, "100 extremely randomised trees, for numbers", is_scaled=False
    ),
    "mlp-regression": _Recipe(
        lambda: MLPRegressor(hidden_layer_sizes=(64,), max_iter=300),
        "neural network with one hidden layer of 64, for numbers",
    ),
    "xgboost-regression": _Recipe(
        lambda: BoostedRegressor("xgboost"), "gradient boosting of XGBoost, for numbers", **_KEEPS_GAPS
    ),
    "lightgbm-regression": _Recipe(
        lambda: BoostedRegressor("lightgbm"), "gradient boosting of LightGBM, for numbers", **_KEEPS_GAPS
    ),
    "catboost-regression": _Recipe(
        lambda: BoostedRegressor("catboost", iterations=300),
        "gradient boosting of CatBoost, 300 trees, for numbers",
        **_KEEPS_GAPS,
    ),
}


_EXACT: Mapping[str, tuple[Callable[..., Any], str]] = {
    "ridge-exact": (partial(RidgeFallback, is_scaled=True), "least squares with a penalty, from exact sums"),
    "naive-bayes-exact": (GaussianNaiveBayes, "naive Bayes, from exact sums and counts"),
    "neighbours-exact": (partial(NearestNeighbours, num_neighbours=15), "the fifteen nearest neighbours"),
    "forest-exact": (UnlearningForest, "a randomised forest; a deletion regrows only what it changes"),
}
_EXACT_REGRESSORS: Mapping[str, tuple[Callable[..., Any], str]] = {
    "forest-exact-regression": (
        partial(UnlearningForest, is_regression=True),
        "a randomised forest, for numbers; a deletion regrows only what it changes",
    ),
}


def exact_names() -> dict[str, str]:
    """Short names of the learners that delete without any training; one shard is enough for them.

    Returns
    -------
    dict
        A line about each, by name. They are no pipelines, so they are not among `learner_names()`.

    Examples
    --------
    >>> [*exact_names()]
    ['ridge-exact', 'naive-bayes-exact', 'neighbours-exact', 'forest-exact']
    """
    return {name: words for name, (_, words) in _EXACT.items()}


def regressor_names() -> dict[str, str]:
    """Short names of the learners that predict numbers and not classes, with one line about each.

    Returns
    -------
    dict
        The lines by name.

    Examples
    --------
    >>> "ridge-regression" in regressor_names(), "ridge" in regressor_names()
    (True, False)
    """
    exact = {name: words for name, (_, words) in _EXACT_REGRESSORS.items()}
    return {name: recipe.words for name, recipe in _REGRESSORS.items()} | exact


def _make_exact(
    name: str, columns: Mapping[str, ColumnKind] | None, fills_gaps: bool, options: Mapping[str, Any]
) -> ExactLearner | UnlearningForest:
    kind = {**_EXACT, **_EXACT_REGRESSORS}[name][0]
    for column in [column for column, each in (columns or {}).items() if each == "text"]:
        raise ParameterError(f"learner {name!r} cannot read text in words: leave out column {column!r}")
    categories = tuple(column for column, each in (columns or {}).items() if each == "category")
    try:
        made = kind(**options)
    except TypeError:
        known = [each.name for each in fields(kind()) if each.name not in _GIVEN]
        wrong = next(option for option in options if option not in known)
        raise ParameterError(f"learner {name!r} has no option {wrong!r}: it has {', '.join(sorted(known))}") from None
    if isinstance(made, UnlearningForest):
        require_numba()
        return replace(made, categories=categories)
    return ExactLearner(made, categories=categories, has_gaps=fills_gaps or bool(categories))


def learner_names() -> dict[str, str]:
    """Every short name, with one line about it.

    Returns
    -------
    dict
        The lines by name.

    Examples
    --------
    >>> learner_names()["tree"]
    'one decision tree'
    """
    return {name: recipe.words for name, recipe in _RECIPES.items()}


@dataclass(frozen=True)
class LearnerSpec:
    """How a learner is made, in plain values.

    Parameters
    ----------
    name
        A short name, or `package.module:factory`.
    options
        Settings of the classifier (`{"C": 0.1}`), or keyword arguments of the factory.
    columns
        The kind of every column of a table, in order; None for arrays and tables of numbers.

    Raises
    ------
    ParameterError
        If the options are not plain JSON values.

    Examples
    --------
    >>> LearnerSpec("ridge", {"alpha": 2.0}).make().estimator.steps[-1]
    ('ridgeclassifier', RidgeClassifier(alpha=2.0))
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
        """The module of a factory, which the operator trusts by naming it; None if this is a short name."""
        return self.name.partition(":")[0] if ":" in self.name else None

    def to_json(self) -> dict[str, Any]:
        """The spec as plain JSON values, for `from_json`."""
        columns = None if self.columns is None else [[name, kind] for name, kind in self.columns.items()]
        return {"name": self.name, "options": dict(self.options), "columns": columns}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """The spec from the values that `to_json` returned."""
        columns = values["columns"]
        return cls(values["name"], dict(values["options"]), None if columns is None else dict(columns))

    def make(self) -> Learner | SlicedLearner:
        """Make the learner.

        Raises `ParameterError` if there is no such learner, an option is wrong, or the factory fails.
        """
        if ":" in self.name:
            return _call_factory(self.name, self.options)
        return named_learner(self.name, columns=self.columns, **self.options)


def named_learner(
    name: str, *, columns: Mapping[str, ColumnKind] | None = None, fills_gaps: bool = False, **options: Any
) -> ScikitLearner | ExactLearner | UnlearningForest | ThresholdLearner:
    """Make the learner of a short name.

    Parameters
    ----------
    name
        One of `learner_names()`, `regressor_names()` or `exact_names()`.
    columns
        The kind of every column of a table, in order; None for arrays and tables of numbers.
    fills_gaps
        Whether missing numbers are replaced by the median of the shard's own numbers. A classifier that accepts
        missing numbers gets them as they are, and so does an exact learner. A table with categories may have gaps in
        any case.
    **options
        Settings of the classifier. "logistic", "ridge", "linear-svm" and "naive-bayes" train many small shards of
        numbers together (`BatchLearner`), where their settings allow it; `batched=False` trains each by scikit-learn,
        and `batched=True` refuses settings that do not allow it. `thresholds=True` learns thresholds for classes inside
        shards (`ThresholdLearner`).

    Returns
    -------
    ScikitLearner, ExactLearner, UnlearningForest or ThresholdLearner
        The learner.

    Raises
    ------
    ParameterError
        If there is no such learner, the classifier has no such option or refuses its value, or a column has no kind.

    Examples
    --------
    >>> named_learner("logistic", C=0.1).estimator.steps[-1]
    ('logisticregression', LogisticRegression(C=0.1, max_iter=1000))
    """
    has_thresholds = options.pop("thresholds", False)
    if not isinstance(has_thresholds, bool):
        raise ParameterError(f"thresholds of learner {name!r} must be true or false, got {has_thresholds!r}")
    if has_thresholds:
        return ThresholdLearner(named_learner(name, columns=columns, fills_gaps=fills_gaps, **options))
    if name in _EXACT or name in _EXACT_REGRESSORS:
        return _make_exact(name, columns, fills_gaps, options)
    recipe = _RECIPES.get(name) or _REGRESSORS.get(name)
    if recipe is None:
        known = [*_RECIPES, *_EXACT, *regressor_names()]
        meant = get_close_matches(name, known, n=1)
        words = f"did you mean {meant[0]}? There are" if meant else "use one of"
        raise ParameterError(
            f"unknown learner {name!r}: {words} {', '.join(known)}, or package.module:factory for one of your own"
        )
    is_batched = options.pop("batched", None)
    if not isinstance(is_batched, bool | None):
        raise ParameterError(f"batched of learner {name!r} must be true or false, got {is_batched!r}")
    kind = {None: _batched_if_possible, True: BatchLearner, False: ScikitLearner}[is_batched]
    classifier = _configure(name, recipe.classifier(), options)
    if columns is None or set(columns.values()) == {"number"}:
        steps = [StandardScaler()] * recipe.is_scaled + [ZerosForNothing()] * recipe.keeps_gaps
        learner = kind(make_pipeline(*steps, classifier) if steps else classifier)
        return kind(_with_filled_gaps(learner.estimator)) if fills_gaps and not takes_gaps(learner) else learner
    return kind(Pipeline([("columns", _make_transformer(recipe, columns)), ("classifier", classifier)]))


def _batched_if_possible(estimator: Any) -> ScikitLearner:
    """Trained together with other shards, where the estimator and its settings allow it."""
    try:
        return BatchLearner(estimator)
    except ParameterError:
        return ScikitLearner(estimator)


def _configure(name: str, classifier: Any, options: Mapping[str, Any]) -> Any:
    own = getattr(classifier, "option_names", None) or classifier.get_params(deep=False)
    known = sorted({*own} - {"random_state", "warm_start", "n_jobs", "verbose"})
    for option in options:
        if option not in known:
            raise ParameterError(f"learner {name!r} has no option {option!r}: it has {', '.join(known)}")
    classifier.set_params(**options)
    try:
        classifier._validate_params()
    except MissingExtraError:
        raise
    except ValueError as error:
        raise ParameterError(f"learner {name!r}: {_first_line(error)}") from error
    return classifier


def _make_transformer(recipe: _Recipe, columns: Mapping[str, ColumnKind]) -> ColumnTransformer:
    for column, kind in columns.items():
        require_choice(f"the kind of column {column!r}", kind, ("number", "category", "text"))
        if not isinstance(column, str):
            raise ParameterError(f"columns must have names that are texts, got {column!r}")
    filled = ZerosForNothing() if recipe.keeps_gaps else _make_imputer()
    numbers = make_pipeline(filled, StandardScaler()) if recipe.is_scaled else filled
    encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=recipe.takes_sparse)
    words = HashedWords(_WORD_COLUMNS if recipe.takes_sparse else _FEW_WORD_COLUMNS)
    of = {wanted: [column for column, kind in columns.items() if kind == wanted] for wanted in get_args(ColumnKind)}
    parts = [
        ("numbers", numbers, of["number"]),
        (
            "categories",
            make_pipeline(AsText(None if recipe.takes_sparse else _FEW_CATEGORIES), encoder),
            of["category"],
        ),
        *((f"words of {column}", make_pipeline(words, TfidfTransformer()), [column]) for column in of["text"]),
    ]
    threshold = 0.3 if recipe.takes_sparse else 0.0
    return ColumnTransformer([part for part in parts if part[2]], sparse_threshold=threshold)


def takes_gaps(learner: Learner | SlicedLearner) -> bool:
    """Whether a learner accepts missing numbers.

    Parameters
    ----------
    learner
        The learner.

    Returns
    -------
    bool
        True if it is a scikit-learn estimator whose every step is tagged so, or starts with a column transformer.

    Examples
    --------
    >>> takes_gaps(named_learner("boosting")), takes_gaps(named_learner("ridge"))
    (True, False)
    """
    if isinstance(learner, ThresholdLearner):
        return takes_gaps(learner.learner)
    if isinstance(learner, UnlearningForest):
        return True
    if isinstance(learner, ExactLearner):
        return learner.has_gaps
    if not isinstance(learner, ScikitLearner):
        return False
    estimator = learner.estimator
    steps = [step for _, step in estimator.steps] if isinstance(estimator, Pipeline) else [estimator]
    if isinstance(steps[0], ColumnTransformer):
        return True
    tags = [get_tags(step).input_tags.allow_nan for step in steps if hasattr(step, "__sklearn_tags__")]
    # A scaler passes gaps on, so the classifier behind it must accept them too.
    return len(tags) == len(steps) and all(tags)


def _with_filled_gaps(estimator: Any) -> Pipeline:
    """Put a step in front that fills gaps with the median of the shard."""
    steps = list(estimator.steps) if isinstance(estimator, Pipeline) else [("classifier", estimator)]
    return Pipeline([("fill", _make_imputer()), *steps])


def _make_imputer() -> SimpleImputer:
    """Fill gaps with medians. A column in which the shard has no value at all is kept."""
    return SimpleImputer(strategy="median", keep_empty_features=True)


class AsText(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Turn every value into text, and gaps into a text of their own, so that mixed types can be sorted.

    With a limit, a column with more texts than that keeps the most frequent of those that it is fitted to (the first in
    order among equals), and all others become one. It does not look at labels, and learns from the shard alone.

    Parameters
    ----------
    most
        How many texts a column may have; None for any number.
    """

    def __init__(self, most: int | None = None) -> None:
        self.most = most

    def fit(self, X: Features, y: Any = None) -> Self:
        """Find the most frequent texts of the columns that have too many; without a limit it learns nothing."""
        if self.most is not None:
            self.kept_ = [_most_frequent(column, self.most) for column in _texts(X).T]
        return self

    def transform(self, X: Features) -> NDArray[Any]:
        """The values as texts."""
        texts = _texts(X)
        for place, kept in enumerate(self.kept_ if self.most is not None else ()):
            if kept is not None:
                texts[~np.isin(texts[:, place].astype(str), kept), place] = _RARE
        return texts

    @property
    def groups_texts(self) -> bool:
        """Whether a column had too many texts."""
        return self.most is not None and any(kept is not None for kept in self.kept_)

    def __sklearn_is_fitted__(self) -> bool:
        return self.most is None or hasattr(self, "kept_")


def _texts(X: Features) -> NDArray[Any]:
    import pandas as pd

    values = X.astype(object).to_numpy() if is_frame(X) else np.asarray(X, dtype=object)
    texts: NDArray[Any] = np.frompyfunc(str, 1, 1)(values)
    texts[pd.isna(values)] = _MISSING
    return texts


def _most_frequent(texts: NDArray[Any], most: int) -> NDArray[Any] | None:
    """The most frequent texts, in order; None if there are not too many."""
    found, counts = np.unique(texts.astype(str), return_counts=True)
    return None if len(found) <= most else np.sort(found[np.argsort(-counts, kind="stable")[: most - 1]])


class HashedWords(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Count the words of one column of texts, each in a column that its hash decides. A gap has no words.

    It learns nothing, so no vocabulary remembers a word that has left with its record, and a shard without any word can
    be trained too.

    Parameters
    ----------
    width
        The number of columns.
    """

    def __init__(self, width: int = _WORD_COLUMNS) -> None:
        self.width = width

    def fit(self, X: Features, y: Any = None) -> Self:
        """Return itself: it learns nothing."""
        return self

    def transform(self, X: Features) -> Any:
        """The counts, as a sparse matrix."""
        import pandas as pd

        (texts,) = (X.astype(object).to_numpy() if is_frame(X) else np.asarray(X, dtype=object)).T
        words = ["" if gone else str(text) for text, gone in zip(texts.tolist(), pd.isna(texts), strict=True)]
        return HashingVectorizer(n_features=self.width, alternate_sign=False, norm=None).transform(words)

    def __sklearn_is_fitted__(self) -> bool:
        return True


class ZerosForNothing(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Put zeros into the gaps of columns in which a shard has no value at all; other gaps stay as they are.

    Deletions may remove the last value of a column from a shard. The shard must still be trainable.
    """

    def fit(self, X: Features, y: Any = None) -> Self:
        """Find the columns without any value."""
        self.empty_ = np.isnan(_floats(X)).all(axis=0)
        return self

    def transform(self, X: Features) -> NDArray[np.float64]:
        """The table, with zeros in the gaps of those columns."""
        table = _floats(X)
        return np.where(np.isnan(table) & self.empty_, 0.0, table)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def _floats(X: Features) -> NDArray[np.float64]:
    """Rows as floats, with NaN for every kind of gap."""
    table: NDArray[np.float64] = (
        X.to_numpy(dtype=np.float64, na_value=np.nan) if is_frame(X) else np.asarray(X, dtype=np.float64)
    )
    if np.isinf(table).any():
        raise ValueError("Input X contains infinity")
    return table


def column_kinds(frame: Any) -> dict[str, ColumnKind] | None:
    """Which columns of a data frame are numbers and which are categories, by their types.

    Parameters
    ----------
    frame
        A data frame of pandas or Polars, a table of Arrow, or an array.

    Returns
    -------
    dict or None
        "number" or "category" for every column, in order; None for an array.

    Raises
    ------
    ParameterError
        If a column holds dates or time spans.

    Examples
    --------
    >>> import pandas as pd
    >>> column_kinds(pd.DataFrame({"age": [31, 45], "region": ["north", "south"]}))
    {'age': 'number', 'region': 'category'}
    """
    frame = pandas_form(frame)
    if not is_frame(frame):
        return None
    from pandas.api.types import is_bool_dtype, is_datetime64_any_dtype, is_numeric_dtype, is_timedelta64_dtype

    kinds: dict[str, ColumnKind] = {}
    for name, dtype in zip(frame.columns, frame.dtypes, strict=True):
        if is_datetime64_any_dtype(dtype) or is_timedelta64_dtype(dtype):
            raise ParameterError(f"column {name!r} holds dates: turn it into numbers or categories first")
        kinds[name] = "number" if is_numeric_dtype(dtype) and not is_bool_dtype(dtype) else "category"
    return kinds


def _call_factory(name: str, options: Mapping[str, Any]) -> Learner | SlicedLearner:
    factory = _find_factory(name)
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


def _find_factory(name: str) -> Callable[..., Any]:
    found = import_named(name, option="learner")
    if not callable(found):
        raise ParameterError(f"learner {name!r} is not a function that makes a learner")
    factory: Callable[..., Any] = found
    return factory


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "")
