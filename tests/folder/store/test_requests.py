"""Requests in the database: states, keys, fingerprints, and the guard against what was deleted coming back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from expunge.core.errors import FormatError, RecordError, RequestError, StoreError
from expunge.core.records import Add, AddMany, Delete, DeleteSubject, Records
from expunge.evidence import digest_of_hashes, hash_ids, request_key
from expunge.folder.store import Store
from expunge.folder.store.requests import Batch, Request, RequestBook

NOW = "2030-01-01T00:00:00Z"
KEY = bytes(range(32))
RECORDS = Records.build(
    np.arange(8, dtype=np.float32).reshape(4, 2),
    [0, 1, 0, 1],
    ids=[1, 2, "x", 4],
    subjects=["s", None, "s", "t"],
    weights=[1.0] * 4,
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store.new(tmp_path / "folder")
    yield made
    made.close()


@pytest.fixture
def book(store: Store) -> RequestBook:
    return RequestBook(store, KEY)


def addition(number: int = 7) -> Batch:
    return Batch.dump([AddMany(ids=[number], features=[[1.0, 2.0]], labels=[1], subjects=["u"])], RECORDS)


def accept_all(book: RequestBook, asked: list[tuple[Batch, str | None, str]]) -> list[Request]:
    made = [Request.new(batch, now) for batch, _, now in asked]
    book.accept([(request, batch, key) for request, (batch, key, _) in zip(made, asked, strict=True)])
    return made


def accept(book: RequestBook, *updates: Any, key: str | None = None) -> Request:
    return accept_all(book, [(Batch.dump(list(updates), RECORDS), key, NOW)])[0]


def test_an_accepted_request_waits_with_what_it_asks_for(store: Store, book: RequestBook) -> None:
    request = accept_all(book, [(addition(), None, NOW)])[0]
    assert (request.state, request.public_state, request.kind) == ("pending", "pending", "addition")
    assert (request.deletions, request.additions, request.accepted_at) == (0, 1, NOW)
    assert request.applied_by is request.generation is request.round is None
    assert len(list((store.folder / "waiting").iterdir())) == 1
    found = book.batch_of(request.request)
    assert found.content == addition().content
    assert found.block is not None
    assert found.block.ids is not None
    assert found.block.ids.tolist() == [7]
    assert book.get(request.request) == request == RequestBook(store, KEY).get(request.request)


def test_requests_keep_their_order(book: RequestBook) -> None:
    made = [accept(book, Delete(record)).request for record in (1, 2, "x", 4)]
    assert [one.request for one in book.all()] == made == [one.request for one in book.in_state("pending")]
    assert book.num_pending() == 4


def test_the_states_of_a_request(book: RequestBook) -> None:
    request = accept(book, Delete(1), DeleteSubject("s")).request
    book.mark_switched(request, generation=3, round=5)
    half = book.get(request)
    assert (half.state, half.public_state, half.generation, half.round) == ("switched", "pending", 3, 5)
    assert book.num_pending() == 1
    with pytest.raises(RequestError, match="being applied: too late to cancel"):
        book.mark_cancelled(request, now=NOW)
    book.mark_applied(request, applied_by="2030-01-01T00:01:00Z")
    assert book.get(request).public_state == "applied"
    assert book.get(request).applied_by == "2030-01-01T00:01:00Z"
    assert book.num_pending() == 0
    with pytest.raises(RequestError, match="is applied: too late to cancel"):
        book.mark_cancelled(request, now=NOW)


def test_a_step_is_taken_from_its_own_state_only(book: RequestBook) -> None:
    request = accept(book, Delete(1)).request
    book.mark_applied(request, applied_by=NOW)
    assert book.get(request).state == "pending"
    book.mark_cancelled(request, now=NOW)
    book.mark_switched(request, generation=1, round=1)
    assert book.get(request).state == "cancelled"


def test_nothing_in_clear_is_left_of_a_request_that_was_switched(store: Store, book: RequestBook) -> None:
    request = accept(book, Delete("x")).request
    book.mark_switched(request, generation=1, round=1)
    row = store.database.row("SELECT file, start, length FROM requests")
    assert row == (None, None, None)
    store.sweep_waiting()
    assert not list((store.folder / "waiting").iterdir())


def test_nothing_at_all_is_left_of_a_request_that_was_cancelled(store: Store, book: RequestBook) -> None:
    request = accept_all(book, [(addition(), None, NOW)])[0].request
    book.mark_cancelled(request, now=NOW)
    row = store.database.row("SELECT file, start, length, fingerprint FROM requests")
    assert row == (None, None, None, b"")
    assert store.database.rows("SELECT * FROM hashes") == []
    assert book.hashes_of(request) == ()


def test_unknown_requests_are_named(book: RequestBook) -> None:
    with pytest.raises(RequestError, match="there is no request 'nobody'"):
        book.get("nobody")
    assert book.hashes_of("nobody") == ()
    assert book.by_key("nobody") is None


def test_keys_are_kept_as_hashes_and_are_unique(store: Store, book: RequestBook) -> None:
    request = accept(book, Delete(1), key="order 66")
    assert book.by_key("order 66") == request
    assert book.by_key("order 67") is None
    row = store.database.row("SELECT key FROM requests")
    assert row is not None
    assert b"order" not in row[0]
    assert len(row[0]) == 32
    with pytest.raises(StoreError, match="UNIQUE"):
        accept(book, Delete(2), key="order 66")


def test_fingerprints_tell_batches_apart(book: RequestBook) -> None:
    batches = [
        [Delete(1)],
        [Delete(2)],
        [Delete(2), Delete(1)],
        [Delete("x")],
        [DeleteSubject("s")],
        [Add(id=9, features=[1.0, 2.0], label=1)],
        [Add(id=9, features=[1.0, 2.0], label=0)],
        [Add(id=9, features=[1.0, 3.0], label=1)],
        [Add(id="9", features=[1.0, 2.0], label=1)],
        [Add(id=9, features=[1.0, 2.0], label=1, subject="s")],
        [Add(id=9, features=[1.0, 2.0], label=1, weight=0.5)],
        [Delete(1), Add(id=9, features=[1.0, 2.0], label=1)],
    ]
    prints = [book.fingerprint(Batch.dump(batch, RECORDS)) for batch in batches]  # type: ignore[arg-type]
    assert len(set(prints)) == len(batches)


def test_a_subjects_fingerprint_does_not_depend_on_its_records(book: RequestBook) -> None:
    """Asked again after it was applied, it is still the same request."""
    after, _ = RECORDS.apply([DeleteSubject("s")])
    before = Batch.dump([DeleteSubject("s")], RECORDS)
    assert book.fingerprint(before) == book.fingerprint(Batch.dump([DeleteSubject("s")], after))


def test_hashes_depend_on_the_request_and_not_on_the_order(book: RequestBook) -> None:
    one, two = accept(book, Delete(1), Delete(2)), accept(book, Delete(2), Delete(1))
    batch = Batch.dump([Delete(2), Delete(1)], RECORDS)
    assert book.hashes_of(one.request) == hash_ids(request_key(KEY, one.request), batch.records)
    assert book.digest_of(one.request) == digest_of_hashes(book.hashes_of(one.request))
    assert set(book.hashes_of(one.request)).isdisjoint(book.hashes_of(two.request))


@pytest.mark.parametrize("where", ["file", "place", "missing"])
def test_a_waiting_request_that_was_changed_is_noticed(store: Store, book: RequestBook, where: str) -> None:
    accept_all(book, [(addition(8), None, NOW)])
    request = accept_all(book, [(addition(), None, NOW)])[0].request
    (path,) = (store.folder / "waiting").iterdir()
    if where == "file":
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
    elif where == "place":
        store.database.execute("UPDATE requests SET start = 0")
    else:
        path.unlink()
    with pytest.raises(StoreError) as caught:
        book.batch_of(request)
    assert isinstance(caught.value, FormatError) or where == "missing"


def test_requests_share_a_file_until_they_are_applied(store: Store, book: RequestBook) -> None:
    waiting = store.folder / "waiting"
    made = accept_all(book, [(addition(7), None, NOW), (addition(8), None, NOW)])
    made += accept_all(book, [(addition(9), None, NOW)])
    first, second, third = (request.request for request in made)
    (path,) = waiting.iterdir()
    before = path.read_bytes()
    book.mark_cancelled(second, now=NOW)
    store.sweep_waiting()
    changed = path.read_bytes()
    assert len(changed) == len(before)
    length = len(before) // 3  # of each
    assert changed == before[:length] + bytes(length) + before[2 * length :]
    assert [book.batch_of(request).block.ids.tolist() for request in (first, third)] == [[7], [9]]  # type: ignore
    store.waiting.begin_anew()
    fourth = accept_all(book, [(addition(10), None, NOW)])[0].request
    assert len(list(waiting.iterdir())) == 2
    for request in (first, third):
        book.mark_switched(request, generation=1, round=1)
    store.sweep_waiting()
    assert path not in waiting.iterdir()
    assert book.batch_of(fourth).added[0] == ("record", 10)


def test_the_guard_knows_ids_and_subjects_apart(book: RequestBook) -> None:
    book.refuse_forgotten([("record", 1), ("subject", "s")])
    book.remember([("record", 1), ("subject", "s"), ("record", 1)])
    for name in (("record", "1"), ("record", "s"), ("subject", 1), ("record", 2)):
        book.refuse_forgotten([name])  # type: ignore[list-item]
    with pytest.raises(RecordError, match=r"the id 1 was deleted on request; .* say readmit") as caught:
        book.refuse_forgotten([("record", 5), ("record", 1)])
    assert caught.value.record == 1
    with pytest.raises(RecordError, match="the subject 's' was deleted on request"):
        book.refuse_forgotten([("subject", "s")])
    book.readmit([("record", 1), ("record", 77)])
    book.refuse_forgotten([("record", 1)])
    with pytest.raises(RecordError):
        book.refuse_forgotten([("subject", "s")])


def test_the_guard_keeps_no_name_in_clear(store: Store, book: RequestBook) -> None:
    book.remember([("record", "somebody in particular")])
    store.database.checkpoint()
    assert b"somebody" not in (store.folder / "state.db").read_bytes()


def test_waiting_requests_are_counted_as_far_as_is_needed(book: RequestBook) -> None:
    assert book.num_waiting(at_most=3, after=None) == (0, None)
    times = [f"2030-01-0{number}T00:00:00Z" for number in range(1, 6)]
    accepted = [accept_all(book, [(addition(number), None, at)])[0] for number, at in enumerate(times)]
    assert book.num_waiting(at_most=3, after=None) == (3, accepted[0].accepted_at)
    assert book.num_waiting(at_most=9, after=None) == (5, accepted[0].accepted_at)
    assert book.num_waiting(at_most=9, after=accepted[1].request) == (3, accepted[2].accepted_at)
    book.mark_switched(accepted[0].request, generation=1, round=1)
    assert book.num_waiting(at_most=9, after=None) == (4, accepted[1].accepted_at)
    assert book.num_waiting(at_most=0, after=None) == (0, None)
