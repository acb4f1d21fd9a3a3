"""When accepted requests are applied."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import expunge
from expunge import Delete
from expunge.core.errors import ParameterError, TrainingError
from expunge.folder import ApplyPolicy, DurableDeployment
from expunge.training.learners import LookupTableLearner

X = np.arange(40, dtype=np.float32).reshape(20, 2)


def make(folder: Path, **options: Any) -> DurableDeployment:
    return expunge.create(
        folder, LookupTableLearner(), X, np.arange(20) % 2, n_shards=3, inclusion_probability=1.0, **options
    )


@pytest.mark.parametrize(
    ("text", "mode", "amount"),
    [
        ("now", "now", 0),
        (" manual ", "manual", 0),
        ("every 3600s", "every", 3600),
        ("every 0.5", "every", 0.5),
        ("every 60 s", "every", 60),
        ("at 100", "at", 100),
    ],
)
def test_policies_in_words(text: str, mode: str, amount: float) -> None:
    found = ApplyPolicy.parse(text)
    assert (found.mode, found.amount) == (mode, amount)
    assert ApplyPolicy.parse(found) == ApplyPolicy.parse(str(found)) == found


@pytest.mark.parametrize(
    "text", ["", "soon", "every", "every 0s", "every -1s", "at 0", "at 1.5", "at", "now now", 7, None]
)
def test_what_is_no_policy(text: Any) -> None:
    with pytest.raises(ParameterError, match="apply must"):
        ApplyPolicy.parse(text)


@given(st.floats(1e-9, 1e18), st.integers(1, 10**18))
def test_a_policy_reads_what_it_writes(seconds: float, count: int) -> None:
    for policy in (ApplyPolicy("every", seconds), ApplyPolicy("at", float(count))):
        assert ApplyPolicy.parse(str(policy)) == policy


def test_when_something_is_due() -> None:
    every, at = ApplyPolicy.parse("every 10s"), ApplyPolicy.parse("at 3")
    assert [ApplyPolicy.parse("now").is_due(n, 0) for n in (0, 1)] == [False, True]
    assert [ApplyPolicy.parse("manual").is_due(n, 1e9) for n in (0, 9)] == [False, False]
    assert [every.is_due(1, seconds) for seconds in (9.9, 10)] == [False, True]
    assert not every.is_due(0, 99)
    assert [at.is_due(n, 0) for n in (0, 2, 3, 4)] == [False, False, True, True]


def test_at_a_number_of_requests(folder: Path) -> None:
    deployment = make(folder, apply="at 3")
    assert deployment.delete([0]).state == "pending"
    assert deployment.delete([1]).state == "pending"
    deployment.close()
    deployment = expunge.open(folder)
    assert deployment.status.apply == "at 3"
    assert deployment.status.pending == 2
    receipt = deployment.delete([2])
    assert (receipt.state, receipt.round) == ("applied", 1)
    assert deployment.status.pending == 0
    deployment.close()


def test_a_caller_may_override_the_policy(folder: Path) -> None:
    with make(folder) as deployment:
        assert deployment.delete([0], apply=False).state == "pending"
        assert deployment.is_due
        assert deployment.delete([1]).state == "applied"
        assert 0 not in deployment.records


def test_a_folder_opened_counts_from_the_oldest_and_otherwise_only_beats_apply(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from expunge.folder import evidence

    now = [1_900_000_000.0]
    monkeypatch.setattr(evidence.time, "time", lambda: now[0])
    with make(folder, apply="every 100s") as deployment:
        assert deployment.delete([0]).state == "pending"
        now[0] += 60
        assert deployment.delete([1]).state == "pending"
        now[0] += 40
        assert deployment.is_due
        assert deployment.delete([2]).state == "pending"
        assert deployment.delete([3], apply=True).state == "applied"
        assert deployment.status.pending == 0
        assert deployment.delete([4]).state == "pending"
    now[0] += 99
    expunge.open(folder).close()
    now[0] += 1
    with expunge.open(folder) as found:
        assert found.status.pending == 0


def wait_until(condition: Any) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_clock_tries_again_after_an_error_and_tells_of_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failures = []

    def fail(*_: Any, **__: Any) -> None:
        failures.append(1)
        raise ValueError("no memory left")

    deployment = make(folder, apply="every 0.02s")
    with monkeypatch.context() as patch:
        patch.setattr(LookupTableLearner, "fit", fail)
        request = deployment.submit([Delete(1)]).request
        wait_until(lambda: len(failures) >= 3)  # again at every tick, and not the first error for ever
        assert deployment.request(request).state == "pending"
        with pytest.raises(TrainingError, match="no memory left"):
            deployment.wait()
    wait_until(lambda: deployment.request(request).state == "applied")
    deployment.wait()  # nothing is held against it any more
    deployment.close()


def test_an_error_is_told_also_while_the_clock_tries_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tries, goes_on = threading.Semaphore(0), threading.Semaphore(0)

    def fail(*_: Any, **__: Any) -> None:
        tries.release()
        assert goes_on.acquire(timeout=30)
        raise ValueError("no memory left")

    deployment = make(folder, apply="every 0.02s")
    with monkeypatch.context() as patch:
        patch.setattr(LookupTableLearner, "fit", fail)
        deployment.submit([Delete(1)])
        assert tries.acquire(timeout=30)
        goes_on.release()
        assert tries.acquire(timeout=30)  # the second time, with the error of the first one not told yet
        with pytest.raises(TrainingError, match="no memory left"):
            deployment.wait()
        deployment.wait()  # once is enough
        goes_on.release(1000)
    deployment.close()


def test_a_clock_stops_with_the_deployment(folder: Path) -> None:
    before = set(threading.enumerate())
    deployment = make(folder, apply="every 0.01s")
    (clock,) = set(threading.enumerate()) - before
    deployment.close()
    clock.join(30)
    assert not clock.is_alive()


def test_beats_are_multiples_whatever_the_work_takes():
    """Of 10 seconds: works of 3, 0, 25 and exactly 10 seconds; a wait that ends early does not make a beat twice."""
    clock = [100.0]
    beats = ApplyPolicy.parse("every 10s").beats(lambda: clock[0])
    started = []
    for work in (3.0, 0.0, 25.0, 10.0, 1.0):
        clock[0] += next(beats) - 1e-6
        started.append(round(clock[0]))
        clock[0] += work
    assert started == [110, 120, 130, 160, 170]


class Training:
    """A training that begins and then waits to be released."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.began, self.goes_on = threading.Event(), threading.Event()
        fit = LookupTableLearner.fit

        def held(*given: Any, **options: Any) -> Any:
            self.began.set()
            assert self.goes_on.wait(60)
            return fit(*given, **options)

        monkeypatch.setattr(LookupTableLearner, "fit", held)


