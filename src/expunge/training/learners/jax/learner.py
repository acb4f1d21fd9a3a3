"""The JAX learner: any network, any Optax optimiser, all shards in as few programs as memory allows.

Votes of all shards in one call.

Models as named arrays and plain values, and back: what a store writes as safetensors.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from expunge.core.errors import ExpungeError, InputError, ParameterError
from expunge.core.features import Features, num_rows
from expunge.training.learners.jax.architecture import Architecture, as_architecture, check_rows, check_scores
from expunge.training.learners.jax.batches import capacity
from expunge.training.learners.jax.gradients import Loss, cross_entropy
from expunge.training.learners.jax.layers import Shape
from expunge.training.learners.jax.model import JaxModel, dense_rows, row_blocks, vote_program
from expunge.training.learners.jax.options import PrivateSGD, check_whole, sgd
from expunge.training.learners.jax.program import Checks, ShardBatch, training_program
from expunge.training.learners.jax.recipe import Recipe, Validation, check_recipe, check_update
from expunge.training.learners.jax.rows import (
    MOST_MODELS,
    copied_rows,
    largest_fitting,
    program_bytes,
    shared_rows,
    stored_rows,
)
from expunge.training.learners.protocol import (
    ABSTAIN,
    Abstainer,
    Codes,
    Model,
    ShardData,
    SharedShard,
    Voter,
    Weights,
    count_votes,
)
from expunge.training.learners.scikit import ConstantModel


class JaxVoter:
    """All networks' weights stacked on the device; constants and abstentions are filled in.

    With `memory` (bytes) the weights are sent there for every block of rows, as many models together as fit.
    """

    def __init__(self, models: Sequence[Model], num_classes: int, *, memory: int | None = None) -> None:
        self._num_classes, self._memory = num_classes, memory
        networks = [(shard, model) for shard, model in enumerate(models) if isinstance(model, JaxModel)]
        self._shards = np.array([shard for shard, _ in networks], dtype=np.intp)
        self._fixed = np.array(
            [model.code if isinstance(model, ConstantModel) else ABSTAIN for model in models], dtype=np.int32
        )
        self._program: Any = None
        if networks:
            first = networks[0][1]
            stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *(model.parameters for _, model in networks))
            self._stacked = stacked if memory is not None else jax.device_put(stacked)
            self._program = vote_program(first.architecture, first.input_scale)  # type: ignore[arg-type]
        self._fitting: dict[Any, int] = {}

    def count(self, X: Features) -> NDArray[np.int64]:
        """Votes for each class."""
        return count_votes(self.votes(X), self._num_classes)

    def votes(self, X: Features) -> Codes:
        """Every shard's vote."""
        table = np.tile(self._fixed, (num_rows(X), 1))
        if self._program is None:
            return table
        first = 0
        for block, used in row_blocks(X):
            table[first : first + used, self._shards] = self._ask(block)[:used]
            first += used
        return table

    def _ask(self, block: NDArray[Any]) -> Codes:
        """(rows, models)."""
        number = len(self._shards)
        size = self._models_at_once(block)
        if size == number:
            return np.asarray(self._program(self._stacked, block))
        votes = []
        for start in range(0, number, size):
            places = np.minimum(np.arange(start, start + size), number - 1)  # always as many: one program
            votes.append(np.asarray(self._program(self._chosen(places), block)))
        return np.concatenate(votes, axis=1)[:, :number]

    def _models_at_once(self, block: NDArray[Any]) -> int:
        number, key = len(self._shards), (block.shape, block.dtype)
        if self._memory is None:
            return number
        if key not in self._fitting:
            self._fitting[key] = largest_fitting(
                lambda models: self._bytes(models, block), self._memory, most=number, purpose="ask"
            )
        return self._fitting[key]

    def _bytes(self, models: int, block: NDArray[Any]) -> int:
        return program_bytes(self._program.lower(self._chosen(np.zeros(models, np.intp)), block).compile())

    def _chosen(self, places: NDArray[np.intp]) -> Any:
        return jax.tree.map(lambda leaves: leaves[places], self._stacked)


StoredModel = dict[str, NDArray[Any] | int | float | str]


def dump_model(model: Model) -> StoredModel:
    """What `load_model` needs besides the learner's own settings."""
    if isinstance(model, Abstainer):
        return {"kind": "abstain"}
    if isinstance(model, ConstantModel):
        return {"kind": "constant", "code": model.code}
    if isinstance(model, JaxModel):
        return {"kind": "network", **dump_parameters(model.parameters)}
    raise InputError(f"the JAX learner cannot store a {type(model).__name__}")


