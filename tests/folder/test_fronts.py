"""The front is the same after opening, and nothing is calibrated, taught or charged for twice."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

import expunge
from expunge import Add, Delete, Guarantee, Randomness
from expunge.core.errors import FormatError, InputError, ParameterError, RecordError
from expunge.folder import DurableDeployment
from expunge.folder.codec import decode, encode
from expunge.folder.store import Store
from expunge.serving.promises import Consensus, Router, Student
from expunge.serving.publishing import DirectFront, DirectRound, RoutedRound, RouterFront, StudentFront, StudentRound
from expunge.training.fallback import GaussianNaiveBayes, NearestNeighbours, RidgeFallback

RNG = np.random.default_rng(0)
Y = np.arange(120) % 2
X = RNG.normal(size=(120, 3)) + 3 * Y[:, None]
POOL = RNG.normal(size=(40, 3)) + 3 * (np.arange(40) % 2)[:, None]
GATE: dict[str, Any] = {"n_shards": 100, "inclusion_probability": 0.3}
LIMITS: dict[str, Any] = {"target": Guarantee(8.0, 0.05, 0.05), "max_generations": 3, "max_predictions": 1000}


def make(folder: Path, **options: Any) -> DurableDeployment:
    options = {**GATE, "rng": Randomness.from_seed(1), **options}
    return expunge.create(folder, GaussianNB(), X, Y, **options)


def reopened(deployment: DurableDeployment) -> DurableDeployment:
    deployment.close()
    return expunge.open(deployment.path)


def test_a_student_is_kept_and_not_taught_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deployment = make(folder, promise=Student(POOL, **LIMITS))
    before, taught = deployment.inside.budget, deployment.student
    assert before.predictions >= len(taught.kept) > 0
    answers = deployment.predict(X)
    with monkeypatch.context() as patch:
        patch.setattr(StudentFront, "open_round", None)  # teaching would fail
        deployment = reopened(deployment)
    found = deployment.student
    assert isinstance(found, StudentRound)
    assert deployment.inside.budget == before
    assert np.array_equal(found.kept, taught.kept)
    assert np.array_equal(found.labels, taught.labels)
    assert np.array_equal(deployment.predict(X), answers)
    assert deployment.inside.budget == before  # answers are free
    deployment.delete([1])
    after = deployment.inside.budget
    assert after.predictions > 0  # the next round's lesson is paid for
    deployment = reopened(deployment)
    assert deployment.inside.budget == after
    deployment.close()


def test_how_a_round_turned_out_is_kept_with_it(folder: Path) -> None:
    """It may be told to anybody, and is that of the round in force: nothing remembers the rounds before."""
    told = []
    deployment = make(folder, promise=Student(POOL, **LIMITS))
    for gone in ([], [1], list(range(3, 80, 2))):
        if gone:
            deployment.delete(gone)
        assert deployment.student.outcome is not None
        told.append(deployment.student.figures)
        with expunge.folder.open_view(folder) as view:
            assert view.figures == json.loads(json.dumps(told[-1]))
        deployment = reopened(deployment)
        assert deployment.student.figures == told[-1]
    assert told[0] != told[2]  # most of a class has gone, so other points are kept
    deployment.close()
    other = make(folder.parent / "router", promise=Router(threshold=0.1, **LIMITS))
    with expunge.folder.open_view(other.path) as view:
        assert view.figures == {"router": {"ensemble_share": None, "fallback": "RidgeFallback"}}
    other.close()


def test_a_student_that_may_not_be_kept_is_trained_again(folder: Path) -> None:
    """It was taught with coins that people may have chosen their deletions by."""
    centres = np.array([[0.1, 0.1, 0.1], [3.1, 3.1, 3.1]])
    promise = Student(centres, selection_share=0.0, **LIMITS)
    deployment = make(folder, promise=promise)
    deployment.delete([1])
    assert not deployment.student.was_trained  # every point of the pool, with the labels of before
    deployment = reopened(deployment)
    deployment.delete([2])
    assert not deployment.student.was_trained
    student = deployment.student
    kept = decode(*deployment._store.object("round"))  # type: ignore[misc]
    lesson = encode({**kept, "can_be_kept": False})
    deployment._store.put_object("round", lesson.format, lesson.data)
    deployment = reopened(deployment)
    assert np.array_equal(deployment.student.kept, student.kept)
    deployment.delete([3])
    assert deployment.student.was_trained
    deployment = reopened(deployment)
    deployment.delete([4])
    assert not deployment.student.was_trained
    deployment.close()


def test_a_lesson_is_paid_for_on_the_disk_before_it_is_given(folder: Path) -> None:
    deployment = make(folder, promise=Student(POOL, **LIMITS))
    deployment.delete([1])
    reserved, _, _ = deployment._store.reserved(deployment.inside.generation)
    assert reserved >= deployment.inside.budget.predictions > 0
    deployment.close()


@pytest.mark.parametrize("fallback", [None, RidgeFallback(), GaussianNaiveBayes(), NearestNeighbours(num_neighbours=3)])
def test_a_router_is_kept_and_not_calibrated_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, fallback: Any
) -> None:
    deployment = make(folder, promise=Router(fallback=fallback, **LIMITS))
    serving = deployment.inside.serving
    assert isinstance(serving, RoutedRound)
    deployment.predict(X[:10])
    before = deployment.status
    with monkeypatch.context() as patch:
        patch.setattr(RouterFront, "open_round", None)  # calibrating would fail
        patch.setattr(type(serving.fallback), "fit_records", None)  # the fallback is fitted when a question comes
        deployment = reopened(deployment)
    found = deployment.inside.serving
    assert isinstance(found, RoutedRound)
    assert found.calibration == serving.calibration
    assert np.array_equal(found.is_easy(X), serving.is_easy(X))
    assert np.array_equal(found.model.assess(X).codes, serving.model.assess(X).codes)
    assert deployment.status == before
    deployment.update([Delete(3), Add(id="new", features=X[3] + 0.1, label=1)])
    deployment.close()


def test_a_calibration_at_the_extremes_is_kept(folder: Path) -> None:
    deployment = make(folder, promise=Router(threshold=np.inf, **LIMITS))
    serving = deployment.inside.serving
    deployment = reopened(deployment)
    found = deployment.inside.serving
    assert found.calibration.threshold == serving.calibration.threshold == np.inf  # type: ignore[attr-defined]
    assert np.isnan(found.calibration.dirty_chance)  # type: ignore[attr-defined]
    deployment.predict(X[:5])
    assert deployment.inside.budget.predictions == 0  # the fallback answers everything
    deployment.close()


@pytest.mark.parametrize("fallback", [NearestNeighbours(num_neighbours=3), GaussianNaiveBayes(), RidgeFallback()])
def test_a_router_goes_on_after_the_records_were_written_anew(folder: Path, fallback: Any) -> None:
    """An id of another kind has all records rewritten, in other slots than the fallback knew them by."""
    deployment = make(folder, promise=Router(fallback=fallback, threshold=0.0, **LIMITS), n_shards=5)
    deployment.delete([0, 5, 17])
    deployment.update([Add(id="late", features=X[0] + 0.25, label=0)])
    assert deployment.records.num_slots == len(deployment.records)  # rewritten
    for batch in ([Delete(7), Delete(60)], [Add(id="later", features=X[1] - 0.25, label=1), Delete("late")]):
        deployment.update(batch)  # type: ignore[arg-type]
        serving = deployment.inside.serving
        assert isinstance(serving, RoutedRound)
        assert serving.opening.state is deployment.inside.state
        fresh = fallback.fit_records(deployment.records).assess(X)
        assert np.array_equal(serving.model.assess(X).codes, fresh.codes)
        assert np.allclose(serving.model.assess(X).margins, fresh.margins)
    deployment.close()


def test_a_public_point_is_refused_when_it_is_asked_for(folder: Path) -> None:
    """Once accepted it could never be applied, nor anything that waits with it."""
    promise = Student(POOL, pool_ids=("public 1",), **LIMITS)
    deployment = make(folder, promise=promise, apply="manual")
    for found in (deployment, None):
        deployment = reopened(deployment) if found is None else deployment
        with pytest.raises(RecordError, match="record 'mine' is also in the public pool"):
            deployment.submit([Add(id="mine", features=POOL[7], label=0)])
        with pytest.raises(RecordError, match="record 'public 1' is also in the public pool"):
            deployment.submit([Add(id="public 1", features=X[7] + 0.5, label=0)])
        assert deployment.status.pending == 0
    deployment.submit([Delete(1), Add(id="mine", features=POOL[7] + 0.01, label=0)])
    assert deployment.apply() == 1
    deployment.close()


def test_a_record_that_no_fallback_takes_is_refused_when_it_is_asked_for(folder: Path) -> None:
    deployment = make(
        folder, promise=Router(threshold=0.0, **LIMITS), n_shards=3, apply="manual", weights=np.ones(len(X))
    )
    fine: dict[str, Any] = {"id": "mine", "features": X[0] + 0.5, "label": 0}
    with pytest.raises(RecordError, match=r"record 'mine' has the weight 0\.5"):
        deployment.submit([Delete(2), Add(**{**fine, "weight": 0.5})])
    deployment.submit([Delete(1), Add(**{**fine, "weight": 0.0})])
    deployment.submit([Add(**{**fine, "id": "huge", "features": [1e200, 0, 0]})])
    assert deployment.apply()
    assert {"mine", "huge"} <= set(deployment.records.ids())
    deployment.close()


def test_a_front_that_cannot_keep_its_rounds_is_refused(folder: Path) -> None:
    class Own:
        def open_round(self, opening: Any) -> Any:
            return DirectFront().open_round(opening)

    class Strange(Consensus):
        def make_front(self, learner: Any) -> Any:
            return Own()

    with pytest.raises(ParameterError, match="Own cannot be kept in a folder: it has no dump_round"):
        make(folder, promise=Strange())


class Counting(DirectFront):
    """A front of a user: it counts the rounds, and what it has counted is kept."""

    def open_round(self, opening: Any) -> Any:
        before = getattr(opening.previous, "count", 0)
        return Counted(opening.settled(), before + 1)

    def dump_round(self, serving: Any, state: Any) -> dict[str, Any]:
        return {"count": serving.count}

    def load_round(self, opening: Any, kept: Any) -> Any:
        return Counted(opening.settled(), kept["count"])


@dataclass(frozen=True)
class Counted(DirectRound):
    count: int


class Counts(Consensus):
    def make_front(self, learner: Any) -> Any:
        return Counting()


def test_a_front_of_ones_own_is_kept_with_what_its_rounds_have_learned(folder: Path) -> None:
    trust = [f"{__name__}:Counting"]
    deployment = make(folder, promise=Counts(), trust=trust)
    deployment.delete([1])
    deployment.close()
    with expunge.open(folder, trust=trust) as deployment:
        assert deployment.inside.serving.count == 2  # type: ignore[attr-defined]
        deployment.delete([2])
        assert deployment.inside.serving.count == 3  # type: ignore[attr-defined]
        assert any("Counting, which is not part" in each for each in deployment.guarantee().assumptions)
    with pytest.raises(expunge.ExpungeError, match="Counting"):
        expunge.open(folder)


def test_a_round_that_was_damaged_is_refused(folder: Path) -> None:
    deployment = make(folder, promise=Student(POOL, **LIMITS))
    kept = decode(*deployment._store.object("round"))  # type: ignore[misc]
    for damaged in ({name: kept[name] for name in kept if name != "labels"}, [1, 2]):
        stored = encode(damaged)
        deployment._store.put_object("round", stored.format, stored.data)
        deployment.close()
        with pytest.raises(FormatError, match="what the front keeps of its round is damaged"):
            expunge.open(folder)
        store = Store.open(folder)
        stored = encode(kept)
        store.put_object("round", stored.format, stored.data)
        store.close()
        deployment = expunge.open(folder)
    deployment.close()


def test_a_front_that_holds_code_is_refused(folder: Path) -> None:
    promise = Student(POOL, augment=lambda rows, _: rows, **LIMITS)
    with pytest.raises(expunge.ExpungeError):
        make(folder, promise=promise)
    assert list(folder.parent.iterdir()) == []


def test_a_pool_of_another_form_is_refused(folder: Path) -> None:
    with pytest.raises(InputError):
        make(folder, promise=Student(POOL[:, :2], **LIMITS))
    assert list(folder.parent.iterdir()) == []


def test_a_student_front_is_read_as_it_was(folder: Path) -> None:
    promise = Student(POOL, dirty_chance=0.2, num_throw_away=50, **LIMITS)
    deployment = reopened(make(folder, promise=promise))
    found = deployment._deployment._front
    assert isinstance(found, StudentFront)
    assert np.array_equal(found.pool, POOL)
    front = promise.make_front(GaussianNB())
    same = {"pool": POOL, "student": front.student}  # arrays are equal to themselves only
    assert replace(found, **same) == replace(front, **same)  # type: ignore[arg-type]
    deployment.close()


def test_a_folder_that_was_opened_again_has_the_throw_away_ensemble_of_its_records(
    folder: Path, tmp_path: Path
) -> None:
    """It is not stored. The first round after opening trains it from scratch, later ones only where they touch it."""
    deployment = make(folder, promise=Student(POOL, **LIMITS))
    stored = {path.name for path in folder.rglob("*")}
    for record in (1, 2):
        deployment = reopened(deployment)
        assert deployment.student.throw_away is deployment.inside.serving.throw_away is None  # type: ignore[attr-defined]
        deployment.delete([record])
    deployment.delete([3])
    serving = deployment.inside.serving
    left = np.setdiff1d(np.arange(len(X)), [1, 2, 3])
    options: dict[str, Any] = {**GATE, "promise": Student(POOL, **LIMITS), "rng": Randomness.from_seed(9)}
    fresh = expunge.create(tmp_path / "fresh", GaussianNB(), X[left], Y[left], ids=left, **options)
    expected = fresh.inside.serving
    assert serving.throw_away.digests == expected.throw_away.digests  # type: ignore[attr-defined]
    assert np.array_equal(
        [model.predict(POOL) for model in serving.throw_away.models],  # type: ignore[attr-defined]
        [model.predict(POOL) for model in expected.throw_away.models],  # type: ignore[attr-defined]
    )
    assert np.array_equal(deployment.student.kept, fresh.student.kept)
    assert len({path.name for path in folder.rglob("*")}) == len(stored)  # as many files as before: none for it
    for each in (deployment, fresh):
        each.close()
