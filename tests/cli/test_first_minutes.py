"""The first ten minutes of a user, as written, for every file format."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest


def read(path):
    if path.suffix == ".parquet":
        return pd.read_parquet(path)
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as stored:
            return pd.DataFrame({name: stored[name] for name in stored.files})
    return pd.read_csv(path)


@pytest.mark.parametrize("ending", ["csv", "parquet", "npz"])
def test_the_first_ten_minutes(ending, tmp_path, monkeypatch, expunge, people, write_table):
    monkeypatch.chdir(tmp_path)
    train, new, more, gone = (tmp_path / f"{name}.{ending}" for name in ("train", "new", "more", "gone"))
    answers = tmp_path / f"answers.{ending}"
    write_table(people(1, 300), train)
    write_table(people(900, 20).drop(columns=["churned", "household"]), new)
    write_table(people(301, 30), more)
    write_table(pd.DataFrame({"customer_id": [31, 32]}), gone)

    made = expunge(
        *("create", "churn/", "--data", train.name, "--label", "churned", "--id", "customer_id"),
        *("--subject", "household", "--learner", "logistic", "--shards", "12", "--promise", "consensus"),
    )
    assert "300 records, 12 shards, classes no, yes" in made.words
    assert "exact: promised." in made.words
    assert "(α,β,γ): not claimed." in made.words
    assert "--shards 6" in made.words  # what would change that

    expunge("predict", "churn/", "--data", new.name, "--out", answers.name)
    found = read(answers)
    assert found["customer_id"].astype(int).tolist() == list(range(900, 920))
    assert set(found["prediction"]) <= {"no", "yes"}

    assert "applied" in expunge("delete", "churn/", "--id", "17", "--id", "23").out
    by_subject = expunge("delete", "churn/", "--subject", "h40", "--json").json
    assert by_subject["state"] == "applied"
    expunge("delete", "churn/", "--ids-file", gone.name)
    assert "applied" in expunge("add", "churn/", "--data", more.name).out

    status = expunge("status", "churn/", "--json", "--inside").json
    assert status["records"] == 300 - 2 - 3 - 2 + 30
    assert status["requests"] == {"applied": 4, "pending": 0, "cancelled": 0}
    assert (status["inside"]["generation"], status["round"], status["pending"]) == (1, 4, 0)
    assert status["inside"]["budget"]["predictions"] == 20

    request = by_subject["request"]
    expunge("certificate", "churn/", "--request", request, "--out", "certificate.json", "--html", "certificate.html")
    assert expunge("verify", "certificate.json", "--json").json["request"]["request_id"] == request
    assert request in (tmp_path / "certificate.html").read_text()
    assert "consistent" in expunge("verify", "certificate.json").out


def test_formats_can_be_mixed(churn, tmp_path, expunge, people, write_table):
    write_table(people(301, 9), tmp_path / "more.parquet")
    write_table(people(400, 6).drop(columns=["churned", "household"]), tmp_path / "new.npz")
    expunge("add", churn, "--data", tmp_path / "more.parquet")
    expunge("predict", churn, "--data", tmp_path / "new.npz", "--out", tmp_path / "answers.parquet")
    assert pd.read_parquet(tmp_path / "answers.parquet")["customer_id"].tolist() == list(range(400, 406))
    X = np.array([[30.0, 0.5], [60.0, -2.0]])
    np.savez(tmp_path / "arrays.npz", X=X, y=["no", "yes"], ids=[800, 801], subjects=["h800", "h800"])
    expunge("add", churn, "--data", tmp_path / "arrays.npz")
    assert expunge("status", churn, "--json").json["records"] == 311
