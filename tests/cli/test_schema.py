from __future__ import annotations

import json
from contextlib import closing

import numpy as np
import pandas as pd
import pytest

from expunge.folder.store import steps
from expunge.folder.store.database import Database


@pytest.fixture
def exact(tmp_path, expunge):
    """A deployment under the exact promise, of numbers without gaps."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"id": range(90), "age": rng.integers(18, 80, 90), "churned": rng.choice(["no", "yes"], 90)})
    table.to_csv(tmp_path / "train.csv", index=False)
    more = pd.DataFrame({"id": [900, 901], "age": [30.0, None], "churned": ["maybe", "yes"]})
    more.to_csv(tmp_path / "more.csv", index=False)
    folder = tmp_path / "exact"
    columns = ("--label", "churned", "--id", "id")
    done = expunge("create", folder, "--data", tmp_path / "train.csv", *columns, "--shards", "3")
    assert "classes no, yes (taken from this file; public, and fixed from now on)" in done.words
    return folder


def test_it_is_shown_in_words_and_as_json(exact, expunge):
    words = expunge("schema", exact).words
    assert "features: age (float64) (taken from the first data)" in words
    assert "label: churned id: id classes: no, yes (taken from the first data) weights: none gaps: refused" in words
    assert "First data: 90 records" in words
    found = expunge("schema", exact, "--json").json
    assert found["first_data"] == {"records": 90}
    facts = found["facts"]
    assert facts["classes"] == {
        "value": ["no", "yes"],
        "words": "no, yes",
        "origin": "first data",
        "redeclared_at": None,
    }
    assert facts["learner"]["value"]["name"] == "logistic"
    assert list(facts)[-3:] == ["learner", "promise", "numerics"]


def test_it_is_declared_anew(exact, expunge):
    more = exact.parent / "more.csv"
    assert "which is not a class" in expunge("add", exact, "--data", more, code=2).err
    done = expunge("schema", exact, "--add-class", "maybe", "--allow-missing")
    assert "classes: maybe, no, yes (declared anew, 20" in done.words
    assert "SimpleImputer" in done.words
    expunge("add", exact, "--data", more)
    assert "1 record of class 'maybe'" in expunge("schema", exact, "--drop-class", "maybe", code=2).err
    assert "lets numbers be missing already" in expunge("schema", exact, "--allow-missing", code=2).err
    expunge("delete", exact, "--id", "900")
    found = expunge("schema", exact, "--drop-class", "maybe", "--json").json
    assert found["facts"]["classes"]["value"] == ["no", "yes"]
    assert "agrees" in expunge("audit", "recompute", exact, "--shards", "all").words


def test_later_files_may_say_how_much_a_record_counts(exact, expunge):
    heavy = exact.parent / "heavy.csv"
    pd.DataFrame({"id": [900], "age": [30], "churned": ["yes"], "counts": [40.5]}).to_csv(heavy, index=False)
    assert "does not know" in expunge("add", exact, "--data", heavy, code=2).err
    for column in ("age", "churned", ""):
        assert "it has another use" in expunge("schema", exact, "--weight", column, code=2).err
    done = expunge("schema", exact, "--weight", "counts")
    assert "weight: counts" in done.words
    assert "weights: records have weights (declared anew, 20" in done.words
    assert "holds weights already" in expunge("schema", exact, "--weight", "counts", code=2).err
    expunge("add", exact, "--data", heavy)
    assert "has no column 'counts'" in expunge("add", exact, "--data", exact.parent / "train.csv", code=2).err
    assert "agrees" in expunge("audit", "recompute", exact, "--all").words
    expunge("predict", exact, "--data", heavy, "--out", exact.parent / "answers.csv")


def test_a_promise_with_a_target_keeps_its_schema(churn, expunge):
    assert "only the exact promise" in expunge("schema", churn, "--add-class", "maybe", code=2).err
    assert expunge("schema", churn, "--json").json["facts"]["weights"]["origin"] == "declared"


def test_status_names_a_changed_environment(exact, expunge):
    assert "changed since" not in expunge("status", exact).words
    with closing(Database(exact)) as database:
        ((text,),) = database.rows("SELECT facts FROM environments")
        facts = json.dumps(json.loads(text) | {"numpy": "1.26.4"}, sort_keys=True)
        database.execute("UPDATE environments SET facts = ?", (facts,))
    words = expunge("status", exact).words
    assert f"changed since 3 models were trained: numpy 1.26.4 -> {np.__version__}" in words
    assert "the next update trains every one of these models again" in words
    found = expunge("status", exact, "--json").json["environment"]
    assert found["next_update_retrains_everything"] is True
    assert found["models"][0]["count"] == 3
    assert "the models are, bit for bit, those" in words  # in the environment that they were trained in
    expunge("delete", exact, "--id", "1")
    assert "changed since" not in expunge("status", exact).words


def test_models_of_several_environments_are_promised_up_to_rounding(tmp_path, files, expunge):
    """The short words on the screen say no more than the whole statement."""
    folder = tmp_path / "lenient"
    columns = ("--label", "churned", "--id", "customer_id", "--subject", "household")
    expunge("create", folder, "--data", files / "train.csv", *columns, "--shards", "3", "--numerics", "lenient")
    with closing(Database(folder)) as database:
        ((text,),) = database.rows("SELECT facts FROM environments")
        facts = json.dumps(json.loads(text) | {"numpy": "1.26.4"}, sort_keys=True)
        database.execute("UPDATE environments SET facts = ?", (facts,))
    assert "the models are, bit for bit, those" in expunge("status", folder).words
    expunge("delete", folder, "--id", "1")
    words = expunge("status", folder).words
    assert "the models are, up to rounding, those that the same recipe trains" in words
    assert "on the records that are left: 2 models from " in words
    assert "; 1 model from another one (numpy 1.26.4 ->" in words
    assert "It does not say that these models are good" in words
    assert "bit for bit" not in words


@pytest.mark.parametrize(
    ("step", "words", "classes"),
    [
        ("apply.trained", "the models and the key are those from before: run it again", ["no", "yes"]),
        ("switch.done", "the key was renewed already, and everything was trained again", ["maybe", "no", "yes"]),
        ("close.open", "the key was renewed already, and everything was trained again", ["maybe", "no", "yes"]),
    ],
)
def test_an_interruption_says_which_schema_is_in_force(step, words, classes, exact, expunge, monkeypatch):
    def interrupt(reached):
        if reached == step:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(steps, "on_step", interrupt)
        done = expunge("schema", exact, "--add-class", "maybe", code=130)
    assert done.err == f"expunge: interrupted; {words}\n"
    assert expunge("schema", exact, "--json").json["facts"]["classes"]["value"] == classes
    assert "agrees" in expunge("audit", "recompute", exact, "--shards", "all").words
