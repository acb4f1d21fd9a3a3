"""A label is erased with the last record that bears it, unless the classes were declared."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

import expunge
from expunge.core.errors import RecordError
from expunge.training.learners import SlicedScikitLearner

_RARE = "PLANTED-LABEL-7731"


def _data():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(60, 3))
    y = np.where(X[:, 0] > 0, "yes", "no").astype(object)
    y[5] = _RARE
    return X, y


def _occurrences(folder) -> int:
    return sum(path.read_bytes().count(_RARE.encode()) for path in folder.rglob("*") if path.is_file())


@pytest.fixture(params=[object, str])
def data(request):
    X, y = _data()
    return X, y.astype(request.param)


def test_the_last_record_takes_its_label_along(tmp_path, data):
    X, y = data
    folder = tmp_path / "folder"
    with expunge.create(folder, LogisticRegression(), X, y, n_shards=6) as deployment:
        assert _occurrences(folder) > 0
        deployment.delete([5])
        assert _occurrences(folder) == 0
        before = deployment.predict(X)
    with expunge.open(folder) as deployment:
        assert deployment.predict(X).tolist() == before.tolist()
        assert len(deployment.classes) == 3
        assert _occurrences(folder) == 0


def test_a_label_that_comes_back_is_recognised(tmp_path, data):
    X, y = data
    folder = tmp_path / "folder"
    with expunge.create(folder, LogisticRegression(), X, y, n_shards=6) as deployment:
        classes = deployment.classes.tolist()
        deployment.delete([5])
    with expunge.open(folder) as deployment:
        with pytest.raises(RecordError, match="not a known class"):
            deployment.add(X[:1], ["strange"], [100])
        deployment.add(X[:1], [_RARE], [100])
        assert deployment.classes.tolist() == classes
    with expunge.open(folder) as deployment:
        assert deployment.classes.tolist() == classes
        labels = {
            record: deployment.records.gather(np.array([deployment.records.slot_of(record)]))[1][0]
            for record in (100, 6)
        }
        assert classes[labels[100]] == _RARE
        assert classes[labels[6]] == y[6]


def test_a_label_that_waits_to_come_is_kept(tmp_path):
    X, y = _data()
    folder = tmp_path / "folder"
    with expunge.create(folder, LogisticRegression(), X, y, n_shards=6, apply="manual") as deployment:
        deployment.delete([5], apply=True)
        receipt = deployment.add(X[:1], [_RARE], [100])
        assert receipt.state == "pending"
    with expunge.open(folder) as deployment:
        deployment.apply()
        assert _RARE in deployment.classes.tolist()
        deployment.delete([100], apply=True)
        assert _occurrences(folder) == 0


def test_declared_classes_and_numbers_stay(tmp_path):
    X, y = _data()
    with expunge.create(tmp_path / "a", LogisticRegression(), X, y, n_shards=6, classes=["yes", "no", _RARE]) as one:
        one.delete([5])
        assert _occurrences(tmp_path / "a") > 0
    numbers = np.where(y == "yes", 1, np.where(y == "no", 0, 7))
    with expunge.create(tmp_path / "b", LogisticRegression(), X, numbers, n_shards=6) as two:
        two.delete([5])
    with expunge.open(tmp_path / "b") as two:
        assert two.classes.tolist() == [0, 1, 7]


def test_a_label_that_only_looks_erased_is_erased_too(tmp_path):
    X, y = _data()
    y[5] = "erased label by name"
    folder = tmp_path / "folder"
    with expunge.create(folder, LogisticRegression(), X, y, n_shards=6) as deployment:
        deployment.delete([5])
        assert not any(b"erased label by name" in path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_slices_go_on_after_a_label_was_erased(tmp_path):
    """Checkpoints of `partial_fit` were told all labels, and must be told the same ones again."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = np.where(X[:, 0] > 0, "yes", "no").astype(object)
    y[7], y[8] = "divorced", "widowed"
    learner = SlicedScikitLearner(GaussianNB(), num_slices=3)
    with expunge.create(tmp_path / "f", learner, X, y, n_shards=4, inclusion_probability=0.5) as deployment:
        deployment.delete([7, 8])
    with expunge.open(tmp_path / "f") as deployment:
        for record in range(20, 30):
            deployment.delete([record])
        assert deployment.status.pending == 0
        answers = deployment.predict(X[30:])
        assert set(answers.tolist()) == {"yes", "no"}
        assert (answers == y[30:]).mean() > 0.8
        deployment.add(X[:1], ["divorced"], ids=["again"])
        assert "again" in deployment.records
