"""The requests of a deployment: accepted, pending, switched, applied, cancelled.

    pending ──▶ switched ──▶ applied
       └──▶ cancelled

An accepted request is on the disk before it is acknowledged. A switched request is in force, and what it deleted is
being erased; requesters still see it as pending. What a request asks for is a `Batch`, and is kept in a file until the
request is switched (`waiting`). The database never holds an id or a subject: only keyed hashes, which also keep a
deleted record from coming back by accident.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import struct
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, replace
from functools import cached_property
from itertools import chain, groupby
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from expunge.core.blocks import Block, join_blocks, pick_rows
from expunge.core.checks import canonical
from expunge.core.errors import FormatError, InputError, RecordError, RequestError
from expunge.core.index import NOWHERE
from expunge.core.records import (
    Add,
    AddMany,
    DeleteMany,
    DeletePerson,
    DeleteSubject,
    RecordId,
    Records,
    Update,
    deleted_ids,
    is_deletion,
)
from expunge.evidence import hash_id, joined_hashes, keyed_hash, request_key, split_hashes
from expunge.folder.store.columns import Form
from expunge.folder.store.steps import report_step
from expunge.folder.store.store import Store
from expunge.folder.store.waiting import Span

Name = tuple[Literal["record", "subject"], RecordId]
_FOUND = ("holds", "named")  # what is found in the dataset, and not asked for
Part = dict[str, Any]


@dataclass(frozen=True)
class Batch:
    """The updates of one request, as plain data and one block of records.

    `content` lists, in order, runs of {"ids": deleted records}, {"subject": a deleted subject, "holds": its records at
    the time, also those that came in the same batch}, {"person": a deleted person, "holds": their records at the time,
    if any, "named": whether one of them has the person as its subject} and {"rows": [first, how many]} of `block`. With
    people there are no rows.
    """

    content: list[Part]
    block: Block | None

    @classmethod
    def dump(cls, updates: Sequence[Update], records: Records) -> Batch:
        """Make a batch from updates that `records.apply` takes.

        The records that they add are checked, and converted to the number types of `records`.
        """
        content: list[Part] = []
        blocks: list[Block] = []
        num_rows = 0
        for deletes, run in groupby(updates, key=is_deletion):
            if deletes:
                ids = _all_plain(deleted_ids(run))
                content += [{"ids": ids}] if ids else []
                continue
            for update in run:
                match update:
                    case DeleteSubject(subject=subject):
                        content.append({"subject": _plain(subject)})
                    case DeletePerson(person=person):
                        content.append({"person": _plain(person)})
                    case Add() | AddMany():
                        blocks.append(records.check_addition(update))
                        content.append({"rows": [num_rows, len(blocks[-1])]})
                        num_rows += len(blocks[-1])
        if blocks and any("person" in part for part in content):
            raise InputError("deleting people and adding records are requests of their own")
        return cls(content, join_blocks(blocks, start=0) if blocks else None).found_in(records)

    def found_in(self, records: Records) -> Batch:
        """Return the batch with the records that its subjects have in this dataset."""
        if not self.names_subjects:
            return self
        here, content = _Arrivals(self.block), list[Part]()
        for part in self.content:
            if "person" in part:
                content.append(_person_in(records, part["person"]))
                continue
            if "subject" not in part:
                here.pass_by(part)
                content.append(part)
                continue
            subject = part["subject"]
            before = [slot for slot in records.subjects.find(subject) if not records.index.is_gone(slot)]
            held = [*(records.id_of(slot) for slot in before), *here.leave(subject)]
            content.append({"subject": subject, "holds": list(dict.fromkeys(held))})
        return replace(self, content=content)

    def with_leaving(self, current: Records) -> Batch:
        """Return the batch with the records of its people that requests before it delete, unless cancelled."""
        content = list[Part]()
        for part in self.content:
            if "person" in part:
                now = _person_in(current, part["person"])
                held = dict.fromkeys([*part["holds"], *now["holds"]])
                part = {**part, "holds": list(held), "named": part["named"] or now["named"]}
            content.append(part)
        return replace(self, content=content)

    def updates(self, classes: NDArray[Any]) -> list[Update]:
        """Return the updates that the batch was made from."""
        updates: list[Update] = []
        block = self.block
        for part in self.content:
            if "ids" in part:
                updates.append(DeleteMany(part["ids"]))
            elif "subject" in part:
                updates.append(DeleteSubject(part["subject"]))
            elif "person" in part:
                updates.append(DeletePerson(part["person"]))
            else:
                assert block is not None
                first, count = part["rows"]
                updates.append(_addition(pick_rows(block, np.arange(first, first + count)), classes))
        return updates

    @property
    def names_subjects(self) -> bool:
        """Whether all records of a subject, or of a person, are deleted."""
        return any("subject" in part or "person" in part for part in self.content)

    @property
    def may_be_empty(self) -> bool:
        """Whether people are named of whom there may be no record."""
        return any("person" in part for part in self.content)

    @property
    def num_deleted(self) -> int:
        """How many records are deleted for good, each counted once. A subject counts with those of `found_in`."""
        return len(self._leaving) - self.num_corrected

    @property
    def num_added(self) -> int:
        """How many records are added, beside those that are corrected."""
        return 0 if self.block is None else len(self.block) - self.num_corrected

    @property
    def num_corrected(self) -> int:
        """How many records are deleted and then added again under the same id: what they say is replaced."""
        return len(self._corrected)

    @property
    def kind(self) -> str:
        """Either "deletion", "addition", "correction" or "mixed"."""
        if self.block is None:
            return "deletion"
        if self.num_corrected and not self.num_deleted and not self.num_added:
            return "correction"
        return "addition" if all("rows" in part for part in self.content) else "mixed"

    @property
    def deleted(self) -> list[Name]:
        """All records that are deleted, with those of subjects, and the subjects. A person without records is none."""
        records: list[Name] = [("record", record) for record in self._leaving]
        subjects = [part["subject"] for part in self.content if "subject" in part]
        subjects += [part["person"] for part in self.content if part.get("named")]
        return records + [("subject", each) for each in subjects]

    @property
    def added(self) -> list[Name]:
        """All records that are added, and their subjects."""
        if self.block is None or self.block.ids is None:
            return []
        subjects = [] if self.block.subjects is None else self.block.subjects.tolist()
        records: list[Name] = [("record", record) for record in self.block.ids.tolist()]
        return records + [("subject", subject) for subject in dict.fromkeys(subjects) if subject is not None]

    @property
    def returning(self) -> list[Name]:
        """What is added and not deleted in the same batch: a correction is not a return."""
        coming = self.added
        leaving = set(self.deleted) if coming else set()
        return [name for name in coming if name not in leaving]

    @property
    def records(self) -> list[RecordId]:
        """The id of each record that the request deletes, adds or corrects."""
        coming = [] if self.block is None or self.block.ids is None else self.block.ids.tolist()
        return [*self._leaving, *(record for record in coming if record not in self._corrected)]

    @property
    def corrected(self) -> list[Name]:
        """All records that are corrected."""
        return [("record", record) for record in self._corrected]

    @cached_property
    def _corrected(self) -> dict[RecordId, None]:
        """The records that are deleted first, and are there at the end."""
        if self.block is None or self.block.ids is None or not self._leaving:
            return {}
        ids, leaving, first, last = self.block.ids.tolist(), set(self._leaving), dict[RecordId, bool](), set[RecordId]()
        for part in self.content:
            for name in ("ids", "holds"):
                gone = part.get(name, ())
                last.difference_update(gone)
                for record in gone:
                    first.setdefault(record, True)
            start, count = part.get("rows", (0, 0))
            for record in ids[start : start + count]:
                if record in leaving:
                    first.setdefault(record, False)
                    last.add(record)
        return {record: None for record, is_deleted in first.items() if is_deleted and record in last}

    @cached_property
    def _leaving(self) -> list[RecordId]:
        named = (part.get(name, ()) for part in self.content for name in ("ids", "holds"))
        return list(dict.fromkeys(chain.from_iterable(named)))


def _person_in(records: Records, person: RecordId) -> Part:
    """What a dataset holds of a person."""
    named, own = records.slots_of_person(person)
    return {"person": person, "holds": [records.id_of(slot) for slot in (*named, *own)], "named": bool(named)}


class _Arrivals:
    """The records that a batch has added so far and not deleted again, by subject."""

    def __init__(self, block: Block | None) -> None:
        self._ids = [] if block is None or block.ids is None else block.ids.tolist()
        self._subjects = [] if block is None or block.subjects is None else block.subjects.tolist()
        self._owner: dict[RecordId, RecordId] = {}
        self._held: dict[RecordId, dict[RecordId, None]] = {}

    def pass_by(self, part: Part) -> None:
        """Follow a run of deletions or additions."""
        for record in part.get("ids", []):
            self._held.get(self._owner.pop(record, ""), {}).pop(record, None)
        first, count = part.get("rows", (0, 0))
        rows = slice(first, first + count)
        for record, subject in zip(self._ids[rows], self._subjects[rows], strict=False):  # a block may have no subjects
            if subject is not None:
                self._owner[record] = subject
                self._held.setdefault(subject, {})[record] = None

    def leave(self, subject: RecordId) -> list[RecordId]:
        """Delete a subject, and return its records."""
        gone = list(self._held.pop(subject, {}))
        for record in gone:
            del self._owner[record]
        return gone


def _addition(block: Block, classes: NDArray[Any]) -> AddMany:
    assert block.ids is not None
    return AddMany(
        ids=block.ids,
        features=block.features,
        labels=block.labels if block.labels.dtype.kind == "f" else classes[block.labels],
        subjects=None if block.subjects is None else block.subjects.tolist(),
        weights=block.weights,
    )


def _plain(name: RecordId) -> RecordId:
    """A name as plain data in its one form, so that its hash is that of the record's own id."""
    value: RecordId = canonical(name.item() if isinstance(name, np.generic) else name)
    return value


