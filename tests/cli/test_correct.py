"""`expunge correct` and `expunge retrain`."""

from __future__ import annotations

import pytest


def test_one_record_by_hand_and_many_by_file(churn, tmp_path, expunge):
    done = expunge("correct", churn, "--id", "17", "--set", "age=41.5", "--set", "churned=no", "--json").json
    assert done["state"] == "applied"
    file = tmp_path / "fix.csv"
    file.write_text("customer_id,age\n5,33\n6,34\n")
    expunge("correct", churn, "--data", file)
    listed = expunge("requests", churn, "--json").json
    assert [(each["kind"], each["corrections"]) for each in listed] == [("correction", 1), ("correction", 2)]
    certificate = tmp_path / "c.json"
    expunge("certificate", churn, "--request", done["request"], "--out", certificate)
    assert "to correct 1 record" in expunge("verify", certificate).words


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--id", "17"], "say what to correct"),
        (["--set", "age=41"], "say what to correct"),
        (["--id", "17", "--set", "age"], "--set must be COLUMN=VALUE, got 'age'"),
        (["--id", "17", "--set", "age=1", "--set", "age=2"], "--set age is given twice"),
        (["--id", "17", "--set", "customer_id=18"], "--set cannot change 'customer_id'"),
        (["--id", "17", "--set", "shoe=41"], "column 'shoe', which this deployment does not know"),
        (["--id", "17", "--set", "age=old"], "'old', which is not a number"),
        (["--id", "17", "--set", "churned=perhaps"], "perhaps"),
        (["--id", "999999", "--set", "age=41"], "no record has the id 999999; nothing was corrected"),
    ],
)
def test_mistakes(churn, expunge, words, complaint):
    assert complaint in expunge("correct", churn, *words, code=2).err
    assert expunge("requests", churn, "--json").json == []


def test_another_recipe(create, tmp_path, expunge):
    churn = tmp_path / "churn"
    create(churn, "--shards", "3", "--minutes", "0")
    expunge("delete", churn, "--id", "17")
    told = expunge("retrain", churn, "--learner", "naive-bayes", "--shards", "2", "--json").json
    assert told["shards"] == 2
    assert told["learner"].startswith("naive-bayes")
    assert told["report"]["measured"]["candidates"][1]["num_shards"] == 2
    assert expunge("status", churn, "--json").json["report"] == told["report"]
    words = expunge("retrain", churn, "--learner", "logistic", "--set", "C=0.5", "--minutes", "0").words
    assert "not measured: not wanted (--minutes 0)" in words
    assert "A deletion retrains 1 of 2 models" in words
    facts = expunge("schema", churn, "--json").json["facts"]
    assert "C=0.5" in facts["learner"]["words"]
    assert facts["shards"]["value"] == 2
    assert facts["learner"]["redeclared_at"]
    expunge("certificate", churn, "--out", tmp_path / "c.json")
    expunge("verify", tmp_path / "c.json")
    expunge("audit", "recompute", churn, "--shards", "all")
    assert "say what to change" in expunge("retrain", churn, code=2).err
    assert "has no option 'D'" in expunge("retrain", churn, "--set", "D=1", code=2).err
    expunge("correct", churn, "--id", "18", "--set", "age=41", "--later")
    assert "apply or cancel the pending requests" in expunge("retrain", churn, "--shards", "3", code=2).err
