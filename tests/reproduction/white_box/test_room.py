"""Batches of trials that fit the device's memory."""

from __future__ import annotations

import pytest

pytest.importorskip("jax")

import jax

from expunge.errors import InputError
from expunge.learners.jax import _fused as fused
from expunge.reproduction import EXPERIMENTS
from expunge.reproduction.white_box import WhiteBox, runner
from expunge.reproduction.white_box.room import device_bytes, trial_bytes, trials_at_once

SHAPES = {"cifar-10": (32, 3), "mnist": (28, 1), "fashion-mnist": (28, 1)}
EACH = {
    experiment.name: trial_bytes(experiment, fused.Shape(*SHAPES[experiment.dataset], 10, experiment.activation))
    for experiment in EXPERIMENTS
}


def test_the_weights_of_all_checks_are_counted():
    """CIFAR-10's network has 37,274 weights, and more in the kernel's order; 200 checks of 6 models."""
    assert EACH["cifar-10-k6"] > 200 * 6 * 37_274 * 4
    assert max(EACH, key=EACH.__getitem__) == "cifar-10-k6"


def test_a_hundred_trials_of_every_row_fit_a_large_gpu():
    assert all(trials_at_once(100, each, 100 * 2**30) == 100 for each in EACH.values())
    assert trials_at_once(100, EACH["cifar-10-k6"], 16 * 2**30) < 100


@pytest.mark.parametrize(("memory", "expected"), [(None, 12), (130, 6), (60, 4), (40, 3), (12, 1), (0, 1)])
def test_parts_are_equal_and_fit(memory, expected):
    assert trials_at_once(12, 10, memory) == expected


@pytest.fixture
def ran(monkeypatch, make_trials):
    """The numbers of all parts that were run."""
    found = []

    def run(row, engine, pictures, *, seed, numbers, has_fixed_partition):
        found.append(list(numbers))
        return make_trials(numbers, seed=numbers[0])

    monkeypatch.setattr(runner, "run_trials", run)
    return found


def test_a_batch_too_large_is_run_in_parts(small_row, small_pictures, ran):
    each = trial_bytes(small_row.experiment, fused.Shape(28, 1, 10, "tanh"))
    trials = WhiteBox(memory=3 * each)(small_row, small_pictures)([7, 3, 4, 5])
    assert ran == [[7, 3], [4, 5]]
    assert trials.numbers.tolist() == [3, 4, 5, 7]


def test_a_device_that_does_not_say_gets_all_at_once(small_row, small_pictures, ran):
    if jax.default_backend() == "cpu":
        assert device_bytes() is None
        WhiteBox()(small_row, small_pictures)(range(100))
        assert ran == [list(range(100))]


@pytest.mark.parametrize(
    ("said", "kind", "words"),
    [
        ("RESOURCE_EXHAUSTED: Out of memory", InputError, "no room for 2 trials of mnist-k2-0.4: try a smaller batch"),
        ("INTERNAL: something else", jax.errors.JaxRuntimeError, "INTERNAL"),
    ],
)
def test_a_device_that_is_full_is_said_in_one_line(small_row, small_pictures, monkeypatch, said, kind, words):
    def fail(*arguments, **options):
        raise jax.errors.JaxRuntimeError(said)

    monkeypatch.setattr(runner, "run_trials", fail)
    with pytest.raises(kind, match=words):
        WhiteBox()(small_row, small_pictures)([0, 1])
