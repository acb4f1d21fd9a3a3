"""A deployment that is served switches, and counts requests as applied, on ticks of its clock alone.

Under (α,β,γ) how long it takes until a request is accepted, and until it is applied, does not tell how many shards it
touched: two samples are compared, requests that touch few shards and requests that touch many.
"""

from __future__ import annotations

import math
import random
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import expunge
from expunge.core.errors import StoreError
from expunge.core.words import seconds_of
from expunge.folder import DurableDeployment, evidence
from expunge.folder.evidence import Clock
from expunge.folder.opening import open_to_serve
from expunge.folder.store import steps
from expunge.training.learners import LookupTableLearner

X = np.arange(60, dtype=np.float32).reshape(30, 2)


def served(folder: Path, promise: str, *, clock_seconds: int = 2, **more: Any) -> DurableDeployment:
    options: dict[str, Any] = {"promise": promise, "clock_seconds": clock_seconds, "apply": "manual", "n_shards": 4}
    rows = more.pop("rows", X)
    expunge.create(folder, LookupTableLearner(), rows, np.arange(len(rows)) % 2, **{**options, **more}).close()
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


TICK = 60


class Hours:
    """A clock that stands still, but for the work that is said to take time and for those who wait."""

    def __init__(self) -> None:
        self.now = 1.7e9

    def time(self) -> float:
        return self.now


class Waits(threading.Event):
    """An event that never comes: to wait for it moves the clock."""

    def __init__(self, hours: Hours) -> None:
        super().__init__()
        self._hours = hours

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self._hours.now += timeout
        return False


def shards_touched(deployment: DurableDeployment, id: int) -> int:
    state = deployment.inside.state
    slot = state.records.slot_of(id)
    return sum(slot in members for members in state.members)


def waits(
    folder: Path, monkeypatch: pytest.MonkeyPatch, promise: str, *, is_paced: bool = True
) -> tuple[list[float], list[float]]:
    """How long requests that touch few shards and ones that touch many take from accepted to applied, in turns.

    A model takes 0.5 to 2 seconds to train, and to write or remove its file, of a tick of 60.
    """
    hours, found = Hours(), (list[float](), list[float]())
    monkeypatch.setattr(evidence, "time", hours)
    slow = random.Random(3)

    def work(models: int) -> None:
        hours.now += sum(slow.uniform(0.5, 2.0) for _ in range(models))

    monkeypatch.setattr(steps, "on_step", lambda step: work(step in ("stage.model", "remove.file")))
    rows = np.arange(400, dtype=np.float32).reshape(200, 2)
    deployment = served(folder, promise, clock_seconds=TICK, n_shards=8, inclusion_probability=0.3, rows=rows)
    deployment._keeper.halted, deployment._keeper.is_paced = Waits(hours), is_paced
    touched = {id: shards_touched(deployment, id) for id in range(200)}
    ordered = sorted(touched, key=lambda id: touched[id])
    few, many = ordered[:12], ordered[-12:]
    assert max(touched[id] for id in few) + 2 <= min(touched[id] for id in many)
    chance = random.Random(5)
    for ids in zip(few, many, strict=True):
        phase = chance.uniform(0, TICK)
        for arm, id in enumerate(ids):
            hours.now = TICK * math.ceil(hours.now / TICK) + phase
            accepted = hours.now
            request = deployment.submit([expunge.Delete(id)]).request
            assert hours.now == accepted  # to accept it nothing was trained
            hours.now = TICK * math.ceil(hours.now / TICK)  # the service begins rounds on ticks
            deployment.apply(advance=work)
            assert deployment.request(request).state == "applied"
            found[arm].append(hours.now - accepted)
    deployment.close()
    return found


@pytest.mark.parametrize("promise", ["noise", "consensus"])
def test_becoming_applied_takes_as_long_for_few_shards_as_for_many(
    folder: Path, monkeypatch: pytest.MonkeyPatch, promise: str
) -> None:
    few, many = waits(folder, monkeypatch, promise)
    assert few == pytest.approx(many)  # they arrive at the same moments of a tick, so no test by chance is needed
    assert len(set(few)) == 12


def test_without_the_clock_it_would_tell(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = waits(folder, monkeypatch, "noise", is_paced=False)
    assert sum(few) + 12 < sum(many)


def test_accepting_takes_as_long_for_few_shards_as_for_many(folder: Path) -> None:
    """By permutation of the ranks: the order of requests is drawn, so noise of the machine falls on both alike."""
    rows = np.arange(2400, dtype=np.float32).reshape(1200, 2)
    options = {"n_shards": 40, "inclusion_probability": 0.3, "clock_seconds": 3600}
    deployment = served(folder, "noise", rows=rows, **options)
    ordered = sorted(range(1200), key=lambda id: shards_touched(deployment, id))
    arm = {id: id in ordered[:150] for id in ordered[:150] + ordered[-150:]}
    took = dict[int, float]()
    for id in random.SystemRandom().sample(sorted(arm), len(arm)):
        begun = time.perf_counter()
        deployment.submit([expunge.Delete(id)])
        took[id] = time.perf_counter() - begun
    ranks = np.argsort(np.argsort(list(took.values())))
    is_few = np.array([arm[id] for id in took])
    # The sum of ranks is normal to a good approximation; |z| > 5.2 has probability 2e-7, times 2 for the approximation.
    mean, spread = 150 * 299 / 2, math.sqrt(150 * 150 * 301 / 12)
    assert abs(ranks[is_few].sum() - mean) / spread < 5.2  # false alarm: 4e-7
    deployment.close()
