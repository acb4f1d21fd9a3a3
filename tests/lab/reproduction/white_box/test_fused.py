"""The engine for GPUs, with its kernel interpreted on a CPU."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("jax")

import jax

from expunge.core.errors import ExpungeError
from expunge_lab import kernels as fused_kernels
from expunge_lab.kernels.verification import Differences
from expunge_lab.reproduction.white_box import FusedEngine, choose_checks
from expunge_lab.reproduction.white_box import fused as training
from expunge_lab.reproduction.white_box.fused import check_kernels
from expunge_lab.reproduction.white_box.scoring import gather

KEYS = np.arange(4, dtype=np.uint32).reshape(2, 2)
SIZES = np.array([32, 20], np.int32)


@pytest.fixture(scope="module")
def engine(small_experiment, small_pictures):
    return FusedEngine(small_experiment, small_pictures, part=16, block=16, at_once=5, interpret=True)


@pytest.fixture(scope="module")
def trained(engine, small_experiment):
    """The only check of trainings at several levels of noise, and how many programs were compiled for them."""
    rows = np.arange(small_experiment.num_points, dtype=np.int32).reshape(2, -1)
    before = training._train_all._cache_size()

    def run(noise_multiplier):
        start = engine.initial(KEYS)
        return engine.train_checks(start, rows, SIZES, KEYS, noise_multiplier=noise_multiplier)

    found = {level: run(level) for level in (0.4, 0.8, 0.0, 1e-30)}
    return found, training._train_all._cache_size() - before


@pytest.fixture(scope="module")
def checks(trained):
    """Those trainings as if they were checks of one."""
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *trained[0].values())


def same(first, second, **tolerance):
    return all(np.allclose(a, b, **tolerance) for a, b in zip(first, second, strict=True))


def test_noise_is_an_argument_and_its_absence_a_program(trained):
    """Noise too small for any float32 changes nothing, so that both programs compute the same training."""
    found, compiled = trained
    assert compiled == 2
    assert same(found[0.0], found[1e-30], rtol=1e-4, atol=1e-6)
    assert not same(found[0.0], found[0.4], rtol=0.1)
    assert not same(found[0.8], found[0.4], rtol=0.1)


def test_a_program_is_not_made_for_a_learning_rate(small_experiment, engine):
    other = replace(small_experiment, learning_rate=0.5)
    assert training.Plan.of(other, engine._shape, interpret=True) == engine._plan


def test_checks_are_counted_as_by_the_scores(engine, checks, small_pictures):
    number, models = checks.b1.shape[:2]
    examiner = engine.examiner(checks)
    wrong = np.stack(
        [
            np.asarray(
                engine._scores(
                    engine._validation_table,
                    np.pad(np.tile(np.arange(40, dtype=np.int32), (models, 1)), ((0, 0), (0, 8))),
                    gather(checks, np.full(models, check), np.arange(models)),
                )
            )[:, :40].argmax(axis=2)
            != small_pictures.y_validation
            for check in range(number)
        ]
    )
    studied = examiner.study(np.arange(number))
    assert studied.tolist() == wrong.sum(axis=2).tolist()
    check, model, block = (axis.ravel() for axis in np.indices((number, models, 3)))
    counted = examiner.count(check, model, block).reshape(number, models, 3)
    assert counted.sum(axis=2).tolist() == wrong.sum(axis=2).tolist()
    order = np.asarray(examiner._order)[:, :40]
    assert np.array_equal(np.sort(order), np.tile(np.arange(40), (models, 1)))
    votes = np.take_along_axis(wrong.sum(axis=0), order, axis=1)
    assert (np.diff(votes) <= 1).all()  # what the models say together weighs at most as much as one check more
    totals = wrong.sum(axis=2)
    expected = [max(range(number), key=lambda c: (-totals[c, m], c)) for m in range(models)]
    assert choose_checks(examiner).tolist() == expected
    best = engine.select(checks)
    assert same(best, gather(checks, np.array(expected), np.arange(models)), rtol=0, atol=0)


def test_chances_are_log_probabilities_of_the_true_labels(engine, checks, small_pictures):
    rows = np.array([[3, 1, 4], [1, 5, 9]], np.int32)
    last = jax.tree.map(lambda leaf: leaf[-1], checks)
    found = engine.chances(last, rows)
    padded = np.pad(rows, ((0, 0), (0, 13)))
    scores = np.asarray(engine._scores(engine._train_table, padded, last))[:, :3].astype(np.float64)
    chances = np.exp(scores) / np.exp(scores).sum(axis=2, keepdims=True)
    right = np.take_along_axis(chances, small_pictures.y[rows][..., np.newaxis], axis=2)[..., 0]
    assert np.allclose(found, np.log(right), atol=1e-5)
    assert engine.test_scores(last).shape == (2, 24, 10)


def test_a_small_shard_does_not_stop_the_others_and_an_empty_one_learns_nothing(engine):
    """A requester may leave such shards behind."""
    start, sizes = engine.initial(KEYS), np.array([15, 0], np.int32)
    rows = np.tile(np.arange(32, dtype=np.int32), (2, 1))
    found = engine.train(start, rows, sizes, KEYS, noise_multiplier=0.0)
    for began, ended in zip(start, found, strict=True):
        assert np.array_equal(began[1], ended[1])
    assert not np.array_equal(start.w1[0], found.w1[0])


def test_kernels_that_compute_something_else_are_not_used(monkeypatch, small_experiment, small_pictures):
    check_kernels.cache_clear()
    monkeypatch.setattr(fused_kernels, "differences", lambda shape: Differences(sums=0.04, scores=0.3))
    with pytest.raises(ExpungeError, match=r"the kernels are wrong .*: sums are 0.04 and scores 0.3 from those"):
        FusedEngine(small_experiment, small_pictures)
    asked = []
    monkeypatch.setattr(fused_kernels, "differences", lambda shape: asked.append(shape) or Differences(0.04, 0.004))
    for _ in range(2):
        FusedEngine(small_experiment, small_pictures)
    assert len(asked) == 1
    check_kernels.cache_clear()
