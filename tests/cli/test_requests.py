"""delete, add, apply, cancel, and what becomes of requests."""

from __future__ import annotations

import re
import shutil

import numpy as np
import pandas as pd
import pytest

import expunge as library


def records(expunge, folder):
    return expunge("status", folder, "--json").json["records"]


@pytest.fixture(scope="session")
def first_batched(tmp_path_factory, create):
    folder = tmp_path_factory.mktemp("made") / "batched"
    create(folder, "--shards", "5", "--apply", "at 3")
    return folder


@pytest.fixture
def batched(first_batched, tmp_path):
    """A deployment that applies requests in threes."""
    return shutil.copytree(first_batched, tmp_path / "batched")


def test_ids_and_subjects_in_one_request(churn, files, tmp_path, expunge):
    (tmp_path / "houses.csv").write_text("household,why\nh20,asked\n")
    done = expunge(
        *("delete", churn, "--id", "1", "--id", "1", "--subject", "h10", "--ids-file", files / "gone.csv"),
        *("--subjects-file", tmp_path / "houses.csv", "--json"),
    )
    assert set(done.json) == {"request", "state"}
    assert records(expunge, churn) == 300 - 1 - 3 - 2 - 3
    with library.open(churn) as deployment:
        assert not {1, 4, 5, 30, 31, 32, 60, 61, 62} & set(deployment.records.ids())


def test_subjects_are_refused_where_there_are_none(tmp_path, files, expunge):
    folder, houses = tmp_path / "plain", tmp_path / "houses.csv"
    houses.write_text("household\nh20\n")
    columns = ("--label", "churned", "--id", "customer_id", "--ignore", "household")
    expunge("create", folder, "--data", files / "train.csv", *columns, "--shards", "2")
    for option, value in (("--subject", "h20"), ("--subjects-file", houses)):
        err = expunge("delete", folder, option, value, code=2).err
        assert f"{option}: the records of {folder} have no subjects" in err
    assert (
        "--id 'h20': the ids (column 'customer_id') of this deployment are whole numbers"
        in expunge("delete", folder, "--id", "h20", code=2).err
    )
    assert records(expunge, folder) == 300


@pytest.mark.parametrize("ending", ["csv", "parquet", "npz"])
def test_a_file_of_ids_in_any_format(ending, churn, tmp_path, expunge, write_table):
    write_table(pd.DataFrame({"customer_id": [7, 8], "note": ["x", "y"]}), tmp_path / f"gone.{ending}")
    expunge("delete", churn, "--ids-file", tmp_path / f"gone.{ending}")
    write_table(pd.DataFrame({"person": [9, 9]}), tmp_path / f"only.{ending}")
    expunge("delete", churn, "--ids-file", tmp_path / f"only.{ending}")
    write_table(pd.DataFrame({"person": [10], "note": [11]}), tmp_path / f"which.{ending}")
    assert "customer_id" in expunge("delete", churn, "--ids-file", tmp_path / f"which.{ending}", code=2).err
    expunge("delete", churn, "--ids-file", tmp_path / f"which.{ending}", "--column", "person")
    assert records(expunge, churn) == 296


def test_an_unknown_id_deletes_nothing_and_is_named(churn, tmp_path, expunge, write_table):
    assert "no record has the id 999; nothing" in expunge("delete", churn, "--id", "3", "--id", "999", code=2).err
    write_table(pd.DataFrame({"customer_id": np.arange(290, 1290)}), tmp_path / "gone.csv")
    err = expunge("delete", churn, "--ids-file", tmp_path / "gone.csv", code=2).err
    assert "the id 301" in err
    assert "988 others of the 1,000" in err
    assert len(err) < 200
    assert "subject 'nobody'" in expunge("delete", churn, "--subject", "nobody", code=2).err
    assert "are whole numbers" in expunge("delete", churn, "--id", "0017", code=2).err
    assert "say what to delete" in expunge("delete", churn, code=2).err
    assert records(expunge, churn) == 300


def test_text_ids_stay_text(tmp_path, expunge, people, write_table):
    frame = people(1, 60).drop(columns="household")
    frame["customer_id"] = [f"{number:04d}" for number in frame["customer_id"]]
    write_table(frame, tmp_path / "train.csv")
    folder = tmp_path / "a"
    expunge(
        "create", folder, "--data", tmp_path / "train.csv", "--label", "churned", "--id", "customer_id", "--shards", "3"
    )
    assert "the id '17'" in expunge("delete", folder, "--id", "17", code=2).err
    expunge("delete", folder, "--id", "0017")
    assert records(expunge, folder) == 59


