"""The compiled training of many models in lock-step through the fused kernel.

Noise and learning rate are arguments of the program: rows of the table that differ in nothing else share it. Without
noise it is another program, which draws none.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from expunge.training.learners.jax.rows import capacity, shuffled_orders
from expunge_lab import kernels as fused
from expunge_lab.reproduction.rows import CHECK_EVERY, CLIP_NORM, MOMENTUM, Experiment
from expunge_lab.reproduction.white_box.scoring import Table

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
