"""Many pending requests: each is applied exactly once, and takes as much work as if it were alone."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

import expunge
from expunge.core.errors import RequestError
from expunge.evidence import verify
from expunge.folder import DurableDeployment

OPTIONS: dict[str, Any] = {"n_shards": 20, "apply": "manual"}


@pytest.fixture
def home(quick_folder: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=quick_folder) as name:
        yield Path(name)


def rows(count: int) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).normal(size=(count, 3))
    return X, (X[:, 0] > 0).astype(int)


@pytest.mark.parametrize("count", [1_500, pytest.param(100_000, marks=pytest.mark.long)])
def test_pending_requests_are_applied_exactly_once(home: Path, count: int) -> None:
    """Additions, deletions by id and by subject, from many threads, with an end of the process in the middle."""
    X, y = rows(count)
    subjects = [f"s{number // 3}" for number in range(count)]
    expunge.create(home / "many", GaussianNB(), X, y, subjects=subjects, **OPTIONS).close()
    ids = {number: f"new {number}" for number in range(1, count, 3)}

    def ask(deployment: DurableDeployment, number: int) -> str:
        if number % 3 == 0:  # the first of a subject's three records
            return deployment.delete([number], key=f"k{number}").request
        if number % 3 == 1:
            return deployment.add(X[[number]], y[[number]], [ids[number]], subjects=[f"n{number}"]).request
        return deployment.delete(subjects=[subjects[number]]).request  # the two that are left, once that is pending

    def ask_all(numbers: list[int]) -> list[str]:
        with expunge.open(home / "many", apply_pending=False) as deployment, ThreadPoolExecutor(16) as pool:
            return list(pool.map(lambda number: ask(deployment, number), numbers))

    by_kind = [[number for number in range(count) if number % 3 == kind] for kind in (0, 1, 2)]
    requests = [*ask_all(by_kind[0]), *ask_all([*by_kind[1], *by_kind[2]])]
    with expunge.open(home / "many", apply_pending=False) as deployment:
        assert len(set(requests)) == count == deployment.status.pending
        assert deployment.delete([0], key="k0").request == requests[0]  # asked again, it is the same request
        cancelled = requests[len(by_kind[0])]
        deployment.cancel(cancelled)
        assert deployment.apply() == 1
        assert deployment.apply() is None
        assert set(deployment.records.ids()) == set(ids.values()) - {ids[1]}
        states = Counter((each.state, each.round) for each in deployment.requests())
        assert states == {("applied", 1): count - 1, ("cancelled", None): 1}
        events = Counter(
            row[0] for row in deployment._store.database.rows("SELECT json_extract(entry, '$.event') FROM ledger")
        )
        assert (events["accepted"], events["applied"], events["cancelled"]) == (count, count - 1, 1)
        for request in (requests[0], cancelled, requests[-1]):
            assert verify(deployment.certificate(request).to_json()).wrong == ()


def statements(deployment: DurableDeployment, act: Callable[[], Any]) -> int:
    """How many statements of the database something takes."""
    seen: list[str] = []
    connection = deployment._store.database._connection
    connection.set_trace_callback(seen.append)
    act()
    connection.set_trace_callback(None)
    return len(seen)


def test_a_request_takes_no_more_statements_after_many(home: Path) -> None:
    X, y = rows(900)
    with expunge.create(home / "many", GaussianNB(), X, y, **OPTIONS) as deployment:
        first = statements(deployment, lambda: deployment.delete([0]))
        for number in range(1, 300):
            deployment.delete([number])
        assert statements(deployment, lambda: deployment.delete([300])) <= first
        added = [statements(deployment, lambda: deployment.add(X[:1], y[:1], [1000]))]
        for number in range(1001, 1300):
            deployment.add(X[:1], y[:1], [number])
        added.append(statements(deployment, lambda: deployment.add(X[:1], y[:1], [2000])))
        assert added[1] <= added[0]
        assert statements(deployment, deployment.apply) < 20 * 602


def test_cancelling_reads_one_request_however_many_are_pending(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = rows(60)
    subjects = [f"s{number // 2}" for number in range(60)]
    with expunge.create(home / "many", GaussianNB(), X, y, subjects=subjects, **OPTIONS) as deployment:
        asked = [deployment.delete([number]).request for number in range(0, 40, 2)]
        asked += [deployment.add(X[:1], y[:1], [f"n{number}"], subjects=["s29"]).request for number in range(20)]
        requests, read = deployment._evidence.requests, list[str]()
        batch_of = requests.batch_of
        monkeypatch.setattr(requests, "batch_of", lambda request: read.append(request) or batch_of(request))
        for request in asked[:10]:
            deployment.cancel(request)
        assert read == asked[:10]  # of 40: no other request names these records
        read.clear()
        deployment.cancel(asked[20])  # others name its subject too
        assert len(read) == 1 + 29
        deployment.delete([0])
        with pytest.raises(RequestError, match="too late to cancel"):
            deployment.cancel(asked[0])
        with pytest.raises(RequestError, match="being deleted on request"):
            deployment.add(X[:1], y[:1], [20])
        assert deployment.apply() == 1
        gone = {0, *range(20, 40, 2)}
        assert set(deployment.records.ids()) == {*range(60), *(f"n{number}" for number in range(1, 20))} - gone
