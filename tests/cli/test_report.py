"""How good it is: measured by `create`, which chooses k by it if it may, and told again by `status`."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from expunge_lab.datasets.churn import make_churn

COLUMNS = ("--label", "churned", "--id", "customer_id", "--subject", "household")


@pytest.fixture(scope="module")
def churn(tmp_path_factory):
    path = tmp_path_factory.mktemp("churn") / "train.csv"
    make_churn(300).drop(columns=["note", "joined"]).to_csv(path, index=False)
    return path


def test_without_shards_k_is_measured_and_fixed(churn, tmp_path, expunge):
    folder = tmp_path / "a"
    made = expunge("create", folder, "--data", churn, *COLUMNS)
    assert "300 records, 1 shard" in made.words
    assert "Retrain one model (k = 1): it takes" in made.words
    assert "k was chosen from the first data: it is part of the recipe and is fixed." in made.words
    assert expunge("schema", folder, "--json").json["facts"]["shards"]["origin"] == "first data"
    status = expunge("status", folder)
    assert "How good it is, as measured when this recipe was first trained" in status.words
    assert "always no" in status.out
    again = expunge("status", folder, "--json").json["report"]
    assert again["choice"]["num_shards"] == again["num_shards"] == 1


def test_a_number_that_is_given_is_declared_and_measured_against_one_model(churn, tmp_path, expunge):
    folder = tmp_path / "a"
    made = expunge("create", folder, "--data", churn, *COLUMNS, "--shards", "5", "--json").json
    assert expunge("schema", folder, "--json").json["facts"]["shards"]["origin"] == "declared"
    report = made["report"]
    assert report["choice"] is None
    assert [each["num_shards"] for each in report["measured"]["candidates"]] == [1, 5]
    assert report["measured"]["tested"] == 300
    assert report["measured"]["baseline"]["main"]["value"] == pytest.approx(0.9)
    assert expunge("status", folder, "--json").json["report"] == report


def test_the_report_says_nothing_about_the_key(churn, tmp_path, expunge):
    """Under a consensus it is the same for every key, and so it may be shown outside."""
    reports = []
    for name in ("a", "b"):
        made = expunge("create", tmp_path / name, "--data", churn, *COLUMNS, "--shards", "5", "--promise", "consensus")
        assert "How good it is" in made.words
        found = expunge("status", tmp_path / name, "--json").json
        assert "costs" not in found
        reports.append([(each["num_shards"], each["scores"]) for each in found["report"]["measured"]["candidates"]])
    assert reports[0] == reports[1]


def test_numbers_are_told_by_r2(tmp_path, expunge):
    rng = np.random.default_rng(0)
    x = rng.normal(size=200).round(3)
    pd.DataFrame({"x": x, "y": x + 0.1 * rng.normal(size=200)}).to_csv(tmp_path / "t.csv", index=False)
    wanted = ("--label", "y", "--learner", "ridge-regression")
    made = expunge("create", tmp_path / "a", "--data", tmp_path / "t.csv", *wanted)
    assert "R²" in made.out
    assert "always the mean" in made.out


def test_what_looks_wrong_is_told(tmp_path, expunge):
    table = pd.DataFrame({"age": np.arange(200) % 7, "same": 1, "number": np.arange(200)})
    table["churned"] = np.where(np.arange(200) % 40 == 3, "yes", "no")
    table.to_csv(tmp_path / "t.csv", index=False)
    made = expunge("create", tmp_path / "a", "--data", tmp_path / "t.csv", "--label", "churned", "--shards", "8")
    told = made.words
    assert "Look at this: column 'same' has the same value in every row" in told
    assert "Look at this: column 'number' looks like an id" in told
    assert "Look at this: class 'yes' has 5 records, fewer than the 8 shards" in told
    assert "Look at this: every answer is 'no': the model says nothing about the other classes." in told
    assert "every answer is 'no'" in expunge("status", tmp_path / "a").words


def test_few_records_are_not_measured(tmp_path, expunge):
    pd.DataFrame({"x": range(9), "y": ["a", "b", "a"] * 3}).to_csv(tmp_path / "t.csv", index=False)
    made = expunge("create", tmp_path / "a", "--data", tmp_path / "t.csv", "--label", "y")
    assert "9 records are too few for shards" in made.words
    assert "not measured: there are too few records" in made.words
    given = expunge("create", tmp_path / "b", "--data", tmp_path / "t.csv", "--label", "y", "--shards", "2")
    assert "not measured: there are too few records to compare anything: 9" in given.words


def test_nothing_is_measured_if_it_is_not_wanted(churn, tmp_path, expunge):
    made = expunge("create", tmp_path / "a", "--data", churn, *COLUMNS, "--minutes", "0")
    assert "300 records, 10 shards" in made.words
    assert "not measured: not wanted (--minutes 0)" in made.words


def test_a_learner_that_unlearns_exactly_is_measured_too(churn, tmp_path, expunge):
    made = expunge("create", tmp_path / "a", "--data", churn, *COLUMNS, "--learner", "naive-bayes-exact", "--json").json
    assert made["shards"] == 1
    assert made["report"]["measured"]["candidates"][0]["retrained"] == 0


def test_shards_auto_in_python_is_part_of_the_recipe(tmp_path):
    from sklearn.linear_model import Ridge
    from sklearn.naive_bayes import GaussianNB

    import expunge
    from expunge import UnlearningClassifier, UnlearningRegressor

    X, y = np.arange(400.0).reshape(200, 2), np.arange(200) % 2
    with expunge.create(tmp_path / "a", GaussianNB(), X, y, n_shards="auto") as made:
        assert made.status.num_shards == 1
        assert made.schema["shards"].origin == "first data"
    assert UnlearningClassifier(GaussianNB(), n_shards="auto").fit(X, y).deployment_.status.num_shards == 1
    assert UnlearningRegressor(Ridge(), n_shards="auto").fit(X, X[:, 0]).deployment_.status.num_shards == 1


def test_a_rare_class_is_found_by_a_threshold_and_by_weights(churn, tmp_path, expunge):
    """The first is measured as it will answer, and kept with the promise; the second is an option of the learner."""
    rare = ("--data", churn, *COLUMNS, "--shards", "2")
    found = {}
    for name, words in {
        "plain": (),
        "cut": ("--threshold", "yes=0.1"),
        "weighed": ("--class-weight", "balanced"),
    }.items():
        report = expunge("create", tmp_path / name, *rare, *words, "--json").json["report"]
        assert {each["num_shards"] for each in report["measured"]["candidates"]} == {1, 2}
        found[name] = [each["scores"]["recalls"]["yes"]["value"] for each in report["measured"]["candidates"]]
    assert max(found["plain"]) < min(found["cut"] + found["weighed"])
    assert "promise: exact, threshold=yes from 0.1" in expunge("schema", tmp_path / "cut").words
    assert "class_weight='balanced'" in expunge("schema", tmp_path / "weighed").words
    kept = expunge("predict", tmp_path / "cut", "--data", churn, "--probabilities").out.splitlines()[1:]
    rows = [line.split(",") for line in kept]
    assert [row[1] for row in rows] == ["yes" if float(row[3]) >= 0.1 else "no" for row in rows]
    other = expunge("predict", tmp_path / "cut", "--data", churn, "--threshold", "yes=0.5").out.splitlines()[1:]
    assert [line.split(",")[1] for line in other] == ["yes" if float(row[3]) >= 0.5 else "no" for row in rows]
    again = expunge("retrain", tmp_path / "cut", "--class-weight", "balanced", "--json").json
    assert "class_weight='balanced'" in again["learner"]
    assert min(each["scores"]["recalls"]["yes"]["value"] for each in again["report"]["measured"]["candidates"]) > 0.9


def test_a_plan_measures_a_threshold(churn, expunge):
    words = ("plan", "--data", churn, *COLUMNS, "--shards", "2", "--minutes", "0.05", "--json")
    plain, cut = (
        expunge(*words, *more).json["measured"]["candidates"][0]["scores"]["recalls"]["yes"]["value"]
        for more in ((), ("--threshold", "yes=0.1"))
    )
    assert plain < cut


def test_many_classes_are_told_in_few_lines(tmp_path, expunge):
    rng = np.random.default_rng(0)
    data = tmp_path / "many.csv"
    pd.DataFrame({"x": rng.normal(size=300), "kind": rng.permutation(300) % 60}).to_csv(data, index=False)
    made = expunge("create", tmp_path / "a", "--data", data, "--label", "kind", "--shards", "1")
    assert made.words.count("Look at this") == 2
    assert "The share that is found is least for these of the 60 classes" in made.words
    assert "the labels are 60 different numbers" in made.words
