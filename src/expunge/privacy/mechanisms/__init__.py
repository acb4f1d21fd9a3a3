"""Mechanisms that turn the shards' votes on a query into one released label (the paper's PrivatePredict)."""

from expunge.privacy.mechanisms.choice import ExponentialMechanism, PermuteAndFlip
from expunge.privacy.mechanisms.mechanism import DECLINED, Mechanism
from expunge.privacy.mechanisms.noisy_max import ConfidentGaussianNoisyMax, GaussianNoisyMax, LaplaceNoisyMax
from expunge.privacy.mechanisms.registry import MECHANISM_NAMES, Majority, calibrated_mechanism, mechanism

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