def load_model(stored: Mapping[str, Any], shapes: Any, make: Callable[[Any], Model]) -> Model:
    """The model; `shapes` is the tree of weights that the learner's network has, `make` turns weights into a model."""
    kind = stored.get("kind")
    if kind == "abstain":
        return Abstainer()
    if kind == "constant":
        return ConstantModel(int(stored["code"]))
    if kind == "network":
        return make(load_parameters(stored, shapes))
    raise InputError(f"a stored model must be of kind 'abstain', 'constant' or 'network', got {kind!r}")


def dump_parameters(parameters: Any) -> dict[str, NDArray[Any]]:
    """Every array under its path in the tree; in a type of numpy's own, so that a store can read it again."""
    return {
        "weights" + jax.tree_util.keystr(path): np.ascontiguousarray(_stored(leaf))
        for path, leaf in jax.tree_util.tree_leaves_with_path(parameters)
    }


def _stored(leaf: NDArray[Any]) -> NDArray[Any]:
    """Numbers of fewer bits than numpy has (bfloat16) as float32, which loses nothing; they are read as they were."""
    return leaf.astype(np.float32) if leaf.dtype.kind == "V" else leaf


def load_parameters(stored: Mapping[str, Any], shapes: Any) -> Any:
    """The tree again; an array that is missing, surplus or of another shape is an error that names it."""

    def one(path: Any, expected: Any) -> NDArray[Any]:
        name = "weights" + jax.tree_util.keystr(path)
        found = np.asarray(stored.get(name, np.empty(0)))
        if found.shape != expected.shape:
            raise InputError(f"stored weights {name} must have the shape {expected.shape}, got {found.shape}")
        return np.array(found, dtype=expected.dtype)

    parameters = jax.tree_util.tree_map_with_path(one, shapes)
    surplus = set(stored) - set(dump_parameters(parameters)) - {"kind"}
    if surplus:
        raise InputError(f"stored weights {min(surplus)} belong to another network")
    return parameters


_DEFAULT_OPTIMIZER = sgd(0.1, momentum=0.9)


