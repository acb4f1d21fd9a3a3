"""The white-box experiment in miniature, with numpy alone: what `--quick` runs, on a CPU and without JAX.

The same procedure as the real one (`reproduction.white_box`) step by step: equal shards drawn afresh, clipped
and noisy gradients with momentum, shuffled epochs without their incomplete last batch, the weights of the best
validation check (the later among equals), the attack, retraining from the same initial weights, the control arm. Only
the network (one hidden layer) and the data (8 × 8 digits) are small. All models of all trials are trained in lock-step.
A fixed partition is one of its own here, and the keys of the released code are not imitated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from expunge.core.errors import InputError
from expunge_lab.reproduction.pictures import Pictures
from expunge_lab.reproduction.rows import CHECK_EVERY, CLIP_NORM, MOMENTUM, Row
from expunge_lab.reproduction.trials import Trials, count_right

Floats = NDArray[np.float32]
Places = NDArray[np.int64]

_HIDDEN = 32
_NUM_CLASSES = 10


@dataclass(frozen=True)
class Weights:
    """Of many models: (models, inputs, hidden), (models, hidden), (models, hidden, classes), (models, classes)."""

    first: Floats
    first_bias: Floats
    last: Floats
    last_bias: Floats

    @property
    def arrays(self) -> tuple[Floats, Floats, Floats, Floats]:
        """All of them."""
        return self.first, self.first_bias, self.last, self.last_bias


class StandIn:
    """Runs trials of a row."""

    def __init__(self, row: Row, pictures: Pictures, *, has_fixed_partition: bool = False) -> None:
        self._row, self._pictures, self._has_fixed_partition = row, pictures, has_fixed_partition
        self._X = _flat(pictures.X)

    def __call__(self, numbers: Sequence[int]) -> Trials:
        """The trials with these numbers; each is a function of its row and number alone."""
        row, pictures = self._row, self._pictures
        rngs = [_randomness(row.name, number) for number in numbers]
        partitions = [self._partition(rng) for rng in rngs]
        start = self._initial(rngs)
        trained = self._train(start, partitions, rngs)
        guesses = self._guess(trained, len(rngs))
        kept = [guess >= row.num_shards // 2 for guess in guesses]
        survivors = [[own[keep[own]] for own in shards] for shards, keep in zip(partitions, kept, strict=True)]
        after = self._test_scores(self._train(start, survivors, rngs))
        redrawn = [self._cut(rng.permutation(np.flatnonzero(keep))) for rng, keep in zip(rngs, kept, strict=True)]
        control = self._test_scores(self._train(self._initial(rngs), redrawn, rngs))
        before = self._test_scores(trained)
        touched = np.array([[len(own) < row.points_per_shard for own in shards] for shards in survivors])
        after = np.where(touched[..., np.newaxis, np.newaxis], after, before)
        return Trials(
            numbers=np.asarray(numbers, dtype=np.int64),
            **count_right("before", before, pictures.y_test),
            **count_right("after", after, pictures.y_test),
            **count_right("control", control, pictures.y_test),
            num_deleted=np.array([np.count_nonzero(~keep) for keep in kept]),
            num_hits=np.array(
                [_hits(guess, shards, row.num_shards // 2) for guess, shards in zip(guesses, partitions, strict=True)]
            ),
            num_held_out=len(pictures.y_test),
        )

    def _partition(self, rng: np.random.Generator) -> list[Places]:
        source = _randomness(self._row.experiment.name, -1) if self._has_fixed_partition else rng
        return self._cut(source.permutation(len(self._pictures.y)))

    def _cut(self, places: Places) -> list[Places]:
        return np.array_split(places, self._row.num_shards)

    def _initial(self, rngs: Sequence[np.random.Generator]) -> Weights:
        """Glorot-normal weights, small biases."""
        inputs, k = self._X.shape[1], self._row.num_shards

        def draw(*shape: int, scale: float) -> Floats:
            return np.concatenate([rng.normal(0, scale, (k, *shape)) for rng in rngs]).astype(np.float32)

        return Weights(
            draw(inputs, _HIDDEN, scale=(2 / (inputs + _HIDDEN)) ** 0.5),
            draw(_HIDDEN, scale=0.01),
            draw(_HIDDEN, _NUM_CLASSES, scale=(2 / (_HIDDEN + _NUM_CLASSES)) ** 0.5),
            draw(_NUM_CLASSES, scale=0.01),
        )

    def _train(
        self, start: Weights, partitions: Sequence[Sequence[Places]], rngs: Sequence[np.random.Generator]
    ) -> Weights:
        """Of every model the weights of its best check."""
        row = self._row
        plans = [self._plan(own, rng) for shards, rng in zip(partitions, rngs, strict=True) for own in shards]
        plan = np.stack(plans, axis=1)
        weights, velocity = start, [np.zeros_like(part) for part in start.arrays]
        momentum, rate, share = np.float32(MOMENTUM), np.float32(row.learning_rate), np.float32(1 / row.batch_size)
        best, best_right = start, np.full(plan.shape[1], -1)
        validation, labels = _flat(self._pictures.X_validation), self._pictures.y_validation
        for step, places in enumerate(plan, start=1):
            sums = clipped_sums(weights, self._X[places], self._pictures.y[places])
            noisy = [_with_noise(total, rngs, CLIP_NORM * row.noise_multiplier) for total in sums]
            velocity = [momentum * old + share * new for old, new in zip(velocity, noisy, strict=True)]
            weights = Weights(*(old - rate * move for old, move in zip(weights.arrays, velocity, strict=True)))
            if step % CHECK_EVERY == 0:
                right = np.count_nonzero(scores(weights, validation).argmax(axis=2) == labels, axis=1)
                best = _keep(right >= best_right, weights, best)
                best_right = np.maximum(right, best_right)
        return best

    def _plan(self, own: Places, rng: np.random.Generator) -> Places:
        """The batches of one model, (steps, batch size); points of a shard smaller than a batch are repeated in it."""
        size, steps = self._row.batch_size, self._row.num_steps
        if not len(own):
            raise InputError("all points of a shard were deleted, and nothing is left to train on")
        whole = max(len(own) // size, 1)
        epochs = -(-steps // whole)
        orders = [np.resize(rng.permutation(own), (whole, size)) for _ in range(epochs)]
        return np.concatenate(orders)[:steps]

    def _guess(self, trained: Weights, trials: int) -> NDArray[np.int64]:
        """(trials, points): the model that is most sure of a point's label, the first among equals."""
        found = scores(trained, self._X).astype(np.float64)
        found -= found.max(axis=2, keepdims=True)
        own = found[:, np.arange(len(self._X)), self._pictures.y]
        sure = own - np.log(np.exp(found).sum(axis=2))
        return np.asarray(sure.reshape(trials, self._row.num_shards, -1).argmax(axis=1))

    def _test_scores(self, weights: Weights) -> Floats:
        """Of held-out images, (trials, shards, images, classes)."""
        found = scores(weights, _flat(self._pictures.X_test))
        return found.reshape(-1, self._row.num_shards, *found.shape[1:])