def _all_plain(names: Iterable[RecordId]) -> list[RecordId]:
    """Many names as plain data; whole numbers, of which there may be very many, are so already."""
    listed = list(names)
    return listed if {*map(type, listed)} == {int} else [_plain(name) for name in listed]


def lasting_names(batches: list[Batch], before: Records, after: Records) -> tuple[list[list[Name]], list[Name]]:
    """Return what each batch of a round deletes for good, and what the round adds.

    A subject counts with the records that it has when its batch is applied: another request may have been cancelled
    after it was accepted.
    """
    batches = _found(batches, before)
    back = [name for batch in batches for name in batch.added]
    asked = [list(dict.fromkeys(batch.deleted)) for batch in batches]
    if not back:
        return asked, back
    records = list(dict.fromkeys(name for each in asked for what, name in each if what == "record"))
    is_there = after.index.find_all(records) != NOWHERE
    stays: set[Name] = {("record", name) for name, there in zip(records, is_there.tolist(), strict=True) if there}
    stays |= {(what, name) for each in asked for what, name in each if what == "subject" and _has_records(after, name)}
    return [[name for name in each if name not in stays] for each in asked], back


def _found(batches: list[Batch], records: Records) -> list[Batch]:
    """Return each batch with the records that its subjects have after the batches before it."""
    found, updates = [], list[Update]()
    for batch in batches:
        if batch.names_subjects and updates:
            records, updates = records.apply(updates)[0], []
        found.append(batch.found_in(records))
        updates += batch.updates(records.classes)
    return found


