from __future__ import annotations

import math

import pytest

from expunge.core.errors import ParameterError
from expunge.privacy.mechanisms import MECHANISM_NAMES, ExponentialMechanism, Majority, calibrated_mechanism


@pytest.mark.parametrize("name", [name for name in MECHANISM_NAMES if name != "majority"])
@pytest.mark.parametrize("share", [1.0, 0.8])
def test_just_enough_noise(name, share):
    sizes = {"share": share, "num_shards": 200, "num_classes": 4}
    found = calibrated_mechanism(name, num_shards=200, num_classes=4, share=share, accuracy=0.95)
    assert 0.95 <= found.accuracy(**sizes) < 0.9501


def test_the_closed_form_of_two_classes():
    found = calibrated_mechanism("exponential", num_shards=1000, num_classes=2)
    assert isinstance(found, ExponentialMechanism)
    assert found.epsilon == pytest.approx(2 * math.log(99) / 1000, rel=1e-5)


def test_what_cannot_be_had_is_refused():
    assert calibrated_mechanism("majority", num_shards=5, num_classes=2) == Majority()
    with pytest.raises(ParameterError, match="share"):
        calibrated_mechanism("exponential", num_shards=10, num_classes=2, share=0.4)
    with pytest.raises(ParameterError, match="accuracy"):
        calibrated_mechanism("exponential", num_shards=10, num_classes=2, accuracy=1.0)
    with pytest.raises(ParameterError, match="bogus"):
        calibrated_mechanism("bogus", num_shards=10, num_classes=2)