def scores(weights: Weights, X: Floats) -> Floats:
    """Outputs of every model, (models, rows, classes); X is shared, or has the models first."""
    hidden = np.tanh(X @ weights.first + weights.first_bias[:, np.newaxis])
    return np.asarray(hidden @ weights.last + weights.last_bias[:, np.newaxis])


def clipped_sums(weights: Weights, X: Floats, y: NDArray[np.int32]) -> tuple[Floats, Floats, Floats, Floats]:
    """Sums of the examples' cross-entropy gradients, each clipped to the norm 0.1; X is (models, batch, inputs).

    A dense layer's gradient for one example is an outer product, so its norm is the product of two norms.
    """
    hidden = np.tanh(X @ weights.first + weights.first_bias[:, np.newaxis])
    out = hidden @ weights.last + weights.last_bias[:, np.newaxis]
    out = np.exp(out - out.max(axis=2, keepdims=True))
    error = out / out.sum(axis=2, keepdims=True)
    np.put_along_axis(error, y[..., np.newaxis], np.take_along_axis(error, y[..., np.newaxis], 2) - 1, 2)
    inner = (error @ weights.last.swapaxes(1, 2)) * (1 - hidden**2)
    square = _square(error) * (1 + _square(hidden)) + _square(inner) * (1 + _square(X))
    share = np.minimum(1, CLIP_NORM / np.sqrt(np.maximum(square, 1e-30)))[..., np.newaxis]
    error, inner = error * share, inner * share
    return (
        X.swapaxes(1, 2) @ inner,
        inner.sum(axis=1),
        hidden.swapaxes(1, 2) @ error,
        error.sum(axis=1),
    )


def _square(vectors: Floats) -> Floats:
    return np.asarray((vectors**2).sum(axis=2))


def _keep(is_better: NDArray[np.bool_], new: Weights, old: Weights) -> Weights:
    pairs = zip(new.arrays, old.arrays, strict=True)
    return Weights(*(np.where(is_better.reshape(-1, *[1] * (a.ndim - 1)), a, b) for a, b in pairs))


def _with_noise(total: Floats, rngs: Sequence[np.random.Generator], deviation: float) -> Floats:
    """Every trial's models get noise from the trial's own stream."""
    if deviation == 0:
        return total
    shape = (len(total) // len(rngs), *total.shape[1:])
    noise = np.concatenate([rng.standard_normal(shape, dtype=np.float32) for rng in rngs])
    return np.asarray(total + np.float32(deviation) * noise)


def _hits(guess: NDArray[np.int64], shards: Sequence[Places], targeted: int) -> int:
    """Deleted points whose shard was guessed right."""
    return sum(int(np.count_nonzero(guess[own] == shard)) for shard, own in enumerate(shards[:targeted]))


def _flat(X: NDArray[np.uint8]) -> Floats:
    return (X.reshape(len(X), -1) / 255).astype(np.float32)


def _randomness(name: str, number: int) -> np.random.Generator:
    """A stream for a row and a trial; −1 stands for what all trials share."""
    return np.random.default_rng([crc32(name.encode()), number + 1])
