"""The erasure desk: unknown ids, dry runs, deadlines, tables of requests, bulk certificates and letters."""

from __future__ import annotations

import csv
import io
import shutil
import time
import zipfile

import pytest


@pytest.fixture(scope="session")
def first_plain(tmp_path_factory, create):
    folder = tmp_path_factory.mktemp("plain") / "plain"
    create(folder, "--shards", "4", "--minutes", "0")
    return folder


@pytest.fixture
def plain(first_plain, tmp_path):
    """A deployment of the training file under the exact promise, to be changed at will."""
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


@pytest.fixture
def asked(plain, expunge):
    """A deployment with a deletion, a correction, an addition that was cancelled, and a pending deletion."""
    words = [
        ("delete", plain, "--subject", "h20"),
        ("correct", plain, "--id", "17", "--set", "age=20"),
        ("delete", plain, "--id", "19", "--later"),
        ("delete", plain, "--id", "18", "--later"),
    ]
    found = [expunge(*each, "--json").json["request"] for each in words]
    expunge("cancel", plain, "--request", found[2])
    return found


def test_filters_deadlines_and_the_table_for_an_officer(plain, asked, tmp_path, expunge, monkeypatch):
    def chosen(*words):
        return [each["request"] for each in expunge("requests", plain, *words, "--json").json]

    assert chosen() == asked
    assert chosen("--kind", "correction") == [asked[1]]
    assert chosen("--state", "cancelled") == [asked[2]]
    assert chosen("--subject", "h20") == chosen("--id", "60") == [asked[0]]
    assert chosen("--id", "17") == [asked[1]]
    assert chosen("--subject", "h5") == [asked[1]]  # which has record 17
    assert chosen("--id", "18") == [asked[3]]
    assert chosen("--accepted-from", "2000-01-01", "--accepted-to", "2100-01-01") == asked
    assert chosen("--accepted-from", "2100-01-01") == chosen("--accepted-to", "2000-01-01") == []
    (left,) = [each for each in expunge("requests", plain, "--deadline", "30d", "--json").json if each["days_left"]]
    assert (left["request"], left["days_left"], left["late"]) == (asked[3], 29, False)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 31 * 86400)
    assert chosen("--deadline", "30d", "--late") == [asked[3]]
    assert "late" in expunge("requests", plain, "--deadline", "30d").words
    expunge("requests", plain, "--csv", tmp_path / "log.csv", "--deadline", "30d")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "log.csv").read_text())))
    assert [row["request"] for row in rows] == asked
    assert [(row["deletions"], row["corrections"], row["late"]) for row in rows[:2]] == [
        ("3", "0", "no"),
        ("0", "1", "no"),
    ]
    assert rows[3]["days_left"] == "-1"
    assert all(name not in (tmp_path / "log.csv").read_text() for name in ("h20", "household"))
    for words, complaint in [
        (["--kind", "odd"], "--kind must be one of"),
        (["--late"], "--late needs --deadline"),
        (["--deadline", "soon"], "--deadline"),
        (["--accepted-from", "yesterday"], "--accepted-from must be a day"),
        (["--csv", plain / "log.csv"], "lies in the deployment's folder"),
    ]:
        assert complaint in expunge("requests", plain, *words, code=2).err


def test_certificates_for_many_requests_in_one_file(plain, asked, tmp_path, expunge):
    expunge("certificate", plain, "--zip", tmp_path / "all.zip")
    with zipfile.ZipFile(tmp_path / "all.zip") as found:
        names = found.namelist()
        assert sorted(names) == sorted([f"{each}.{kind}" for each in asked for kind in ("json", "html")] + _BESIDE)
        found.extractall(tmp_path)
    for each in asked:
        expunge("verify", tmp_path / f"{each}.json", "--public-key", tmp_path / "public.pem")
    expunge("certificate", plain, "--zip", tmp_path / "one.zip", "--subject", "h20", "--kind", "deletion")
    with zipfile.ZipFile(tmp_path / "one.zip") as found:
        assert [name for name in found.namelist() if name.endswith(".json")] == [f"{asked[0]}.json"]
    assert (
        "no such request" in expunge("certificate", plain, "--zip", tmp_path / "n.zip", "--subject", "h99", code=2).err
    )
    assert not (tmp_path / "n.zip").exists()
    assert "choose requests for --zip" in expunge("certificate", plain, "--subject", "h20", code=2).err
    words = ("certificate", plain, "--zip", tmp_path / "n.zip", "--request", asked[0])
    assert "leave out --request" in expunge(*words, code=2).err


