"""A deployment in a folder: every accepted request survives a crash and is applied exactly once.

The protocol of an update, each step named in `expunge.folder.store.steps`:

    accept   the request is on the disk, then acknowledged
    train    the touched shards, in memory
    stage    new models and records into files that nothing refers to yet, as they are made
    switch   one transaction: shards, round, books, requests
    erase    deleted rows overwritten, replaced files removed, the log emptied, side by side
    applied  one transaction: the request counts as applied

A crash before `switch` leaves the request pending and loose files; after it, erasing to be finished when the folder is
opened next. Predictions are paid for in blocks that are on the disk before the first answer of the block leaves.

Memory and disk of one deployment are of the same round, or memory is of no more use.

The end of an update on the disk: what was replaced is erased, then the requests behind it count as applied.
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
from expunge.core.randomness import Randomness
from expunge.core.records import AddMany, RecordId, Update, as_batch, deletions
from expunge.evidence import Certificate
from expunge.folder.evidence import Evidence, Standing
from expunge.folder.fronts import Admission
from expunge.folder.inbox import Inbox
from expunge.folder.policy import ApplyPolicy
from expunge.folder.rounds import RoundWriter
from expunge.folder.store import BookKeeper, ClosedBooks, Request, Store, erase
from expunge.folder.store.steps import reach
from expunge.serving.deployment import SEED_IS_SECRET, Deployment, NextRound, Receipt, Status
from expunge.serving.publishing import Front, Publisher, Round
from expunge.theory import Guarantee
from expunge.training.ensemble import Advance, EnsembleState, UpdateReport, ignore_progress
from expunge.training.execution import Executor
from expunge.training.learners import Learner, SlicedLearner
from expunge.training.learners.protocol import for_classes


@dataclass(frozen=True, slots=True)
class DurableStatus(Status):
    """Where a deployment in a folder stands."""

    name: str
    pending: int
    apply: str


class Alignment:
    """Notices when an interruption came between the switch on the disk and the switch in memory.

    What is in memory then is not the round that the disk has: it answers nobody any more, and no update builds on it.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._is_switching = False
        self.is_lost = False

    def check(self) -> None:
        """An error if it is known to be lost."""
        if self.is_lost:
            raise StoreError(
                f"{self._store.folder}: an update was interrupted half-way; close the folder and open it again"
            )

    def require(self, generation: int, round: int) -> None:
        """An error unless the disk stands where memory does."""
        self.is_lost = self.is_lost or self._is_switching or not self._store.is_at(generation, round)
        self.check()

    def after_failure(self, generation: int, round: int) -> None:
        """Find out whether what failed has parted the two; if the disk does not say, it has."""
        is_lost = True
        try:
            with suppress(StoreError):
                is_lost = self._is_switching or not self._store.is_at(generation, round)
        finally:
            self.is_lost = self.is_lost or is_lost

    @contextmanager
    def switching(self) -> Iterator[None]:
        """While memory is switched; what is interrupted here is not taken up again."""
        self._is_switching = True
        yield
        self._is_switching = False


def finish(store: Store, evidence: Evidence) -> None:
    """Erase what a switch replaced; then, and only then, the requests behind it count as applied."""
    switched = evidence.requests.in_state("switched")
    if not switched and store.database.row("SELECT 1 FROM dead WHERE erased = 0 LIMIT 1") is None:
        return
    erase(store)
    tick = evidence.clock.done()
    with store.database.transaction():
        reach("applied.open")
        store.database.execute("UPDATE dead SET erased = 1 WHERE erased = 0")
        for one in switched:
            evidence.requests.finish(one.request, applied_by=tick)
            evidence.ledger.write("applied", tick, request=one.request, generation=one.generation, round=one.round)
    reach("applied.done")


def write_guarantee(store: Store, found: Guarantee) -> None:
    """For those who only look at the folder."""
    numbers = {name: getattr(found, name) for name in ("alpha", "beta", "gamma", "theorem", "note")}
    form = {} if found.form == "paper" else {"form": found.form}
    known = {**numbers, **form, "parameters": dict(found.parameters), "assumptions": list(found.assumptions)}
    store.state_fact("guarantee", known)


_ONE_FOLDER = "The folder is served once: nobody serves a copy of it, or sets it back to an earlier state."
_SEEDED = "The deployment was created from a fixed seed, which is kept secret."


