"""`expunge create --records`: the other commands are given the folder, and work as with any other."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(3)
    numbers = rng.normal(size=(90, 2))
    people = {"id": [f"c{n}" for n in range(90)], "age": numbers[:, 0], "spent": numbers[:, 1]}
    path = tmp_path / "train.parquet"
    pd.DataFrame({**people, "left": np.where(numbers[:, 0] > 0, "yes", "no")}).to_parquet(path)
    return path


BASE = "--label", "left", "--id", "id", "--learner", "naive-bayes", "--shards", "3", "--minutes", "0", "--seed", "4"


def test_a_life_with_records_elsewhere(expunge, table, tmp_path):
    folder, url = tmp_path / "churn", tmp_path / "lake"
    made = expunge("create", folder, "--records", url, "--data", table, *BASE)
    assert f"The records are in {url}; the folder is what other commands are given." in made.words
    assert len(list(url.rglob("*.parquet"))) == 3
    assert expunge("status", folder, "--json").json["records_at"] == str(url)
    assert f"90 records in 3 shards, kept in {url}" in expunge("status", folder).words
    expunge("delete", folder, "--id", "c7")
    more = pd.read_parquet(table).head(2).assign(id=["d1", "d2"])
    more.to_parquet(tmp_path / "more.parquet")
    expunge("add", folder, "--data", tmp_path / "more.parquet")
    expunge("predict", folder, "--data", tmp_path / "more.parquet", "--out", tmp_path / "answers.csv")
    assert len(pd.read_csv(tmp_path / "answers.csv")) == 2
    expunge("check", folder)
    expunge("rekey", folder)
    assert "3 of 3" in expunge("audit", "recompute", folder, "--shards", "all").words
    assert expunge("status", folder, "--json").json["records"] == 91
    failed = expunge("backup", folder, tmp_path / "b", code=2)
    assert "expunge does not back them up" in failed.err
    failed = expunge("create", folder, "--data", table, *BASE, "--force", code=2)
    assert "--force does not replace them" in failed.err
    assert expunge("status", folder, "--json").json["records"] == 91


def test_a_url_in_place_of_the_folder(expunge, table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = expunge("create", f"file://{tmp_path}/lake/churn", "--data", table, *BASE, "--json").json
    assert made["folder"] == "churn"
    assert made["records_at"] == str(tmp_path / "lake" / "churn")
    assert expunge("status", "churn", "--json").json["records"] == 90


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["s3://bucket", "--records", "s3://other"], "give a folder and --records, or the URL alone"),
        (["gs://bucket/churn"], "of gs:// expunge cannot tell"),
        (["s3://bucket"], "has no last name"),
        (["churn", "--records", "s3://Not/a bucket"], "is not of the form s3://bucket/prefix"),
        (["churn", "--records", "lake", "--encrypt"], "not encrypted record by record"),
        (["churn", "--records", "lake", "--promise", "unguarded"], "are for the exact promise"),
    ],
)
def test_what_does_not_fit_is_one_line(expunge, table, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    failed = expunge("create", *arguments, "--data", table, *BASE[:-2], code=2)
    assert words in failed.err
    assert failed.err.strip().count("\n") == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["train.parquet"]
