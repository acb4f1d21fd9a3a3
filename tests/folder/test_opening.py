"""Creating and opening a folder: it appears complete or not at all, and an error says in one line what is wrong."""

from __future__ import annotations

import importlib
import re
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

import expunge
from expunge.core.errors import (
    ExpungeError,
    FormatError,
    InputError,
    ModelFormatError,
    ParameterError,
    StoreError,
    TrainingError,
)
from expunge.folder import DurableDeployment
from expunge.training.learners import LookupTableLearner
from expunge.training.sampling import IndependentSampler

X = np.arange(40, dtype=np.float32).reshape(20, 2)
Y = np.arange(20) % 2


def make(folder: Path, X: Any = X, y: Any = Y, **options: Any) -> DurableDeployment:
    options = {"n_shards": 3, **options}
    return expunge.create(folder, options.pop("learner", LookupTableLearner()), X, y, **options)


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# Making.


def test_a_folder_that_cannot_be_made_is_named() -> None:
    """The kernel makes no folders in /proc."""
    with pytest.raises(StoreError, match=r"^/proc/churn is not there, and cannot be made$"):
        expunge.create("/proc/churn", LogisticRegression(), [[0.0], [1.0]], [0, 1], n_shards=1)


def test_what_a_folder_holds(folder: Path) -> None:
    make(folder).close()
    assert files_in(folder.parent) == ["deployment"]
    assert files_in(folder) == ["design", "dirty", "keys", "lock", "models", "moment", "records", "state.db", "waiting"]
    assert len(files_in(folder / "models")) == 3
    assert (folder.stat().st_mode & 0o777) == 0o700
    private = [path for path in folder.rglob("*") if path.is_file() and path.name != "public.pem"]
    assert all(path.stat().st_mode & 0o077 == 0 for path in private if path.parent.name != "design")


def test_a_folder_that_exists_is_left_alone(folder: Path) -> None:
    make(folder).close()
    before = (folder / "state.db").read_bytes()
    with pytest.raises(StoreError, match="exists already; choose another folder"):
        make(folder)
    assert (folder / "state.db").read_bytes() == before
    other = folder.with_name("file")
    other.write_text("mine")
    with pytest.raises(StoreError, match="exists already"):
        make(other)
    assert other.read_text() == "mine"


def test_an_empty_folder_may_be_there_and_parents_need_not(folder: Path) -> None:
    folder.mkdir()
    make(folder).close()
    make(folder.parent / "a" / "b" / "c").close()
    with expunge.open(str(folder.parent / "a" / "b" / "c")) as found:
        assert found.status.name == "c"


class Own:
    """An accountant without a name of this package."""

    name = "own"


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"n_shards": 0}, ParameterError),
        ({"n_shards": True}, ParameterError),
        ({"promise": "nonsense"}, ParameterError),
        ({"promise": "student"}, ParameterError),
        ({"promise": object()}, ParameterError),
        ({"promise": expunge.Noise(accountant=Own())}, ParameterError),
        ({"sampling": IndependentSampler(0.5)}, ParameterError),
        ({"sampling": "sideways"}, ParameterError),
        ({"sampling": "partition", "inclusion_probability": 0.5}, ParameterError),
        ({"n_shards": "many"}, ParameterError),
        ({"apply": "sometimes"}, ParameterError),
        ({"clock_seconds": 0}, ParameterError),
        ({"clock_seconds": 1.5}, ParameterError),
        ({"provenance": {"a": object()}}, ParameterError),
        ({"provenance": {"a": b"bytes"}}, ParameterError),
        ({"y": Y[:-1]}, InputError),
        ({"y": np.array(["2020-01-01", "2020-01-02"] * 10, dtype="M8[D]")}, InputError),
        ({"X": np.full((20, 2), np.nan)}, InputError),
        ({"X": np.array([[{}, 1]] * 20, dtype=object)}, InputError),
        ({"X": pd.DataFrame({1.5: range(20)})}, InputError),
        ({"ids": ["\ud800", *map(str, range(19))]}, InputError),
        ({"ids": [2**64, *range(19)]}, InputError),
        ({"ids": [1] * 20}, InputError),
        ({"weights": [-1.0] * 20}, InputError),
        ({"weights": [1.0] * 20, "learner": KNeighborsClassifier()}, ParameterError),
        ({"learner": object()}, ExpungeError),
        ({"nonsense": 1}, TypeError),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(folder: Path, options: dict[str, Any], error: type) -> None:
    with pytest.raises(error) as caught:
        make(folder, **options)
    assert "\n" not in str(caught.value)
    assert files_in(folder.parent) == []


