"""What the estimators have in common: training, deleting, adding, the checks of rows, and the page of a notebook."""

from __future__ import annotations

import sys
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from types import MethodType
from typing import Any, ClassVar, NoReturn, Self, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin, is_regressor
from sklearn.pipeline import Pipeline
from sklearn.utils import check_random_state, estimator_html_repr, get_tags
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.validation import check_is_fitted, validate_data

from expunge.core.errors import InputError, NotPublishedError, ParameterError, VacuousPromiseWarning
from expunge.core.features import Features, is_frame, pandas_form
from expunge.core.randomness import Randomness
from expunge.core.records import RecordId, Records
from expunge.serving.card import make_card, make_promise_line
from expunge.serving.deployment import Deployment, RecordIds, Subjects
from expunge.serving.promises import Promise, Statement, Unguarded, refusal
from expunge.serving.publishing.publisher import require_answers
from expunge.serving.rows import accepts_missing, accepts_sparse, narrowed, takes_texts, with_values
from expunge.training.engines import make_executor
from expunge.training.ensemble import Advance, ignore_progress
from expunge.training.execution import Serial
from expunge.training.learners import (
    AbstainingLearner,
    ScikitLearner,
    SlicedScikitLearner,
    ThresholdLearner,
    as_learner,
)
from expunge.training.learners.boosting import adapted, is_boosting
from expunge.training.learners.protocol import predicts_values

_told: set[tuple[str, str, int]] = set()  # warnings that were given, with the places of `fit`
Method = TypeVar("Method", bound=Callable[..., Any])


def exact_only(is_able: Callable[[Any], bool]) -> Callable[[Method], Method]:
    """A method that is there under the exact promise only, and if the estimator has it; else one line says why."""

    def decorate(method: Method) -> Method:
        return cast("Method", _ExactOnly(method, is_able))

    return decorate


class _ExactOnly:
    def __init__(self, method: Callable[..., Any], is_able: Callable[[Any], bool]) -> None:
        self._method, self._is_able = method, is_able
        self.__doc__ = method.__doc__

    def __get__(self, owner: Any, kind: type) -> Any:
        if owner is None:
            return self._method
        name, promise = self._method.__name__, owner._promised()
        if not promise.is_exact:
            raise NotPublishedError(refusal(promise, name))
        if not self._is_able(owner):
            raise NotPublishedError(f"no {name}: {type(owner._core()).__name__} has none")
        return MethodType(self._method, owner)


