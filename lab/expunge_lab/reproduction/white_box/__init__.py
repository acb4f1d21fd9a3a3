"""The white-box experiment on a device (Section 5.2): does retraining only the touched shards hide adaptive deletions?

`WhiteBox` is what a `Campaign` runs trials with; needs the extra: pip install 'expunge[jax]'. On a GPU all models of a
batch of trials are trained in lock-step by the fused kernel, elsewhere one after another.
"""

import expunge.training.learners.jax  # noqa: F401  if JAX is missing, says so in one line
from expunge_lab.reproduction.white_box.batch import run_trials
from expunge_lab.reproduction.white_box.engine import Engine
from expunge_lab.reproduction.white_box.fused import FusedEngine
from expunge_lab.reproduction.white_box.layered import LayerEngine
from expunge_lab.reproduction.white_box.runner import WhiteBox, device_name, is_on_gpu, make_engine
from expunge_lab.reproduction.white_box.selection import Examiner, choose_checks

__all__ = [
    "Engine",
    "Examiner",
    "FusedEngine",
    "LayerEngine",
    "WhiteBox",
    "choose_checks",
    "device_name",
    "is_on_gpu",
    "make_engine",
    "run_trials",
]
