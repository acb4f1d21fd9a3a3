"""The protocol of crash safety: how a folder keeps the rounds of its deployment.

A round takes these steps. Their names are those of `expunge.folder.store.steps`:

    stage    write new models and records, as they are made, into files that nothing refers to yet
    switch   one transaction: shards, round, budgets, requests
    erase    overwrite deleted rows, remove replaced files, and empty the log if it holds what has to be erased
    follow   wait for replicas: each acknowledges the round, ends, or has no lease any more (`store.leases`)
    applied  one transaction: the requests count as applied

A crash before the switch leaves pending requests and unused files. A crash after it leaves erasing that the next
opening finishes. Predictions are paid for in blocks: a block is on the disk before its first answer is released.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace

from expunge.core.errors import StoreError
from expunge.core.randomness import Randomness
from expunge.evidence import write_canonical
from expunge.folder.evidence import Evidence, KeyDrawing
from expunge.folder.fronts import encode_round, put_round
from expunge.folder.inbox import Held, Inbox
from expunge.folder.schema import Redeclared
from expunge.folder.store import Store
from expunge.folder.store.ensembles import (
    EnsembleWriter,
    StagedEnsemble,
    activate,
    erase,
    keep_readable,
    let_be_read,
    move_models,
    replaced_models,
    write_key,
)
from expunge.folder.store.leases import Followers
from expunge.folder.store.requests import Batch, Request, lasting_names
from expunge.folder.store.steps import report_step
from expunge.folder.store.store import DurableJournal, Replaced
from expunge.serving.keeper import RoundState
from expunge.serving.publishing import Front

_ONE_FOLDER = "The folder is served once: no copy of it is served, and it is not set back to an earlier state."
_SEEDED = (
    "The deployment was created from a fixed seed, which is kept secret. Creating another one with the same seed gives "
    "the same secrets: it starts no new generation."
)


class Alignment:
    """Detect when memory and disk disagree about the round.

    That happens when an interruption comes between the switch on the disk and the switch in memory. From then on the
    folder refuses predictions and updates until it is opened again.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.is_lost = False

    def check(self) -> None:
        """Raise an error if memory and disk are known to disagree."""
        if self.is_lost:
            raise StoreError(
                f"{self._store.folder}: an update was interrupted half-way; close the folder and open it again"
            )

    def require(self, present: RoundState) -> None:
        """Raise an error unless memory and disk agree."""
        self.is_lost = self.is_lost or not self._store.is_at(present.generation, present.round)
        self.check()

    def after_failure(self, present: RoundState) -> None:
        """Find out whether a failure made them disagree. If the disk cannot be read, assume that it did."""
        is_lost = True
        try:
            with suppress(StoreError):
                is_lost = not self._store.is_at(present.generation, present.round)
        finally:
            self.is_lost = self.is_lost or is_lost


