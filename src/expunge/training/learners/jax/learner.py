"""The JAX learner: any network, any Optax optimiser, all shards in as few programs as memory allows.

`SlicedJaxLearner` trains slice by slice. Its checkpoint is the weights after a slice (the S of SISA).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from importlib.metadata import version
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from expunge.core.checks import require_count
from expunge.core.errors import ExpungeError, InputError, ParameterError
from expunge.core.features import Features, num_rows
from expunge.training.learners.jax import rows
from expunge.training.learners.jax.gradients import Loss, cross_entropy
from expunge.training.learners.jax.layers import Shape
from expunge.training.learners.jax.model import JaxModel, JaxVoter, StoredModel, dump_model, load_model
from expunge.training.learners.jax.networks import Architecture, as_architecture, check_rows, check_scores, fixed_key
from expunge.training.learners.jax.options import MOST_COUNT, PrivateSGD, Validation, sgd
from expunge.training.learners.jax.program import (
    Checks,
    Recipe,
    ShardBatch,
    check_recipe,
    check_update,
    training_program,
)
from expunge.training.learners.protocol import Abstainer, Codes, Model, ShardData, SharedShard, Voter, Weights
from expunge.training.learners.scikit import ConstantModel
from expunge.training.learners.slices import SlicedModel

_SETTINGS = ("enable_x64", "threefry_partitionable", "default_matmul_precision")  # of JAX, which decide bits
_DEFAULT_OPTIMIZER = sgd(0.1, momentum=0.9)
_PROGRAMS_IN_A_ROW = 16  # of one call on an accelerator: the rows of the next are gathered while one runs


@dataclass(frozen=True, eq=False)
class JaxLearner:
    """A learner that trains a network on every shard.

    Training takes `steps` steps, or `epochs` passes, over batches cut from shuffled epochs. An incomplete last batch is
    dropped; a shard smaller than a batch is one batch.

    A shard with one class is a constant without training, except under DP-SGD, where that would tell about its records.
    A shard without rows abstains.

    A model is a function of the shard's rows and seed, to the bit, and does not depend on the shards trained with it.
    For that, programs always hold `models_at_once` models (missing ones are padding), and a shard's arrays are padded
    to a size that depends on its own number of rows alone. Bits are those of one device and one version of JAX.

    Parameters
    ----------
    network
        A built-in `Network`, a pair of pure functions `(init(key), apply(parameters, batch))`, a Flax (linen) module,
        or a function from a key to an Equinox or Flax NNX module.
    batch_size
        Examples in a batch.
    steps, epochs
        The length of the training. Give one of the two.
    optimizer
        An `Optimizer`, or an Optax transformation that steps by gradients and weights alone.
    loss
        A function from the scores and the label of one example to a number.
    privacy
        `PrivateSGD` makes the training DP-SGD.
    validation
        Public examples that choose the best weights on the way.
    input_shape
        The shape of one example. Needed unless the network is a built-in one.
    input_scale
        Rows are turned into float32 and multiplied by this (1/255 for bytes).
    num_classes
        Set by `for_classes`. Give it if you use the learner by itself.
    max_device_memory
        A bound on the memory of one program, in bytes.
    models_at_once
        Models in a program. One, the default, makes a deletion cheapest: a program is the least that is trained. On a
        GPU many models in a program train the whole ensemble faster (`docs/performance.md` says by how much).

    Raises
    ------
    ParameterError
        If an option is impossible, or a layer has randomness or a state of its own.

    Examples
    --------
    >>> from expunge.training.learners.jax import logistic
    >>> X, y = np.repeat(np.eye(2), 20, axis=0), np.repeat([0, 1], 20)
    >>> learner = JaxLearner(logistic(input_shape=(2,)), steps=50, batch_size=8, num_classes=2)
    >>> learner.fit(X, y, seed=0).predict(np.eye(2))
    array([0, 1])
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
    models_at_once: int = 1

    def __post_init__(self) -> None:
        if self.validation is not None:
            if not isinstance(self.validation, Validation):
                raise ParameterError(f"validation must be a Validation or None, got {self.validation!r}")
            check_rows(self.architecture, self.validation.X, what="validation rows")
        check_recipe(self._recipe(2))
        if self.num_classes is not None:
            require_count("num_classes", self.num_classes, least=2, most=MOST_COUNT)
        require_count("models_at_once", self.models_at_once, most=MOST_COUNT)
        if self.max_device_memory is not None:
            require_count("max_device_memory", self.max_device_memory)

    @cached_property
    def architecture(self) -> Architecture:
        """The network as two pure functions."""
        return as_architecture(self.network, self.input_shape)

    @cached_property
    def recipe(self) -> Recipe:
        """What programs are compiled for. Raises `ParameterError` if the number of classes is not known."""
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

    def environment(self) -> dict[str, str]:
        """The versions of JAX and XLA, the device and the settings of JAX: other ones may give other bits.

        On processors XLA divides sums by how many of them the process may use, so their number counts too.
        """
        device = jax.devices()[0]
        words = dict.fromkeys([device.platform, device.device_kind, device.client.platform_version])
        facts = {"jax": jax.__version__, "jaxlib": version("jaxlib"), "jax device": " ".join(words)}
        facts["jax settings"] = ", ".join(f"{name} {getattr(jax.config, 'jax_' + name)}" for name in _SETTINGS)
        return {**facts, "jax processors": str(_processors())} if device.platform == "cpu" else facts

    def is_constant(self, y: NDArray[Any]) -> bool:
        """Whether a shard with these labels needs no training."""
        return self.privacy is None and bool((y == y[0]).all())

    def fit(self, X: Features, y: Codes, seed: int, *, weights: Weights | None = None) -> Model:
        """Train one shard. Raises `InputError` where rows or labels do not fit, `ExpungeError` if training diverged."""
        return self.fit_many([ShardData(0, X, y, weights, seed)])[0]

    def fit_many(self, shards: Sequence[ShardData | SharedShard]) -> list[Model]:
        """Train all shards, grouped by the size of their programs. The models come in the order of the shards."""
        models: list[Model | None] = [None] * len(shards)
        groups: dict[int, list[int]] = {}
        for number, shard in enumerate(shards):
            codes = np.asarray(shard.y)
            if not len(codes):
                models[number] = Abstainer()
            elif self.is_constant(codes):
                models[number] = ConstantModel(int(codes[0]))
            else:
                groups.setdefault(rows.capacity(len(codes)), []).append(number)
        for room, numbers in groups.items():
            trained = self.train([shards[number] for number in numbers], room)
            for number, parameters in zip(numbers, trained, strict=True):
                models[number] = self.make_model(parameters)
        return [model for model in models if model is not None]

    @property
    def shards_at_once(self) -> int:
        """The number of shards that fill a program; on a CPU one program for each core, elsewhere some to follow it."""
        if self.max_device_memory is not None:
            return self.models_at_once
        on_cpu = jax.default_backend() == "cpu"
        return self.models_at_once * ((os.cpu_count() or 1) if on_cpu else _PROGRAMS_IN_A_ROW)

    @property
    def shares_rows(self) -> bool:
        """Whether shards come as places in rows that are sent to the device once.

        A CPU reads the rows where they are, so it needs no copy. A bound on memory forbids this: the rows could exceed
        it.
        """
        return jax.default_backend() != "cpu" and self.max_device_memory is None

    def make_model(self, parameters: Any) -> JaxModel:
        """The model of trained weights."""
        return JaxModel(self.architecture, parameters, self.input_scale)

    def train(
        self, shards: Sequence[ShardData | SharedShard], room: int, starts: Sequence[Any] | None = None
    ) -> list[Any]:
        """Train shards that share one capacity, a program at a time. Each continues from its own entry of `starts`."""
        self._check_shards(shards)
        at_once = self.models_in_program(room, rows.stored_rows(shards[0]), None if starts is None else starts[0])
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
        """Refuse rows, labels or scores that do not fit. JAX itself would clamp a label that has no score."""
        check_scores(self.architecture, self.recipe.num_classes)  # type: ignore[arg-type]
        check_update(self.recipe)
        check_rows(self.architecture, rows.stored_rows(shards[0]))
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

    def models_in_program(self, room: int, table: NDArray[Any], start: Any = None) -> int:
        """The number of models in a program for shards of this capacity. Settings and shapes alone decide it."""
        key = (room, table.shape[1:], table.dtype, start is not None)
        if key not in self._chosen:
            self._chosen[key] = rows.largest_fitting(
                lambda models: self._bytes(models, room, table, start), self.max_device_memory, most=self.models_at_once
            )
        return self._chosen[key]

    @cached_property
    def _chosen(self) -> dict[Any, int]:
        return {}

    def _bytes(self, models: int, room: int, table: NDArray[Any], start: Any = None) -> int:
        blank = np.zeros((1, *table.shape[1:]), table.dtype)
        shard = ShardData(0, blank, np.zeros(1, dtype=np.int32), None, 0)
        program: Any = training_program(self.recipe, room, models, resumes=start is not None)
        begin = None if start is None else _stacked([start] * models)
        given = self._batch([shard] * models, room), self._checks, begin
        return rows.program_bytes(program.lower(*given).compile())

    def _batch(self, shards: Sequence[ShardData | SharedShard], room: int) -> ShardBatch:
        """The rows on the device, and every shard's places in them, padded to the capacity."""
        codes = [shard.y for shard in shards]
        if self.privacy is not None and any(shard.weights is not None for shard in shards):
            raise ParameterError("DP-SGD does not take sample weights: clipping bounds every record alike")
        whole = shards[0].whole if isinstance(shards[0], SharedShard) else None
        data, index = rows.copied_rows(shards, room) if whole is None else rows.shared_rows(whole, shards, room)
        sizes = np.array([len(own) for own in codes], dtype=np.int32)
        steps = np.array([self.recipe.num_steps(len(own)) for own in codes], dtype=np.int32)
        keys = np.array([raw_key(shard.seed) for shard in shards], dtype=np.uint32)
        return ShardBatch(*data, index, sizes, steps, keys)

    @cached_property
    def _checks(self) -> Checks:
        if self.validation is None:
            return Checks(jax.device_put(np.zeros((0, 1), np.float32)), jax.device_put(np.zeros(0, np.int32)))
        table = rows.dense_rows(self.validation.X)
        return Checks(jax.device_put(table), jax.device_put(self.validation.class_codes(self.recipe.num_classes)))

    def make_voter(self, models: Sequence[Model], num_classes: int) -> Voter:
        """All shards in one call."""
        return JaxVoter(models, num_classes, memory=self.max_device_memory)

    def dump_model(self, model: Model) -> StoredModel:
        """A model as named arrays and plain values, for a format that cannot run code."""
        return dump_model(model)

    def load_model(self, stored: StoredModel) -> Model:
        """The model that was dumped."""
        shapes = jax.eval_shape(lambda: self.architecture.init(fixed_key(), self.recipe.num_classes))
        return load_model(stored, shapes, self.make_model)

    def __getstate__(self) -> dict[str, Any]:
        """The settings alone. What was derived from them is computed again."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def _stacked(starts: Sequence[Any]) -> Any:
    """The starting weights of a program's models, stacked."""
    return jax.tree.map(lambda *leaves: np.stack(leaves), *starts)


