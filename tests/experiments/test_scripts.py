"""Every experiment of the paper has a script, which is the command under another name."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
COMMANDS = {
    "table": "table",
    "figure1": "figure1",
    "theorem_5_1": "theorem-5.1",
    "runtime": "runtime",
    "budget": "budget",
}


def run(monkeypatch, folder, *options):
    path = EXPERIMENTS / folder / "run.py"
    monkeypatch.setattr(sys, "argv", [str(path), *map(str, options)])
    runpy.run_path(str(path), run_name="__main__")


def test_there_is_no_other():
    others = {"label_only", "kernel_tuning", "exact_update"}  # a page of its own, and no experiments of the paper
    assert {path.parent.name for path in EXPERIMENTS.glob("*/run.py")} == {*COMMANDS, *others}


@pytest.mark.parametrize(("folder", "command"), COMMANDS.items())
def test_a_script_is_the_command(monkeypatch, capsys, folder, command):
    with pytest.raises(SystemExit) as stopped:
        run(monkeypatch, folder, "--help")
    assert stopped.value.code in (0, None)
    said = capsys.readouterr().out
    assert f"reproduce {command} " in said
    assert "--quick" in said


def test_the_label_only_page(monkeypatch, capsys, tmp_path):
    run(monkeypatch, "label_only", "--quick", "--jobs", 1, "--out", tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"label_only.md", "label_only.png", "label_only.svg"}
    page = (tmp_path / "label_only.md").read_text(encoding="utf-8")
    assert "| deletions | accuracy unlearned |" in page
    assert "Made by `python experiments/label_only/run.py --quick --seed 0`" in page
    assert page.splitlines()[4] in capsys.readouterr().out


def test_ties_are_deleted_with_the_first_models():
    """Scores so high that a difference loses what tells two models apart; the third knows the least."""
    script = runpy.run_path(str(EXPERIMENTS / "table" / "ties.py"))
    scores = np.zeros((4, 2, 10), np.float32)
    scores[:, :, 3] = np.array([16.5, 18, 8, 17])[:, None]
    found = script["chances"](scores, np.array([3, 3]))
    assert [int(way.argmax(axis=0)[0]) for way in found.values()] == [1, 0, 1]
    home = np.array([1, 1])
    assert script["line"]("way", found["float64"], home) == "| way | 0.000 | 1.000 | 1.0000 |"
    assert script["line"]("way", found["score - logsumexp, float32"], home) == "| way | 1.000 | 1.000 | 0.0000 |"
