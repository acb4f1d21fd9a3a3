"""A deployment in a folder: closed, failing, large, emptied, sliced, certified."""

from __future__ import annotations

import copy
import pickle
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import SGDClassifier

import expunge
import expunge.training.ensemble
from expunge import Add, Delete
from expunge.core.errors import InputError, RecordError, StoreError, TrainingError
from expunge.evidence import verify
from expunge.folder import evidence as evidence_module
from expunge.folder.codec import encode_model
from expunge.folder.store import steps
from expunge.training.learners import LookupTableLearner, SlicedScikitLearner
from expunge.training.learners.protocol import for_classes
from expunge.training.learners.slices import fit_slices

X = np.arange(60, dtype=np.float32).reshape(30, 2)
Y = np.arange(30) % 3


# Closing, and what comes after.


def test_a_context_manager_closes(folder: Path, folders: Any) -> None:
    with folders.make() as deployment:
        deployment.predict(X[:2])
    with expunge.open(folder) as again:
        assert again.status.budget.predictions == 2
        assert again.path == folder
        assert again.status.name == "deployment"
    deployment.close()  # a second time does nothing, even if another process has the folder


def test_use_after_closing_is_one_clear_line(folders: Any) -> None:
    deployment = folders.make()
    deployment.close()
    uses: list[Any] = [
        lambda: deployment.predict(X[:1]),
        lambda: deployment.delete([1]),
        lambda: deployment.submit([Delete(1)]),
        lambda: deployment.apply(),
        lambda: deployment.rekey(),
        lambda: deployment.cancel("x"),
        lambda: deployment.certificate(),
        lambda: deployment.requests(),
        lambda: deployment.status,
        lambda: deployment.provenance,
    ]
    for use in uses:
        with pytest.raises(StoreError, match="has been closed") as caught:
            use()
        assert "\n" not in str(caught.value)


def test_pickling_and_copying_are_refused(folder: Path, folders: Any) -> None:
    with folders.make() as deployment:
        for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="open its folder instead"):
                attempt(deployment)  # type: ignore[operator]


# Failures change nothing.


def everything_in(folder: Path) -> dict[str, bytes]:
    skipped = ("state.db", "state.db-wal", "state.db-shm", "lock")
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name not in skipped}


