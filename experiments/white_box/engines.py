"""Two ways to train and evaluate many models of the paper's network: layer by layer anywhere, fused on a GPU.

An engine keeps the images on the device. Weights in between are its own affair; a caller hands them back to it.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from expunge.learners.jax import PrivateSGD, paper_network, sgd
from expunge.learners.jax import _fused as fused
from expunge.learners.jax._batches import capacity, shuffled_orders
from expunge.learners.jax._gradients import cross_entropy
from expunge.learners.jax._program import Checks, ShardBatch, training_program
from expunge.learners.jax.recipe import Recipe
from white_box.pictures import Pictures
from white_box.rows import CHECK_EVERY, CLIP_NORM, MOMENTUM, Row
from white_box.selection import choose_checks

NUM_CLASSES = 10
_LEAST_SHARE = 4  # orders are drawn for shards of at least a quarter of the full size; smaller ones reuse them


class Engine(Protocol):
    """Trains models of one row and evaluates them."""

    def initial(self, keys: NDArray[np.uint32]) -> Any:
        """Fresh weights, one model a key."""

    def train(self, start: Any, rows: NDArray[np.int32], sizes: NDArray[np.int32], keys: NDArray[np.uint32]) -> Any:
        """Trained weights: model m sees the first sizes[m] of the images rows[m]; keys are batches and noise."""

    def chances(self, weights: Any, rows: NDArray[np.int32]) -> NDArray[np.float32]:
        """Of training images, the logarithm of each model's probability for the true label, (models, images)."""

    def test_scores(self, weights: Any) -> NDArray[np.float32]:
        """Scores of the held-out images, (models, images, classes)."""


class LayerEngine:
    """The learner's own program, one model after another: for a CPU."""

    def __init__(self, row: Row, pictures: Pictures) -> None:
        self._row, self._pictures = row, pictures
        shape = (pictures.side, pictures.side, pictures.channels)
        self._network = paper_network(activation=row.activation, input_shape=shape)  # type: ignore[arg-type]
        self._recipe = Recipe(
            architecture=self._network,
            loss=cross_entropy,
            optimizer=sgd(row.learning_rate, momentum=MOMENTUM),
            num_classes=NUM_CLASSES,
            batch_size=row.batch_size,
            steps=row.num_steps,
            epochs=None,
            privacy=PrivateSGD(CLIP_NORM, row.noise_multiplier),
            check_every=CHECK_EVERY,
            input_scale=1 / 255,
        )
        self._X, self._y = jnp.asarray(pictures.X), jnp.asarray(pictures.y)
        self._weights = jnp.ones(len(pictures.y))
        self._checks = Checks(jnp.asarray(pictures.X_validation), jnp.asarray(pictures.y_validation))
        self._initial = jax.jit(jax.vmap(lambda key: self._network.init(key, NUM_CLASSES)))
        self._apply = jax.jit(lambda own, x: self._network.apply(own, x.astype(jnp.float32) / 255))

    def initial(self, keys: NDArray[np.uint32]) -> Any:
        """One initialisation a key."""
        wrapped = jax.random.wrap_key_data(jnp.asarray(keys), impl="threefry2x32")
        return self._initial(wrapped)

    def train(self, start: Any, rows: NDArray[np.int32], sizes: NDArray[np.int32], keys: NDArray[np.uint32]) -> Any:
        """One model after another."""
        trained = []
        for model, size in enumerate(sizes.tolist()):
            room = capacity(size)
            padded = np.zeros((1, room), np.int32)
            padded[0, :size] = rows[model, :size]
            shards = ShardBatch(
                self._X,
                self._y,
                self._weights,
                jnp.asarray(padded),
                jnp.asarray(sizes[model : model + 1]),
                jnp.full(1, self._row.num_steps, jnp.int32),
                jnp.asarray(keys[model : model + 1]),
            )
            program = training_program(self._recipe, room, 1, resumes=True)
            trained.append(program(shards, self._checks, jax.tree.map(lambda leaf, at=model: leaf[at : at + 1], start)))
        return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *trained)

    def chances(self, weights: Any, rows: NDArray[np.int32]) -> NDArray[np.float32]:
        """One model after another."""
        found = [self._model_scores(weights, model, self._pictures.X[own]) for model, own in enumerate(rows)]
        return np.asarray(_log_chances(jnp.asarray(np.stack(found)), jnp.asarray(self._pictures.y[rows])))

    def test_scores(self, weights: Any) -> NDArray[np.float32]:
        """One model after another."""
        models = range(jax.tree.leaves(weights)[0].shape[0])
        return np.stack([self._model_scores(weights, model, self._pictures.X_test) for model in models])

    def _model_scores(self, weights: Any, model: int, X: NDArray[np.uint8]) -> NDArray[np.float32]:
        own = jax.tree.map(lambda leaf: leaf[model], weights)
        return np.concatenate([np.asarray(self._apply(own, X[at : at + 1000])) for at in range(0, len(X), 1000)])


