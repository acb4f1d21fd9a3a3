"""UnlearningClassifier and UnlearningRegressor: scikit-learn estimators that honour deletion requests."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from itertools import takewhile
from types import MethodType
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, RegressorMixin, clone
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.utils import check_random_state, get_tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d, validate_data

from expunge.core.errors import InputError, NotPublishedError, ParameterError, RecordError
from expunge.core.features import Features, as_features, codes_of, is_frame, is_sparse
from expunge.core.guarantee import Guarantee
from expunge.core.randomness import Randomness
from expunge.core.records import RecordId, Records
from expunge.serving.deployment import Deployment, RecordIds, Subjects
from expunge.serving.promises import Exact, Promise, SamplingName, Statement, as_promise, refusal
from expunge.serving.publishing import BudgetStatus
from expunge.serving.publishing.publisher import require_answers
from expunge.training.execution import make_executor
from expunge.training.learners import (
    AbstainingLearner,
    ExactLearner,
    ScikitLearner,
    SlicedScikitLearner,
    UnlearningForest,
    as_learner,
)
from expunge.training.learners.multioutput import MultiOutputLearner, split_outputs, takes_several_labels
from expunge.training.learners.protocol import Combination, predicts_values
from expunge.training.sampling import Sampler


class _exact_only:
    """A method that is there under the exact promise only, and if the estimator has it; else one line says why."""

    def __init__(self, is_able: Callable[[Any], bool]) -> None:
        self._is_able = is_able

    def __call__(self, method: Callable[..., Any]) -> Self:
        self._method = method
        self.__doc__ = method.__doc__
        return self

    def __get__(self, owner: Any, kind: type) -> Any:
        if owner is None:
            return self._method
        name, promise = self._method.__name__, owner._promised()
        if not promise.is_exact:
            raise NotPublishedError(refusal(promise, name))
        if not self._is_able(owner):
            raise NotPublishedError(f"no {name}: {type(owner._core()).__name__} has none")
        return MethodType(self._method, owner)


class _Unlearner(MetaEstimatorMixin, BaseEstimator, ABC):  # type: ignore[misc]
    """What the classifier and the regressor have in common: training, deleting, adding, and the checks of rows."""

    estimator: Any
    n_shards: Any
    n_jobs: int | None
    random_state: Any
    deployment_: Deployment

    @_exact_only(lambda self: True)
    def export(self) -> list[Any]:
        """Copies of the models in service, one for each shard.

        Returns
        -------
        list
            Fitted base estimators; see `Deployment.export`.

        Raises
        ------
        NotPublishedError
            Under every promise but the exact one.
        """
        check_is_fitted(self)
        return self.deployment_.export()

    @property
    def promise_(self) -> tuple[Statement, ...]:
        """What is promised about deleted records: separate statements, never one number."""
        check_is_fitted(self)
        return self.deployment_.promise

    def delete(self, ids: Iterable[RecordId] | RecordId = (), *, subjects: Iterable[RecordId] = ()) -> Self:
        """Delete records by id, and all records of the given subjects, as one batch, all or nothing.

        Parameters
        ----------
        ids
            A list of ids, or a single id.
        subjects
            The people whose records are all to be deleted.

        Returns
        -------
        UnlearningClassifier or UnlearningRegressor
            The estimator itself.

        Raises
        ------
        UnknownRecordError
            If an id or a subject is unknown. Nothing is deleted.
        """
        check_is_fitted(self)
        self.deployment_.delete(_listed(ids), subjects=_listed(subjects))
        return self

    def add(
        self,
        X: Features,
        y: ArrayLike,
        ids: RecordIds,
        *,
        subjects: Subjects | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Add records under new ids, as one batch, all or nothing.

        Parameters
        ----------
        X, y
            The new records, one row and one label each.
        ids
            One id for each record, not in use yet.
        subjects
            The person that each record belongs to, None for a record without one.
        sample_weight
            One weight for each record; 1 if None.

        Returns
        -------
        UnlearningClassifier or UnlearningRegressor
            The estimator itself.

        Raises
        ------
        RecordError
            If an id is in use, or a record does not fit the others. Nothing is added.
        """
        check_is_fitted(self)
        # `Records` checks rows and the columns of data frames: its messages name the record at fault.
        table = X if is_frame(X) else self._validated_rows(X, allow_missing=True)
        self.deployment_.add(table, self._labels_to_add(y, ids), ids, subjects=subjects, weights=sample_weight)
        return self

    def _with_tags(self, tags: Any) -> Any:
        """Its own tags with those of the estimator that concern data."""
        base = self._core()
        if hasattr(base, "__sklearn_tags__"):
            inner = get_tags(base)
            tags.input_tags.sparse = _accepts_sparse(base)
            tags.input_tags.allow_nan = _accepts_missing(base)
            tags.input_tags.string = inner.input_tags.string
            tags.input_tags.categorical = inner.input_tags.categorical
            tags.input_tags.positive_only = inner.input_tags.positive_only
            if inner.classifier_tags is not None and tags.classifier_tags is not None:
                tags.classifier_tags.multi_class = inner.classifier_tags.multi_class
            if self._promised().is_exact:
                tags.target_tags.multi_output = inner.target_tags.multi_output
                if inner.classifier_tags is not None and tags.classifier_tags is not None:
                    tags.classifier_tags.multi_label = inner.classifier_tags.multi_label
            if tags.regressor_tags is not None:
                tags.target_tags.single_output = inner.target_tags.single_output
                tags.target_tags.positive_only = inner.target_tags.positive_only
        return tags

    @abstractmethod
    def _base(self) -> Any:
        """What trains a shard: an estimator or a learner."""

    @abstractmethod
    def _promised(self) -> Promise:
        """The promise as an object."""

    def _labels_to_add(self, y: ArrayLike, ids: RecordIds) -> ArrayLike:
        """Labels as the records hold them."""
        return y

    def _learner(self, y: NDArray[Any]) -> Any:
        """What trains a shard on these labels; an estimator of the other kind is refused."""
        learner = as_learner(self._base())
        is_regression = predicts_values(learner)
        if is_regression != isinstance(self, UnlearningRegressor):
            other = "UnlearningRegressor" if is_regression else "UnlearningClassifier"
            raise ParameterError(f"estimator: {self._core()!r} goes into an {other}")
        return learner

    def _train(self, X: Features, y: NDArray[Any], ids: Any, subjects: Any, fit_params: dict[str, Any]) -> Records:
        """Draw the shards and train them; the options that only one of the estimators has are found by name."""
        weights = fit_params.pop("sample_weight", None)
        if fit_params:
            raise TypeError(f"fit got an unexpected keyword: {next(iter(fit_params))}")
        if weights is not None:
            weights = np.broadcast_to(np.asarray(weights, dtype=np.float64), y.shape[:1])
        promise, learner = self._promised(), self._learner(y)
        records = Records.build(
            X,
            y,
            ids=ids,
            subjects=subjects,
            weights=weights,
            is_regression=predicts_values(learner),
            allow_missing=_accepts_missing(self._core()),
        )
        sampling, chance = getattr(self, "sampling", None), getattr(self, "inclusion_probability", None)
        num_shards, probability = promise.sizes(self.n_shards, chance, records, learner)
        rng = self._randomness()
        self.deployment_ = Deployment(
            records,
            learner,
            num_shards=num_shards,
            sampler=promise.make_sampler(sampling, probability),
            publisher=require_answers(promise.make_publisher(num_shards, records.num_classes, rng)),
            rng=rng,
            front=promise.make_front(learner),
            max_generations=promise.max_generations,
            executor=make_executor(self.n_jobs),
        )
        return records

    def _core(self) -> Any:
        """The scikit-learn estimator itself, also if a learner holds it."""
        base = self._base()
        base = base.learner if isinstance(base, AbstainingLearner) else base
        return base.estimator if isinstance(base, ScikitLearner | SlicedScikitLearner) else base

    def _randomness(self) -> Randomness:
        if self.random_state is None:
            return Randomness.from_system()
        return Randomness.from_seed(int(check_random_state(self.random_state).randint(2**31)))

    def _validated_rows(self, X: Features, *, allow_missing: bool = False) -> Features:
        if self._keeps_container(X):
            validate_data(self, X, skip_check_array=True, reset=False)
            return X
        checks = self._checks()
        if allow_missing:
            checks["ensure_all_finite"] = False
        return _narrowed(validate_data(self, _with_values(X, checks), reset=False, **checks))

    def _checks(self) -> dict[str, Any]:
        base = self._core()
        return {
            "accept_sparse": "csr" if _accepts_sparse(base) else False,
            "dtype": None if isinstance(base, Pipeline) else "numeric",
            "ensure_all_finite": not _accepts_missing(base),
        }

    def _keeps_container(self, X: Features) -> bool:
        """Whether X reaches the estimator as it is: data frames do, for their column names; lists of texts do too."""
        return is_frame(X) or (_takes_texts(self._core()) and np.ndim(X) == 1)


