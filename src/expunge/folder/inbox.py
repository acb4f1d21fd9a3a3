"""Accepting requests: each is checked against everything accepted before it, and written to the disk.

This module also keeps the list of labels. Classes that were declared are public. A label that was taken from the data
belongs to the records that have it: with the last of them its name is erased, and a keyed hash stays in its place. If
an addition brings the label back, it is recognised by the hash and keeps its code. Models that are trained slice by
slice with `partial_fit` are told all labels beforehand and keep them; declare the classes there.
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
        """Whether names are erased. Labels that are numbers stay: they say no more than their codes."""
        return not self._is_declared and self.names.dtype.kind in "UO"

    def recognise(self, updates: Iterable[Update]) -> bool:
        """Restore the erased labels that an addition brings back. Return whether there was one."""
        names = self.recognised(updates)
        is_changed, self.names = names is not self.names, names
        return is_changed

    def recognised(self, updates: Iterable[Update]) -> NDArray[Any]:
        """Return the labels, with those restored that these updates bring back."""
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
        """Return whether a label of this name was erased."""
        return self._placeholder(label) in self.names.tolist()

    def write(self, datasets: Iterable[Records]) -> None:
        """Store the names of labels that records of these datasets have, and no others; inside a transaction."""
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
    """The pending requests of a folder, and the dataset as it will be after them.

    `lock` is held while a request is accepted or cancelled. A switch holds it as well, so that the labels kept on the
    disk are those of all accepted requests.
    """

    def __init__(self, store: Store, evidence: Evidence, admission: Admission) -> None:
        self.lock = threading.RLock()
        self.vocabulary = Vocabulary(store, evidence.requests)
        self._store = store
        self._evidence = evidence
        self._admission = admission
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

    def submit(self, updates: list[Update], current: Records, *, key: str | None, readmit: bool, now: str) -> Request:
        """Write a request to the disk as pending since `now`; `current` is the dataset in force."""
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
        """Write the request to the disk, completely or not at all."""
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
        """Return the request that already has the key, if it asked for the same."""
        then = replace(self.expected, classes=self.vocabulary.recognised(updates))  # a label may have been erased since
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
            self.vocabulary.write([expected[0], current])
            self._evidence.ledger.write("cancelled", now, request=request)
        report_step("cancel.done")
        self._expected, self._leaving = expected
        self._is_current = True
        with self._store.explain_errors():
            self._store.sweep()  # its records, and what an attempt to apply it left behind
        self._store.database.checkpoint()

    def _with_all(self, records: Records, pending: list[Request]) -> tuple[Records, set[Name]]:
        """Return the dataset after these requests, and the records and subjects that they delete."""
        expected, leaving = replace(records, classes=self.vocabulary.names), set[Name]()
        for one in pending:
            asked = self._evidence.requests.batch_of(one.request)
            leaving |= set(asked.found_in(expected).deleted)
            expected, _ = expected.apply(asked.updates(self.vocabulary.names))
        return expected, leaving
