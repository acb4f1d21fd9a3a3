"""What a deletion costs where 100 networks were trained: a share of training all of them, on the device at hand.

    python lab/experiments/one_of_many.py [--shards 100] [--points 600] [--epochs 10]

The paper's network learns from pictures made of noise, in JAX and, where it is installed, in PyTorch. All models are
trained four times (the fastest counts: earlier ones compile), then records are deleted one by one; a deletion is
everything that `UnlearningClassifier.delete` does. Wall time; one line a framework. Expected: 1 to 2% with 100 shards
on a GPU, more on a CPU, where all shards are trained on all cores and one on one.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import numpy as np

from expunge import UnlearningClassifier

NUM_CLASSES, DELETIONS, WARM = 10, 20, 3


def learners(epochs: int) -> Iterator[tuple[str, Callable[[], str], Any]]:
    """A name, what says the device, and the learner, of every framework that is installed."""
    if importlib.util.find_spec("jax") is not None:
        import jax

        from expunge.training.learners.jax import JaxLearner, paper_network, sgd

        options = {"batch_size": 64, "epochs": epochs, "optimizer": sgd(0.1, momentum=0.9), "input_scale": 1 / 255}
        yield f"JAX {jax.__version__}", lambda: jax.devices()[0].device_kind, JaxLearner(paper_network(), **options)
    if importlib.util.find_spec("torch") is not None:
        import torch

        from expunge.training.learners.pytorch import TorchLearner

        def device() -> str:
            return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"

        learner = TorchLearner(torch_network, epochs=epochs, batch_size=64, device="auto")
        yield f"PyTorch {torch.__version__}", device, learner


def torch_network() -> Any:
    """The paper's network, as PyTorch has it."""
    from torch import nn

    return nn.Sequential(
        nn.Unflatten(1, (1, 28, 28)),
        nn.Conv2d(1, 16, 8, stride=2, padding=3),
        nn.Tanh(),
        nn.MaxPool2d(2, stride=1),
        nn.Conv2d(16, 32, 4, stride=2),
        nn.Tanh(),
        nn.MaxPool2d(2, stride=1),
        nn.Flatten(),
        nn.Linear(512, 32),
        nn.Tanh(),
        nn.Linear(32, NUM_CLASSES),
    )


def measure(learner: Any, num_shards: int, points: int) -> tuple[list[float], float]:
    """Seconds of each deletion, and of training everything with a new key."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, NUM_CLASSES, num_shards * points)
    X = rng.integers(0, 128, (len(y), 784), dtype=np.uint8)
    X[np.arange(len(y)), 56 * y] = 255
    model = UnlearningClassifier(learner, n_shards=num_shards, random_state=0).fit(X, y, ids=range(len(y)))
    everything = min(seconds(model.deployment_.rekey) for _ in range(3))
    ids = rng.permutation(len(y))[: WARM + DELETIONS].tolist()
    return [seconds(lambda: model.delete([ids.pop()])) for _ in range(WARM + DELETIONS)][WARM:], everything


def seconds(work: Callable[[], object]) -> float:
    """On the wall."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=int, default=100)
    parser.add_argument("--points", type=int, default=600)
    parser.add_argument("--epochs", type=int, default=10)
    options = parser.parse_args()
    for name, device, learner in learners(options.epochs):
        one, everything = measure(learner, options.shards, options.points)
        sys.stdout.write(
            f"{name}, {device()}: a deletion {1e3 * median(one):.1f} ms ({1e3 * min(one):.1f} to "
            f"{1e3 * max(one):.1f}), training all {options.shards} shards {everything:.2f} s: "
            f"{median(one) / everything:.2%} of all\n"
        )
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