class FolderKeeper:
    """Keeps the rounds and the books of one deployment in its folder, as the deployment's `Keeper`.

    A round is staged while it is trained. Then one transaction switches to it.
    """

    def __init__(self, store: Store, evidence: Evidence, inbox: Inbox, front: Front, trusted: Sequence[str]) -> None:
        self.closed, self.halted = threading.Event(), threading.Event()
        self.under_way: tuple[tuple[Request, Batch], ...] = ()  # the requests of the next round
        self._store = store
        self._evidence = evidence
        self._inbox = inbox
        self._front = front
        self.trusted = trusted
        self._alignment = Alignment(store)
        self._followers = Followers(store.place)
        self.is_paced = False  # whether rounds are switched, and requests count as applied, on ticks of the clock alone
        self._stage: EnsembleWriter | None = None
        self._staged: StagedEnsemble | None = None
        self._redeclared: Redeclared | None = None
        self._drawing: KeyDrawing | None = None
        self._replaced: Replaced | None = None  # models that the last switch replaced; None if that is not known
        self._owes_log = True  # whether the log may hold what has to be erased, such as an old key

    def require_open(self) -> None:
        """Raise an error if the folder is closed, belongs to another process, or was left half-way in a switch."""
        self._store.require_own()
        if self.closed.is_set() or self.halted.is_set():
            raise StoreError(f"{self._store.folder} has been closed")
        self._alignment.check()

    @contextmanager
    def applying(self, held: Held | None = None) -> Iterator[tuple[tuple[Request, Batch], ...]]:
        """The next round is the one that applies the requests that are pending now, or one that the inbox holds."""
        with self._inbox.lock:  # none of them is cancelled from here on
            found = self._inbox.read_pending() if held is None else [(held.request, held.batch)]
            self.under_way = tuple(found)
        try:
            yield self.under_way
        finally:
            self.under_way = ()

    @contextmanager
    def redeclaring(self, redeclared: Redeclared) -> Iterator[None]:
        """The next round has another schema."""
        self._redeclared = redeclared
        try:
            yield
        finally:
            self._redeclared = None

    @contextmanager
    def drawing(self, drawing: KeyDrawing | None) -> Iterator[None]:
        """The next round may have a key that a witness has a part in."""
        self._drawing = drawing
        try:
            yield
        finally:
            self._drawing = None

    def working(self) -> AbstractContextManager[None]:
        """Date what this thread does from now, which says nothing about how long a training takes."""
        return self._evidence.clock.work()

    def begin(self, present: RoundState) -> EnsembleWriter:
        """Get ready to stage a round: what is returned writes its records and models while they are made."""
        self.require_open()
        self._alignment.require(present)
        self._stage = EnsembleWriter(self._store, trusted=self.trusted)
        return self._stage

    def stage(self, present: RoundState, following: RoundState) -> RoundState:
        """Wait until everything of the round is on the disk."""
        report_step("apply.trained")
        self.require_open()
        self._alignment.require(present)
        assert self._stage is not None, "a round begins before it is staged"
        with self._stage as begun:
            self._staged = staged = begun.collect(following.state)
        self._stage = None
        keep_readable(present.state, staged)
        if staged.state is following.state:
            return following
        return replace(following, state=staged.state, serving=following.serving.moved(staged.state))

    def commit(self, present: RoundState, following: RoundState, switch: Callable[[RoundState], None]) -> None:
        """Switch on the disk, and then in memory. Between the two no request is accepted or cancelled."""
        staged, self._staged = self._staged, None
        assert staged is not None, "a round is staged before it is committed"
        if self.is_paced:
            self._evidence.clock.wait_for_tick(self.halted)
        self.require_open()
        with self._inbox.lock:
            self._switch(present, following, staged)
            switch(following)

    def _switch(self, present: RoundState, following: RoundState, staged: StagedEnsemble) -> None:
        store, evidence, state = self._store, self._evidence, following.state
        requests, generation, round_ = evidence.requests, following.generation, following.round
        keep_readable(present.state, staged)
        gone, back = lasting_names([asked for _, asked in self.under_way], present.state.records, state.records)
        learned = encode_round(self._front, following.serving, state, self.trusted)
        draw = None if self._drawing is None else self._drawing.made
        is_first = not requests.in_state("switched")  # else files of a switch before are still to be removed
        asked = [one.request for one, _ in self.under_way]
        self._replaced, replaced = None, replaced_models(store, staged, asked) if is_first else None
        is_renewed = generation != present.generation or self._redeclared is not None
        self._owes_log |= is_renewed or staged.rewritten or learned is not None or store.is_packed
        with store.database.transaction():
            report_step("switch.open")
            put_round(store, learned, following.serving.figures)
            activate(store, staged, generation=generation, round=round_, models_trained=following.models_trained)
            for one, _ in self.under_way:  # the log tells that they were accepted before it tells of the round
                self._inbox.put_in_force(one, generation=generation, round=round_)
            done = evidence.clock.done()
            if generation != present.generation:
                publisher = following.publisher
                store.add_generation(generation, publisher.status.predictions, publisher.must_retrain, publisher.secret)
                told = "" if draw is None else write_canonical(draw.to_data()).decode()
                write_key(store, state.key, at=done, reason=following.renewed, draw=told)  # the old key is overwritten
            reason = "" if generation == present.generation else following.renewed
            evidence.write_switch(state.key, at=done, generation=generation, round=round_, reason=reason, draw=draw)
            if self._redeclared is not None:
                self._redeclared.write(store, evidence, following)
            requests.readmit(back)
            for (one, _), names in zip(
                self.under_way, gone, strict=True
            ):  # last: a record may come and go in one round
                requests.remember(names, one.request)
        self._inbox.is_in_force(one for one, _ in self.under_way)
        move_models(store, present.state, staged)
        let_be_read(state, store.folder)
        self._replaced = replaced
        report_step("switch.done")

    def erase(self, present: RoundState) -> None:
        """Erase what the switch replaced, and only then mark its requests as applied."""
        self._inbox.start_from(present.state.records)
        if not self.complete_erasure(present):  # it was a retraining outside any request
            with self._store.explain_errors():
                self._store.sweep()
            with suppress(StoreError):  # a reader may hold the log; the next update, or closing, empties it
                self._store.database.checkpoint()  # of the old key
                self._owes_log = False

    def complete_erasure(self, present: RoundState) -> bool:
        """Finish what earlier switches left to be erased, also after a crash. Return whether there was anything."""
        self._alignment.require(present)
        store, requests = self._store, self._evidence.requests
        switched = requests.in_state("switched")
        if not switched and store.database.row("SELECT 1 FROM dead WHERE erased = 0 LIMIT 1") is None:
            return False
        replaced, self._replaced = self._replaced, None  # once: after an error all files are looked at
        self._followers.announce((present.generation, present.round))  # they follow while this process erases
        erase(store, replaced, empties_log=self._owes_log)
        self._owes_log = False
        self._followers.wait(self.halted.wait)
        tick = self._evidence.clock.done()
        if self.is_paced:
            self._evidence.clock.wait_until(tick, self.halted)
            self.require_open()
        with store.database.transaction():
            report_step("applied.open")
            store.database.execute("UPDATE dead SET erased = 1 WHERE erased = 0")
            at = self._evidence.ledger.date("applied", tick)
            for one in switched:
                requests.mark_applied(one.request, applied_by=at)
            self._evidence.ledger.write_all(
                (
                    "applied",
                    tick,
                    {"request": one.request, **self._evidence.of_generation(one.generation), "round": one.round},
                )
                for one in sorted(switched, key=lambda one: one.request)  # an order that does not tell when they came
            )
        report_step("applied.done")
        return True

    def drop(self, present: RoundState) -> None:
        """Remove everything that was staged, after a failure. Find out whether the disk has switched all the same."""
        self._alignment.after_failure(present)
        self._replaced = None
        stage, self._stage, self._staged = self._stage, None, None
        if stage is not None:
            stage.close()
        self._store.tidy()

    def journal(self, present: RoundState) -> DurableJournal:
        """The journal of a generation, before its publisher is in service: each prediction is paid for on the disk."""
        generation, reserved = present.generation, present.publisher.status.predictions
        return DurableJournal(self._store, generation, reserved, forfeited=self._store.forfeited(generation))

    def close(self, present: RoundState) -> None:
        """Stop writing, and write the exact number of predictions. Another process may open the folder then.

        This may come in the middle of an update, from a signal handler.
        """
        self.closed.set()
        self.halted.set()
        if self._stage is not None:
            self._stage.halt()
            self._store.tidy()
        journal, is_lost = present.publisher.journal, self._alignment.is_lost
        assert isinstance(journal, DurableJournal)
        if is_lost:
            journal.close(None)
        else:  # an interruption may have come before the generation was marked as dirty
            journal.close(present.publisher.status.predictions, is_dirty=present.publisher.must_retrain)

    def assumptions(self, rng: Randomness) -> list[str]:
        """That the folder is served once; and about the seed that it was created with, if it was."""
        return [_ONE_FOLDER, *([] if self._store.fact("is_system") else [_SEEDED])]
