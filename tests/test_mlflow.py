from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import expunge
import expunge.mlflow
from expunge import Student, UnlearningClassifier, UnlearningRegressor
from expunge.core.errors import FormatError, MissingExtraError, ModelFormatError, NotPublishedError
from expunge.serving.copies import NOTICE

mlflow = pytest.importorskip("mlflow")


class ShyBayes(GaussianNB):
    """An estimator of a user's own."""


@pytest.fixture(scope="module")
def iris():
    return load_iris(return_X_y=True)


@pytest.fixture(autouse=True)
def _no_network(monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.fixture
def model(iris):
    base = make_pipeline(StandardScaler(), LogisticRegression())
    return UnlearningClassifier(base, n_shards=4, random_state=0).fit(*iris, ids=[f"person-{n}" for n in range(150)])


def test_saved_and_loaded(model, iris, tmp_path):
    X, _ = iris
    expunge.mlflow.save_model(model, tmp_path / "m")
    again = expunge.mlflow.load_model(tmp_path / "m")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    plain = mlflow.pyfunc.load_model(str(tmp_path / "m"))
    np.testing.assert_array_equal(plain.predict(X), model.predict(X))
    np.testing.assert_array_equal(plain.predict(X, params={"probabilities": True}), model.predict_proba(X))


def test_the_files_say_that_deletions_do_not_reach_them(model, tmp_path):
    expunge.mlflow.save_model(model.delete("person-3"), tmp_path / "m")
    written = " ".join((tmp_path / "m" / "MLmodel").read_text().split())
    assert NOTICE in written
    assert "kind: ensemble" in written
    assert "round: 1" in written
    (notice,) = (tmp_path / "m").rglob("NOTICE.txt")
    assert notice.read_text().strip() == NOTICE


def test_no_record_no_id_and_no_key_is_in_the_files(model, tmp_path):
    expunge.mlflow.save_model(model, tmp_path / "m")
    raw = b"".join(path.read_bytes() for path in (tmp_path / "m").rglob("*") if path.is_file())
    assert b"person-" not in raw
    assert model.deployment_.inside.state.key.secret not in raw
    row = np.ascontiguousarray(load_iris().data[17]).tobytes()
    assert row not in raw


def test_logged_in_a_run(model, iris, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    with mlflow.start_run():
        info = expunge.mlflow.log_model(model, "churn")
    assert info.metadata["expunge"] == NOTICE
    again = expunge.mlflow.load_model(info.model_uri)
    np.testing.assert_array_equal(again.predict(iris[0]), model.predict(iris[0]))


def test_a_regressor_and_a_folder(tmp_path):
    X, y = load_diabetes(return_X_y=True)
    model = UnlearningRegressor(n_shards=3, combine="median", random_state=0).fit(X, y)
    expunge.mlflow.save_model(model, tmp_path / "m")
    np.testing.assert_array_equal(mlflow.pyfunc.load_model(str(tmp_path / "m")).predict(X), model.predict(X))
    with expunge.create(tmp_path / "d", GaussianNB(), X, y > 150, ids=list(range(len(y))), n_shards=3) as folder:
        expunge.mlflow.save_model(folder, tmp_path / "f")
        np.testing.assert_array_equal(
            expunge.mlflow.load_model(tmp_path / "f").predict_proba(X), folder.predict_proba(X)
        )


def test_a_student_and_a_promise_that_gives_no_copy(iris, tmp_path):
    X, y = iris
    promise = Student(X + np.linspace(0.01, 0.02, 4), student=GaussianNB(), selection_share=0.5)
    with pytest.warns(UserWarning, match="claims no"):
        model = UnlearningClassifier(GaussianNB(), n_shards=4, promise=promise, random_state=0).fit(X, y)
    expunge.mlflow.save_model(model, tmp_path / "m")
    np.testing.assert_array_equal(expunge.mlflow.load_model(tmp_path / "m").predict(X), model.predict(X))
    assert "kind: student" in (tmp_path / "m" / "MLmodel").read_text()
    with pytest.warns(UserWarning, match="claims no"):
        gated = UnlearningClassifier(n_shards=4, promise="consensus", random_state=0).fit(X, y)
    with pytest.raises(NotPublishedError, match="no copy under this promise"):
        expunge.mlflow.save_model(gated, tmp_path / "n")
    assert not (tmp_path / "n").exists()


def test_code_of_ones_own_is_named_and_trusted_by_name(iris, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "shy", sys.modules[__name__])
    monkeypatch.setattr(ShyBayes, "__module__", "shy")
    model = UnlearningClassifier(ShyBayes(), n_shards=2, random_state=0).fit(*iris)
    with pytest.raises(ModelFormatError, match=r"shy\.ShyBayes"):
        expunge.mlflow.save_model(model, tmp_path / "m")
    expunge.mlflow.save_model(model, tmp_path / "m", trusted=["shy"])
    with pytest.raises(ModelFormatError, match="shy"):
        mlflow.pyfunc.load_model(str(tmp_path / "m"))
    monkeypatch.setenv("EXPUNGE_TRUST", "another shy")
    again = mlflow.pyfunc.load_model(str(tmp_path / "m"))
    np.testing.assert_array_equal(again.predict(iris[0]), model.predict(iris[0]))


def test_what_is_no_such_model_is_one_line(model, tmp_path):
    (tmp_path / "other").mkdir()
    with pytest.raises(FormatError, match=r"is no model that expunge\.mlflow saved"):
        expunge.mlflow.load_model(tmp_path / "other")
    expunge.mlflow.save_model(model, tmp_path / "m")
    (stored,) = (tmp_path / "m").rglob("copy.*")
    stored.write_bytes(stored.read_bytes()[:-7])
    with pytest.raises(FormatError):
        expunge.mlflow.load_model(tmp_path / "m")


def test_without_mlflow_the_extra_is_named(model, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    monkeypatch.setitem(sys.modules, "mlflow.pyfunc", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'expunge\[mlflow\]'"):
        expunge.mlflow.save_model(model, tmp_path / "m")


def test_another_process_loads_it_by_mlflow_alone(model, iris, tmp_path):
    expunge.mlflow.save_model(model, tmp_path / "m")
    program = (
        "import sys, json, mlflow.pyfunc, numpy as np\n"
        "rows = np.array(json.loads(sys.argv[2]))\n"
        "print(json.dumps(mlflow.pyfunc.load_model(sys.argv[1]).predict(rows).tolist()))"
    )
    rows = iris[0][::30].tolist()
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "m"), json.dumps(rows)],
        env={"PYTHONPATH": str(Path(expunge.__file__).parents[1]), "MLFLOW_DISABLE_TELEMETRY": "true", "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert json.loads(done.stdout) == model.predict(np.array(rows)).tolist()
