"""The erasure desk: unknown ids, dry runs, deadlines, tables of requests, bulk certificates and letters."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def first_plain(tmp_path_factory, create):
    folder = tmp_path_factory.mktemp("plain") / "plain"
    create(folder, "--shards", "4", "--minutes", "0")
    return folder


@pytest.fixture
def plain(first_plain, tmp_path):
    """A deployment of the training file under the exact promise, to be changed at will."""
    import shutil

    return shutil.copytree(first_plain, tmp_path / "plain")


def test_what_is_gone_names_the_request_that_deleted_it(plain, expunge):
    first = expunge("delete", plain, "--id", "17", "--json").json["request"]
    household = expunge("delete", plain, "--subject", "h20", "--json").json["request"]
    applied = {each["request"]: each["applied_by"] for each in expunge("requests", plain, "--json").json}
    gone = expunge("delete", plain, "--id", "17", code=2).err
    assert f"no record has the id 17: it was already deleted by request {first} on {applied[first]}" in gone
    assert f"already deleted by request {household}" in expunge("delete", plain, "--id", "60", code=2).err
    assert f"already deleted by request {household}" in expunge("delete", plain, "--subject", "h20", code=2).err
    assert (
        f"already deleted by request {first}" in expunge("correct", plain, "--id", "17", "--set", "age=1", code=2).err
    )
    later = expunge("delete", plain, "--id", "18", "--later", "--json").json["request"]
    assert f"it is being deleted by request {later}" in expunge("delete", plain, "--id", "18", code=2).err
    assert "already" not in expunge("delete", plain, "--id", "100000", code=2).err


def test_a_forgotten_request_is_not_named(plain, expunge, monkeypatch):
    import time

    request = expunge("delete", plain, "--id", "17", "--json").json["request"]
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 400 * 86400)
    expunge("forget", plain, "--older-than", "365d")
    told = expunge("delete", plain, "--id", "17", code=2).err
    assert "was already deleted by a request that was forgotten since" in told
    assert request not in told


def test_unknown_ids_are_skipped_and_told(plain, tmp_path, expunge):
    expunge("delete", plain, "--id", "17")
    (tmp_path / "gone.csv").write_text("customer_id\n17\n18\n100000\n19\n")
    assert "(nor are 1 others of the 4" in expunge("delete", plain, "--ids-file", tmp_path / "gone.csv", code=2).err
    words = ("delete", plain, "--ids-file", tmp_path / "gone.csv", "--skip-unknown")
    dry = expunge(*words, "--dry-run", "--json").json
    assert (dry["deletions"], len(dry["skipped"])) == (2, 2)
    found = expunge(*words, "--json").json
    assert found["state"] == "applied"
    assert [(each["what"], each["name"]) for each in found["skipped"]] == [("record", 17), ("record", 100000)]
    assert "already deleted by request" in found["skipped"][0]["why"]
    assert found["skipped"][1]["why"] == "was never there, as far as is known"
    again = expunge(*words)
    assert "skipped: the id 18 was already deleted" in again.words
    assert "nothing was deleted" in again.words
    assert expunge(*words, "--json").json["request"] is None


def test_a_dry_run_changes_nothing_and_says_what_the_real_one_does(plain, expunge):
    before = expunge("status", plain, "--json").json
    told = expunge("delete", plain, "--subject", "h20", "--dry-run", "--json").json
    assert (told["deletions"], told["touched"], told["num_shards"]) == (3, 1, 4)
    assert told["seconds"] > 0
    after = expunge("status", plain, "--json").json
    assert after == before
    expunge("delete", plain, "--subject", "h20", "--later")
    told = expunge("correct", plain, "--id", "17", "--set", "age=20", "--dry-run", "--json").json
    assert (told["deletions"], told["corrections"], told["pending"]) == (3, 1, 1)
    told = expunge("apply", plain, "--dry-run", "--json").json
    assert (told["deletions"], told["touched"]) == (3, 1)
    assert "It would delete 3 records" in expunge("apply", plain, "--dry-run").words
    assert expunge("requests", plain, "--json").json[-1]["state"] == "pending"
    assert "no record has the id 99999" in expunge("delete", plain, "--id", "99999", "--dry-run", code=2).err


def test_what_would_be_trained_is_the_operators_under_a_consensus(churn, expunge):
    for words in (["delete", "--id", "17"], ["delete", "--subject", "h20"], ["apply"]):
        told = expunge(words[0], churn, *words[1:], "--dry-run", "--json").json
        assert not {"touched", "records", "seconds", "retrains_everything"} & told.keys()
        assert "train" not in expunge(words[0], churn, *words[1:], "--dry-run").words.replace(
            "would train again is", ""
        )
        inside = expunge(words[0], churn, *words[1:], "--dry-run", "--inside", "--json").json
        assert "touched" in inside


def test_a_subject_of_another_kind_is_named_as_such(tmp_path, write_table, people, create, expunge):
    frame = people(1, 60)
    frame["customer_id"] = [f"c{number}" for number in frame["customer_id"]]
    frame["household"] = [int(name[1:]) for name in frame["household"]]
    create(tmp_path / "d", "--shards", "2", "--minutes", "0", data=write_table(frame, tmp_path / "t.csv"))
    told = expunge("delete", tmp_path / "d", "--subject", "c17", code=2).err
    assert "--subject 'c17': the subjects (column 'household') of this deployment are whole numbers" in told
    (tmp_path / "s.csv").write_text("household\nc17\n")
    told = expunge("delete", tmp_path / "d", "--subjects-file", tmp_path / "s.csv", code=2).err
    assert "the subjects (column 'household') of this deployment are whole numbers" in told
