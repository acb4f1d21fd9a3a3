"""How much noise a vote can bear: the mechanism that answers a unanimous vote rightly often enough."""

from __future__ import annotations

import math

from expunge.errors import ParameterError
from expunge.mechanisms._gaussian import ConfidentGaussianNoisyMax
from expunge.mechanisms._majority import Majority
from expunge.mechanisms._mechanism import Mechanism
from expunge.mechanisms._registry import MECHANISM_NAMES, mechanism


def calibrated_mechanism(
    name: str,
    *,
    num_shards: int,
    num_classes: int,
    share: float = 1.0,
    accuracy: float = 0.99,
    threshold_share: float = 0.6,
) -> Mechanism:
    """The mechanism of that name with the smallest ε0 whose answer to a vote of this `share` is right that often.

    For the exponential mechanism and a unanimous vote of two classes that is ε0 = 2 ln(accuracy/(1−accuracy)) / k. A
    confident mechanism declines below `threshold_share` of the votes, and a declined answer is not a right one.
    """
    if name not in MECHANISM_NAMES:
        raise ParameterError(f"mechanism must be one of {', '.join(MECHANISM_NAMES)}, got {name!r}")
    if name == Majority.name:
        return Majority()
    if not 0 < accuracy < 1:
        raise ParameterError(f"accuracy must be between 0 and 1, got {accuracy!r}")
    sizes = {"share": share, "num_shards": num_shards, "num_classes": max(2, num_classes)}

    fixed = {"threshold": threshold_share * num_shards} if name == ConfidentGaussianNoisyMax.name else {}

    def enough(log_epsilon: float) -> bool:
        found = mechanism(name, epsilon=math.exp(log_epsilon), **fixed)
        return found.accuracy(**sizes) >= accuracy  # type: ignore[arg-type]

    low, high = math.log(1e-9), math.log(1e4)
    if not enough(high):
        raise ParameterError(f"no noise level answers a vote of share {share!r} rightly with probability {accuracy!r}")
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return mechanism(name, epsilon=math.exp(high), **fixed)
