"""A deployment in a folder: every accepted request survives a crash and is applied exactly once.

An update takes these steps. Their names are those of `expunge.folder.store.steps`:

    accept   write the request to the disk, then acknowledge it
    train    train the touched shards, in memory
    stage    write new models and records, as they are made, into files that nothing refers to yet
    switch   one transaction: shards, round, budgets, requests
    erase    overwrite deleted rows, remove replaced files and empty the log, all at the same time
    applied  one transaction: the request counts as applied

A crash before the switch leaves a pending request and unused files. A crash after it leaves erasing that the next
opening finishes. Predictions are paid for in blocks: a block is on the disk before its first answer is released.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from expunge.core.errors import StoreError
from expunge.core.features import Features
from expunge.core.guarantee import Guarantee
from expunge.core.randomness import Randomness
from expunge.core.records import AddMany, RecordId, Update, as_batch, deletions
from expunge.evidence import Certificate
from expunge.folder.evidence import CurrentFacts, Evidence, commitment_facts
from expunge.folder.fronts import Admission, moved_round, put_round
from expunge.folder.inbox import Inbox
from expunge.folder.policy import ApplyPolicy
from expunge.folder.store import Store
from expunge.folder.store.ensembles import (
    EnsembleWriter,
    StagedEnsemble,
    activate,
    erase,
    keep_readable,
    write_ensemble,
)
from expunge.folder.store.requests import Batch, Request, lasting_names
from expunge.folder.store.steps import report_step
from expunge.folder.store.store import ClosedJournal, DurableJournal
from expunge.serving.deployment import SEED_IS_SECRET, Deployment, NextRound, Receipt, Status
from expunge.serving.publishing import Front, Publisher, Round
from expunge.training.ensemble import Advance, EnsembleState, UpdateReport, ignore_progress
from expunge.training.execution import Executor
from expunge.training.learners import Learner, SlicedLearner


@dataclass(frozen=True, slots=True)
class DurableStatus(Status):
    """The state of a deployment in a folder, without anything secret.

    Attributes
    ----------
    generation
        The number of full trainings so far, counted from 1.
    round
        The number of updates applied so far.
    num_records, num_shards
        The number of records, and of shards.
    budget
        What was published in this generation, and what may still be.
    name
        The folder's name when it was created.
    pending
        How many requests are accepted and not yet applied.
    apply
        When pending requests are applied, as text for `ApplyPolicy.parse`.
    """

    name: str
    pending: int
    apply: str


class Alignment:
    """Detect when memory and disk disagree about the round.

    That happens when an interruption comes between the switch on the disk and the switch in memory. From then on the
    object refuses predictions and updates.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._is_switching = False
        self.is_lost = False

    def check(self) -> None:
        """Raise an error if memory and disk are known to disagree."""
        if self.is_lost:
            raise StoreError(
                f"{self._store.folder}: an update was interrupted half-way; close the folder and open it again"
            )

    def require(self, generation: int, round: int) -> None:
        """Raise an error unless memory and disk agree."""
        self.is_lost = self.is_lost or self._is_switching or not self._store.is_at(generation, round)
        self.check()

    def after_failure(self, generation: int, round: int) -> None:
        """Find out whether a failure made them disagree. If the disk cannot be read, assume that it did."""
        is_lost = True
        try:
            with suppress(StoreError):
                is_lost = self._is_switching or not self._store.is_at(generation, round)
        finally:
            self.is_lost = self.is_lost or is_lost

    @contextmanager
    def switching(self) -> Iterator[None]:
        """Guard the switch in memory: after an interruption in this block, memory is not used again."""
        self._is_switching = True
        yield
        self._is_switching = False


def complete_erasure(store: Store, evidence: Evidence) -> None:
    """Erase what a switch replaced. Only then mark its requests as applied."""
    switched = evidence.requests.in_state("switched")
    if not switched and store.database.row("SELECT 1 FROM dead WHERE erased = 0 LIMIT 1") is None:
        return
    erase(store)
    tick = evidence.clock.done()
    with store.database.transaction():
        report_step("applied.open")
        store.database.execute("UPDATE dead SET erased = 1 WHERE erased = 0")
        for one in switched:
            evidence.requests.mark_applied(one.request, applied_by=tick)
            evidence.ledger.write("applied", tick, request=one.request, generation=one.generation, round=one.round)
    report_step("applied.done")