def _has_records(records: Records, subject: RecordId) -> bool:
    return any(not records.index.is_gone(slot) for slot in records.subjects.find(subject))


_HEAD = struct.Struct("<Q")
_SEAL = 32  # bytes


def _dumped(batch: Batch) -> bytes:
    told = json.dumps(batch.content).encode()
    return b"".join([_HEAD.pack(len(told)), told, _packed(batch)])


def _packed(batch: Batch) -> bytes:
    return b"" if batch.block is None else pack(batch.block)


def _loaded(content: bytes) -> Batch:
    end = _HEAD.size + _HEAD.unpack_from(content)[0]
    rows = content[end:]
    return Batch(json.loads(content[_HEAD.size : end]), unpack(rows) if rows else None)


def pack(block: Block) -> bytes:
    """Write a block as bytes: a header that says how to read its columns, then the columns."""
    form = Form.of(block)
    split = form.split(block)
    bodies = [_raw(split[column.name]) for column in form.columns]
    header = json.dumps({"form": form.to_json(), "rows": len(block), "sizes": [len(body) for body in bodies]}).encode()
    return b"".join([_HEAD.pack(len(header)), header, *bodies])


def unpack(data: bytes) -> Block:
    """Read what `pack` wrote."""
    try:
        (size,) = _HEAD.unpack_from(data)
        header = json.loads(data[_HEAD.size : _HEAD.size + size])
        form, rows = Form.from_json(header["form"]), int(header["rows"])
        parts: dict[str, Any] = {}
        at = _HEAD.size + size
        for column, length in zip(form.columns, header["sizes"], strict=True):
            body = data[at : at + length]
            at += length
            if column.dtype is None:
                parts[column.name] = _rows(body, rows)
            else:
                parts[column.name] = np.frombuffer(body, dtype=column.dtype).reshape(rows, *column.shape)
        if at != len(data):
            raise ValueError(f"it is {len(data)} bytes long, expected {at}")
        return form.join(parts)
    except FormatError:
        raise
    except Exception as error:  # other bytes may fail in numpy, scipy or pandas in any way
        raise FormatError(f"a pending addition is damaged: {' '.join(str(error).split())}") from None


