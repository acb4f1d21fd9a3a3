from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import expunge as library
from expunge.cli.status import end_of_generation
from expunge.core.guarantee import Guarantee
from expunge.core.randomness import Randomness
from expunge.serving.promises import Consensus


def test_standard_output_is_csv_and_nothing_else(churn, files, expunge):
    done = expunge("predict", churn, "--data", files / "new.csv")
    assert done.err == ""
    lines = done.out.splitlines()
    assert lines[0] == "customer_id,prediction"
    assert [line.split(",")[0] for line in lines[1:]] == [str(number) for number in range(900, 925)]
    again = expunge("predict", churn, "--data", "-", "--out", "-", stdin=(files / "new.csv").read_bytes())
    assert again.out == done.out


def test_answers_are_those_of_the_deployment_whatever_the_order(churn, tmp_path, files, expunge):
    rows = pd.read_csv(files / "new.csv")
    rows[["spend", "customer_id", "age"]].to_csv(tmp_path / "turned.csv", index=False)
    expunge("predict", churn, "--data", tmp_path / "turned.csv", "--out", tmp_path / "answers.csv")
    answers = pd.read_csv(tmp_path / "answers.csv")["prediction"].tolist()
    with library.open(churn) as deployment:
        assert answers == deployment.predict(rows[["age", "spend"]].to_numpy()).tolist()


def test_strange_and_missing_columns_are_named_and_cost_nothing(churn, tmp_path, files, expunge):
    rows = pd.read_csv(files / "new.csv")
    rows.assign(colour=1).to_csv(tmp_path / "strange.csv", index=False)
    rows.drop(columns="age").to_csv(tmp_path / "missing.csv", index=False)
    assert "'colour'" in expunge("predict", churn, "--data", tmp_path / "strange.csv", code=2).err
    assert "lacks column 'age'" in expunge("predict", churn, "--data", tmp_path / "missing.csv", code=2).err
    rows.assign(age="old").to_csv(tmp_path / "words.csv", index=False)
    assert "row 1 of column 'age'" in expunge("predict", churn, "--data", tmp_path / "words.csv", code=2).err
    rows.assign(age=rows["age"].where(rows.index != 2)).to_csv(tmp_path / "gap.csv", index=False)
    assert "row 3 does" in expunge("predict", churn, "--data", tmp_path / "gap.csv", code=2).err
    assert expunge("status", churn, "--json", "--inside").json["inside"]["budget"]["predictions"] == 0


def test_nothing_is_charged_if_the_answers_cannot_be_written(churn, tmp_path, files, expunge):
    for out in (tmp_path / "absent" / "a.csv", tmp_path, "/proc/a.csv", tmp_path / "a.xlsx", churn / "a.csv"):
        expunge("predict", churn, "--data", files / "new.csv", "--out", out, code=2)
    assert expunge("status", churn, "--json", "--inside").json["inside"]["budget"]["predictions"] == 0
    assert [path.name for path in tmp_path.iterdir()] == ["churn"]


def test_answers_do_not_replace_the_questions(churn, tmp_path, files, expunge):
    content = (files / "new.csv").read_bytes()
    (tmp_path / "new.csv").write_bytes(content)
    (tmp_path / "link.csv").symlink_to(tmp_path / "new.csv")
    refused = expunge("predict", churn, "--data", tmp_path / "new.csv", "--out", tmp_path / "link.csv", code=2)
    assert "link.csv' is the file that is read" in refused.err
    assert (tmp_path / "new.csv").read_bytes() == content


def test_no_rows_are_no_answers(churn, tmp_path, expunge):
    (tmp_path / "none.csv").write_text("customer_id,age,spend\n")
    assert expunge("predict", churn, "--data", tmp_path / "none.csv").out == "customer_id,prediction\n"


def test_ids_are_carried_over_as_they_are(churn, tmp_path, expunge):
    (tmp_path / "new.csv").write_text("customer_id,age,spend\n007,30,1\n,30,-1\nx;y,30,0\n")
    lines = expunge("predict", churn, "--data", tmp_path / "new.csv").out.splitlines()
    assert [line.split(",")[0] for line in lines[1:]] == ["007", "", "x;y"]


