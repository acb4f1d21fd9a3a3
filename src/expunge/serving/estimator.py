"""UnlearningClassifier: a scikit-learn classifier that honours deletion requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import takewhile
from types import MethodType
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.utils import check_random_state, get_tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d, validate_data

from expunge.core.errors import InputError, NotPublishedError
from expunge.core.features import Features, is_frame, is_sparse
from expunge.core.guarantee import Guarantee
from expunge.core.randomness import Randomness
from expunge.core.records import RecordId, Records
from expunge.serving.deployment import Deployment, RecordIds, Subjects
from expunge.serving.promises import Promise, SamplingName, Statement, as_promise, refusal
from expunge.serving.publishing import BudgetStatus
from expunge.serving.publishing.publisher import require_answers
from expunge.training.execution import make_executor
from expunge.training.learners import AbstainingLearner, ScikitLearner, SlicedScikitLearner, as_learner
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
        name, promise = self._method.__name__, as_promise(owner.promise)
        if not promise.is_exact:
            raise NotPublishedError(refusal(promise, name))
        if not self._is_able(owner):
            raise NotPublishedError(f"no {name}: {type(owner._core()).__name__} has none")
        return MethodType(self._method, owner)


class UnlearningClassifier(MetaEstimatorMixin, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier that honours deletion requests: many models, each on a shard of the records.

    Deleting a record retrains only the shards that hold it. By default the models are then, bit for bit, what training
    from scratch on the records that are left gives, by the same recipe and key.

    Parameters
    ----------
    estimator
        A scikit-learn classifier or Pipeline, or a `Learner`; LogisticRegression if None. Put preprocessing that looks
        at data into a Pipeline here, so that it is unlearned too.
    n_shards
        The number of shards k. "auto" lets the planner choose k and p for a promise with a target.
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
            The records, one row and one label each.
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
        weights = fit_params.pop("sample_weight", None)
        if fit_params:
            raise TypeError(f"fit got an unexpected keyword: {next(iter(fit_params))}")
        table, labels = self._validated(X, y, reset=True)
        if weights is not None:
            weights = np.broadcast_to(np.asarray(weights, dtype=np.float64), labels.shape)
        records = Records.build(
            table,
            labels,
            ids=ids,
            subjects=subjects,
            weights=weights,
            allow_missing=_accepts_missing(self._core()),
        )
        promise, learner = as_promise(self.promise), as_learner(self._base())
        num_shards, probability = promise.sizes(self.n_shards, self.inclusion_probability, records)
        rng = self._randomness()
        deployment = Deployment(
            records,
            learner,
            num_shards=num_shards,
            sampler=promise.make_sampler(self.sampling, probability),
            publisher=require_answers(promise.make_publisher(num_shards, records.num_classes, rng)),
            rng=rng,
            front=promise.make_front(learner),
            max_generations=promise.max_generations,
            executor=make_executor(self.n_jobs),
        )
        self.classes_ = records.classes
        self.deployment_ = deployment
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
            The labels; None where a confident mechanism declines, or every shard abstains.

        Raises
        ------
        BudgetExhaustedError
            If the budget is spent and `on_exhausted` is "refuse".
        """
        check_is_fitted(self)
        return self.deployment_.predict(self._validated_rows(X))

    @_exact_only(lambda self: True)
    def predict_proba(self, X: Features) -> NDArray[np.float64]:
        """The mean of the shards' probabilities, or the shares of their votes where models have none.

        Parameters
        ----------
        X
            The rows.

        Returns
        -------
        ndarray of float64, shape (rows, classes)
            As `Deployment.predict_proba`.

        Raises
        ------
        NotPublishedError
            Under every promise but the exact one.
        """
        check_is_fitted(self)
        return self.deployment_.predict_proba(self._validated_rows(X))

    @_exact_only(lambda self: hasattr(self._core(), "decision_function"))
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

    def score(self, X: Features, y: ArrayLike, sample_weight: Any = None) -> float:
        """The share of rows that are answered correctly. A row that is declined counts as wrong.

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
        found, truth = self.predict(X), column_or_1d(y)
        check_consistent_length(found, truth, sample_weight)
        return float(np.average(found == truth, weights=sample_weight))

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
        UnlearningClassifier
            The classifier itself.

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
        UnlearningClassifier
            The classifier itself.

        Raises
        ------
        RecordError
            If an id is in use, or a record does not fit the others. Nothing is added.
        """
        check_is_fitted(self)
        # `Records` checks rows and the columns of data frames: its messages name the record at fault.
        table = X if is_frame(X) else self._validated_rows(X, allow_missing=True)
        self.deployment_.add(table, y, ids, subjects=subjects, weights=sample_weight)
        return self

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

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
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
        return tags

    def _base(self) -> Any:
        return LogisticRegression() if self.estimator is None else self.estimator

    def _core(self) -> Any:
        """The scikit-learn estimator itself, also if a learner holds it."""
        base = self._base()
        base = base.learner if isinstance(base, AbstainingLearner) else base
        return base.estimator if isinstance(base, ScikitLearner | SlicedScikitLearner) else base

    def _randomness(self) -> Randomness:
        if self.random_state is None:
            return Randomness.from_system()
        return Randomness.from_seed(int(check_random_state(self.random_state).randint(2**31)))

    def _validated(self, X: Features, y: ArrayLike, *, reset: bool) -> tuple[Features, NDArray[Any]]:
        if self._keeps_container(X):
            validate_data(self, X, skip_check_array=True, reset=reset)
            labels = np.asarray(y)
        else:
            X, labels = validate_data(self, X, y, reset=reset, **self._checks())
            X = _narrowed(X)
        check_classification_targets(labels)
        return X, labels

    def _validated_rows(self, X: Features, *, allow_missing: bool = False) -> Features:
        if self._keeps_container(X):
            validate_data(self, X, skip_check_array=True, reset=False)
            return X
        checks = self._checks()
        if allow_missing:
            checks["ensure_all_finite"] = False
        return _narrowed(validate_data(self, X, reset=False, **checks))

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


def _accepts_missing(estimator: Any) -> bool:
    """Whether the estimator can deal with NaN; in a Pipeline, every step up to the first that does not let NaN pass."""
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
