"""The commands and the client of docs/service.md run as they stand."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "service.md").read_text(encoding="utf-8")


def blocks(kind):
    return re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_what_the_page_shows_runs(churn, serve):
    with serve(churn) as service:
        told = {"URL": service.url, "KEY": service.keys["operator"]}
        commands = [each for each in blocks("sh") if each.lstrip().startswith(("curl", "printf"))]
        for each in commands:
            done = subprocess.run(["bash", "-c", each], env={**os.environ, **told}, capture_output=True, check=False)
            assert (done.returncode, done.stdout != b"") == (0, True), each
        assert len(commands) >= 4
        (client,) = blocks("python")
        assert len(client.splitlines()) <= 20
        exec(compile(client, "docs/service.md", "exec"), dict(told))
