from __future__ import annotations

import numpy as np
import pytest

from expunge.core.errors import InputError
from expunge_lab.reproduction import Experiment, Row, StandIn, load_pictures, quick_rows
from expunge_lab.reproduction.rows import CLIP_NORM
from expunge_lab.reproduction.stand_in import Weights, clipped_sums, scores
from expunge_lab.reproduction.trials import array_names
from expunge_lab.reproduction.verdicts import weigh


@pytest.fixture(scope="module")
def weights():
    rng = np.random.default_rng(0)
    return Weights(*(rng.normal(0, 0.7, shape) for shape in ((2, 3, 4), (2, 4), (2, 4, 10), (2, 10))))


def loss(weights, x, y):
    out = scores(weights, x)[:, 0]
    return np.log(np.exp(out).sum(axis=1)) - out[np.arange(len(y)), y]


def numeric_gradient(weights, model, x, y):
    """All of one model's derivatives for one example, by central differences."""
    found = []
    for place, array in enumerate(weights.arrays):
        own = np.zeros(array[model].size)
        for entry in range(own.size):
            values = []
            for step in (1e-5, -1e-5):
                moved = [part.copy() for part in weights.arrays]
                moved[place][model].reshape(-1)[entry] += step
                values.append(loss(Weights(*moved), x, y)[model])
            own[entry] = (values[0] - values[1]) / 2e-5
        found.append(own)
    return np.concatenate(found)


def test_clipped_sums_are_sums_of_clipped_gradients(weights):
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(2, 3, 3)), rng.integers(10, size=(2, 3))
    sums = clipped_sums(weights, X, y)
    for model in range(2):
        total = 0
        for example in range(3):
            gradient = numeric_gradient(weights, model, X[:, example : example + 1], y[:, example])
            norm = np.linalg.norm(gradient)
            assert norm > CLIP_NORM  # else nothing is tested
            total = total + gradient * min(1, CLIP_NORM / norm)
        found = np.concatenate([part[model].reshape(-1) for part in sums])
        assert found == pytest.approx(total, abs=1e-6)


def test_a_trial_depends_on_its_number_and_not_on_its_company():
    row = Row(Experiment("digits", 2, 60, 8, 20, 4.0, "tanh"), 0.4, None)
    run = StandIn(row, load_pictures(row.experiment))
    together, alone = run([3, 9]), run([9])
    for name in array_names():
        assert np.array_equal(getattr(together, name)[1:], getattr(alone, name)), name
    assert not np.array_equal(together.before[0], together.before[1])


def test_the_attack_shows_and_the_control_arm_is_even():
    row = next(row for row in quick_rows() if row.name == "digits-k2-0")
    trials = StandIn(row, load_pictures(row.experiment))(range(40))
    # The indicator is near 0.9; Bin(40, 0.9) is at most 22 with probability 2e-8.
    assert trials.indicator("after").worse > 22
    # An even coin fails the exact test at this level with probability at most 1e-6.
    assert weigh(trials.indicator("control")).p_value > 1e-6
    assert weigh(trials.indicator("before")).p_value > 1e-6
    assert trials.shard_accuracy.mean() > 0.6
    before, after, control = (trials.accuracy(arm, "models").mean() for arm in ("before", "after", "control"))
    assert before > after + 0.05
    assert abs(after - control) < 0.05


def test_a_fixed_partition_is_the_same_in_all_trials():
    row = Row(Experiment("digits", 2, 60, 8, 20, 4.0, "tanh"), 0.0, None)
    pictures = load_pictures(row.experiment)
    fixed = StandIn(row, pictures, has_fixed_partition=True)
    rngs = [np.random.default_rng(seed) for seed in (1, 2)]
    first, second = (fixed._partition(rng) for rng in rngs)
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    fresh = StandIn(row, pictures)
    first, second = (fresh._partition(rng) for rng in rngs)
    assert not np.array_equal(first[0], second[0])


def test_points_of_a_shard_smaller_than_a_batch_are_repeated_in_it():
    row = Row(Experiment("digits", 2, 4, 8, 20, 4.0, "tanh"), 0.0, None)
    plan = StandIn(row, load_pictures(row.experiment))._plan(np.array([3, 5, 6]), np.random.default_rng(0))
    assert plan.shape == (20, 8)
    for batch in plan:
        assert sorted(np.bincount(batch, minlength=7)[[3, 5, 6]]) == [2, 3, 3]


def test_a_shard_without_points_is_an_error():
    row = Row(Experiment("digits", 2, 4, 8, 20, 4.0, "tanh"), 0.0, None)
    with pytest.raises(InputError, match="nothing is left to train on"):
        StandIn(row, load_pictures(row.experiment))._plan(np.array([], np.int64), np.random.default_rng(0))
