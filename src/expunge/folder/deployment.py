"""A deployment in a folder: every accepted request survives a crash and is applied exactly once.

It has an inbox, which writes a request to the disk before it is acknowledged, and a `Deployment`, which trains and
serves. The deployment's keeper makes each round crash-safe: see `expunge.folder.keeper`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from expunge.core.blocks import listed, require_id
from expunge.core.checks import require_text
from expunge.core.corrections import Correct
from expunge.core.errors import RequestError
from expunge.core.features import Features
from expunge.core.guarantee import Guarantee
from expunge.core.records import AddMany, DeletePerson, RecordId, Records, Update, as_batch, deletions
from expunge.core.words import read_period, utc
from expunge.evidence import Certificate, Checkpoint, Entry, KeyDraw, NoteKey, hash_leaf
from expunge.evidence.nonce import NonceSource
from expunge.folder.codec import encode
from expunge.folder.configuration import load_settings
from expunge.folder.evidence import CurrentFacts, Evidence, LogState
from expunge.folder.inbox import Asked, Held, Inbox
from expunge.folder.keeper import FolderKeeper
from expunge.folder.policy import ApplyPolicy
from expunge.folder.schema import Redeclared, Schema
from expunge.folder.store import Store
from expunge.folder.store.leases import find_replicas
from expunge.folder.store.petitions import Petition, PetitionBook
from expunge.folder.store.requests import Name, Request
from expunge.folder.store.store import DurableJournal
from expunge.serving.card import make_card
from expunge.serving.deployment import Deployment, Preview, Published, Receipt, Status
from expunge.serving.keeper import RoundState
from expunge.serving.promises import Statement, make_statements
from expunge.serving.publishing import Front, StudentRound
from expunge.training.ensemble import Advance, ignore_progress
from expunge.training.environment import Origins
from expunge.training.execution import Executor
from expunge.training.learners import Learner, SlicedLearner, as_learner


@dataclass(frozen=True, slots=True)
class DurableStatus(Status):
    """The state of a deployment in a folder, without anything secret.

    Attributes
    ----------
    generation
        The number of full trainings so far, counted from 1. None under a consensus.
    round
        The number of updates applied so far.
    num_records, num_shards
        The number of records, and of shards.
    budget
        What was published in this generation, and what may still be. None under a consensus.
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