class FusedEngine:
    """All models in lock-step through the fused kernel: for a GPU.

    Validation does not interrupt training: the weights of every check are kept, and the best is found afterwards, with
    the same result, by bounds (`choose_checks`).
    """

    def __init__(self, row: Row, pictures: Pictures, *, part: int = 512, interpret: bool = False) -> None:
        self._row, self._pictures, self._part, self._interpret = row, pictures, part, interpret
        self._shape = fused.Shape(pictures.side, pictures.channels, NUM_CLASSES, row.activation)
        shape = (pictures.side, pictures.side, pictures.channels)
        self._network = paper_network(activation=row.activation, input_shape=shape)  # type: ignore[arg-type]
        table = partial(fused.patch_table, shape=self._shape)
        self._train_table, self._labels = table(pictures.X), jnp.asarray(pictures.y)
        self._validation_table, self._test_table = table(pictures.X_validation), table(pictures.X_test)
        self._room = capacity(row.points_per_shard)
        least = max(row.points_per_shard // _LEAST_SHARE // row.batch_size, 1)
        self._num_epochs = -(-row.num_steps // least)
        make = jax.vmap(lambda key: self._network.init(key, NUM_CLASSES))
        self._initial = jax.jit(lambda keys: fused.native(make(keys), self._shape))
        self._train = jax.jit(self._training)
        self._scores = jax.jit(self._in_parts)

    def initial(self, keys: NDArray[np.uint32]) -> fused.Weights:
        """One initialisation a key."""
        wrapped = jax.random.wrap_key_data(jnp.asarray(keys), impl="threefry2x32")
        found: fused.Weights = self._initial(wrapped)
        return found

    def train(
        self, start: fused.Weights, rows: NDArray[np.int32], sizes: NDArray[np.int32], keys: NDArray[np.uint32]
    ) -> fused.Weights:
        """All steps, then the choice among the checks."""
        if sizes.min() < self._row.batch_size:
            raise ValueError(f"a shard of {sizes.min()} points is smaller than a batch of {self._row.batch_size}")
        padded = np.zeros((len(rows), self._room), np.int32)
        padded[:, : rows.shape[1]] = rows
        checks = self._train(
            start, self._train_table, self._labels, jnp.asarray(padded), jnp.asarray(sizes), jnp.asarray(keys)
        )
        return self.select(checks)

    def select(self, checks: fused.Weights) -> fused.Weights:
        """Of every model the weights of its best check, the later one among equals; `checks` has them first."""
        labels = self._pictures.y_validation

        def errors(check: NDArray[np.int64], model: NDArray[np.int64], images: NDArray[np.int64]) -> NDArray[np.bool_]:
            own = _gather(checks, jnp.asarray(check), jnp.asarray(model))
            guesses = self._guesses(own, self._validation_table, images)
            return np.asarray(guesses != labels[images][None, :])

        count, models = checks.b1.shape[:2]
        chosen = choose_checks(errors, count, models, len(labels))
        best: fused.Weights = _gather(checks, jnp.asarray(chosen), jnp.arange(models))
        return best

    def chances(self, weights: fused.Weights, rows: NDArray[np.int32]) -> NDArray[np.float32]:
        """Of training images."""
        padded = _filled(rows, self._part)
        found = self._scores(self._train_table, jnp.asarray(padded), weights)
        labels = jnp.asarray(self._pictures.y[padded])
        return np.asarray(_log_chances(found, labels))[:, : rows.shape[1]]

    def test_scores(self, weights: fused.Weights) -> NDArray[np.float32]:
        """All models at once."""
        number = len(self._pictures.y_test)
        rows = _filled(np.tile(np.arange(number, dtype=np.int32), (weights.b1.shape[0], 1)), self._part)
        return np.asarray(self._scores(self._test_table, jnp.asarray(rows), weights))[:, :number]

    def _guesses(self, weights: fused.Weights, table: Any, images: NDArray[np.int64]) -> NDArray[np.int64]:
        models = weights.b1.shape[0]
        rows = _filled(np.tile(images.astype(np.int32), (models, 1)), self._part)
        return np.asarray(jnp.argmax(self._scores(table, jnp.asarray(rows), weights), axis=2))[:, : len(images)]

    def _in_parts(self, table: Any, rows: Any, weights: fused.Weights) -> Any:
        """Scores a part of the images at a time, since every program of the kernel has scratch memory of its own."""
        models = rows.shape[0]
        parts = rows.reshape(models, -1, self._part).swapaxes(0, 1)
        one = partial(fused.scores, self._shape, table, interpret=self._interpret)
        found = jax.lax.map(lambda part: one(part, weights), parts)
        return found.swapaxes(0, 1).reshape(models, -1, NUM_CLASSES)

    def _training(self, start: Any, table: Any, labels: Any, rows: Any, sizes: Any, keys: Any) -> Any:
        """The weights of every check, checks first."""
        row = self._row
        streams = jax.random.wrap_key_data(keys, impl="threefry2x32")
        order_keys, noise_keys = (jax.vmap(partial(jax.random.fold_in, data=data))(streams) for data in (0, 1))
        orders = jax.vmap(lambda key, size: shuffled_orders(key, size, self._room, self._num_epochs))(order_keys, sizes)
        per_epoch = jnp.maximum(sizes // row.batch_size, 1)

        def step(number: Any, state: Any) -> Any:
            weights, velocity = state
            places = jax.vmap(partial(_batch_places, number, row.batch_size))(orders, per_epoch)
            chosen = jnp.take_along_axis(rows, places, axis=1)
            sums = fused.clipped_sums(
                self._shape,
                table,
                chosen,
                labels[chosen],
                weights,
                clip_norm=CLIP_NORM,
                warps=WARPS,
                interpret=self._interpret,
            )
            noisy = _with_noise(sums, noise_keys, number, CLIP_NORM * row.noise_multiplier)
            velocity = jax.tree.map(lambda old, new: MOMENTUM * old + new / row.batch_size, velocity, noisy)
            return jax.tree.map(lambda old, move: old - row.learning_rate * move, weights, velocity), velocity

        def until_check(state: Any, check: Any) -> Any:
            state = jax.lax.fori_loop(check * CHECK_EVERY, (check + 1) * CHECK_EVERY, step, state)
            return state, state[0]

        begin = start, jax.tree.map(jnp.zeros_like, start)
        return jax.lax.scan(until_check, begin, jnp.arange(row.num_checks))[1]


WARPS = (4, 4, 4, 4)


@jax.jit  # type: ignore[untyped-decorator]
def _log_chances(scores: Any, labels: Any) -> Any:
    """log softmax at the labels."""
    own = jnp.take_along_axis(scores, labels[:, :, None], axis=2)[:, :, 0]
    return own - jax.nn.logsumexp(scores, axis=2)


def _batch_places(number: Any, batch_size: int, orders: Any, per_epoch: Any) -> Any:
    """Places of a batch in a shard; a shard so small that its orders run out starts them again."""
    epoch = (number // per_epoch) % orders.shape[0]
    return jax.lax.dynamic_slice(orders, (epoch, (number % per_epoch) * batch_size), (1, batch_size))[0]


def _with_noise(sums: fused.Weights, keys: Any, number: Any, deviation: float) -> fused.Weights:
    """Independent Gaussian noise on every weight; on the kernel's padding too, where it has no effect."""
    if deviation == 0:
        return sums
    sizes = [int(np.prod(leaf.shape[1:])) for leaf in sums]
    own = jax.vmap(lambda key: jax.random.normal(jax.random.fold_in(key, number), (sum(sizes),)))(keys)
    parts = jnp.split(own, np.cumsum(sizes)[:-1].tolist(), axis=1)
    return fused.Weights(*(leaf + deviation * part.reshape(leaf.shape) for leaf, part in zip(sums, parts, strict=True)))


@jax.jit  # type: ignore[untyped-decorator]
def _gather(checks: fused.Weights, check: Any, model: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[check, model], checks)


def _filled(rows: NDArray[np.int32], part: int) -> NDArray[np.int32]:
    """Filled up with image 0 to a multiple of `part`."""
    return np.pad(rows, ((0, 0), (0, -rows.shape[1] % part)))


def make_engine(row: Row, pictures: Pictures) -> Engine:
    """The fused one on a GPU, the other elsewhere."""
    return FusedEngine(row, pictures) if jax.default_backend() == "gpu" else LayerEngine(row, pictures)
