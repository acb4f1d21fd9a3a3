from __future__ import annotations

import dataclasses
import math

import pytest

from expunge.core.errors import ParameterError
from expunge.privacy.accounting import ApproximateDP, BoundedRange, ConcentratedDP, GaussianDP, NonPrivate, PureDP

IMPOSSIBLE = [
    (PureDP, (-0.1,)),
    (PureDP, (math.inf,)),
    (BoundedRange, (math.nan,)),
    (GaussianDP, (0.0,)),
    (GaussianDP, (math.inf,)),
    (ConcentratedDP, (-1e-9,)),
    (ApproximateDP, (0.1, 1.1)),
    (ApproximateDP, (-0.1, 0.1)),
]


@pytest.mark.parametrize(("kind", "parameters"), IMPOSSIBLE)
def test_impossible_parameters_are_refused(kind, parameters):
    with pytest.raises(
        ParameterError, match=rf"^\w+ of a privacy event must be .*, got {parameters[0]!r}$|^delta .*, got 1.1$"
    ):
        kind(*parameters)


def test_events_are_values():
    assert PureDP(0.1) == PureDP(0.1) != BoundedRange(0.1)
    assert len({PureDP(0.1), PureDP(0.1), NonPrivate(), NonPrivate()}) == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        PureDP(0.1).epsilon = 0.2
