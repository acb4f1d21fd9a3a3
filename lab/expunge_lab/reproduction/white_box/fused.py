"""All models of a batch of trials in lock-step through the fused kernel: for a GPU.

Noise and learning rate are arguments of the compiled training, so rows of the table that differ in nothing else share
it. Without noise another program is compiled, which draws none. The errors of checks are counted on the device; only
counts leave it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from expunge.core.errors import ExpungeError
from expunge.training.learners.jax import paper_network
from expunge.training.learners.jax.rows import capacity, shuffled_orders
from expunge_lab import kernels as fused
from expunge_lab.reproduction.pictures import Pictures
from expunge_lab.reproduction.rows import CHECK_EVERY, CLIP_NORM, MOMENTUM, Experiment
from expunge_lab.reproduction.white_box.engine import NUM_CLASSES
from expunge_lab.reproduction.white_box.partitions import repeated
from expunge_lab.reproduction.white_box.scoring import (
    Table,
    fill_up,
    gather,
    log_chances,
    make_operands,
    scores_in_parts,
)
from expunge_lab.reproduction.white_box.selection import Ints, choose_checks

_LEAST_SHARE = 3  # orders are drawn for shards of at least a third of the full size; smaller ones reuse them


@dataclass(frozen=True)
class Plan:
    """What a program is compiled for."""

    shape: fused.Shape
    batch_size: int
    num_steps: int
    room: int
    num_epochs: int
    interpret: bool

    @classmethod
    def of(cls, experiment: Experiment, shape: fused.Shape, *, interpret: bool) -> Plan:
        """Room for a full shard, and orders for as many epochs as a small one needs."""
        least = max(experiment.points_per_shard // _LEAST_SHARE // experiment.batch_size, 1)
        return cls(
            shape=shape,
            batch_size=experiment.batch_size,
            num_steps=experiment.num_steps,
            room=capacity(experiment.points_per_shard),
            num_epochs=-(-experiment.num_steps // least),
            interpret=interpret,
        )

    @property
    def num_checks(self) -> int:
        """Validation checks of a training."""
        return self.num_steps // CHECK_EVERY


def train_all(
    plan: Plan,
    start: fused.Weights,
    table: Table,
    labels: Any,
    rows: Any,
    sizes: Any,
    keys: Any,
    *,
    noise_multiplier: float,
    learning_rate: float,
) -> fused.Weights:
    """The weights of every check, checks first, then models."""
    deviation, rate = (jnp.float32(value) for value in (CLIP_NORM * noise_multiplier, learning_rate))
    has_noise = noise_multiplier > 0
    found: fused.Weights = _train_all(plan, has_noise, start, table, labels, rows, sizes, keys, deviation, rate)
    return found


@partial(jax.jit, static_argnums=(0, 1))
def _train_all(
    plan: Plan,
    has_noise: bool,
    start: fused.Weights,
    table: Table,
    labels: Any,
    rows: Any,
    sizes: Any,
    keys: Any,
    deviation: Any,
    rate: Any,
) -> Any:
    streams = jax.random.wrap_key_data(keys, impl="threefry2x32")
    order_keys, noise_keys = (jax.vmap(partial(jax.random.fold_in, data=data))(streams) for data in (0, 1))
    draw = partial(shuffled_orders, room=plan.room, num_epochs=plan.num_epochs)
    orders = jax.vmap(draw)(order_keys, sizes)
    per_epoch = jnp.maximum(sizes // plan.batch_size, 1)

    def step(number: Any, state: Any) -> Any:
        weights, velocity = state
        places = jax.vmap(partial(_batch_places, number, plan.batch_size))(orders, per_epoch)
        chosen = jnp.take_along_axis(rows, places, axis=1)
        sums = fused.clipped_sums(
            plan.shape, table, chosen, labels[chosen], weights, clip_norm=CLIP_NORM, interpret=plan.interpret
        )
        noisy = _with_noise(sums, noise_keys, number, deviation) if has_noise else sums
        velocity = jax.tree.map(lambda old, new: MOMENTUM * old + new / plan.batch_size, velocity, noisy)
        return jax.tree.map(lambda old, move: old - rate * move, weights, velocity), velocity

    def until_check(state: Any, check: Any) -> Any:
        state = jax.lax.fori_loop(check * CHECK_EVERY, (check + 1) * CHECK_EVERY, step, state)
        return state, state[0]

    begin = start, jax.tree.map(jnp.zeros_like, start)
    return jax.lax.scan(until_check, begin, jnp.arange(plan.num_checks))[1]


def _batch_places(number: Any, batch_size: int, orders: Any, per_epoch: Any) -> Any:
    """Places of a batch in a shard; a shard so small that its orders run out starts them again."""
    epoch = (number // per_epoch) % orders.shape[0]
    return jax.lax.dynamic_slice(orders, (epoch, (number % per_epoch) * batch_size), (1, batch_size))[0]


def _with_noise(sums: fused.Weights, keys: Any, number: Any, deviation: Any) -> fused.Weights:
    """Independent Gaussian noise on every weight; on the kernel's padding too, where it has no effect."""
    sizes = [int(np.prod(leaf.shape[1:])) for leaf in sums]
    own = jax.vmap(lambda key: jax.random.normal(jax.random.fold_in(key, number), (sum(sizes),)))(keys)
    parts = jnp.split(own, np.cumsum(sizes)[:-1].tolist(), axis=1)
    return fused.Weights(*(leaf + deviation * part.reshape(leaf.shape) for leaf, part in zip(sums, parts, strict=True)))