def test_declined_answers_are_empty(tmp_path, files, create, expunge):
    folder = tmp_path / "a"
    create(folder, "--shards", "5", "--promise", "noise", "--mechanism", "confident")
    expunge("predict", folder, "--data", files / "new.csv", "--out", tmp_path / "answers.csv")
    answers = pd.read_csv(tmp_path / "answers.csv", keep_default_na=False)["prediction"]
    assert set(answers) <= {"no", "yes", ""}


def test_a_spent_budget_refuses_the_whole_file(tmp_path, files, create, expunge):
    folder = tmp_path / "a"
    spent = ("--promise", "noise", "--max-predictions", "10", "--on-exhausted", "refuse")
    create(folder, "--shards", "5", *spent)
    done = expunge("predict", folder, "--data", files / "new.csv", "--out", tmp_path / "answers.csv", code=2)
    assert "budget" in done.err
    assert not (tmp_path / "answers.csv").exists()
    assert expunge("status", folder, "--json").json["budget"]["predictions"] == 0


@pytest.mark.parametrize("labels", [[3, 7], [True, False], ["a", "ü"]])
def test_labels_keep_their_type(labels, tmp_path, expunge, write_table):
    rng = np.random.default_rng(0)
    x = rng.normal(size=80)
    frame = pd.DataFrame({"x": x, "y": [labels[int(value > 0)] for value in x]})
    write_table(frame, tmp_path / "train.parquet")
    folder = tmp_path / "a"
    expunge("create", folder, "--data", tmp_path / "train.parquet", "--label", "y", "--shards", "3")
    expunge("predict", folder, "--data", tmp_path / "train.parquet", "--out", tmp_path / "answers.parquet")
    found = pd.read_parquet(tmp_path / "answers.parquet")["prediction"]
    assert set(found.tolist()) == set(labels)
    assert type(found.tolist()[0]) is type(labels[0])
    assert (found == frame["y"]).mean() > 0.9


def test_a_deployment_that_retrains_now_has_done_so_when_the_command_ends(tmp_path, files):
    folder, program = tmp_path / "a", [sys.executable, "-m", "expunge"]
    made = (
        *("create", folder, "--data", files / "train.csv", "--label", "churned", "--id", "customer_id", "--ignore"),
        *("household", "--shards", "5", "--promise", "noise", "--max-predictions", "24"),
        *("--on-exhausted", "retrain_now"),
    )
    asked = ("predict", folder, "--data", files / "new.csv")
    for arguments in (made, asked):
        subprocess.run([*program, *map(str, arguments)], check=True, capture_output=True, timeout=120)
    with library.open(folder) as deployment:
        assert (deployment.status.generation, deployment.status.budget.predictions) == (2, 0)


def test_closed_streams_are_told_in_a_line_and_cost_nothing(churn, files, expunge):
    def run(*redirections):
        command = " ".join([sys.executable, "-m expunge predict", f"'{churn}' --data", *redirections])
        return subprocess.run(command, shell=True, capture_output=True, text=True, timeout=300, check=False)

    done = run(f"'{files / 'new.csv'}'", ">&-")
    assert (done.returncode, done.stderr) == (2, "expunge: standard output is closed: give --out\n")
    done = run("-", "<&-")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert expunge("status", churn, "--json", "--inside").json["inside"]["budget"]["predictions"] == 0