class Unlearner(MetaEstimatorMixin, BaseEstimator, ABC):  # type: ignore[misc]
    """What the classifier and the regressor have in common: training, deleting, adding, and the checks of rows."""

    estimator: Any
    n_shards: Any
    n_jobs: int | None
    random_state: Any
    deployment_: Deployment

    # `fit` takes sample_weight among its keywords, where metadata routing does not see it; `advance` is no metadata.
    __metadata_request__fit: ClassVar[dict[str, Any]] = {"sample_weight": None, "advance": UNUSED}

    @classmethod
    def from_fitted(cls, estimator: Any, *_: Any, **__: Any) -> NoReturn:
        """Refuse a fitted model, and say what to do instead.

        Parameters
        ----------
        estimator
            The fitted model.

        Raises
        ------
        ParameterError
            Always: one model that learned from all records has no shards, so no record can be taken out of it.
        """
        kind = type(estimator).__name__
        raise ParameterError(
            f"a fitted {kind} cannot unlearn: one model learned from all records, and it has no shards that could be "
            f"trained again without one of them; give it unfitted, with the records: {cls.__name__}({kind}(...), "
            "n_shards=10).fit(X, y, ids=ids), or n_shards=1 to retrain one model at each deletion"
        )

    @exact_only(lambda self: True)
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

    def delete(
        self,
        ids: Iterable[RecordId] | RecordId = (),
        *,
        subjects: Iterable[RecordId] = (),
        advance: Advance = ignore_progress,
    ) -> Self:
        """Delete records by id, and all records of the given subjects, as one batch, all or nothing.

        Parameters
        ----------
        ids
            A list of ids, or a single id.
        subjects
            The people whose records are all to be deleted.
        advance
            Called with m whenever m more models are trained, as `update` of a tqdm bar takes it.

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
        self.deployment_.delete(listed(ids), subjects=listed(subjects), advance=advance)
        return self

    def add(
        self,
        X: Features,
        y: ArrayLike,
        ids: RecordIds,
        *,
        subjects: Subjects | None = None,
        sample_weight: ArrayLike | None = None,
        advance: Advance = ignore_progress,
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
        advance
            As in `delete`.

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
        X = pandas_form(X)
        table = X if is_frame(X) else self._validated_rows(X, allow_missing=True)
        labels = self._labels_to_add(y, ids)
        self.deployment_.add(table, labels, ids, subjects=subjects, weights=sample_weight, advance=advance)
        return self

    def _repr_html_inner(self) -> str:
        return self._html_repr()

    def _html_repr(self) -> str:
        """The page of a notebook: what is promised, of which records and shards, at what cost; then the estimator."""
        diagram = str(estimator_html_repr(self))
        if not hasattr(self, "deployment_"):
            return make_promise_line(self._promised(), self.n_shards) + diagram
        seconds = getattr(self, "_seconds_to_train", None)
        return make_card(self.deployment_, type(self).__name__, seconds_to_train=seconds) + diagram

    def _with_tags(self, tags: Any) -> Any:
        """Its own tags with those of the estimator that concern data."""
        base = self._core()
        if hasattr(base, "__sklearn_tags__"):
            inner = get_tags(base)
            tags.input_tags.sparse = accepts_sparse(base)
            tags.input_tags.allow_nan = accepts_missing(base)
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
        if is_regression != is_regressor(self):
            other = "UnlearningRegressor" if is_regression else "UnlearningClassifier"
            raise ParameterError(f"estimator: {self._core()!r} goes into an {other}")
        return learner

    def _train(
        self, X: Features, y: NDArray[Any], ids: Any, subjects: Any, fit_params: dict[str, Any], advance: Advance
    ) -> Records:
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
            allow_missing=accepts_missing(self._core()),
        )
        sampling, chance = getattr(self, "sampling", None), getattr(self, "inclusion_probability", None)
        num_shards, probability = promise.sizes(self.n_shards, chance, records, learner)
        rng, executor = self._randomness(), make_executor(self.n_jobs)
        started = time.process_time()
        self.deployment_ = Deployment(
            records,
            learner,
            num_shards=num_shards,
            sampler=promise.make_sampler(sampling, probability),
            publisher=require_answers(promise.make_publisher(num_shards, records.num_classes, rng)),
            rng=rng,
            front=promise.make_front(learner),
            max_generations=promise.max_generations,
            executor=executor,
            advance=advance,
        )
        self._seconds_to_train = time.process_time() - started if isinstance(executor, Serial) else None
        self._warn_if_vacuous(promise)
        return records

    def _warn_if_vacuous(self, promise: Promise) -> None:
        """Warn if an (α,β,γ) was asked for, and these shards and options give none. It depends on public numbers."""
        if promise.is_exact or isinstance(promise, Unguarded):
            return
        if reason := self.deployment_.guarantee().reason:
            message = (
                f"promise={promise.name!r} claims no (α,β,γ) here: {reason.rstrip('. ')}. Only the exact promise is in "
                "force; `expunge plan` says what an (α,β,γ) takes, and under promise='exact' nothing is charged"
            )
            caller = sys._getframe(3)
            place = (message, caller.f_code.co_filename, caller.f_lineno)
            if place not in _told:  # Python's own memory of warnings is emptied by every training
                warnings.warn(message, VacuousPromiseWarning, stacklevel=4)
                _told.add(place)

    def _core(self) -> Any:
        """The scikit-learn estimator itself, also if a learner holds it."""
        base = self._base()
        while isinstance(base, AbstainingLearner | ThresholdLearner):
            base = base.learner
        if is_boosting(base):
            return adapted(base)
        return base.estimator if isinstance(base, ScikitLearner | SlicedScikitLearner) else base

    def _randomness(self) -> Randomness:
        if self.random_state is None:
            return Randomness.from_system()
        return Randomness.from_seed(int(check_random_state(self.random_state).randint(2**31)))

    def _validated_rows(self, X: Features, *, allow_missing: bool = False) -> Features:
        X = pandas_form(X)
        if self._keeps_container(X):
            validate_data(self, X, skip_check_array=True, reset=False)
            return X
        checks = self._checks()
        if allow_missing:
            checks["ensure_all_finite"] = False
        return narrowed(validate_data(self, with_values(X, checks), reset=False, **checks))

    def _checks(self) -> dict[str, Any]:
        base = self._core()
        return {
            "accept_sparse": "csr" if accepts_sparse(base) else False,
            "dtype": None if isinstance(base, Pipeline) else "numeric",
            "ensure_all_finite": not accepts_missing(base),
        }

    def _keeps_container(self, X: Features) -> bool:
        """Whether X reaches the estimator as it is: data frames do, for their column names; lists of texts do too."""
        return is_frame(X) or (takes_texts(self._core()) and np.ndim(X) == 1)


def listed(ids: Any) -> list[Any]:
    """A list of ids. A single id stands for a list of one; a string is one id."""
    if isinstance(ids, int | str | np.integer):
        return [ids]
    try:
        return [item.item() if isinstance(item, np.generic) else item for item in ids]
    except TypeError:
        raise InputError(f"ids must be a list of ids, got {ids!r}") from None
