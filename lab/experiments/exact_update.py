"""Whether an update gives the bits of a fresh training, on the device at hand.

    python lab/experiments/exact_update.py [--shards 20] [--steps 100]

The paper's network learns from pictures made of noise, a few records are deleted, and of every shard the weights are
compared with those of the same seed trained alone: with DP-SGD and without, one model a program and as many as the
learner takes by itself. Prints a line for each; the exit code is 1 if a bit differs.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from typing import Any

import jax
import numpy as np

from expunge.core.prf import RecipeKey
from expunge.core.records import Delete, Records
from expunge.training.ensemble import learn, update
from expunge.training.learners.jax import JaxLearner, PrivateSGD, paper_network, same_parameters, sgd
from expunge.training.recipe import Recipe
from expunge.training.sampling import PartitionSampler

POINTS_PER_SHARD, NUM_CLASSES, NUM_DELETED = 300, 10, 2
PRIVACIES = {"plain": None, "DP-SGD": PrivateSGD(clip_norm=0.1, noise_multiplier=0.4)}


def noisy_pictures(number: int) -> Records:
    """Pictures of noise with a bright row for the label."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, NUM_CLASSES, number)
    pictures = rng.integers(0, 128, (number, 28, 28, 1), dtype=np.uint8)
    pictures[np.arange(number), 2 * labels] = 255
    return Records.build(pictures, labels)


def differing_shards(learner: JaxLearner, num_shards: int) -> tuple[int, list[int]]:
    """How many shards an update touched, and the shards that are not what a fresh training gives."""
    records = noisy_pictures(num_shards * POINTS_PER_SHARD)
    recipe = Recipe(learner, num_shards, PartitionSampler(), RecipeKey.from_seed(1))
    after, report = update(learn(records, recipe), [Delete(record) for record in records.ids()[:NUM_DELETED]])
    bound: Any = after.learner
    found = []
    for shard in range(num_shards):
        data: Any = after.contents(shard)
        model: Any = after.models[shard]
        if not same_parameters(model.parameters, bound.fit(data.X, data.y, data.seed).parameters):
            found.append(shard)
    return len(report.touched), found


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=int, default=20)
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()
    device, any_differs = jax.devices()[0].device_kind, False
    for (name, privacy), models_at_once in itertools.product(PRIVACIES.items(), (1, None)):
        learner = JaxLearner(
            paper_network(),
            steps=options.steps,
            optimizer=sgd(0.5, momentum=0.9),
            privacy=privacy,
            input_scale=1 / 255,
            models_at_once=models_at_once,
        )
        touched, different = differing_shards(learner, options.shards)
        verdict = f"shards {different} differ" if different else "no bit differs"
        at_once = learner.shards_at_once if models_at_once is None else models_at_once
        words = f"{device}, {name}, up to {at_once} at once: {touched} of {options.shards} shards retrained, {verdict}"
        sys.stdout.write(words + "\n")
        any_differs |= bool(different)
    return int(any_differs)


if __name__ == "__main__":
    sys.exit(main())
