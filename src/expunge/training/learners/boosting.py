"""Gradient boosting of XGBoost, LightGBM and CatBoost as scikit-learn estimators that keep to the recipe.

`adapted` turns the libraries' own estimators, also inside of pipelines, into `BoostedClassifier` and
`BoostedRegressor`. These train from one seed on one thread, with nothing but options that touch neither files nor other
devices, and hold their model as the library's own text (see `boosters`). So T6 holds for them to the bit, and a folder
stores them without code that would have to be trusted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from expunge.core.checks import require_choice
from expunge.core.errors import ModelFormatError, ParameterError
from expunge.core.features import Features, is_frame, is_sparse
from expunge.training.learners.boosters import BOOSTERS, Booster, Predictor

_PLAIN = (type(None), bool, int, float, str)
_LEARNED = ("predictor_",)  # made from `model_`, and never stored


class _Boosted(BaseEstimator):  # type: ignore[misc]
    """What classifier and regressor have in common: options, training, and the model as text."""

    _is_classifier: bool
    n_features_in_: int

    def __init__(self, library: str, *, class_weight: Any = None, random_state: int | None = None, **options: Any):
        self.library = library
        self.class_weight = class_weight
        self.random_state = random_state
        self.options = options
        self._require_known(options)

    @property
    def _booster(self) -> Booster:
        require_choice("library", self.library, tuple(BOOSTERS))
        return BOOSTERS[self.library]

    @property
    def estimator_name(self) -> str:
        """The library's own name for such an estimator."""
        return self._booster.estimators[0 if self._is_classifier else 1]

    @property
    def option_names(self) -> frozenset[str]:
        """The options of the library that can be set."""
        return self._booster.options | ({"class_weight"} if self._is_classifier else set())

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The library, the seed, and the options that were given."""
        own = {"library": self.library, "random_state": self.random_state}
        weights = {"class_weight": self.class_weight} if self._is_classifier else {}
        return {**own, **weights, **self.options}

    def set_params(self, **params: Any) -> Self:
        """Set options by name; a wrong one is refused, and nothing is set."""
        own = {name: params[name] for name in ("library", "class_weight", "random_state") if name in params}
        options = {**self.options, **{name: value for name, value in params.items() if name not in own}}
        self._require_known(options)
        for name, value in own.items():
            setattr(self, name, value)
        self.options = options
        return self

    def _require_known(self, options: Mapping[str, Any]) -> None:
        booster, name = self._booster, self.estimator_name
        for option, value in options.items():
            if option not in booster.options:
                raise ParameterError(
                    f"{name}: the option {option!r} is not supported: what trains shards takes no options for files, "
                    "threads, devices, callbacks, held-out rows or native categories"
                )
            if not _is_plain(value):
                raise ParameterError(f"{name}: the option {option!r} must be plain values, got {value!r:.80}")
            known = booster.objectives[0 if self._is_classifier else 1]
            if option in booster.objective and value is not None and booster.objective_name(value) not in known:
                raise ParameterError(f"{name}: {option} must be one of {', '.join(sorted(known))}, got {value!r:.80}")

    def _validate_params(self) -> None:
        """Train on four rows, so that the library itself says what it thinks of the options."""
        rows = np.array([[0.0], [1.0], [2.0], [3.0]])
        if any("constraints" in name for name in self.options):
            return  # they name columns
        labels = np.array([0, 1, 0, 1]) if self._is_classifier else rows[:, 0] + 1
        try:
            self._booster.train(self.options, rows, labels, None, seed=0, num_classes=2 if self._is_classifier else 0)
        except ImportError:
            raise
        except Exception as error:
            raise ValueError(_reason(error)) from error

    def _fit(self, table: Any, y: NDArray[Any], weights: Any, num_classes: int) -> None:
        booster = self._booster
        self.constant_ = self.model_ = None
        if len(y) == 1 or (y == y[0]).all() or _is_flat(table):
            self.constant_ = _means(y, weights, num_classes)
        else:
            seed = self.random_state or 0
            text = booster.train(self.options, table, y, weights, seed=seed, num_classes=num_classes)
            self.model_ = np.frombuffer(text.encode("ascii"), dtype=np.uint8)
        self._load(num_classes)

    def _load(self, num_classes: int) -> None:
        """Read the text of the model, after it was checked."""
        if self.model_ is None:
            width = max(1, num_classes)
            constant = np.asarray(self.constant_)
            if constant.shape != (width,) or constant.dtype != np.float64 or not np.isfinite(constant).all():
                raise ModelFormatError("the stored model is malformed: its constant answer")
            return
        try:
            found = self._booster.load(self.text, num_features=int(self.n_features_in_), num_classes=num_classes)
        except (ModelFormatError, ImportError):
            raise
        except Exception as error:
            raise ModelFormatError(f"the stored model is malformed: {_reason(error)}") from error
        self.predictor_: Predictor = found

    def _answers(self, X: Features) -> NDArray[np.float64]:
        check_is_fitted(self, "n_features_in_")
        table = self._table(X, reset=False)
        if self.model_ is None:
            return np.tile(np.asarray(self.constant_), (table.shape[0], 1))
        return self.predictor_(table)

    def _table(self, X: Features, y: Any = "no_validation", *, reset: bool) -> Any:
        """Rows as numbers, NaN for a gap; with the labels if there are any."""
        if is_frame(X):
            for name, dtype in zip(X.columns, X.dtypes, strict=True):
                if dtype.kind not in "biuf":
                    raise ParameterError(
                        f"{self.estimator_name}: column {name!r} holds no numbers: put an encoder in front of it, in a "
                        f"Pipeline, as `named_learner({self.library!r}, columns=…)` does"
                    )
        return validate_data(
            self,
            X,
            y,
            reset=reset,
            accept_sparse="csr",
            accept_large_sparse=False,
            dtype=[np.float64, np.float32],
            ensure_all_finite="allow-nan",
            **({} if isinstance(y, str) else {"y_numeric": not self._is_classifier}),
        )

    @property
    def text(self) -> str:
        """The model in the library's own format, as far as answers need it; empty for a constant."""
        check_is_fitted(self, "n_features_in_")
        return "" if self.model_ is None else np.asarray(self.model_).tobytes().decode("ascii")

    def environment(self) -> dict[str, str]:
        """The version of the library, on which the bits depend."""
        return {self.library: str(self._booster.module.__version__)}

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        own = {"class_weight": self.class_weight, "random_state": self.random_state}
        given = {**self.options, **{name: value for name, value in own.items() if value is not None}}
        words = ", ".join(f"{name}={value!r}" for name, value in given.items())
        return f"{self.estimator_name}({words})"[:N_CHAR_MAX]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.sparse = True
        return tags

    def __sklearn_clone__(self) -> Self:
        return type(self)(**{name: clone(value, safe=False) for name, value in self.get_params().items()})

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in _LEARNED}

    def _restore(self, state: dict[str, Any]) -> None:
        """Take over a stored state, and check all of it: it may come from a stranger."""
        state = {name: value for name, value in state.items() if name != "_sklearn_version"}
        learned = {"n_features_in_", "feature_names_in_", "constant_", "model_", "classes_"}
        wanted = {"library", "class_weight", "random_state", "options"}
        if not wanted <= set(state) <= wanted | learned or not isinstance(state["options"], dict):
            raise ModelFormatError("the stored model is malformed: its parts do not fit together")
        self.__dict__.update(state)
        self._require_known(self.options)


