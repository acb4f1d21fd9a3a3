"""PrivatePredict: how the shards' votes become one released label."""

from expunge.mechanisms._calibration import calibrated_mechanism
from expunge.mechanisms._exponential import ExponentialMechanism
from expunge.mechanisms._gaussian import ConfidentGaussianNoisyMax, GaussianNoisyMax
from expunge.mechanisms._laplace import LaplaceNoisyMax
from expunge.mechanisms._majority import Majority
from expunge.mechanisms._mechanism import DECLINED, Mechanism
from expunge.mechanisms._permute_and_flip import PermuteAndFlip
from expunge.mechanisms._registry import MECHANISM_NAMES, mechanism

__all__ = [
    "DECLINED",
    "MECHANISM_NAMES",
    "ConfidentGaussianNoisyMax",
    "ExponentialMechanism",
    "GaussianNoisyMax",
    "LaplaceNoisyMax",
    "Majority",
    "Mechanism",
    "PermuteAndFlip",
    "calibrated_mechanism",
    "mechanism",
]