def _raw(values: Any) -> bytes:
    if isinstance(values, list):
        return np.array([len(row) for row in values], dtype="<i8").tobytes() + b"".join(values)
    return np.ascontiguousarray(values).tobytes()


def _rows(body: bytes, count: int) -> list[bytes]:
    lengths = np.frombuffer(body, dtype="<i8", count=count)
    ends = 8 * count + np.cumsum(lengths)
    if (lengths < 0).any() or 8 * count + lengths.sum() != len(body):
        raise ValueError("its rows do not fill their column")
    starts = np.concatenate([[8 * count], ends[:-1]]) if count else ends
    return [body[low:high] for low, high in zip(starts.tolist(), ends.tolist(), strict=True)]


KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class Request:
    """One request, as it stands now.

    Attributes
    ----------
    request
        Its id.
    kind
        "deletion", "addition", "correction" or "mixed".
    state
        "pending", "switched", "applied" or "cancelled"; see `public_state`.
    accepted_at
        When it was accepted.
    applied_by
        The date of its application, or of its cancellation; None while it is pending.
    generation, round
        Where it was applied; None before that. Under a consensus requesters are not shown the generation: it would tell
        whether one failed.
    deletions, additions, corrections
        How many records it deletes, adds and corrects.
    """

    request: str
    kind: str
    state: str  # "pending", "switched", "applied" or "cancelled"
    accepted_at: str
    applied_by: str | None
    generation: int | None
    round: int | None
    deletions: int
    additions: int
    corrections: int = 0

    @classmethod
    def new(cls, batch: Batch, at: str = "") -> Request:
        """A new request that asks for a batch. It may get its time later."""
        counts = batch.num_deleted, batch.num_added, batch.num_corrected
        return cls(secrets.token_hex(16), batch.kind, "pending", at, None, None, None, *counts)

    @property
    def public_state(self) -> str:
        """The state that the requester sees: a request counts as applied when what it deleted is erased."""
        return "pending" if self.state == "switched" else self.state


