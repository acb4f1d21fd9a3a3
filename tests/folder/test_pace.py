"""A deployment that is served switches, and counts requests as applied, on ticks of its clock alone."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import expunge
from expunge.core.errors import StoreError
from expunge.core.words import seconds_of
from expunge.folder import DurableDeployment
from expunge.folder.evidence import Clock
from expunge.folder.opening import open_to_serve
from expunge.folder.store import steps
from expunge.training.learners import LookupTableLearner

X = np.arange(60, dtype=np.float32).reshape(30, 2)


def served(folder: Path, promise: str, *, clock_seconds: int = 2) -> DurableDeployment:
    options: dict[str, Any] = {"promise": promise, "clock_seconds": clock_seconds, "apply": "manual", "n_shards": 4}
    expunge.create(folder, LookupTableLearner(), X, np.arange(30) % 2, **options).close()
    return open_to_serve(folder)


@pytest.mark.parametrize("ids", [[3], list(range(20))])
def test_a_round_is_switched_on_a_tick_and_applied_on_the_next(
    folder: Path, monkeypatch: pytest.MonkeyPatch, ids: list[int]
) -> None:
    seen: dict[str, float] = {}
    monkeypatch.setattr(steps, "on_step", lambda step: seen.setdefault(step, time.time()))
    deployment = served(folder, "noise")
    seen.clear()
    request = deployment.submit([expunge.Delete(each) for each in ids]).request
    begun = time.time()
    assert deployment.apply() == 1
    first = 2 * np.ceil(begun / 2)
    assert seen["switch.open"] >= first
    found = deployment.request(request)
    assert found.applied_by is not None
    assert seconds_of(found.applied_by) >= first + 2
    assert seen["applied.open"] >= seconds_of(found.applied_by)
    deployment.close()


def test_under_the_exact_promise_nothing_waits(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deployment = served(folder, "exact")
    monkeypatch.delattr(Clock, "wait_until")
    deployment.submit([expunge.Delete(3)])
    assert deployment.apply() == 1
    deployment.close()


def test_closing_does_not_wait_for_a_tick(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deployment = served(folder, "noise", clock_seconds=3600)
    request = deployment.submit([expunge.Delete(3)]).request
    errors: list[Exception] = []

    def apply() -> None:
        try:
            deployment.apply()
        except StoreError as error:
            errors.append(error)

    has_waited = threading.Event()
    wait = Clock.wait_until
    monkeypatch.setattr(Clock, "wait_until", lambda *given: (has_waited.set(), wait(*given)))
    thread = threading.Thread(target=apply)
    thread.start()
    assert has_waited.wait(60)
    deployment.halt()
    thread.join(60)
    assert not thread.is_alive()
    assert "has been closed" in str(errors[0])
    deployment.close()
    with expunge.open(folder) as again:
        assert again.request(request).state == "pending"
        again.apply()
        assert 3 not in again.records