def test_large_whole_numbers_stay_exact(tmp_path, expunge, people, write_table):
    frame = people(1, 60).drop(columns="household")
    frame["customer_id"] += 2**60
    write_table(frame, tmp_path / "train.csv")
    folder = tmp_path / "a"
    expunge(
        "create", folder, "--data", tmp_path / "train.csv", "--label", "churned", "--id", "customer_id", "--shards", "3"
    )
    expunge("delete", folder, "--id", str(2**60 + 17))
    with library.open(folder) as deployment:
        assert 2**60 + 17 not in deployment.records
        assert 2**60 + 18 in deployment.records


def test_the_same_key_is_the_same_request(churn, expunge):
    first = expunge("delete", churn, "--id", "3", "--key", "ticket-1", "--json").json
    again = expunge("delete", churn, "--id", "3", "--key", "ticket-1", "--json").json
    assert first == again
    assert "key" in expunge("delete", churn, "--id", "5", "--key", "ticket-1", code=2).err
    assert records(expunge, churn) == 299


def test_what_was_deleted_comes_back_only_on_purpose(churn, tmp_path, expunge, people, write_table):
    expunge("delete", churn, "--id", "7")
    back = people(7, 1)
    write_table(back, tmp_path / "back.csv")
    assert "7" in expunge("add", churn, "--data", tmp_path / "back.csv", code=2).err
    assert records(expunge, churn) == 299
    expunge("add", churn, "--data", tmp_path / "back.csv", "--readmit")
    assert records(expunge, churn) == 300


def test_bad_additions_are_named_and_add_nothing(churn, tmp_path, expunge, people, write_table):
    cases = {
        "the id 12 is in use": people(12, 1),
        "rows 1 and 2 of column 'customer_id'": pd.concat([people(500, 1), people(500, 1)]),
        "row 2 of column 'churned' .* is maybe": people(500, 2).assign(churned=["no", "maybe"]),
        "lacks column 'age'": people(500, 2).drop(columns="age"),
        "no column 'household'": people(500, 2).drop(columns="household"),
        "has column 'colour'": people(500, 2).assign(colour=1),
        "row 1 of column 'customer_id' .* is 'x1'": people(500, 1).assign(customer_id=["x1"]),
        "no rows": people(500, 0),
    }
    for words, frame in cases.items():
        write_table(frame, tmp_path / "more.csv")
        done = expunge("add", churn, "--data", tmp_path / "more.csv", code=2)
        assert re.search(words, done.err), done.err
    assert records(expunge, churn) == 300
    assert (
        "column 'customer_id', not 'age'"
        in expunge("add", churn, "--data", tmp_path / "more.csv", "--id", "age", code=2).err
    )


def test_requests_wait_for_their_batch(batched, files, expunge):
    first = expunge("delete", batched, "--id", "3", "--json").json
    assert first["state"] == "pending"
    waiting = expunge("delete", batched, "--id", "4")
    assert "expunge apply" in waiting.words
    status = expunge("status", batched, "--json").json
    assert (status["pending"], status["records"], status["round"], status["apply"]) == (2, 300, 0, "at 3")
    assert "applied when 3 are pending" in expunge("status", batched).words
    assert expunge("apply", batched, "--if-due", "--json").json == {"applied": 0, "pending": 2, "round": 0}
    assert expunge("cancel", batched, "--request", first["request"], "--json").json["state"] == "cancelled"
    assert expunge("apply", batched, "--json").json == {"applied": 1, "pending": 0, "round": 1}
    assert "Nothing was pending" in expunge("apply", batched).out
    assert records(expunge, batched) == 299
    assert "cancelled" in expunge("status", batched, "--request", first["request"]).out
    assert expunge("cancel", batched, "--request", first["request"], code=2)
    now = expunge("delete", batched, "--id", "9", "--now", "--json").json
    assert now["state"] == "applied"


