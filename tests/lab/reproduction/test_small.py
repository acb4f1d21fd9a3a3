"""Theorem 5.1, run time, budget and the label-only figure, at their quick sizes."""

from __future__ import annotations

import numpy as np
import pytest

from expunge_lab.reproduction import draw_budget, draw_figure2, draw_runtime, run_budget, run_label_only, run_runtime
from expunge_lab.reproduction.label_only import choose_event
from expunge_lab.reproduction.theorem_5_1 import _measure, run_theorem


def test_theorem_5_1_as_it_is_proved():
    report = run_theorem(quick=True)
    for row in report.data["rows"]:
        assert row["event_unlearned"] == report.data["trials"]
        assert row["accuracy_unlearned"] == 0
    large = report.data["rows"][-1]
    # A mean of 50 trials of 100 pairs: 2/3 within 6 standard deviations of 0.0067, wrong once in 5e8.
    assert large["accuracy_before"] == pytest.approx(2 / 3, abs=0.04)
    assert large["exact_retrained"] < 1e-6
    assert large["alpha_needed"] > 25


def test_the_exact_probability_is_what_is_measured():
    row = _measure(3, trials=400, seed=1)
    # 400 coins of probability `exact`: six standard deviations are exceeded with probability 2e-9.
    spread = (row["exact_retrained"] * (1 - row["exact_retrained"]) / 400) ** 0.5
    assert row["event_retrained"] / 400 == pytest.approx(row["exact_retrained"], abs=6 * spread)


def test_run_time_stays_below_the_adaptive_bound(tmp_path):
    report = run_runtime(quick=True)
    models, labels = report.data["rows"]
    for row in (models, labels):
        # The bound may be exceeded in one trial of a thousand: two of 40 with probability 8e-4, ten with 1e-21.
        assert sum(row["adaptive"][int(row["bounds"]["adaptive, exact"]) + 1 :]) < 10
    mean = [np.average(range(len(counts)), weights=counts) for counts in (models["adaptive"], models["oblivious"])]
    assert mean[0] > mean[1] + 1  # who sees all models finds records in many shards
    assert [path.name for path in draw_runtime(report, tmp_path)] == ["runtime.png", "runtime.svg"]


def test_budget_knows_the_numbers_of_the_theory(tmp_path):
    report = run_budget(quick=True)
    curves = {curve["theorem"]: curve for case in report.data["cases"] for curve in case["curves"]}
    assert curves["T1 (pure DP)"]["limit"] == 68
    assert curves["T2 (zCDP)"]["limit"] >= 306
    assert {curve["standing"] for curve in curves.values()} == {"certified", "comparison", "illustrative"}
    for curve in curves.values():
        known = [alpha for alpha in curve["table"] if alpha is not None]
        assert known == sorted(known)
    assert curves["T4 (consensus)"]["alphas"][0] < 5
    assert len(draw_budget(report, tmp_path)) == 2


def test_the_label_only_figure(tmp_path):
    report = run_label_only(quick=True)
    rows = report.data["rows"]
    assert [row["deletions"] for row in rows] == [10, 40, 80]
    assert rows[-1]["accuracy_unlearned"] < rows[-1]["accuracy_retrained"]
    assert rows[-1]["p_value"] < 0.05
    paths = draw_figure2(report, tmp_path)
    assert paths[1].read_text().startswith("<?xml")


def test_the_cut_off_separates():
    event = choose_event(np.array([0.1, 0.2, 0.3]), np.array([0.3, 0.4, 0.5]))
    assert event.cut == 0.2
