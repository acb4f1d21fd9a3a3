"""Batches of trials that fit the device's memory."""

from __future__ import annotations

import pytest

pytest.importorskip("jax")

import jax

from expunge.core.errors import InputError
from expunge_lab import kernels as fused
from expunge_lab.reproduction import EXPERIMENTS
from expunge_lab.reproduction.white_box import WhiteBox, runner
from expunge_lab.reproduction.white_box.runner import device_bytes, trial_bytes, trials_at_once, trials_in_an_array

SHAPES = {"cifar-10": (32, 3), "mnist": (28, 1), "fashion-mnist": (28, 1)}
NETWORKS = {each: fused.Shape(*SHAPES[each.dataset], 10, each.activation) for each in EXPERIMENTS}
EACH = {experiment.name: trial_bytes(experiment, shape) for experiment, shape in NETWORKS.items()}
MOST = {experiment.name: trials_in_an_array(experiment, shape) for experiment, shape in NETWORKS.items()}


def test_the_weights_of_all_checks_are_counted():
    """CIFAR-10's network has 37,274 weights, and more in the kernel's order; 200 checks of 6 models."""
    assert EACH["cifar-10-k6"] > 200 * 6 * 37_274 * 4
    assert max(EACH, key=EACH.__getitem__) == "cifar-10-k6"


def test_a_hundred_trials_of_every_row_fit_a_large_gpu():
    assert all(trials_at_once(100, each, 100 * 2**30, 100) == 100 for each in EACH.values())
    assert trials_at_once(100, EACH["cifar-10-k6"], 16 * 2**30, 100) < 100


def test_no_array_has_places_that_32_bits_cannot_count():
    """200 checks of 6 models with a layer of 40,960 weights, in the kernel's order, on CIFAR-10."""
    assert MOST["cifar-10-k6"] == (2**31 - 1) // (200 * 6 * 40_960) == 43
    assert min(MOST, key=MOST.__getitem__) == "cifar-10-k6"
    assert all(most >= 100 for name, most in MOST.items() if "mnist" in name)


@pytest.mark.parametrize(
    ("memory", "most", "expected"),
    [(None, 12, 12), (None, 5, 4), (130, 12, 6), (130, 3, 3), (60, 12, 4), (40, 12, 3), (12, 12, 1), (0, 12, 1)],
)
def test_parts_are_equal_and_fit(memory, most, expected):
    assert trials_at_once(12, 10, memory, most) == expected


@pytest.fixture
def ran(monkeypatch, make_trials):
    """The numbers of all parts that were run."""
    found = []

    def run(row, engine, pictures, *, seed, numbers, order, has_old_keys):
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
