"""Petitions: deletions of people who may have no records, received once under the sender's own id."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import expunge
from expunge import Delete
from expunge.core.errors import InputError, RecordError, RequestError
from expunge.core.records import Add, DeletePerson
from expunge.evidence import verify
from expunge.folder import DurableDeployment
from expunge.training.learners import LookupTableLearner

X = np.arange(40, dtype=np.float32).reshape(20, 2)
NOW = "2999-01-01T00:00:00Z"


@pytest.fixture
def deployment(folder: Path) -> Iterator[DurableDeployment]:
    subjects = [f"Zoë-{n % 5}" if n % 4 else None for n in range(20)]
    made = expunge.create(
        folder, LookupTableLearner(), X, np.arange(20) % 2, n_shards=3, subjects=subjects, apply="manual"
    )
    yield made
    made.close()


def receive(deployment, id, *people, asked=b"", urls=(), sender="crm"):
    return deployment.receive(sender, id, people, asked=asked or repr(people).encode(), form="webhook", urls=urls)


def test_a_person_without_records_gets_a_request_and_a_certificate(deployment: DurableDeployment) -> None:
    nobody, both = (
        deployment.submit([DeletePerson("nobody")]),
        deployment.submit([DeletePerson("Zoë-1"), DeletePerson(4)]),
    )
    assert (nobody.kind, nobody.deletions, both.deletions) == ("deletion", 0, 4)
    assert deployment.apply() == 1
    assert len(deployment.records) == 16
    for one, words in ((nobody, "of whom there was none"), (both, "to delete 4 records")):
        certificate = deployment.certificate(one.request)
        assert verify(certificate.to_json()).wrong == ()
        assert words in str(certificate.make_statements())
    with pytest.raises(RecordError, match="deleted on request"):
        deployment.submit([Add(id=99, features=X[0], label=0, subject="Zoë-1")])
    deployment.submit([Add(id=99, features=X[0], label=0, subject="nobody")])


def test_people_and_additions_are_requests_of_their_own(deployment: DurableDeployment) -> None:
    with pytest.raises(InputError, match="of their own"):
        deployment.submit([DeletePerson("nobody"), Add(id=99, features=X[0], label=0)])


def test_a_person_is_deleted_also_if_an_earlier_deletion_is_cancelled(deployment: DurableDeployment) -> None:
    first = deployment.submit([Delete(n) for n in range(20) if n % 5 == 1 and n % 4])
    second = deployment.submit([DeletePerson("Zoë-1")])
    assert second.deletions == first.deletions == 3
    deployment.cancel(first.request)
    deployment.apply()
    assert len(deployment.records) == 17
    with pytest.raises(RecordError, match="deleted on request"):
        deployment.submit([Add(id=99, features=X[0], label=0, subject="Zoë-1")])


def test_a_cancelled_petition_leaves_its_person_alone(deployment: DurableDeployment) -> None:
    deployment.cancel(receive(deployment, "1", "Zoë-1").request)
    deployment.cancel(receive(deployment, "2", "nobody").request)
    assert deployment.apply() is None
    assert len(deployment.records) == 20


def test_an_id_counts_once_also_when_it_was_cancelled_and_the_folder_was_closed(deployment: DurableDeployment) -> None:
    first, second = receive(deployment, "1", "Zoë-1"), receive(deployment, "2", "nobody")
    deployment.cancel(second.request)
    deployment.apply()
    deployment.close()
    with expunge.open(deployment.path) as again:
        assert (receive(again, "1", "Zoë-1"), receive(again, "2", "nobody")) == (first, second)
        assert receive(again, "1", "Zoë-1", sender="other").request != first.request
        for id, person in (("1", "Zoë-2"), ("2", "Zoë-1")):
            with pytest.raises(RequestError, match="another request"):
                receive(again, id, person)
        assert again.petitions.counts() == {"crm": (2, 0, 0), "other": (1, 0, 0)}


def test_a_forgotten_petition_may_come_again(deployment: DurableDeployment) -> None:
    first = receive(deployment, "1", "nobody", urls=["https://a"])
    deployment.cancel(first.request)
    deployment._store.database.execute("UPDATE requests SET applied_by = '2020-01-01T00:00:00Z'")
    assert deployment.forget_requests(older_than="1d") == 1
    assert deployment.petitions.counts() == {}
    assert receive(deployment, "1", "nobody").request != first.request


def test_many_threads_receive_one_petition(deployment: DurableDeployment) -> None:
    found: list[str] = []

    def run() -> None:
        found.append(receive(deployment, "1", "Zoë-1", urls=["https://a", "https://a"]).request)

    threads = [threading.Thread(target=run) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(found) == 8
    assert len(set(found)) == 1
    assert deployment.petitions.counts() == {"crm": (1, 1, 0)}


def test_a_petition_whose_process_ended_before_it_was_kept_is_the_same_request(deployment: DurableDeployment) -> None:
    """A hash of a name is found as long as the person is there: what is asked for is then another person."""
    key = "petition\0crm\x001"
    known = deployment.submit([DeletePerson("Zoë-1")], key=key)
    deployment.apply()
    assert receive(deployment, "1", "0123").request == known.request


def test_callbacks_wait_for_the_date_of_the_application_and_go_when_delivered(deployment: DurableDeployment) -> None:
    book = deployment.petitions
    petition = receive(deployment, "1", "Zoë-1", urls=["https://a/1", "https://b/2"])
    assert book.due(now=NOW, seconds=2**40, limit=10) == []
    deployment.apply()
    at = deployment.request(petition.request).applied_by
    assert at is not None
    assert book.due(now="2020-01-01T00:00:00Z", seconds=2**40, limit=10) == []
    first, second = book.due(now=at, seconds=0, limit=10)
    assert (first.url, first.state, first.at, first.petition) == ("https://a/1", "applied", at, petition)
    book.delivered(first)
    book.failed(second, next_at=100)
    assert book.due(now=NOW, seconds=99, limit=10) == []
    (again,) = book.due(now=NOW, seconds=100, limit=10)
    assert (again.message, again.attempts) == (second.message, 1)
    book.failed(again, next_at=None)
    assert book.due(now=NOW, seconds=2**40, limit=10) == []
    assert book.counts() == {"crm": (1, 0, 1)}


def test_nothing_of_a_person_stays(deployment: DurableDeployment) -> None:
    petition = receive(deployment, "1", "Zoë-1", "Zoë-nobody", urls=["https://a/b"])
    deployment.apply()
    (callback,) = deployment.petitions.due(now=NOW, seconds=1, limit=2)
    deployment.petitions.delivered(callback)
    with pytest.raises(InputError):
        deployment.delete(subjects=["Zoë-1"])
    deployment.close()
    files = [path for path in deployment.path.rglob("*") if path.is_file()]
    assert petition.request.encode() in (deployment.path / "state.db").read_bytes()
    for secret in ("Zoë-1", "Zoë-nobody", "https://a/b"):
        for form in (secret.encode(), secret.encode("unicode_escape"), secret.encode("utf-16-le")):
            assert [path for path in files if form in path.read_bytes()] == [], secret
