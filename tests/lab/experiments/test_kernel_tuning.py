"""The script that looks for the fastest kernels, as far as it goes without a GPU."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("jax")

SCRIPT = Path(__file__).parents[3] / "lab" / "experiments" / "kernel_tuning.py"


@pytest.fixture(scope="module")
def tuning():
    spec = importlib.util.spec_from_file_location("kernel_tuning", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_kernels_take_turns(tuning):
    shape, kernels = tuning.SHAPES["mnist"], list(tuning.KERNELS)
    found = tuning.in_turns(shape, kernels)
    assert Counter(found) == Counter(tuning.candidates(shape, kernels))
    assert [one.kernel for one in found[: 2 * len(kernels)]] == 2 * kernels


class Program:
    """Whose compilation fails."""

    def lower(self, *arguments):
        raise RuntimeError(f"no {arguments}")


def test_nothing_is_compiled_when_the_time_is_up(tuning):
    now = time.perf_counter()
    assert tuning.compiled(Program(), (1, 2), until=now - 1) == tuning.NO_TIME
    assert tuning.compiled(Program(), (1, 2), until=now + 600) == "RuntimeError: no (1, 2)"


def test_without_a_gpu_it_says_so(tuning, monkeypatch, capsys):
    monkeypatch.setattr(tuning.jax, "default_backend", lambda: "cpu")
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "--seconds", "5"])
    assert tuning.main() == 2
    assert capsys.readouterr().err == "there is no GPU here that JAX can use; try --translate\n"
