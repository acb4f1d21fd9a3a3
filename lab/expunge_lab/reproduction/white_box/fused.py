"""All models of a batch of trials in lock-step through the fused kernel: for a GPU."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from expunge.core.errors import ExpungeError
from expunge.training.learners.jax import paper_network
from expunge_lab import kernels as fused
from expunge_lab.reproduction.pictures import Pictures
from expunge_lab.reproduction.rows import Experiment
from expunge_lab.reproduction.white_box.engine import NUM_CLASSES
from expunge_lab.reproduction.white_box.examiner import FusedExaminer
from expunge_lab.reproduction.white_box.lockstep import Plan, train_all
from expunge_lab.reproduction.white_box.partitions import repeated
from expunge_lab.reproduction.white_box.scoring import (
    Table,
    fill_up,
    gather,
    log_chances,
    make_operands,
    scores_in_parts,
)
from expunge_lab.reproduction.white_box.selection import choose_checks


class FusedEngine:
    """An `Engine` of one program for all models; `part`, `block` and `at_once` are sizes of forward passes.

    Validation does not interrupt training: the weights of every check are kept, and the best is found afterwards, with
    the same result, by bounds (`choose_checks`).
    """

    def __init__(
        self,
        experiment: Experiment,
        pictures: Pictures,
        *,
        part: int = 512,
        block: int = 128,
        at_once: int = 512,
        interpret: bool = False,
    ) -> None:
        self._experiment, self._pictures, self._part, self._interpret = experiment, pictures, part, interpret
        self._examine = partial(FusedExaminer, block=block, at_once=at_once, part=part, interpret=interpret)
        self._shape = fused.Shape(pictures.side, pictures.channels, NUM_CLASSES, experiment.activation)
        self._plan = Plan.of(experiment, self._shape, interpret=interpret)
        if not interpret:
            check_kernels(self._shape)
        table = partial(fused.patch_table, shape=self._shape)
        self._train_table, self._labels = table(pictures.X), jnp.asarray(pictures.y)
        self._validation_table, self._test_table = table(pictures.X_validation), table(pictures.X_test)

    def initial(self, keys: NDArray[np.uint32]) -> fused.Weights:
        """One initialisation a key."""
        found: fused.Weights = _initial(jax.random.wrap_key_data(jnp.asarray(keys), impl="threefry2x32"), self._shape)
        return found

    def train(
        self,
        start: fused.Weights,
        rows: NDArray[np.int32],
        sizes: NDArray[np.int32],
        keys: NDArray[np.uint32],
        *,
        noise_multiplier: float,
    ) -> fused.Weights:
        """All steps, then the choice among the checks; a model without any points stays as it began."""
        best = self.select(self.train_checks(start, rows, sizes, keys, noise_multiplier=noise_multiplier))
        if sizes.all():
            return best
        taught = jnp.asarray(np.flatnonzero(sizes))
        return fused.Weights(*(old.at[taught].set(new[taught]) for old, new in zip(start, best, strict=True)))

    def train_checks(
        self,
        start: fused.Weights,
        rows: NDArray[np.int32],
        sizes: NDArray[np.int32],
        keys: NDArray[np.uint32],
        *,
        noise_multiplier: float,
    ) -> fused.Weights:
        """The weights of every check, checks first, then models."""
        return train_all(
            self._plan,
            start,
            self._train_table,
            self._labels,
            jnp.asarray(repeated(rows, sizes, self._plan.room)),
            jnp.asarray(sizes),
            jnp.asarray(keys),
            noise_multiplier=noise_multiplier,
            learning_rate=self._experiment.learning_rate,
        )

    def select(self, checks: fused.Weights) -> fused.Weights:
        """Of every model the weights of its best check, the later one among equals; `checks` has them first."""
        chosen = choose_checks(self.examiner(checks))
        best: fused.Weights = gather(checks, jnp.asarray(chosen), jnp.arange(len(chosen)))
        return best

    def examiner(self, checks: fused.Weights) -> FusedExaminer:
        """Counts errors of checks on the validation images."""
        return self._examine(self._shape, self._validation_table, self._pictures.y_validation, checks)

    def chances(self, weights: fused.Weights, rows: NDArray[np.int32]) -> NDArray[np.float32]:
        """Of training images."""
        places = jnp.asarray(fill_up(rows, self._part))
        found = self._scores(self._train_table, places, weights)
        return np.asarray(log_chances(found, self._labels[places]))[:, : rows.shape[1]]

    def test_scores(self, weights: fused.Weights) -> NDArray[np.float32]:
        """All models at once."""
        number = len(self._pictures.y_test)
        places = fill_up(np.tile(np.arange(number, dtype=np.int32), (weights.b1.shape[0], 1)), self._part)
        return np.asarray(self._scores(self._test_table, jnp.asarray(places), weights))[:, :number]

    def _scores(self, table: Table, places: Any, weights: fused.Weights) -> Any:
        operands, owners = make_operands(weights, self._shape.channels), jnp.arange(places.shape[0], dtype=jnp.int32)
        return scores_in_parts(
            table, places, operands, owners, shape=self._shape, part=self._part, interpret=self._interpret
        )


@cache
def check_kernels(shape: fused.Shape) -> None:
    """ExpungeError unless the kernels, as compiled for this device, compute what the layers do; once in a process."""
    found = fused.differences(shape)
    if not found.are_small:
        apart = f"sums are {found.sums:.2g} and scores {found.scores:.2g} from those of the layers"
        raise ExpungeError(f"the kernels are wrong as compiled by JAX {jax.__version__} for this device: {apart}")


@partial(jax.jit, static_argnames="shape")
def _initial(keys: Any, shape: fused.Shape) -> Any:
    network = paper_network(activation=shape.activation, input_shape=(shape.side, shape.side, shape.channels))  # type: ignore[arg-type]
    return fused.native(jax.vmap(lambda key: network.init(key, shape.num_classes))(keys), shape)
