"""What is left on the disk below the file system once records count as erased: nothing.

One test mounts a file system in a file, and searches every byte of that file. Mounting takes the rights of root. The
other needs a compiler for C only: it keeps the bytes of every file at the moment when it is removed or cut off, which
is what a file system that writes in place leaves on the disk (`processes/graveyard.c`). `test_kills` does the same with
every process that it kills.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from expunge.core.files import Draft

PROCESSES = Path(__file__).parent / "processes"
LIVES = [
    ("plain", None),
    ("objects", None),
    ("plain", "leave_bytes"),
    ("encrypted", "leave_bytes"),
]  # numbers in slabs; texts in heaps
ALONE = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
SIZE = 64 << 20


def live(folder: Path, scenario: str, *, sabotage: str | None = None, **environment: str) -> list[bytes]:
    """Live a life there in a process of its own, and return what has to be gone."""
    command = [sys.executable, str(PROCESSES / "device.py"), str(folder), scenario, "{}"]
    command += [] if sabotage is None else [sabotage]
    done = subprocess.run(
        command, env={**os.environ, **ALONE, **environment}, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return [bytes.fromhex(pattern) for pattern in json.loads(done.stdout)]


@contextmanager
def mounted(image: Path) -> Iterator[Path]:
    """A file system in a file."""
    home = image.with_suffix(".mounted")
    home.mkdir()
    with image.open("wb") as file:
        file.truncate(SIZE)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True, capture_output=True)
    mounting = subprocess.run(["mount", "-o", "loop", str(image), str(home)], check=False, capture_output=True)
    if mounting.returncode:
        pytest.skip(f"a file system cannot be mounted here: {mounting.stderr.decode().strip()}")
    try:
        yield home
    finally:
        subprocess.run(["umount", str(home)], check=True, capture_output=True)


@pytest.mark.parametrize(("scenario", "sabotage"), LIVES)
def test_the_raw_device_holds_nothing_of_who_was_deleted(tmp_path: Path, scenario: str, sabotage: str | None) -> None:
    if os.geteuid() or shutil.which("mkfs.ext4") is None or shutil.which("mount") is None:
        pytest.skip("only root can mount a file system, and mkfs.ext4 has to make one")
    image = tmp_path / "image"
    with mounted(image) as home:
        patterns = live(home / "folder", scenario, sabotage=sabotage)
        with (home / "of somebody else").open("wb") as file:
            file.write(b"what is looked for is found" * 100)
            os.fsync(file.fileno())
        (home / "of somebody else").unlink()
    content = image.read_bytes()
    assert b"what is looked for is found" in content, "the device keeps what is removed"
    found = [pattern for pattern in patterns if pattern in content]
    assert bool(found) == (sabotage is not None and scenario != "encrypted"), (
        f"the device holds {len(found)} of {len(patterns)} patterns"
    )


@pytest.mark.parametrize(("scenario", "sabotage"), LIVES)
def test_no_file_is_removed_or_cut_off_with_bytes_of_anybody(
    quick_folder: Path, graveyard: Any, scenario: str, sabotage: str | None
) -> None:
    if graveyard is None:
        pytest.skip("there is no compiler for C, cc, to build what keeps removed files")
    folder = quick_folder / f"grave-{scenario}-{sabotage}"
    patterns = live(folder, scenario, sabotage=sabotage, **graveyard.environment)
    kept = graveyard.dig()
    paths = {path.parent.name for _, _, path, _ in kept}
    assert {"models", "waiting"} < paths, "nothing was looked at"
    found = [path for _, _, path, content in kept for pattern in patterns if pattern in content]
    assert bool(found) == (sabotage is not None and scenario != "encrypted"), found[:3]


def test_answers_that_are_replaced_or_given_up_are_overwritten(tmp_path: Path) -> None:
    target, other = tmp_path / "answers.csv", tmp_path / "held"
    target.write_bytes(b"somebody's answers")
    with target.open("rb") as held:
        with Draft(target, overwrites=True) as draft:
            draft.finish(b"new answers")
        assert held.read() == bytes(18)
    assert target.read_bytes() == b"new answers"
    os.link(target, other)
    with Draft(target, overwrites=True) as draft:
        draft.finish(b"newer answers")
    assert other.read_bytes() == b"new answers", "it still has a name"
    given_up = Draft(target)
    with os.fdopen(os.dup(given_up._descriptor), "rb") as held:
        with given_up:
            os.write(given_up._descriptor, b"half of the answers")
        held.seek(0)
        assert held.read() == bytes(19)
    assert target.read_bytes() == b"newer answers"
