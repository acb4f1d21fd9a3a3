"""Numbers to predict on the command line, from a file of house prices to the recomputation."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from expunge.cli.create import REGRESSORS
from expunge.training.learners.named import named_learner, regressor_names

COLUMNS = ("--label", "price", "--id", "house", "--subject", "owner")


@pytest.fixture(scope="module")
def houses(tmp_path_factory):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "house": [f"h{at}" for at in range(210)],
            "owner": [f"o{at // 2}" for at in range(210)],
            "size": rng.uniform(20, 200, 210).round(1),
            "age": rng.integers(0, 90, 210).astype(float),
            "town": rng.choice(list("abc"), 210),
        }
    )
    frame["price"] = (3 * frame["size"] + 90 * (frame["town"] == "a") - frame["age"] + rng.normal(0, 9, 210)).round(2)
    frame.loc[3, "age"] = np.nan
    folder = tmp_path_factory.mktemp("houses")
    frame[:200].to_csv(folder / "sold.csv", index=False)
    frame[200:].to_csv(folder / "later.csv", index=False)
    frame[200:].drop(columns=["price", "owner"]).to_csv(folder / "asked.csv", index=False)
    frame[:200].assign(price="dear").to_csv(folder / "wrong.csv", index=False)
    gap = frame[:200].copy()
    gap.loc[5, "price"] = np.nan
    gap.to_csv(folder / "gap.csv", index=False)
    return folder


def test_the_names_are_those_that_exist():
    assert tuple(regressor_names()) == REGRESSORS


@pytest.mark.parametrize("learner", REGRESSORS)
def test_from_a_file_to_the_recomputation(learner, houses, expunge, tmp_path):
    folder, shards = tmp_path / "d", "1" if learner.startswith("forest-exact") else "3"
    made = expunge(
        *("create", folder, "--data", houses / "sold.csv", *COLUMNS, "--learner", learner, "--shards", shards),
        *("--combine", "median", "--json"),
    )
    assert made.json["classes"] == []
    expunge("delete", folder, "--id", "h0", "--subject", "o20")
    expunge("add", folder, "--data", houses / "later.csv")
    expunge("predict", folder, "--data", houses / "asked.csv", "--out", tmp_path / "out.csv")
    answers, truth = pd.read_csv(tmp_path / "out.csv"), pd.read_csv(houses / "later.csv")
    assert answers["house"].tolist() == truth["house"].tolist()
    assert np.corrcoef(answers["prediction"], truth["price"])[0, 1] > 0.8
    assert expunge("status", folder, "--json").json["records"] == 207
    assert expunge("audit", "recompute", folder, "--json").json["agrees"] is True
    with_nothing = expunge("add", folder, "--data", houses / "gap.csv", code=2)
    assert "row 6" in with_nothing.err


@pytest.mark.parametrize(
    ("file", "options", "culprit"),
    [
        ("wrong.csv", (), "row 1 of column 'price' of {file} is 'dear', which is not a number"),
        ("gap.csv", (), "row 6 of column 'price' of {file} is empty; every record needs a number to predict"),
        ("sold.csv", ("--promise", "consensus"), "--promise consensus is for classes, and learner 'ridge-regression'"),
        ("sold.csv", ("--class", "1"), "--class is for classes"),
        ("sold.csv", ("--combine", "sum"), "combine must be one of mean, median"),
        ("sold.csv", ("--combine", "mean", "--learner", "logistic"), "--combine is for numbers"),
        ("sold.csv", ("--shards", "many"), "--shards must be a whole number"),
        ("sold.csv", ("--learner", "logistic"), "a label is a class, unless the learner predicts numbers"),
    ],
)
def test_what_does_not_fit_is_one_line(file, options, culprit, houses, expunge, tmp_path):
    options = options if "--learner" in options else ("--learner", "ridge-regression", *options)
    done = expunge("create", tmp_path / "d", "--data", houses / file, *COLUMNS, *options, code=2)
    assert culprit.format(file=houses / file) in done.err
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("name", regressor_names())
def test_named_regressors_take_their_options(name):
    assert named_learner(name).predicts_values
    assert named_learner(name, columns={"a": "number", "b": "category"}).predicts_values
