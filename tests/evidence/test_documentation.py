"""docs/certificates.md: its example checks certificates, and its tables name every field."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from expunge.evidence import (
    CountFacts,
    DeploymentFacts,
    Excerpt,
    GuaranteeFacts,
    PublicationFacts,
    RequestFacts,
    verify,
)
from expunge.evidence.statements import Statements

PAGE = (Path(__file__).parents[2] / "docs" / "certificates.md").read_text(encoding="utf-8")
PROGRAM = next(block for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "import" in block)
COMMAND = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)[0]


def _check(data: bytes, folder: Path) -> tuple[subprocess.CompletedProcess[str], subprocess.CompletedProcess[str]]:
    (folder / "certificate.json").write_bytes(data)
    (folder / "check.py").write_text(PROGRAM, encoding="utf-8")
    first = subprocess.run(
        [sys.executable, "-I", "check.py", "certificate.json"], cwd=folder, capture_output=True, text=True, check=False
    )
    second = subprocess.run(COMMAND.split(), cwd=folder, capture_output=True, text=True, check=False)
    return first, second


@pytest.mark.parametrize("about", ["issue", "issue_for_deployment"])
def test_the_example_accepts_a_sound_certificate(office, about, tmp_path):
    first, second = _check(getattr(office, about)().to_json(), tmp_path)
    assert (first.returncode, first.stdout) == (0, "digests and ledger fit\n"), first.stderr
    assert second.returncode == 0, second.stderr
    assert "Verified Successfully" in second.stdout


def test_the_example_notices_what_was_changed(office, tmp_path):
    data = office.issue().to_json()
    first, _ = _check(data.replace(b'"alpha":1.0', b'"alpha":0.1'), tmp_path)
    assert "guarantee.alpha was changed" in first.stderr
    first, second = _check(data.replace(b'"software":"expunge', b'"software":"Expunge'), tmp_path)
    assert first.returncode == 0
    assert second.returncode != 0


@pytest.mark.parametrize(
    "kind", [DeploymentFacts, RequestFacts, CountFacts, PublicationFacts, GuaranteeFacts, Statements, Excerpt]
)
def test_every_field_is_explained(kind):
    missing = [each.name for each in fields(kind) if f"`{each.name}`" not in PAGE]
    assert missing == []


def test_every_check_is_explained(office):

    for check in verify(office.issue().to_json()).checks:
        assert f"**{check.name}**" in PAGE