@dataclass(frozen=True, eq=False)
class JaxLearner:
    """Trains a network on every shard.

    `network` is a built-in `Network`, a pair of pure functions `(init(key), apply(parameters, batch))`, a Flax (linen)
    module, or a function from a key to an Equinox or Flax NNX module; all but the first need `input_shape`. Rows are
    given that shape, turned into float32 and multiplied by `input_scale` (1/255 for bytes). Training takes `steps`
    steps, or `epochs` passes, over batches cut from shuffled epochs (an incomplete last batch is dropped; a shard
    smaller than a batch is one batch). `privacy` makes it DP-SGD; `validation` chooses the best weights on the way.

    A shard with one class is a constant without training, except under DP-SGD, where that would tell about its records;
    a shard without rows abstains. A model is a function of the shard's rows and seed, to the bit, whatever it is
    trained together with: programs always hold `models_at_once` models (missing ones are padding), and a shard's arrays
    are padded to a size that depends on its own number of rows alone. By default that is one on a CPU and otherwise as
    many as `max_device_memory` (bytes) allows, 16 at most.
    """

    network: Any
    _: KW_ONLY
    batch_size: int = 64
    steps: int | None = None
    epochs: int | None = None
    optimizer: Any = _DEFAULT_OPTIMIZER
    loss: Loss = cross_entropy
    privacy: PrivateSGD | None = None
    validation: Validation | None = None
    input_shape: Shape | None = None
    input_scale: float = 1.0
    num_classes: int | None = None
    max_device_memory: int | None = None
    models_at_once: int | None = None

    def __post_init__(self) -> None:
        if self.validation is not None:
            if not isinstance(self.validation, Validation):
                raise ParameterError(f"validation must be a Validation or None, got {self.validation!r}")
            check_rows(self.architecture, self.validation.X, what="validation rows")
        check_recipe(self._recipe(2))
        if self.num_classes is not None:
            check_whole("num_classes", self.num_classes)
            if self.num_classes < 2:
                raise ParameterError(f"num_classes must be at least 2, got {self.num_classes!r}")
        if self.models_at_once is not None:
            check_whole("models_at_once", self.models_at_once)
        if self.max_device_memory is not None:
            check_whole("max_device_memory", self.max_device_memory, most=None)

    @cached_property
    def architecture(self) -> Architecture:
        """The network as two pure functions."""
        return as_architecture(self.network, self.input_shape)

    @cached_property
    def recipe(self) -> Recipe:
        """What programs are compiled for."""
        if self.num_classes is None:
            raise ParameterError("the number of classes is not known: give num_classes, or use for_classes first")
        return self._recipe(self.num_classes)

    def _recipe(self, num_classes: int) -> Recipe:
        every = None if self.validation is None else self.validation.every
        return Recipe(
            architecture=self.architecture,
            loss=self.loss,
            optimizer=self.optimizer,
            num_classes=num_classes,
            batch_size=self.batch_size,
            steps=self.steps,
            epochs=self.epochs,
            privacy=self.privacy,
            check_every=every,
            input_scale=self.input_scale,
        )

    def for_classes(self, classes: NDArray[Any]) -> JaxLearner:
        """The same learner for as many classes as there are labels, its validation labels read as these."""
        validation = None if self.validation is None else self.validation.for_classes(classes)
        return replace(self, num_classes=len(classes), validation=validation)

    def is_constant(self, y: NDArray[Any]) -> bool:
        """Whether a shard with these labels needs no training."""
        return self.privacy is None and bool((y == y[0]).all())

    def fit(self, X: Features, y: Codes, seed: int, *, weights: Weights | None = None) -> Model:
        """One shard's model."""
        return self.fit_many([ShardData(0, X, y, weights, seed)])[0]

    def fit_many(self, shards: Sequence[ShardData | SharedShard]) -> list[Model]:
        """All shards' models, grouped by the size of their programs."""
        models: list[Model | None] = [None] * len(shards)
        groups: dict[int, list[int]] = {}
        for number, shard in enumerate(shards):
            codes = np.asarray(shard.y)
            if not len(codes):
                models[number] = Abstainer()
            elif self.is_constant(codes):
                models[number] = ConstantModel(int(codes[0]))
            else:
                groups.setdefault(capacity(len(codes)), []).append(number)
        for room, numbers in groups.items():
            trained = self.train([shards[number] for number in numbers], room)
            for number, parameters in zip(numbers, trained, strict=True):
                models[number] = self.make_model(parameters)
        return [model for model in models if model is not None]

    @property
    def shards_at_once(self) -> int:
        """What fills a program, and on a CPU every core with one."""
        on_cpu = jax.default_backend() == "cpu"
        models = self.models_at_once or (1 if on_cpu else MOST_MODELS)
        side_by_side = on_cpu and self.max_device_memory is None
        return models * ((os.cpu_count() or 1) if side_by_side else 1)

    @property
    def shares_rows(self) -> bool:
        """Whether shards come as places in rows that are on the device once; a CPU reads them where they are anyway.

        Not with a bound on memory, which these rows would not keep to.
        """
        return jax.default_backend() != "cpu" and self.max_device_memory is None

    def make_model(self, parameters: Any) -> JaxModel:
        """The model of trained weights."""
        return JaxModel(self.architecture, parameters, self.input_scale)

    def train(
        self, shards: Sequence[ShardData | SharedShard], room: int, starts: Sequence[Any] | None = None
    ) -> list[Any]:
        """Weights of shards that share one capacity, a program at a time; each goes on from its own of `starts`."""
        self._check_shards(shards)
        at_once = self.models_in_program(room, stored_rows(shards[0]), None if starts is None else starts[0])
        program = training_program(self.recipe, room, at_once, resumes=starts is not None)

        def run(first: int) -> tuple[int, Any]:
            part = list(shards[first : first + at_once])
            padding = at_once - len(part)
            begin = None if starts is None else _stacked([*starts[first : first + at_once], *[starts[first]] * padding])
            return len(part), program(self._batch(part + [part[0]] * padding, room), self._checks, begin)

        parts = range(0, len(shards), at_once)
        # On a CPU a loop's steps use one core each, so as many programs run side by side as there are cores. Elsewhere
        # the next program's rows are gathered while one runs. A bound on memory is a bound on one program, which then
        # runs alone.
        if self.max_device_memory is None and jax.default_backend() == "cpu" and len(parts) > 1:
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                waiting = list(pool.map(lambda first: jax.block_until_ready(run(first)), parts))
        else:
            waiting = []
            # Fetched one by one: what is trained does not pile up on the device.
            late = 0 if self.max_device_memory is not None else 1
            for number, first in enumerate(parts):
                waiting.append(run(first))
                if number >= late:
                    waiting[number - late] = jax.device_get(waiting[number - late])
        trained = []
        for used, stacked in waiting:
            arrays = jax.tree.map(np.asarray, stacked)
            trained += [jax.tree.map(lambda leaf, at=at: leaf[at].copy(), arrays) for at in range(used)]
        for weights in trained:
            _check_finite(weights)
        return trained

    def _check_shards(self, shards: Sequence[ShardData | SharedShard]) -> None:
        """One clear line where rows, labels or scores do not fit; JAX would clamp a label that has no score."""
        check_scores(self.architecture, self.recipe.num_classes)  # type: ignore[arg-type]
        check_update(self.recipe)
        check_rows(self.architecture, stored_rows(shards[0]))
        for shard in shards:
            codes = np.asarray(shard.y)
            if codes.ndim != 1:
                raise InputError(f"there must be one label a row, got labels of the shape {codes.shape}")
            if isinstance(shard, ShardData) and len(codes) != num_rows(shard.X):
                raise InputError(f"there must be a label a row, got {num_rows(shard.X)} rows and {len(codes)} labels")
            if shard.weights is not None and np.shape(shard.weights) != codes.shape:
                shape = np.shape(shard.weights)
                raise InputError(
                    f"there must be a weight a row, got {len(codes)} rows and weights of the shape {shape}"
                )
            if codes.dtype.kind not in "iub":
                highest = self.recipe.num_classes - 1
                raise InputError(f"labels must be codes from 0 to {highest}, got values of type {codes.dtype}")
            if codes.min() < 0 or codes.max() >= self.recipe.num_classes:
                raise InputError(
                    f"labels must be codes from 0 to {self.recipe.num_classes - 1}, got {codes.min()} to {codes.max()}"
                )

    def models_in_program(self, room: int, rows: NDArray[Any], start: Any = None) -> int:
        """How many models a program for shards of this capacity holds; decided by settings and shapes alone."""
        key = (room, rows.shape[1:], rows.dtype, start is not None)
        if key not in self._chosen:
            self._chosen[key] = largest_fitting(
                lambda models: self._bytes(models, room, rows, start), self.max_device_memory, most=self.models_at_once
            )
        return self._chosen[key]

    @cached_property
    def _chosen(self) -> dict[Any, int]:
        return {}

    def _bytes(self, models: int, room: int, rows: NDArray[Any], start: Any = None) -> int:
        blank = np.zeros((1, *rows.shape[1:]), rows.dtype)
        shard = ShardData(0, blank, np.zeros(1, dtype=np.int32), None, 0)
        program: Any = training_program(self.recipe, room, models, resumes=start is not None)
        begin = None if start is None else _stacked([start] * models)
        given = self._batch([shard] * models, room), self._checks, begin
        return program_bytes(program.lower(*given).compile())

    def _batch(self, shards: Sequence[ShardData | SharedShard], room: int) -> ShardBatch:
        """Rows on the device, and of every shard its places, padded to the capacity."""
        codes = [shard.y for shard in shards]
        if self.privacy is not None and any(shard.weights is not None for shard in shards):
            raise ParameterError("DP-SGD does not take sample weights: clipping bounds every record alike")
        whole = shards[0].whole if isinstance(shards[0], SharedShard) else None
        data, index = copied_rows(shards, room) if whole is None else shared_rows(whole, shards, room)
        sizes = np.array([len(own) for own in codes], dtype=np.int32)
        steps = np.array([self.recipe.num_steps(len(own)) for own in codes], dtype=np.int32)
        keys = np.array([raw_key(shard.seed) for shard in shards], dtype=np.uint32)
        return ShardBatch(*data, index, sizes, steps, keys)

    @cached_property
    def _checks(self) -> Checks:
        if self.validation is None:
            return Checks(jax.device_put(np.zeros((0, 1), np.float32)), jax.device_put(np.zeros(0, np.int32)))
        rows = dense_rows(self.validation.X)
        return Checks(jax.device_put(rows), jax.device_put(self.validation.class_codes(self.recipe.num_classes)))

    def make_voter(self, models: Sequence[Model], num_classes: int) -> Voter:
        """All shards in one call."""
        return JaxVoter(models, num_classes, memory=self.max_device_memory)

    def dump_model(self, model: Model) -> StoredModel:
        """A model as named arrays and plain values, for a format that cannot run code."""
        return dump_model(model)

    def load_model(self, stored: StoredModel) -> Model:
        """The model that was dumped."""
        shapes = jax.eval_shape(
            lambda: self.architecture.init(jax.random.key(0, impl="threefry2x32"), self.recipe.num_classes)
        )
        return load_model(stored, shapes, self.make_model)

    def __getstate__(self) -> dict[str, Any]:
        """The settings alone: what was derived from them is made anew."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def _stacked(starts: Sequence[Any]) -> Any:
    """Weights to go on from, those of a program's models together."""
    return jax.tree.map(lambda *leaves: np.stack(leaves), *starts)


def _check_finite(weights: Any) -> None:
    """A network that diverged would abstain, whatever it is asked."""
    for leaf in jax.tree.leaves(weights):
        if jax.numpy.issubdtype(leaf.dtype, jax.numpy.inexact) and not np.isfinite(leaf).all():
            raise ExpungeError("training diverged: a weight is not a finite number (try a smaller learning rate)")


def raw_key(seed: int) -> tuple[int, int]:
    """All 64 bits of a seed as a threefry key."""
    if not isinstance(seed, int | np.integer) or not 0 <= seed < 1 << 64:
        raise ParameterError(f"a seed must be a whole number of 64 bits, got {seed!r}")
    return seed >> 32, seed & 0xFFFFFFFF
