"""Requests on their way in: checked against everything accepted before them, and on the disk before they count."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace

from expunge.durable.evidence import Evidence
from expunge.durable.fronts import Admission
from expunge.durable.vocabulary import Vocabulary
from expunge.errors import InputError, RequestError
from expunge.records import Records, Update
from expunge.store import Batch, Name, Request, Store
from expunge.store.steps import reach

_NOTHING = "a request must name at least one record"


class Inbox:
    """What is pending in one folder, and the dataset as it will be once that is applied.

    `lock` is held while a request is accepted or cancelled; who switches rounds holds it as well, so that the labels
    kept on the disk are those of everything accepted.
    """

    def __init__(self, store: Store, evidence: Evidence, admission: Admission) -> None:
        self.lock = threading.RLock()
        self.vocabulary = Vocabulary(store, evidence.requests)
        self._store = store
        self._evidence = evidence
        self._admission = admission
        self._expected: Records | None = None
        self._leaving: set[Name] = set()
        self._is_current = False  # not while the disk may know of a request that memory does not

    @property
    def expected(self) -> Records:
        """The dataset once everything pending is applied."""
        assert self._expected is not None
        return self._expected

    def follow(self, records: Records) -> None:
        """Go on from this dataset: what was applied is no longer pending."""
        with self.lock:
            self._expected, self._leaving = self._with_all(records, self._evidence.requests.in_state("pending"))
            self._is_current = True

    def catch_up(self, records: Records) -> None:
        """Read again what is pending if accepting or cancelling was interrupted half-way."""
        if not self._is_current:
            self.follow(records)

    def submit(self, updates: list[Update], current: Records, *, key: str | None, readmit: bool, now: str) -> Request:
        """Have a request on the disk, pending since `now`; `current` is the dataset in force."""
        if not updates:
            raise InputError(_NOTHING)
        self.catch_up(current)
        known = None if key is None else self._evidence.requests.by_key(key)
        if known is not None:
            return self._repeated(known, updates)
        if self.vocabulary.recognise(updates):
            self._expected = replace(self.expected, classes=self.vocabulary.names)
        expected, _ = self.expected.apply(updates)
        asked = Batch.dump(updates, self.expected)
        if not asked.records:
            raise InputError(_NOTHING)
        self._admission.check(asked.block)
        if not readmit:
            self._refuse_return(asked)
        self._is_current = False
        request = self._accept(asked, [expected, current], key, now)
        reach("accept.done")
        self._expected, self._leaving = expected, self._leaving | set(asked.deleted)
        self._is_current = True
        return request

    def _accept(self, asked: Batch, datasets: Iterable[Records], key: str | None, now: str) -> Request:
        """The request on the disk, or nothing of it."""
        try:
            with self._store.database.transaction():
                request = self._evidence.requests.accept(asked, key=key, now=now)
                self.vocabulary.write(datasets)
                facts = {"num_deletions": request.deletions, "num_additions": request.additions}
                self._evidence.ledger.write("accepted", now, request=request.request, **facts)
        except BaseException:
            self._store.drop_refused()
            raise
        return request

    def _repeated(self, known: Request, updates: list[Update]) -> Request:
        """The request that has the key already, if it asked for the same."""
        then = replace(self.expected, classes=self.vocabulary.recognised(updates))  # a label may be gone since
        if not self._evidence.requests.is_same(known.request, Batch.dump(updates, then)):
            raise RequestError("the idempotency key was used for another request")
        return known

    def _refuse_return(self, asked: Batch) -> None:
        returning = asked.returning
        for what, name in returning:
            if (what, name) in self._leaving:
                whose = "id" if what == "record" else "subject"
                message = f"the {whose} {name!r} is being deleted on request; say readmit to bring it back on purpose"
                raise RequestError(message)
        self._evidence.requests.refuse_forgotten(returning)

    def cancel(self, request: str, current: Records, *, now: str) -> None:
        """Take a pending request back, unless a later one builds on it."""
        requests = self._evidence.requests
        pending = [one for one in requests.in_state("pending") if one.request != request]
        try:
            expected = self._with_all(current, pending)
        except InputError as error:
            message = f"request {request} cannot be cancelled, a later one builds on it: {error}"
            raise RequestError(message) from None
        now = max(now, requests.get(request).accepted_at)  # whatever the system's clock does
        self._is_current = False
        with self._store.database.transaction():
            requests.cancel(request, now=now)
            self.vocabulary.write([expected[0], current])
            self._evidence.ledger.write("cancelled", now, request=request)
        reach("cancel.done")
        self._expected, self._leaving = expected
        self._is_current = True
        with self._store.explained():
            self._store.sweep()  # what waited, and what an attempt to apply it has left
        self._store.database.checkpoint()

    def _with_all(self, records: Records, pending: list[Request]) -> tuple[Records, set[Name]]:
        """The dataset as it will be, and what is on its way out, once these are applied."""
        expected, leaving = replace(records, classes=self.vocabulary.names), set[Name]()
        for one in pending:
            asked = self._evidence.requests.batch_of(one.request)
            leaving |= set(asked.found_in(expected).deleted)
            expected, _ = expected.apply(asked.updates(self.vocabulary.names))
        return expected, leaving
