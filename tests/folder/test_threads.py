"""Many threads on one deployment, and two processes on one folder."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import expunge
from expunge import Add, Delete
from expunge.core.errors import FolderBusyError, RecordError, RequestError, StoreError
from expunge.evidence import verify
from expunge.folder import DurableDeployment, open_view
from expunge.folder.store import steps
from expunge.training.learners import LookupTableLearner

X = np.arange(200, dtype=np.float32).reshape(100, 2)
Y = np.arange(100) % 2


@pytest.fixture
def folder() -> Iterator[Path]:
    shared = Path("/dev/shm")  # where flushing costs nothing
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as name:
        yield Path(name) / "deployment"


def make(folder: Path, **options: Any) -> DurableDeployment:
    limits = {name: options.pop(name) for name in ("max_predictions", "on_exhausted") if name in options}
    options = {
        "n_shards": 3,
        "promise": expunge.Noise("exponential", **{"max_predictions": 100_000, **limits}),
        **options,
    }
    return expunge.create(folder, LookupTableLearner(), X, Y, **options)


def run(*works: Callable[[], None]) -> None:
    """All at once; the first error of any of them is raised."""
    errors: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a thread is stuck"
    if errors:
        raise errors[0]


@pytest.mark.parametrize("apply", ["now", "at 3", "every 0.02s"])
def test_ten_threads_predicting_and_updating_at_once(folder: Path, apply: str) -> None:
    deployment = make(folder, apply=apply)
    receipts: list[tuple[int, Any]] = []
    answered = [0] * 5

    def predicting(number: int) -> Callable[[], None]:
        def work() -> None:
            for row in range(12):
                rows = X[:3] + 1000 * (number + 1) + 10 * row  # no row is asked twice
                answered[number] += len(deployment.predict(rows))
                if row % 4 == 0:
                    assert verify(deployment.certificate().to_json()).wrong == ()

        return work

    def updating(number: int) -> Callable[[], None]:
        def work() -> None:
            for turn in range(5):
                record = 10 * number + turn
                new = Add(id=f"new {record}", features=X[record] + 0.5, label=int(Y[record]))
                receipt = deployment.update([Delete(record), new], key=f"key {record}")
                receipts.append((record, receipt))
                assert deployment.update([Delete(record), new], key=f"key {record}").request == receipt.request

        return work

    run(*map(predicting, range(5)), *map(updating, range(5)))
    deployment.apply()
    status = deployment.status
    generation_one_only = status.generation == 1
    deployment.close()
    with expunge.open(folder) as found:
        gone = {10 * number + turn for number in range(5) for turn in range(5)}
        assert set(found.records.ids()) == (set(range(100)) - gone) | {f"new {record}" for record in gone}
        assert generation_one_only
        assert found.status.budget.predictions == sum(answered) == 5 * 12 * 3
        assert len(found.requests()) == len(receipts) == 25
        assert {one.state for one in found.requests()} == {"applied"}
        for record, receipt in receipts:
            kept = found.request(receipt.request)
            assert (kept.deletions, kept.additions) == (1, 1), record
            if receipt.state == "applied":
                assert receipt.round == kept.round
            else:
                assert (receipt.state, receipt.round) == ("pending", None)
        if apply == "now":
            assert {receipt.state for _, receipt in receipts} == {"applied"}
        assert sorted({one.round for one in found.requests()}) == list(range(1, found.status.round + 1))  # type: ignore[type-var]
        assert verify(found.certificate().to_json()).wrong == ()
        state = found.inside.state
        for shard, model in enumerate(state.models):
            rows, labels, _ = state.records.gather(state.members[shard])
            assert model == LookupTableLearner().fit(rows, labels, 0)


def test_exhausting_while_others_update(folder: Path) -> None:
    """Generations change under the predictions' feet, and no charge is lost between two books."""
    deployment = make(folder, max_predictions=10, on_exhausted="retrain_now")
    counted = [0]

    def predicting() -> None:
        for row in range(30):
            counted[0] += len(deployment.predict(X[row : row + 1] + 5000))

    run(predicting, lambda: [deployment.delete([n]) for n in range(8)] and None)
    deployment.wait()
    rows = deployment._store.database.rows("SELECT generation, reserved FROM generations ORDER BY generation")
    assert sum(reserved for _, reserved in rows) >= counted[0]
    assert [generation for generation, _ in rows] == list(range(1, deployment.status.generation + 1))
    deployment.close()
    with expunge.open(folder) as found:
        assert sorted(found.records.ids()) == list(range(8, 100))