_OTHERS = 1.0  # what all models together say about an image weighs as much as one check of its own


class FusedExaminer:
    """An `Examiner` by forward passes of the fused kernel.

    All requests are cut into pieces of `at_once` blocks, so that one program is compiled; they are sent one after
    another and waited for together.
    """

    def __init__(
        self,
        shape: fused.Shape,
        table: Table,
        labels: NDArray[np.int32],
        checks: fused.Weights,
        *,
        block: int,
        at_once: int,
        part: int,
        interpret: bool,
    ) -> None:
        self.num_checks, self.num_models = checks.b1.shape[:2]
        self.num_images, self.block = len(labels), block
        self._shape, self._table = shape, table
        self._operands = make_operands(checks, shape.channels)
        self._labels = jnp.asarray(labels)
        self._at_once, self._part, self._interpret = at_once, part, interpret
        self._order: Any = None

    def study(self, checks: Ints) -> Ints:
        """Forward passes of all models of a check at a time."""
        rows = np.tile(np.arange(self.num_images, dtype=np.int32), (self.num_models, 1))
        padded = jnp.asarray(fill_up(rows, self._part))
        models = jnp.arange(self.num_models, dtype=jnp.int32)
        votes: Any = jnp.zeros((self.num_models, self.num_images), jnp.int32)
        counts = []
        for check in checks.tolist():
            found = scores_in_parts(
                self._table,
                padded,
                self._operands,
                check * self.num_models + models,
                shape=self._shape,
                part=self._part,
                interpret=self._interpret,
            )
            votes, count = _add_errors(votes, found, self._labels)
            counts.append(count)
        self._order = _hardest_first(votes, self.block)
        return np.stack(jax.device_get(counts)).astype(np.int64)

    def count(self, check: Ints, model: Ints, number: Ints) -> Ints:
        """Forward passes of one block a time, many blocks at once; what is missing of a piece repeats block 0."""
        wanted = fill_up(np.stack([check, model, number]).astype(np.int32), self._at_once)
        pieces = np.split(wanted, wanted.shape[1] // self._at_once, axis=1)
        counts = [
            _count_errors(
                self._operands,
                self._order,
                self._table,
                self._labels,
                piece,
                shape=self._shape,
                block=self.block,
                interpret=self._interpret,
            )
            for piece in pieces
        ]
        return np.concatenate(jax.device_get(counts))[: len(check)].astype(np.int64)


@jax.jit  # type: ignore[untyped-decorator]
def _add_errors(votes: Any, scores: Any, labels: Any) -> Any:
    """Who is wrong, added up by image, and of every model how often."""
    wrong = jnp.argmax(scores[:, : len(labels)], axis=2) != labels
    return votes + wrong, jnp.sum(wrong, axis=1)


@partial(jax.jit, static_argnames="block")
def _hardest_first(votes: Any, block: int) -> Any:
    """Of every model an order of the images, filled up with image 0 to whole blocks."""
    hardness = votes + _OTHERS * jnp.mean(votes.astype(jnp.float32), axis=0)
    order = jnp.argsort(-hardness, axis=1, stable=True).astype(jnp.int32)
    return jnp.pad(order, ((0, 0), (0, -order.shape[1] % block)))


@partial(jax.jit, static_argnames=("shape", "block", "interpret"))
def _count_errors(
    operands: fused.Weights,
    order: Any,
    table: Table,
    labels: Any,
    wanted: Any,
    *,
    shape: fused.Shape,
    block: int,
    interpret: bool,
) -> Any:
    check, model, number = wanted
    places = number[:, None] * block + jnp.arange(block)
    rows = order[model[:, None], places]
    owners = check * order.shape[0] + model
    found = fused.owners_scores(shape, table, rows, operands, owners, interpret=interpret)
    wrong = jnp.argmax(found, axis=2) != labels[rows]
    return jnp.sum(wrong & (places < len(labels)), axis=1)


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
