"""PrivatePredictionInteraction (Algorithm 4): the only mutable object, and the only place where anything is published.

A deployment owns the secret randomness, the current ensemble and the books. A generation runs from one full training to
the next and starts with fresh randomness and empty books. A round is one applied batch of updates. A deployment
releases predictions, receipts that say "applied", and facts that do not depend on the secret randomness. Everything
else is under `inside`, for operators and audits.

Under the exact promise (an `ExactPublisher`) there are no books: probabilities and models are released too, no
generation is ever used up, and an update retrains the touched shards only. `rekey` alone starts a generation.
"""

from __future__ import annotations

import copy
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from itertools import islice
from typing import Any, Self
from uuid import uuid4

import numpy as np
from numpy.typing import ArrayLike, NDArray

from expunge.core.checks import require_count
from expunge.core.corrections import Correct
from expunge.core.errors import BudgetExhaustedError, InputError, NotPublishedError, ParameterError
from expunge.core.features import Features, as_features, conform, missing_rows, num_rows, row_keys, take
from expunge.core.guarantee import Guarantee
from expunge.core.prf import RecipeKey
from expunge.core.randomness import Randomness
from expunge.core.records import AddMany, Change, RecordId, Records, Update, as_batch, deletions
from expunge.core.words import read_period
from expunge.privacy.mechanisms import DECLINED
from expunge.serving.card import make_card
from expunge.serving.keeper import InMemory, Keeper, RoundState
from expunge.serving.promises import ONLY_CLASSES, ONLY_LABELS, ONLY_MEANS, Statement, make_statements
from expunge.serving.publishing import (
    BudgetStatus,
    DirectFront,
    ExactFront,
    ExactPublisher,
    ExactRound,
    Front,
    Publisher,
    RoundContext,
    StudentRound,
)
from expunge.training.ensemble import (
    Advance,
    EnsembleState,
    StateWriter,
    UpdateReport,
    ignore_progress,
    learn,
    touched_shards,
    update,
)
from expunge.training.environment import Numerics, Origins
from expunge.training.execution import Executor, Serial
from expunge.training.learners import (
    Learner,
    MultiOutputModel,
    ScikitModel,
    ScikitRegression,
    SlicedLearner,
    SlicedModel,
    as_learner,
)
from expunge.training.learners.protocol import predicts_values
from expunge.training.recipe import Recipe
from expunge.training.sampling import Sampler

_NOT_INDEPENDENT = "the shards are a partition: they are not independent, and no certificate covers them (Theorem 5.1)"
_SMALLEST = float(np.finfo(np.float64).tiny)
_MOST_ANSWERS, _KEPT_ANSWERS = 100_000, 75_000  # of a round: those asked for least recently are forgotten
_ATTEMPTS = 3  # to release what was considered, before others have to wait
_UNSAVED = ("_keeper", "_updating", "_lock", "_background", "_background_error")

RecordIds = Sequence[RecordId] | NDArray[Any]
Subjects = Sequence[RecordId | None]


@dataclass(frozen=True, slots=True)
class Receipt:
    """What the requester learns about a request.

    Attributes
    ----------
    request
        The request's number.
    state
        How far the request is, such as "applied".
    round
        The round in which it was applied; None before that.
    """

    request: str
    state: str
    round: int | None


@dataclass(frozen=True, slots=True)
class Status:
    """The facts about a deployment that may be public.

    Attributes
    ----------
    generation
        The number of the generation, from 1. None under a consensus: it depends on whether one failed. The operator
        finds it in `Deployment.inside`.
    round
        How many batches of updates have been applied.
    num_records, num_shards
        The number of records now, and the number of shards k.
    budget
        What this generation has spent on predictions, and what is left. None under a consensus.
    """

    generation: int | None
    round: int
    num_records: int
    num_shards: int
    budget: BudgetStatus | None


@dataclass(frozen=True, slots=True)
class Published:
    """Answers, all of one round.

    Attributes
    ----------
    round
        The round.
    codes
        A class code for each row, DECLINED where there is no answer; None if numbers are predicted.
    values
        A number for each row, or a row of them; None if classes are predicted.
    probabilities
        The probabilities of the classes; None if they were not asked for.
    """

    round: int
    codes: NDArray[np.int64] | None = None
    values: NDArray[np.float64] | None = None
    probabilities: NDArray[np.float64] | None = None


@dataclass(frozen=True, slots=True)
class Preview:
    """What an update would do, without doing it. Under (α,β,γ) it is for operators: it depends on secrets.

    Attributes
    ----------
    deletions, additions, corrections
        How many records the update deletes for good, adds, and corrects.
    touched
        How many shards it trains again.
    num_shards
        k.
    records
        How many records lie in these shards before it.
    retrains_everything
        Whether everything is retrained with a new key, because the generation is used up.
    """

    deletions: int
    additions: int
    corrections: int
    touched: int
    num_shards: int
    records: int
    retrains_everything: bool


