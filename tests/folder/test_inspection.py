"""Reading a folder without changing it: views of a deployment, and the records, learner and settings in it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

import expunge
from expunge import Delete, Guarantee
from expunge.core.errors import FormatError, RequestError, StoreError
from expunge.evidence import verify
from expunge.folder import DurableDeployment, contents, inspection, open_view
from expunge.folder.store import Store, steps
from expunge.serving.promises import Consensus, Noise
from expunge.serving.publishing import DirectFront
from expunge.training.learners import LookupTableLearner, ScikitLearner

X = np.arange(40, dtype=np.float32).reshape(20, 2)
ROWS = np.arange(40.0).reshape(20, 2)
OPTIONS: list[dict[str, Any]] = [
    {"promise": Noise("exponential", max_predictions=640), "n_shards": 3},
    {"promise": Noise("laplace"), "n_shards": 3},
    {"promise": "exact", "n_shards": 3},
    {"promise": "router", "n_shards": 3},
    {"n_shards": 3, "sampling": "partition", "promise": "unguarded"},
    {
        "n_shards": 100,
        "inclusion_probability": 1.0,
        "promise": Consensus(target=Guarantee(8.0, 0.05, 0.05), max_generations=3),
    },
]


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
    with open_view(folder) as view:
        assert view.guarantee() == said[0]
        assert view.requests() == said[1]
        assert view.provenance == said[2]
        budget, told = view.status.budget, said[3].budget
        assert replace(view.status, budget=told) == said[3]
        is_secret = options["promise"] == "router" or isinstance(options["promise"], Consensus)
        assert (budget is None, told is None) == (is_secret, is_secret)
        if told is not None:
            assert (budget == told) if not is_open else (budget.predictions >= told.predictions)
        assert view.request(pending).state == "pending"
        for request in (None, applied, cancelled, pending):
            assert verify(view.certificate(request).to_json()).wrong == ()
        with pytest.raises(RequestError, match="there is no request"):
            view.request("nobody")
    deployment.close()


def test_a_view_follows_what_happens(folder: Path) -> None:
    with make(folder) as deployment, open_view(folder) as view:
        for record in range(3):
            deployment.delete([record], apply=True)
            deployment.predict(X[:1] + record + 100)
            status = view.status
            assert (status.round, status.num_records) == (record + 1, 19 - record)
            assert status.budget.predictions >= record + 1
        deployment.rekey()
        assert view.status.generation == 2
        assert view.status.budget.predictions == 0  # the new generation's books, not the old one's
        assert view.certificate().publication.predictions_reserved == 0


def test_a_view_does_not_keep_a_writer_from_erasing(folder: Path) -> None:
    with make(folder) as deployment, open_view(folder) as view:
        view.certificate()
        assert deployment.delete([1], apply=True).state == "applied"
        assert (folder / "state.db-wal").stat().st_size < 100_000


def test_a_view_changes_nothing_and_takes_no_lock(folder: Path) -> None:
    make(folder).close()
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file() and path.suffix != ".db"}
    with open_view(folder) as one, open_view(folder) as two, expunge.open(folder) as found:
        assert one.status.num_records == two.status.num_records == len(found.records)
        with pytest.raises(StoreError, match="cannot be written to"):
            one._store.write_fact("x", 1)
    after = {path: path.stat().st_mtime_ns for path in before if path.name not in ("lock", "moment")}
    assert {path: time for path, time in before.items() if path in after} == after


def test_a_view_that_was_closed(folder: Path) -> None:
    make(folder).close()
    view = open_view(folder)
    view.close()
    view.close()
    with pytest.raises(StoreError, match="has been closed"):
        _ = view.status


def test_nothing_to_look_at(folder: Path) -> None:
    with pytest.raises(FormatError, match="does not exist"):
        open_view(folder)


def test_a_guarantee_that_was_tampered_with(folder: Path) -> None:
    with make(folder) as deployment:
        deployment._store.write_fact("guarantee", {"alpha": "much"})
        with (
            open_view(folder) as view,
            pytest.raises(FormatError, match="the guarantee that was written down is damaged"),
        ):
            view.guarantee()


@pytest.mark.parametrize("is_served", [False, True])
def test_the_contents_are_those_of_the_deployment(tmp_path: Path, is_served: bool) -> None:
    folder = tmp_path / "clinic"
    served = expunge.create(folder, GaussianNB(), ROWS, np.arange(20) % 2, n_shards=3, promise="noise")
    served.delete([4, 5])
    if not is_served:
        served.close()
    with contents(folder) as found:
        assert found.name == "clinic"
        assert {*found.records.ids()} == {*range(20)} - {4, 5}
        assert np.array_equal(found.records.gather(found.records.live_slots())[0], ROWS[found.records.ids()])
        assert isinstance(found.learner, ScikitLearner)
        assert isinstance(found.learner.estimator, GaussianNB)
        assert (found.settings.n_shards, type(found.settings.promise.mechanism).__name__) == (3, "ExponentialMechanism")
        assert isinstance(found.front, DirectFront)
    served.close()


def test_what_is_no_deployment_has_no_contents(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="does not exist"), contents(tmp_path / "nothing"):
        pass


TEXTS = [f"person-{number}" for number in range(20)]


def serve(folder: Path, rows: object = ROWS) -> DurableDeployment:
    return expunge.create(
        folder, LookupTableLearner(), rows, np.arange(20) % 2, ids=TEXTS, n_shards=3, promise="unguarded"
    )


@pytest.mark.parametrize("step", ["switch.done", "erase.heap", "erase.slots", "erase.checkpoint"])
def test_an_erasure_cut_short_does_not_keep_anybody_from_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Texts that are zeros where the index still points to them are no JSON."""

    def cut_short(reached: str) -> None:
        if reached == step:
            raise OSError(5, "Input/output error")

    with serve(tmp_path / "clinic", ROWS.astype(object)) as served:
        with monkeypatch.context() as patch:
            patch.setattr(steps, "on_step", cut_short)
            with pytest.raises((StoreError, OSError)):
                served.delete(["person-4", "person-5"])
        assert served.status.pending == 1
        with contents(tmp_path / "clinic") as found:
            assert {*found.records.ids()} == {*TEXTS} - {"person-4", "person-5"}