@pytest.mark.parametrize("ending", ["csv", "parquet", "npz"])
def test_probabilities_beside_the_answers(ending, tmp_path, create, files, expunge):
    create(tmp_path / "a", "--shards", "3")
    out = tmp_path / f"answers.{ending}"
    expunge("predict", tmp_path / "a", "--data", files / "new.csv", "--out", out, "--probabilities")
    if ending == "npz":
        with np.load(out) as stored:
            found = pd.DataFrame({name: stored[name] for name in stored.files})
    else:
        found = pd.read_csv(out) if ending == "csv" else pd.read_parquet(out)
    assert (found["probability_no"] + found["probability_yes"]).to_numpy() == pytest.approx(1)
    with library.open(tmp_path / "a") as deployment:
        asked = pd.read_csv(files / "new.csv")[["age", "spend"]].to_numpy()
        assert found["probability_yes"].to_numpy() == pytest.approx(deployment.predict_proba(asked)[:, 1])
        assert found["prediction"].tolist() == deployment.predict(asked).tolist()


def test_probabilities_are_refused_where_they_would_leak_and_nothing_is_charged(churn, tmp_path, files, expunge):
    words = ("predict", churn, "--data", files / "new.csv", "--out", tmp_path / "answers.csv", "--probabilities")
    assert "publishes labels only" in expunge(*words, code=2).err
    assert expunge("status", churn, "--json", "--inside").json["inside"]["budget"]["predictions"] == 0
    assert not (tmp_path / "answers.csv").exists()


TARGET = ("--alpha", "20", "--beta", "0.4", "--gamma", "0.4", "--generations", "2")


@pytest.fixture(scope="module")
def first_gated(tmp_path_factory, create):
    folder = tmp_path_factory.mktemp("gated") / "a"
    made = ("--promise", "consensus", "--max-predictions", "1000", "--learner", "tree", "--shards", "40", *TARGET)
    create(folder, *made, "--minutes", "0")
    return folder


@pytest.fixture
def gated(first_gated, tmp_path):
    """A deployment with a certified gate, whose shards do not agree on every row of new.csv."""
    return shutil.copytree(first_gated, tmp_path / "gated")


def test_a_failed_consensus_is_not_told_in_a_pipe_but_on_demand(gated, files, tmp_path, expunge):
    copy = shutil.copytree(gated, tmp_path / "copy")
    asked = ("--data", files / "new.csv", "--out", tmp_path / "answers.csv")
    done = expunge("predict", gated, *asked)
    assert done.err == ""
    assert "retrains" not in done.out
    inside = expunge("status", gated, "--inside").words
    assert "a consensus failed: the next update retrains everything" in inside
    assert "budget" not in inside
    told = expunge("predict", copy, *asked, "--inside").err
    assert "inside, for operators only: a consensus failed, so the next update retrains everything" in told
    assert expunge("predict", copy, *asked, "--inside").err == ""  # it was so before these answers


def test_a_failed_consensus_is_told_on_a_terminal(gated, files, tmp_path):
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "expunge", "predict", gated, "--data", files / "new.csv"]
    with open(tmp_path / "answers.csv", "wb") as answers:
        subprocess.run([*map(str, command)], check=True, stdout=answers, stderr=theirs, timeout=120)
    os.close(theirs)
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        shown = terminal.read(1 << 16)
    assert b"a consensus failed" in shown
    assert b"consensus" not in (tmp_path / "answers.csv").read_bytes()


def test_predictions_that_are_used_up_are_no_failed_consensus():
    promise = Consensus(target=Guarantee(20.0, 0.4, 0.4), max_predictions=20, max_generations=2)
    for votes, end in (([40, 0], "the predictions of the generation are used up"), ([20, 20], "a consensus failed")):
        publisher = promise.make_publisher(40, 2, Randomness.from_seed(0))
        assert end_of_generation(publisher) == ""
        publisher.release(np.array([votes] * (20 if votes[1] == 0 else 1)), Randomness.from_seed(1))
        assert end_of_generation(publisher) == end


def test_a_budget_that_is_used_up_is_told(tmp_path, files, create, expunge):
    folder = tmp_path / "a"
    create(folder, "--shards", "5", "--promise", "noise", "--max-predictions", "24", "--minutes", "0")
    done = expunge("predict", folder, "--data", files / "new.csv", "--out", tmp_path / "answers.csv")
    assert done.err == "expunge: the budget of the generation is used up: the next update retrains everything\n"
