"""Every experiment of the paper has a script, which is the command under another name."""

from __future__ import annotations

import json
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


@pytest.fixture
def partitions():
    return runpy.run_path(str(EXPERIMENTS / "table" / "partitions.py"))


def test_what_partitions_explain_is_told_from_nothing(partitions):
    """10 groups of 30 with a quarter of the variance between them, and without; seeds are fixed."""
    rng = np.random.default_rng(0)
    own = rng.normal(size=(10, 30))
    share, p_value = partitions["explained"](list(own + rng.normal(size=(10, 1)) / 3**0.5))
    assert 0.1 < share < 0.45
    assert p_value < 1e-4
    share, p_value = partitions["explained"](list(own))
    assert share < 0.05
    assert p_value > 0.01


def test_every_row_is_compared_with_what_partitions_can_do(partitions, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["partitions.py"])
    partitions["main"]()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + 24
    # The paper's 0.638 and our 131 of 300 are 0.353 and -0.160 in probits.
    assert "| MNIST, k = 6, noise 0.8 | 0.638 | 0.437 | +0.51 ± 0.21 | 0.43 (0.27 to 0.54) |" in lines


def test_trials_of_partitions(partitions, monkeypatch):
    """Which partition every trial is given, and whose lead is counted."""
    asked = []

    def run(row, engine, pictures, *, seed, numbers, has_fixed_partition):
        asked.append((seed, list(numbers), has_fixed_partition))
        after = np.array([[10, 20 + number + 9 * seed] for number in numbers])
        return type("", (), {"before": after[:, ::-1], "after": after, "accuracy": lambda *_: np.array([0.5])})

    monkeypatch.setattr("expunge.reproduction.white_box.run_trials", run)
    monkeypatch.setattr("expunge.reproduction.white_box.runner.make_engine", lambda *_: None)
    new_lines = partitions["new_lines"]
    monkeypatch.setitem(new_lines.__globals__, "load_pictures", lambda _: None)
    row = next(row for row in partitions["table_rows"]() if row.name == "mnist-k2-1.3")
    found = [json.loads(line) for line in new_lines(row, 3, 4)]
    assert asked == [(seed, [0, 1, 2, 3], True) for seed in range(3)]
    assert [(line["after"], line["before"], line["lead_after"]) for line in found[:3]] == [
        (1.0, 0.0, 11.5 + 9 * seed) for seed in range(3)
    ]
    assert [line["arm"] for line in found[3:]] == ["before", "after"]
    assert found[4]["share"] > 0.9 > 0.01 > found[4]["p"]