@pytest.mark.parametrize("uses_it", [False, True])
def test_a_reader_holds_nobody_up_and_is_told_of_what_was_erased(tmp_path: Path, uses_it: bool) -> None:
    def study(served: DurableDeployment) -> None:
        with contents(served.path) as found:
            assert served.delete(["person-4"]).state == "applied"
            slots, gone = found.records.live_slots(), found.records.slot_of("person-4")
            assert len(slots) == 20
            assert found.records.gather(np.delete(slots, gone))[0].any()
            assert not found.records.blocks[0].features[gone].any(), "what is erased is erased, also for a reader"
            if uses_it:
                found.records.gather(slots)

    with serve(tmp_path / "clinic") as served, pytest.raises(StoreError, match="was changed while its records were"):
        study(served)


def test_what_was_read_as_a_whole_may_change_afterwards(tmp_path: Path) -> None:
    with serve(tmp_path / "clinic", ROWS.astype(object)) as served, contents(served.path) as found:
        assert served.delete(["person-4"]).state == "applied"
        places = [TEXTS.index(name) for name in found.records.ids()]
        assert np.array_equal(found.records.gather(found.records.live_slots())[0], ROWS[places])


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("times", [1, 4, 5])
def test_an_update_in_the_middle_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int, fails: bool
) -> None:
    really_read = inspection._read
    with serve(tmp_path / "clinic") as served:
        left = TEXTS[:times]

        def read(store: Store, trusted: tuple[str, ...]) -> inspection.Contents:
            if left:
                served.delete([left.pop()])
                if fails:
                    raise ValueError("what is half overwritten cannot be read")
            return really_read(store, trusted)

        monkeypatch.setattr(inspection, "_read", read)
        if times == 5:
            with pytest.raises(StoreError, match="faster than it can be read"), contents(served.path):
                pass
            return
        with contents(served.path) as found:
            assert {*found.records.ids()} == {*TEXTS[times:]}


def test_what_is_wrong_with_a_folder_at_rest_is_said(tmp_path: Path) -> None:
    serve(tmp_path / "clinic").close()
    next((tmp_path / "clinic" / "records").glob("*/*.heap")).unlink()
    with pytest.raises(FormatError, match="is missing"), contents(tmp_path / "clinic"):
        pass