class BoostedClassifier(ClassifierMixin, _Boosted):  # type: ignore[misc]
    """XGBoost, LightGBM or CatBoost for classes: from one seed, on one thread, and stored without code to trust.

    Give the library's own estimator to `UnlearningClassifier`, `expunge.create` or `ScikitLearner`: it becomes one of
    these. Numbers may be missing. What is left to choose when all rows are alike is answered with the shares of the
    classes, by weight.

    Parameters
    ----------
    library
        "xgboost", "lightgbm" or "catboost".
    class_weight
        None, "balanced", or a weight for each label.
    random_state
        The seed; 0 if None. `ScikitLearner` sets it from the shard's seed.
    **options
        Options of the library's estimator, as plain values. Those for files, threads, devices, callbacks, held-out rows
        and native categories are refused.

    Raises
    ------
    ParameterError
        If there is no such library, or an option is not supported.

    Examples
    --------
    >>> BoostedClassifier("xgboost", max_depth=3)
    XGBClassifier(max_depth=3)
    """

    _is_classifier = True

    def fit(self, X: Features, y: Any, sample_weight: Any = None) -> Self:
        """Train on these rows. Labels are counted as 0, 1, … among those that are there."""
        table, labels = self._table(X, y, reset=True)
        check_classification_targets(labels)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        weights = _checked_weights(sample_weight, table)
        if self.class_weight is not None:
            own = compute_sample_weight(_known(self.class_weight, self.classes_), labels)
            weights = own if weights is None else weights * own
        self._fit(table, codes, weights, len(self.classes_))
        return self

    def predict_proba(self, X: Features) -> NDArray[np.float64]:
        """The probability of every class."""
        return self._answers(X)

    def predict(self, X: Features) -> NDArray[Any]:
        """The label with the largest probability; the first among equals."""
        found = self._answers(X).argmax(axis=1)
        labels: NDArray[Any] = self.classes_[found]
        return labels

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._restore(state)
        if "model_" in state:
            classes = np.asarray(self.classes_)
            if classes.ndim != 1 or len(classes) < 1:
                raise ModelFormatError("the stored model is malformed: its classes")
            self._load(len(classes))


