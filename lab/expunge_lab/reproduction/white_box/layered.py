"""Layer by layer, by the learner's own program, one model after another: for a CPU."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from expunge.training.learners.jax import PrivateSGD, paper_network, sgd
from expunge.training.learners.jax.gradients import cross_entropy
from expunge.training.learners.jax.program import Checks, Recipe, ShardBatch, training_program
from expunge.training.learners.jax.rows import capacity
from expunge_lab.reproduction.pictures import Pictures
from expunge_lab.reproduction.rows import CHECK_EVERY, CLIP_NORM, MOMENTUM, Experiment
from expunge_lab.reproduction.white_box.engine import NUM_CLASSES
from expunge_lab.reproduction.white_box.scoring import log_chances

_AT_ONCE = 1000


class LayerEngine:
    """An `Engine` of one program for one model at a time; a check's count interrupts the training."""

    def __init__(self, experiment: Experiment, pictures: Pictures) -> None:
        self._experiment, self._pictures = experiment, pictures
        shape = (pictures.side, pictures.side, pictures.channels)
        self._network = paper_network(activation=experiment.activation, input_shape=shape)
        self._X, self._y = jnp.asarray(pictures.X), jnp.asarray(pictures.y)
        self._weights = jnp.ones(len(pictures.y))
        self._checks = Checks(jnp.asarray(pictures.X_validation), jnp.asarray(pictures.y_validation))
        self._initial = jax.jit(jax.vmap(lambda key: self._network.init(key, NUM_CLASSES)))
        self._apply = jax.jit(lambda own, x: self._network.apply(own, x.astype(jnp.float32) / 255))

    def initial(self, keys: NDArray[np.uint32]) -> Any:
        """One initialisation a key."""
        return self._initial(jax.random.wrap_key_data(jnp.asarray(keys), impl="threefry2x32"))

    def train(
        self,
        start: Any,
        rows: NDArray[np.int32],
        sizes: NDArray[np.int32],
        keys: NDArray[np.uint32],
        *,
        noise_multiplier: float,
    ) -> Any:
        """One model after another."""
        recipe = self._recipe(noise_multiplier)
        trained = [
            self._train_one(
                recipe,
                jax.tree.map(lambda leaf, at=model: leaf[at : at + 1], start),
                rows[model, :size],
                keys[model : model + 1],
            )
            for model, size in enumerate(sizes.tolist())
        ]
        return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *trained)

    def chances(self, weights: Any, rows: NDArray[np.int32]) -> NDArray[np.float32]:
        """One model after another."""
        found = [self.scores(weights, model, self._pictures.X[own]) for model, own in enumerate(rows)]
        return np.asarray(log_chances(jnp.asarray(np.stack(found)), jnp.asarray(self._pictures.y[rows])))

    def test_scores(self, weights: Any) -> NDArray[np.float32]:
        """One model after another."""
        models = range(jax.tree.leaves(weights)[0].shape[0])
        return np.stack([self.scores(weights, model, self._pictures.X_test) for model in models])

    def scores(self, weights: Any, model: int, X: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Of one model, (images, classes)."""
        own = jax.tree.map(lambda leaf: leaf[model], weights)
        parts = [np.asarray(self._apply(own, X[at : at + _AT_ONCE])) for at in range(0, len(X), _AT_ONCE)]
        return np.concatenate(parts)

    def _recipe(self, noise_multiplier: float) -> Recipe:
        experiment = self._experiment
        return Recipe(
            architecture=self._network,
            loss=cross_entropy,
            optimizer=sgd(experiment.learning_rate, momentum=MOMENTUM),
            num_classes=NUM_CLASSES,
            batch_size=experiment.batch_size,
            steps=experiment.num_steps,
            epochs=None,
            privacy=PrivateSGD(CLIP_NORM, noise_multiplier),
            check_every=CHECK_EVERY,
            input_scale=1 / 255,
        )

    def _train_one(self, recipe: Recipe, start: Any, own: NDArray[np.int32], key: NDArray[np.uint32]) -> Any:
        room = capacity(len(own))
        padded = np.zeros((1, room), np.int32)
        padded[0, : len(own)] = own
        shard = ShardBatch(
            self._X,
            self._y,
            self._weights,
            jnp.asarray(padded),
            jnp.asarray([len(own)], jnp.int32),
            jnp.asarray([self._experiment.num_steps], jnp.int32),
            jnp.asarray(key),
        )
        return training_program(recipe, room, 1, resumes=True)(shard, self._checks, start)