class Deployment:
    """An ensemble in service, in memory (Algorithm 4).

    A deployment is safe to use from several threads. One update at a time trains, while predictions are served from the
    round before; then the round is switched at once.

    Parameters
    ----------
    records
        The dataset D to train on.
    learner
        What trains one shard's model.
    num_shards
        The number of shards k.
    sampler
        How shards are drawn. Only an independent sampler is covered by an (α,β,γ) guarantee.
    publisher
        The mechanism that releases predictions, with the books of the first generation. An `ExactPublisher` stands for
        the exact promise.
    rng
        The source of all randomness. It is renewed from the operating system for every generation, unless it is a fixed
        seed.
    front
        What answers queries: the ensemble (the default), a router or a student.
    max_generations
        The number of generations G that the certificate covers. After G generations every update is a full retraining.
        Without a meaning under the exact promise.
    executor
        Where models are trained; one after the other in this process if None.
    advance
        Called with the progress of the first training.
    key
        The recipe key ζ of the first generation. None takes one from `rng`.
    numerics
        What an update does when the environment has changed: "strict" retrains everything, "lenient" only the touched
        shards, and needs the exact promise. See `Recipe`.
    keeper
        What keeps rounds and reserves predictions; nothing is kept if it is None.
    present
        The round to go on with. None trains the first round. See `resumed`.

    Raises
    ------
    ParameterError
        If `max_generations` is not a positive integer, the publisher is made for another number of shards, or front and
        publisher do not belong to the same promise.
    TrainingError
        If a shard's model cannot be trained.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from expunge import Deployment, IndependentSampler, Randomness, Records
    >>> from expunge.privacy.mechanisms import Majority
    >>> from expunge.serving.publishing import NoisyPublisher
    >>> from expunge.training.learners import as_learner
    >>> X = np.arange(40.0).reshape(20, 2)
    >>> deployment = Deployment(
    ...     Records.build(X, X[:, 0] > 19),
    ...     as_learner(LogisticRegression()),
    ...     num_shards=3,
    ...     sampler=IndependentSampler(0.5),
    ...     publisher=NoisyPublisher(Majority(), budget=None),
    ...     rng=Randomness.from_seed(0),  # for examples and tests; real use draws it from the system
    ... )
    >>> deployment.delete([7]).state
    'applied'
    >>> deployment.status.num_records
    19
    """

    def __init__(
        self,
        records: Records,
        learner: Learner | SlicedLearner,
        *,
        num_shards: int,
        sampler: Sampler,
        publisher: Publisher,
        rng: Randomness,
        front: Front | None = None,
        max_generations: int = 100,
        executor: Executor | None = None,
        advance: Advance = ignore_progress,
        key: RecipeKey | None = None,
        numerics: Numerics = "strict",
        keeper: Keeper | None = None,
        present: RoundState | None = None,
    ) -> None:
        made_for = getattr(publisher, "num_shards", num_shards)
        if made_for != num_shards:
            raise ParameterError(f"the publisher is for {made_for} shards, the deployment has {num_shards}")
        is_exact = isinstance(publisher, ExactPublisher)
        self._front = front or (ExactFront() if is_exact else DirectFront())
        if is_exact != isinstance(self._front, ExactFront):
            raise ParameterError("an ExactFront and an ExactPublisher belong together: both, or neither")
        if predicts_values(learner) and not is_exact:
            raise ParameterError(ONLY_CLASSES)
        if getattr(learner, "has_thresholds", False) and not is_exact:
            raise ParameterError(ONLY_MEANS)
        self._learner = learner
        self._max_generations = require_count("max_generations", max_generations)
        self._executor = executor or Serial()
        self._updating = threading.RLock()  # taken first, for as long as an update trains
        self._lock = threading.RLock()  # taken second, for what takes no time
        self._background: threading.Thread | None = None
        self._background_error: BaseException | None = None
        if present is None:
            if numerics == "lenient" and not is_exact:
                why = "it would show which shards an update touched"
                raise ParameterError(f"numerics='lenient' needs promise='exact': {why}")
            recipe = Recipe(learner, num_shards, sampler, key or RecipeKey.from_randomness(rng), numerics)
            state = learn(records, recipe, executor=self._executor, advance=advance).require_votes()
            serving = self._front.open_round(RoundContext(state, publisher, rng, self._executor))
            present = RoundState(state, publisher, rng, serving, num_shards)
        self._present = present
        self._keeper: Keeper = keeper or InMemory()
        publisher.journal = self._keeper.journal(present)

    @classmethod
    def resumed(
        cls,
        present: RoundState,
        learner: Learner | SlicedLearner,
        *,
        front: Front,
        max_generations: int,
        executor: Executor | None = None,
        keeper: Keeper | None = None,
    ) -> Self:
        """Go on with a round that was kept. Nothing is trained.

        Parameters
        ----------
        present
            The round, with the books of its generation.
        learner, front, max_generations, executor, keeper
            As for a new deployment.

        Returns
        -------
        Deployment
            The deployment, with this round in service.
        """
        state = present.state
        return cls(
            state.records,
            learner,
            num_shards=state.num_shards,
            sampler=state.sampler,
            publisher=present.publisher,
            rng=present.rng,
            front=front,
            max_generations=max_generations,
            executor=executor,
            keeper=keeper,
            present=present,
        )

    @property
    def classes(self) -> NDArray[Any]:
        """The labels that may be released; empty for a regressor."""
        return self.records.classes

    @property
    def records(self) -> Records:
        """The dataset D^t as it is after the last applied update."""
        return self._present.state.records

    @property
    def is_exact(self) -> bool:
        """Whether the exact promise alone is made, so that everything may be published."""
        return isinstance(self._present.publisher, ExactPublisher)

    @property
    def promise(self) -> tuple[Statement, ...]:
        """What is promised about deleted records: separate statements, those that are not claimed included."""
        return make_statements(self.guarantee(), self.origins)

    @property
    def origins(self) -> Origins:
        """Which environments the models in service were trained in, and what has changed since."""
        return self._present.state.origins

    @property
    def front(self) -> Front:
        """What answers queries: the ensemble itself, a router or a student. It holds public things only."""
        return self._front

    @property
    def student(self) -> StudentRound:
        """The student model of this round. It may be given away. Only a `StudentFront` has one."""
        serving = self._present.serving
        if not isinstance(serving, StudentRound):
            raise ParameterError("this deployment has no student: publish through a StudentFront")
        return serving.released

    @property
    def inside(self) -> RoundState:
        """The round in service, with its models and shards and what the last update touched.

        It is for operators and audits only. Showing any of it to a requester voids an (α,β,γ) guarantee.
        """
        return self._present

    @property
    def status(self) -> Status:
        """The round and the number of records, and the generation and its budget where these are public."""
        with self._lock:
            present = self._present
            state = present.state
            shown = (present.generation, present.budget) if present.publisher.shows_budget else (None, None)
            return Status(shown[0], present.round, len(state.records), state.num_shards, shown[1])

    def _repr_html_(self) -> str:
        """What a notebook shows: promise, records, shards and cost."""
        return make_card(self, type(self).__name__)

    def predict_codes(self, X: Features) -> NDArray[np.int64]:
        """Release a class code for every row.

        All rows that were not answered before in this round are charged together, before any of them is drawn. An
        answer that was already released is released again: that is post-processing, and free. At most 100,000 answers
        are kept: a row whose answer was forgotten is charged again. Under the exact promise nothing is charged.

        Parameters
        ----------
        X
            The rows to classify, in the layout of the records.

        Returns
        -------
        array of int
            Positions in `classes`, or DECLINED where the mechanism gives no answer.

        Raises
        ------
        InputError
            If the rows have another layout, or hold NaN or infinity where the records may not.
        BudgetExhaustedError
            If the generation's budget does not allow so many answers.
        """
        rows = self._queries(X)
        if self.records.is_regression:
            raise NotPublishedError("no class codes: this deployment predicts numbers, which predict gives")
        return self._published(rows)[1]

    def _published(self, rows: Features) -> tuple[int, NDArray[np.int64]]:
        """A round, and the answers of that round. Threads wait for one another only while answers are released."""
        if self.is_exact:
            present = self._present
            return present.round, present.serving.answer(rows)  # of one round, without waiting for anything
        for attempt in range(_ATTEMPTS):
            present = self._present
            if len(present.state.records) == 0:  # there is no record to learn from
                return present.round, np.full(num_rows(rows), DECLINED, dtype=np.int64)
            asked = _Asked(present, rows)
            with nullcontext() if attempt < _ATTEMPTS - 1 else self._lock:  # after so many changes they have to wait
                considered = asked.consider()
                with self._lock:
                    # What is considered in one round is not released in another, and no row is charged twice.
                    if self._present is not present or not asked.is_current:
                        continue
                    codes = asked.release(considered)
                    if present.publisher.on_exhausted == "retrain_now" and present.publisher.must_retrain:
                        self._start_background_retraining(present)
                    return present.round, codes
        raise AssertionError("nothing changes under the lock")

    def answer(self, X: Features, *, probabilities: bool = False) -> Published:
        """Release what `predict` does, and say which round it is of.

        Parameters
        ----------
        X
            The rows, in the layout of the records.
        probabilities
            Whether to release probabilities too, as `predict_proba` gives them, of the same round.

        Returns
        -------
        Published
            Codes and, if wanted, probabilities; or values, if this deployment predicts numbers.

        Raises
        ------
        InputError, BudgetExhaustedError
            As `predict`.
        NotPublishedError
            If probabilities are wanted that may not be published, or that there are none of.
        """
        rows, present = self._queries(X), self._present
        if probabilities:
            self._published_state("predict_proba")  # refuses where they may not be published
            state, serving = present.state, present.serving
            assert isinstance(serving, ExactRound)
            found = state.mean_probabilities(rows)
            codes = serving.likeliest(found) if serving.decides_by_probabilities else serving.answer(rows)
            return Published(present.round, codes=codes, probabilities=found)
        if self.records.is_regression:
            return Published(present.round, values=self._values_of(present, rows))
        round_, codes = self._published(rows)
        return Published(round_, codes=codes)

    def _queries(self, X: Features) -> Features:
        """Rows in the layout of the records; an error if they have another one."""
        records = self.records
        rows = conform(as_features(X), records.layout, records.blocks[0].features)
        if not records.allow_missing and len(missing := missing_rows(rows)):
            raise InputError(f"queries must not hold NaN or infinity: row {missing[0] + 1:,} does")
        return rows

    def _published_state(self, what: str) -> EnsembleState:
        """The state, under the exact promise; `what` else names in the error what may not be published."""
        if not self.is_exact:
            raise NotPublishedError(f"no {what} under this promise, {ONLY_LABELS}")
        if self.records.is_regression and what != "export":
            raise NotPublishedError(f"no {what}: this deployment predicts numbers, which predict gives")
        return self._present.state

    def predict_proba(self, X: Features) -> NDArray[np.float64]:
        """The mean of the shards' probabilities, under the exact promise.

        A class that a shard never saw has probability 0 there; shards without records are left out. Where a model has
        no probabilities, these are the shares of the votes.

        Parameters
        ----------
        X
            The rows, in the layout of the records.

        Returns
        -------
        ndarray of float64, shape (rows, classes)
            NaN in rows on which every shard abstains.

        Raises
        ------
        InputError
            If the rows have another layout.
        NotPublishedError
            Under every other promise.
        """
        state = self._published_state("predict_proba")
        return state.mean_probabilities(self._queries(X))

    def decision_function(self, X: Features) -> NDArray[np.float64]:
        """A score that ranks the rows as `predict_proba` does, or the mean of the shards' scores; exact promise only.

        If every model has probabilities, it is the log-odds of their mean for two classes, and the logarithm of their
        mean for more; with thresholds, how far the mean is above the class's. Otherwise it is the mean of the models'
        own decision functions, in which a class that a shard never saw has its lowest score there, or -1 if that is
        lower.

        Parameters
        ----------
        X
            The rows, in the layout of the records.

        Returns
        -------
        ndarray of float64
            One score a row for two classes, positive for the second one; else shape (rows, classes).

        Raises
        ------
        InputError
            If the rows have another layout.
        NotPublishedError
            Under every other promise, or if the models have neither.
        """
        state, rows = self._published_state("decision_function"), self._queries(X)
        if state.has_probabilities:
            found = state.mean_probabilities(rows)
            margins = state.margins(found)
            if margins is not found:
                return np.asarray(margins[:, 1] - 0.5 if margins.shape[1] == 2 else margins)
            scores = np.log(np.maximum(found, _SMALLEST))
            return np.asarray(scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores)
        means = state.mean_scores(rows)
        if means is None:
            raise NotPublishedError("no decision_function: the models of the shards have none")
        return means[:, 1] if means.shape[1] == 2 else means

    def export(self) -> list[Any]:
        """Copies of the models in service, one for each shard, under the exact promise.

        Returns
        -------
        list
            Fitted scikit-learn estimators. Where a shard had one class (in some output) or no records, or the learner
            is of another kind, it is the model itself, which answers with class codes.

        Raises
        ------
        NotPublishedError
            Under every other promise.
        """
        models = [
            each.final if isinstance(each, SlicedModel) else each for each in self._published_state("export").models
        ]
        labels = getattr(self._present.state.learner, "classes", None)
        return [copy.deepcopy(_estimator_of(each, labels)) for each in models]

    def predict(self, X: Features) -> NDArray[Any]:
        """Release a label for every row, or the numbers that a regressor predicts.

        Parameters
        ----------
        X
            The rows, in the layout of the records.

        Returns
        -------
        array
            The labels. Where the mechanism declined, or every shard abstains under the exact promise, the label is
            None, and the array holds objects. For a regressor the mean or the median of the shards' values: one number
            a row, or a row of them; shards without records are left out.

        Raises
        ------
        InputError, BudgetExhaustedError
            As `predict_codes`; for a regressor also if no records are left to predict from.
        """
        if self.records.is_regression:
            return self._values(X)
        codes = self.predict_codes(X)
        labels = self.classes[np.maximum(codes, 0)]
        if (codes < 0).any():
            labels = labels.astype(object)
            labels[codes < 0] = None
        return labels

    def _values(self, X: Features) -> NDArray[np.float64]:
        return self._values_of(self._present, self._queries(X))

    def _values_of(self, present: RoundState, rows: Features) -> NDArray[np.float64]:
        serving = present.serving
        assert isinstance(serving, ExactRound)
        if not len(serving.opening.state.records):
            raise InputError("no records are left to predict from: add some")
        return serving.values(rows)

    def update(self, batch: Iterable[Update], *, advance: Advance = ignore_progress) -> Receipt:
        """Apply a batch of updates, all or nothing, as one round (Algorithm 3).

        The touched shards are retrained. Once the generation's budget is spent or `max_generations` are used up, all
        shards are retrained with fresh randomness. Neither ever happens under the exact promise. When the environment
        has changed since the models were trained, all of them are trained again, unless the numerics are "lenient".

        Parameters
        ----------
        batch
            `Add`, `AddMany`, `Delete`, `DeleteMany` and `DeleteSubject`, in any mix.
        advance
            Called with the progress of the training.

        Returns
        -------
        Receipt
            It says "applied", and the round.

        Raises
        ------
        InputError
            If a record is unknown, is already there, or does not fit the others. Nothing is applied.
        TrainingError
            If a shard's model cannot be trained. Nothing is applied.
        """
        batch = as_batch(batch)
        with self._keeper.working(), self._updating:
            self._raise_background_error()
            # A prediction published while this trains comes after the request. It counts towards the next request only.
            retrained = partial(self._retrained, batch, advance)
            if self._must_retrain:
                present = self._make_round(retrained)
            else:
                try:
                    present = self._make_round(partial(self._updated, batch, advance))
                except BudgetExhaustedError:  # the front cannot pay for its round; the deletion is applied all the same
                    present = self._make_round(retrained)
            return Receipt(uuid4().hex, "applied", present.round)

    def delete(
        self,
        ids: Iterable[RecordId] = (),
        *,
        subjects: Iterable[RecordId] = (),
        advance: Advance = ignore_progress,
    ) -> Receipt:
        """Delete records by id, and all records of the given subjects, as one batch.

        Parameters
        ----------
        ids
            The records to delete.
        subjects
            The people whose records are all to be deleted.
        advance
            Called with the progress of the training.

        Returns
        -------
        Receipt
            As `update`.

        Raises
        ------
        InputError
            If an id or subject is unknown, or is given outside a list. Nothing is deleted.
        """
        return self.update(deletions(ids, subjects), advance=advance)

    def add(
        self,
        X: Features,
        y: ArrayLike,
        ids: RecordIds,
        *,
        subjects: Subjects | None = None,
        weights: ArrayLike | None = None,
        advance: Advance = ignore_progress,
    ) -> Receipt:
        """Add records under new ids, as one batch.

        Parameters
        ----------
        X, y
            The new records, one row and one label each.
        ids
            One id for each record, not in use yet.
        subjects
            The person that each record belongs to, None for a record without one.
        weights
            One weight for each record; 1 if None.
        advance
            Called with the progress of the training.

        Returns
        -------
        Receipt
            As `update`.

        Raises
        ------
        InputError
            If an id is in use, or a record does not fit the others. Nothing is added.
        """
        batch = [AddMany(ids=ids, features=X, labels=y, subjects=subjects, weights=weights)]
        return self.update(batch, advance=advance)

    def preview(self, batch: Iterable[Update]) -> Preview:
        """Say what `update` would do with a batch. Nothing is changed.

        Parameters
        ----------
        batch
            The updates.

        Returns
        -------
        Preview
            What would be deleted, added and trained again. Under (α,β,γ) this is for operators only.

        Raises
        ------
        InputError
            As `update`.
        """
        batch = as_batch(batch)
        with self.hold():
            state, is_full = self._present.state, self._must_retrain
            records, change = state.records.apply(batch)
            touched = range(state.num_shards) if is_full else touched_shards(state, batch)
            removed = state.records.ids_of(change.removed).tolist()
            corrected = sum(record in records for record in removed)
            return Preview(
                deletions=len(removed) - corrected,
                additions=len(change.added) - corrected,
                corrections=corrected,
                touched=len(touched),
                num_shards=state.num_shards,
                records=sum(len(state.members[shard]) for shard in touched),
                retrains_everything=is_full,
            )

    def correct(
        self,
        ids: RecordIds,
        X: Features | None = None,
        y: ArrayLike | None = None,
        *,
        columns: Sequence[Any] | None = None,
        subjects: Subjects | None = None,
        weights: ArrayLike | None = None,
    ) -> Receipt:
        """Replace what records say, under the ids that they have, as one batch. What is not given stays as it is.

        Parameters
        ----------
        ids
            The records to correct, each once.
        X, y
            Their new features, one row each, and their new labels.
        columns
            Which columns `X` holds: names of a data frame's columns, or positions in an array. All if None.
        subjects, weights
            The people that they belong to from now on, and their new weights.

        Returns
        -------
        Receipt
            As `update`. The models are then those that the recipe gives on the corrected records.

        Raises
        ------
        InputError
            If a record is unknown or named twice, or what is given does not fit. Nothing is changed.
        """
        asked = Correct(ids=ids, features=X, labels=y, columns=columns, subjects=subjects, weights=weights)
        with self.hold():
            return self.update(asked.updates_on(self.records))

    def rekey(
        self,
        *,
        if_older_than: str | float | timedelta | None = None,
        draw: Callable[[], RecipeKey] | None = None,
        advance: Advance = ignore_progress,
    ) -> bool:
        """Retrain everything now, with a new key ζ. This starts a new generation within the same round.

        Under the exact promise nothing else renews the key. Do it on a clock (`if_older_than`): what the promise says
        is about the models given the key, and a key that is renewed because of what people saw would itself depend on
        that. A folder's log says which of the two it was.

        Parameters
        ----------
        if_older_than
            Do nothing unless the key in force is older than this: seconds, or a text such as "90d". None renews it
            at once, by hand.
        draw
            Draws the new key, if the key is renewed; the system's randomness if it is None.
        advance
            Called with the progress of the training.

        Returns
        -------
        bool
            Whether the key was renewed.

        Raises
        ------
        ParameterError
            If `if_older_than` is not a length of time.
        TrainingError
            If a shard's model cannot be trained. Nothing is changed.
        """
        least = 0.0 if if_older_than is None else read_period("if_older_than", if_older_than)
        with self._keeper.working(), self._updating:
            self._raise_background_error()
            age = abs(time.time() - self._present.key_drawn)  # a key from far ahead: the clock was wrong, so renew it
            if if_older_than is not None and age <= least:
                return False
            reason = "by hand" if if_older_than is None else "on a clock"
            self._make_round(partial(self._rekeyed, advance, reason, None if draw is None else draw()))
            return True

    def restart(self, batch: Iterable[Update], *, advance: Advance = ignore_progress) -> Receipt:
        """Apply a batch and train everything again with a new key, as one round: after a restore from a back-up.

        Parameters
        ----------
        batch
            The updates; there may be none.
        advance
            Called with the progress of the training.

        Returns
        -------
        Receipt
            As `update`.
        """
        updates = as_batch(batch)

        def restarted(present: RoundState, writer: StateWriter | None) -> RoundState:
            return replace(self._retrained(updates, advance, present, writer), renewed="restored from a back-up")

        with self._keeper.working(), self._updating:
            self._raise_background_error()
            return Receipt(uuid4().hex, "applied", self._make_round(restarted).round)

    def redeclare(
        self,
        *,
        add_classes: Iterable[Any] = (),
        drop_classes: Iterable[Any] = (),
        allow_missing: bool = False,
        allow_weights: bool = False,
        learner: Any = None,
        num_shards: int | None = None,
        advance: Advance = ignore_progress,
    ) -> None:
        """Change the schema or the recipe, and retrain everything on the records that are there, with a new key.

        The schema is part of the recipe. This starts a new generation within the same round.

        Parameters
        ----------
        add_classes, drop_classes
            Labels that may occur from now on, and labels that may no longer. No record may have one that is dropped.
        allow_missing
            True lets features be missing (NaN) from now on. False changes nothing.
        allow_weights
            True lets records have weights from now on; those that are there weigh 1. False changes nothing.
        learner
            What trains a shard's model from now on; the same as before if it is None.
        num_shards
            The number of shards k from now on; the same as before if it is None.
        advance
            Called with the progress of the training.

        Raises
        ------
        ParameterError
            If nothing is to be changed, the promise is not the exact one, or the learner cannot take weights.
        InputError
            If a label to add is there or has another type, one to drop is unknown or in use, or there are weights.
        TrainingError
            If a shard's model cannot be trained. Nothing is changed.
        """
        changes: dict[str, Any] = {
            "add_classes": [*add_classes],
            "drop_classes": [*drop_classes],
            "allow_missing": allow_missing,
            "allow_weights": allow_weights,
        }
        with self._keeper.working(), self._updating:
            self._raise_background_error()
            if not self.is_exact:
                raise ParameterError(
                    "only the exact promise lets a schema or a recipe be declared anew: noise, consensus, router and "
                    "student are designed for the classes and shards that there are; create the deployment anew"
                )
            present = self._present.state
            shards = present.num_shards if num_shards is None else require_count("num_shards", num_shards)
            records = present.records.redeclared(**changes)
            if learner is None and shards == present.num_shards and not any(changes.values()):
                raise ParameterError(
                    "nothing is to be changed: name classes to add or drop, allow gaps or weights, a learner, or "
                    "another number of shards"
                )
            base, self._learner = self._learner, self._learner if learner is None else as_learner(learner)
            try:
                self._make_round(partial(self._redeclared, records, shards, advance))
            except BaseException:
                self._learner = base
                raise

    def guarantee(self, *, beta: float | None = None, gamma: float | None = None) -> Guarantee:
        """The (α,β,γ) that the models of every round satisfy, over `max_generations` generations.

        Parameters
        ----------
        beta, gamma
            For noisy publishing: 1e-3 each if None. Consensus publishing has its target instead.

        Returns
        -------
        Guarantee
            The three numbers, the theorem, and the assumptions. α is infinite, with a note, under the exact promise,
            which does not claim it, and if the shards are a partition (Theorem 5.1).
        """
        present = self._present
        state = present.state
        if not self.is_exact and not state.sampler.is_independent:
            return Guarantee(math.inf, beta or 0.0, gamma or 0.0, note=_NOT_INDEPENDENT)
        found = present.publisher.guarantee(
            num_shards=state.num_shards, beta=beta, gamma=gamma, num_generations=self._max_generations
        )
        if self.is_exact:
            return found
        own = [*self._keeper.assumptions(present.rng), *self._strange_parts(present)]
        return replace(found, assumptions=(*found.assumptions, *own))

    def _strange_parts(self, present: RoundState) -> list[str]:
        """What the guarantee assumes about parts that are not of this package."""
        publisher = present.publisher
        inner = getattr(publisher, "mechanism", None), getattr(self._front, "fallback", None)
        parts = (self._front, present.state.sampler, publisher, *inner)
        strange = [type(p).__name__ for p in parts if p is not None and not type(p).__module__.startswith("expunge.")]
        return [f"{name}, which is not part of this package, keeps to its contract." for name in strange]

    def wait(self) -> None:
        """Wait for a retraining in the background, if there is one. An error in it is raised here."""
        if (thread := self._background) is not None and thread is not threading.current_thread():
            thread.join()
        self._raise_background_error()

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Keep updates of other threads waiting; predictions go on. Updates in the block itself are applied."""
        with self._updating:
            yield

    @contextmanager
    def hold_if_free(self) -> Iterator[bool]:
        """As `hold`, unless another thread updates: then nothing is held. Yield whether it is."""
        is_held = self._updating.acquire(blocking=False)
        try:
            yield is_held
        finally:
            if is_held:
                self._updating.release()

    def close(self) -> None:
        """End the keeping of this deployment, between two updates and between two predictions that are paid for."""
        with self._updating, self._lock:
            self._keeper.close(self._present)

    def background_error(self) -> BaseException | None:
        """Take the error of a retraining in the background, if there was one: it is returned once."""
        error, self._background_error = self._background_error, None
        return error

    def _raise_background_error(self) -> None:
        if (error := self.background_error()) is not None:
            raise error

    @property
    def _must_retrain(self) -> bool:
        """Whether the next update has to be a full retraining.

        It has to be in a copy that was loaded: the other copies have books of their own on the same randomness. It also
        has to be in another environment, where all models are trained again. Under the exact promise it never has to:
        there the models of another environment are trained again with the same key.
        """
        if self.is_exact:
            return False
        present = self._present
        used_up = present.publisher.must_retrain or present.generation > self._max_generations
        is_elsewhere = present.state.origins.retrains_everything
        return used_up or is_elsewhere or (present.is_copy and not present.publisher.is_repeatable)

    def _make_round(self, train: Callable[[RoundState, StateWriter | None], RoundState]) -> RoundState:
        """Train the next round, keep it, put it in service, and erase what it replaced.

        If anything fails before the switch, the round before stays in service.
        """
        present, keeper, started = self._present, self._keeper, time.monotonic()
        try:
            trained = train(present, keeper.begin(present))
            following = keeper.stage(present, replace(trained, seconds=time.monotonic() - started))
            following.state.get_ready_as(present.state)
            keeper.commit(present, following, self._switch)
        except BaseException:
            keeper.drop(self._present)
            raise
        keeper.erase(following)
        return following

    def _switch(self, following: RoundState) -> None:
        """Put a round in service, all at once: in one assignment, which Ctrl-C does not cut in two."""
        if following.publisher is not self._present.publisher:
            following.publisher.journal = self._keeper.journal(following)
        with self._lock:
            self._present = following

    def _updated(
        self, batch: list[Update], advance: Advance, present: RoundState, writer: StateWriter | None
    ) -> RoundState:
        """Retrain the touched shards, in the same generation (R_A)."""
        state, report = update(present.state, batch, executor=self._executor, advance=advance, writer=writer)
        opening = RoundContext(state, present.publisher, present.rng, self._executor, present.serving, report.change)
        return replace(
            present,
            state=state,
            serving=self._front.open_round(opening),
            models_trained=present.models_trained + len(report.touched),
            round=present.round + 1,
            last_report=report,
            answers={},
        )

    def _retrained(
        self, batch: list[Update], advance: Advance, present: RoundState, writer: StateWriter | None
    ) -> RoundState:
        """Retrain everything on D ∘ u, in a new generation."""
        records, change = present.state.records.apply(batch)
        num_shards = present.state.num_shards
        report = UpdateReport(
            touched=tuple(range(num_shards)),
            slices_trained=num_shards,
            removed=len(change.removed),
            added=len(change.added),
        )
        following = self._fresh_generation(present, records, advance, present.rng.renewed())
        _hand_over(writer, following.state, change if following.state.records is records else None)
        return replace(following, round=present.round + 1, last_report=report)

    def _rekeyed(
        self, advance: Advance, reason: str, key: RecipeKey | None, present: RoundState, writer: StateWriter | None
    ) -> RoundState:
        """Retrain everything on the same dataset, in a new generation of the same round."""
        following = self._fresh_generation(present, present.state.records, advance, present.rng.renewed(), key)
        _hand_over(writer, following.state, _no_change(present, following))
        return replace(following, renewed=reason)

    def _redeclared(
        self,
        records: Records,
        num_shards: int,
        advance: Advance,
        present: RoundState,
        writer: StateWriter | None,
    ) -> RoundState:
        """Retrain everything on the same records by another recipe, in a new generation of the same round."""
        recipe = replace(present.state.recipe, num_shards=num_shards)
        basis = replace(present, state=replace(present.state, recipe=recipe))
        following = self._fresh_generation(basis, records, advance, present.rng.renewed())
        _hand_over(writer, following.state, None)
        return replace(following, renewed="by hand")

    def _fresh_generation(
        self, present: RoundState, records: Records, advance: Advance, rng: Randomness, key: RecipeKey | None = None
    ) -> RoundState:
        """Start a generation: fresh randomness, fresh models, empty books."""
        old = present.state.recipe
        recipe = replace(old, key=old.key.renewed() if key is None else key, learner=self._learner)
        state = learn(records, recipe, executor=self._executor, advance=advance)
        publisher = present.publisher.new_generation(rng)
        serving = self._front.open_round(RoundContext(state, publisher, rng, self._executor, present.serving))
        return RoundState(
            state,
            publisher,
            rng,
            serving,
            present.models_trained + state.num_shards,
            generation=present.generation + 1,
            round=present.round,
            last_report=present.last_report,
            renewed="generation used up",
        )

    def _start_background_retraining(self, spent: RoundState) -> None:
        if self._background is not None and self._background.is_alive():
            return
        rng = spent.rng.renewed()
        if not rng.is_system:  # the serving thread uses the live stream meanwhile
            rng = Randomness.from_seed(int(rng.seeds(1)[0]))
        self._background = threading.Thread(target=self._retrain_in_background, args=(spent, rng), daemon=True)
        self._background.start()

    def _retrain_in_background(self, spent: RoundState, rng: Randomness) -> None:
        def trained(present: RoundState, writer: StateWriter | None) -> RoundState:
            _hand_over(writer, following.state, _no_change(present, following))
            return following

        try:
            with self._keeper.working():
                following = self._fresh_generation(spent, spent.state.records, ignore_progress, rng)
                with self._updating:
                    # An update that came first has retrained everything itself, or will do so at the next update.
                    if self._present is spent:
                        self._make_round(trained)
        except Exception as error:
            if self._present is spent:  # an update may have erased records that this training was about to read
                self._background_error = error

    def __getstate__(self) -> dict[str, Any]:
        """A copy has its own books on the same randomness. So its next update is a full retraining.

        Under the exact promise there are no books, and the copy carries ζ on. A copy is kept in memory.
        """
        with self._lock:
            present = self._present
            present = replace(present, answers=dict(present.answers), is_copy=not self.is_exact)
            state = {**self.__dict__, "_present": present}
        for name in _UNSAVED:
            del state[name]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._keeper = InMemory()
        self._updating = threading.RLock()
        self._lock = threading.RLock()
        self._background = None
        self._background_error = None


def _estimator_of(model: Any, labels: NDArray[Any] | None) -> Any:
    """The fitted estimator behind a model; the model itself if it is of another kind, or answers for other labels."""
    if isinstance(model, MultiOutputModel) and model.constants:
        return model
    if (
        isinstance(model, ScikitModel)
        and model.classes is not None
        and not np.array_equal(model.classes, () if labels is None else labels)
    ):
        return model
    return model.estimator if isinstance(model, ScikitModel | ScikitRegression | MultiOutputModel) else model


class _Asked:
    """Rows that are asked about in a round. An answer that was released in it, and is not forgotten, is free."""

    def __init__(self, present: RoundState, rows: Features) -> None:
        self._present, self._rows = present, rows
        self._keys = None if present.serving.is_repeatable else row_keys(rows)
        self._new: list[int] = []  # the first places of rows that have no answer yet

    def consider(self) -> Any:
        """Compute what the answers need, for the rows that have none."""
        serving, known = self._present.serving, self._present.answers
        if self._keys is None:
            return serving.consider(self._rows)
        first = {key: place for place, key in reversed(list(enumerate(self._keys))) if key not in known}
        self._new = sorted(first.values())
        return serving.consider(take(self._rows, np.array(self._new))) if self._new else None

    @property
    def is_current(self) -> bool:
        """Whether the rows that have no answer are still the same. Under the lock this does not change."""
        if self._keys is None:
            return True
        known, new = self._present.answers, {self._keys[place] for place in self._new}
        return all((key in known) != (key in new) for key in self._keys)

    def release(self, considered: Any) -> NDArray[np.int64]:
        """Release the answers, under the lock."""
        serving, known, keys = self._present.serving, self._present.answers, self._keys
        if keys is None:
            return serving.release(considered)
        if self._new:
            codes = serving.release(considered)
            known.update(zip((keys[place] for place in self._new), codes.tolist(), strict=True))
        found = {key: known[key] for key in keys}
        for key, code in found.items():  # what was asked for last comes last
            del known[key]
            known[key] = code
        if len(known) > _MOST_ANSWERS:
            for key in list(islice(known, len(known) - _KEPT_ANSWERS)):
                del known[key]
        return np.array([found[key] for key in keys], dtype=np.int64)


def _no_change(present: RoundState, following: RoundState) -> Change | None:
    """The change between two rounds on the same dataset; None if slots were renumbered."""
    if following.state.records is not present.state.records:
        return None
    num_slots = present.state.records.num_slots
    return Change(np.empty(0, dtype=np.int64), range(num_slots, num_slots))


def _hand_over(writer: StateWriter | None, state: EnsembleState, change: Change | None) -> None:
    """Give a writer an ensemble that is trained already."""
    if writer is None:
        return
    writer.start(state, change)
    for shard, model in enumerate(state.models):
        writer.add(shard, model)