def test_the_third_request_applies_all(batched, files, expunge):
    for number in (3, 4):
        assert expunge("delete", batched, "--id", number, "--json").json["state"] == "pending"
    assert expunge("add", batched, "--data", files / "more.csv", "--json").json["state"] == "applied"
    assert expunge("status", batched, "--json").json["requests"] == {"applied": 3, "pending": 0, "cancelled": 0}
    assert records(expunge, batched) == 328


def test_later_is_later_also_where_requests_are_applied_at_once(churn, expunge):
    asked = expunge("delete", churn, "--id", "3", "--later", "--json").json
    assert asked["state"] == "pending"
    assert expunge("status", churn, "--request", asked["request"], "--json").json["state"] == "pending"
    expunge("apply", churn)
    found = expunge("status", churn, "--request", asked["request"], "--json").json
    assert (found["state"], found["deletions"], found["additions"], found["round"]) == ("applied", 1, 0, 1)


@pytest.fixture
def stuck(tmp_path, files, expunge, people, write_table):
    """A deployment that has accepted an addition that no shard can be trained with, and what was said then."""
    folder = tmp_path / "stuck"
    expunge(
        *("create", folder, "--data", files / "train.csv", "--label", "churned", "--id", "customer_id"),
        *("--subject", "household", "--shards", "3", "--probability", "1"),
    )
    poison = people(7000, 4).assign(age=[1.7e308] * 4, spend=[1.7e308] * 4, churned=["yes", "no"] * 2)
    write_table(poison, tmp_path / "poison.csv")
    return folder, expunge("add", folder, "--data", tmp_path / "poison.csv", "--json", code=2)


def test_an_addition_that_cannot_be_trained_on_stays_pending_and_can_be_cancelled(stuck, files, expunge):
    folder, told = stuck
    assert set(told.json) == {"request", "state", "error"}
    bad = told.json["request"]
    assert told.json["state"] == "pending"
    assert told.json["error"].startswith("training failed: ")
    assert f"request {bad} is accepted and pending; applying it failed: training failed: " in told.err
    assert "shard" not in told.err + told.out
    status = expunge("status", folder, "--json").json
    assert (status["pending"], status["pending_requests"]) == (1, [bad])
    assert f"pending: {bad}" in expunge("status", folder).words
    assert len(expunge("predict", folder, "--data", files / "new.csv").out.splitlines()) == 26
    expunge("certificate", folder)
    failed = expunge("apply", folder, code=2).err
    assert "training failed" in failed
    assert "shard" not in failed
    behind = expunge("delete", folder, "--id", "3", "--json", code=2).json
    assert expunge("status", folder, "--json").json["pending_requests"] == [bad, behind["request"]]
    later = expunge("delete", folder, "--id", "4", "--later", "--json").json
    assert later["state"] == "pending"
    expunge("cancel", folder, "--request", bad)
    expunge("apply", folder)
    status = expunge("status", folder, "--json").json
    assert (status["pending_requests"], status["records"]) == ([], 298)


def test_many_pending_requests_are_counted_in_words(churn, expunge):
    for number in range(1, 13):
        expunge("delete", churn, "--id", number, "--later")
    assert len(expunge("status", churn, "--json").json["pending_requests"]) == 12
    assert "and 2 more, all of them with --json" in expunge("status", churn).words


def test_requests_are_listed(batched, expunge, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")  # a narrow terminal: names stay whole, so that they can be copied
    assert "There are no requests." in expunge("requests", batched).words
    asked = [expunge("delete", batched, "--id", number, "--json").json["request"] for number in ("3", "4")]
    expunge("apply", batched)
    asked.append(expunge("delete", batched, "--id", "9", "--json").json["request"])
    listed = expunge("requests", batched, "--json").json
    assert [(each["request"], each["state"], each["deletions"], each["round"]) for each in listed] == [
        (asked[0], "applied", 1, 1),
        (asked[1], "applied", 1, 1),
        (asked[2], "pending", 1, None),
    ]
    assert [each["request"] for each in expunge("requests", batched, "--state", "pending", "--json").json] == asked[2:]
    shown = expunge("requests", batched, "--last", "1").words
    assert asked[2] in shown
    assert asked[1] not in shown
    assert "and 2 before these: --last 3" in shown
    assert "There are no cancelled requests." in expunge("requests", batched, "--state", "cancelled").words
    refused = expunge("requests", batched, "--state", "lost", code=2)
    assert "--state must be one of pending, applied, cancelled, got 'lost'" in refused.err
