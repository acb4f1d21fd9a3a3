"""What every mechanism must do."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from inspect import ismodule

import numpy as np
import pytest

import expunge.privacy.mechanisms
from expunge.core.errors import ParameterError
from expunge.core.randomness import Randomness
from expunge.privacy.mechanisms import DECLINED, MECHANISM_NAMES, ConfidentGaussianNoisyMax, Mechanism, mechanism

EXTREME = [
    mechanism(name, epsilon=epsilon)
    for name in ("exponential", "permute-and-flip", "laplace", "gaussian")
    for epsilon in (1e-99, 1e-6, 1e3, 1e99)
] + [mechanism("confident", epsilon=epsilon, threshold=5) for epsilon in (1e-6, 1e3)]


def may_decline(mechanism: Mechanism) -> bool:
    return isinstance(mechanism, ConfidentGaussianNoisyMax)


def allowed_codes(mechanism: Mechanism, num_classes: int) -> set[int]:
    return set(range(num_classes)) | ({DECLINED} if may_decline(mechanism) else set())


def test_the_fixture_covers_every_name(covered_names):
    assert covered_names == set(MECHANISM_NAMES)


def test_all_names_are_exported():
    public = {
        name for name, value in vars(expunge.privacy.mechanisms).items() if name[0] != "_" and not ismodule(value)
    }
    assert set(expunge.privacy.mechanisms.__all__) == public


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8, np.uint64])
@pytest.mark.parametrize("shape", [(1, 1), (1, 2), (257, 10), (3, 1000), (0, 4)])
def test_shape_and_type_of_a_release(every, shape, dtype, rng):
    counts = rng.generator.integers(0, 50, size=shape).astype(dtype)
    answers = every.release(counts, rng)
    assert answers.shape == shape[:1]
    assert answers.dtype == np.int64
    assert set(answers.tolist()) <= allowed_codes(every, shape[1])


@pytest.mark.parametrize("num_classes", [1, 2, 3, 10])
def test_the_law_has_an_entry_for_each_answer(every, num_classes):
    law = every.law(np.arange(num_classes))
    assert law.shape == (num_classes + may_decline(every),)
    assert law.dtype == np.float64
    assert law.min() >= 0
    assert law.sum() == pytest.approx(1, abs=1e-11)


def test_a_single_class_is_certain_unless_declined(every, rng):
    answers = every.release(np.full((50, 1), 3), rng)
    assert set(answers.tolist()) <= allowed_codes(every, 1)
    assert may_decline(every) or every.law(np.array([3])).tolist() == pytest.approx([1.0])


def test_rows_without_votes_are_ties(private):
    answers = private.law(np.zeros(4, dtype=np.int64))[:4]
    np.testing.assert_allclose(answers, answers[0], rtol=1e-12)
    np.testing.assert_allclose(answers / answers.sum(), 0.25, rtol=1e-12)


def test_rows_without_votes_are_answered(every, rng):
    assert set(every.release(np.zeros((100, 3), dtype=np.int64), rng).tolist()) <= allowed_codes(every, 3)


def test_huge_counts(every, rng):
    counts = np.tile([10**7, 10**7 - 500, 0, 3], (20, 1))
    assert every.release(counts, rng).tolist() == [0] * 20
    assert every.law(counts[0])[0] == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("extreme", EXTREME, ids=repr)
def test_extreme_parameters(extreme, rng):
    for row in ([10**7, 0, 5], [2, 1, 0], [0, 0, 0], [2**53, 1, 2**53 - 1]):
        law = extreme.law(np.array(row))
        assert law.sum() == pytest.approx(1, abs=1e-11)
        # Each answer has a probability of 1e-12 or more: a false alarm has probability 2e-10 at most for each row.
        assert all(law[code] > 1e-12 for code in extreme.release(np.tile(row, (50, 1)), rng))


def test_tiny_noise_is_majority_and_huge_noise_is_uniform(rng):
    row = np.array([3, 9, 8, 0])
    for name in ("exponential", "permute-and-flip", "laplace", "gaussian"):
        assert mechanism(name, epsilon=1e3).law(row).tolist() == pytest.approx([0, 1, 0, 0], abs=1e-12)
        assert mechanism(name, epsilon=1e-6).law(row).tolist() == pytest.approx([0.25] * 4, abs=1e-5)


def test_the_same_seed_gives_the_same_answers(private):
    counts = np.random.default_rng(1).integers(0, 6, size=(40_000, 5))
    first, second, other = (private.release(counts, Randomness.from_seed(seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, second)
    assert (first != other).any()


def test_answers_from_the_system_differ(private):
    counts = np.zeros((300, 10), dtype=np.int64) + 5
    source = Randomness.from_system()
    # Two runs agree with probability at most (3/4)^300 < 1e-37.
    assert (private.release(counts, source) != private.release(counts, source)).any()


def test_the_order_of_the_shards_does_not_matter(every):
    generator = np.random.default_rng(7)
    votes = generator.integers(-1, 3, size=(2000, 9))
    shuffled = generator.permuted(votes, axis=1)
    answers = [
        every.release(np.stack([(v == code).sum(axis=1) for code in range(3)], axis=1), Randomness.from_seed(5))
        for v in (votes, shuffled)
    ]
    np.testing.assert_array_equal(*answers)


def test_the_law_follows_a_renaming_of_the_classes(private):
    row, order = np.array([4, 2, 7, 7, 0]), np.array([3, 0, 4, 2, 1])
    np.testing.assert_allclose(private.law(row[order])[:5], private.law(row)[:5][order], rtol=1e-10)


def test_majority_answers_the_lowest_of_the_tied(rng):
    counts = np.array([[0, 0, 0], [1, 3, 3], [2, 1, 2], [0, 0, 1]])
    assert mechanism("majority").release(counts, rng).tolist() == [0, 1, 0, 2]


def test_the_input_is_left_alone(every, rng):
    counts = np.array([[3, 1], [0, 2]])
    counts.flags.writeable = False
    every.release(counts, rng)
    every.law(counts[0])


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        (np.array([1, 2]), "shape"),
        (np.zeros((2, 2, 2), dtype=int), "shape"),
        (np.zeros((3, 0), dtype=int), "shape"),
        (np.array([[1, -1]]), "between 0 and"),
        (np.array([[1, 2**53 + 1]]), "between 0 and"),
        (np.array([[2**64 - 1, 0]], dtype=np.uint64), "between 0 and"),
        (np.array([[0.5, 1.0]]), "integers"),
        (np.array([[True, False]]), "integers"),
    ],
)
def test_wrong_counts_are_refused(every, counts, message, rng):
    with pytest.raises(ParameterError, match=message):
        every.release(counts, rng)
    with pytest.raises(ParameterError, match=message if counts.ndim > 1 and message != "shape" else "shape"):
        every.law(counts[0] if counts.ndim > 1 and message != "shape" else np.zeros((2, 2), dtype=int))


def test_mechanisms_are_immutable_values(every):
    parameters = {field.name: getattr(every, field.name) for field in fields(every)}
    twin = type(every)(**parameters)
    assert every == twin
    assert hash(every) == hash(twin)
    for name in parameters:
        with pytest.raises(FrozenInstanceError):
            setattr(every, name, 3.0)