_COLUMNS = "request, kind, state, accepted_at, applied_by, generation, round, deletions, additions, corrections"
_INSERT = (
    "INSERT INTO requests (request, key, fingerprint, kind, state, accepted_at, applied_by, generation, round, "
    "deletions, additions, corrections, file, start, length, cell) VALUES (" + "?, " * 15 + "?)"
)
# One statement with one value for all hashes: there may be many.
_REMEMBER = (
    "WITH RECURSIVE place(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM place WHERE i + 1 < ?2) "
    "INSERT OR REPLACE INTO forgotten SELECT substr(?1, 1 + 32 * i, 32), "
    "(SELECT number FROM requests WHERE request = ?3) FROM place"
)


class RequestBook:
    """The requests of one deployment, in its database."""

    def __init__(self, store: Store, hash_key: bytes) -> None:
        self._store = store
        self._hash_key = hash_key
        self._digest = keyed_hash(hash_key)

    def hash_of(self, what: str, name: RecordId) -> bytes:
        """Return the keyed hash (HMAC-SHA256) that stands for a record or a subject."""
        if isinstance(name, int):
            return self._digest(b"%b:i:%d" % (what.encode(), name))
        return self._digest(f"{what}:s:{canonical(name)}".encode())

    def accept(self, asked: Sequence[tuple[Request, Batch, str | None]]) -> None:
        """Write new requests to the disk as pending, inside the caller's transaction, with their keys."""
        report_step("accept.begin")
        with self._store.explain_errors():
            told = [self._store.seal(self._sealed(one.request, _dumped(batch))) for one, batch, _ in asked]
            self._store.flush_keys()
            spans = self._store.waiting.append([content for content, _ in told])
        report_step("accept.staged")
        for each, span, (_, cell) in zip(asked, spans, told, strict=True):
            self._insert(*each, *span, cell)

    def accept_switched(
        self, request: Request, batch: Batch, key: str | None, *, generation: int, round: int
    ) -> Request:
        """Write a new request that is in force from the same transaction on: what it asks for is in no file."""
        switched = replace(request, state="switched", generation=generation, round=round)
        self._insert(switched, batch, key, None, None, None, None)
        return switched

    def _insert(self, request: Request, batch: Batch, key: str | None, *where: Any) -> None:
        values = [request.request, self._key(key), self._kept_fingerprint(batch, key), *astuple(request)[1:], *where]
        self._store.database.execute(_INSERT, values)
        hashes = self._hashes(request.request, batch.records)
        self._store.database.execute("INSERT INTO hashes VALUES (?, ?)", (request.request, hashes))

    def _hashes(self, request: str, records: Iterable[RecordId]) -> bytes:
        """The keyed hashes of records, under a key of the request's own."""
        return joined_hashes(request_key(self._hash_key, request), records)

    def _key(self, key: str | None) -> bytes | None:
        return (
            None
            if key is None
            else hmac.digest(self._hash_key, f"key:{key}".encode("utf-8", "surrogatepass"), "sha256")
        )

    def fingerprint(self, batch: Batch) -> bytes:
        """Return a keyed hash of what is asked for, to tell a repeated request from another one with the same key."""
        asked = [{name: part[name] for name in part if name not in _FOUND} for part in batch.content]
        content = b"request:" + json.dumps(asked).encode() + b"\0" + _packed(batch)
        return hmac.digest(self._hash_key, content, "sha256")

    def _kept_fingerprint(self, batch: Batch, key: str | None) -> bytes:
        """None is kept of what adds or corrects records: the features of one that is deleted later could be guessed."""
        return b"" if key is None or batch.block is not None else self.fingerprint(batch)

    def _sealed(self, request: str, content: bytes) -> bytes:
        """The content of a request's file: with a keyed hash that belongs to this request."""
        return hmac.digest(self._hash_key, f"waiting:{request}:".encode() + content, "sha256") + content

    def is_same(self, request: str, batch: Batch) -> bool:
        """Return whether the request asked for this batch. Once records were added, only their ids are compared."""
        row = self._store.database.row("SELECT fingerprint, state FROM requests WHERE request = ?", (request,))
        if row is None:
            return False
        if row[0] or row[1] == "pending":
            kept = bytes(row[0]) or self.fingerprint(self.batch_of(request))
            return hmac.compare_digest(kept, self.fingerprint(batch))
        known = self.get(request)
        if (known.kind, known.additions, known.corrections) != (batch.kind, batch.num_added, batch.num_corrected):
            return False
        return batch.names_subjects or self._kept_hashes(request) == self._hashes(request, batch.records)

    def names(self, request: str, records: Iterable[RecordId]) -> bool:
        """Return whether the request named these records and no others."""
        return self._kept_hashes(request) == self._hashes(request, map(_plain, records))

    def by_key(self, key: str) -> Request | None:
        """Return the request with this idempotency key, or None."""
        row = self._store.database.row(f"SELECT {_COLUMNS} FROM requests WHERE key = ?", (self._key(key),))
        return None if row is None else Request(*row)

    def hashes_of(self, request: str) -> tuple[str, ...]:
        """Return the keyed hashes that were kept of a request."""
        return split_hashes(self._kept_hashes(request))

    def digest_of(self, request: str) -> str:
        """Return the digest of these hashes, as `digest_of_hashes` gives it."""
        return hashlib.sha256(self._kept_hashes(request)).hexdigest()

    def _kept_hashes(self, request: str) -> bytes:
        row = self._store.database.row("SELECT CAST(hashes AS BLOB) FROM hashes WHERE request = ?", (request,))
        found = b"" if row is None else bytes(row[0])
        if len(found) % 32:
            raise FormatError(f"{self._store.folder}: the hashes of request {request} are damaged")
        return found

    def get(self, request: str) -> Request:
        """Return the request with this id. An unknown id raises an error that names it."""
        if not isinstance(request, str):
            raise RequestError(f"a request's id is a text (`receipt.request`), got {request!r:.80}")
        query = f"SELECT {_COLUMNS} FROM requests WHERE request = ?"
        row = self._store.database.row(query, (request,)) if request.isascii() else None
        if row is None:
            raise RequestError(f"there is no request {request!r:.80}")
        return Request(*row)

    def all(self) -> list[Request]:
        """Return all requests, oldest first."""
        return [Request(*row) for row in self._store.database.rows(f"SELECT {_COLUMNS} FROM requests ORDER BY number")]

    def page(
        self, *, state: str | None, after: str | None, limit: int | None, newest_first: bool = False
    ) -> list[Request]:
        """Return requests in the order in which they were accepted, or the other way round; see `DurableDeployment`."""
        conditions, values = ["1"], list[Any]()
        if state is not None:
            conditions.append("state IN ('pending', 'switched')" if state == "pending" else "state = ?")
            values += [] if state == "pending" else [state]
        if after is not None:
            compare = "<" if newest_first else ">"
            conditions.append(f"number {compare} (SELECT number FROM requests WHERE request = ?)")
            values.append(after)
        order = "DESC" if newest_first else "ASC"
        query = f"SELECT {_COLUMNS} FROM requests WHERE {' AND '.join(conditions)} ORDER BY number {order} LIMIT ?"
        return [Request(*row) for row in self._store.database.rows(query, (*values, -1 if limit is None else limit))]

    def in_state(self, state: str) -> list[Request]:
        """Return the requests in a state, oldest first."""
        query = f"SELECT {_COLUMNS} FROM requests WHERE state = ? ORDER BY number"
        return [Request(*row) for row in self._store.database.rows(query, (state,))]

    def num_pending(self) -> int:
        """Return how many requests are not applied yet."""
        row = self._store.database.row("SELECT COUNT(*) FROM requests WHERE state IN ('pending', 'switched')")
        return 0 if row is None else int(row[0])

    def num_waiting(self, *, at_most: int, after: str | None) -> tuple[int, str | None]:
        """Count the pending requests, or those accepted after one of them. Also return when the oldest was accepted.

        Counting stops at `at_most`: there may be very many.
        """
        rows = self._store.database.rows(
            "SELECT accepted_at FROM requests WHERE state = 'pending' AND number > "
            "COALESCE((SELECT number FROM requests WHERE request = ?), 0) ORDER BY number LIMIT ?",
            (after, at_most),
        )
        return len(rows), rows[0][0] if rows else None

    def batch_of(self, request: str) -> Batch:
        """Return what a pending request asks for, exactly as it was accepted."""
        row = self._store.database.row("SELECT file, start, length, cell FROM requests WHERE request = ?", (request,))
        assert row is not None
        with self._store.explain_errors():
            found = self._store.unseal(self._store.waiting.read(Span(*row[:3])), row[3]) or b""
        content = found[_SEAL:]
        if not hmac.compare_digest(found, self._sealed(request, content)):
            raise FormatError(f"request {request} is not what was accepted: its file {row[0]} is damaged")
        return _loaded(content)

    def cell_of(self, request: str) -> int | None:
        """Where the key of what a pending request asks for lies; None if it has none."""
        row = self._store.database.row("SELECT cell FROM requests WHERE request = ?", (request,))
        return None if row is None else row[0]

    def mark_switched(self, request: str, *, generation: int, round: int) -> None:
        """Mark a request as in force, and forget its file; inside the caller's transaction."""
        self._store.database.execute(
            "UPDATE requests SET state = 'switched', generation = ?, round = ?, "
            "file = NULL, start = NULL, length = NULL, cell = NULL WHERE request = ? AND state = 'pending'",
            (generation, round, request),
        )

    def mark_applied(self, request: str, *, applied_by: str) -> None:
        """Mark a request as applied: what it deleted is erased. Inside the caller's transaction."""
        self._store.database.execute(
            "UPDATE requests SET state = 'applied', applied_by = ? WHERE request = ? AND state = 'switched'",
            (applied_by, request),
        )

    def mark_cancelled(self, request: str, *, now: str) -> None:
        """Cancel a pending request and free its key, inside the caller's transaction. The caller removes its file."""
        state = self.get(request).state
        if state != "pending":
            raise RequestError(f"request {request} is {state.replace('switched', 'being applied')}: too late to cancel")
        self._store.database.execute(
            "UPDATE requests SET state = 'cancelled', applied_by = ?, "
            "file = NULL, start = NULL, length = NULL, cell = NULL, fingerprint = x'', key = NULL WHERE request = ?",
            (now, request),
        )
        self._store.database.execute("DELETE FROM hashes WHERE request = ?", (request,))

    def forget(self, *, before: str) -> list[str]:
        """Erase all that is kept of requests that were done before a time; inside the caller's transaction.

        The keyed hashes that keep deleted records from coming back stay. Returns the requests.
        """
        query = "SELECT request FROM requests WHERE state IN ('applied', 'cancelled') AND applied_by < ?"
        found = [request for (request,) in self._store.database.rows(query, (before,))]
        self._store.database.execute_many(
            "UPDATE forgotten SET request = NULL WHERE request = (SELECT number FROM requests WHERE request = ?)",
            [(request,) for request in found],
        )
        for table in ("hashes", "requests"):
            rows = [(request,) for request in found]
            self._store.database.execute_many(f"DELETE FROM {table} WHERE request = ?", rows)
        return found

    def remember(self, names: Iterable[Name], request: str | None = None) -> None:
        """Remember that these were deleted, and by which request; inside the caller's transaction.

        So they do not come back, and whoever asks again is told when they were deleted.
        """
        digest = self._digest
        hashes = [
            digest(b"record:i:%d" % name) if what == "record" and type(name) is int else self.hash_of(what, name)
            for what, name in names
        ]
        hashes.sort()  # in the table's order: neighbours share a page
        if hashes:
            self._store.database.execute(_REMEMBER, (b"".join(hashes), len(hashes), request))

    def deleted_by(self, what: str, name: RecordId) -> tuple[bool, Request | None]:
        """Whether a record or a subject was deleted on request, and the request; None if it was forgotten since."""
        row = self._store.database.row("SELECT request FROM forgotten WHERE hash = ?", (self.hash_of(what, name),))
        if row is None:
            return False, None
        found = self._store.database.row(f"SELECT {_COLUMNS} FROM requests WHERE number = ?", row)
        return True, None if found is None else Request(*found)

    def about(self, records: Iterable[RecordId], subjects: Iterable[RecordId]) -> list[Request]:
        """The requests that name one of these records, or deleted one of these subjects, oldest first.

        A pending request is read. Of the others keyed hashes are compared.
        """
        records, subjects = list(records), list(subjects)
        names: set[Name] = {("record", name) for name in records} | {("subject", name) for name in subjects}
        by = {found.request for name in names for _, found in [self.deleted_by(*name)] if found is not None}
        return [each for each in self.all() if each.request in by or self._names_any(each, records, names)]

    def _names_any(self, request: Request, records: list[RecordId], names: set[Name]) -> bool:
        if request.state == "pending":
            asked = self.batch_of(request.request)
            return not names.isdisjoint({*asked.deleted, *asked.added})
        if request.state == "cancelled":
            return False  # what it asked for was erased
        own = set(self.hashes_of(request.request))
        return not own.isdisjoint(split_hashes(self._hashes(request.request, records)))

    def readmit(self, names: Iterable[Name]) -> None:
        """Forget that these were deleted, because they came back on purpose; inside the caller's transaction."""
        if self._guards_anything():
            rows = [(self.hash_of(*name),) for name in names]
            self._store.database.execute_many("DELETE FROM forgotten WHERE hash = ?", rows)

    def refuse_forgotten(self, names: Iterable[Name]) -> None:
        """Raise an error that names the first of these that was deleted on request."""
        if not self._guards_anything():
            return
        for what, name in names:
            if self._store.database.row("SELECT 1 FROM forgotten WHERE hash = ?", (self.hash_of(what, name),)):
                whose = "id" if what == "record" else "subject"
                message = (
                    f"the {whose} {name!r} was deleted on request; to bring it back on purpose, say readmit (--readmit)"
                )
                raise RecordError(message, name)

    def guard(self) -> set[bytes]:
        """The keyed hashes of everything that was deleted on request and has not come back."""
        return {bytes(row[0]) for row in self._store.database.rows("SELECT hash FROM forgotten")}

    def find_named(self, request: str, records: Iterable[RecordId]) -> list[RecordId]:
        """Which of these records a request names, by the keyed hashes that are kept of it."""
        own, key = set(self.hashes_of(request)), request_key(self._hash_key, request)
        return [record for record in records if hash_id(key, record) in own] if own else []

    def revive(self, request: str, records: list[RecordId]) -> None:
        """Make the content of a pending deletion anew, inside the caller's transaction: it was lost."""
        batch = Batch([{"ids": records}] if records else [], None)
        with self._store.explain_errors():
            content, cell = self._store.seal(self._sealed(request, _dumped(batch)))
            self._store.flush_keys()
            (span,) = self._store.waiting.append([content])
        self._store.database.execute(
            "UPDATE requests SET file = ?2, start = ?3, length = ?4, cell = ?5 WHERE request = ?1",
            (request, *span, cell),
        )

    def _guards_anything(self) -> bool:
        return self._store.database.row("SELECT 1 FROM forgotten LIMIT 1") is not None
