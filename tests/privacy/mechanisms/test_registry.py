"""Mechanisms by name."""

from __future__ import annotations

import math
import re

import pytest

from expunge.core.errors import ParameterError
from expunge.privacy.mechanisms import (
    MECHANISM_NAMES,
    ConfidentGaussianNoisyMax,
    ExponentialMechanism,
    GaussianNoisyMax,
    LaplaceNoisyMax,
    Majority,
    PermuteAndFlip,
    mechanism,
)


@pytest.mark.parametrize(
    ("name", "parameters", "expected"),
    [
        ("exponential", {"epsilon": 0.5}, ExponentialMechanism(epsilon=0.5)),
        ("permute-and-flip", {"epsilon": 0.5}, PermuteAndFlip(epsilon=0.5)),
        ("laplace", {"epsilon": 0.5}, LaplaceNoisyMax(epsilon=0.5)),
        ("gaussian", {"sigma": 4.0}, GaussianNoisyMax(sigma=4.0)),
        ("gaussian", {"epsilon": 0.5}, GaussianNoisyMax.from_epsilon(epsilon=0.5)),
        (
            "confident",
            {"threshold_sigma": 9.0, "sigma": 4.0, "threshold": 60},
            ConfidentGaussianNoisyMax(sigma=4.0, threshold=60, threshold_sigma=9.0),
        ),
        (
            "confident",
            {"epsilon": 0.5, "threshold": 60},
            ConfidentGaussianNoisyMax.from_epsilon(epsilon=0.5, threshold=60),
        ),
        ("majority", {}, Majority()),
    ],
)
def test_names_build_their_mechanism(name, parameters, expected):
    built = mechanism(name, **parameters)
    assert built == expected
    assert built.name == name


def test_the_names_are_listed():
    assert MECHANISM_NAMES == ("exponential", "permute-and-flip", "laplace", "gaussian", "confident", "majority")


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("softmax", {}, "must be one of exponential, .*, got 'softmax'"),
        ("exponential", {}, r"takes the parameters \(epsilon\), got \(\)"),
        ("exponential", {"sigma": 1.0}, r"takes the parameters \(epsilon\), got \(sigma\)"),
        ("gaussian", {"sigma": 1.0, "epsilon": 1.0}, r"takes the parameters \(sigma\) or \(epsilon\)"),
        ("confident", {"sigma": 1.0}, r"\(sigma, threshold, threshold_sigma\) or \(epsilon, threshold\)"),
        ("majority", {"epsilon": 1.0}, r"takes the parameters \(\), got \(epsilon\)"),
    ],
)
def test_unknown_names_and_parameters_are_refused(name, parameters, message):
    with pytest.raises(ParameterError, match=message):
        mechanism(name, **parameters)


@pytest.mark.parametrize("value", [0, -1.0, math.nan, math.inf, 1e-101, 1e101, "1", None, True])
@pytest.mark.parametrize(
    ("name", "parameter"), [("exponential", "epsilon"), ("gaussian", "sigma"), ("gaussian", "epsilon")]
)
def test_impossible_values_are_refused(name, parameter, value):
    with pytest.raises(
        ParameterError, match=f"{parameter} must be a number >= 1e-100 and <= 1e\\+100, got {re.escape(repr(value))}"
    ):
        mechanism(name, **{parameter: value})


@pytest.mark.parametrize("value", [math.nan, math.inf, "50", None])
def test_impossible_thresholds_are_refused(value):
    with pytest.raises(ParameterError, match=r"threshold must be a number >= -1e\+100 and <= 1e\+100, got "):
        mechanism("confident", sigma=1.0, threshold=value, threshold_sigma=1.0)
