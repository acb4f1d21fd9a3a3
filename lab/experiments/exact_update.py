"""Whether updates give, bit for bit, what the recipe gives on the records that are left (T6), on the device at hand.

    python lab/experiments/exact_update.py [--shards 20] [--steps 100]

A network learns from pictures made of noise. Records are deleted, added, and added again; then every model is compared
with that of the same recipe run from scratch on the final records, in another order. JAX: the paper's network with
DP-SGD and without, one model a program and as many as the learner takes by itself. PyTorch, where it is installed: a
small convolutional network with and without DP-SGD. Prints a line for each; the exit code is 1 if a bit differs. A few
minutes on a CPU with `--shards 6 --steps 20`, less on a GPU.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import sys
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from expunge.core.prf import RecipeKey
from expunge.core.records import AddMany, Delete, Records
from expunge.training.ensemble import learn, update
from expunge.training.learners.jax import JaxLearner, PrivateSGD, paper_network, sgd
from expunge.training.recipe import Recipe
from expunge.training.sampling import PartitionSampler

POINTS_PER_SHARD, NUM_CLASSES = 300, 10
PRIVACIES = {"plain": None, "DP-SGD": PrivateSGD(clip_norm=0.1, noise_multiplier=0.4)}


def noisy_pictures(number: int) -> Records:
    """Pictures of noise with a bright row for the label."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, NUM_CLASSES, number)
    pictures = rng.integers(0, 128, (number, 28, 28, 1), dtype=np.uint8)
    pictures[np.arange(number), 2 * labels] = 255
    return Records.build(pictures, labels)


def differing_shards(learner: Any, num_shards: int) -> tuple[int, list[int]]:
    """How many models the updates trained, and the shards whose model is not the recipe's on the final records."""
    size = num_shards * POINTS_PER_SHARD
    pictures, labels, _ = noisy_pictures(size).gather(np.arange(size))
    records = Records.build(pictures, labels, classes=range(NUM_CLASSES))
    recipe = Recipe(learner, num_shards, PartitionSampler(), RecipeKey.from_seed(1))
    state, trained = learn(records, recipe), 0
    again = AddMany(ids=[5, size + 1], features=pictures[[5, 0]], labels=labels[[5, 0]])
    for batch in ([Delete(5), Delete(17)], [again], [Delete(size // 2)]):
        state, report = update(state, batch)
        trained += report.num_retrained
    order = np.random.default_rng(2).permutation(state.records.live_slots())
    parts = [state.records.gather(order[place : place + 1]) for place in range(len(order))]
    final = Records.build(
        np.concatenate([rows for rows, _, _ in parts]),
        np.concatenate([codes for _, codes, _ in parts]),
        ids=[state.records.id_of(int(slot)) for slot in order],
        classes=range(NUM_CLASSES),
    )
    fresh = learn(final, recipe)
    pairs = zip(state.models, fresh.models, strict=True)
    return trained, [shard for shard, (left, right) in enumerate(pairs) if bits(left) != bits(right)]


def bits(model: Any) -> list[bytes]:
    """All weights of a model."""
    leaves = model.state.values() if hasattr(model, "state") else jax.tree.leaves(model.parameters)
    return [np.asarray(leaf).tobytes() for leaf in leaves]


def jax_learners(steps: int) -> Iterator[tuple[str, Any]]:
    """The paper's network, in four ways."""
    for (name, privacy), models_at_once in itertools.product(PRIVACIES.items(), (1, 16)):
        learner = JaxLearner(
            paper_network(),
            steps=steps,
            optimizer=sgd(0.5, momentum=0.9),
            privacy=privacy,
            input_scale=1 / 255,
            models_at_once=models_at_once,
        )
        yield f"JAX, {name}, {models_at_once} at once", learner


def torch_learners(steps: int) -> Iterator[tuple[str, Any]]:
    """A small convolutional network in PyTorch; none where it is not installed."""
    if importlib.util.find_spec("torch") is None:
        return
    from expunge.training.learners.pytorch import DPSGD, TorchLearner

    epochs = max(1, steps * 64 // POINTS_PER_SHARD)
    yield "PyTorch, plain", TorchLearner(small_network, epochs=epochs, batch_size=64, device="auto")
    if importlib.util.find_spec("opacus") is not None:
        private = DPSGD(max_grad_norm=0.1, noise_multiplier=0.4)
        yield "PyTorch, DP-SGD", TorchLearner(small_network, epochs=1, batch_size=64, privacy=private, device="auto")


def small_network() -> Any:
    """Two convolutions and a linear layer, for pictures whose colours come last."""
    from torch import nn

    return nn.Sequential(
        nn.Flatten(),
        nn.Unflatten(1, (1, 28, 28)),
        nn.Conv2d(1, 8, 5, stride=2),
        nn.ReLU(),
        nn.Conv2d(8, 16, 5, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(256, NUM_CLASSES),
    )


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=int, default=20)
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()
    device, any_differs = jax.devices()[0].device_kind, False
    for name, learner in itertools.chain(jax_learners(options.steps), torch_learners(options.steps)):
        trained, different = differing_shards(learner, options.shards)
        verdict = f"shards {different} differ" if different else "no bit differs"
        words = f"{device}, {name}: {trained} models retrained by three updates of {options.shards} shards, {verdict}"
        sys.stdout.write(words + "\n")
        sys.stdout.flush()
        any_differs |= bool(different)
    return int(any_differs)


if __name__ == "__main__":
    sys.exit(main())
