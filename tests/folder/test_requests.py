"""What people ask for: keys, batching, cancelling, and the guard against what was deleted coming back."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import expunge
from expunge import Add, AddMany, Delete, DeleteSubject
from expunge.core.errors import InputError, RecordError, RequestError, StoreError, UnknownRecordError
from expunge.evidence import hash_ids, request_key, verify
from expunge.folder import DurableDeployment
from expunge.folder.store import steps
from expunge.training.learners import LookupTableLearner

X = np.arange(40, dtype=np.float32).reshape(20, 2)
Y = np.arange(20) % 2


@pytest.fixture
def deployment(folder: Path) -> Iterator[DurableDeployment]:
    made = expunge.create(
        folder,
        LookupTableLearner(),
        X,
        Y,
        n_shards=3,
        subjects=[f"s{n % 5}" if n % 4 else None for n in range(20)],
        apply="manual",
    )
    yield made
    made.close()


def reopened(deployment: DurableDeployment) -> DurableDeployment:
    deployment.close()
    return expunge.open(deployment.path)


def added(record: Any, *, subject: Any = None) -> Add:
    return Add(id=record, features=[1.0, 2.0], label=1, subject=subject)


# Receipts.


def test_a_receipt_says_pending_and_then_applied(deployment: DurableDeployment) -> None:
    receipt = deployment.delete([1])
    assert (receipt.state, receipt.round) == ("pending", None)
    assert deployment.status.pending == 1
    assert 1 in deployment.records  # in force only once it is applied
    assert deployment.apply() == 1
    found = deployment.request(receipt.request)
    assert (found.state, found.round, found.generation) == ("applied", 1, 1)
    assert deployment.status.pending == 0
    assert deployment.apply() is None
    assert deployment.delete([2], apply=True).state == "applied"


def test_everything_pending_is_one_round(deployment: DurableDeployment) -> None:
    requests = [deployment.submit([Delete(n)]).request for n in range(3)]
    requests.append(deployment.submit([added("a"), added("b")]).request)
    assert deployment.apply() == deployment.status.round == 1
    assert {deployment.request(one).round for one in requests} == {1}
    assert [one.request for one in deployment.requests()] == requests


def test_pending_requests_survive_and_are_checked_against_one_another(deployment: DurableDeployment) -> None:
    deployment.submit([Delete(1)])
    deployment.submit([added("new")])
    found = deployment
    for _ in range(2):
        found = reopened(found)
        with pytest.raises(UnknownRecordError, match="no record has the id 1"):
            found.submit([Delete(1)])
        with pytest.raises(RecordError, match="the id 'new' is in use"):
            found.submit([added("new")])
        assert found.status.pending == 2
    found.submit([Delete("new")])
    assert found.apply() == 1
    assert "new" not in found.records
    found.close()


def test_deleting_a_subject_takes_those_along_who_came_meanwhile(deployment: DurableDeployment) -> None:
    deployment.submit([added("late", subject="s1")])
    request = deployment.submit([DeleteSubject("s1")])
    assert request.deletions == 4  # 1, 6, 11 and the late one
    deployment.apply()
    assert all(record not in deployment.records for record in (1, 6, 11, "late"))


def test_the_hashes_of_a_request_are_its_records(deployment: DurableDeployment) -> None:
    request = deployment.submit([Delete(3), DeleteSubject("s1"), Delete(4), added(4)]).request
    deployment.apply()
    certificate = deployment.certificate(request)
    assert verify(certificate.to_json()).wrong == ()
    assert certificate.request is not None
    counts = certificate.request
    assert (counts.num_deletions, counts.num_additions, counts.num_corrections) == (
        4,
        0,
        1,
    )  # 4 says something else now
    secret = (deployment.path / "keys" / "hashing.key").read_bytes()
    assert certificate.request.id_hashes == hash_ids(request_key(secret, request), [3, 1, 6, 11, 4])


def test_a_record_named_twice_is_certified_once(deployment: DurableDeployment) -> None:
    request = deployment.submit([Delete(1), DeleteSubject("s1")]).request
    certificate = deployment.certificate(request)
    assert certificate.request is not None
    assert certificate.request.num_deletions == 3
    assert verify(certificate.to_json()).wrong == ()


# Idempotency keys.


def test_the_same_request_twice_is_one_request(deployment: DurableDeployment) -> None:
    asked: list[Any] = [Delete(1), DeleteSubject("s2"), added("new", subject="s9")]
    first = deployment.submit(asked, key="k")
    assert deployment.submit(asked, key="k") == first
    found = reopened(deployment)
    assert found.submit(asked, key="k") == first
    assert found.status.pending == 1
    found.apply()
    for _ in range(2):
        receipt = found.update(asked, key="k")
        assert (receipt.request, receipt.state, receipt.round) == (first.request, "applied", 1)
        assert found.status.round == 1
        with pytest.raises(RequestError, match="used for another request"):
            found.update([Delete(2)], key="k")
        found = reopened(found)
    found.close()


@pytest.mark.parametrize(
    "other",
    [
        [Delete(2)],
        [Delete(1), Delete(2)],
        [DeleteSubject("s1")],
        [added(1)],
        [Delete(1), added("x")],
    ],
)
def test_another_request_under_the_same_key_is_refused(deployment: DurableDeployment, other: list[Any]) -> None:
    deployment.submit([Delete(1)], key="k")
    with pytest.raises(RequestError, match="used for another request"):
        deployment.submit(other, key="k")
    assert deployment.status.pending == 1


def test_other_numbers_under_the_same_key_are_refused(deployment: DurableDeployment) -> None:
    def rows(value: float) -> list[Any]:
        return [AddMany(ids=[50], features=[[value, 0.0]], labels=[1])]

    first = deployment.submit(rows(1.0), key="k")
    assert deployment.submit([Add(id=50, features=np.array([1, 0]), label=1)], key="k") == first  # said otherwise
    with pytest.raises(RequestError):
        deployment.submit(rows(1.5), key="k")


@pytest.mark.parametrize("record", [1, 2])
def test_the_key_of_a_request_that_was_cancelled_is_free(deployment: DurableDeployment, record: int) -> None:
    request = deployment.submit([Delete(1)], key="k").request
    deployment.cancel(request)
    receipt = deployment.update([Delete(record)], key="k", apply=True)
    assert receipt.request != request
    assert (receipt.state, receipt.round) == ("applied", 1)
    assert record not in deployment.records
    assert deployment.update([Delete(record)], key="k").request == receipt.request
    assert deployment.request(request).state == "cancelled"


def test_nothing_that_is_kept_of_an_addition_tells_features_apart(folder: Path) -> None:
    """Until it is in force other features under the same key are another request; then only ids are known."""
    one, other = ([Add(id="brief", features=[number, 2.0], label="a")] for number in (1.0, 3.0))
    with expunge.create(folder, LookupTableLearner(), X, ["a", "b"] * 10, n_shards=3, apply="manual") as deployment:
        pending = deployment.update(one, key="k")
        with pytest.raises(RequestError, match="used for another request"):
            deployment.update(other, key="k")
        deployment.apply()
        assert deployment.update(one, key="k").request == deployment.update(other, key="k").request == pending.request
        row = deployment._store.database.row("SELECT fingerprint FROM requests WHERE request = ?", (pending.request,))
        assert row is not None
        assert bytes(row[0]) == b""


def test_a_refused_request_does_not_use_its_key_up(deployment: DurableDeployment) -> None:
    with pytest.raises(UnknownRecordError):
        deployment.submit([Delete(99)], key="k")
    assert deployment.submit([Delete(1)], key="k").state == "pending"


# Cancelling.


def test_a_cancelled_request_leaves_nothing(deployment: DurableDeployment) -> None:
    pattern = np.array([4711.5, 1174.5], dtype=np.float32)
    request = deployment.submit([Delete(1), Add(id="somebody new", features=pattern, label=0)])
    deployment.cancel(request.request)
    assert deployment.request(request.request).state == "cancelled"
    assert deployment.submit([Delete(1)]).state == "pending"  # free to be asked for again
    for path in deployment.path.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert b"somebody new" not in content, path.name
            assert pattern.tobytes() not in content, path.name
    certificate = deployment.certificate(request.request)
    assert certificate.request is not None
    assert certificate.request.id_hashes == ()
    assert verify(certificate.to_json()).wrong == ()


def test_only_what_is_pending_can_be_cancelled(deployment: DurableDeployment) -> None:
    request = deployment.delete([1], apply=True).request
    with pytest.raises(RequestError, match="is applied: too late to cancel"):
        deployment.cancel(request)
    with pytest.raises(RequestError, match="there is no request 'x'"):
        deployment.cancel("x")
    second = deployment.submit([Delete(2)]).request
    deployment.cancel(second)
    with pytest.raises(RequestError, match="is cancelled: too late"):
        deployment.cancel(second)


def test_what_others_build_on_cannot_be_cancelled(deployment: DurableDeployment) -> None:
    first = deployment.submit([added("new")]).request
    second = deployment.submit([Delete("new")]).request
    deletion = deployment.submit([Delete(3)]).request
    return_ = deployment.submit([added(3)], readmit=True).request
    for request, words in ((first, "no record has the id 'new'"), (deletion, "the id 3 is in use")):
        with pytest.raises(RequestError, match=f"cannot be cancelled, a later one builds on it: {words}"):
            deployment.cancel(request)
    assert deployment.status.pending == 4
    deployment.cancel(return_)
    deployment.cancel(deletion)
    deployment.cancel(second)
    deployment.cancel(first)
    assert deployment.status.pending == 0
    assert deployment.submit([Delete(3)]).state == "pending"


def test_cancelling_one_of_several(deployment: DurableDeployment) -> None:
    requests = [deployment.submit([Delete(n)]).request for n in range(4)]
    deployment.cancel(requests[1])
    found = reopened(deployment)
    found.apply()
    assert [n in found.records for n in range(4)] == [False, True, False, False]
    found.close()


# The guard.


@pytest.mark.parametrize("how", ["pending", "applied", "reopened"])
@pytest.mark.parametrize(
    ("gone", "back"),
    [
        (Delete(1), added(1)),
        (Delete(1), AddMany(ids=[77, 1], features=X[:2], labels=[0, 1])),
        (DeleteSubject("s1"), added("other", subject="s1")),
        (DeleteSubject("s1"), added(6)),  # a record of the subject, under nobody's name
    ],
    ids=["id", "bulk", "subject", "record of a subject"],
)
def test_what_was_deleted_does_not_silently_come_back(
    deployment: DurableDeployment, gone: Any, back: Any, how: str
) -> None:
    deployment.submit([gone])
    if how != "pending":
        deployment.apply()
    if how == "reopened":
        deployment = reopened(deployment)
    records = deployment.records.ids()
    with pytest.raises((RecordError, RequestError), match=r"deleted on request; .* say readmit"):
        deployment.submit([back])
    assert deployment.records.ids() == records
    assert deployment.update([back], readmit=True, apply=True).state == "applied"
    deployment.submit(list(map(Delete, [back.id] if isinstance(back, Add) else back.ids)))  # and deleted again
    deployment.apply()
    with pytest.raises(RecordError, match="deleted on request"):
        deployment.submit([back])
    deployment.close()


def test_what_came_and_went_in_one_round_is_guarded_against(deployment: DurableDeployment) -> None:
    deployment.submit([added("brief", subject="p")])
    deployment.submit([DeleteSubject("p")])
    deployment.apply()
    for back in (added("brief"), added("other", subject="p")):
        with pytest.raises(RecordError, match="deleted on request"):
            deployment.submit([back])


def test_a_correction_is_no_return(deployment: DurableDeployment) -> None:
    assert deployment.update([Delete(1), added(1)], apply=True).state == "applied"
    assert deployment.update([DeleteSubject("s2"), added(2, subject="s2")], apply=True).state == "applied"
    assert deployment.update([Delete(1), added(1)], apply=True).state == "applied"
    with pytest.raises(RecordError, match="the id 7 was deleted on request"):
        deployment.submit([added(7)])  # of s2, and not corrected


def test_a_subject_that_stays_is_not_guarded_against(deployment: DurableDeployment) -> None:
    deployment.update([DeleteSubject("s1")], apply=True)
    deployment.update([added("new", subject="s1")], readmit=True, apply=True)
    assert deployment.submit([added("newer", subject="s1")]).state == "pending"
    assert deployment.submit([added(6, subject="s1")], readmit=True).state == "pending"


def test_numbers_and_texts_are_different_people(deployment: DurableDeployment) -> None:
    deployment.update([Delete(1)], apply=True)
    assert deployment.update([added("1")], apply=True).state == "applied"


# Bulk.


def test_large_numbers_and_numpy_names(deployment: DurableDeployment) -> None:
    ids = np.array([2**62, -(2**63)], dtype=np.int64)
    deployment.add(X[:2], Y[:2], ids, apply=True)
    found = reopened(deployment)
    assert set(ids.tolist()) <= set(found.records.ids())
    assert found.delete(ids, subjects=np.array(["s3"]), apply=True).state == "applied"
    assert 2**62 not in found.records
    found.close()


def test_a_batch_of_many(deployment: DurableDeployment) -> None:
    rows = np.arange(4000, dtype=np.float32).reshape(2000, 2) + 100
    deployment.add(rows, np.arange(2000) % 2, [f"r{n}" for n in range(2000)], apply=True)
    deployment.delete([f"r{n}" for n in range(0, 2000, 2)], apply=True)
    found = reopened(deployment)
    expected = {**dict(enumerate(X.tolist())), **{f"r{n}": rows[n].tolist() for n in range(1, 2000, 2)}}
    features, _, _ = found.records.gather(found.records.live_slots())
    assert dict(zip(found.records.ids(), features.tolist(), strict=True)) == expected
    found.close()


def test_an_update_must_be_a_list(deployment: DurableDeployment) -> None:
    with pytest.raises((InputError, TypeError)):
        deployment.update(Delete(1))  # type: ignore[arg-type]
    assert deployment.status.pending == 0


# What a subject has when its turn comes.


def came_back(deployment: DurableDeployment, record: int) -> bool:
    try:
        deployment.submit([added(record)])
    except RecordError:
        return False
    return True


def test_a_record_that_came_and_went_with_its_subject_in_one_batch_is_remembered(
    deployment: DurableDeployment,
) -> None:
    mine = [n for n in range(20) if n % 4 and n % 5 == 0]
    batch = [AddMany(ids=[900, 901], features=X[:2], labels=Y[:2], subjects=["s0", "s1"]), DeleteSubject("s0")]
    request = deployment.update(batch, apply=True).request
    assert deployment.request(request).deletions == len(mine) + 1
    key = request_key((deployment.path / "keys" / "hashing.key").read_bytes(), request)
    certificate = deployment.certificate(request)
    assert certificate.request is not None
    assert certificate.request.id_hashes == hash_ids(key, [*mine, 900, 900, 901])
    assert not came_back(deployment, 900)


def test_what_was_cancelled_is_not_remembered_with_the_subject(deployment: DurableDeployment) -> None:
    addition = deployment.submit([added(900, subject="s0")]).request
    deployment.submit([DeleteSubject("s0")])
    deployment.cancel(addition)
    assert came_back(deployment, 900)  # it was never there
    deployment.apply()
    deployment.update([Delete(900)], apply=True, readmit=True)
    assert not came_back(deployment, 900)


def test_what_was_cancelled_is_not_remembered_after_the_round(deployment: DurableDeployment) -> None:
    addition = deployment.submit([added(900, subject="s0")]).request
    deployment.submit([DeleteSubject("s0")])
    deployment.cancel(addition)
    deployment.apply()
    assert came_back(deployment, 900)


def test_what_stays_because_its_deletion_was_cancelled_goes_with_the_subject(deployment: DurableDeployment) -> None:
    deletion = deployment.submit([Delete(5)]).request
    deployment.submit([DeleteSubject("s0")])
    deployment.cancel(deletion)
    deployment.apply()
    assert 5 not in deployment.records
    assert not came_back(deployment, 5)


# What is no list.


def test_a_text_is_one_id_and_not_its_letters(folder: Path) -> None:
    with expunge.create(folder, LookupTableLearner(), X, Y, ids=[str(n) for n in range(20)], n_shards=3) as deployment:
        with pytest.raises(InputError, match="ids must be a list, also of a single one, got '17'"):
            deployment.delete("17")
        with pytest.raises(InputError, match="subjects must be a list, also of a single one, got 's1'"):
            deployment.delete(subjects="s1")
        with pytest.raises(InputError, match="a list of updates, got a single one"):
            deployment.update(Delete("1"))  # type: ignore[arg-type]
        with pytest.raises(InputError, match="a list of updates, got 5"):
            deployment.update(5)  # type: ignore[arg-type]
        assert len(deployment.records) == 20
        assert deployment.requests() == []


@pytest.mark.parametrize("by_subject", [False, True])
def test_the_guard_knows_a_name_in_any_form_of_unicode(folder: Path, by_subject: bool) -> None:
    composed, decomposed = "Zo\u00eb", "Zoe\u0308"
    people = [*range(19), composed]
    made = expunge.create(folder, LookupTableLearner(), X, Y, n_shards=3, subjects=people, ids=people)
    with made:
        made.update([DeleteSubject(decomposed) if by_subject else Delete(decomposed)])
        for form in (composed, decomposed):
            with pytest.raises(RecordError, match="was deleted on request"):
                made.update([Add(id=form, features=X[19], label=0)])
            if by_subject:
                with pytest.raises(RecordError, match="was deleted on request"):
                    made.update([Add(id="other", features=X[19], label=0, subject=form)])


# Requests that come at the same time.


def all_at_once(deployment: DurableDeployment, asks: list[Callable[[], Any]]) -> tuple[list[Any], int]:
    """Ask in threads while the inbox is held, so that all wait in this order. Return answers or errors, and commits."""
    found: list[Any] = [None] * len(asks)
    commits: list[str] = []

    def ask(place: int) -> None:
        try:
            found[place] = asks[place]()
        except BaseException as error:
            found[place] = error

    threads = [threading.Thread(target=ask, args=[place]) for place in range(len(asks))]
    with deployment._inbox.lock:
        for count, thread in enumerate(threads, 1):
            thread.start()
            while len(deployment._inbox._waiting) < count:
                time.sleep(0.001)
        deployment._store.database._connection.set_trace_callback(
            lambda statement: commits.append(statement) if statement == "COMMIT" else None
        )
    for thread in threads:
        thread.join()
    return found, len(commits)


def test_requests_that_come_together_are_written_together(deployment: DurableDeployment) -> None:
    asks: list[Callable[[], Any]] = [lambda n=n: deployment.delete([n]) for n in range(5)]  # type: ignore[misc]
    asks += [lambda: deployment.delete([99]), lambda: deployment.delete([3]), lambda: deployment.update([])]
    asks += [lambda: deployment.update([added("new", subject="s1")]), lambda: deployment.delete(["new"])]
    found, commits = all_at_once(deployment, asks)
    assert [type(each) for each in found[5:8]] == [UnknownRecordError, UnknownRecordError, InputError]
    assert ["99" in str(found[5]), "3" in str(found[6])] == [True, True]
    good = [*found[:5], *found[8:]]
    assert [each.state for each in good] == ["pending"] * 7
    assert commits == 1
    assert [each.request for each in deployment.requests()] == [each.request for each in good]
    assert deployment.apply() == 1
    assert sorted(deployment.records.ids()) == [*range(5, 20)]
    for each in good:
        assert verify(deployment.certificate(each.request).to_json()).wrong == ()


def test_a_key_that_comes_twice_at_once_is_one_request(deployment: DurableDeployment) -> None:
    asks = [lambda record=record: deployment.delete([record], key="k") for record in (1, 1, 2)]  # type: ignore[misc]
    first, second, third = all_at_once(deployment, asks)[0]
    assert first.request == second.request
    assert isinstance(third, RequestError)
    assert len(deployment.requests()) == 1


def test_a_failure_of_the_disk_is_that_of_one_request(
    deployment: DurableDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [2]  # the first two writes fail: that of all, and then that of the first alone

    def fail(step: str) -> None:
        if step == "accept.staged" and left[0]:
            left[0] -= 1
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(steps, "on_step", fail)
    found, _ = all_at_once(deployment, [lambda n=n: deployment.delete([n]) for n in range(4)])  # type: ignore[misc]
    assert isinstance(found[0], StoreError)
    assert [each.state for each in found[1:]] == ["pending"] * 3
    assert deployment.apply() == 1
    assert sorted(deployment.records.ids()) == [0, *range(4, 20)]


def test_who_is_interrupted_leaves_the_others_an_answer(
    deployment: DurableDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(step: str) -> None:
        if step == "accept.staged":
            raise KeyboardInterrupt

    monkeypatch.setattr(steps, "on_step", interrupt)
    asks = [lambda n=n: deployment.delete([n]) for n in range(4)]  # type: ignore[misc]
    found, _ = all_at_once(deployment, asks)
    monkeypatch.undo()
    assert sorted(type(each).__name__ for each in found) == ["KeyboardInterrupt", *["StoreError"] * 3]
    assert deployment.requests() == []
    assert [ask().state for ask in asks] == ["pending"] * 4


def test_who_waits_when_the_folder_is_closed_is_told_so(
    deployment: DurableDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "on_step", lambda step: deployment.close() if step == "accept.done" else None)
    monkeypatch.setattr("expunge.folder.inbox._AT_ONCE", 1)
    found, _ = all_at_once(deployment, [lambda n=n: deployment.delete([n], apply=False) for n in range(3)])  # type: ignore[misc]
    assert [str(each) for each in found] == [f"{deployment.path} has been closed"] * 3
    assert not deployment._inbox._waiting
    with expunge.open(deployment.path) as again:
        assert again.status.pending == 1


# Applied at once: accepted by the transaction that switches.


def states(deployment: DurableDeployment) -> list[str]:
    return [one.state for one in deployment.requests()]


def test_what_is_applied_at_once_waits_in_no_file(
    deployment: DurableDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed = list[str]()
    monkeypatch.setattr(steps, "on_step", passed.append)
    receipt = deployment.update([Delete(1), added("new")], key="k", apply=True)
    assert (receipt.state, receipt.round) == ("applied", 1)
    assert not {"accept.begin", "accept.staged", "accept.done"} & set(passed)
    assert deployment.update([Delete(1), added("new")], key="k", apply=True) == receipt
    assert states(deployment) == ["applied"]
    assert verify(deployment.certificate(receipt.request).to_json()).holds
    with reopened(deployment) as again:
        assert again.request(receipt.request).state == "applied"
        assert "new" in again.records


@pytest.mark.parametrize("fails", [False, True])
def test_what_comes_in_the_middle_comes_after_it(deployment: DurableDeployment, fails: bool) -> None:
    """The first one is written as pending before the second, whether its training ends well or not."""
    told = list[Any]()

    def advance(_: int) -> None:
        if not told:
            told.extend(all_at_once(deployment, [lambda: deployment.delete([1, 2]), lambda: deployment.delete([3])])[0])
            if fails:
                raise OSError("the disk failed")

    if fails:
        with pytest.raises(OSError, match="failed"):
            deployment.delete([1], apply=True, advance=advance)
    else:
        assert deployment.delete([1], apply=True, advance=advance).state == "applied"
    assert isinstance(told[0], UnknownRecordError)
    assert told[1].state == "pending"
    assert states(deployment) == ["pending" if fails else "applied", "pending"]
    assert deployment.apply() == (1 if fails else 2)
    assert sorted(deployment.records.ids()) == [0, 2, *range(4, 20)]


def test_what_fails_is_pending_afterwards(deployment: DurableDeployment) -> None:
    def advance(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        deployment.delete([1], key="k", apply=True, advance=advance)
    assert states(deployment) == ["pending"]
    with reopened(deployment) as again:
        assert again.delete([1], key="k", apply=True).state == "applied"
        assert states(again) == ["applied"]


def test_what_is_pending_already_is_applied_first(deployment: DurableDeployment) -> None:
    deployment.delete([1])
    assert deployment.add([[1.0, 2.0]], [1], [1], readmit=True, apply=True).state == "applied"
    assert states(deployment) == ["applied", "applied"]
    assert 1 in deployment.records


@pytest.mark.parametrize("key", [1, 1.0, True, ["k"], {}, b"k", ""])
def test_a_key_is_a_text(deployment: DurableDeployment, key: Any) -> None:
    with pytest.raises(InputError, match="key must be text"):
        deployment.delete([1], key=key)
    assert deployment.requests() == []


@pytest.mark.parametrize("name", ["nobody", "\ud800", "x" * 100_000])
def test_a_strange_name_of_a_request_is_one_short_line(deployment: DurableDeployment, name: str) -> None:
    for ask in (deployment.request, deployment.cancel, deployment.certificate):
        with pytest.raises(RequestError, match="there is no request") as caught:
            ask(name)
        assert len(str(caught.value)) < 120
    assert deployment.delete([1], key=name).request == deployment.delete([1], key=name).request
