"""The demo as a user runs it: a real process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request

import pytest

from expunge.serving.promises import EXACT_STATEMENT


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "expunge", *arguments], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def report():
    done = run("demo", "--seed", "1", "--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # quiet in a pipe
    return json.loads(done.stdout)


def test_the_demo_shows_what_it_promises(report):
    assert report["accuracy_before"] > 0.8
    assert abs(report["accuracy_after"] - report["accuracy_before"]) < 0.06
    assert report["untouched_models_are_the_same"] is True
    for step in report["steps"]:
        assert 0 < step["models_trained"] < step["models_if_retrained"]
    assert report["work_saved"] > 0.9


def test_the_demo_shows_what_a_hostile_requester_achieves(report):
    """The accuracies with new secrets are within 6 standard deviations of 2/3 and 1 − e⁻²: false alarms below 1e-6."""
    for arm in (report["attack_sisa"], report["attack_exact"]):
        assert arm["accuracy_unlearned"] == 0.0
        assert 0.42 < arm["accuracy_retrained"] < 0.92  # about 200 surviving pairs
    assert report["attack_exact"]["same_models"] is True
    assert report["attack_exact"]["accuracy_same_recipe"] == 0.0
    consensus = report["attack_consensus"]
    assert consensus["models_retrained"] == consensus["num_shards"] == 1000
    assert consensus["same_models"] is True
    assert 0.6 < consensus["accuracy_in_service"] <= 1
    assert 0.6 < consensus["accuracy_retrained"] <= 1
    assert consensus["guarantee"]["is_vacuous"] is False


def test_the_demo_ends_with_a_promise_in_force_and_a_recomputation_that_agrees(report):
    assert report["promise"]["name"] == "exact"
    assert report["recomputation_agrees"] is True
    assert report["num_recomputed"] == report["num_shards"] == 20


def test_the_demo_ends_with_a_certificate_that_verifies(report, tmp_path):
    assert report["certificate_holds"] is True
    assert report["traces_before"] >= 1
    assert report["traces_after"] == 0
    path = tmp_path / "certificate.json"
    path.write_text(json.dumps(report["certificate"]))
    assert run("verify", str(path)).returncode == 0


def test_the_demo_tells_its_story(tmp_path):
    folder = tmp_path / "kept"
    done = run("demo", "--folder", str(folder))
    assert done.returncode == 0
    assert (folder / "state.db").is_file()
    assert run("status", str(folder)).returncode == 0
    assert "verify" in done.stdout
    for words in (
        "Trained",
        "Only shards that held a changed record",
        "What a hostile requester achieves",
        "bit for bit",
        "(a) SISA",
        "(c) consensus",
        "The exact promise is in force",
    ):
        assert words in done.stdout
    beginning = " ".join(done.stdout[: done.stdout.index("Trained")].split())
    assert beginning == " ".join(["What is promised: exact deletion", *EXACT_STATEMENT.in_short])
    ending = done.stdout.index("Was the promise kept?")
    assert done.stdout.index("What a hostile requester achieves") < ending
    assert done.stdout.index("all are the same, bit for bit") > ending
    assert "it holds." in " ".join(done.stdout[ending:].split())
    assert "bug" not in done.stdout


def test_bad_input_is_one_line_and_exit_code_2():
    done = run("demo", "--seed", "many")
    assert done.returncode == 2
    assert "--seed" in done.stderr
    assert done.stderr.count("\n") == 1
    assert run("nonsense").returncode == 2
    assert run("--version").stdout.strip().count(".") == 2


def test_the_demo_is_served_with_keys_and_visitors(tmp_path):
    pytest.importorskip("granian")
    process = subprocess.Popen(
        [sys.executable, "-m", "expunge", "demo", "--serve", "--port", "0", "--folder", str(tmp_path / "digits")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        told = []
        while "Ctrl-C" not in "".join(told):
            told.append(process.stdout.readline())
            assert told[-1], told
        words = " ".join(told).split()
        url = next(each.rstrip(".") for each in words if each.startswith("http"))
        keys = {words[place - 1]: each for place, each in enumerate(words) if each.startswith("expunge_")}
        assert set(keys) == {"predict", "update", "auditor", "operator"}
        asked = urllib.request.Request(f"{url}/v1/overview", headers={"Authorization": f"Bearer {keys['operator']}"})
        for _ in range(120):
            with urllib.request.urlopen(asked, timeout=30) as answer:
                found = json.load(answer)
            if sum(found["traffic"]["rows"]):
                break
            time.sleep(0.5)
        assert sum(found["traffic"]["rows"]) > 0  # the visitors are there
        assert found["recomputation"]["agrees"]
        assert found["requests"]["applied"] >= 2
    finally:
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        complaints = process.communicate(timeout=60)[1]
    assert process.returncode == 0
    assert "Traceback" not in complaints


def test_a_served_demo_has_no_seed():
    refused = run("demo", "--serve", "--seed", "1")
    assert refused.returncode == 2
    assert "without --serve" in refused.stderr
