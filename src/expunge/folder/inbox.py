"""Accepting requests: each is checked against everything accepted before it, and written to the disk."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from expunge.core.blocks import listed
from expunge.core.corrections import Correct
from expunge.core.errors import (
    ExpungeError,
    InputError,
    RequestError,
    StoreError,
    UnknownRecordError,
    UnknownSubjectError,
)
from expunge.core.records import Records, Update
from expunge.folder.evidence import Evidence
from expunge.folder.store import Store
from expunge.folder.store.requests import Batch, Name, Request
from expunge.folder.store.steps import report_step
from expunge.serving.publishing import Front

_NOTHING = "a request must name at least one record"
_AT_ONCE = 256  # requests that are written in one transaction

#: What a request asks for. A correction keeps what it does not replace, as it is when the request is accepted.
Asked = list[Update] | Correct


@dataclass(eq=False)
class _Submission:
    """What somebody asks for, and the answer: a request or an error."""

    asked: Asked
    key: str | None
    readmit: bool
    now: str
    request: Request | None = None
    error: Exception | None = None

    @property
    def is_waiting(self) -> bool:
        return self.request is None and self.error is None


@dataclass(eq=False)
class Held:
    """A request that is applied at once, and is not on the disk before the round that applies it.

    Parameters
    ----------
    request, batch
        The request, which has no time yet, and what it asks for.
    key
        Its idempotency key.
    now
        When it came.
    """

    request: Request
    batch: Batch
    key: str | None
    now: str


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
        self._named: Counter[Name] | None = None  # by how many pending requests; None while that is not known
        self._waiting: deque[_Submission] = deque()
        self._held: Held | None = None
        self._is_current = False  # False while the disk may have a request that memory lacks

    @property
    def expected(self) -> Records:
        """The dataset as it will be when all pending requests are applied."""
        assert self._expected is not None
        return self._expected

    def start_from(self, records: Records) -> None:
        """Start from this dataset, and read the pending requests again."""
        with self.lock:
            assert self._held is None, "what is held is in force or pending before anything is read again"
            pending = self._evidence.requests.in_state("pending")
            self._expected, self._leaving, self._named = self._with_all(records, pending)
            self._is_current = True

    def catch_up(self, records: Records) -> None:
        """Read the pending requests again if accepting or cancelling was interrupted."""
        if not self._is_current:
            self.start_from(records)

    @contextmanager
    def holding(
        self, asked: Asked, current: Records, *, key: str | None, readmit: bool, now: str
    ) -> Iterator[Request | Held | None]:
        """Check a request that is applied in the block, and tell nobody of it before the round that applies it.

        So its acceptance needs no transaction of its own. If another request comes meanwhile, this one is written as
        pending before it; and so it is if the block fails. A crash in the block forgets it: it was not acknowledged.

        Yields
        ------
        Held, Request or None
            What is to be applied; the request that has the key already; None if other requests are to be applied
            before this one.
        """
        with self.lock:
            found = self._hold(asked, current, key=key, readmit=readmit, now=now)
        try:
            yield found
        except BaseException:
            with suppress(ExpungeError):  # the disk may be full; then the request was not accepted
                self._settle()
            raise
        finally:
            with self.lock:
                if self._held is not None:  # an interruption, or a disk that failed
                    self._held, self._is_current = None, False

    def _hold(
        self, asked: Asked, current: Records, *, key: str | None, readmit: bool, now: str
    ) -> Request | Held | None:
        requests, one = self._evidence.requests, _Submission(asked, key, readmit, now)
        self.catch_up(current)
        if self._waiting or self._named or self._named is None:
            return None
        known = None if key is None else requests.by_key(key)
        if known is not None:
            return self._repeated(known, asked, current)
        batch, following = self._check(one, self.expected, current, set())
        self._interrupted()
        self._expected = following
        self._leaving = set(batch.deleted)
        self._named = Counter(_names(batch))
        self._held = Held(Request.new(batch), batch, key, now)
        self._is_current = True
        return self._held

    def close(self) -> None:
        """Write what is held as pending: the folder is closed in the middle of its round, as by a signal handler."""
        with suppress(ExpungeError):
            if self._held is not None:
                self._store.database.roll_back()  # that of the switch
                self._settle()

    def _settle(self) -> None:
        """Write what is held to the disk as pending, because another request comes after it or it was not applied."""
        with self.lock:
            held = self._held
            if held is not None:
                self._write([held])
                self._held = None

    def put_in_force(self, request: Request, *, generation: int, round: int) -> None:
        """Mark a request as in force, inside the transaction of the switch and under the lock."""
        requests, held = self._evidence.requests, self._held
        if held is None or held.request is not request:
            requests.mark_switched(request.request, generation=generation, round=round)
            return
        ledger = self._evidence.ledger
        (at,) = ledger.dates("accepted", [held.now])
        accepted = replace(request, accepted_at=at)
        requests.accept_switched(accepted, held.batch, held.key, generation=generation, round=round)
        ledger.write_all([self._accepted(held)])

    def is_in_force(self, requests: Iterable[Request]) -> None:
        """These requests are in force, on the disk."""
        if self._held is not None and any(one is self._held.request for one in requests):
            self._held = None

    def read_pending(self) -> list[tuple[Request, Batch]]:
        """Read all pending requests, to apply them. What is accepted from now on goes to another file."""
        with self.lock:
            self._settle()
            requests = self._evidence.requests
            self._store.waiting.begin_anew()
            return [(one, requests.batch_of(one.request)) for one in requests.in_state("pending")]

    def submit(
        self, asked: Asked, read_current: Callable[[], Records], *, key: str | None, readmit: bool, now: str
    ) -> Request:
        """Write a request to the disk as pending since `now`.

        Requests that come at the same time are written in one transaction, by the thread that is first: the disk takes
        as long for many as for one. `read_current` is called under the lock, and gives the dataset in force.
        """
        own = _Submission(asked, key, readmit, now)
        self._waiting.append(own)
        try:
            with self.lock:
                while own.is_waiting:
                    self._accept_some(read_current)
        except BaseException:
            with suppress(ValueError):
                self._waiting.remove(own)
            raise
        if own.error is not None:
            raise own.error
        assert own.request is not None
        return own.request

    def _accept_some(self, read_current: Callable[[], Records]) -> None:
        """Accept what waits, in the order in which it came. A key that comes twice is for the next time."""
        group, keys = list[_Submission](), set[str | None]()
        while self._waiting and len(group) < _AT_ONCE and self._waiting[0].key not in keys:
            group.append(self._waiting.popleft())
            keys |= {group[-1].key} - {None}
        try:
            current = read_current()
            self._settle()
            self.catch_up(current)
        except BaseException:  # each of the others finds that out for itself
            self._waiting.extendleft(reversed(group))
            raise
        try:
            self._accept(group, current)
        finally:
            for one in group:
                if one.is_waiting:
                    one.error = StoreError(
                        f"{self._store.folder}: accepting was interrupted; look whether the request is pending"
                    )

    def _accept(self, group: list[_Submission], current: Records) -> None:
        """Check each request against all before it, and write those that pass, completely or not at all."""
        expected, leaving, passed = self.expected, set[Name](), list[tuple[_Submission, Batch]]()
        for one in group:
            try:
                known = None if one.key is None else self._evidence.requests.by_key(one.key)
                if known is not None:
                    one.request = self._repeated(known, one.asked, current)
                    continue
                asked, following = self._check(one, expected, current, leaving)
            except Exception as error:
                one.error = error
                continue
            passed.append((one, asked))
            expected = following
            leaving.update(asked.deleted)
        if not passed:
            return
        named = self._interrupted()
        accepted = [Held(Request.new(batch), batch, one.key, one.now) for one, batch in passed]
        try:
            requests = self._write(accepted)
        except Exception as error:
            if len(passed) == 1:
                passed[0][0].error = error
                return
            for one, _ in passed:  # one of them may be at fault
                self.catch_up(current)
                self._accept([one], current)
            return
        report_step("accept.done")
        self._expected = expected
        self._leaving |= leaving
        self._named = named
        for _, asked in passed:
            named.update(_names(asked))
        self._is_current = True
        for (one, _), request in zip(passed, requests, strict=True):
            one.request = request

    def _check(
        self, one: _Submission, expected: Records, current: Records, leaving: set[Name]
    ) -> tuple[Batch, Records]:
        """Check a request. Return it as it will be stored, and the dataset after it."""
        try:
            updates = _updates_on(one.asked, expected)
            if not updates:
                raise InputError(_NOTHING)
            following, _ = expected.apply(updates)
        except UnknownRecordError as error:
            what: Name = ("subject" if isinstance(error, UnknownSubjectError) else "record", error.record)  # type: ignore[assignment]
            why = self._why_gone(what)
            raise type(error)(f"{error}: it {why}" if why else str(error), error.record) from None
        asked = Batch.dump(updates, expected)
        if asked.may_be_empty:
            asked = asked.with_leaving(current)
        elif not asked.records:
            raise InputError(_NOTHING)
        if asked.block is not None and len(asked.block):
            self._front.refuse(asked.block, current.classes)
        if not one.readmit:
            self._refuse_return(asked, leaving)
        return asked, following

    def check(self, asked: Asked, current: Records, *, readmit: bool) -> list[Update]:
        """Check a request as `submit` does, and write nothing. Return all updates that would be applied with it."""
        with self.lock:
            self._settle()
            self.catch_up(current)
            one = _Submission(asked, None, readmit, "")
            mine, _ = self._check(one, self.expected, current, set())
            return [*self._pending_updates(current), *mine.updates(current.classes)]

    def pending_updates(self, current: Records) -> list[Update]:
        """All updates of the pending requests, in order."""
        with self.lock:
            self._settle()
            self.catch_up(current)
            return self._pending_updates(current)

    def _pending_updates(self, current: Records) -> list[Update]:
        requests = self._evidence.requests
        asked = [requests.batch_of(one.request) for one in requests.in_state("pending")]
        return [update for each in asked for update in each.updates(current.classes)]

    def unknown(self, names: Iterable[Name], current: Records) -> dict[Name, str]:
        """Which of these will not be there after the pending requests, and why as far as that is known."""
        with self.lock:
            self._settle()
            self.catch_up(current)
            here = self.expected
            return {name: self._why_gone(name) for name in dict.fromkeys(names) if not _is_there(name, here)}

    def _why_gone(self, name: Name) -> str:
        """By which request a record or a subject was deleted, as the end of a sentence; empty if that is not known."""
        requests = self._evidence.requests
        if name in self._leaving:
            for one in requests.in_state("pending"):
                if name in requests.batch_of(one.request).deleted:
                    return f"is being deleted by request {one.request} of {one.accepted_at}"
        was_deleted, by = requests.deleted_by(*name)
        if by is not None:
            return f"was already deleted by request {by.request} on {by.applied_by or by.accepted_at}"
        return "was already deleted by a request that was forgotten since" if was_deleted else ""

    def _write(self, asked: list[Held]) -> list[Request]:
        """Write requests to the disk as pending, all or none."""
        try:
            with self._store.database.transaction():
                ledger = self._evidence.ledger
                dates = ledger.dates("accepted", [one.now for one in asked])
                made = [replace(one.request, accepted_at=at) for one, at in zip(asked, dates, strict=True)]
                self._evidence.requests.accept(
                    [(request, one.batch, one.key) for request, one in zip(made, asked, strict=True)]
                )
                ledger.write_all(map(self._accepted, asked))
        except BaseException:
            self._store.drop_refused()
            raise
        return made

    def _accepted(self, one: Held) -> tuple[str, str, dict[str, Any]]:
        """What the log tells of a request that was written."""
        facts = {
            "request": one.request.request,
            "num_deletions": one.request.deletions,
            "num_additions": one.request.additions,
            "num_corrections": one.request.corrections,
            "records": self._evidence.requests.digest_of(one.request.request),
        }
        return "accepted", one.now, facts

    def _repeated(self, known: Request, asked: Asked, current: Records) -> Request:
        """Return the request that already has the key, if it asked for the same."""
        requests = self._evidence.requests
        if isinstance(asked, Correct) and known.state != "pending":  # nothing is kept of it but keyed hashes of the ids
            is_same = known.kind == "correction" and requests.names(known.request, listed(asked.ids, "ids"))
        else:
            records = self.expected
            if isinstance(asked, Correct):
                before = requests.in_state("pending")
                records = self._with_all(current, before[: [one.request for one in before].index(known.request)])[0]
            is_same = requests.is_same(known.request, Batch.dump(_updates_on(asked, records), records))
        if not is_same:
            raise RequestError("the idempotency key was used for another request")
        return known

    def _refuse_return(self, asked: Batch, leaving: set[Name]) -> None:
        returning = asked.returning
        for what, name in returning:
            if (what, name) in self._leaving or (what, name) in leaving:
                whose = "id" if what == "record" else "subject"
                message = (
                    f"the {whose} {name!r} is being deleted on request; to bring it back on purpose, say readmit "
                    "(--readmit)"
                )
                raise RequestError(message)
        self._evidence.requests.refuse_forgotten(returning)

    def _interrupted(self) -> Counter[Name]:
        """From here on the disk may have what memory lacks, until both are set again."""
        named, self._named, self._is_current = self._named, None, False
        return Counter() if named is None else named

    def cancel(self, request: str, current: Records, *, now: str, sweeps: bool = True) -> None:
        """Take back a pending request, unless a later one builds on it.

        `sweeps` says that nothing is staged, so that what an attempt to apply it left behind can be removed too.
        """
        self._settle()
        requests = self._evidence.requests
        requests.get(request)  # refuses an unknown one before anything is compared with it
        cell = requests.cell_of(request)
        alone, after = self._alone(request), None
        if alone is None:
            try:
                pending = [one for one in requests.in_state("pending") if one.request != request]
                self._refuse_baked_in(request, pending)
                after = self._with_all(current, pending)
            except InputError as error:
                message = f"request {request} cannot be cancelled, a later one builds on it: {error}"
                raise RequestError(message) from None
        named = self._interrupted()
        with self._store.database.transaction():
            requests.mark_cancelled(request, now=self._evidence.ledger.date("cancelled", now))
            self._evidence.ledger.write("cancelled", now, request=request)
        report_step("cancel.done")
        if after is not None:
            self._expected, self._leaving, self._named = after
            self._is_current = True
        elif alone is not None:  # the dataset after the others is made when it is needed
            self._leaving -= alone
            for name in alone:
                del named[name]
            self._named = named
        with self._store.explain_errors():
            if sweeps:
                self._store.sweep()  # its records, and what an attempt to apply it left behind
            else:
                self._store.drop_request(cell)
        self._store.database.checkpoint()

    def _refuse_baked_in(self, request: str, pending: list[Request]) -> None:
        """Refuse to cancel what a pending correction has read: it keeps what it does not replace."""
        corrections = [one for one in pending if one.corrections]
        if not corrections:
            return
        try:
            names = _names(self._evidence.requests.batch_of(request))
        except ExpungeError:  # its file is damaged: it can be cancelled, and only so
            return
        for one in corrections:
            for _, record in self._evidence.requests.batch_of(one.request).corrected:
                if ("record", record) in names:
                    raise InputError(f"{one.request} corrects record {record!r:.80}")

    def _alone(self, request: str) -> set[Name] | None:
        """What a pending request names, if no other one names any of it. Then no other one builds on it."""
        requests = self._evidence.requests
        if self._named is None or requests.get(request).state != "pending":
            return None
        try:
            names = _names(requests.batch_of(request))
        except ExpungeError:  # its file is damaged
            return None
        return names if all(self._named[name] == 1 for name in names) else None

    def _with_all(self, records: Records, pending: list[Request]) -> tuple[Records, set[Name], Counter[Name]]:
        """Return the dataset after these requests, what they delete, and how many name each record and subject."""
        expected, leaving, named, updates = records, set[Name](), Counter[Name](), list[Update]()
        for one in pending:
            asked = self._evidence.requests.batch_of(one.request)
            if asked.names_subjects and updates:  # whose records are those at this moment
                expected, updates = expected.apply(updates)[0], []
            asked = asked.found_in(expected)
            leaving.update(asked.deleted)
            named.update(_names(asked))
            updates += asked.updates(records.classes)
        return expected.apply(updates)[0], leaving, named


def _is_there(name: Name, records: Records) -> bool:
    what, value = name
    if what == "record":
        return value in records
    return any(not records.index.is_gone(slot) for slot in records.subjects.find(value))


def _updates_on(asked: Asked, records: Records) -> list[Update]:
    return asked.updates_on(records) if isinstance(asked, Correct) else asked


def _names(asked: Batch) -> set[Name]:
    """The records and subjects that a request deletes or adds."""
    return {*asked.deleted, *asked.added}
