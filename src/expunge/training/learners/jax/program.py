"""The compiled training: a fixed number of models in lock-step, a loop over steps, the data on the device once.

A model's result is a function of its own rows, key and recipe. The recipe's setting fixes the number of models in a
program, however many shards there are to train. Missing ones are padding. Every model of a program is computed by the
same instructions at the same shapes, so its bits do not depend on the others. On a CPU a program holds one model, which
is also the fastest there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from expunge.core.checks import require_count, require_number
from expunge.core.errors import ParameterError
from expunge.training.learners.jax.gradients import Loss, clipped_sum, weighted_mean
from expunge.training.learners.jax.layers import Array
from expunge.training.learners.jax.networks import Architecture, fixed_key, one_line
from expunge.training.learners.jax.options import MOST_COUNT, PrivateSGD, as_transformation, poisson_capacity
from expunge.training.learners.jax.rows import epoch_batch, least_size, poisson_batch, shuffled_orders

_CHECKED_AT_ONCE = 500


@dataclass(frozen=True)
class Recipe:
    """Everything about a training that is fixed before any data is seen. Compiled programs are cached by it."""

    architecture: Architecture
    loss: Loss
    optimizer: Any  # an Optimizer or an Optax transformation
    num_classes: int
    batch_size: int
    steps: int | None
    epochs: int | None
    privacy: PrivateSGD | None
    check_every: int | None
    input_scale: float

    def num_steps(self, size: int) -> int:
        """The number of steps for a shard of so many rows."""
        if self.steps is not None:
            return self.steps
        assert self.epochs is not None
        return self.epochs * max(size // self.batch_size, 1)

    def num_epochs(self, least: int) -> int:
        """The most epochs that a shard of at least `least` rows can begin."""
        if self.steps is None:
            assert self.epochs is not None
            return self.epochs
        return -(-self.steps // max(least // self.batch_size, 1))


@lru_cache(maxsize=64)
def check_update(recipe: Recipe) -> None:
    """Refuse weights, a loss or an optimiser that a step cannot be made with. Computes nothing.

    Optimisers that need the loss besides the gradient (L-BFGS, Polyak's steps), or weights of a kind of their own, are
    refused.
    """
    architecture, optimizer = recipe.architecture, as_transformation(recipe.optimizer)
    weights = jax.eval_shape(lambda: architecture.init(fixed_key(), recipe.num_classes))
    for leaf in jax.tree.leaves(weights):
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise ParameterError(f"the network's weights must be arrays of floats, got one of type {leaf.dtype}")
    label = jax.ShapeDtypeStruct((), jnp.int32)
    try:
        loss = jax.eval_shape(recipe.loss, jax.ShapeDtypeStruct((recipe.num_classes,), jnp.float32), label)
    except Exception as error:
        raise ParameterError(f"the loss fails on the scores and the label of one example: {one_line(error)}") from error
    if getattr(loss, "shape", None) != ():
        found = getattr(loss, "shape", type(loss).__name__)
        raise ParameterError(f"the loss of one example must be a number, got {found}")
    try:
        jax.eval_shape(lambda own: optimizer.update(own, optimizer.init(own), own), weights)
    except Exception as error:
        words = "the optimizer cannot make a step from gradients and weights alone"
        raise ParameterError(f"{words}: {one_line(error)}") from error


def check_recipe(recipe: Recipe) -> None:
    """Refuse an impossible option in one clear line."""
    require_count("batch_size", recipe.batch_size, most=MOST_COUNT)
    if (recipe.steps is None) == (recipe.epochs is None):
        raise ParameterError(f"give either steps or epochs, got steps={recipe.steps!r}, epochs={recipe.epochs!r}")
    for name in ("steps", "epochs"):
        if getattr(recipe, name) is not None:
            require_count(name, getattr(recipe, name), most=MOST_COUNT)
    if not callable(recipe.loss):
        raise ParameterError(f"loss must be a function of scores and label, got {recipe.loss!r}")
    as_transformation(recipe.optimizer)  # one that cannot be made is an error here, not in training
    if recipe.privacy is not None and not isinstance(recipe.privacy, PrivateSGD):
        raise ParameterError(f"privacy must be a PrivateSGD or None, got {recipe.privacy!r}")
    if require_number("input_scale", recipe.input_scale) == 0:
        raise ParameterError(f"input_scale must be a number other than 0, got {recipe.input_scale!r}")


class ShardBatch(NamedTuple):
    """What a program trains on. The leading axis is the rows of all data, or the models of the program."""

    X: Array  # (rows, …) in the type it is stored in
    y: Array  # (rows,)
    weights: Array  # (rows,) float32
    rows: Array  # (models, capacity) into X
    sizes: Array  # (models,)
    steps: Array  # (models,)
    keys: Array  # (models, 2) raw threefry keys


class Checks(NamedTuple):
    """Validation rows, or arrays of no rows."""

    X: Array
    y: Array


class _State(NamedTuple):
    parameters: Any
    optimizer: Any
    best: Any
    best_correct: Array


Program = Callable[[ShardBatch, Checks, Any], Any]


@lru_cache(maxsize=64)
def training_program(recipe: Recipe, room: int, models: int, *, resumes: bool) -> Program:
    """The compiled function from data (and weights to start from, if it resumes) to trained weights, models first."""

    def run(shards: ShardBatch, checks: Checks, start: Any) -> Any:
        train = _Training(recipe, room)
        states, streams = _over_models(lambda raw, own: train.begin(raw, own), models)(
            shards.keys, start if resumes else None
        )
        orders = _over_models(train.orders, models)(streams, shards.sizes)

        def step(number: Array, states: _State) -> Any:
            def advance(state: _State, stream: Any, order: Any, rows: Array, size: Array, last: Array) -> _State:
                return train.step(state, stream, order, shards, rows, size, last, number)

            moved = _over_models(advance, models)(states, streams, orders, shards.rows, shards.sizes, shards.steps)
            if recipe.check_every is None:
                return moved
            due = (number + 1) % recipe.check_every == 0

            def check(states: _State) -> Any:
                def one(state: _State, last: Array) -> _State:
                    return train.check(state, checks, number < last)

                return _over_models(one, models)(states, shards.steps)

            return jax.lax.cond(due, check, lambda states: states, moved)

        final = jax.lax.fori_loop(0, jnp.max(shards.steps), step, states)
        return _over_models(train.result, models)(final)

    program: Program = jax.jit(run)
    return program


def _over_models(function: Callable[..., Any], models: int) -> Callable[..., Any]:
    """`vmap`, or for a single model the function itself between taking off and putting on the leading axis."""
    if models > 1:
        batched: Callable[..., Any] = jax.vmap(function)
        return batched

    def alone(*arguments: Any) -> Any:
        own = jax.tree.map(lambda leaf: leaf[0], arguments)
        return jax.tree.map(lambda leaf: leaf[None], function(*own))

    return alone


class _Training:
    """One model's training, as the pieces that the loop puts together."""

    def __init__(self, recipe: Recipe, room: int) -> None:
        self._recipe = recipe
        self._room = room
        self._optimizer = as_transformation(recipe.optimizer)

    def begin(self, raw_key: Array, start: Any) -> tuple[_State, Array]:
        """The initial weights, and the key of batches and noise; `start` is None for a fresh training."""
        key = jax.random.wrap_key_data(raw_key, impl="threefry2x32")
        init_key, stream = jax.random.split(key)
        recipe = self._recipe
        parameters = recipe.architecture.init(init_key, recipe.num_classes) if start is None else start
        best = parameters if recipe.check_every is not None else ()
        return _State(parameters, self._optimizer.init(parameters), best, jnp.int32(-1)), jax.random.key_data(stream)

    def orders(self, stream: Array, size: Array) -> Any:
        """The shuffles of all epochs, or an empty tuple for Poisson sampling."""
        if self._is_poisson:
            return ()
        num_epochs = self._recipe.num_epochs(least_size(self._room))
        return shuffled_orders(_key(stream, 0), size, self._room, num_epochs)

    def step(
        self,
        state: _State,
        stream: Array,
        orders: Any,
        shards: ShardBatch,
        rows: Array,
        size: Array,
        last: Array,
        number: Array,
    ) -> _State:
        """One step of the optimiser. It changes nothing once the model's own steps are over."""
        places, present = self._batch(stream, orders, size, number)
        chosen = rows[places]
        x, y = self._inputs(shards.X[chosen]), shards.y[chosen]
        gradient = self._gradient(state.parameters, x, y, present, shards.weights[chosen], _key(stream, 1), number)
        updates, optimizer = self._optimizer.update(gradient, state.optimizer, state.parameters)
        parameters = optax.apply_updates(state.parameters, updates)
        active = number < last
        kept = jax.tree.map(
            lambda new, old: jnp.where(active, new, old), (parameters, optimizer), (state.parameters, state.optimizer)
        )
        return state._replace(parameters=kept[0], optimizer=kept[1])

    def check(self, state: _State, checks: Checks, active: Array) -> _State:
        """Keep the weights so far if no earlier check was better."""
        correct = _count_correct(self._recipe, state.parameters, checks, self._inputs)
        better = active & (correct >= state.best_correct)
        best = jax.tree.map(lambda new, old: jnp.where(better, new, old), state.parameters, state.best)
        return state._replace(best=best, best_correct=jnp.where(better, correct, state.best_correct))

    def result(self, state: _State) -> Any:
        """The last weights, or those of the best check if there was one."""
        if self._recipe.check_every is None:
            return state.parameters
        checked = state.best_correct >= 0
        return jax.tree.map(lambda best, last: jnp.where(checked, best, last), state.best, state.parameters)

    @property
    def _is_poisson(self) -> bool:
        return self._recipe.privacy is not None and self._recipe.privacy.sampling == "poisson"

    def _batch(self, stream: Array, orders: Any, size: Array, number: Array) -> tuple[Array, Array]:
        batch_size = self._recipe.batch_size
        if self._is_poisson:
            key = jax.random.fold_in(_key(stream, 0), number)
            return poisson_batch(key, size, self._room, batch_size, min(poisson_capacity(batch_size), self._room))
        return epoch_batch(orders, size, number, batch_size)

    def _inputs(self, raw: Array) -> Array:
        shaped = raw.reshape(raw.shape[0], *self._recipe.architecture.input_shape).astype(jnp.float32)
        return shaped if self._recipe.input_scale == 1 else shaped * self._recipe.input_scale

    def _gradient(
        self, parameters: Any, x: Array, y: Array, present: Array, weights: Array, key: Array, number: Array
    ) -> Any:
        recipe, privacy = self._recipe, self._recipe.privacy
        if privacy is None:
            return weighted_mean(recipe.architecture, recipe.loss, parameters, x, y, present * weights)
        total = clipped_sum(recipe.architecture, recipe.loss, parameters, x, y, present, privacy.clip_norm)
        if privacy.noise_multiplier > 0:
            deviation = privacy.clip_norm * privacy.noise_multiplier
            total = add_noise(total, jax.random.fold_in(key, number), deviation)
        # In the weights' own type, which may differ from that of the sum.
        return jax.tree.map(lambda leaf, own: (leaf / recipe.batch_size).astype(own.dtype), total, parameters)


def add_noise(total: Any, key: Array, deviation: float) -> Any:
    """Independent Gaussian noise on every number of a tree, from one draw."""
    leaves, structure = jax.tree.flatten(total)
    bounds = [0]
    for leaf in leaves:
        bounds.append(bounds[-1] + leaf.size)
    noise = deviation * jax.random.normal(key, (bounds[-1],))
    noisy = [
        leaf + noise[low:high].reshape(leaf.shape)
        for leaf, low, high in zip(leaves, bounds[:-1], bounds[1:], strict=True)
    ]
    return jax.tree.unflatten(structure, noisy)


def _key(stream: Array, purpose: int) -> Array:
    """Independent keys for the batches (0) and the noise (1)."""
    return jax.random.fold_in(jax.random.wrap_key_data(stream, impl="threefry2x32"), purpose)


def _count_correct(recipe: Recipe, parameters: Any, checks: Checks, inputs: Callable[[Array], Array]) -> Array:
    """Count the validation rows that are classified correctly, a few at a time."""
    total, count = checks.y.shape[0], jnp.int32(0)
    at_once = min(total, _CHECKED_AT_ONCE)
    whole = total // at_once

    def correct(x: Array, y: Array) -> Array:
        return jnp.sum(jnp.argmax(recipe.architecture.apply(parameters, inputs(x)), axis=1) == y).astype(jnp.int32)

    used = whole * at_once
    parts = (
        checks.X[:used].reshape(whole, at_once, *checks.X.shape[1:]),
        checks.y[:used].reshape(whole, at_once),
    )
    count = jnp.sum(jax.lax.map(lambda part: correct(*part), parts)).astype(jnp.int32)
    return count if used == total else count + correct(checks.X[used:], checks.y[used:])


def use_compilation_cache(folder: str | Path) -> None:
    """Keep every compiled program in a folder, and use it again in later processes.

    Parameters
    ----------
    folder
        The folder. It is made if it is missing.
    """
    Path(folder).mkdir(parents=True, exist_ok=True)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
