"""Requests on their way in: checked against everything accepted before them, and on the disk before they count.

The list of labels, as a folder keeps it: a label goes with the last record that bears it.

The classes of a deployment are public if they were declared. If they were taken from the data, a label is somebody's
until nobody bears it any more; then its name is erased like the rest of the record, and a keyed hash stays in its
place, so that the label is recognised when somebody brings it back. Its code stays what it was. Models trained slice by
slice with `partial_fit` are told the whole list beforehand and keep it; declare the classes there.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expunge.core.errors import InputError, RequestError
from expunge.core.records import Add, AddMany, Records, Update
from expunge.folder.evidence import Evidence
from expunge.folder.fronts import Admission
from expunge.folder.store import Store
from expunge.folder.store.ensembles import dump_classes, load_classes
from expunge.folder.store.requests import Batch, Name, Request, RequestBook
from expunge.folder.store.steps import report_step

_FACT = "classes"
_ERASED = "erased label "
_PLACEHOLDER = re.compile(f"{_ERASED}[0-9a-f]{{32}}")


class Vocabulary:
    """The labels of one deployment, by class code."""

    def __init__(self, store: Store, book: RequestBook) -> None:
        self._store = store
        self._book = book
        self._is_declared = bool(store.fact("classes_declared"))
        self.names: NDArray[Any] = load_classes(store.fact(_FACT))

    @property
    def _can_go(self) -> bool:
        """Numbers say nothing that their codes would not."""
        return not self._is_declared and self.names.dtype.kind in "UO"

    def recognise(self, updates: Iterable[Update]) -> bool:
        """Give erased labels their names back where an addition brings them; whether any was."""
        names = self.recognised(updates)
        is_changed, self.names = names is not self.names, names
        return is_changed

    def recognised(self, updates: Iterable[Update]) -> NDArray[Any]:
        """The labels, with the names that these updates bring in place of erased ones."""
        erased = {str(name): code for code, name in enumerate(self.names.tolist()) if _is_erased(name)}
        if not erased:
            return self.names
        found = {}
        for label in {label for update in updates for label in _labels(update)}:
            code = erased.get(self._placeholder(label))
            if code is not None:
                found[code] = label
        return _with(self.names, found) if found else self.names

    def recalls(self, label: str) -> bool:
        """Whether a label of this name was erased."""
        return self._placeholder(label) in self.names.tolist()

    def write(self, datasets: Iterable[Records]) -> None:
        """Have exactly the labels on the disk that some record of these datasets bears; inside a transaction."""
        if not self._can_go:
            return
        counts = np.sum([records.class_counts() for records in datasets], axis=0)
        bare = [code for code, name in enumerate(self.names.tolist()) if not counts[code] and not _is_erased(name)]
        kept = _with(self.names, {code: self._placeholder(self.names[code]) for code in bare})
        data = dump_classes(kept)
        if data != self._store.fact(_FACT):
            self._store.write_fact(_FACT, data)

    def _placeholder(self, label: Any) -> str:
        return _ERASED + self._book.hash_of("label", str(label)).hex()[:32]


def _is_erased(name: Any) -> bool:
    return isinstance(name, str) and _PLACEHOLDER.fullmatch(name) is not None


def _with(names: NDArray[Any], changes: dict[int, Any]) -> NDArray[Any]:
    values = [changes.get(code, name) for code, name in enumerate(names.tolist())]
    return np.array(values, dtype=object) if names.dtype == object else np.array(values)


def _labels(update: Update) -> set[Any]:
    match update:
        case Add(label=label):
            return {label} if isinstance(label, str) else set()
        case AddMany(labels=labels):
            column = np.asarray(labels)
            return (
                {label for label in column.tolist() if isinstance(label, str)} if column.dtype.kind in "UO" else set()
            )
    return set()


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

    def start_from(self, records: Records) -> None:
        """Go on from this dataset: what was applied is no longer pending."""
        with self.lock:
            self._expected, self._leaving = self._with_all(records, self._evidence.requests.in_state("pending"))
            self._is_current = True

    def catch_up(self, records: Records) -> None:
        """Read again what is pending if accepting or cancelling was interrupted half-way."""
        if not self._is_current:
            self.start_from(records)

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
        report_step("accept.done")
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
            requests.mark_cancelled(request, now=now)
            self.vocabulary.write([expected[0], current])
            self._evidence.ledger.write("cancelled", now, request=request)
        report_step("cancel.done")
        self._expected, self._leaving = expected
        self._is_current = True
        with self._store.explain_errors():
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