class BoostedRegressor(RegressorMixin, _Boosted):  # type: ignore[misc]
    """XGBoost, LightGBM or CatBoost for numbers: from one seed, on one thread, and stored without code to trust.

    As `BoostedClassifier`. Where all rows or all numbers are alike, the answer is the mean, by weight.

    Parameters
    ----------
    library
        "xgboost", "lightgbm" or "catboost".
    random_state
        The seed; 0 if None. `ScikitLearner` sets it from the shard's seed.
    **options
        Options of the library's estimator, as plain values.

    Raises
    ------
    ParameterError
        If there is no such library, or an option is not supported.

    Examples
    --------
    >>> BoostedRegressor("lightgbm", num_leaves=7)
    LGBMRegressor(num_leaves=7)
    """

    _is_classifier = False

    def __init__(self, library: str, *, random_state: int | None = None, **options: Any) -> None:
        super().__init__(library, random_state=random_state, **options)

    def fit(self, X: Features, y: Any, sample_weight: Any = None) -> Self:
        """Train on these rows, with one number for each."""
        table, numbers = self._table(X, y, reset=True)
        self._fit(table, np.asarray(numbers, dtype=np.float64), _checked_weights(sample_weight, table), 0)
        return self

    def predict(self, X: Features) -> NDArray[np.float64]:
        """A number for every row."""
        return self._answers(X)[:, 0]

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._restore(state)
        if "model_" in state:
            self._load(0)


def adapted(estimator: Any) -> Any:
    """The estimator with those of XGBoost, LightGBM and CatBoost in it exchanged, wherever they are.

    Parameters
    ----------
    estimator
        An estimator, also a Pipeline or another one that holds estimators. It is not changed.

    Returns
    -------
    Any
        The same if there is none in it; else a copy with `BoostedClassifier` and `BoostedRegressor` in their places.

    Raises
    ------
    ParameterError
        If one of them has an option that is not supported, or is of a kind that is not.

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> adapted(DecisionTreeClassifier(max_depth=2))
    DecisionTreeClassifier(max_depth=2)
    """
    if is_boosting(estimator):
        return _adapter(estimator)
    if not isinstance(estimator, BaseEstimator) or isinstance(estimator, _Boosted):
        return estimator
    inner = {name: value for name, value in estimator.get_params(deep=True).items() if is_boosting(value)}
    if not inner:
        return estimator
    made = clone(estimator)
    return made.set_params(**{name: _adapter(value) for name, value in inner.items()})


def is_boosting(value: Any) -> bool:
    """Whether this is an estimator of XGBoost, LightGBM or CatBoost itself.

    Parameters
    ----------
    value
        Anything.

    Returns
    -------
    bool
        True for their classes, and not for subclasses of these elsewhere.
    """
    return type(value).__module__.partition(".")[0] in BOOSTERS and hasattr(value, "get_params")


def _adapter(estimator: Any) -> _Boosted:
    name = type(estimator).__name__
    booster = BOOSTERS[type(estimator).__module__.partition(".")[0]]
    if name not in booster.estimators:
        known = " and ".join(booster.estimators)
        raise ParameterError(f"{name} of {booster.library} is not supported: use {known}")
    default = type(estimator)().get_params()
    given = {
        option: value
        for option, value in estimator.get_params(deep=False).items()
        if option not in booster.quiet and not _is_same(value, default.get(option))
    }
    kind = BoostedClassifier if name == booster.estimators[0] else BoostedRegressor
    return kind(booster.library, **given)


def _is_same(value: Any, other: Any) -> bool:
    return value is other or (type(value) is type(other) and isinstance(value, _PLAIN) and value == other)


def _is_plain(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(key, str | int) and _is_plain(each) for key, each in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return isinstance(value, _PLAIN)


def _checked_weights(weights: Any, table: Any) -> Any:
    return None if weights is None else _check_sample_weight(weights, table, dtype=np.float64, ensure_non_negative=True)


def _known(class_weight: Any, classes: NDArray[Any]) -> Any:
    """The weights of those classes that are there: a shard may lack one."""
    if not isinstance(class_weight, Mapping):
        return class_weight
    return {label: class_weight.get(label, 1.0) for label in classes.tolist()}


def _is_flat(table: Any) -> bool:
    """Whether no column tells two rows apart."""
    if is_sparse(table):
        return bool((table.max(axis=0) != table.min(axis=0)).nnz == 0)
    first = table[0]
    return bool(((table == first) | (np.isnan(table) & np.isnan(first))).all())


def _means(y: NDArray[Any], weights: Any, num_classes: int) -> NDArray[np.float64]:
    """The mean of numbers, or the shares of classes."""
    if num_classes == 0:
        return np.array([np.average(y, weights=weights)])
    shares = np.bincount(y, weights=weights, minlength=num_classes)
    found: NDArray[np.float64] = shares / shares.sum()
    return found


def _reason(error: Exception) -> str:
    """The first line of what a library says, without places in its source."""
    line = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return line.rpartition("]")[2].strip() if line.startswith("[") and "]" in line else line.strip()
