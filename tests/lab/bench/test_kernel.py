"""The lines of the kernel, in tiny sizes, interpreted; nothing here asserts how long anything took."""

from __future__ import annotations

import math
import os

# Compiling is most of what this test does.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true --xla_cpu_use_fusion_emitters=false",
)

import pytest

pytest.importorskip("jax")

from expunge_lab.bench import Target, kernel


@pytest.fixture(scope="module")
def quick():
    done = []
    return kernel.lines(quick=True, advance=done.append), sum(done)


def test_every_line_has_positive_figures_and_the_bar_is_filled(quick):
    lines, done = quick
    assert done == kernel.num_steps(quick=True)
    assert len(lines) == 5
    for line in lines:
        for spread in (line.ours, line.other, line.ratio):
            assert spread is None or math.isfinite(spread.median)
            assert spread is None or spread.low > 0


def test_checks_are_set_against_their_training(quick):
    checks, trial = quick[0][-2:]
    assert checks.what.startswith("choosing among 1 checks")
    assert checks.target == Target.ratio_at_most(0.25)
    assert trial.other is None


def test_the_targets_of_the_full_run():
    """12 and 5 million example-gradients a second; 96 and 384 models, as in the table."""
    targets = {(kind.name, models, batch): target for kind, models, batch, target in kernel._FULL.fused}
    assert {key: target for key, target in targets.items() if target} == {
        ("MNIST", 384, 64): pytest.approx(1 / 12e6),
        ("CIFAR-10", 384, 64): pytest.approx(1 / 5e6),
    }
    assert set(targets) == {
        ("MNIST", 96, 64),
        ("MNIST", 384, 64),
        ("MNIST", 384, 256),
        ("CIFAR-10", 96, 64),
        ("CIFAR-10", 384, 64),
    }


def test_rows_whose_pictures_are_missing_are_left_out(tmp_path, monkeypatch):
    monkeypatch.setenv("EXPUNGE_DATA", str(tmp_path))
    done = []
    for name, trials in kernel._FULL.trials:
        assert kernel._trial_lines(name, trials, done.append) == []
    assert sum(done) == 2 * kernel._BATCHES