class DurableDeployment:
    """A deployment in a folder, each step of which is on the disk.

    `expunge.create` and `expunge.open` return it. Use it as a context manager, or call `close`. One process at a time
    may have a folder open for writing; its threads may predict and update at the same time.

    Parameters
    ----------
    store
        The folder, which belongs to this object from now on.
    present
        The round that the folder holds.
    learner
        What trains a shard's model.
    front
        What answers queries.
    max_generations
        The number of generations that the guarantee covers.
    executor
        Where models are trained.
    trusted
        The modules or classes of the user's own that may be stored.
    is_served
        Whether a service decides when requests are applied: see `expunge.folder.opening.open_to_serve`.
    """

    def __init__(
        self,
        store: Store,
        present: RoundState,
        learner: Learner | SlicedLearner,
        *,
        front: Front,
        max_generations: int,
        executor: Executor,
        trusted: Sequence[str],
        is_served: bool = False,
    ) -> None:
        self._store, self._evidence = store, Evidence(store)
        self._evidence.ledger.check()
        self._policy = ApplyPolicy.parse(store.fact("apply"))
        self._inbox = Inbox(store, self._evidence, front)
        self._keeper = FolderKeeper(store, self._evidence, self._inbox, front, tuple(trusted))
        self._deployment = Deployment.resumed(
            present, learner, front=front, max_generations=max_generations, executor=executor, keeper=self._keeper
        )
        self._keeper.complete_erasure(present)
        self._keeper.is_paced = is_served and not self.is_exact
        self._inbox.start_from(self.records)
        write_guarantee(store, self.guarantee())
        self._clock: threading.Thread | None = None
        self._clock_error: BaseException | None = None
        if self._policy.mode == "every" and not is_served:
            self._clock = threading.Thread(target=self._apply_on_a_clock, daemon=True)
            self._clock.start()

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
    def records_at(self) -> str | None:
        """Where the records lie, if not in the folder: see `docs/lake.md`."""
        return self._store.records_at

    @property
    def replicas(self) -> list[dict[str, Any]]:
        """The replicas that live: the number of the process, the round acknowledged last, the lease in seconds."""
        return [each.to_dict() for each in find_replicas(self._store.place)]

    def note_address(self, address: str) -> None:
        """Write down where this process listens, for replicas and for those who find the folder in use."""
        self._store.note_address(address)

    def add_provenance(self, facts: dict[str, Any]) -> None:
        """Keep more plain data with the deployment, beside what `create` was told.

        Parameters
        ----------
        facts
            The data by name. A name that is there already is replaced.
        """
        with self._store.database.transaction():
            self._store.write_fact("provenance", {**self.provenance, **facts})

    @property
    def policy(self) -> ApplyPolicy:
        """When accepted requests are applied."""
        return self._policy

    @property
    def tick_seconds(self) -> int:
        """The clock tick to which certificates date that a request was applied."""
        return self._evidence.clock.tick_seconds

    @property
    def key_is_from_system(self) -> bool:
        """Whether the operating system drew the recipe key. One that follows from a seed is for tests."""
        return bool(self._store.fact("is_system"))

    @property
    def status(self) -> DurableStatus:
        """The current round, number of records and of pending requests; generation and budget where they are public."""
        base = self._deployment.status
        known = {name: getattr(base, name) for name in Status.__dataclass_fields__}
        pending = self._evidence.requests.num_pending()
        return DurableStatus(**known, name=self._store.fact("name"), pending=pending, apply=str(self._policy))

    @property
    def classes(self) -> NDArray[Any]:
        """The labels that may be released."""
        return self._deployment.classes

    @property
    def records(self) -> Records:
        """The dataset as it is after the last applied request."""
        return self._deployment.records

    @property
    def is_exact(self) -> bool:
        """Whether the exact promise alone is made, so that everything may be published."""
        return self._deployment.is_exact

    @property
    def promise_name(self) -> str:
        """The short name of the promise, such as "exact" or "router"."""
        return load_settings(self._store.fact("settings")).name

    @property
    def origins(self) -> Origins:
        """Which environments the models in service were trained in, and what has changed since."""
        return self._deployment.origins

    @property
    def promise(self) -> tuple[Statement, ...]:
        """What is promised about deleted records: separate statements, those that are not claimed included."""
        return make_statements(self.guarantee(), self.origins, unclaimed=self._evidence.unclaimed)

    @property
    def inside_key(self) -> KeyDraw:
        """When the recipe key in force was drawn, why, and the commitment to it: for operators and auditors only."""
        return self._evidence.key

    @property
    def front(self) -> Front:
        """What answers queries: the ensemble itself, a router or a student."""
        return self._deployment.front

    @property
    def student(self) -> StudentRound:
        """The student model of this round. It may be given away. Only a `StudentFront` has one."""
        return self._deployment.student

    @property
    def inside(self) -> RoundState:
        """The round in service, with its models and shards: for operators and audits only."""
        return self._deployment.inside

    def guarantee(self, *, beta: float | None = None, gamma: float | None = None) -> Guarantee:
        """Return the (α,β,γ) that the models of every round satisfy, as `Deployment.guarantee` does."""
        return self._deployment.guarantee(beta=beta, gamma=gamma)

    def _repr_html_(self) -> str:
        """What a notebook shows: promise, records, shards and cost."""
        return make_card(self, self.status.name)

    def predict(self, X: Features) -> NDArray[Any]:
        """Release a label for every row, as `Deployment.predict` does. It is paid for on the disk before that."""
        self._keeper.require_open()
        return self._deployment.predict(X)

    def predict_codes(self, X: Features) -> NDArray[np.int64]:
        """Release a class code for every row, as `Deployment.predict_codes` does."""
        self._keeper.require_open()
        return self._deployment.predict_codes(X)

    def answer(self, X: Features, *, probabilities: bool = False) -> Published:
        """Release what `predict` does, and say which round it is of, as `Deployment.answer` does."""
        self._keeper.require_open()
        return self._deployment.answer(X, probabilities=probabilities)

    def predict_proba(self, X: Features) -> NDArray[np.float64]:
        """Return the mean of the shards' probabilities, as `Deployment.predict_proba` does; exact promise only."""
        self._keeper.require_open()
        return self._deployment.predict_proba(X)

    def decision_function(self, X: Features) -> NDArray[np.float64]:
        """Return scores, as `Deployment.decision_function` does; exact promise only."""
        self._keeper.require_open()
        return self._deployment.decision_function(X)

    def export(self) -> list[Any]:
        """Return copies of the models in service, as `Deployment.export` does; exact promise only."""
        self._keeper.require_open()
        return self._deployment.export()

    def update(
        self,
        batch: Iterable[Update] | Correct,
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
            Additions and deletions, in order; or a `Correct`.
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
        asked = batch if isinstance(batch, Correct) else as_batch(batch)
        if apply or (apply is None and self._policy.mode == "now"):
            done = self._update_at_once(asked, key, readmit, advance)
            if done is not None:
                return done
        request = self.submit(asked, key=key, readmit=readmit)
        if request.public_state == "pending" and (self._applies_at_once if apply is None else apply):
            self.apply(advance=advance)
        return _receipt(self._evidence.requests.get(request.request))

    def _update_at_once(self, asked: Asked, key: str | None, readmit: bool, advance: Advance) -> Receipt | None:
        """Accept and apply a request in one transaction, if nothing else is under way or pending; else return None."""
        if key is not None:
            require_text("key", key)
        self._keeper.require_open()
        now = self._evidence.clock.now()
        with self._deployment.hold_if_free() as is_free:
            if not is_free or self._keeper.is_paced:
                return None
            with self._working():
                self._keeper.complete_erasure(self.inside)
                with self._inbox.holding(asked, self.records, key=key, readmit=readmit, now=now) as found:
                    if not isinstance(found, Held):
                        return None if found is None or found.public_state == "pending" else _receipt(found)
                    with self._keeper.applying(found):
                        self._raise_clock_error()
                        done = self._deployment.update(found.batch.updates(self.classes), advance=advance)
                return Receipt(found.request.request, "applied", done.round)

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

    def correct(
        self,
        ids: Sequence[RecordId] | NDArray[Any],
        X: Features | None = None,
        y: ArrayLike | None = None,
        *,
        columns: Sequence[Any] | None = None,
        subjects: Sequence[RecordId | None] | None = None,
        weights: ArrayLike | None = None,
        key: str | None = None,
        apply: bool | None = None,
        advance: Advance = ignore_progress,
    ) -> Receipt:
        """Replace what records say, under the ids that they have, as one request. See `update`.

        What is not given stays as it is. Afterwards the models are those that the recipe gives on the corrected
        records, and what was there before is erased as a deleted record is.

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
        key, apply, advance
            As for `update`.

        Returns
        -------
        Receipt
            As `update`.

        Raises
        ------
        InputError
            If a record is unknown or named twice, or what is given does not fit. Nothing is changed.
        """
        asked = Correct(ids=ids, features=X, labels=y, columns=columns, subjects=subjects, weights=weights)
        return self.update(asked, key=key, apply=apply, advance=advance)

    def unknown(
        self, ids: Iterable[RecordId] = (), subjects: Iterable[RecordId] = ()
    ) -> list[tuple[Literal["record", "subject"], RecordId, str]]:
        """Which of these records and subjects are not there, or will not be once the pending requests are applied.

        Parameters
        ----------
        ids, subjects
            The names to look for.

        Returns
        -------
        list of tuple
            "record" or "subject", the name, and by which request it was deleted; empty if it never was, as far as is
            known.
        """
        names: list[Name] = [("record", require_id(each, "a record's id")) for each in listed(ids, "ids")]
        names += [("subject", require_id(each, "a subject")) for each in listed(subjects, "subjects")]
        self._keeper.require_open()
        return [(*name, why) for name, why in self._inbox.unknown(names, self.records).items()]

    def preview(self, batch: Iterable[Update] | Correct | None = None, *, readmit: bool = False) -> Preview:
        """Say what applying a request would do, together with all pending ones. Nothing is written.

        Parameters
        ----------
        batch
            What would be asked for; None for the pending requests alone.
        readmit
            As for `update`.

        Returns
        -------
        Preview
            What would be deleted, added, corrected and trained again. Under (α,β,γ) this is for operators only.

        Raises
        ------
        InputError
            As `update`.
        """
        self._keeper.require_open()
        with self._deployment.hold():
            if batch is None:
                return self._deployment.preview(self._inbox.pending_updates(self.records))
            asked = batch if isinstance(batch, Correct) else as_batch(batch)
            return self._deployment.preview(self._inbox.check(asked, self.records, readmit=readmit))

    def submit(
        self,
        batch: Iterable[Update] | Correct,
        *,
        key: str | None = None,
        readmit: bool = False,
    ) -> Request:
        """Check a request against everything accepted before it, and write it to the disk as pending."""
        updates = batch if isinstance(batch, Correct) else as_batch(batch)
        if key is not None:
            require_text("key", key)
        self._keeper.require_open()
        now = self._evidence.clock.now()  # before the lock: a later time would tell when another training ended

        def read_current() -> Records:
            self._keeper.require_open()
            return self.records

        return self._inbox.submit(updates, read_current, key=key, readmit=readmit, now=now)

    @property
    def petitions(self) -> PetitionBook:
        """The requests that other systems sent, and whom to tell when one is done."""
        return self._evidence.petitions

    def receive(
        self, sender: str, id: str, people: Iterable[RecordId], *, asked: bytes, form: str, urls: Iterable[str] = ()
    ) -> Petition:
        """Accept an erasure request that another system sends. The same id again gives the petition that there is.

        Parameters
        ----------
        sender, id
            The integration, and its name for the request.
        people
            Whose records are to be deleted. There may be none: the request is then accepted and applied all the same.
        asked
            What was sent, to tell a repeated petition from another one with the same id.
        form
            The form of the messages about it: "opendsr" or "webhook".
        urls
            Whom to tell when it is applied or cancelled.

        Returns
        -------
        Petition
            The petition, which names its request.

        Raises
        ------
        RequestError
            If the sender used the id for something else.
        """
        known = self.petitions.find(sender, id)
        if known is None:
            now = self._evidence.clock.now()
            key = f"petition\0{sender}\0{id}"  # no other key has zeros
            before = self._evidence.requests.by_key(key)  # of a process that ended before it kept the petition
            made = before or self.submit(map(DeletePerson, dict.fromkeys(people)), key=key)
            known = self.petitions.keep(sender, id, asked, request=made.request, now=now, form=form, urls=urls)
        if not self.petitions.asks(known, asked):
            raise RequestError(f"the id {id} was used for another request: it is the idempotency key of this one too")
        return known

    def people(self) -> set[RecordId]:
        """Everybody who has records, now or once the pending requests are applied: subjects, or ids without one."""
        self._keeper.require_open()
        with self._inbox.lock:
            self._inbox.catch_up(self.records)
            datasets = self.records, self._inbox.expected
        found = set[RecordId]()
        for each in datasets:
            slots = each.live_slots()
            ids, subjects = each.ids_of(slots).tolist(), each.subjects_of(slots)
            own = ids if subjects is None else subjects.tolist()
            found.update(id if subject is None else subject for id, subject in zip(ids, own, strict=True))
        return found

    @property
    def _applies_at_once(self) -> bool:
        return self._clock is None and self.is_due

    @property
    def is_due(self) -> bool:
        """Whether the policy wants the pending requests applied now, or an update has yet to be completed.

        An "at" policy does not count requests that are being applied.
        """
        requests, under_way = self._evidence.requests, self._keeper.under_way if self._policy.mode == "at" else ()
        if not under_way and requests.in_state("switched"):
            return True
        last = under_way[-1][0].request if under_way else None
        count, oldest = requests.num_waiting(at_most=self._policy.enough, after=last)
        return self._policy.is_due(count, 0.0 if oldest is None else self._evidence.clock.age(oldest))

    def apply(self, *, advance: Advance = ignore_progress) -> int | None:
        """Apply all pending requests as one round. Return its number, or None if nothing was pending."""
        with self._working():
            self._keeper.complete_erasure(self.inside)
            self._inbox.catch_up(self.records)
            with self._keeper.applying() as applying:
                if not applying:
                    return None
                self._raise_clock_error()
                batch = [update for _, asked in applying for update in asked.updates(self.classes)]
                return self._deployment.update(batch, advance=advance).round

    def cancel(self, request: str) -> None:
        """Take back a pending request, unless it is being applied or a later one builds on it. It waits for nothing."""
        self._keeper.require_open()
        now = self._evidence.clock.now()  # before the locks, as in `submit`
        with self._deployment.hold_if_free() as is_free, self._inbox.lock:
            self._keeper.require_open()
            if any(one.request == request for one, _ in self._keeper.under_way):
                raise RequestError(f"request {request} is being applied: too late to cancel")
            self._inbox.cancel(request, self.records, now=now, sweeps=is_free)

    def request(self, request: str) -> Request:
        """Return a request as it stands now, by its id."""
        return self._evidence.shown(self._evidence.requests.get(request))

    def requests(
        self,
        *,
        state: str | None = None,
        after: str | None = None,
        limit: int | None = None,
        newest_first: bool = False,
    ) -> list[Request]:
        """Return requests, oldest first.

        Parameters
        ----------
        state
            Only those that are "pending", "applied" or "cancelled".
        after
            Only those that come after this one in the order.
        limit
            At most so many.
        newest_first
            Return the newest first.

        Returns
        -------
        list of Request
            The requests.

        Raises
        ------
        RequestError
            If `after` names no request.
        """
        book = self._evidence.requests
        if after is not None:
            book.get(after)
        found = book.page(state=state, after=after, limit=limit, newest_first=newest_first)
        return [self._evidence.shown(each) for each in found]

    def requests_about(self, ids: Iterable[RecordId] = (), subjects: Iterable[RecordId] = ()) -> list[Request]:
        """Return the requests that name these records, or deleted these subjects; see `DeploymentView.requests_about`.

        Parameters
        ----------
        ids, subjects
            Whose requests are looked for.

        Returns
        -------
        list of Request
            The requests, oldest first.
        """
        people, here = list(subjects), self.records
        slots = [slot for each in people for slot in here.subjects.find(each) if not here.index.is_gone(slot)]
        names = [*ids, *map(here.id_of, slots)]
        return [self._evidence.shown(each) for each in self._evidence.requests.about(names, people)]

    def certificate(self, request: str | None = None, *, since: Iterable[Checkpoint] = ()) -> Certificate:
        """Issue a signed certificate about a request, or about the whole deployment.

        Parameters
        ----------
        request
            The request's id; None for the whole deployment.
        since
            Checkpoints of earlier certificates. This one then proves that the log continues them.

        Returns
        -------
        Certificate
            The certificate. The whole log was checked before it was signed.

        Raises
        ------
        InputError
            If there is no such request, or a checkpoint is not one of this log.
        FormatError
            If the log was changed. Nothing is signed then.
        """
        return self._evidence.certificate(
            request, guarantee=self.guarantee(), read_facts=self._current_facts, since=since
        )

    def forget_requests(self, *, older_than: str | float | timedelta) -> int:
        """Forget requests that were applied or cancelled long ago: what they asked for, and the salts of their entries.

        What the log says about them then opens for nobody, except for those who keep a certificate. Certificates of
        these requests can no longer be issued. What they deleted still cannot come back unnoticed.

        Parameters
        ----------
        older_than
            How long ago they must have been applied or cancelled: seconds, or a text such as "365d".

        Returns
        -------
        int
            How many were forgotten.

        Raises
        ------
        ParameterError
            If `older_than` is not a length of time.
        """
        seconds = read_period("older_than", older_than)
        self._keeper.require_open()
        with self._deployment.hold(), self._inbox.lock:
            self._keeper.require_open()
            with self._store.database.transaction():
                forgotten = self._evidence.requests.forget(before=utc(time.time() - seconds))
                self._evidence.ledger.forget(forgotten)
                self.petitions.forget(forgotten)
            self._store.database.checkpoint()
        return len(forgotten)

    def checkpoint(self) -> Checkpoint:
        """The signed checkpoint of the whole log, with its cosignatures if it has any. Every entry is checked first."""
        ahead = self._evidence.ledger.read_ahead()  # a long log holds nothing up
        with self._store.database.snapshot():
            return self._evidence.ledger.checkpoint(ahead)

    @property
    def log_state(self) -> LogState:
        """Where the log is now, as it was signed: quick, because its entries are not looked at again."""
        return self._evidence.ledger.state

    @property
    def log_key(self) -> NoteKey:
        """The key that the log's checkpoints are checked with, under the log's name."""
        return self._evidence.ledger.public_key

    def log_entries(self, *, after: int = 0, limit: int = 100) -> list[Entry]:
        """Return entries of the log that come after one, by its place from 1; at most so many."""
        return self._evidence.ledger.entries("WHERE sequence > ? AND sequence <= ?", (after, after + limit))

    def inclusion(self, sequence: int, size: int | None = None) -> tuple[bytes, list[bytes], int]:
        """The proof that the log, or its first `size` entries, holds the entry at this place, from 1.

        Parameters
        ----------
        sequence
            The entry's place.
        size
            How many entries; all of them if None.

        Returns
        -------
        leaf : bytes
            The hash of the entry.
        proof : list of bytes
            For `expunge.evidence.root_of_inclusion`, with the index `sequence` - 1.
        size : int
            How many entries the proof is about.

        Raises
        ------
        InputError
            If there is no such entry.
        """
        ahead = self._evidence.ledger.read_ahead()
        with self._store.database.snapshot():
            tree = self._evidence.ledger.check(ahead)
            proof = tree.inclusion(sequence - 1, size)
            entry = self._evidence.ledger.entries("WHERE sequence = ?", (sequence,))[0]
            return hash_leaf(entry.content), proof, len(tree) if size is None else size

    def consistency(self, old_size: int, size: int | None = None) -> list[bytes]:
        """The proof that the log begins with its first `old_size` entries: see `Tree.consistency`.

        Parameters
        ----------
        old_size
            How many entries the earlier checkpoint has.
        size
            How many the later one has; all of them if None.

        Returns
        -------
        list of bytes
            The proof, for `expunge.evidence.is_consistent`.

        Raises
        ------
        InputError
            If the log is shorter.
        """
        ahead = self._evidence.ledger.read_ahead()
        with self._store.database.snapshot():
            return self._evidence.ledger.consistency(old_size, size, ahead=ahead)

    def keep_cosigned(self, checkpoint: Checkpoint) -> None:
        """Keep a checkpoint that witnesses cosigned. Later certificates show its cosignatures.

        Parameters
        ----------
        checkpoint
            What `checkpoint` gave, with cosignatures. Check these before: here only the log's own signature is checked.

        Raises
        ------
        InputError
            If it is not a checkpoint of this log, or older than the cosigned one that is kept.
        """
        self._keeper.require_open()
        with self._store.database.transaction():
            self._evidence.ledger.keep_cosigned(checkpoint)

    def _current_facts(self) -> CurrentFacts:
        now, capacity = self._deployment.status, self.inside.publisher.capacity  # which is that of every generation
        if now.budget is None:
            return CurrentFacts(None, now.round, None, None, capacity, now.num_records)
        journal, reserved = self.inside.publisher.journal, now.budget.predictions
        assert isinstance(journal, DurableJournal)
        return CurrentFacts(now.generation, now.round, reserved, journal.released(reserved), capacity, now.num_records)

    def rekey(
        self,
        *,
        if_older_than: str | float | timedelta | None = None,
        witness: NonceSource | None = None,
        advance: Advance = ignore_progress,
    ) -> bool:
        """Retrain everything now with a new key, as `Deployment.rekey` does. The log says why it was renewed.

        Parameters
        ----------
        if_older_than
            Do nothing unless the key in force is older than this: seconds, or a text such as "90d".
        witness
            Asks a witness for its part in the key: `expunge.evidence.outlets.ask_nonce`. The log commits to the
            operator's part first.
        advance
            Called with the progress of the training.

        Returns
        -------
        bool
            Whether the key was renewed.

        Raises
        ------
        InputError
            If the witness refuses, or under a consensus, where the log does not tell when a key is renewed.
        """
        with self._working():
            self._raise_clock_error()
            draw = None if witness is None else self._evidence.drawing(witness)
            with self._keeper.drawing(draw):
                return self._deployment.rekey(
                    if_older_than=if_older_than, draw=None if draw is None else draw.key, advance=advance
                )

    def restart(self, batch: Iterable[Update] = (), *, advance: Advance = ignore_progress) -> int:
        """Apply a batch and all pending requests, and train everything again with a new key, as one round.

        A restore from a back-up does this before the folder serves anybody. Return the number of the round.
        """
        with self._working():
            self._inbox.catch_up(self.records)
            with self._keeper.applying() as applying:
                updates = [*batch, *(update for _, asked in applying for update in asked.updates(self.classes))]
                found = self._deployment.restart(updates, advance=advance).round
            assert found is not None
            return found

    @property
    def schema(self) -> Schema:
        """What is fixed in this deployment's recipe, and whether it was declared or taken from the first data."""
        return Schema.read(self._store, self._deployment.inside.state.learner)

    def redeclare(
        self,
        *,
        add_classes: Iterable[Any] = (),
        drop_classes: Iterable[Any] = (),
        allow_missing: bool = False,
        allow_weights: bool = False,
        learner: Any = None,
        n_shards: int | None = None,
        provenance: Mapping[str, Any] | None = None,
        advance: Advance = ignore_progress,
    ) -> None:
        """Change the schema or the recipe, and retrain everything; the log says so. See `Deployment.redeclare`.

        Requests that are pending were checked against the schema in force. So there must be none.

        Parameters
        ----------
        add_classes, drop_classes, allow_missing, allow_weights, learner
            As for `Deployment.redeclare`.
        n_shards
            The number of shards from now on; the same as before if it is None.
        provenance
            Plain data to keep with the deployment from then on, as by `add_provenance`.
        advance
            Called with the progress of the training.

        Raises
        ------
        RequestError
            If requests are pending.
        ParameterError
            If nothing is to be changed, or the promise is not the exact one.
        """
        made = None if learner is None else as_learner(learner)
        encoded = None if made is None else encode(made, trusted=self._keeper.trusted)
        with self._working(), self._inbox.lock:
            self._raise_clock_error()
            if self._evidence.requests.in_state("pending"):
                raise RequestError("apply or cancel the pending requests before you declare the schema anew")
            changes: dict[str, Any] = {
                "add_classes": listed(add_classes, "add_classes"),
                "drop_classes": listed(drop_classes, "drop_classes"),
                "allow_missing": allow_missing,
                "num_shards": None if n_shards == self.inside.state.num_shards else n_shards,
                "allow_weights": allow_weights,
            }
            with self._keeper.redeclaring(Redeclared.of(changes, encoded, provenance or {})):
                self._deployment.redeclare(**changes, learner=made, advance=advance)

    def wait(self) -> None:
        """Wait for a retraining in the background, if there is one. An error in it, or of the clock, is raised here."""
        self._deployment.wait()
        self._raise_clock_error()

    @contextmanager
    def _working(self) -> Iterator[None]:
        """Do one update at a time, and date it from its beginning."""
        self._keeper.require_open()
        with self._keeper.working(), self._deployment.hold():
            self._keeper.require_open()
            try:
                yield
            except BaseException:
                self._keeper.drop(self.inside)
                raise

    def halt(self) -> None:
        """Cut an update short that is under way in another thread: its requests stay pending. `close` comes next."""
        self._keeper.halted.set()

    def close(self) -> None:
        """Write the exact number of predictions and release the folder. Pending requests stay pending.

        This waits for a retraining in the background, and no longer reports its errors. In a process that was forked
        from the one that opened the folder, nothing happens.
        """
        if self._keeper.closed.is_set() or not self._store.is_own:
            return
        with suppress(Exception):
            self._deployment.wait()
        with self._deployment.hold(), self._inbox.lock:
            if self._keeper.closed.is_set():
                return
            try:
                self._inbox.close()
                self._deployment.close()
            finally:
                self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _apply_on_a_clock(self) -> None:
        beats = self._policy.beats(time.monotonic)
        while not self._keeper.closed.wait(min(next(beats), threading.TIMEOUT_MAX)):
            # The next update by a caller raises the error. The requests stay pending, and the next beat tries again.
            self._clock_error = self._deployment.background_error() or self._clock_error
            try:
                if self.apply() is not None:
                    self._clock_error = None
            except Exception as error:
                self._clock_error = error

    def _raise_clock_error(self) -> None:
        """Raise the error, but not on the clock's thread: there it stays until a later beat succeeds."""
        if threading.current_thread() is not self._clock:
            error, self._clock_error = self._clock_error, None
            if error is not None:
                raise error

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError("a deployment on disk is not pickled: open its folder instead")


def _receipt(request: Request) -> Receipt:
    state = request.public_state
    return Receipt(request.request, state, request.round if state == "applied" else None)
