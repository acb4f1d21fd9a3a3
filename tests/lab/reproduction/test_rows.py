from __future__ import annotations

import numpy as np
import pytest
from scipy.special import betaincinv

from expunge.core.errors import InputError
from expunge_lab.reproduction import EXPERIMENTS, choose_rows, quick_rows, table_rows

# dataset, k, points a shard, batch, iterations, step, activation: the paper's appendix.
SETTINGS = [
    ("cifar-10", 6, 8000, 64, 4000, 1.0, "relu"),
    ("cifar-10", 2, 8000, 64, 4000, 1.0, "relu"),
    ("fashion-mnist", 6, 6000, 256, 1500, 4.0, "tanh"),
    ("fashion-mnist", 2, 6000, 256, 2000, 4.0, "tanh"),
    ("mnist", 6, 6000, 64, 2500, 0.5, "tanh"),
    ("mnist", 2, 6000, 256, 2000, 0.5, "tanh"),
]
MULTIPLIERS = [
    [0, 0.15, 0.22, 0.3],
    [0, 0.2, 0.25, 0.3],
    [0, 0.4, 0.6, 0.75],
    [0, 0.5, 0.7, 1],
    [0, 0.4, 0.8, 1.1],
    [0, 0.8, 1.3, 1.6],
]


def test_the_rows_are_those_of_the_paper_in_its_order():
    rows = table_rows()
    assert [tuple(vars(experiment).values()) for experiment in EXPERIMENTS] == SETTINGS
    expected = [(setting[:2], level) for setting, levels in zip(SETTINGS, MULTIPLIERS, strict=True) for level in levels]
    assert [((row.dataset, row.num_shards), row.noise_multiplier) for row in rows] == expected
    assert len({row.name for row in rows}) == 24


@pytest.fixture(scope="module")
def exact_intervals():
    """Of every count in every number of trials a little above 300, (intervals, 2)."""
    found = []
    for trials in range(300, 321):
        count = np.arange(1, trials)
        low, high = betaincinv(count, trials - count + 1, 0.025), betaincinv(count + 1, trials - count, 0.975)
        found.append(np.stack([low, high], axis=1))
    return np.concatenate(found)


@pytest.mark.parametrize("row", table_rows(), ids=lambda row: row.name)
def test_printed_intervals_are_exact_ones_of_about_300_trials(row, exact_intervals):
    """A slip of the pen in copying an indicator would be no Clopper–Pearson interval of any count."""
    assert (np.abs(exact_intervals - row.paper.indicator).max(axis=1) < 0.00051).any()


@pytest.mark.parametrize("row", table_rows(), ids=lambda row: row.name)
def test_printed_numbers_are_plausible(row):
    paper = row.paper
    assert paper.after.mean < paper.before.mean
    assert paper.shard.mean > 1 / row.num_shards
    assert paper.before.two_deviations < paper.after.two_deviations


def test_more_noise_means_less_of_everything():
    for experiment in EXPERIMENTS:
        rows = [row.paper for row in table_rows() if row.experiment == experiment]
        for column in ("before", "after", "shard"):
            values = [getattr(row, column).mean for row in rows]
            assert values == sorted(values, reverse=True), (experiment.name, column)


def test_a_few_cells_by_hand():
    rows = {row.name: row.paper for row in table_rows()}
    assert rows["cifar-10-k2-0"].after.interval == pytest.approx((0.415, 0.481))
    assert rows["fashion-mnist-k2-0"].indicator == (0.976, 0.999)
    assert (rows["mnist-k6-1.1"].before.mean, rows["mnist-k6-1.1"].shard.mean) == (0.923, 0.176)
    assert rows["mnist-k2-1.6"].shard.two_deviations == 0.006


def test_rows_are_chosen_by_name_experiment_or_dataset():
    rows = table_rows()
    assert choose_rows([], rows) == rows
    assert [row.name for row in choose_rows(["mnist-k2-0.8"], rows)] == ["mnist-k2-0.8"]
    assert {row.experiment.name for row in choose_rows(["mnist"], rows)} == {"mnist-k6", "mnist-k2"}
    assert next(row.name for row in choose_rows(["mnist-k2", "cifar-10-k6-0.3"], rows)) == "cifar-10-k6-0.3"
    with pytest.raises(InputError, match="no row 'mnist-k3'"):
        choose_rows(["mnist-k3"], rows)


def test_the_whole_table_is_the_known_amount_of_work():
    """17.7 G example-gradients in both trainings, and half as much again in the control arm."""
    work = 300 * sum(row.experiment.work for row in table_rows())
    assert work == pytest.approx(1.5 * 17.7e9, rel=0.005)


def test_stand_ins_are_not_compared_with_the_paper():
    assert all(row.paper is None and row.dataset == "digits" for row in quick_rows())
