"""Validation labels are the records' labels, and impossible options are one clear line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from expunge.core.errors import InputError, ParameterError
from expunge.training.learners.jax import JaxLearner, Network, PrivateSGD, Validation, logistic, mlp, same_parameters
from expunge.training.learners.jax.layers import Flatten

CLASSES = np.array([10, 20, 30])


@pytest.mark.parametrize("names", [CLASSES, np.array(["ant", "bee", "cat"])])
def test_validation_labels_are_those_of_the_records(make_shard: Any, names: Any) -> None:
    shard, public = make_shard(1), make_shard(2, 41)
    options: dict[str, Any] = {"steps": 9, "batch_size": 16, "privacy": PrivateSGD(0.5, 8.0)}
    network = logistic(input_shape=(8, 8))
    coded = JaxLearner(network, num_classes=3, validation=Validation(public.X, public.y, every=3), **options)
    named = JaxLearner(network, validation=Validation(public.X, names[public.y], every=3), **options)
    bound = named.for_classes(names)
    assert bound.validation is not None
    assert np.array_equal(bound.validation.class_codes(3), public.y)
    for learner in (bound, bound.for_classes(names)):
        one, two = (way.fit(shard.X, shard.y, shard.seed) for way in (coded, learner))
        assert same_parameters(one.parameters, two.parameters)  # type: ignore[attr-defined]


def test_validation_that_cannot_be_is_refused(make_shard: Any) -> None:
    shard = make_shard(1)
    network = logistic(input_shape=(8, 8))
    with pytest.raises(ParameterError, match="must be classes of the records, got 1"):
        JaxLearner(network, steps=1, validation=Validation(shard.X[:3], np.array([10, 1, 2]))).for_classes(CLASSES)
    with pytest.raises(ParameterError, match="must be codes from 0 to 2"):
        JaxLearner(network, steps=1, num_classes=3, validation=Validation(shard.X[:2], np.array([1, 3]))).fit(
            shard.X, shard.y, 1
        )
    with pytest.raises(InputError, match=r"validation rows of the shape \(7, 8\) do not fit .* \(8, 8\)"):
        JaxLearner(network, steps=1, validation=Validation(shard.X[:, :7], shard.y))
    with pytest.raises(ParameterError, match=r"one label a row, got labels of the shape \(70, 1\)"):
        Validation(shard.X, shard.y[:, None])
    with pytest.raises(ParameterError, match="validation must be a Validation"):
        JaxLearner(network, steps=1, validation=(shard.X, shard.y))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 32.0},
        {"batch_size": True},
        {"batch_size": 2**31},
        {"steps": 1.5},
        {"steps": "3"},
        {"max_device_memory": "1GB"},
        {"models_at_once": 1.0},
        {"num_classes": 2.0},
        {"privacy": 1.0},
        {"privacy": {"clip_norm": 1.0}},
        {"input_scale": "1/255"},
        {"input_shape": (8, 8)},
    ],
)
def test_options_of_a_wrong_type_are_named(options: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match=next(iter(options))):
        JaxLearner(logistic(input_shape=(64,)), **({"steps": 1} | options))
    if "steps" in options:
        with pytest.raises(ParameterError, match="epochs"):
            JaxLearner(logistic(input_shape=(64,)), epochs=options["steps"])


def test_an_input_shape_that_agrees_is_taken() -> None:
    assert JaxLearner(logistic(input_shape=(8, 8)), input_shape=(8, 8), steps=1).architecture.input_shape == (8, 8)


@pytest.mark.parametrize("hidden", [32, (32.0,), "32"])
def test_widths_must_be_whole_numbers_in_a_sequence(hidden: Any) -> None:
    with pytest.raises(ParameterError, match=r"hidden|units"):
        mlp(hidden=hidden, input_shape=(4,))


@pytest.mark.parametrize("privacy", [None, PrivateSGD(1.0, 1.0)])
def test_a_network_without_weights_is_refused(privacy: PrivateSGD | None) -> None:
    learner = JaxLearner(Network((Flatten(),), (2,)), steps=1, num_classes=2, privacy=privacy)
    with pytest.raises(ParameterError, match="no weights to train"):
        learner.fit(np.zeros((4, 2)), np.arange(4) % 2, 1)


def test_labels_that_are_no_codes_are_named() -> None:
    learner = JaxLearner(logistic(input_shape=(2,)), steps=1, num_classes=2)
    with pytest.raises(InputError, match="labels must be codes from 0 to 1, got values of type <U1"):
        learner.fit(np.zeros((2, 2)), np.array(["a", "b"]), 1)