class UnlearningClassifier(ClassifierMixin, _Unlearner):  # type: ignore[misc]
    """A classifier that honours deletion requests: many models, each on a shard of the records.

    Deleting a record retrains only the shards that hold it. By default the models are then, bit for bit, what training
    from scratch on the records that are left gives, by the same recipe and key.

    Parameters
    ----------
    estimator
        A scikit-learn classifier or Pipeline, or a `Learner`; LogisticRegression if None. Put preprocessing that looks
        at data into a Pipeline here, so that it is unlearned too.
    n_shards
        The number of shards k. "auto" chooses it: under the exact promise from a few seconds of throw-away trainings on
        this data, for a promise with a target by the planner. It is part of the recipe and fixed from then on.
    promise
        What is promised about deleted records: "exact" (the default), "consensus", "router", "noise" or "unguarded", or
        an object of `expunge.serving.promises` with its own options: `Exact`, `Consensus`, `Router`, `Student`,
        `Noise`, `Unguarded`.
    sampling
        "partition" (each person's records are in one shard), "independent", or a `Sampler`. If None, a partition under
        the exact promise, and independent shards under the others, whose theorems need them.
    inclusion_probability
        The chance p of a record to be in a shard, for independent shards; 1/k if None.
    n_jobs
        The number of worker processes for training.
    random_state
        None draws from the operating system, as real use must. A number is for tests and experiments.

    Attributes
    ----------
    classes_, n_features_in_, feature_names_in_
        As in scikit-learn.
    deployment_
        The `Deployment` behind the classifier; `deployment_.inside` depends on the secret randomness.
    promise_
        What is promised, as separate statements; those that are not claimed say why.
    budget_
        What is spent, what is left, and how many predictions are left. Nothing is counted under the exact promise.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from expunge import UnlearningClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = UnlearningClassifier(n_shards=5, random_state=0).fit(X, y)
    >>> model = model.delete([3, 14, 15])
    >>> len(model.deployment_.records)
    147
    >>> [(each.name, each.is_claimed) for each in model.promise_]
    [('exact', True), ('(α,β,γ)', False)]
    >>> model.predict_proba(X[:1]).shape
    (1, 3)
    """

    # `fit` takes sample_weight among its keywords, where metadata routing does not see it.
    __metadata_request__fit: ClassVar[dict[str, Any]] = {"sample_weight": None}

    def __init__(
        self,
        estimator: Any = None,
        *,
        n_shards: int | str = 10,
        promise: str | Promise = "exact",
        sampling: SamplingName | Sampler | None = None,
        inclusion_probability: float | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.n_shards = n_shards
        self.promise = promise
        self.sampling = sampling
        self.inclusion_probability = inclusion_probability
        self.n_jobs = n_jobs
        self.random_state = random_state

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name, those of the estimator and of the promise too (`promise__max_predictions`).

        Parameters
        ----------
        **params
            As in scikit-learn. A promise that was given by its short name becomes an object.

        Returns
        -------
        UnlearningClassifier
            The classifier itself.
        """
        if isinstance(self.promise, str) and any(name.startswith("promise__") for name in params):
            self.promise = as_promise(self.promise)
        super().set_params(**params)
        return self

    def fit(
        self,
        X: Features,
        y: ArrayLike,
        ids: RecordIds | None = None,
        *,
        subjects: Subjects | None = None,
        **fit_params: Any,
    ) -> Self:
        """Draw the shards and train a model on each (A_distr, Algorithm 2).

        Parameters
        ----------
        X, y
            The records, one row and one label each. Under the exact promise a row of labels each, if the estimator
            takes several outputs.
        ids
            One id for each record, for later deletion; its position if None.
        subjects
            The person that each record belongs to, None for a record without one.
        **fit_params
            Only `sample_weight`, for estimators that take it. A weight belongs to its record.

        Returns
        -------
        UnlearningClassifier
            The classifier itself.

        Raises
        ------
        InputError
            If a record or an option is wrong.
        TypeError
            If there is another keyword.
        TrainingError
            If a shard's model cannot be trained.
        """
        table, labels = self._validated(X, y)
        if labels.ndim == 1:
            self.classes_: Any = self._train(table, labels, ids, subjects, fit_params).classes
            return self
        if not self._promised().is_exact:
            raise ParameterError(f"several labels a record need promise='exact', not {self._promised().name!r}")
        known = [np.unique(column) for column in labels.T]
        codes = np.stack([codes_of(column, own) for column, own in zip(labels.T, known, strict=True)], axis=1)
        self.classes_ = known
        self._train(table, codes, ids, subjects, fit_params)
        return self

    def predict(self, X: Features) -> NDArray[Any]:
        """Release a label for every row.

        Under the exact promise it is the class with the largest mean probability if every model has probabilities, and
        the class with the most votes otherwise; it costs nothing. Under the others each distinct row costs budget once
        a round.

        Parameters
        ----------
        X
            The rows to classify.

        Returns
        -------
        array
            The labels, in a column for each output if there are several; None where a confident mechanism declines, or
            every shard abstains.

        Raises
        ------
        BudgetExhaustedError
            If the budget is spent and `on_exhausted` is "refuse".
        """
        check_is_fitted(self)
        rows = self._validated_rows(X)
        if not self._has_outputs:
            return self.deployment_.predict(rows)
        found = [_likeliest(table, own) for table, own in zip(self._output_tables(rows), self.classes_, strict=True)]
        return np.stack(found, axis=1)

    @_exact_only(lambda self: True)
    def predict_proba(self, X: Features) -> NDArray[np.float64] | list[NDArray[np.float64]]:
        """The mean of the shards' probabilities, or the shares of their votes where models have none.

        Parameters
        ----------
        X
            The rows.

        Returns
        -------
        ndarray of float64, shape (rows, classes)
            As `Deployment.predict_proba`; a list of such tables, one for each output, if there are several.

        Raises
        ------
        NotPublishedError
            Under every promise but the exact one.
        """
        check_is_fitted(self)
        rows = self._validated_rows(X)
        return self._output_tables(rows) if self._has_outputs else self.deployment_.predict_proba(rows)

    @_exact_only(lambda self: self._has_scores())
    def decision_function(self, X: Features) -> NDArray[np.float64]:
        """The log-odds of the mean probability, or the mean of the shards' own scores; only if the estimator has it.

        Parameters
        ----------
        X
            The rows.

        Returns
        -------
        ndarray of float64
            As `Deployment.decision_function`.

        Raises
        ------
        NotPublishedError
            Under every promise but the exact one.
        """
        check_is_fitted(self)
        return self.deployment_.decision_function(self._validated_rows(X))

    @property
    def _has_outputs(self) -> bool:
        """Whether it was fitted on several labels a record."""
        return isinstance(getattr(self, "classes_", None), list)

    def _output_tables(self, rows: Features) -> list[NDArray[np.float64]]:
        """The mean probabilities of each output's classes."""
        return split_outputs(self.deployment_.predict(rows), [len(own) for own in self.classes_])

    def _learner(self, y: NDArray[Any]) -> Any:
        if y.ndim == 1:
            return super()._learner(y)
        return MultiOutputLearner(clone(self._core()), tuple(len(own) for own in self.classes_))

    def _labels_to_add(self, y: ArrayLike, ids: RecordIds) -> ArrayLike:
        """Labels as the records hold them: class codes if there are several, each a known class of its output."""
        if not self._has_outputs:
            return y
        labels = np.asarray(y)
        if labels.ndim != 2 or labels.shape[1] != len(self.classes_):
            raise InputError(f"labels must be {len(self.classes_)} per record, got shape {labels.shape}")
        codes = [codes_of(column, own) for column, own in zip(labels.T, self.classes_, strict=True)]
        for output, (column, own) in enumerate(zip(labels.T, self.classes_, strict=True)):
            for row in np.flatnonzero(own[codes[output]] != column)[:1]:
                label = column[row : row + 1].tolist()[0]
                record = _listed(ids)[row]
                words = f"record {record!r} has the label {label!r} in output {output}, which is not a known class"
                raise RecordError(words, record)
        return np.stack(codes, axis=1)

    def _has_scores(self) -> bool:
        """Whether there are decision scores: an estimator says so itself, and the models of other learners do."""
        core = self._core()
        if self._has_outputs:
            return False
        if isinstance(core, ExactLearner | UnlearningForest):
            return True
        if hasattr(core, "get_params"):
            return hasattr(core, "decision_function")
        return hasattr(self, "deployment_") and self.deployment_.inside.state.has_probabilities

    def score(self, X: Features, y: ArrayLike, sample_weight: Any = None) -> float:
        """The share of rows that are answered correctly, in all outputs. A row that is declined counts as wrong.

        Parameters
        ----------
        X, y
            The rows and their true labels.
        sample_weight
            One weight for each row; 1 if None.

        Returns
        -------
        float
            The accuracy.
        """
        found, truth = self.predict(X), np.asarray(y) if self._has_outputs else column_or_1d(y)
        check_consistent_length(found, truth, sample_weight)
        is_right = (found == truth).all(axis=1) if self._has_outputs else found == truth
        return float(np.average(is_right, weights=sample_weight))

    def guarantee(self, *, beta: float | None = None, gamma: float | None = None) -> Guarantee:
        """The (α,β,γ)-unlearning guarantee that holds in every round, with its theorem and its assumptions.

        Parameters
        ----------
        beta, gamma
            For noisy mechanisms: 1e-3 each if None. Consensus has its target instead.

        Returns
        -------
        Guarantee
            As `Deployment.guarantee`. Under the exact promise it is vacuous: (α,β,γ) is not claimed.
        """
        check_is_fitted(self)
        return self.deployment_.guarantee(beta=beta, gamma=gamma)

    @property
    def budget_(self) -> BudgetStatus:
        """What this generation has spent on predictions, and what is left. Under a consensus it is the operator's."""
        check_is_fitted(self)
        return self.deployment_.inside.budget

    def _validated(self, X: Features, y: ArrayLike) -> tuple[Features, NDArray[Any]]:
        if self._keeps_container(X):
            validate_data(self, X, skip_check_array=True, reset=True)
            labels: Any = np.asarray(y)
        else:
            checks = self._checks()
            X, labels = validate_data(self, _with_values(X, checks), y, reset=True, multi_output=True, **checks)
            X = _narrowed(X)
        labels = labels.toarray() if is_sparse(labels) else labels
        labels = column_or_1d(labels, warn=True) if labels.ndim == 2 and labels.shape[1] == 1 else labels
        if labels.ndim == 2 and not takes_several_labels(self._core()):
            name = type(self._core()).__name__
            raise ParameterError(f"{name} takes one label a record, got {labels.shape[1]}; see MultiOutputClassifier")
        check_classification_targets(labels)
        return X, labels

    def __sklearn_tags__(self) -> Any:
        return self._with_tags(super().__sklearn_tags__())

    def _base(self) -> Any:
        return LogisticRegression() if self.estimator is None else self.estimator

    def _promised(self) -> Promise:
        return as_promise(self.promise)


class UnlearningRegressor(RegressorMixin, _Unlearner):  # type: ignore[misc]
    """A regressor that honours deletion requests: many models, each on a shard of the records.

    Deleting a record retrains only the one shard that holds it. The models are then, bit for bit, what training from
    scratch on the records that are left gives, by the same recipe and key. That is the exact promise, and the only one
    here: an (α,β,γ) is not claimed, because its mechanisms publish labels by votes, and numbers have none.

    Parameters
    ----------
    estimator
        A scikit-learn regressor or Pipeline, or a `Learner` that `predicts_values`; Ridge if None. Put preprocessing
        that looks at data into a Pipeline here, so that it is unlearned too.
    n_shards
        The number of shards k. Each person's records are in one of them. "auto" chooses it from a few seconds of
        throw-away trainings.
    combine
        How the values of the shards become one: "mean" or "median". A shard without records is left out.
    n_jobs
        The number of worker processes for training.
    random_state
        None draws from the operating system, as real use must. A number is for tests and experiments.

    Attributes
    ----------
    n_features_in_, feature_names_in_
        As in scikit-learn.
    deployment_
        The `Deployment` behind the regressor.
    promise_
        What is promised, as separate statements; those that are not claimed say why.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from expunge import UnlearningRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = UnlearningRegressor(n_shards=5, random_state=0).fit(X, y)
    >>> model = model.delete([3, 14, 15])
    >>> len(model.deployment_.records)
    439
    >>> [(each.name, each.is_claimed) for each in model.promise_]
    [('exact', True), ('(α,β,γ)', False)]
    >>> model.predict(X[:2]).shape
    (2,)
    """

    # `fit` takes sample_weight among its keywords, where metadata routing does not see it.
    __metadata_request__fit: ClassVar[dict[str, Any]] = {"sample_weight": None}

    def __init__(
        self,
        estimator: Any = None,
        *,
        n_shards: int | str = 10,
        combine: Combination = "mean",
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.n_shards = n_shards
        self.combine = combine
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(
        self,
        X: Features,
        y: ArrayLike,
        ids: RecordIds | None = None,
        *,
        subjects: Subjects | None = None,
        **fit_params: Any,
    ) -> Self:
        """Draw the shards and train a model on each.

        Parameters
        ----------
        X, y
            The records, one row each, and the numbers to predict: one for each record, or a row of them if the
            estimator takes that.
        ids
            One id for each record, for later deletion; its position if None.
        subjects
            The person that each record belongs to, None for a record without one.
        **fit_params
            Only `sample_weight`, for estimators that take it. A weight belongs to its record.

        Returns
        -------
        UnlearningRegressor
            The regressor itself.

        Raises
        ------
        InputError
            If a record or an option is wrong.
        TypeError
            If there is another keyword.
        TrainingError
            If a shard's model cannot be trained.
        """
        self._train(*self._validated(X, y), ids, subjects, fit_params)
        return self

    def predict(self, X: Features) -> NDArray[np.float64]:
        """The mean or the median of the shards' values.

        Parameters
        ----------
        X
            The rows.

        Returns
        -------
        ndarray of float64
            One number for each row, or a row of them if `y` had one. NaN where every shard's model fails.

        Raises
        ------
        InputError
            If no records are left.
        """
        check_is_fitted(self)
        return self.deployment_.predict(self._validated_rows(X))

    def _validated(self, X: Features, y: ArrayLike) -> tuple[Features, NDArray[Any]]:
        if self._keeps_container(X):
            validate_data(self, X, skip_check_array=True, reset=True)
            targets = np.asarray(y)
        else:
            checks = self._checks()
            rows = _with_values(X, checks)
            X, targets = validate_data(self, rows, y, reset=True, multi_output=True, y_numeric=True, **checks)
            X = _narrowed(X)
        takes_many = not hasattr(self._core(), "__sklearn_tags__") or get_tags(self._core()).target_tags.multi_output
        if targets.ndim == 2 and targets.shape[1] == 1 and not takes_many:
            targets = column_or_1d(targets, warn=True)
        if targets.ndim == 2 and not takes_many:
            name = type(self._core()).__name__
            raise ParameterError(
                f"{name} predicts one number a record, got {targets.shape[1]}; see MultiOutputRegressor"
            )
        return X, targets

    def __sklearn_tags__(self) -> Any:
        return self._with_tags(super().__sklearn_tags__())

    def _base(self) -> Any:
        return Ridge() if self.estimator is None else self.estimator

    def _promised(self) -> Promise:
        return Exact(combine=self.combine)


def _likeliest(table: NDArray[np.float64], classes: NDArray[Any]) -> NDArray[Any]:
    """The class with the largest probability in every row; None in a row of NaN."""
    is_known = ~np.isnan(table).any(axis=1)
    labels: NDArray[Any] = classes[np.where(is_known, table.argmax(axis=1), 0)]
    if not is_known.all():
        labels = labels.astype(object)
        labels[~is_known] = None
    return labels


def _accepts_missing(estimator: Any) -> bool:
    """Whether the estimator can deal with NaN; in a Pipeline, every step up to the first that does not let NaN pass."""
    if isinstance(estimator, ExactLearner | UnlearningForest):
        return estimator.has_gaps
    if isinstance(estimator, ColumnTransformer):
        return True
    if isinstance(estimator, Pipeline):
        steps = [step for _, step in estimator.steps if step not in (None, "passthrough")]
        passing = list(takewhile(_lets_missing_pass, steps))
        return all(map(_accepts_missing, [*passing, *steps[len(passing) :][:1]]))
    return hasattr(estimator, "__sklearn_tags__") and bool(get_tags(estimator).input_tags.allow_nan)


def _lets_missing_pass(step: Any) -> bool:
    """Whether NaN leaves the step as NaN, as it leaves a scaler. An encoder makes a category of it."""
    return type(step).__module__.startswith("sklearn.preprocessing") and not isinstance(step, OneHotEncoder)


def _accepts_sparse(estimator: Any) -> bool:
    return not hasattr(estimator, "__sklearn_tags__") or bool(get_tags(estimator).input_tags.sparse)


def _with_values(X: Any, checks: dict[str, Any]) -> Any:
    """Lists as rows of Python values where any type may be: scikit-learn turns numbers beside texts into texts."""
    return as_features(X) if isinstance(X, list | tuple) and checks["dtype"] is None else X


def _narrowed(table: Features) -> Features:
    """Sparse indices as 32 bits where they fit, because many estimators take no others."""
    if is_sparse(table) and table.indices.dtype == np.int64 and max(table.nnz, *table.shape) < 2**31:
        table = table.copy()
        table.indices, table.indptr = table.indices.astype(np.int32), table.indptr.astype(np.int32)
    return table


def _takes_texts(estimator: Any) -> bool:
    first = estimator.steps[0][1] if isinstance(estimator, Pipeline) else estimator
    return hasattr(first, "__sklearn_tags__") and bool(get_tags(first).input_tags.string)


def _listed(ids: Any) -> list[Any]:
    """A list of ids. A single id stands for a list of one; a string is one id."""
    if isinstance(ids, int | str | np.integer):
        return [ids]
    try:
        return [item.item() if isinstance(item, np.generic) else item for item in ids]
    except TypeError:
        raise InputError(f"ids must be a list of ids, got {ids!r}") from None
