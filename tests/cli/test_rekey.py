"""`expunge rekey`, by hand and on a clock."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import closing

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

import expunge as package
from expunge.evidence import Envelope, verify
from expunge.folder import open_view
from expunge.folder.store.database import Database


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made") / "clinic"
    X = np.random.default_rng(0).normal(size=(90, 2))
    package.create(folder, GaussianNB(), X, X[:, 0] > 0, n_shards=4).close()
    return folder


@pytest.fixture
def clinic(made, tmp_path):
    return shutil.copytree(made, tmp_path / "clinic")


def grow_old(folder, days):
    """Date the key in force back."""
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - days * 86400))
    with closing(Database(folder)) as database:
        database.execute("UPDATE recipe SET drawn_at = ?", (at,))
    return at


def renewals(folder):
    with open_view(folder) as view:
        entries = view._evidence.ledger.entries()
    return [entry.facts["reason"] for entry in entries if entry.event == "generation"]


def test_by_hand_everything_is_trained_again_and_certificates_say_so(clinic, expunge, tmp_path):
    with open_view(clinic) as view:
        before = view.inside_key
    done = expunge("rekey", clinic)
    with open_view(clinic) as view:
        key = view.inside_key
    assert done.err == ""
    assert done.out.splitlines() == [
        "Trained 4 models again with a new key: generation 2.",
        f"The log says that it was renewed by hand ({key.at}), and commits to it: {key.commitment}",
    ]
    assert before.commitment != key.commitment
    assert renewals(clinic) == ["by hand"]
    certificate = tmp_path / "certificate.json"
    expunge("certificate", clinic, "--out", certificate)
    found = verify(certificate.read_bytes())
    assert found.holds
    assert any("it was renewed by hand, so the operator chose" in each for each in found.certificate.statements.exact)
    assert expunge("audit", "recompute", clinic, "--shards", "all", "--json").json["agrees"]


def test_on_a_clock_nothing_is_done_before_its_time(clinic, expunge):
    same = expunge("rekey", clinic, "--if-older-than", "90d")
    assert "Nothing was done: the key in force is that of" in same.out
    assert same.out.count("\n") == 1
    told = expunge("rekey", clinic, "--if-older-than", "90d", "--json").json
    assert (told["renewed"], told["generation"], told["reason"]) == (False, 1, None)
    assert renewals(clinic) == []


def test_on_a_clock_an_old_key_is_renewed(expunge, clinic):
    at = grow_old(clinic, 91)
    assert not expunge("rekey", clinic, "--if-older-than", "92d", "--json").json["renewed"]
    told = expunge("rekey", clinic, "--if-older-than", "90d", "--json").json
    assert (told["renewed"], told["generation"], told["round"], told["reason"]) == (True, 2, 0, "on a clock")
    assert told["key_since"] > at
    with open_view(clinic) as view:
        assert view.inside_key.commitment == told["commitment"]
        assert view.inside_key.reason == "on a clock"
    assert not expunge("rekey", clinic, "--if-older-than", "90d", "--json").json["renewed"]


def test_pending_requests_stay_pending(clinic, expunge):
    with package.open(clinic) as deployment:
        deployment.delete([3], apply=False)
    expunge("rekey", clinic)
    with open_view(clinic) as view:
        assert (view.status.pending, view.status.num_records, view.status.round) == (1, 90, 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--if-older-than", "soon"), "--if-older-than must be a time such as 90d, 12h, 30m or 3600s, got 'soon'"),
        (("--if-older-than", "0d"), "--if-older-than must be a time"),
        (("--if-older-than", "-1d"), "--if-older-than must be a time"),
        (("--jobs", "x"), "Invalid value"),
    ],
)
def test_bad_options_are_one_line(clinic, expunge, options, message):
    assert message in expunge("rekey", clinic, *options, code=2).err


def test_what_is_no_deployment_is_one_line(expunge, tmp_path):
    assert "does not exist" in expunge("rekey", tmp_path / "gone", code=2).err


SLOW = """
import os, time
from sklearn.naive_bayes import GaussianNB

class Slow(GaussianNB):
    def fit(self, X, y, sample_weight=None):
        if "SLOW" in os.environ:
            open(os.environ["SLOW"], "a").close()
            time.sleep(60)
        return super().fit(X, y, sample_weight)
"""


def test_an_interrupted_renewal_leaves_the_old_key_and_can_be_run_again(tmp_path, expunge, monkeypatch):
    (tmp_path / "slow.py").write_text(SLOW)
    monkeypatch.syspath_prepend(tmp_path)
    from slow import Slow

    folder, begun = tmp_path / "clinic", tmp_path / "begun"
    X = np.random.default_rng(0).normal(size=(90, 2))
    package.create(folder, Slow(), X, X[:, 0] > 0, n_shards=3, trust=["slow"]).close()
    with open_view(folder) as view:
        before = view.inside_key
    environment = {**os.environ, "SLOW": str(begun), "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    command = [sys.executable, "-m", "expunge", "rekey", str(folder), "--trust", "slow"]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not begun.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert said == "expunge: interrupted; the models and the key are those from before: run it again\n"
    with open_view(folder) as view:
        assert view.inside_key == before
    assert expunge("rekey", folder, "--trust", "slow", "--json").json["renewed"]
    assert len(list((folder / "models").iterdir())) == 3


def test_help_gives_an_example(expunge):
    assert "expunge rekey churn/ --if-older-than 90d" in expunge("rekey", "--help").words


def test_json_is_one_document(clinic, expunge):
    assert set(json.loads(expunge("rekey", clinic, "--json").out)) == {
        "renewed",
        "reason",
        "key_since",
        "commitment",
        "generation",
        "round",
        "witness",
    }


def test_under_a_consensus_the_log_does_not_say_when_a_key_is_renewed(churn, expunge, tmp_path):
    done = expunge("rekey", churn).out.splitlines()
    assert done[0].startswith("Trained 10 models again with a new key, by hand (")
    assert done[1].startswith("Under a consensus the log does not say when a key is renewed, and commits to it: ")
    assert expunge("rekey", churn, "--if-older-than", "1d", "--json").json["generation"] is None
    certificate = tmp_path / "certificate.json"
    expunge("certificate", churn, "--out", certificate)
    assert b"by hand" not in Envelope.parse(certificate.read_bytes()).payload
    assert expunge("audit", "recompute", churn, "--json").json["key"] == "matches"