def write_guarantee(store: Store, found: Guarantee) -> None:
    """Write the guarantee to the folder, where a view reads it."""
    numbers = {name: getattr(found, name) for name in ("alpha", "beta", "gamma", "theorem", "note")}
    known = {
        **numbers,
        "form": found.form,
        "parameters": dict(found.parameters),
        "assumptions": list(found.assumptions),
    }
    store.write_fact("guarantee", known)


_ONE_FOLDER = "The folder is served once: no copy of it is served, and it is not set back to an earlier state."
_SEEDED = "The deployment was created from a fixed seed, which is kept secret."


class DurableDeployment(Deployment):
    """A `Deployment` in a folder, each step of which is on the disk.

    `expunge.create` and `expunge.open` return it. Use it as a context manager, or call `close`. One process at a time
    may have a folder open for writing; its threads may predict and update at the same time.

    Parameters
    ----------
    records
        The records, with their features, labels, ids and subjects.
    learner
        What trains a shard's model.
    num_shards
        The number of shards, k.
    sampler
        How records are assigned to shards.
    publisher
        What releases predictions and counts them.
    rng
        The secret randomness of the first generation.
    front
        What answers queries: the ensemble itself (the default), a router or a student.
    max_generations
        The number of generations that the guarantee covers.
    executor
        Where models are trained; in this process if it is None.
    advance
        Called with the number of models trained since the last call.
    key
        The recipe key of the first generation.
    """

    _store: Store
    _evidence: Evidence
    _policy: ApplyPolicy
    _trusted: tuple[str, ...]
    _journal: DurableJournal
    _inbox: Inbox
    _round_writer: RoundWriter
    _clock: threading.Thread | None = None

    @classmethod
    def resume(
        cls,
        store: Store,
        state: EnsembleState,
        learner: Learner | SlicedLearner,
        *,
        publisher: Publisher,
        rng: Randomness,
        front: Front,
        serving: Round,
        max_generations: int,
        executor: Executor,
        trusted: Sequence[str],
        reserved: int,
    ) -> Self:
        """Make the deployment of a folder from what was read of it. Only for `expunge.open`."""
        self, present = cls.__new__(cls), store.position
        self._configure(learner, state.num_shards, state.sampler, publisher, rng, front, max_generations, executor)
        self._state, self._serving = state, serving
        self._generation, self._round, self._models_trained = present.generation, present.round, present.models_trained
        return self._attach(store, trusted=trusted, reserved=reserved)

    def _attach(self, store: Store, *, trusted: Sequence[str], reserved: int) -> Self:
        """Go on in a folder that holds the same state as this object."""
        self._store, self._evidence, self._trusted = store, Evidence(store), tuple(trusted)
        self._policy = ApplyPolicy.parse(store.fact("apply"))
        self._inbox = Inbox(store, self._evidence, Admission(self._front, self.classes))
        self._round_writer = RoundWriter(store, self._evidence, self._front, self._trusted)
        self._closed = threading.Event()
        self._alignment = Alignment(store)
        self._journal = self._publisher.journal = DurableJournal(store, self._generation, reserved)
        self._complete_erasure()
        self._inbox.start_from(self._state.records)
        write_guarantee(store, self.guarantee())
        if self._policy.mode == "every":
            self._clock = threading.Thread(target=self._apply_on_a_clock, daemon=True)
            self._clock.start()
        return self

    @property
    def path(self) -> Path:
        """The folder of this deployment."""
        return self._store.folder

    @property
    def provenance(self) -> dict[str, Any]:
        """What `create` was told about the origin of the data."""
        found: dict[str, Any] = self._store.fact("provenance")
        return found

    @property
    def status(self) -> DurableStatus:
        """The current generation, round, number of records, budget and number of pending requests."""
        with self._lock:
            base = super().status
            known = {name: getattr(base, name) for name in Status.__dataclass_fields__}
        pending = self._evidence.requests.num_pending()
        return DurableStatus(**known, name=self._store.fact("name"), pending=pending, apply=str(self._policy))

    def update(
        self,
        batch: Iterable[Update],
        *,
        key: str | None = None,
        readmit: bool = False,
        apply: bool | None = None,
        advance: Advance = ignore_progress,
    ) -> Receipt:
        """Accept a batch of updates as one request, all or nothing, and apply it if it is due.

        With an "every" policy only the clock applies requests. Otherwise a caller that waits for another training would
        learn how long it took.

        Parameters
        ----------
        batch
            Additions and deletions, in order.
        key
            Makes the request idempotent: the same key again returns the first request's receipt.
        readmit
            Whether records may come back that were deleted on request.
        apply
            Whether to apply the request now; None leaves that to the deployment's policy.
        advance
            Called with the number of models trained since the last call.

        Returns
        -------
        Receipt
            The request's id and state, and its round if it was applied.

        Raises
        ------
        InputError
            If a record is wrong, unknown or already there. The message names it, and nothing is applied.
        RequestError
            If the key was used for another request, or a record that is added is being deleted.
        TrainingError
            If a shard cannot be trained. The request stays pending.
        StoreError
            If the folder cannot be written to or has been closed.
        """
        request = self.submit(batch, key=key, readmit=readmit)
        if request.public_state == "pending" and (self._applies_at_once if apply is None else apply):
            self.apply(advance=advance)
        found = self._evidence.requests.get(request.request)
        return Receipt(found.request, found.public_state, found.round if found.public_state == "applied" else None)

    def delete(
        self,
        ids: Iterable[RecordId] = (),
        *,
        subjects: Iterable[RecordId] = (),
        key: str | None = None,
        apply: bool | None = None,
        advance: Advance = ignore_progress,
    ) -> Receipt:
        """Delete records by id, and all records of the given subjects, as one request. See `update`."""
        return self.update(deletions(ids, subjects), key=key, apply=apply, advance=advance)

    def add(
        self,
        X: Features,
        y: ArrayLike,
        ids: Sequence[RecordId] | NDArray[Any],
        *,
        subjects: Sequence[RecordId | None] | None = None,
        weights: ArrayLike | None = None,
        key: str | None = None,
        readmit: bool = False,
        apply: bool | None = None,
        advance: Advance = ignore_progress,
    ) -> Receipt:
        """Add records under new ids, as one request. See `update`."""
        batch = [AddMany(ids=ids, features=X, labels=y, subjects=subjects, weights=weights)]
        return self.update(batch, key=key, readmit=readmit, apply=apply, advance=advance)

    def predict_codes(self, X: Features) -> NDArray[np.int64]:
        """Return released class codes, as `Deployment` does. They are paid for on the disk before they are released."""
        self._require_open()
        return super().predict_codes(X)

    def _published_state(self, what: str) -> EnsembleState:
        self._require_open()
        return super()._published_state(what)

    def submit(self, batch: Iterable[Update], *, key: str | None = None, readmit: bool = False) -> Request:
        """Check a request against everything accepted before it, and write it to the disk as pending."""
        updates = as_batch(batch)
        self._require_open()
        now = self._evidence.clock.now()  # before the lock: a later time would tell when another training ended
        with self._inbox.lock:
            self._require_open()
            return self._inbox.submit(updates, self._state.records, key=key, readmit=readmit, now=now)

    @property
    def _applies_at_once(self) -> bool:
        return self._clock is None and self.is_due

    @property
    def is_due(self) -> bool:
        """Whether the policy wants the pending requests applied now, or an update has yet to be completed.

        An "at" policy does not count requests that are being applied.
        """
        under_way = {one.request for one, _ in self._round_writer.applying} if self._policy.mode == "at" else set()
        if not under_way and self._evidence.requests.in_state("switched"):
            return True
        waiting = [one for one in self._evidence.requests.in_state("pending") if one.request not in under_way]
        oldest = self._evidence.clock.age(waiting[0].accepted_at) if waiting else 0.0
        return self._policy.is_due(len(waiting), oldest)

    def apply(self, *, advance: Advance = ignore_progress) -> int | None:
        """Apply all pending requests as one round. Return its number, or None if nothing was pending."""
        with self._working():
            self._complete_erasure()
            self._inbox.catch_up(self._state.records)
            requests = self._evidence.requests
            applying = tuple((one, requests.batch_of(one.request)) for one in requests.in_state("pending"))
            if not applying:
                return None
            self._round_writer.applying = applying
            try:
                batch = [update for _, asked in applying for update in asked.updates(self.classes)]
                receipt = super().update(batch, advance=advance)
                with self._inbox.lock:
                    self._inbox.start_from(self._state.records)
                self._complete_erasure()
                return receipt.round
            finally:
                self._round_writer.applying = ()

    def cancel(self, request: str) -> None:
        """Take back a pending request, unless a later one builds on it."""
        self._require_open()
        now = self._evidence.clock.now()  # before the locks, as in `submit`
        with self._updating, self._inbox.lock:
            self._require_open()
            self._inbox.cancel(request, self._state.records, now=now)

    def request(self, request: str) -> Request:
        """Return a request as it stands now, by its id."""
        return self._evidence.requests.get(request)

    def requests(self) -> list[Request]:
        """Return all requests, oldest first."""
        return self._evidence.requests.all()

    def certificate(self, request: str | None = None) -> Certificate:
        """Issue a signed certificate about a request, or about the whole deployment if none is named."""
        return self._evidence.certificate(request, guarantee=self.guarantee(), read_facts=self._current_facts)

    def _current_facts(self) -> CurrentFacts:
        with self._lock:
            predictions, capacity = self._publisher.status.predictions, self._publisher.capacity
            return CurrentFacts(self._generation, self._round, predictions, capacity, len(self._state.records))

    def rekey(self, *, advance: Advance = ignore_progress) -> None:
        """Retrain everything now with a new key: a new generation of the same round."""
        with self._working():
            super().rekey(advance=advance)
            self._remove_replaced()

    def _retrain_in_background(self, start: EnsembleState, spent: Publisher, rng: Randomness) -> None:
        with self._evidence.clock.work():
            super()._retrain_in_background(start, spent, rng)
        try:
            with self._updating:
                if not self._closed.is_set():
                    self._remove_replaced()
        except Exception as error:
            self._background_error = error

    @contextmanager
    def _working(self) -> Iterator[None]:
        """Do one update at a time, and date it from its beginning."""
        self._require_open()
        with self._evidence.clock.work(), self._updating:
            self._require_open()
            self._alignment.require(self._generation, self._round)
            try:
                yield
            except BaseException:
                self._alignment.after_failure(self._generation, self._round)
                self._round_writer.drop()
                raise

    def _remove_replaced(self) -> None:
        """Remove the models that a retraining outside any request replaced."""
        self._complete_erasure()
        with self._store.explain_errors():
            self._store.sweep()

    def close(self) -> None:
        """Write the exact number of predictions and release the folder. Pending requests stay pending.

        This waits for a retraining in the background, and no longer reports its errors. In a process that was forked
        from the one that opened the folder, nothing happens.
        """
        if self._closed.is_set() or not self._store.is_own:
            return
        if self._background is not None and self._background is not threading.current_thread():
            self._background.join()
        with self._updating, self._inbox.lock, self._lock:
            self._closed.set()
            self._round_writer.stop()
            is_lost = self._alignment.is_lost
            try:
                if self._publisher.must_retrain and not is_lost:  # an interruption may have come before it was flagged
                    self._journal.mark_dirty()
                self._journal.close(None if is_lost else self._publisher.status.predictions)
            finally:
                self._publisher.journal = ClosedJournal(self._store.folder)
                self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _require_open(self) -> None:
        self._store.require_own()
        if self._closed.is_set():
            raise StoreError(f"{self._store.folder} has been closed")
        self._alignment.check()

    def _updated(self, batch: list[Update], advance: Advance) -> tuple[NextRound, UpdateReport]:
        """R_A, which writes models and records to the disk as it makes them."""
        self._state_writer = self._round_writer.begin()
        try:
            return super()._updated(batch, advance)
        except BaseException:
            self._round_writer.drop()
            raise
        finally:
            self._state_writer = None

    def _keep(self, following: NextRound, round_: int) -> NextRound:
        """Stage and switch on the disk. The switch in memory comes after it."""
        report_step("apply.trained")
        self._require_open()
        self._alignment.require(self._generation, self._round)
        is_new, trained = following.generation != self._generation, self._models_trained + len(following.touched)
        return self._round_writer.write(following, self._state, round=round_, is_new=is_new, trained=trained)

    def _switch(self, following: NextRound, **more: Any) -> None:
        with self._alignment.switching():
            if following.generation != self._generation:
                # Before the publisher is in service: each prediction must be paid for on the disk.
                publisher = following.publisher
                more["_journal"] = DurableJournal(self._store, following.generation, publisher.status.predictions)
                publisher.journal = more["_journal"]
            super()._switch(following, **more)

    def _complete_erasure(self) -> None:
        self._alignment.require(self._generation, self._round)
        complete_erasure(self._store, self._evidence)

    def _apply_on_a_clock(self) -> None:
        beats = self._policy.beats(time.monotonic)
        while not self._closed.wait(min(next(beats), threading.TIMEOUT_MAX)):
            # The next update raises the error. The requests stay pending, and the next beat tries again.
            try:
                if self.apply() is not None:
                    self._background_error = None
            except Exception as error:
                self._background_error = error

    def _raise_background_error(self) -> None:
        """Raise the error, but not on the clock's thread: there the error stays until a later beat succeeds."""
        if threading.current_thread() is not self._clock:
            super()._raise_background_error()

    def _own_assumptions(self) -> list[str]:
        seeded = [] if self._store.fact("is_system") else [_SEEDED]
        others = [each for each in super()._own_assumptions()[1:] if each != SEED_IS_SECRET]
        return [_ONE_FOLDER, *others, *seeded]

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError("a deployment on disk is not pickled: open its folder instead")


