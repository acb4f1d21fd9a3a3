"""The files for containers and systemd: their linters agree, and what they name is there."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"


def lint(*command):
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, cwd=ROOT, timeout=60)
    return done.returncode, done.stdout + done.stderr


def hadolint(path):
    program = Path(sys.executable).parent / "hadolint"
    if not program.exists():
        pytest.skip("hadolint is not installed")
    return lint(program, path)


def test_the_dockerfile_has_no_fault_and_a_fault_is_found(tmp_path):
    assert hadolint(DEPLOY / "Dockerfile") == (0, "")
    wrong = tmp_path / "Dockerfile"
    wrong.write_text("FROM python\nRUN cd /tmp && pip install flask\n")
    code, told = hadolint(wrong)
    assert code == 1
    assert "DL3006" in told


def test_the_compose_file_fits_its_schema_and_a_fault_is_found(tmp_path):
    pytest.importorskip("check_jsonschema")
    check = (sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec")
    assert lint(*check, DEPLOY / "compose.yaml")[0] == 0
    wrong = tmp_path / "compose.yaml"
    wrong.write_text((DEPLOY / "compose.yaml").read_text().replace("read_only: true", "readonly: true"))
    assert lint(*check, wrong)[0] == 1


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_the_unit_has_no_fault_and_little_power(tmp_path):
    unit = tmp_path / "expunge@.service"
    text = (DEPLOY / unit.name).read_text()
    unit.write_text(re.sub(r"/opt/expunge/bin/expunge", sys.executable, text))
    code, told = lint("systemd-analyze", "verify", unit)
    assert (code, [line for line in told.splitlines() if unit.stem.rstrip("@") in line]) == (0, []), told
    exposure = lint("systemd-analyze", "security", "--offline=true", "--threshold=25", unit)
    assert exposure[0] == 0, exposure[1]  # in tenths: 2.5 of 10


def test_what_the_dockerfile_copies_is_there_and_is_not_ignored():
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    for name in " ".join(copied).split():
        assert (ROOT / name).exists(), name
        assert name.split("/")[0] in kept, name
