"""`expunge log` and `expunge witness`: published, followed, cosigned; and a forked history is refused."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

import expunge as package
from expunge.evidence import Checkpoint, NoteKey, Publication, Submission
from expunge.folder import open_view

DOCS = Path(__file__).parents[2] / "docs" / "log.md"
X = np.random.default_rng(0).normal(size=(90, 2))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made") / "churn"
    package.create(folder, GaussianNB(), X, X[:, 0] > 0, n_shards=2).close()
    return folder


@pytest.fixture
def churn(made, tmp_path):
    return shutil.copytree(made, tmp_path / "churn")


@pytest.fixture
def key(churn, tmp_path, expunge):
    path = tmp_path / "churn.key"
    path.write_text(expunge("log", "key", churn).out)
    return path


def delete(folder, *ids):
    with package.open(folder) as deployment:
        for record in ids:
            deployment.delete([record])


@pytest.fixture
def fork(churn, tmp_path):
    """A copy of the folder, with the same key, that went another way."""
    copy = shutil.copytree(churn, tmp_path / "fork")
    delete(churn, 1)
    delete(copy, 2)
    return copy


def test_the_checkpoint_is_shown(churn, key, expunge):
    text = expunge("log", churn).out
    found, by = Checkpoint.parse(text), NoteKey.parse(key.read_text())
    assert found.size == 1
    assert found.is_signed_by(by)
    assert expunge("log", "show", churn).out == text
    told = expunge("log", churn, "--json").json
    assert (told["size"], told["root"], told["key"]) == (1, found.root.hex(), str(by))
    assert (told["cosigned_size"], told["cosigned_by"], told["checkpoint"]) == (None, [], text)


class Pages(BaseHTTPRequestHandler):
    """A web server that keeps what is put there."""

    def do_GET(self):
        found = self.server.pages.get(self.path)
        self.send_response(404 if found is None else 200)
        self.end_headers()
        self.wfile.write(found or b"")

    def do_PUT(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/read-only":
            self.send_response(405)
        else:
            self.server.puts += 1
            self.server.pages[self.path] = b"nonsense" if self.path == "/garbled" else body
            self.send_response(201)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def web():
    with ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server:
        server.pages, server.puts = {}, 0
        server.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def git(folder, *words):
    done = subprocess.run(["git", "-C", folder, *words], capture_output=True, text=True, check=True)
    return done.stdout


@pytest.fixture
def repository(tmp_path, monkeypatch):
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "operator")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "operator@example.com")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    folder = tmp_path / "public"
    subprocess.run(["git", "init", "--quiet", folder], check=True)
    (folder / "churn").mkdir()
    return folder / "churn"


@pytest.fixture(params=["file", "url", "git"])
def place(request, tmp_path):
    if request.param == "file":
        return tmp_path / "published.txt"
    if request.param == "git":
        return request.getfixturevalue("repository")
    return f"{request.getfixturevalue('web').url}/churn.log"


def publish(expunge, folder, place, **options):
    return expunge("log", "publish", folder, "--to", place, **options)


def test_what_is_published_only_grows_and_can_be_followed(churn, key, place, tmp_path, expunge):
    kept = tmp_path / "kept.txt"
    assert "Published the checkpoint of 1 entry" in publish(expunge, churn, place).words
    following = ("log", "follow", place, "--key", key, "--kept", kept)
    assert "1 entry, 1 checkpoint published, nothing was taken back." in expunge(*following).words
    before = kept.read_text()
    again = publish(expunge, churn, place)
    assert "Nothing is new" in again.words
    assert publish(expunge, churn, place, code=0).err == ""
    for record in (1, 2):
        delete(churn, record)
        assert expunge("log", "publish", churn, "--to", place, "--json").json["new"] == 1
    told = expunge(*following, "--json").json
    assert (told["size"], told["published"], told["kept_size"]) == (5, 3, 1)
    assert kept.read_text().startswith(before)
    assert "nothing was taken back since your copy, of 5 entries." in expunge(*following).words
    assert [each.checkpoint.size for each in Publication.parse(kept.read_text()).steps] == [1, 3, 5]


def test_a_forked_history_is_not_published(churn, fork, key, place, expunge):
    publish(expunge, churn, place)
    before = expunge("log", "follow", place, "--key", key, "--json").out
    refused = publish(expunge, fork, place, code=2)
    assert "this log is forked: the published checkpoint of 3 entries is of another history" in refused.err
    delete(fork, 3)
    assert "this log is forked" in publish(expunge, fork, place, code=2).err
    delete(churn, 4, 5)
    publish(expunge, churn, place)
    assert "a checkpoint of 7 entries of this log is published, and this folder has 5" in (
        publish(expunge, fork, place, code=2).err
    )
    assert expunge("log", "follow", place, "--key", key, "--json").out != before


def test_a_follower_notices_a_fork_and_keeps_both(churn, fork, key, tmp_path, expunge):
    """The operator publishes another history in the same place, after the first was copied."""
    place, kept = tmp_path / "published.txt", tmp_path / "kept.txt"
    publish(expunge, churn, place)
    following = ("log", "follow", place, "--key", key, "--kept", kept)
    expunge(*following)
    mine = kept.read_text()
    place.unlink()
    publish(expunge, fork, place)
    assert "nothing was taken back" in expunge("log", "follow", place, "--key", key).words  # nobody kept anything
    assert "the log was forked or cut: the checkpoint of 3 entries" in expunge(*following, code=1).err
    assert kept.read_text() == mine
    other = Publication.parse((tmp_path / "kept.txt.forked").read_text())
    log = NoteKey.parse(key.read_text())
    for found in (Publication.parse(mine), other):
        found.require_signed(log)
        assert found.last.size == 3
    assert Publication.parse(mine).last.root != other.last.root


def test_what_others_put_there_is_not_believed(churn, key, tmp_path, expunge, web, repository, made):
    other = tmp_path / "other"
    package.create(other, GaussianNB(), X, X[:, 0] > 0, n_shards=2).close()
    place = tmp_path / "published.txt"
    publish(expunge, other, place)
    assert "is not signed by the log" in publish(expunge, churn, place, code=2).err
    assert "is not signed by the log" in expunge("log", "follow", place, "--key", key, code=1).err
    place.write_text("nonsense")
    for words in (("log", "publish", churn, "--to", place), ("log", "follow", place, "--key", key)):
        assert f"{place}: not a published log" in expunge(*words, code=2).err
    assert "nothing is published" in expunge("log", "follow", tmp_path / "none", "--key", key, code=2).err
    assert "lies in the deployment's folder" in publish(expunge, churn, churn / "x", code=2).err
    assert "answers 405" in publish(expunge, churn, f"{web.url}/read-only", code=2).err
    assert "shows something else" in publish(expunge, churn, f"{web.url}/garbled", code=2).err
    assert "cannot be reached" in publish(expunge, churn, "http://127.0.0.1:1/x", code=2).err
    assert "git rev-parse failed" in publish(expunge, churn, tmp_path, code=2).err
    assert "not a verifier key" in expunge("log", "follow", place, "--key", place, code=2).err


def test_publishing_twice_writes_once(churn, expunge, web, repository, tmp_path):
    for _ in range(3):
        publish(expunge, churn, f"{web.url}/churn.log")
        publish(expunge, churn, repository)
    assert web.puts == 1
    assert git(repository, "log", "--format=%s").count("\n") == 1
    assert git(repository, "status", "--porcelain") == ""


def test_following_a_repository_runs_nothing_that_it_names(churn, key, expunge, repository, tmp_path):
    """A repository from a stranger may name programs that git runs when it looks at files."""
    publish(expunge, churn, repository)
    trap = tmp_path / "trap"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    trap.chmod(0o755)
    for name in ("core.fsmonitor", "diff.external", "diff.x.textconv", "core.pager", "filter.x.smudge"):
        git(repository, "config", name, str(trap))
    (repository / ".gitattributes").write_text("* diff=x filter=x\n")
    (tmp_path / "ran").unlink(missing_ok=True)  # git itself may have run it
    assert "1 checkpoint published" in expunge("log", "follow", repository, "--key", key).words
    assert not (tmp_path / "ran").exists()
    subprocess.run(["git", "-C", repository, "status"], capture_output=True, check=False)
    assert (tmp_path / "ran").exists()  # the trap works


def test_following_a_repository_fetches_nothing_that_it_lacks(churn, key, expunge, repository, tmp_path):
    """What is missing in a repository from a stranger would be fetched by a program that it names."""
    publish(expunge, churn, repository)
    trap = tmp_path / "trap"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    trap.chmod(0o755)
    missing = git(repository, "rev-parse", "HEAD:./history").strip()
    objects = git(repository, "rev-parse", "--absolute-git-dir").strip()
    for name, value in (
        ("core.repositoryformatversion", "1"),
        ("extensions.partialClone", "origin"),
        ("remote.origin.promisor", "true"),
        ("remote.origin.url", str(tmp_path)),
        ("remote.origin.uploadpack", str(trap)),
        ("protocol.file.allow", "always"),
    ):
        git(repository, "config", name, value)
    (Path(objects) / "objects" / missing[:2] / missing[2:]).unlink()
    assert "git cat-file failed" in expunge("log", "follow", repository, "--key", key, code=2).err
    assert not (tmp_path / "ran").exists()
    subprocess.run(["git", "-C", repository, "cat-file", "blob", missing], capture_output=True, check=False)
    assert (tmp_path / "ran").exists()  # the trap works


def test_entries_are_compared_with_what_was_published_and_counted(churn, fork, key, tmp_path, expunge):
    place, file = tmp_path / "published.txt", tmp_path / "entries.txt"
    publish(expunge, churn, place)
    following = ("log", "follow", place, "--key", key, "--entries", file)
    delete(churn, 7)  # after the publication
    file.write_text(expunge("log", "entries", churn).out)
    assert "those that were signed: 1 created, 1 accepted, 1 applied." in expunge(*following).words
    assert expunge(*following, "--json").json["events"] == {"created": 1, "accepted": 1, "applied": 1}
    good = file.read_text()
    for text in ("", good[:500], good.replace("accepted", "applied", 1), expunge("log", "entries", fork).out):
        file.write_text(text)
        assert "does not hold the entries that the published checkpoint of 3 entries" in expunge(*following, code=1).err
    file.unlink()
    assert "cannot be read" in expunge(*following, code=2).err


def test_a_git_repository_has_a_commit_for_each_publication(churn, key, expunge, repository, tmp_path):
    (repository / "notes.txt").write_text("the operator's own, not committed yet")
    git(repository, "add", "notes.txt")
    publish(expunge, churn, repository)
    delete(churn, 1)
    publish(expunge, churn, repository)
    origin = Checkpoint.parse((repository / "checkpoint").read_text()).origin
    assert git(repository, "log", "--format=%s").split("\n")[:2] == [f"Log {origin}: {n} entries" for n in (3, 1)]
    assert git(repository, "status", "--porcelain").split() == ["A", "churn/notes.txt"]
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", repository.parent, clone], check=True)
    assert "2 checkpoints published" in expunge("log", "follow", clone / "churn", "--key", key).words
    # What was committed counts, and not what lies in the working tree.
    (repository / "history").unlink()
    assert "Nothing is new" in publish(expunge, churn, repository).words
    assert git(repository, "status", "--porcelain").split() == ["A", "churn/notes.txt"]
    # Killed between writing and the commit.
    delete(churn, 2)
    with open_view(churn) as view:
        after = view.publish(Publication.parse((repository / "history").read_text()))
    (repository / "history").write_text(str(after))
    publish(expunge, churn, repository)
    assert git(repository, "log", "--format=%s").split("\n")[0] == f"Log {origin}: 5 entries"


# A witness.


@pytest.fixture
def state(key, tmp_path, expunge):
    path = tmp_path / "state"
    made = expunge("witness", "init", path, "--name", "witness.example")
    assert (path / "witness.key").read_text().strip() in made.out
    assert "is cosigned from now on" in expunge("witness", "trust", path, "--key", key).words
    assert "is known already" in expunge("witness", "trust", path, "--key", key).words
    return path


@contextlib.contextmanager
def serving(state, *options):
    """A witness in a process of its own."""
    command = [sys.executable, "-m", "expunge", "witness", "serve", state, "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process, re.search(r"http://\S+", process.stdout.readline())[0]
        finally:
            process.terminate()


def test_a_witness_in_a_process_of_its_own_cosigns_and_refuses_a_fork(churn, fork, state, tmp_path, expunge):
    by = NoteKey.parse((state / "witness.key").read_text())
    asking = ("--witness-key", state / "witness.key", "--url")
    with serving(state) as (process, url):
        assert (
            "witness.example cosigned the checkpoint of 3 entries"
            in expunge("log", "witness", churn, *asking, url).words
        )
        cosigned = Checkpoint.parse(expunge("log", churn).out)
        assert cosigned.cosigned_at(by) is not None
        assert expunge("log", churn, "--json").json["cosigned_by"] == ["witness.example"]
        same = expunge("log", "witness", fork, *asking, url, code=1)
        assert "it has cosigned another history of this log, of 3 entries" in same.err
        delete(fork, 3, 4)
        longer = expunge("log", "witness", fork, *asking, url, code=1)
        assert "it has cosigned another history of this log" in longer.err
        assert expunge("log", fork, "--json").json["cosigned_by"] == []
        delete(churn, 5)
        told = expunge("log", "witness", churn, *asking, url, "--json").json
        assert (told["size"], told["witness"]) == (5, "witness.example")
        process.terminate()
        said = process.stderr.read()
    assert sum("REFUSED" in line for line in said.splitlines()) >= 2
    assert "two checkpoints of 3 entries" in said
    shown = expunge("witness", "show", state, "--json").json
    assert [each["size"] for each in shown["logs"]] == [5]
    assert len(shown["refused"]) == 2
    assert expunge("witness", "show", state).out.count("REFUSED, a fork") == 2
    kept = Path(shown["refused"][0]).read_text()
    assert Checkpoint.parse(kept.partition("\nold ")[0]).is_signed_by(by)  # what it cosigned
    Submission.parse("old " + kept.partition("\nold ")[2])  # and what it was sent


def test_a_witness_that_saw_more_than_the_folder_holds(churn, state, tmp_path, expunge):
    older = shutil.copytree(churn, tmp_path / "older")
    delete(churn, 1)
    asking = ("--witness-key", state / "witness.key", "--url")
    with serving(state) as (_, url):
        expunge("log", "witness", churn, *asking, url)
        assert "has cosigned 3 entries of this log, and this folder holds 1" in (
            expunge("log", "witness", older, *asking, url, code=1).err
        )
        stranger = tmp_path / "stranger"
        package.create(stranger, GaussianNB(), X, X[:, 0] > 0, n_shards=2).close()
        assert "does not know this log: give its operator the key" in (
            expunge("log", "witness", stranger, *asking, url, code=2).err
        )
        wrong = expunge("log", "witness", churn, "--witness-key", tmp_path / "churn.key", "--url", url, code=2)
        assert "holds the key of a log, and not of a witness" in wrong.err
    assert "cannot be reached" in expunge("log", "witness", churn, *asking, url, code=2).err
    assert "is no URL" in expunge("log", "witness", churn, *asking, "file:///etc/passwd", code=2).err


def test_a_certificate_must_rest_on_what_a_witness_cosigned(churn, fork, state, tmp_path, monkeypatch, expunge):
    by, file = ("--witness-key", state / "witness.key"), tmp_path / "certificate.json"
    first = expunge("requests", churn, "--json").json[0]["request"]

    def verified(folder, *request, code=0):
        expunge("certificate", folder, *request, "--out", file)
        return expunge("verify", file, *by, code=code)

    assert "witness.example cosigned no checkpoint" in verified(churn, code=1).err
    with serving(state) as (_, url):
        expunge("log", "witness", churn, "--url", url, *by)
    assert (
        "witness.example cosigned the log with all entries that are shown" in verified(churn, "--request", first).words
    )
    delete(churn, 9)
    second = expunge("requests", churn, "--json").json[1]["request"]
    late = verified(churn, "--request", second, code=1)
    assert "witness.example cosigned the first 3 entries, and entry 4 is shown too" in late.err
    assert "cosigned the log with all" in verified(churn, "--request", first).words  # by an earlier checkpoint
    assert "witness.example cosigned no checkpoint" in verified(fork, code=1).err
    with serving(state) as (_, url):
        expunge("log", "witness", churn, "--url", url, *by)
    assert expunge("verify", file, "--json").json["outcome"] == "holds"
    verified(churn, "--request", second)


def test_a_forked_history_is_caught_by_verify(churn, fork, state, tmp_path, expunge):
    """Two certificates of one deployment, each of which verifies by itself, also after the forks went on."""
    one, other = tmp_path / "one.json", tmp_path / "other.json"
    for folder, file in ((churn, one), (fork, other)):
        expunge("certificate", folder, "--out", file)
        expunge("verify", file)
    assert "two histories" in expunge("verify", one, other, code=1).err


def test_with_files_two_witnesses_cosign_one_checkpoint(churn, key, state, tmp_path, expunge):
    other = tmp_path / "other"
    expunge("witness", "init", other, "--name", "other.example")
    expunge("witness", "trust", other, "--key", key)
    request, cosigned = tmp_path / "request.txt", tmp_path / "cosigned.txt"
    for by in (state, other):
        expunge("log", "witness", churn, "--request", request, "--since", "0")
        expunge("witness", "cosign", by, request, "--out", cosigned)
        expunge("log", "witness", churn, "--cosignature", cosigned, "--witness-key", by / "witness.key")
    assert expunge("log", churn, "--json").json["cosigned_by"] == ["witness.example", "other.example"]
    place = tmp_path / "published.txt"
    publish(expunge, churn, place)
    for by in (state, other):
        told = expunge("log", "follow", place, "--key", key, "--witness-key", by / "witness.key")
        assert "cosigned the latest checkpoint at" in told.words
    delete(churn, 1)
    publish(expunge, churn, place)
    late = expunge("log", "follow", place, "--key", key, "--witness-key", state / "witness.key", code=1)
    assert "the latest checkpoint, of 3 entries, is not cosigned by witness.example" in late.err
    # What is cosigned after it was published is published too.
    expunge("log", "witness", churn, "--request", request)
    cosigned.write_text(expunge("witness", "cosign", state, request).out)
    expunge("log", "witness", churn, "--cosignature", cosigned, "--witness-key", state / "witness.key")
    assert expunge("log", "publish", churn, "--to", place, "--json").json["new"] == 1
    assert expunge("log", "publish", churn, "--to", place, "--json").json["new"] == 0
    expunge("log", "follow", place, "--key", key, "--witness-key", state / "witness.key")


def test_a_forked_log_is_refused_offline(churn, fork, state, tmp_path, expunge):
    request = tmp_path / "request.txt"
    expunge("log", "witness", churn, "--request", request)
    expunge("witness", "cosign", state, request, "--out", tmp_path / "cosigned.txt")
    expunge("log", "witness", fork, "--request", request, "--since", "3")
    refused = expunge("witness", "cosign", state, request, code=1)
    assert refused.out == ""
    assert "is forked: it signed two checkpoints of 3 entries. Both are kept in" in refused.err
    stale = tmp_path / "stale.txt"
    expunge("log", "witness", churn, "--request", stale, "--since", "1")
    assert "starts at 1 entries" in expunge("witness", "cosign", state, stale, code=2).err
    words = ("log", "witness", fork, "--cosignature", tmp_path / "cosigned.txt")
    assert "is not one of this log" in expunge(*words, "--witness-key", state / "witness.key", code=2).err


def test_a_key_is_drawn_with_a_witness(churn, state, tmp_path, expunge):
    by = state / "witness.key"
    assert "need each other" in expunge("rekey", churn, "--witness-key", by, code=2).err
    with serving(state) as (_, url):
        done = expunge("rekey", churn, "--witness", url, "--witness-key", by)
        assert "A witness had a part in it" in done.words
        assert expunge("rekey", churn, "--witness", url, "--witness-key", by, "--json").json["witness"] == (
            by.read_text().strip()
        )
        told = expunge("audit", "recompute", churn, "--shards", "all", "--json").json
        assert (told["agrees"], told["drawn_with"]) == (True, by.read_text().strip())
        copy = shutil.copytree(churn, tmp_path / "copy")
        expunge("rekey", churn, "--witness", url, "--witness-key", by)
        forked = expunge("rekey", copy, "--witness", url, "--witness-key", by, code=2)
        assert "it has cosigned another history of this log" in forked.err  # no second draw in a copy of the folder
    assert "The key was drawn with a witness" in expunge("audit", "recompute", churn, "--shards", "all").words


def test_the_first_key_is_drawn_with_a_witness(tmp_path, expunge, create):
    state, by, folder = tmp_path / "state", tmp_path / "state" / "witness.key", tmp_path / "first"
    expunge("witness", "init", state, "--name", "witness.example")
    with serving(state) as (_, url):
        refused = create(folder, "--shards", "2", "--witness", url, "--witness-key", by, code=2)
        assert "does not know this log" in refused.err
        assert not folder.exists()
    with serving(state, "--trust-new") as (_, url):
        create(folder, "--shards", "2", "--witness", url, "--witness-key", by)
    told = expunge("audit", "recompute", folder, "--shards", "all", "--json").json
    assert (told["agrees"], told["drawn_with"]) == (True, by.read_text().strip())
    assert expunge("witness", "show", state, "--json").json["logs"][0]["size"] == 1


def test_a_cosigned_checkpoint_draws_the_shards_of_an_audit(churn, state, tmp_path, expunge):
    bundle, cosigned = tmp_path / "bundle", tmp_path / "cosigned.txt"
    expunge("export", churn, "--for-audit", bundle)
    with serving(state) as (_, url):
        expunge("log", "witness", churn, "--url", url, "--witness-key", state / "witness.key")
    cosigned.write_text(expunge("log", churn).out)
    words = ("audit", "recompute", bundle, "--shards", "1", "--checkpoint", cosigned)
    told = expunge(*words, "--witness-key", state / "witness.key")
    assert re.search(r"drawn by the checkpoint with the SHA-256 \w+, cosigned by witness\.example at 20", told.words)
    assert "whose cosignatures were not checked" in expunge(*words).words
    other = tmp_path / "other"
    expunge("witness", "init", other, "--name", "other.example")
    assert "is not cosigned by other.example" in expunge(*words, "--witness-key", other / "witness.key", code=2).err


def test_bad_options_are_one_line(churn, state, tmp_path, expunge):
    by = ("--witness-key", state / "witness.key")
    for words, said in (
        (("log", "witness", churn), "give one of --url, --request and --cosignature"),
        (("log", "witness", churn, "--url", "http://x", "--request", "x"), "give one of"),
        (("log", "witness", churn, "--url", "http://x", "--since", "1"), "--since goes with --request"),
        (("log", "witness", churn, "--url", "http://127.0.0.1:1"), "--witness-key is needed"),
        (("log", "witness", churn, "--request", tmp_path / "r", "--since", "9"), "the old size must be"),
        (("log", "witness", churn, "--request", churn / "r"), "lies in the deployment's folder"),
        (("log", "witness", churn, "--cosignature", tmp_path / "none", *by), "there is no file"),
        (("log", "witness", churn, "--cosignature", state / "witness.key", *by), "not a checkpoint"),
        (("log", tmp_path), "is not a deployment"),
        (("witness", "init", state, "--name", "other"), "is not empty"),
        (("witness", "init", tmp_path / "new", "--name", "two words"), "no spaces"),
        (("witness", "show", churn), "is not a witness's folder"),
        (("witness", "trust", state, "--key", tmp_path / "none"), "there is no file"),
        (("witness", "trust", state, "--key", state / "witness.key"), "is a witness's"),
        (("witness", "cosign", state, state / "witness.key"), "not a submission"),
    ):
        assert said in expunge(*words, code=2).err, words
    assert not (tmp_path / "new").exists()


def test_every_command_of_the_page_runs(churn, tmp_path, monkeypatch, expunge):
    """docs/log.md, from top to bottom; the server is one of its commands."""
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```\n(.*?)^```", DOCS.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    assert len(lines) >= 11
    with contextlib.ExitStack() as stack:
        url = None
        for line in lines:
            command, _, output = line.replace("http://127.0.0.1:8765", url or "").partition(" > ")
            program, *words = shlex.split(command)
            assert program == "expunge"
            if words[:2] == ["witness", "serve"]:
                _, url = stack.enter_context(serving(*words[2:3]))
                continue
            done = expunge(*words)
            if output:
                Path(output).write_text(done.out)
    assert url is not None