@pytest.mark.parametrize("error", [ValueError("odd data"), KeyboardInterrupt()])
def test_an_error_in_training_leaves_the_folder_and_the_request(
    folder: Path, folders: Any, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    deployment = folders.make(inclusion_probability=1.0)
    request = deployment.submit([Delete(3), Add(id=50, features=[1, 2], label=0)])
    before, status = everything_in(folder), deployment.status

    def fail(*_: Any, **__: Any) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(LookupTableLearner, "fit", fail)
        with pytest.raises(TrainingError if isinstance(error, ValueError) else KeyboardInterrupt):
            deployment.apply()
        assert everything_in(folder) == before
        assert deployment.status == status
        assert deployment.request(request.request) == request
        assert verify(deployment.certificate(request.request).to_json()).wrong == ()
        deployment.predict(X[:1])
        if isinstance(error, ValueError):
            with pytest.raises(TrainingError):
                expunge.open(folders.copy(deployment, "crashed"))
            with expunge.open(deployment.path.with_name("crashed"), apply_pending=False) as image:  # the lock was freed
                assert image.status.pending == 1
    assert deployment.apply() == 1
    assert deployment.request(request.request).state == "applied"
    assert 3 not in deployment.records
    assert 50 in deployment.records
    deployment.close()


@pytest.mark.parametrize(
    ("batch", "error"),
    [
        ([Delete(0), Delete(1), Delete(99)], "no record has the id 99"),
        ([Delete(0), Add(id=1, features=[0, 0], label=0)], "the id 1 is in use"),
        ([Delete(0), Add(id=50, features=[0, 0, 0], label=0)], "has features of the form"),
        ([Delete(0), Add(id=50, features=[0, np.nan], label=0)], "NaN or infinity"),
        ([Delete(0), Add(id=50, features=[0, 0], label=9)], "not a known class"),
        ([Delete(0), Add(id="\ud800", features=[0, 0], label=0)], "not Unicode"),
        ([Delete(0), Add(id=2**63, features=[0, 0], label=0)], "at most 64 bits"),
        ([], "at least one record"),
    ],
)
def test_a_batch_is_all_or_nothing(folder: Path, folders: Any, batch: list[Any], error: str) -> None:
    with folders.make() as deployment:
        before = everything_in(folder)
        with pytest.raises(InputError, match=error):
            deployment.update(batch)
        assert deployment.requests() == []
        assert everything_in(folder) == before
        assert len(deployment.records) == 30
        assert deployment.delete([0]).state == "applied"


def test_a_request_about_nobody_is_refused(folders: Any) -> None:
    with folders.make() as deployment, pytest.raises(InputError, match="at least one record"):
        deployment.add(X[:0], Y[:0], [])


# Storage.


def test_large_arrays_stay_on_the_disk(folder: Path, folders: Any) -> None:
    rows = 200_000
    table = np.arange(rows * 20, dtype=np.float32).reshape(rows, 20)
    deployment = expunge.create(
        folder, LookupTableLearner(), table, np.arange(rows) % 2, n_shards=2, inclusion_probability=1e-4
    )
    for found in (deployment, folders.reopen(deployment)):
        features = found.records.blocks[0].features
        assert isinstance(features.base, np.memmap)
        assert Path(features.base.filename).name == "features.slab"
    assert resident_share("features.slab") < 0.2  # opening has looked at next to nothing of it
    slot = found.records.slot_of(777)
    assert np.array_equal(found.records.blocks[0].features[slot], table[777])
    found.delete([777])
    assert not found.records.blocks[0].features[slot].any()
    assert len(found.records) == rows - 1
    found.close()


def test_a_training_reads_the_rows_of_its_shard_only(folder: Path, folders: Any) -> None:
    rows = 200_000
    table = np.random.default_rng(0).normal(size=(rows, 20)).astype(np.float32)
    learner = SGDClassifier(max_iter=1, tol=None)
    options: dict[str, Any] = {"n_shards": 20, "apply": "now"}
    deployment = expunge.create(folder, learner, table, np.arange(rows) % 2, **options)
    deployment = folders.reopen(deployment)
    deployment.delete([777])
    assert deployment.inside.last_report.num_retrained == 1
    assert resident_share("features.slab") < 0.2  # one of 20; in the order of arrival it is every page
    deployment.close()


def resident_share(name: str) -> float:
    """How much of the largest mapping of a file is in memory."""
    shares, size, inside = {0: 1.0}, 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        key, *rest = line.split()
        if "-" in key and not key.endswith(":"):
            inside = line.rstrip().endswith(name)
        elif inside and key == "Size:":
            size = int(rest[0])
        elif inside and key == "Rss:":
            shares[size] = int(rest[0]) / size
    return shares[max(shares)]


def test_many_deletions_have_the_records_written_anew(
    folder: Path, folders: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expunge.training.ensemble, "_DEAD_SLOTS_ALLOWED", 4)
    deployment = folders.make(subjects=[f"s{n % 7}" for n in range(30)])
    epochs = set()
    for record in range(12):
        deployment.delete([record])
        epochs.add(tuple(path.name for path in (folder / "records").iterdir()))
        assert sorted(deployment.records.ids()) == list(range(record + 1, 30))
        state = deployment.inside.state
        for shard, model in enumerate(state.models):
            rows, labels, _ = state.records.gather(state.members[shard])
            if len(labels):
                assert model == LookupTableLearner().fit(rows, labels, 0)
    assert len(epochs) >= 2
    assert all(len(names) == 1 for names in epochs)
    before = deployment.inside.state
    deployment = folders.reopen(deployment)
    after = deployment.inside.state
    assert after.models == before.models
    assert after.records.ids() == before.records.ids()
    assert np.array_equal(after.records.gather(after.records.live_slots())[0], X[after.records.ids()])
    assert {after.records.id_of(slot) for slot in after.records.slots_of_subject("s3")} == {17, 24}
    deployment.delete(subjects=["s3"])
    assert 17 not in deployment.records
    deployment.close()


def test_everybody_may_leave_and_others_come(folders: Any) -> None:
    deployment = folders.make()
    deployment.delete(range(30))
    assert deployment.predict(X[:2]).tolist() == [None, None]
    deployment = folders.reopen(deployment)
    assert len(deployment.records) == 0
    deployment.add(X[:5], Y[:5], [f"new {n}" for n in range(5)])
    deployment = folders.reopen(deployment)
    assert sorted(deployment.records.ids()) == [f"new {n}" for n in range(5)]
    deployment.close()


# Slices.


def test_slices_go_on_from_their_checkpoints_after_reopening(folders: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = SlicedScikitLearner(SGDClassifier(loss="log_loss"), num_slices=5)
    deployment = folders.make(learner, classes=[0, 1, 2], inclusion_probability=0.5)
    other = expunge.open(folders.copy(deployment, "copy"))
    trained: list[int] = []
    extend = SlicedScikitLearner.extend

    def counted(self: Any, *arguments: Any, **options: Any) -> Any:
        trained.append(1)
        return extend(self, *arguments, **options)

    monkeypatch.setattr(SlicedScikitLearner, "extend", counted)
    spent = []
    for found in (deployment, other):
        trained.clear()
        found.update([Delete(3), Add(id=50, features=X[3] + 0.5, label=1)])
        spent.append(len(trained))
    assert spent[0] == spent[1]
    left, right = deployment.inside.state, other.inside.state
    assert spent[0] < 5 * len(deployment.inside.last_report.touched)  # type: ignore[union-attr]
    assert left.key == right.key
    for shard in range(4):
        assert np.array_equal(left.members[shard], right.members[shard])
        encoded = [encode_model(state.learner, state.models[shard]).data for state in (left, right)]
        assert encoded[0] == encoded[1]
        assert encoded[0] == encode_model(left.learner, trained_from_scratch(left, shard)).data
    deployment.close()
    other.close()


def trained_from_scratch(state: Any, shard: int) -> Any:
    """The model that the records and the recipe give."""
    learner: Any = for_classes(state.learner, state.records.classes)
    return fit_slices(learner, state.contents(shard))


# Certificates and the clock.


def test_what_shows_the_end_of_a_retraining_is_on_the_tick(folders: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1_900_000_000.25]
    monkeypatch.setattr(evidence_module.time, "time", lambda: now[0])
    deployment = folders.make(clock_seconds=300, apply="manual")
    applied = deployment.submit([Delete(1)]).request
    now[0] += 10
    deployment.apply()
    pending = deployment.submit([Delete(2)]).request
    cancelled = deployment.submit([Delete(3)]).request
    deployment.cancel(cancelled)
    tick, done = evidence_module.utc(1_900_000_200), evidence_module.utc(1_900_000_500)
    assert deployment.request(applied).applied_by == done
    assert deployment.request(applied).accepted_at == evidence_module.utc(1_900_000_000)
    assert deployment.request(cancelled).applied_by == evidence_module.utc(1_900_000_010)
    for request, state in ((applied, "applied"), (pending, "pending"), (cancelled, "cancelled"), (None, None)):
        certificate = deployment.certificate(request)
        assert certificate.issued_at == (done if request == applied else tick)
        assert not certificate.clamped
        assert verify(certificate.to_json()).wrong == ()
        if request is not None:
            assert certificate.request is not None
            assert certificate.request.state == state
    deployment.rekey()
    row = deployment._store.database.row("SELECT entry FROM ledger ORDER BY sequence DESC LIMIT 1")
    assert row is not None
    assert f'"at":"{done}"' in row[0]
    deployment.close()


@pytest.mark.parametrize("seconds", [0.0, 1.0, 200.0, 305.0, 1000.0])
def test_the_date_is_that_of_the_beginning_however_long_the_training_takes(
    folders: Any, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """A request that comes just before a tick is not dated by the shards that it touches."""
    now = [1_900_000_199.5]
    monkeypatch.setattr(evidence_module.time, "time", lambda: now[0])
    deployment = folders.make(clock_seconds=300, apply="manual")

    def pass_time(step: str) -> None:
        if step == "apply.trained":
            now[0] += seconds

    monkeypatch.setattr(steps, "on_step", pass_time)
    request = deployment.delete([1], apply=True).request
    # One tick after the next one; the training of 1000 seconds is longer than that, and goes on by whole ticks.
    done = evidence_module.utc(1_900_000_500 if seconds < 301 else 1_900_000_800 if seconds < 601 else 1_900_001_400)
    assert deployment.request(request).applied_by == done
    certificate = deployment.certificate(request)
    assert certificate.issued_at == done
    assert verify(certificate.to_json()).wrong == ()
    assert verify(deployment.certificate().to_json()).wrong == ()
    now[0] = 1_900_010_099.5
    deployment.rekey()
    row = deployment._store.database.row("SELECT entry FROM ledger ORDER BY sequence DESC LIMIT 1")
    assert row is not None
    later = 1_900_010_400 if seconds < 301 else 1_900_010_700 if seconds < 601 else 1_900_011_300
    assert f'"at":"{evidence_module.utc(later)}"' in row[0]
    deployment.close()


def test_no_date_tells_when_the_training_of_another_ended(folders: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits for a lock is dated from before it waited."""
    now, is_training, is_waiting = [1_900_000_000.0], threading.Event(), threading.Event()
    monkeypatch.setattr(evidence_module.time, "time", lambda: now[0])
    deployment = folders.make(apply="manual")
    deployment.delete([1])
    other = deployment.delete([2]).request

    def train(step: str) -> None:
        if step == "apply.trained":
            is_training.set()
            assert is_waiting.wait(10)
            time.sleep(0.3)  # until the others stand at their locks
            now[0] += 7
        if step == "switch.open":
            time.sleep(0.1)

    monkeypatch.setattr(steps, "on_step", train)
    applying = threading.Thread(target=deployment.apply)
    applying.start()
    assert is_training.wait(10)
    now[0] += 3
    late = deployment.delete([3]).request
    cancelling = threading.Thread(target=deployment.cancel, args=[late])
    cancelling.start()
    is_waiting.set()
    for thread in (applying, cancelling):
        thread.join()
    assert deployment.request(other).state == "applied"
    assert deployment.request(late).state == "cancelled"
    assert deployment.request(late).applied_by == evidence_module.utc(1_900_000_003)
    deployment.close()


def test_a_request_is_dated_from_before_it_waited_for_a_switch(folders: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1_900_000_000.0]
    monkeypatch.setattr(evidence_module.time, "time", lambda: now[0])
    deployment = folders.make(apply="manual")
    with deployment._inbox.lock:
        thread = threading.Thread(target=deployment.delete, args=[[3]])
        thread.start()
        time.sleep(0.3)
        now[0] += 7
    thread.join()
    assert deployment.requests()[0].accepted_at == evidence_module.utc(1_900_000_000)
    deployment.close()


def test_a_deployment_is_dated_from_before_it_was_trained(folders: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1_900_000_000.0]
    monkeypatch.setattr(evidence_module.time, "time", lambda: now[0])

    def train(step: str) -> None:
        if step == "create.records":
            now[0] += 1000

    monkeypatch.setattr(steps, "on_step", train)
    with folders.make() as deployment:
        certificate = deployment.certificate()
        assert certificate.deployment.created_at == evidence_module.utc(1_900_000_000)
        assert certificate.log.entries[0].at == evidence_module.utc(1_900_000_000)


# Interruptions between disk and memory.


@pytest.mark.parametrize("act", ["delete", "retrain"])
def test_who_interrupts_between_disk_and_memory_has_to_open_again(
    folder: Path, folders: Any, monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    """Models that the disk has replaced answer no query, and no update builds on them."""
    deployment = folders.make(max_predictions=100)

    def interrupt(step: str) -> None:
        if step == "switch.done":
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(steps, "on_step", interrupt)
        with pytest.raises(KeyboardInterrupt):
            deployment.delete([0, 1]) if act == "delete" else deployment.rekey()
    for again in (
        deployment.apply,
        deployment.rekey,
        lambda: deployment.delete([3]),
        lambda: deployment.submit([Delete(3)]),
        lambda: deployment.predict(X[:2]),
    ):
        with pytest.raises(StoreError, match="interrupted half-way; close the folder and open it again"):
            again()
    with folders.reopen(deployment) as other:
        assert len(other.requests()) == (act == "delete")
        assert (0 in other.records) == (act == "retrain")
        assert other.status.generation == (2 if act == "retrain" else 1)
        assert other.delete([3]).state == "applied"


def test_who_interrupts_the_switch_in_memory_has_to_open_again(folders: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    deployment = folders.make(max_predictions=100)

    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("expunge.folder.keeper.DurableJournal", interrupt)
        with pytest.raises(KeyboardInterrupt):
            deployment.rekey()
    for again in (deployment.rekey, lambda: deployment.predict(X[:2])):
        with pytest.raises(StoreError, match="open it again"):
            again()
    folders.reopen(deployment).close()


def test_an_update_that_failed_before_the_switch_is_taken_up_again(
    folders: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment = folders.make()

    def interrupt(step: str) -> None:
        if step == "stage.done":
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(steps, "on_step", interrupt)
        with pytest.raises(KeyboardInterrupt):
            deployment.delete([0])
    deployment.predict(X[:2])
    assert deployment.apply() == 1
    deployment.close()


def test_a_certificate_of_an_unknown_request(folder: Path, folders: Any) -> None:
    with folders.make() as deployment, pytest.raises(expunge.ExpungeError, match="there is no request 'x'"):
        deployment.certificate("x")
    with expunge.open(folder) as deployment:
        receipt = deployment.delete([0])
        with pytest.raises(expunge.ExpungeError, match=r"a request's id is a text \(`receipt.request`\), got Receipt"):
            deployment.certificate(receipt)  # type: ignore[arg-type]


def test_provenance_is_kept(folders: Any) -> None:
    with folders.make(provenance={"table": "train.csv", "columns": ["a", 1, None]}) as deployment:
        assert deployment.provenance == {"table": "train.csv", "columns": ["a", 1, None]}


def test_records_that_are_wrong_at_creation_leave_nothing(folder: Path, folders: Any) -> None:
    with pytest.raises(RecordError):
        folders.make(ids=[0] * 30)
    assert list(folder.parent.iterdir()) == []


def test_a_prediction_under_way_has_the_models_that_an_update_replaces(folder: Path, folders: Any) -> None:
    folders.make(n_shards=8, inclusion_probability=0.1).close()  # a record is in all 8 with chance 1e-8
    with expunge.open(folder) as deployment:
        before, expected = deployment.inside.state, None
        with expunge.folder.contents(folder) as found:
            expected = expunge.learn(found.records, before.recipe)
        deployment.delete([3])
        assert before.models.num_read < 8
        deployment.rekey()  # replaces every file
        assert before.models == expected.models