class DurableDeployment(Deployment):
    """What `expunge.create` and `expunge.open` return: a `Deployment` whose every step is on the disk.

    Use it as a context manager, or `close` it. One process at a time has a folder open for writing; its threads may
    predict and update at once.
    """

    _store: Store
    _evidence: Evidence
    _policy: ApplyPolicy
    _trusted: tuple[str, ...]
    _journal: BookKeeper
    _inbox: Inbox
    _writer: RoundWriter
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
        """The deployment of a folder whose contents were read; `expunge.open` does that."""
        self, present = cls.__new__(cls), store.present
        self._configure(learner, state.num_shards, state.sampler, publisher, rng, front, max_generations, executor)
        self._state, self._serving = state, serving
        self._generation, self._round, self._models_trained = present.generation, present.round, present.models_trained
        return self._attach(store, trusted=trusted, reserved=reserved)

    def _attach(self, store: Store, *, trusted: Sequence[str], reserved: int) -> Self:
        """Go on in a folder that holds exactly what this object holds in memory."""
        self._store, self._evidence, self._trusted = store, Evidence(store), tuple(trusted)
        self._policy = ApplyPolicy.parse(store.fact("apply"))
        self._inbox = Inbox(store, self._evidence, Admission(self._front, self.classes))
        self._writer = RoundWriter(store, self._evidence, self._inbox, self._front, self._trusted)
        self._closed = threading.Event()
        self._alignment = Alignment(store)
        self._journal = self._publisher.journal = BookKeeper(store, self._generation, reserved)
        self._finish()
        self._inbox.follow(self._state.records)
        write_guarantee(store, self.guarantee())
        if self._policy.mode == "every":
            self._clock = threading.Thread(target=self._apply_on_a_clock, daemon=True)
            self._clock.start()
        return self

    @property
    def path(self) -> Path:
        """The folder."""
        return self._store.folder

    @property
    def provenance(self) -> dict[str, Any]:
        """What the creator wrote down about where the data came from."""
        found: dict[str, Any] = self._store.fact("provenance")
        return found

    @property
    def status(self) -> DurableStatus:
        """Generation, round, records, budget, pending requests."""
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

        On a clock only its beats apply: this may be waiting for a training, whose end would tell how long it took.
        `key` makes the request idempotent: the same key again returns the first receipt. `readmit` lets records come
        back that were deleted on request. `apply` overrides the deployment's policy.
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
        """Delete records by id, and all records of the given subjects, as one request."""
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
        """Add records under new ids, as one request."""
        batch = [AddMany(ids=ids, features=X, labels=y, subjects=subjects, weights=weights)]
        return self.update(batch, key=key, readmit=readmit, apply=apply, advance=advance)

    def predict_codes(self, X: Features) -> NDArray[np.int64]:
        """Released class codes, as of `Deployment`; paid for on the disk before they leave."""
        self._require_open()
        return super().predict_codes(X)

    def submit(self, batch: Iterable[Update], *, key: str | None = None, readmit: bool = False) -> Request:
        """Have a request on the disk, pending, checked against everything accepted before it."""
        updates = as_batch(batch)
        self._require_open()
        now = self._evidence.clock.now()  # before the lock: who waits for it learns when a training ended
        with self._inbox.lock:
            self._require_open()
            request = self._inbox.submit(updates, self._state.records, key=key, readmit=readmit, now=now)
            self._name_classes()
            return request

    def recalls(self, label: str) -> bool:
        """Whether this label was a class, lost its name with the last record that bore it, and may come back."""
        return self._inbox.vocabulary.recalls(label)

    def _name_classes(self) -> None:
        """The labels as the vocabulary knows them: an addition may have given one its name back."""
        names = self._inbox.vocabulary.names
        if np.array_equal(names, self.classes):
            return
        learner = for_classes(self._learner, names)  # type: ignore[arg-type]
        with self._lock:
            records = replace(self._state.records, classes=names)
            self._state = replace(self._state, records=records, learner=learner)

    @property
    def _applies_at_once(self) -> bool:
        return self._clock is None and self.is_due

    @property
    def is_due(self) -> bool:
        """Whether the policy wants the pending requests applied now, or some of them are half-way.

        Of so many that have to be waiting, those that are being applied are none.
        """
        under_way = {one.request for one, _ in self._writer.applying} if self._policy.mode == "at" else set()
        if not under_way and self._evidence.requests.in_state("switched"):
            return True
        waiting = [one for one in self._evidence.requests.in_state("pending") if one.request not in under_way]
        oldest = self._evidence.clock.age(waiting[0].accepted_at) if waiting else 0.0
        return self._policy.is_due(len(waiting), oldest)

    def apply(self, *, advance: Advance = ignore_progress) -> int | None:
        """Apply everything pending as one round; the round's number, None if nothing was pending."""
        with self._working():
            self._finish()
            self._inbox.catch_up(self._state.records)
            requests = self._evidence.requests
            applying = tuple((one, requests.batch_of(one.request)) for one in requests.in_state("pending"))
            if not applying:
                return None
            self._writer.applying = applying
            try:
                batch = [update for _, asked in applying for update in asked.updates(self.classes)]
                receipt = super().update(batch, advance=advance)
                with self._inbox.lock:
                    self._name_classes()
                    self._inbox.follow(self._state.records)
                self._finish()
                return receipt.round
            finally:
                self._writer.applying = ()

    def cancel(self, request: str) -> None:
        """Take a pending request back."""
        self._require_open()
        now = self._evidence.clock.now()  # before the locks, as in `submit`
        with self._updating, self._inbox.lock:
            self._require_open()
            self._inbox.cancel(request, self._state.records, now=now)

    def request(self, request: str) -> Request:
        """What became of a request."""
        return self._evidence.requests.get(request)

    def requests(self) -> list[Request]:
        """All requests, oldest first."""
        return self._evidence.requests.all()

    def certificate(self, request: str | None = None) -> Certificate:
        """A signed certificate about a request, or about the whole deployment."""
        return self._evidence.certificate(request, guarantee=self.guarantee(), standing=self._standing)

    def _standing(self) -> Standing:
        with self._lock:
            predictions, capacity = self._publisher.status.predictions, self._publisher.capacity
            return Standing(self._generation, self._round, predictions, capacity, len(self._state.records))

    def retrain(self, *, advance: Advance = ignore_progress) -> None:
        """Retrain everything now, with fresh randomness: a new generation of the same round."""
        with self._working():
            super().retrain(advance=advance)
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
        """One update at a time, dated from its beginning."""
        self._require_open()
        with self._evidence.clock.work(), self._updating:
            self._require_open()
            self._alignment.require(self._generation, self._round)
            try:
                yield
            except BaseException:
                self._alignment.after_failure(self._generation, self._round)
                self._writer.drop()
                raise

    def _remove_replaced(self) -> None:
        """The files of models that a retraining outside of any request has replaced."""
        self._finish()
        with self._store.explained():
            self._store.sweep()

    def close(self) -> None:
        """Write the books exactly and let go of the folder. Pending requests stay pending.

        A retraining in the background is waited for; what went wrong in it is not told any more.
        In a process that was forked from the one that opened the folder there is nothing to write, and nothing happens.
        """
        if self._closed.is_set() or not self._store.is_own:
            return
        if self._background is not None and self._background is not threading.current_thread():
            self._background.join()
        with self._updating, self._inbox.lock, self._lock:
            self._closed.set()
            self._writer.stop()
            is_lost = self._alignment.is_lost
            try:
                if self._publisher.must_retrain and not is_lost:  # an interruption may have come before the mark
                    self._journal.mark_dirty()
                self._journal.settle(None if is_lost else self._publisher.status.predictions)
            finally:
                self._publisher.journal = ClosedBooks(self._store.folder)
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
        """R_A, with what it makes put on the disk as it comes."""
        self._follower = self._writer.begin()
        try:
            return super()._updated(batch, advance)
        except BaseException:
            self._writer.drop()
            raise
        finally:
            self._follower = None

    def _keep(self, following: NextRound, round_: int) -> NextRound:
        """Stage and switch on the disk, before the switch in memory."""
        reach("apply.trained")
        self._require_open()
        self._alignment.require(self._generation, self._round)
        is_new, trained = following.generation != self._generation, self._models_trained + len(following.touched)
        return self._writer.write(following, self._state, round=round_, is_new=is_new, trained=trained)

    def _switch(self, following: NextRound, **more: Any) -> None:
        with self._alignment.switching():
            if following.generation != self._generation:
                # Before anybody can ask it: no publisher is in service without its books.
                publisher = following.publisher
                more["_journal"] = BookKeeper(self._store, following.generation, publisher.status.predictions)
                publisher.journal = more["_journal"]
            super()._switch(following, **more)

    def _finish(self) -> None:
        self._alignment.require(self._generation, self._round)
        finish(self._store, self._evidence)

    def _apply_on_a_clock(self) -> None:
        beats = self._policy.beats(time.monotonic)
        while not self._closed.wait(min(next(beats), threading.TIMEOUT_MAX)):
            # An error is told to whoever updates next; the requests stay pending, and the next tick tries them again.
            try:
                if self.apply() is not None:
                    self._background_error = None
            except Exception as error:
                self._background_error = error

    def _raise_background_error(self) -> None:
        """Tell of it, but not the clock: it tries again, and until that is done there is something to be told."""
        if threading.current_thread() is not self._clock:
            super()._raise_background_error()

    def _own_assumptions(self) -> list[str]:
        seeded = [] if self._store.fact("is_system") else [_SEEDED]
        others = [each for each in super()._own_assumptions()[1:] if each != SEED_IS_SECRET]
        return [_ONE_FOLDER, *others, *seeded]

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError("a deployment on disk is not pickled: open its folder instead")
