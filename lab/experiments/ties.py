"""What the attack loses when models are equally sure of a training point, for lack of digits.

    python lab/experiments/ties.py                            Fashion-MNIST, k = 6, no noise: minutes on a CPU
    python lab/experiments/ties.py --row mnist-k6-0.4

Trains the models of one trial in float32 and guesses the shard of every training point in three ways, from the same
scores: by the softmax, which is what the paper's attack compares; by the difference of a score and the logarithm of a
sum, which is the same number with fewer digits near one; and in float64. Among equals the first model is guessed, so
ties are deleted too often and their shards are guessed at random.

Expected: the difference ties for a third of all points, the softmax for less than a tenth, float64 for none.
"""

from __future__ import annotations

import argparse
from typing import Any

import jax
import numpy as np

from expunge_lab.reproduction import load_pictures, table_rows
from expunge_lab.reproduction.white_box import LayerEngine
from expunge_lab.reproduction.white_box.partitions import draw_images, draw_keys, first_partition, trial_generators
from expunge_lab.reproduction.white_box.runner import row_seed


def chances(scores: Any, labels: Any) -> dict[str, Any]:
    """Of scores (models, points, classes), every model's chance of a point's label, three ways."""
    place = labels[None, :, None]
    own = np.take_along_axis(scores, place, axis=2)
    wide = scores.astype(np.float64)
    others = np.exp(wide - np.take_along_axis(wide, place, axis=2)).sum(axis=2) - 1
    return {
        "softmax, float32": np.take_along_axis(np.asarray(jax.nn.softmax(scores, axis=2)), place, axis=2)[:, :, 0],
        "score - logsumexp, float32": own[:, :, 0] - np.asarray(jax.nn.logsumexp(scores, axis=2)),
        "float64": -np.log1p(others),
    }


def line(name: str, found: Any, home: Any) -> str:
    """How many tie, how many are deleted, and how many of these were guessed right."""
    guess = found.argmax(axis=0)
    tied = np.mean((found == found.max(axis=0)).sum(axis=0) > 1)
    doomed = guess < len(found) // 2
    return f"| {name} | {tied:.3f} | {doomed.mean():.3f} | {np.mean(guess[doomed] == home[doomed]):.4f} |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    rows = {row.name: row for row in table_rows()}
    parser.add_argument("--row", default="fashion-mnist-k6-0", choices=rows, metavar="ROW")
    parser.add_argument("--trial", type=int, default=0)
    options = parser.parse_args()
    row = rows[options.row]
    pictures = load_pictures(row.experiment)
    engine = LayerEngine(row.experiment, pictures)
    generators = trial_generators(row_seed(row, has_fixed_partition=False), [options.trial])
    images = draw_images(row, len(pictures.y), generators)
    start = engine.initial(draw_keys(generators, row.num_shards))
    shards = first_partition(row, images)
    keys = draw_keys(generators, row.num_shards)
    weights = engine.train(start, shards.rows, shards.sizes, keys, noise_multiplier=row.noise_multiplier)
    points = images[0]
    scores = np.stack([engine.scores(weights, model, pictures.X[points]) for model in range(row.num_shards)])
    home = np.arange(len(points)) // row.points_per_shard
    print("| chances | ties | deleted | shard guessed right |", "| --- | --- | --- | --- |", sep="\n")
    for name, found in chances(scores, pictures.y[points]).items():
        print(line(name, found, home))