def _check_finite(weights: Any) -> None:
    """Refuse a network that diverged: it would abstain on every question."""
    for leaf in jax.tree.leaves(weights):
        if jax.numpy.issubdtype(leaf.dtype, jax.numpy.inexact) and not np.isfinite(leaf).all():
            raise ExpungeError("training diverged: a weight is not a finite number (try a smaller learning rate)")


def raw_key(seed: int) -> tuple[int, int]:
    """All 64 bits of a seed as a threefry key."""
    require_count("seed", seed, least=0, most=2**64 - 1)
    return seed >> 32, seed & 0xFFFFFFFF


@dataclass(frozen=True, eq=False)
class SlicedJaxLearner:
    """A learner that trains a network on slice after slice, with a fresh optimiser for each.

    A deletion resumes at the first slice that it touches. The learner's `steps` or `epochs` are those of one slice.

    Parameters
    ----------
    learner
        The learner of each slice.
    num_slices
        The number of slices, from 1 to 65,535.
    is_cumulative
        Whether a slice is trained together with all before it, as in SISA, or alone.

    Raises
    ------
    ParameterError
        If the learner is not a `JaxLearner`, or the number of slices is out of range.

    Examples
    --------
    >>> from expunge.training.learners.jax import logistic
    >>> sliced = SlicedJaxLearner(JaxLearner(logistic(input_shape=(2,)), epochs=2), num_slices=4)
    >>> sliced.num_slices
    4
    """

    learner: JaxLearner
    num_slices: int
    is_cumulative: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.learner, JaxLearner):
            raise ParameterError(f"the learner of slices must be a JaxLearner, got {self.learner!r}")
        require_count("num_slices", self.num_slices, most=2**16 - 1)

    @property
    def shards_at_once(self) -> int:
        """As many as the learner takes: the same slice of all of them is trained together."""
        return self.learner.shards_at_once

    def for_classes(self, classes: NDArray[Any]) -> SlicedJaxLearner:
        """The same learner for as many classes as there are labels."""
        return replace(self, learner=self.learner.for_classes(classes))

    def extend(self, checkpoint: Any, X: Features, y: Codes, seed: int, *, weights: Weights | None) -> Any:
        """The weights after training on these rows, from the checkpoint's weights on."""
        return self.extend_many([checkpoint], [ShardData(0, X, y, weights, seed)])[0]

    def extend_many(self, checkpoints: Sequence[Any], shards: Sequence[ShardData]) -> list[Any]:
        """Extend many checkpoints, together where their programs are the same."""
        groups: dict[tuple[int, bool], list[int]] = {}
        for number, (checkpoint, shard) in enumerate(zip(checkpoints, shards, strict=True)):
            groups.setdefault((rows.capacity(len(shard.y)), checkpoint is None), []).append(number)
        extended: list[Any] = [None] * len(shards)
        for (room, is_fresh), numbers in groups.items():
            starts = None if is_fresh else [checkpoints[number] for number in numbers]
            trained = self.learner.train([shards[number] for number in numbers], room, starts)
            for number, weights in zip(numbers, trained, strict=True):
                extended[number] = weights
        return extended

    def make_model(self, checkpoint: Any) -> Model:
        """The checkpoint as a voting model."""
        return self.learner.make_model(checkpoint)

    def make_voter(self, models: Sequence[Model], num_classes: int) -> Voter:
        """The voter of the base learner, on the models of the last slice."""
        finals = [model.final if isinstance(model, SlicedModel) else model for model in models]
        return self.learner.make_voter(finals, num_classes)

    def dump_model(self, model: Model) -> StoredModel:
        """All checkpoints, each array under the number of its slice."""
        if not isinstance(model, SlicedModel):
            raise InputError(f"the sliced JAX learner cannot store a {type(model).__name__}")
        stored: StoredModel = {"kind": "sliced"}
        for number, checkpoint in enumerate(model.checkpoints):
            if checkpoint is not None:
                part = self.learner.dump_model(self.make_model(checkpoint))
                stored |= {f"{number}/{name}": value for name, value in part.items()}
        return stored

    def load_model(self, stored: StoredModel) -> Model:
        """The checkpoints and the model of the last."""
        if stored.get("kind") != "sliced":
            raise InputError(f"a stored model must be of kind 'sliced', got {stored.get('kind')!r}")
        checkpoints: list[Any] = []
        for number in range(self.num_slices):
            prefix = f"{number}/"
            part = {name.removeprefix(prefix): value for name, value in stored.items() if name.startswith(prefix)}
            model: Any = self.learner.load_model(part) if part else None
            checkpoints.append(None if model is None else model.parameters)
        last = checkpoints[-1]
        return SlicedModel(tuple(checkpoints), Abstainer() if last is None else self.make_model(last))


def same_parameters(first: Any, second: Any) -> bool:
    """Whether two trees of weights agree in every bit.

    Parameters
    ----------
    first, second
        Trees of arrays, as `JaxModel.parameters`.

    Returns
    -------
    bool
        True if they have the same structure and the same bytes.

    Examples
    --------
    >>> same_parameters({"w": np.zeros(2)}, {"w": np.zeros(2)}), same_parameters(np.zeros(1), -np.zeros(1))
    (True, False)
    """
    left, right = jax.tree.flatten(first), jax.tree.flatten(second)
    return left[1] == right[1] and all(
        np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in zip(left[0], right[0], strict=True)
    )


def _processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
