"""`expunge verify` as a user runs it."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from expunge.cli import app
from expunge.evidence import (
    CountFacts,
    DeploymentFacts,
    ExactFacts,
    Excerpt,
    GuaranteeFacts,
    PublicationFacts,
    SigningKey,
    append,
    genesis,
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


def _certificate(key: SigningKey, *, name: str, alpha: float = 1.0) -> bytes:
    start = genesis("d1")
    line = append(start, at="2026-11-16T02:00:00Z", event="created", facts={"name": name})
    return issue(
        key=key,
        deployment=DeploymentFacts(
            deployment_id="d1",
            name=name,
            created_at="2026-11-16T02:00:00Z",
            tick_seconds=60,
            promise="consensus",
            sampler_is_independent=True,
        ),
        publication=PublicationFacts(generation=1, round=0, predictions_published=0, predictions_covered=None),
        exact=ExactFacts(learner="LogisticRegression", num_shards=10),
        guarantee=GuaranteeFacts(alpha, 1e-3, 1e-3, theorem="T4"),
        ledger=Excerpt.of(start, [line.entry]),
        issued_at="2026-11-16T02:00:00Z",
        counts=CountFacts(num_records=5, accepted=0, applied=0, pending=0, cancelled=0),
    ).to_json()


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "expunge", "verify", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={"COLUMNS": "200"})


def test_a_sound_certificate_exits_with_0(desk: Desk) -> None:
    done = run(desk.certificate, "--public-key", desk.operator)
    assert (done.returncode, done.stderr) == (0, "")
    assert "The certificate holds, and the key is the one that you gave." in done.stdout
    assert "at most 2.72 times as likely" in done.stdout


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
    assert {check["name"] for check in data["checks"]} >= {"file", "form", "content", "signature", "key", "agreement"}


def test_a_tampered_certificate_exits_with_1_and_names_the_field(desk: Desk, tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    bad.write_bytes(desk.certificate.read_bytes().replace(b'"alpha":1.0', b'"alpha":0.1'))
    done = run(bad, "--public-key", desk.operator)
    assert done.returncode == 1
    assert done.stderr == f"expunge: {bad}: content: guarantee.alpha is not what was signed; it reads 0.1\n"
    assert "The certificate is wrong. Do not rely on it." in done.stdout
    assert "times as likely" not in done.stdout
    data = json.loads(run(bad, "--json").stdout)
    assert data["outcome"] == "wrong"
    assert data["wrong"] == ["content: guarantee.alpha is not what was signed; it reads 0.1"]


def test_another_key_exits_with_1(desk: Desk) -> None:
    done = run(desk.certificate, "--public-key", desk.stranger)
    assert done.returncode == 1
    assert "key: the certificate names the key" in done.stderr
    assert done.stderr.count("\n") == 1


def test_unusable_input_is_one_line_and_exit_code_2(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    (tmp_path / "other.json").write_text("{}")
    (tmp_path / "newer.json").write_bytes(desk.certificate.read_bytes().replace(b'"format":1,', b'"format":99,'))
    for arguments, word in [
        ([tmp_path / "gone"], "there is no file"),
        ([tmp_path], "cannot be read"),
        ([tmp_path / "text"], "not JSON"),
        ([tmp_path / "other.json"], "not a certificate"),
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
    changed = file.read_bytes().replace(b'"name":"[red]', b'"name":"[/bold]\\u001b')
    file.write_bytes(changed)
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
