"""UnlearningClassifier and UnlearningRegressor: scikit-learn estimators that honour deletion requests."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin, RegressorMixin, clone
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.utils import get_tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d, validate_data

from expunge.core.errors import InputError, ParameterError, RecordError
from expunge.core.features import Features, codes_of, is_sparse, pandas_form
from expunge.core.guarantee import Guarantee
from expunge.serving.deployment import RecordIds, Subjects
from expunge.serving.promises import Exact, Promise, SamplingName, as_promise
from expunge.serving.publishing import BudgetStatus
from expunge.serving.rows import narrowed, with_values
from expunge.serving.unlearner import Unlearner, exact_only, listed
from expunge.training.ensemble import Advance, ignore_progress
from expunge.training.learners import ExactLearner, UnlearningForest
from expunge.training.learners.multioutput import MultiOutputLearner, split_outputs, takes_several_labels
from expunge.training.learners.protocol import Combination
from expunge.training.sampling import Sampler


class UnlearningClassifier(ClassifierMixin, Unlearner):  # type: ignore[misc]
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
        advance: Advance = ignore_progress,
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
        advance
            Called with m whenever m more models are trained, as `update` of a tqdm bar takes it.
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
            self.classes_: Any = self._train(table, labels, ids, subjects, fit_params, advance).classes
            return self
        if not self._promised().is_exact:
            raise ParameterError(f"several labels a record need promise='exact', not {self._promised().name!r}")
        known = [np.unique(column) for column in labels.T]
        codes = np.stack([codes_of(column, own) for column, own in zip(labels.T, known, strict=True)], axis=1)
        self.classes_ = known
        self._train(table, codes, ids, subjects, fit_params, advance)
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

    @exact_only(lambda self: True)
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

    @exact_only(lambda self: self._has_scores())
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

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Names for the columns of `predict_proba`: the name of the estimator, and a class.

        Parameters
        ----------
        input_features
            Not used; it is there because scikit-learn's pipelines pass it.

        Returns
        -------
        ndarray of str objects
            One name for each class; with several outputs one for each class of each.
        """
        check_is_fitted(self)
        prefix = type(self).__name__.lower()
        if not self._has_outputs:
            return np.array([f"{prefix}_{label}" for label in self.classes_], dtype=object)
        named = [f"{prefix}{output}_{label}" for output, own in enumerate(self.classes_) for label in own]
        return np.array(named, dtype=object)

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
                record = listed(ids)[row]
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
        X = pandas_form(X)
        if self._keeps_container(X):
            validate_data(self, X, skip_check_array=True, reset=True)
            labels: Any = np.asarray(y)
        else:
            checks = self._checks()
            X, labels = validate_data(self, with_values(X, checks), y, reset=True, multi_output=True, **checks)
            X = narrowed(X)
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


class UnlearningRegressor(RegressorMixin, Unlearner):  # type: ignore[misc]
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
        advance: Advance = ignore_progress,
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
        advance
            Called with m whenever m more models are trained, as `update` of a tqdm bar takes it.
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
        self._train(*self._validated(X, y), ids, subjects, fit_params, advance)
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

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Names for the columns of `predict`.

        Parameters
        ----------
        input_features
            Not used; it is there because scikit-learn's pipelines pass it.

        Returns
        -------
        ndarray of str objects
            One name; one for each number if several are predicted for a row.
        """
        check_is_fitted(self)
        prefix, outputs = type(self).__name__.lower(), self.deployment_.records.outputs
        return np.array([f"{prefix}{n}" for n in range(outputs[0])] if outputs else [prefix], dtype=object)

    def _validated(self, X: Features, y: ArrayLike) -> tuple[Features, NDArray[Any]]:
        X = pandas_form(X)
        if self._keeps_container(X):
            validate_data(self, X, skip_check_array=True, reset=True)
            targets = np.asarray(y)
        else:
            checks = self._checks()
            rows = with_values(X, checks)
            X, targets = validate_data(self, rows, y, reset=True, multi_output=True, y_numeric=True, **checks)
            X = narrowed(X)
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
