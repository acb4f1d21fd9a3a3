"""Accepting requests: each is checked against everything accepted before it, and written to the disk."""

from __future__ import annotations

import threading

from expunge.core.errors import InputError, RequestError
from expunge.core.records import Records, Update
from expunge.folder.evidence import Evidence
from expunge.folder.store import Store
from expunge.folder.store.requests import Batch, Name, Request
from expunge.folder.store.steps import report_step
from expunge.serving.publishing import Front

_NOTHING = "a request must name at least one record"


class Inbox:
    """The pending requests of a folder, and the dataset as it will be after them.

    `lock` is held while a request is accepted or cancelled.
    """

    def __init__(self, store: Store, evidence: Evidence, front: Front) -> None:
        self.lock = threading.RLock()
        self._store = store
        self._evidence = evidence
        self._front = front
        self._expected: Records | None = None
        self._leaving: set[Name] = set()
        self._is_current = False  # False while the disk may have a request that memory lacks

    @property
    def expected(self) -> Records:
        """The dataset as it will be when all pending requests are applied."""
        assert self._expected is not None
        return self._expected

    def start_from(self, records: Records) -> None:
        """Start from this dataset, and read the pending requests again."""
        with self.lock:
            self._expected, self._leaving = self._with_all(records, self._evidence.requests.in_state("pending"))
            self._is_current = True

    def catch_up(self, records: Records) -> None:
        """Read the pending requests again if accepting or cancelling was interrupted."""
        if not self._is_current:
            self.start_from(records)

    def read_pending(self) -> list[tuple[Request, Batch]]:
        """Read all pending requests, to apply them. What is accepted from now on goes to another file."""
        with self.lock:
            requests = self._evidence.requests
            self._store.waiting.begin_anew()
            return [(one, requests.batch_of(one.request)) for one in requests.in_state("pending")]

    def submit(self, updates: list[Update], current: Records, *, key: str | None, readmit: bool, now: str) -> Request:
        """Write a request to the disk as pending since `now`; `current` is the dataset in force."""
        if not updates:
            raise InputError(_NOTHING)
        self.catch_up(current)
        known = None if key is None else self._evidence.requests.by_key(key)
        if known is not None:
            return self._repeated(known, updates)
        expected, _ = self.expected.apply(updates)
        asked = Batch.dump(updates, self.expected)
        if not asked.records:
            raise InputError(_NOTHING)
        if asked.block is not None and len(asked.block):
            self._front.refuse(asked.block, current.classes)
        if not readmit:
            self._refuse_return(asked)
        self._is_current = False
        request = self._accept(asked, key, now)
        report_step("accept.done")
        self._expected = expected
        self._leaving.update(asked.deleted)
        self._is_current = True
        return request

    def _accept(self, asked: Batch, key: str | None, now: str) -> Request:
        """Write the request to the disk, completely or not at all."""
        try:
            with self._store.database.transaction():
                request = self._evidence.requests.accept(asked, key=key, now=now)
                facts = {"num_deletions": request.deletions, "num_additions": request.additions}
                self._evidence.ledger.write("accepted", now, request=request.request, **facts)
        except BaseException:
            self._store.drop_refused()
            raise
        return request

    def _repeated(self, known: Request, updates: list[Update]) -> Request:
        """Return the request that already has the key, if it asked for the same."""
        if not self._evidence.requests.is_same(known.request, Batch.dump(updates, self.expected)):
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
        """Take back a pending request, unless a later one builds on it."""
        requests = self._evidence.requests
        pending = [one for one in requests.in_state("pending") if one.request != request]
        try:
            expected = self._with_all(current, pending)
        except InputError as error:
            message = f"request {request} cannot be cancelled, a later one builds on it: {error}"
            raise RequestError(message) from None
        now = max(now, requests.get(request).accepted_at)  # the system's clock may have been set back
        self._is_current = False
        with self._store.database.transaction():
            requests.mark_cancelled(request, now=now)
            self._evidence.ledger.write("cancelled", now, request=request)
        report_step("cancel.done")
        self._expected, self._leaving = expected
        self._is_current = True
        with self._store.explain_errors():
            self._store.sweep_waiting(but_current=False)
            self._store.sweep()  # what an attempt to apply it left behind
        self._store.database.checkpoint()

    def _with_all(self, records: Records, pending: list[Request]) -> tuple[Records, set[Name]]:
        """Return the dataset after these requests, and the records and subjects that they delete."""
        expected, leaving = records, set[Name]()
        for one in pending:
            asked = self._evidence.requests.batch_of(one.request)
            leaving |= set(asked.found_in(expected).deleted)
            expected, _ = expected.apply(asked.updates(records.classes))
        return expected, leaving
