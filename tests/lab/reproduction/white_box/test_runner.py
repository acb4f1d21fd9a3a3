"""Whole trials on the device at hand, rows of an experiment together, and what a machine needs for them."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("jax")

import jax

from expunge_lab.reproduction import Campaign, read_results
from expunge_lab.reproduction.results import Variant
from expunge_lab.reproduction.trials import array_names
from expunge_lab.reproduction.white_box import (
    FusedEngine,
    LayerEngine,
    WhiteBox,
    device_name,
    fused,
    make_engine,
    runner,
)


@pytest.fixture(scope="module")
def both(small_row, small_pictures):
    return WhiteBox()(small_row, small_pictures)([4, 9])


def test_trials_add_up(both, small_row, small_pictures):
    assert both.numbers.tolist() == [4, 9]
    assert (both.num_shards, both.num_held_out) == (2, 24)
    assert (both.num_hits <= both.num_deleted).all()
    assert (both.num_deleted > 0).all()
    assert (both.num_deleted < small_row.experiment.num_points).all()
    for name in set(array_names()) - {"numbers", "num_hits", "num_deleted"}:
        assert (getattr(both, name) <= both.num_held_out).all()


def test_a_trial_alone_is_the_same(both, small_row, small_pictures):
    alone = WhiteBox()(small_row, small_pictures)([9])
    for name in array_names():
        assert np.array_equal(getattr(alone, name)[0], getattr(both, name)[1]), name


def test_rows_of_an_experiment_share_their_engine(small_row, small_pictures, monkeypatch):
    made = []
    monkeypatch.setattr(runner, "make_engine", lambda *arguments: made.append(arguments) or object())
    make = WhiteBox()
    for row in (small_row, replace(small_row, noise_multiplier=0.0)):
        make(row, small_pictures, has_fixed_partition=False)
    assert made == [(small_row.experiment, small_pictures)]
    other = replace(small_row, experiment=replace(small_row.experiment, num_steps=40))
    make(other, small_pictures)
    make(other, replace(small_pictures))
    assert len(made) == 3


def test_compiled_programs_are_kept_only_when_trials_are_about_to_run(tmp_path, small_row, small_pictures, monkeypatch):
    used = []
    monkeypatch.setattr(runner, "use_compilation_cache", used.append)
    make = WhiteBox(cache=tmp_path)
    assert used == []
    make(small_row, small_pictures)
    assert used == [tmp_path]


def test_a_campaign_runs_on_it(tmp_path, small_row, small_pictures, both, monkeypatch):
    monkeypatch.setattr(Campaign, "_load", lambda self, row: small_pictures)
    campaign = Campaign(
        folder=tmp_path, make_runner=WhiteBox(), num_trials=2, batch=2, command="c", device=device_name()
    )
    assert campaign.run([small_row])
    assert read_results(tmp_path, small_row, Variant()).num_trials == 2


def test_the_engine_is_the_one_for_the_device(small_experiment, small_pictures, monkeypatch):
    assert isinstance(make_engine(small_experiment, small_pictures), LayerEngine)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(fused, "check_kernels", lambda shape: None)
    assert isinstance(make_engine(small_experiment, small_pictures), FusedEngine)


BLOCKED = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {missing}:
            raise ImportError(f"no module {{name}}")

sys.meta_path.insert(0, Missing())
"""
OTHER_EXTRAS = {"dp_accounting", "pandas", "pyarrow", "torch", "opacus"}


def on_a_machine_without(missing, code, folder):
    return subprocess.run(
        [sys.executable, "-c", BLOCKED.format(missing=missing) + code],
        cwd=folder,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def command(*words):
    return f"sys.argv = {['expunge', 'reproduce', *words]}\nfrom expunge.cli import main\nmain()"


def test_a_machine_without_privacy_accounting_can_run_the_table(tmp_path):
    words = ("table", "--quick", "--trials", "2", "--batch", "2", "--rows", "digits-k2-0", "--json")
    done = on_a_machine_without(OTHER_EXTRAS, command(*words), tmp_path)
    assert done.returncode == 0, done.stderr
    assert '"complete": true' in done.stdout


def test_and_load_the_engines_from_anywhere(tmp_path):
    code = "from expunge_lab.cli.reproduce.table import _runner\nprint(type(_runner(quick=False)[0]).__module__)"
    done = on_a_machine_without(OTHER_EXTRAS, code, tmp_path)
    assert done.stdout == "expunge_lab.reproduction.white_box.runner\n", done.stderr


@pytest.mark.parametrize("code", [command("--help"), command("table", "--help"), "import expunge_lab.reproduction"])
def test_jax_is_needed_by_trials_alone(tmp_path, code):
    done = on_a_machine_without({"jax", "optax"}, code, tmp_path)
    assert done.returncode == 0, done.stderr


def test_without_jax_one_line_says_how_to_get_it(tmp_path):
    done = on_a_machine_without({"jax"}, command("table", "--rows", "mnist-k2-0"), tmp_path)
    assert done.returncode == 2
    assert "pip install 'expunge[jax]'" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []
