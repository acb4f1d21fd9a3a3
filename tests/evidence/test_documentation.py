"""docs/certificates.md: its program checks certificates, and its tables name every field."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest

from expunge.evidence import (
    EVENTS,
    Checkpoint,
    CountFacts,
    DeploymentFacts,
    Envelope,
    ExactFacts,
    Excerpt,
    GuaranteeFacts,
    PublicationFacts,
    RequestFacts,
    Shown,
    SigningKey,
    verify,
)
from expunge.evidence.certificate import PAYLOAD_TYPE, PREDICATE_TYPE
from expunge.evidence.statements import Statements

PAGE = (Path(__file__).parents[2] / "docs" / "certificates.md").read_text(encoding="utf-8")
PROGRAM = next(block for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "import" in block)


def _check(data: bytes, key: SigningKey, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "certificate.json").write_bytes(data)
    (folder / "check.py").write_text(PROGRAM, encoding="utf-8")
    key.public_key.save(folder / "operator.pem")
    command = [sys.executable, "-IO", "check.py", "certificate.json", "operator.pem"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_the_program_is_short_and_does_without_this_software():
    assert len(PROGRAM.splitlines()) < 50
    imported = set(re.findall(r"^(?:import|from) ([\w., ]+?)(?: import.*)?$", PROGRAM, re.MULTILINE))
    modules = {name.strip().split(".")[0] for line in imported for name in line.split(",")}
    assert modules - {"cryptography"} <= sys.stdlib_module_names


def test_the_program_accepts_sound_certificates(office, tmp_path):
    done = _check(office.issue().to_json(), office.key, tmp_path)
    assert (done.returncode, done.stdout) == (0, "signed, and 5 entries are in the log of 8\n"), done.stderr
    log = office.new_log()
    for _ in range(90):
        log.append("2026-11-16T05:00:00Z", "schema", {"generation": 1})
    for size in (8, 11, 64, 77, 98):
        made = office.issue(log=log.excerpt(*sorted({1, 2, 4, 6, size - 1, size}), size=size))
        done = _check(made.to_json(), office.key, tmp_path)
        assert f"are in the log of {size}\n" in done.stdout, done.stderr


def test_the_program_notices_what_was_changed(office, tmp_path):
    """Another key; another statement; and what an operator signs who makes up an entry or its facts."""
    made = office.issue()
    assert "InvalidSignature" in _check(made.to_json(), SigningKey.generate(), tmp_path).stderr
    envelope = Envelope.parse(made.to_json())
    changed = replace(envelope, payload=made.payload().replace(b'"alpha":1,', b'"alpha":0,'))
    assert "InvalidSignature" in _check(changed.to_json(), office.key, tmp_path).stderr

    def signed(old: bytes, new: bytes) -> str:
        assert old in made.payload()
        forged = Envelope.sign(envelope.payload_type, made.payload().replace(old, new), office.key)
        return _check(forged.to_json(), office.key, tmp_path).stderr

    assert "entry 1 is not in the log" in signed(b'"num_records":5000', b'"num_records":4000')
    asked = b'"num_additions":0,"num_corrections":0,"num_deletions":2,"records"'
    assert "entry 4 says something else" in signed(asked, asked.replace(b"2", b"3"))
    assert "InvalidSignature" in signed(b"\\n8\\n", b"\\n9\\n")


def test_the_program_refuses_a_number_beyond_the_log(office, tmp_path):
    """An operator could put an entry with a made-up number at the end of the tree."""
    made = office.issue()
    statement = json.loads(made.payload())
    log, origin = statement["predicate"]["log"], made.log.checkpoint.origin
    entry = {**log["shown"][0]["entry"], "sequence": 2}
    leaf = hashlib.sha256(b"\0" + json.dumps(entry, sort_keys=True, separators=(",", ":")).encode()).digest()
    log["checkpoint"] = str(Checkpoint(origin, 1, leaf).signed(office.key))
    log["shown"] = [{"entry": entry, "opening": None, "proof": []}]
    forged = Envelope.sign(PAYLOAD_TYPE, json.dumps(statement).encode(), office.key)
    done = _check(forged.to_json(), office.key, tmp_path)
    assert (done.returncode, done.stderr) == (1, "entry 2 is beyond the log\n")


@pytest.mark.parametrize(
    "kind",
    [
        DeploymentFacts,
        RequestFacts,
        CountFacts,
        PublicationFacts,
        ExactFacts,
        GuaranteeFacts,
        Statements,
        Excerpt,
        Shown,
    ],
)
def test_every_field_is_explained(kind):
    missing = [each.name for each in fields(kind) if f"`{each.name}`" not in PAGE]
    assert missing == []


def test_every_event_check_and_type_is_explained(office):
    assert [event for event in EVENTS if f"`{event}`" not in PAGE] == []
    for check in verify(office.issue().to_json()).checks:
        assert f"**{check.name}**" in PAGE
    assert f"`{PREDICATE_TYPE}`" in PAGE
    assert [name for name in ("issued_at", "clamped", "software", "public_key") if f"`{name}`" not in PAGE] == []
