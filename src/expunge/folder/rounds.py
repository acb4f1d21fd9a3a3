"""A round on its way to the disk: staged while it is trained, then switched to in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from expunge.folder.evidence import Evidence
from expunge.folder.fronts import moved_round, put_round
from expunge.folder.inbox import Inbox
from expunge.folder.store import Batch, Request, Stage, Staged, Store, lasting_names, stage, switch
from expunge.folder.store.steps import reach
from expunge.serving.deployment import NextRound
from expunge.serving.publishing import Front
from expunge.training.ensemble import EnsembleState


class RoundWriter:
    """Writes the rounds of one deployment; one at a time, by whoever updates."""

    def __init__(self, store: Store, evidence: Evidence, inbox: Inbox, front: Front, trusted: Sequence[str]) -> None:
        self._store = store
        self._evidence = evidence
        self._inbox = inbox
        self._front = front
        self._trusted = trusted
        self._stage: Stage | None = None
        self.applying: tuple[tuple[Request, Batch], ...] = ()  # what the round is made of

    def begin(self) -> Stage:
        """The follower of an update that begins to train."""
        self._stage = Stage(self._store, trusted=self._trusted)
        return self._stage

    def drop(self) -> None:
        """After a failure: whatever was staged is removed."""
        stage, self._stage = self._stage, None
        if stage is not None:
            stage.close()
        self._store.tidy()

    def stop(self) -> None:
        """Before the folder is let go of: what a thread still writes would be written into somebody else's folder.

        Whoever closes it may be in the middle of an update: the handler of a signal is.
        """
        if self._stage is not None:
            self._stage.halt()
            self._store.tidy()

    def write(
        self, following: NextRound, before: EnsembleState, *, round: int, is_new: bool, trained: int
    ) -> NextRound:
        """Stage and switch from `before`; the round returned is the one to go on with. What fails leaves no files."""
        try:
            return self._written(following, before, round, is_new, trained)
        except BaseException:
            self.drop()
            raise

    def _written(
        self, following: NextRound, before: EnsembleState, round_: int, is_new: bool, trained: int
    ) -> NextRound:
        store, requests, generation = self._store, self._evidence.requests, following.generation
        staged, publisher, classes = self._staged(following), following.publisher, before.records.classes
        if staged.state is not following.state:
            following = replace(following, state=staged.state, serving=moved_round(following.serving, staged.state))
        gone, back = lasting_names([asked for _, asked in self.applying], before.records, staged.state.records)
        # Nothing is accepted meanwhile, so that the labels kept are those of everything accepted.
        with self._inbox.lock, store.database.transaction():
            reach("switch.open")
            serving = put_round(store, self._front, following.serving, classes, tuple(self._trusted))
            switch(store, staged, generation=generation, round=round_, models_trained=trained, serving=serving)
            if is_new:
                store.open_books(generation, publisher.status.predictions, publisher.must_retrain, publisher.secret)
                done = self._evidence.clock.done()
                self._evidence.ledger.write("generation", done, generation=generation, round=round_)
            for one, _ in self.applying:
                requests.switch(one.request, generation=generation, round=round_)
            self._inbox.vocabulary.write([staged.state.records, self._inbox.expected])
            requests.readmit(back)
            requests.remember(gone)  # last: what came and went in one round is gone
        reach("switch.done")
        return following

    def _staged(self, following: NextRound) -> Staged:
        begun = self._stage
        if begun is None:
            return stage(self._store, following.state, following.touched, following.change, trusted=self._trusted)
        with begun:
            staged = begun.finish(following.state)
        self._stage = None
        return staged
