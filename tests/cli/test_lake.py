"""`expunge create --records`: the other commands are given the folder, and work as with any other."""

from __future__ import annotations

import sqlite3

import numpy as np
import pandas as pd
import pytest

from expunge.folder.store import spool
from expunge.folder.store.packs import SALT_BYTES
from expunge.tables import streams


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(3)
    numbers = rng.normal(size=(90, 2))
    people = {"id": [f"c{n}" for n in range(90)], "age": numbers[:, 0], "spent": numbers[:, 1]}
    path = tmp_path / "train.parquet"
    pd.DataFrame({**people, "left": np.where(numbers[:, 0] > 0, "yes", "no")}).to_parquet(path)
    return path


BASE = "--label", "left", "--id", "id", "--learner", "naive-bayes", "--shards", "3", "--minutes", "0"


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
    failed = expunge("create", *arguments, "--data", table, *BASE, code=2)
    assert words in failed.err
    assert failed.err.strip().count("\n") == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["train.parquet"]


def parts_of(table, folder, count=3):
    """The table in several files."""
    folder.mkdir()
    frame = pd.read_parquet(table)
    for number, low in enumerate(range(0, len(frame), -(-len(frame) // count))):
        frame.iloc[low : low + -(-len(frame) // count)].to_parquet(folder / f"{number}.parquet", index=False)


def models_of(folder):
    with sqlite3.connect(f"file:{folder}/state.db?mode=ro", uri=True) as database:
        names = [name for (name,) in database.execute("SELECT file FROM shards ORDER BY shard")]
    return [(folder / "models" / name).read_bytes()[:-SALT_BYTES] for name in names]


def test_files_larger_than_the_memory_give_the_same_models(expunge, table, tmp_path, monkeypatch):
    options, data = [*BASE, "--seed", "4"], tmp_path / "data"
    parts_of(table, data)
    expunge("create", tmp_path / "one", "--data", table, *options)
    expunge("create", tmp_path / "two", "--records", tmp_path / "r2", "--data", data / "*.parquet", *options)
    monkeypatch.setattr(streams, "_HEAD", 20)
    monkeypatch.setattr(streams, "_AT_ONCE", 7)
    monkeypatch.setattr(spool, "_IN_MEMORY", 0)
    made = expunge("create", tmp_path / "three", "--records", tmp_path / "r3", "--data", data, *options)
    assert "not measured: the records are too many to be measured at creation" in made.words
    assert "Created" in made.out
    assert "90 records" in made.words
    assert models_of(tmp_path / "one") == models_of(tmp_path / "two") == models_of(tmp_path / "three")
    for name in ("one", "two", "three"):
        expunge("delete", tmp_path / name, "--id", "c7", "--id", "c88")
    assert models_of(tmp_path / "one") == models_of(tmp_path / "two") == models_of(tmp_path / "three")
    expunge("check", tmp_path / "three")
    assert not [file for file in tmp_path.rglob("*") if file.name == "spool"]
    failed = expunge("create", tmp_path / "f", "--data", data / "*.parquet", *options, code=2)
    assert "are read with --records" in failed.err
    without = [word for word in options if word not in ("--shards", "3", "--minutes", "0")]
    failed = expunge("create", tmp_path / "f", "--records", "r", "--data", data, *without, code=2)
    assert "--shards: 90 records are too many to choose it from; give a number" in failed.err
    (tmp_path / "data" / "2.parquet").write_bytes(b"PAR1")
    failed = expunge("create", tmp_path / "f", "--records", tmp_path / "r", "--data", data, *options, code=2)
    assert "2.parquet is not a Parquet file that can be read" in failed.err
    assert not (tmp_path / "r").exists()
    assert not (tmp_path / "f").exists()
