"""PyTorch networks as learners: any `nn.Module`, your training function or the built-in loop, DP-SGD, slices.

Torch (and, for DP-SGD, Opacus) are the extra `expunge[torch]` and are loaded when a learner first needs them.
"""

from expunge.training.learners.pytorch.learner import TorchLearner, TorchSlicedLearner
from expunge.training.learners.pytorch.model import Checkpoint, TorchModel
from expunge.training.learners.pytorch.privacy import DPSGD, DataPrivacy

__all__ = ["DPSGD", "Checkpoint", "DataPrivacy", "TorchLearner", "TorchModel", "TorchSlicedLearner"]
