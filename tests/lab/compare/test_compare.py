"""`expunge compare`: what is compared, how it is measured and kept, and that the page is made of what is kept."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import typer
from sklearn.linear_model import LogisticRegression
from typer.testing import CliRunner

from expunge.core.errors import InputError
from expunge_lab.cli.compare import compare
from expunge_lab.compare import DATASETS, measure_dataset, read_kept, tables, to_page, write_kept
from expunge_lab.compare.measure import Latency
from expunge_lab.compare.methods import SLICES, Refitted, methods_for
from expunge_lab.compare.page import PROMISES, picture_name
from expunge_lab.compare.tables import cover, divide
from expunge_lab.datasets import Images

ROOT = Path(__file__).parents[3]
PAGE, KEPT = ROOT / "docs" / "comparison.md", ROOT / "lab" / "results" / "comparison"
FEW = ("digits", "--quick", "--only", "logistic, 1")


@pytest.fixture
def invoke():
    app = typer.Typer()
    app.command()(compare)

    def run(*arguments, error=None):
        found = CliRunner().invoke(app, list(map(str, arguments)))
        if error is None:
            assert found.exit_code == 0, found.output
        else:
            assert isinstance(found.exception, InputError)
            assert error in str(found.exception)
        return found.stdout

    return run


def test_figures_are_kept_and_the_page_is_made_of_them(invoke, tmp_path):
    kept, out = tmp_path / "kept", tmp_path / "page.md"
    kept.mkdir()
    invoke(*FEW, "--kept", kept, "--out", out)
    (data,) = read_kept(kept)
    assert [each["name"] for each in data["methods"]] == ["logistic, 1 shard"]
    one = data["methods"][0]
    assert one["accuracy"] > 0.7
    assert one["auc"] > 0.9
    assert len(one["recalls"]) == 10
    assert 0 < one["deletion"]["median"] <= one["deletion"]["p99"]
    assert one["promise"] == "exact"
    assert one["disk"] > 1000
    assert one["folder_deletion"] > 0
    text = out.read_text(encoding="utf-8")
    assert "A quick run" in text
    assert "| logistic, 1 shard | 0." in text
    assert str(tmp_path) not in text
    assert (tmp_path / "figures" / picture_name(data)).read_text(encoding="utf-8").startswith("<?xml")
    out.unlink()
    invoke("--no-measure", "--kept", kept, "--out", out)
    assert out.read_text(encoding="utf-8") == text


def test_one_way_measured_again_leaves_the_others(tmp_path):
    pytest.importorskip("numba")
    methods = [{"name": name, "seconds": 1} for name in ("ridge-exact", "logistic, 1 shard", "no longer there")]
    here, there = ({"python": "3", "scikit_learn": "1", "num_cores": cores} for cores in (2, 16))
    data = {"dataset": "digits", "quick": False, "records": 1200}
    methods.append({"name": "naive-bayes-exact", "seconds": 1})
    write_kept({**data, "environment": there, "methods": methods}, tmp_path)
    write_kept({**data, "environment": here, "methods": [{"name": "ridge-exact", "seconds": 2}]}, tmp_path)
    (found,) = read_kept(tmp_path)
    assert [(each["name"], each["seconds"]) for each in found["methods"]] == [
        ("logistic, 1 shard", 1),
        ("ridge-exact", 2),
        ("naive-bayes-exact", 1),
    ]
    assert found["environment"] == there
    assert [each.get("environment") for each in found["methods"]] == [None, here, None]
    data |= {"quick": True, "environment": here}
    write_kept({**data, "methods": [{"name": "ridge-exact", "seconds": 3}]}, tmp_path)
    (found,) = read_kept(tmp_path)
    assert [each["seconds"] for each in found["methods"]] == [3]


@pytest.mark.parametrize("way", ["ridge-exact", pytest.param("one model", marks=pytest.mark.long)])
def test_pictures_are_compared_as_rows(monkeypatch, way):
    pytest.importorskip("jax")
    rng = np.random.default_rng(0)
    pictures, codes = rng.integers(0, 255, (400, 28, 28), dtype=np.uint8), np.arange(400) % 10
    pictures[np.arange(400), 2 * codes] = 255
    monkeypatch.setattr(tables, "load_mnist", lambda: Images(pictures, codes, pictures[:250], codes[:250]))
    made = tables._pictures(tables.load_mnist)
    monkeypatch.setitem(DATASETS, "mnist", replace(DATASETS["mnist"], make=made))
    data = measure_dataset("mnist", quick=True, progress=_silent, only=way)
    (one,) = data["methods"]
    assert one["device"] == "CPU" or one["device"] in to_page([data], pictures=None)
    assert data["shape"] == [784]
    assert one["batches"]["18"] > 0


def test_mistakes_are_said_before_anything_is_measured(invoke, tmp_path):
    invoke("nothing", error="there is no dataset 'nothing'")
    invoke("--no-measure", error="--no-measure needs --kept")
    invoke("digits", "--kept", tmp_path / "none", error="there is no folder")
    invoke("digits", "--quick", "--only", "abc", error="no way has 'abc' in its name")
    (tmp_path / "digits.json").write_text("{}")
    invoke("digits", "--kept", tmp_path, error="digits.json is no file of the comparison")


@pytest.mark.parametrize("name", DATASETS)
def test_every_way_has_a_name_of_its_own_and_a_promise(name):
    if DATASETS[name].learners == ("network",):
        pytest.importorskip("jax")
    methods = methods_for(name, 60_000)
    assert len({each.name for each in methods}) == len(methods)
    kinds = {each.kind for each in methods}
    assert kinds <= {*PROMISES}
    assert {"refitted", "sisa", "exact", "incremental"} <= kinds


def test_a_network_of_few_pictures_is_compared(monkeypatch):
    pytest.importorskip("jax")
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, (400, 600), dtype=np.uint8)
    y = X[:, :200].sum(axis=1) > 100
    monkeypatch.setitem(
        DATASETS, "purchase", DATASETS["purchase"].__class__("P", "p", lambda _: divide(X, y, 300), ("network",), (8,))
    )
    monkeypatch.setitem(SLICES, "network", 4)  # each is compiled
    data = measure_dataset("purchase", quick=True, progress=_silent, only="20 shards")
    names = [each["name"] for each in data["methods"]]
    assert names == ["20 shards of 4 slices"]
    assert data["methods"][0]["batches"]["8"] > 0
    assert data["methods"][0]["num_shards"] == 20


class _silent:
    def __init__(self, *_):
        pass

    def __enter__(self):
        return lambda _: None

    def __exit__(self, *_):
        pass


def test_rows_are_divided_once():
    X = np.arange(500.0)[:, np.newaxis]
    table = divide(X, np.arange(500) % 3, 300)
    parts = [table.X, table.X_more, table.X_asked]
    assert [len(part) for part in parts] == [300, 100, 100]
    assert len(np.unique(np.concatenate(parts))) == 500
    assert (table.y == table.X[:, 0] % 3).all()


def test_covertype_like_rows_have_its_form():
    table = cover(True)
    assert table.X.shape == (300, 54)
    assert (table.X[:, 10:14].sum(axis=1) == 1).all()
    assert (table.X[:, 14:].sum(axis=1) == 1).all()


def test_a_refit_is_the_fit_on_what_is_left():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 2)), rng.integers(0, 2, 60)
    running = Refitted(LogisticRegression())
    running.fit(X, y)
    running.delete([3, 5])
    running.add(X[:1], y[:1], [60])
    running.delete([60])
    stays = np.delete(np.arange(60), [3, 5])
    expected = LogisticRegression().fit(X[stays], y[stays])
    np.testing.assert_array_equal(running.estimator.coef_, expected.coef_)


def test_latencies_of_few_requests_show_the_slowest():
    found = Latency.of([1.0, 2.0, 9.0])
    assert (found.count, found.median, found.mean) == (3, 2.0, 4.0)
    assert 8.5 < found.p99 <= 9.0


def test_the_page_is_made_of_what_is_kept():
    kept = read_kept(KEPT)
    assert not any(data["quick"] for data in kept)
    assert PAGE.read_text(encoding="utf-8") == to_page(kept, pictures="figures")
    for data in kept:
        assert (PAGE.parent / "figures" / picture_name(data)).is_file()
        assert json.loads((KEPT / f"{data['dataset']}.json").read_text(encoding="utf-8"))["records"] == data["records"]
