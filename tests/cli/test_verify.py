"""`expunge verify` as a user runs it."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from expunge.cli import app
from expunge.evidence import (
    Checkpoint,
    CountFacts,
    DeploymentFacts,
    Entry,
    Envelope,
    ExactFacts,
    Excerpt,
    GuaranteeFacts,
    PublicationFacts,
    SigningKey,
    Tree,
    issue,
)

HEAVY = ["numpy", "scipy", "sklearn", "pandas", "joblib", "jax", "torch", "pyarrow", "matplotlib", "dp_accounting"]
ALLOWED = {"expunge", "expunge.core", "expunge.evidence", "expunge.cli"}


@dataclass(frozen=True)
class Desk:
    """A certificate and the keys around it, as files."""

    certificate: Path
    operator: Path
    stranger: Path


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    folder, key = tmp_path_factory.mktemp("desk"), SigningKey.generate()
    found = Desk(folder / "certificate.json", folder / "operator.pem", folder / "stranger.pem")
    key.public_key.save(found.operator)
    SigningKey.generate().public_key.save(found.stranger)
    found.certificate.write_bytes(_certificate(key, name="churn"))
    return found


def _certificate(
    key: SigningKey,
    *,
    name: str,
    alpha: float = 1.0,
    deployment: str = "d1",
    size: int = 1,
    fork: int = 100,
    since: tuple[int, ...] = (),
) -> bytes:
    """A certificate when the log had this size; from entry `fork` on it is another log."""
    entries = [Entry(1, "2026-11-16T02:00:00Z", "created", {"name": name})]
    entries += [
        Entry(place, "2026-11-16T02:00:00Z", "schema", {"num_classes": 2 + (place >= fork)})
        for place in range(2, size + 1)
    ]
    tree = Tree(each.leaf for each in entries)
    notes = [Checkpoint(f"expunge/{deployment}", each, tree.root(each)).signed(key) for each in (size, *since)]
    return issue(
        key=key,
        deployment=DeploymentFacts(
            deployment_id=deployment,
            name=name,
            created_at="2026-11-16T02:00:00Z",
            tick_seconds=60,
            promise="consensus",
            sampler_is_independent=True,
        ),
        publication=PublicationFacts(
            generation=1, round=0, predictions_reserved=0, predictions_released=0, predictions_covered=None
        ),
        exact=ExactFacts(learner="LogisticRegression", num_shards=10),
        guarantee=GuaranteeFacts(alpha, 1e-3, 1e-3, theorem="T4"),
        log=Excerpt.of(tree, notes[0], entries[:1], earlier=notes[1:]),
        issued_at="2026-11-16T02:00:00Z",
        counts=CountFacts(num_records=5, accepted=0, applied=0, pending=0, cancelled=0),
    ).to_json()


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "expunge", "verify", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | {"COLUMNS": "200"})


def test_a_sound_certificate_exits_with_0(desk: Desk) -> None:
    done = run(desk.certificate, "--public-key", desk.operator)
    assert (done.returncode, done.stderr) == (0, "")
    assert "The certificate holds, and the key is the one that you gave." in done.stdout
    assert "at most 2.72 times as likely" in done.stdout


def test_no_sentence_is_cut_off_in_a_pipe_or_on_a_narrow_screen(desk: Desk) -> None:
    said = json.loads(run(desk.certificate, "--json").stdout)["statements"]
    sentences = [*said["happened"], *said["exact"], *said["alpha_beta_gamma"]]
    assert max(map(len, sentences)) > 200
    command = [sys.executable, "-m", "expunge", "verify", str(desk.certificate)]
    for width in ({}, {"COLUMNS": "60"}):
        around = {name: value for name, value in os.environ.items() if name != "COLUMNS"} | width
        words = subprocess.run(command, capture_output=True, text=True, check=True, env=around).stdout
        for sentence in sentences:
            assert sentence in " ".join(words.split())


def test_without_a_key_it_says_that_the_key_was_not_checked(desk: Desk) -> None:
    done = run(desk.certificate)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Whose key signed it was not checked" in done.stdout
    data = json.loads(run(desk.certificate, "--json").stdout)
    assert (data["outcome"], data["key"], data["wrong"]) == ("holds", "not checked", [])
    assert {check["name"]: check["passed"] for check in data["checks"]}["key"] is None


def test_json_has_everything_that_a_program_needs(desk: Desk) -> None:
    data = json.loads(run(desk.certificate, "--public-key", desk.operator, "--json").stdout)
    assert data["key"] == "matches"
    assert data["kind"] == "deployment"
    assert data["guarantee"]["alpha"] == 1.0
    assert data["deployment"]["name"] == "churn"
    assert data["request"] is None
    assert (data["exact"]["learner"], data["exact"]["num_shards"]) == ("LogisticRegression", 10)
    assert data["counts"]["num_records"] == 5
    assert data["is_vacuous"] is False
    assert all(check["passed"] for check in data["checks"])
    assert {check["name"] for check in data["checks"]} >= {"file", "form", "signature", "key", "log", "agreement"}


def _tampered(data: bytes, old: bytes, new: bytes) -> bytes:
    envelope = Envelope.parse(data)
    assert old in envelope.payload
    return replace(envelope, payload=envelope.payload.replace(old, new)).to_json()


def test_a_tampered_certificate_exits_with_1_and_names_what_does_not_fit(desk: Desk, tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    bad.write_bytes(_tampered(desk.certificate.read_bytes(), b'"alpha":1,', b'"alpha":0.1,'))
    done = run(bad, "--public-key", desk.operator)
    assert done.returncode == 1
    wrong = [
        "signature: it does not fit: the signature, or something in the certificate, was changed afterwards",
        "sentences: statements.alpha_beta_gamma is not what the facts of this certificate bear out",
        "sentences: statements.alpha_beta_gamma_limits is not what the facts of this certificate bear out",
    ]
    assert done.stderr.splitlines() == [f"expunge: {bad}: {line}" for line in wrong]
    assert "The certificate is wrong. Do not rely on it." in done.stdout
    assert "times as likely" not in done.stdout
    data = json.loads(run(bad, "--json").stdout)
    assert data["outcome"] == "wrong"
    assert data["wrong"] == wrong


def test_a_page_is_made_from_the_certificate_alone(desk: Desk, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert run(desk.certificate, "--public-key", desk.operator, "--html", page).returncode == 0
    assert "every check passed; the signer&#x27;s key: matches" in page.read_text()
    bad = tmp_path / "bad.json"
    bad.write_bytes(_tampered(desk.certificate.read_bytes(), b'"alpha":1,', b'"alpha":0.1,'))
    assert run(bad, "--html", page).returncode == 1
    assert "This certificate is wrong. Do not rely on it." in page.read_text()
    for options in ([desk.certificate, bad, "--html", page], [desk.certificate, "--html", "-"]):
        done = run(*options)
        assert (done.returncode, "takes one certificate" in done.stderr) == (2, True)


def test_another_key_exits_with_1(desk: Desk) -> None:
    done = run(desk.certificate, "--public-key", desk.stranger)
    assert done.returncode == 1
    assert "key: the certificate names the key" in done.stderr
    assert done.stderr.count("\n") == 1


def test_unusable_input_is_one_line_and_exit_code_2(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    (tmp_path / "other.json").write_text("{}")
    newer = _tampered(desk.certificate.read_bytes(), b"urn:expunge:certificate:v1", b"urn:expunge:certificate:v99")
    (tmp_path / "newer.json").write_bytes(newer)
    for arguments, word in [
        ([tmp_path / "gone"], "there is no file"),
        ([tmp_path], "cannot be read"),
        ([tmp_path / "text"], "not JSON"),
        ([tmp_path / "other.json"], "not a DSSE envelope"),
        ([tmp_path / "newer.json"], "format 99, this software reads up to 1"),
        ([desk.certificate, "--public-key", tmp_path / "gone"], "there is no public key"),
        ([desk.certificate, "--public-key", desk.certificate], "not a public key"),
        ([], "FILE"),
    ]:
        done = run(*arguments)
        assert done.returncode == 2, arguments
        assert word.lower() in done.stderr.lower()
        assert done.stderr.count("\n") == 1
        assert done.stdout == ""


def test_text_from_strangers_stays_text(tmp_path: Path) -> None:
    file = tmp_path / "hostile.json"
    file.write_bytes(_certificate(SigningKey.generate(), name="[red]x[/red]\x1b[2J\nok"))
    done = run(file)
    assert done.returncode == 0
    assert "[red]x[/red]�[2J�ok" in done.stdout
    assert "\x1b" not in done.stdout
    file.write_bytes(_tampered(file.read_bytes(), b'"name":"[red]', b'"name":"[/bold]\\u001b'))
    done = run(file)
    assert done.returncode == 1
    assert "\x1b" not in done.stdout + done.stderr


def test_a_promise_that_is_not_claimed_is_said(tmp_path: Path) -> None:
    file = tmp_path / "vacuous.json"
    file.write_bytes(_certificate(SigningKey.generate(), name="churn", alpha=math.inf))
    done = run(file)
    assert done.returncode == 0
    assert "(α,β,γ): not claimed, because alpha is infinite" in done.stdout
    data = json.loads(run(file, "--json").stdout)
    assert data["is_vacuous"] is True
    assert data["guarantee"]["alpha"] == "infinity"


@pytest.mark.parametrize(
    ("others", "code", "words"),
    [
        ([{"size": 5}], 0, "They belong to one history: the log was only continued."),
        ([{"size": 9, "since": (5,)}], 0, "begins with the 5 of the other: by a consistency proof"),
        ([{"size": 9}], 2, "these files cannot decide whether they belong to one history"),
        ([{"size": 9}, {"size": 11, "since": (5, 9)}], 0, "They belong to one history"),
        ([{"size": 5, "fork": 3}], 1, "They belong to two histories."),
        ([{"size": 9, "since": (5,), "fork": 3}], 1, "They belong to two histories."),
        ([{"size": 9, "since": (5,), "fork": 6}], 0, "They belong to one history"),
        ([{"size": 9, "deployment": "d2"}], 2, "They cannot be compared."),
    ],
)
def test_several_certificates_are_of_one_history_or_not(
    tmp_path: Path, others: list[dict[str, Any]], code: int, words: str
) -> None:
    key = SigningKey.generate()
    files = [tmp_path / f"{place}.json" for place in range(len(others) + 1)]
    for file, options in zip(files, [{"size": 5}, *others], strict=True):
        file.write_bytes(_certificate(key, name="churn", **options))
    done = run(*files)
    assert done.returncode == code, done.stdout + done.stderr
    assert words in " ".join((done.stdout + done.stderr).split())
    assert done.stderr.count("\n") == (code > 0)
    if code == 2 and len(others) == 1 and "deployment" not in others[0]:
        assert f"expunge certificate FOLDER --since {files[0]} --since {files[1]} --out newer.json" in done.stderr
    data = json.loads(run(*files, "--json").stdout)
    assert len(data["certificates"]) == len(files)
    assert data["together"] in ("one history", "two histories", "not decided", "different deployments")


def test_a_certificate_of_another_key_is_not_compared(desk: Desk, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_bytes(_certificate(SigningKey.generate(), name="churn"))
    done = run(desk.certificate, other)
    assert done.returncode == 1
    assert "One of them was not signed by the operator of this deployment." in done.stderr
    done = run(desk.certificate, other, "--public-key", desk.operator)
    assert done.returncode == 1
    assert done.stderr.startswith(f"expunge: {other}: key: the certificate names the key")
    assert "Together" not in done.stdout


def test_no_training_code_is_loaded(desk: Desk) -> None:
    program = (
        "import sys\nfrom expunge.cli import main\n"
        f"sys.argv = ['expunge', 'verify', {str(desk.certificate)!r}]\n"
        "try:\n    main()\nexcept SystemExit as stopped:\n    code = stopped.code\n"
        "print('LOADED', code, *sorted(sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    code, *modules = done.stdout.rsplit("LOADED ", 1)[1].split()
    assert code == "0"
    loaded = {".".join(name.split(".")[:2]) for name in modules if name.split(".")[0] == "expunge"}
    assert "expunge.evidence" in loaded
    assert loaded <= ALLOWED
    assert not {name.split(".")[0] for name in modules} & set(HEAVY)


def test_certificates_alone_import_only_what_they_may() -> None:
    program = "import sys, expunge.evidence; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    packages = {name.split(".")[0] for name in done.stdout.split()}
    assert not packages & {*HEAVY, "rich", "typer"}
    ours = {".".join(name.split(".")[:2]) for name in done.stdout.split() if name.split(".")[0] == "expunge"}
    assert ours == ALLOWED - {"expunge.cli"}


def test_help_gives_an_example() -> None:
    found = CliRunner().invoke(app, ["verify", "--help"], env={"COLUMNS": "200"})
    assert found.exit_code == 0
    assert "Example: expunge verify certificate.json" in " ".join(found.stdout.split())