@pytest.mark.parametrize("error", [ValueError("odd"), MemoryError(), KeyboardInterrupt(), SystemExit(3)])
@pytest.mark.parametrize("where", ["training", "writing"])
def test_a_failure_leaves_nothing_behind(
    folder: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, where: str
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    if where == "training":
        monkeypatch.setattr(LookupTableLearner, "fit", fail)
    else:
        monkeypatch.setattr("expunge.folder.opening.make_keys", fail)
    wanted = TrainingError if where == "training" and isinstance(error, Exception) else type(error)
    with pytest.raises(wanted):
        make(folder)
    assert files_in(folder.parent) == []
    monkeypatch.undo()
    make(folder).close()


def test_models_that_cannot_be_kept_are_refused_before_training(folder: Path) -> None:
    class Own(LogisticRegression):
        pass

    with pytest.raises(ExpungeError, match="Own"):
        make(folder, learner=Own())
    assert files_in(folder.parent) == []


# Opening.


def test_nothing_there(folder: Path) -> None:
    with pytest.raises(FormatError, match="does not exist"):
        expunge.open(folder)
    folder.mkdir()
    with pytest.raises(FormatError, match=r"is not a deployment: it has no state\.db"):
        expunge.open(folder)
    assert files_in(folder) == []


def test_a_folder_that_was_never_finished(folder: Path) -> None:
    from expunge.folder.store import Store

    Store.new(folder).close()
    with pytest.raises(FormatError, match="was never finished: create it again"):
        expunge.open(folder)
    with pytest.raises(FormatError, match="was never finished"):  # and the lock was released
        expunge.open(folder)


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM generations",
        "DELETE FROM objects",
        "DELETE FROM facts WHERE name = 'settings'",
        "DELETE FROM facts WHERE name = 'form'",
        "UPDATE facts SET value = '{}' WHERE name = 'settings'",
        "UPDATE facts SET value = '{}' WHERE name = 'form'",
        "UPDATE position SET num_slots = num_slots + 1",
        "UPDATE shards SET file = 'nowhere'",
        "PRAGMA user_version = 99",
    ],
)
def test_a_damaged_folder_is_a_store_error_that_frees_the_lock(folder: Path, damage: str) -> None:
    make(folder).close()
    database = sqlite3.connect(folder / "state.db", isolation_level=None)
    database.execute(damage)
    database.close()
    for _ in range(2):
        with pytest.raises(StoreError) as caught:
            expunge.open(folder)
        assert "\n" not in str(caught.value)
        assert "in use" not in str(caught.value)


@pytest.mark.parametrize("missing", ["records/000001/features.slab", "keys/hashing.key", "models"])
def test_missing_files_are_named(folder: Path, missing: str) -> None:
    make(folder).close()
    path = folder / missing
    if path.is_dir():
        for each in path.iterdir():
            each.unlink()
    else:
        path.unlink()
    with pytest.raises(StoreError, match=path.name if path.suffix else "model file"):
        expunge.open(folder)


def test_leftovers_of_what_never_happened_are_removed(folder: Path) -> None:
    make(folder).close()
    for name in (
        "models/00001-0123456789abcdef.arrays",
        f"waiting/{'e' * 32}.requests",
        "records/000009/features.slab",
    ):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"somebody's data")
    with (folder / "records/000001/features.slab").open("ab") as slab:
        slab.write(b"half a row")
    with expunge.open(folder) as found:
        assert np.array_equal(found.records.blocks[0].features, X[found.records.ids()])
    assert files_in(folder / "waiting") == []
    assert files_in(folder / "records") == ["000001"]
    assert len(files_in(folder / "models")) == 3
    assert (folder / "records/000001/features.slab").stat().st_size == X.nbytes


def test_pending_requests_are_applied_at_opening_if_they_are_due(folder: Path) -> None:
    with make(folder) as deployment:
        request = deployment.update([expunge.Delete(1)], apply=False)
        assert request.state == "pending"
    with expunge.open(folder, apply_pending=False) as found:
        assert found.status.pending == 1
        assert 1 in found.records
    with expunge.open(folder) as found:
        assert found.request(request.request).state == "applied"
        assert 1 not in found.records


@pytest.mark.parametrize("kind", ["frame", "texts"])
def test_queries_are_checked_against_the_layout_after_opening(folder: Path, kind: str) -> None:
    from sklearn.dummy import DummyClassifier

    table = pd.DataFrame({"a": range(20), "b": list("xy") * 10}) if kind == "frame" else ["x", "y"] * 10
    make(folder, table, learner=DummyClassifier()).close()
    with expunge.open(folder) as found:
        assert len(found.predict(table[:3] if kind == "texts" else table.iloc[:3])) == 3
        with pytest.raises(InputError):
            found.predict(np.zeros((1, 3)))


def test_who_is_second_to_make_a_folder_is_told_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def report_step(step: str) -> None:
        if step == "create.written":
            folder.mkdir()
            (folder / "state.db").write_text("another's")

    monkeypatch.setattr("expunge.folder.opening.report_step", report_step)
    with pytest.raises(StoreError, match="exists already: another process made it in the meantime"):
        expunge.create(folder, LookupTableLearner(), [[0.0], [1.0]], [0, 1], n_shards=2)
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    assert (folder / "state.db").read_text() == "another's"


OWN = """
import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin

class Part:
    pass

class Whole(ClassifierMixin, BaseEstimator):
    def fit(self, X, y):
        self.classes_, self.part_ = np.unique(y), Part()
        return self

    def predict(self, X):
        return np.repeat(self.classes_[0], len(X))
"""


def test_all_code_that_is_not_trusted_is_named_at_once(folder: Path, tmp_path: Path, monkeypatch: Any) -> None:
    """Also what only a trained model is made of: it is not told at the first prediction."""
    (tmp_path / "own_models.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    whole = importlib.import_module("own_models").Whole()
    names = ["own_models.Whole", "own_models.Part"]
    with pytest.raises(ModelFormatError, match=re.escape(f"trust={names!r}")):
        expunge.create(folder, whole, X, Y, n_shards=2)
    expunge.create(folder, whole, X, Y, n_shards=2, trust=["own_models"]).close()
    for given in ([], names[:1], names[1:]):
        missing = [name for name in names if name not in given]
        with pytest.raises(ModelFormatError, match=re.escape(f"trust={missing!r}")):
            expunge.open(folder, trust=given)
    with expunge.open(folder, trust=names) as deployment:
        assert deployment.predict(X[:2]).tolist() == [0, 0]