class RoundWriter:
    """Writes the rounds of one deployment to the disk; only the update that is going on may use it.

    A round is staged while it is trained. Then one transaction switches to it.
    """

    def __init__(self, store: Store, evidence: Evidence, front: Front, trusted: Sequence[str]) -> None:
        self._store = store
        self._evidence = evidence
        self._front = front
        self._trusted = trusted
        self._stage: EnsembleWriter | None = None
        self.applying: tuple[tuple[Request, Batch], ...] = ()  # the requests of the round

    def begin(self) -> EnsembleWriter:
        """Return what an update gives its records and models to."""
        self._stage = EnsembleWriter(self._store, trusted=self._trusted)
        return self._stage

    def drop(self) -> None:
        """Remove everything that was staged, after a failure."""
        stage, self._stage = self._stage, None
        if stage is not None:
            stage.close()
        self._store.tidy()

    def stop(self) -> None:
        """Stop writing before the folder is released: another process may open it then.

        This may come in the middle of an update, from a signal handler.
        """
        if self._stage is not None:
            self._stage.halt()
            self._store.tidy()

    def write(
        self, next_round: NextRound, before: EnsembleState, *, round: int, is_new: bool, trained: int
    ) -> NextRound:
        """Stage and switch from the state `before`. Return the round to go on with. A failure leaves no files."""
        try:
            return self._stage_and_switch(next_round, before, round, is_new, trained)
        except BaseException:
            self.drop()
            raise

    def _stage_and_switch(
        self, next_round: NextRound, before: EnsembleState, round_: int, is_new: bool, trained: int
    ) -> NextRound:
        store, requests, generation = self._store, self._evidence.requests, next_round.generation
        keep_readable(before, next_round.touched)
        staged, publisher, classes = self._staged(next_round), next_round.publisher, before.records.classes
        if staged.state is not next_round.state:
            next_round = replace(next_round, state=staged.state, serving=moved_round(next_round.serving, staged.state))
        gone, back = lasting_names([asked for _, asked in self.applying], before.records, staged.state.records)
        with store.database.transaction():
            report_step("switch.open")
            serving = put_round(store, self._front, next_round.serving, classes, tuple(self._trusted))
            activate(store, staged, generation=generation, round=round_, models_trained=trained, serving=serving)
            if is_new:
                store.add_generation(generation, publisher.status.predictions, publisher.must_retrain, publisher.secret)
                done = self._evidence.clock.done()
                facts = commitment_facts(staged.state.key)
                self._evidence.ledger.write("generation", done, generation=generation, round=round_, **facts)
            for one, _ in self.applying:
                requests.mark_switched(one.request, generation=generation, round=round_)
            requests.readmit(back)
            requests.remember(gone)  # last: a record may come and go in one round
        report_step("switch.done")
        return next_round

    def _staged(self, next_round: NextRound) -> StagedEnsemble:
        begun = self._stage
        if begun is None:
            return write_ensemble(
                self._store, next_round.state, next_round.touched, next_round.change, trusted=self._trusted
            )
        with begun:
            staged = begun.collect(next_round.state)
        self._stage = None
        return staged