_BESIDE = ["index.csv", "public.pem"]


def test_letters_say_what_the_certificate_says(plain, asked, tmp_path, expunge):
    def letter(number, *words):
        return " ".join(expunge("letter", plain, "--request", asked[number], *words).out.split())

    told = letter(0, "--to", "Ann Lee", "--from", "Example Ltd", "--reference", "T-1")
    assert "Dear Ann Lee" in told
    assert "Our reference: T-1" in told
    assert "3 records" in told
    assert "the ones that the same procedure gives" in told
    assert "Corrected: one record" in letter(1)
    assert "was withdrawn on" in letter(2)
    assert "has not been carried out yet" in letter(3)
    for number in (2, 3):
        assert "the same procedure" not in letter(number)
    assert "Dear Sir or Madam," in letter(0)
    assert "Sehr geehrte Damen und Herren," in letter(0, "--language", "de")
    german = letter(0, "--language", "de", "--to", "Anna Lehmann")
    assert "Guten Tag Anna Lehmann" in german
    assert "3 Datensätze" in german
    out = tmp_path / "reply.html"
    expunge("letter", plain, "--request", asked[0], "--language", "de", "--to", "<b>Ann</b>", "--out", out)
    page = out.read_text()
    assert '<html lang="de">' in page
    assert "&lt;b&gt;Ann&lt;/b&gt;" in page
    assert "<b>Ann" not in page


def test_a_template_of_ones_own(plain, asked, tmp_path, expunge):
    own = tmp_path / "own.toml"
    text = expunge("letter", plain, "--request", asked[0], "--show-template").out
    own.write_text(text.replace("Yours sincerely,", "Kind regards from {sender},"))
    told = expunge("letter", plain, "--request", asked[0], "--template", own, "--from", "Us").words
    assert "Kind regards from Us," in told
    for content, complaint in [
        (text.replace("{recipient}", "{person}"), "the template asks for {person}"),
        (text.replace("[promise]", "[promises]"), "lacks the text promise.exact"),
        (text.replace('"December"]', "]"), "lacks the list months of 12 texts"),
        ("= 3", "is not TOML"),
    ]:
        own.write_text(content)
        assert complaint in expunge("letter", plain, "--request", asked[0], "--template", own, code=2).err
    assert (
        "--language must be one of de, en"
        in expunge("letter", plain, "--request", asked[0], "--language", "fr", code=2).err
    )
    assert (
        "must end in .txt or .html"
        in expunge("letter", plain, "--request", asked[0], "--out", tmp_path / "a.doc", code=2).err
    )


def test_a_back_up_is_restored_without_those_who_left_since(plain, tmp_path, expunge):
    expunge("backup", plain, tmp_path / "old.backup")
    expunge("delete", plain, "--subject", "h20")
    expunge("correct", plain, "--id", "17", "--set", "age=20")
    assert "It has no records" in expunge("backup", plain, tmp_path / "log.backup", "--log-only").words
    words = ("restore", tmp_path / "old.backup", tmp_path / "again")
    assert "give --newer, or say --without-newer" in expunge(*words, code=2).err
    told = expunge(*words, "--newer", tmp_path / "log.backup", "--json").json
    assert (sorted(told["deleted"]), told["changed"], told["num_records"]) == ([60, 61, 62], [17], 296)
    assert "already deleted by request" in expunge("delete", tmp_path / "again", "--subject", "h20", code=2).err
    assert expunge("check", tmp_path / "again")
    assert "restored" in expunge("log", "entries", tmp_path / "again").out
    told = expunge("restore", tmp_path / "old.backup", tmp_path / "third", "--newer", plain).words
    assert "1 were corrected, or deleted and added again" in told
