"""What a folder was made from, for who studies it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

import expunge
from expunge.core.errors import FormatError, StoreError
from expunge.folder import DurableDeployment, contents
from expunge.folder import recipe as reading
from expunge.folder.store import Store, steps
from expunge.serving.publishing import DirectFront
from expunge.training.learners import LookupTableLearner, ScikitLearner

X = np.arange(40.0).reshape(20, 2)


@pytest.mark.parametrize("is_served", [False, True])
def test_the_contents_are_those_of_the_deployment(tmp_path: Path, is_served: bool) -> None:
    folder = tmp_path / "clinic"
    served = expunge.create(folder, GaussianNB(), X, np.arange(20) % 2, n_shards=3, mechanism="exponential")
    served.delete([4, 5])
    if not is_served:
        served.close()
    with contents(folder) as found:
        assert found.name == "clinic"
        assert found.records.ids() == [record for record in range(20) if record not in (4, 5)]
        assert np.array_equal(found.records.gather(found.records.live_slots())[0], np.delete(X, [4, 5], axis=0))
        assert isinstance(found.learner, ScikitLearner)
        assert isinstance(found.learner.estimator, GaussianNB)
        assert (found.settings.n_shards, type(found.settings.mechanism).__name__) == (3, "ExponentialMechanism")
        assert isinstance(found.front, DirectFront)
    served.close()


def test_what_is_no_deployment_has_no_contents(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="does not exist"), contents(tmp_path / "nothing"):
        pass


TEXTS = [f"person-{number}" for number in range(20)]


def serve(folder: Path, rows: object = X) -> DurableDeployment:
    return expunge.create(
        folder, LookupTableLearner(), rows, np.arange(20) % 2, ids=TEXTS, n_shards=3, mechanism="majority"
    )


@pytest.mark.parametrize("step", ["switch.done", "erase.heap", "erase.slots", "erase.checkpoint"])
def test_an_erasure_cut_short_does_not_keep_anybody_from_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Texts that are zeros where the index still points to them are no JSON."""

    def cut_short(reached: str) -> None:
        if reached == step:
            raise OSError(5, "Input/output error")

    with serve(tmp_path / "clinic", X.astype(object)) as served:
        with monkeypatch.context() as patch:
            patch.setattr(steps, "watch", cut_short)
            with pytest.raises((StoreError, OSError)):
                served.delete(["person-4", "person-5"])
        assert served.status.pending == 1
        with contents(tmp_path / "clinic") as found:
            assert found.records.ids() == [name for name in TEXTS if name not in ("person-4", "person-5")]


def test_a_reader_holds_nobody_up_and_is_told_of_what_was_erased(tmp_path: Path) -> None:
    def study(served: DurableDeployment) -> None:
        with contents(served.path) as found:
            assert served.delete(["person-4"]).state == "applied"
            slots = found.records.live_slots()
            assert len(slots) == 20
            assert not found.records.gather(slots)[0][4].any(), "what is erased is erased, also for a reader"

    with serve(tmp_path / "clinic") as served, pytest.raises(StoreError, match="was changed while its records were"):
        study(served)


def test_what_was_read_as_a_whole_may_change_afterwards(tmp_path: Path) -> None:
    with serve(tmp_path / "clinic", X.astype(object)) as served, contents(served.path) as found:
        assert served.delete(["person-4"]).state == "applied"
        assert np.array_equal(found.records.gather(found.records.live_slots())[0], X)


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("times", [1, 4, 5])
def test_an_update_in_the_middle_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int, fails: bool
) -> None:
    really_read = reading._read
    with serve(tmp_path / "clinic") as served:
        left = TEXTS[:times]

        def read(store: Store, trusted: tuple[str, ...]) -> reading.Contents:
            if left:
                served.delete([left.pop()])
                if fails:
                    raise ValueError("what is half overwritten cannot be read")
            return really_read(store, trusted)

        monkeypatch.setattr(reading, "_read", read)
        if times == 5:
            with pytest.raises(StoreError, match="faster than it can be read"), contents(served.path):
                pass
            return
        with contents(served.path) as found:
            assert found.records.ids() == TEXTS[times:]


def test_what_is_wrong_with_a_folder_at_rest_is_said(tmp_path: Path) -> None:
    serve(tmp_path / "clinic").close()
    next((tmp_path / "clinic" / "records").glob("*/*.heap")).unlink()
    with pytest.raises(FormatError, match="is missing"), contents(tmp_path / "clinic"):
        pass