class Gate:
    """Holds a thread at a step of the protocol, the first or a later time, until it is released."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, step: str, *, times: int = 1) -> None:
        self.reached, self.go_on, self.step, self.times = threading.Event(), threading.Event(), step, times
        monkeypatch.setattr(steps, "on_step", self.watch)

    def watch(self, name: str) -> None:
        self.times -= name == self.step
        if name == self.step and self.times == 0:
            self.reached.set()
            assert self.go_on.wait(60)


@pytest.mark.parametrize(
    ("step", "times"),
    [
        ("apply.trained", 1),
        ("stage.done", 1),
        ("erase.slots", 1),
        ("sweep.listed", 1),
        ("waiting.swept", 1),  # while it is swept, a request waits for the database
    ],
)
def test_requests_are_accepted_and_questions_answered_while_an_update_is_under_way(
    folder: Path, monkeypatch: pytest.MonkeyPatch, step: str, times: int
) -> None:
    deployment = make(folder, apply="manual")
    first = deployment.submit([Delete(1), Add(id="first", features=[1, 2], label=0)]).request
    gate = Gate(monkeypatch, step, times=times)
    thread = threading.Thread(target=deployment.apply)
    thread.start()
    assert gate.reached.wait(60)
    second = deployment.submit([Delete(2), Add(id="second", features=[3, 4], label=1)]).request
    assert len(deployment.predict(X[:3])) == 3
    assert deployment.request(first).public_state == "pending"
    assert deployment.status.pending == 2
    assert thread.is_alive()
    for request in (None, first, second):
        assert verify(deployment.certificate(request).to_json()).wrong == ()
    gate.go_on.set()
    thread.join(60)
    assert deployment.request(first).state == "applied"
    assert deployment.request(second).state == "pending"
    assert "first" in deployment.records
    assert "second" not in deployment.records
    assert deployment.apply() == 2  # what waited was not swept away
    assert "second" in deployment.records
    deployment.close()


def test_between_the_switch_on_the_disk_and_in_memory_nothing_is_accepted_or_cancelled(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory would check it against the dataset of the round before, without the requests that were switched."""
    deployment = make(folder, apply="manual")
    deployment.submit([Delete(1)])
    other = deployment.submit([Add(id="other", features=[1, 2], label=0)]).request
    gate = Gate(monkeypatch, "switch.done")
    applying = threading.Thread(target=deployment.apply)
    applying.start()
    assert gate.reached.wait(60)
    errors: list[BaseException] = []

    def again() -> None:
        try:
            deployment.submit([Delete(1)])
        except RecordError as error:
            errors.append(error)

    asking = threading.Thread(target=again)
    asking.start()
    asking.join(0.2)
    assert asking.is_alive()
    gate.go_on.set()
    for thread in (asking, applying):
        thread.join(60)
    assert "it was already deleted by request" in str(errors[0])
    with pytest.raises(RequestError, match="applied"):
        deployment.cancel(other)
    deployment.close()


@pytest.mark.parametrize("encrypt", [False, True])
def test_a_request_is_cancelled_while_another_one_is_trained(
    folder: Path, monkeypatch: pytest.MonkeyPatch, encrypt: bool
) -> None:
    deployment = make(folder, apply="manual", encrypt=encrypt)
    first = deployment.submit([Delete(1), Add(id="first", features=[1, 2], label=0)]).request
    gate = Gate(monkeypatch, "apply.trained")
    thread = threading.Thread(target=deployment.apply)
    thread.start()
    assert gate.reached.wait(60)
    second = deployment.submit([Delete(2), Add(id="second", features=[3, 4], label=1)]).request
    third = deployment.submit([Add(id="third", features=[5, 6], label=1)]).request
    deployment.cancel(second)
    with pytest.raises(RequestError, match="too late to cancel"):
        deployment.cancel(first)
    assert thread.is_alive()
    assert len(list((folder / "waiting").iterdir())) == 2  # of the first one, and of the third
    deployment.submit([Delete(2)], key="k")  # as if the second one had never been
    gate.go_on.set()
    thread.join(60)
    assert [deployment.request(each).state for each in (first, second, third)] == ["applied", "cancelled", "pending"]
    assert deployment.apply() == 2
    assert "first" in deployment.records
    assert "third" in deployment.records
    assert "second" not in deployment.records
    assert 2 not in deployment.records
    deployment.close()
    with expunge.open(folder) as again:
        assert len(again.records) == 100
        assert again.predict(X[:3]).shape == (3,)