def test_who_comes_during_a_training_is_not_applied_when_it_ends(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock: the receipt would tell how long the training took. No caller waits for it either."""
    with make(folder, apply="every 0.2s") as deployment:
        training, receipts = Training(monkeypatch), []
        deployment.delete([0])
        assert training.began.wait(60)
        time.sleep(0.2)  # the first request is older than a beat
        late = threading.Thread(target=lambda: receipts.append(deployment.delete([1])))
        late.start()
        late.join(30)
        assert [receipt.state for receipt in receipts] == ["pending"]
        training.goes_on.set()
        wait_until(lambda: deployment.status.pending == 0)
        assert [one.round for one in deployment.requests()] == [1, 2]


def test_those_that_are_being_applied_do_not_count_as_waiting(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with make(folder, apply="at 3") as deployment:
        training = Training(monkeypatch)
        deployment.delete([0])
        deployment.delete([1])
        third = threading.Thread(target=lambda: deployment.delete([2]))
        third.start()
        assert training.began.wait(60)
        receipts: list[Any] = []
        late = threading.Thread(target=lambda: receipts.append(deployment.delete([3])))
        late.start()
        late.join(30)
        assert [receipt.state for receipt in receipts] == ["pending"]
        training.goes_on.set()
        third.join(60)
        assert [one.round for one in deployment.requests()] == [1, 1, 1, None]
