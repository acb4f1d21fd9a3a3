"""Looking at a folder without the right to change it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import expunge
from expunge import Delete, Guarantee
from expunge.core.errors import FormatError, RequestError, StoreError
from expunge.evidence import verify
from expunge.folder import DurableDeployment, look
from expunge.training.learners import LookupTableLearner

X = np.arange(40, dtype=np.float32).reshape(20, 2)
OPTIONS: list[dict[str, Any]] = [
    {"mechanism": "exponential", "max_predictions": 640, "n_shards": 3},
    {"mechanism": "laplace", "n_shards": 3},
    {"n_shards": 3, "sampling": "partition", "mechanism": "majority"},
    {"n_shards": 100, "inclusion_probability": 1.0, "target": Guarantee(8.0, 0.05, 0.05), "max_generations": 3},
]


@pytest.fixture
def folder() -> Iterator[Path]:
    shared = Path("/dev/shm")  # where flushing costs nothing
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as name:
        yield Path(name) / "deployment"


def make(folder: Path, **options: Any) -> DurableDeployment:
    options = {**OPTIONS[0], "apply": "manual", **options}
    return expunge.create(folder, LookupTableLearner(), X, np.arange(20) % 2, provenance={"from": "here"}, **options)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("is_open", [True, False])
def test_a_view_says_what_the_deployment_says(folder: Path, options: dict[str, Any], is_open: bool) -> None:
    deployment = make(folder, **options)
    applied = deployment.delete([1], apply=True).request
    cancelled = deployment.submit([Delete(2)]).request
    deployment.cancel(cancelled)
    pending = deployment.submit([Delete(3)]).request
    deployment.predict(X[:2])
    said = (deployment.guarantee(), deployment.requests(), deployment.provenance, deployment.status)
    if not is_open:
        deployment.close()
    with look(folder) as view:
        assert view.guarantee() == said[0]
        assert view.requests() == said[1]
        assert view.provenance == said[2]
        budget = view.status.budget
        assert replace(view.status, budget=said[3].budget) == said[3]
        assert (budget == said[3].budget) if not is_open else (budget.predictions >= said[3].budget.predictions)
        assert view.request(pending).state == "pending"
        for request in (None, applied, cancelled, pending):
            assert verify(view.certificate(request).to_json()).wrong == ()
        with pytest.raises(RequestError, match="there is no request"):
            view.request("nobody")
    deployment.close()


def test_a_view_follows_what_happens(folder: Path) -> None:
    with make(folder) as deployment, look(folder) as view:
        for record in range(3):
            deployment.delete([record], apply=True)
            deployment.predict(X[:1] + record + 100)
            status = view.status
            assert (status.round, status.num_records) == (record + 1, 19 - record)
            assert status.budget.predictions >= record + 1
        deployment.retrain()
        assert view.status.generation == 2
        assert view.status.budget.predictions == 0  # the new generation's books, not the old one's
        assert view.certificate().publication.predictions_published == 0


def test_a_view_does_not_keep_a_writer_from_erasing(folder: Path) -> None:
    with make(folder) as deployment, look(folder) as view:
        view.certificate()
        assert deployment.delete([1], apply=True).state == "applied"
        assert (folder / "state.db-wal").stat().st_size < 100_000


def test_a_view_changes_nothing_and_takes_no_lock(folder: Path) -> None:
    make(folder).close()
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file() and path.suffix != ".db"}
    with look(folder) as one, look(folder) as two, expunge.open(folder) as found:
        assert one.status.num_records == two.status.num_records == len(found.records)
        with pytest.raises(StoreError, match="cannot be written to"):
            one._store.state_fact("x", 1)
    after = {path: path.stat().st_mtime_ns for path in before if path.name != "lock"}
    assert {path: time for path, time in before.items() if path.name != "lock"} == after


def test_a_view_that_was_closed(folder: Path) -> None:
    make(folder).close()
    view = look(folder)
    view.close()
    view.close()
    with pytest.raises(StoreError, match="has been closed"):
        _ = view.status


def test_nothing_to_look_at(folder: Path) -> None:
    with pytest.raises(FormatError, match="does not exist"):
        look(folder)


def test_a_guarantee_that_was_tampered_with(folder: Path) -> None:
    with make(folder) as deployment:
        deployment._store.state_fact("guarantee", {"alpha": "much"})
        with look(folder) as view, pytest.raises(FormatError, match="the guarantee that was written down is damaged"):
            view.guarantee()