def test_a_receipt_waits_for_an_update_that_is_half_way(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deployment = make(folder)
    request = deployment.submit([Delete(1)], key="k").request
    gate = Gate(monkeypatch, "switch.done")
    thread = threading.Thread(target=deployment.apply)
    thread.start()
    assert gate.reached.wait(60)
    threading.Timer(0.1, gate.go_on.set).start()
    receipt = deployment.update([Delete(1)], key="k")
    assert (receipt.request, receipt.state, receipt.round) == (request, "applied", 1)
    thread.join(60)
    deployment.close()


def test_cancelling_and_applying_at_once(folder: Path) -> None:
    deployment = make(folder, apply="manual")
    outcomes: dict[int, str] = {}

    def asking(first: int) -> Callable[[], None]:
        def work() -> None:
            for record in range(first, first + 6):
                request = deployment.submit(
                    [Delete(record), Add(id=f"n{record}", features=[record, 0], label=0)]
                ).request
                try:
                    deployment.cancel(request)
                    outcomes[record] = "cancelled"
                except RequestError:
                    outcomes[record] = "applied"

        return work

    stop = threading.Event()

    def applying() -> None:
        while not stop.is_set():
            deployment.apply()

    applier = threading.Thread(target=applying)
    applier.start()
    run(*(asking(10 * number) for number in range(5)))
    stop.set()
    applier.join(60)
    assert deployment.status.pending == 0
    deployment.close()
    with expunge.open(folder) as found:
        for record, outcome in outcomes.items():
            assert (record in found.records) == (outcome == "cancelled")
            assert (f"n{record}" in found.records) == (outcome == "applied")
        states = [one.state for one in found.requests()]
        assert len(states) == 30
        assert states.count("cancelled") == list(outcomes.values()).count("cancelled")
        assert verify(found.certificate().to_json()).wrong == ()


def test_closing_waits_for_an_update(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deployment = make(folder, apply="manual")
    request = deployment.submit([Delete(1)]).request
    gate = Gate(monkeypatch, "stage.done")
    thread = threading.Thread(target=deployment.apply)
    thread.start()
    assert gate.reached.wait(60)
    closing = threading.Thread(target=deployment.close)
    closing.start()
    closing.join(0.1)
    assert closing.is_alive()
    gate.go_on.set()
    closing.join(60)
    thread.join(60)
    with expunge.open(folder) as found:
        assert found.request(request).state == "applied"


HOLDER = """
import sys, expunge
deployment = expunge.open(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
deployment.delete([5])
print("deleted", flush=True)
sys.stdin.readline()
"""


def test_two_processes_one_folder(folder: Path) -> None:
    make(folder).close()
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == "ready\n"
        for attempt in (expunge.open, lambda path: expunge.open(path, apply_pending=False)):
            with pytest.raises(FolderBusyError, match=f"is in use by process {holder.pid}; close it there first"):
                attempt(folder)
        with open_view(folder) as view:  # a view is allowed, and sees what the other process does
            assert (view.status.round, view.status.num_records) == (0, 100)
            holder.stdin.write("\n")
            holder.stdin.flush()
            assert holder.stdout.readline() == "deleted\n"
            assert (view.status.round, view.status.num_records) == (1, 99)
            assert verify(view.certificate(view.requests()[0].request).to_json()).wrong == ()
        holder.kill()
        holder.wait(30)
    finally:
        if holder.poll() is None:
            holder.kill()
        holder.stdin.close()
        holder.stdout.close()
    with expunge.open(folder) as found:  # the system gives a dead process's lock back
        assert 5 not in found.records


def test_twice_in_one_process_is_refused_too(folder: Path) -> None:
    with make(folder), pytest.raises(FolderBusyError, match="is in use by process"):
        expunge.open(folder)
    expunge.open(folder).close()


def test_a_clock_applies_without_being_asked(folder: Path) -> None:
    with make(folder, apply="every 0.05s") as deployment:
        request = deployment.submit([Delete(1)]).request
        deadline = time.monotonic() + 30
        while deployment.request(request).state != "applied":
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert 1 not in deployment.records


# Closed in the middle of an update, by the handler of a signal.


@pytest.mark.parametrize("step", ["stage.model", "apply.trained", "stage.done", "switch.open"])
def test_who_closes_in_the_middle_of_an_update_leaves_nobody_writing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    deployment = make(folder, inclusion_probability=0.9, n_shards=8)
    loose: list[set[str]] = []

    def close() -> None:
        deployment.close()
        loose.append({path.name for path in (folder / "models").iterdir()} - known)
        with expunge.open(folder, apply_pending=False) as other:  # from now on another process may open the folder
            assert other.status.pending == 1

    def watch(reached: str) -> None:
        if reached == step and threading.current_thread() is threading.main_thread() and not loose:
            close()

    def advance(trained: int) -> None:
        if step == "stage.model" and not loose:
            close()

    known = {path.name for path in (folder / "models").iterdir()}
    monkeypatch.setattr(steps, "on_step", watch)
    with pytest.raises(StoreError, match="has been closed"):
        deployment.update([Delete(1), Add(id=1000, features=[1.0, 2.0], label=1)], advance=advance)
    if step != "switch.open":  # there the files are whole, and the next opening removes them
        assert loose == [set()]
    monkeypatch.undo()
    assert {path.name for path in (folder / "models").iterdir()} == known
    with expunge.open(folder) as found:
        assert found.status.pending == 0
        assert 1 not in found.records
        assert 1000 in found.records


def test_many_threads_close_at_once(folder: Path) -> None:
    """Those that come later find the folder closed, and say nothing."""
    deployment = make(folder)
    deployment.predict(X[:2])
    is_held = threading.Event()

    def hold() -> None:
        with deployment._deployment.hold():
            is_held.set()
            time.sleep(0.3)  # until the others stand at their locks

    def close() -> None:
        is_held.wait()
        deployment.close()

    run(hold, *[close] * 5)
    with expunge.open(folder) as found:
        assert found.status.budget.predictions == 2
