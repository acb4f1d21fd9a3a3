"""The lock of all requirements installs on any day, whatever was released since."""

from __future__ import annotations

import re
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

LOCK = Path(__file__).parents[1] / "requirements" / "all.txt"


def locked():
    """Name to requirement."""
    lines = re.findall(r"^(\S.*==\S+)", LOCK.read_text(encoding="utf-8"), re.MULTILINE)
    return {canonicalize_name(one.name): one for one in map(Requirement, lines)}


@pytest.mark.parametrize("name", sorted(locked()))
def test_extras_that_are_asked_for_are_locked(name):
    """Of `package[extra]` pip takes the newest release unless the lock names the extra, and then wants its hash."""
    wanted = [Requirement(text) for text in distribution(name).requires or ()]
    for one in wanted:
        if one.extras and (one.marker is None or one.marker.evaluate({"extra": ""})):
            assert one.extras <= locked()[canonicalize_name(one.name)].extras, f"{name} needs {one}"
