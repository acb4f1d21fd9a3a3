"""A trained shard: the network's weights, predicting with them, voting with many at once, and storing them.

A model predicts in blocks of one fixed number of rows. A store writes a model as named arrays and plain values
(safetensors).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from expunge.core.errors import InputError
from expunge.core.features import Features, num_rows
from expunge.training.learners.jax.layers import Array
from expunge.training.learners.jax.networks import Architecture, check_rows
from expunge.training.learners.jax.rows import dense_rows, largest_fitting, program_bytes, row_blocks
from expunge.training.learners.protocol import ABSTAIN, Abstainer, Codes, Floats, Model, count_votes, softmax
from expunge.training.learners.scikit import ConstantModel

MODELS_AT_ONCE = 64  # that vote on a block side by side, so that memory does not grow with the number of shards

StoredModel = dict[str, NDArray[Any] | int | float | str]


@dataclass(frozen=True, eq=False)
class JaxModel:
    """A trained shard: a network with its weights.

    Parameters
    ----------
    architecture
        The network as two pure functions.
    parameters
        The weights, a tree of NumPy arrays.
    input_scale
        The factor that inputs are multiplied by.
    """

    architecture: Architecture
    parameters: Any = field(repr=False)
    input_scale: float = 1.0

    def scores(self, X: Features, num_classes: int | None = None) -> NDArray[np.float32]:
        """The network's outputs, (rows, classes)."""
        check_rows(self.architecture, dense_rows(X))
        scores = score_program(self.architecture, self.input_scale)  # type: ignore[arg-type]
        blocks = [np.asarray(scores(self.parameters, block))[:used] for block, used in row_blocks(X)]
        return np.concatenate(blocks)

    def probabilities(self, X: Features, num_classes: int) -> Floats:
        """The softmax of the scores; NaN in a row with a score that is not a number."""
        return softmax(self.scores(X)) if num_rows(X) else np.empty((0, num_classes))

    def predict(self, X: Features) -> Codes:
        """The class with the largest score, the first among equals, or ⊥ where a score is not a number."""
        table = dense_rows(X)
        if not len(table):
            return np.empty(0, dtype=np.int64)
        scores = self.scores(table)
        return np.where(np.isnan(scores).any(axis=1), ABSTAIN, scores.argmax(axis=1)).astype(np.int64)


def as_inputs(architecture: Architecture, input_scale: float, raw: Array) -> Array:
    """Rows in the shape of the network's inputs, scaled."""
    shaped = raw.reshape(raw.shape[0], *architecture.input_shape).astype(jnp.float32)
    return shaped if input_scale == 1 else shaped * input_scale


@lru_cache(maxsize=64)
def score_program(architecture: Architecture, input_scale: float) -> Any:
    """Scores of one block by one model."""

    def scores(parameters: Any, block: Array) -> Array:
        return architecture.apply(parameters, as_inputs(architecture, input_scale, block))

    return jax.jit(scores)


@lru_cache(maxsize=64)
def vote_program(architecture: Architecture, input_scale: float) -> Any:
    """Votes on one block by many models, (models, rows); ⊥ where a score is not a number."""

    def votes(stacked: Any, block: Array) -> Array:
        x = as_inputs(architecture, input_scale, block)

        def one(parameters: Any) -> Array:
            scores = architecture.apply(parameters, x)
            best = jnp.argmax(scores, axis=1).astype(jnp.int32)
            return jnp.where(jnp.isnan(scores).any(axis=1), ABSTAIN, best)

        return jax.lax.map(one, stacked, batch_size=None if jax.default_backend() == "cpu" else MODELS_AT_ONCE)

    return jax.jit(votes)


@lru_cache(maxsize=64)
def stacked_score_program(architecture: Architecture, input_scale: float) -> Any:
    """Scores of one block by many models, (models, rows, classes), each as `score_program` gives them."""

    def scores(stacked: Any, block: Array) -> Array:
        x = as_inputs(architecture, input_scale, block)
        at_once = None if jax.default_backend() == "cpu" else MODELS_AT_ONCE
        return jax.lax.map(lambda parameters: architecture.apply(parameters, x), stacked, batch_size=at_once)

    return jax.jit(scores)


class JaxVoter:
    """Votes of all shards. The networks' weights are stacked on the device; constants and abstentions are filled in.

    With `memory` (bytes) the weights are sent to the device for every block of rows, as many models together as fit.
    """

    def __init__(self, models: Sequence[Model], num_classes: int, *, memory: int | None = None) -> None:
        self._num_classes, self._memory = num_classes, memory
        networks = [(shard, model) for shard, model in enumerate(models) if isinstance(model, JaxModel)]
        self._shards = np.array([shard for shard, _ in networks], dtype=np.intp)
        self._is_network = np.array([isinstance(model, JaxModel) for model in models], dtype=np.bool_)
        self._fixed = np.array(
            [model.code if isinstance(model, ConstantModel) else ABSTAIN for model in models], dtype=np.int32
        )
        self._program: Any = None
        if networks:
            first = networks[0][1]
            stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *(model.parameters for _, model in networks))
            self._stacked = stacked if memory is not None else jax.device_put(stacked)
            self._program = vote_program(first.architecture, first.input_scale)  # type: ignore[arg-type]
            self._scores = stacked_score_program(first.architecture, first.input_scale)  # type: ignore[arg-type]
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

    def mean_probabilities(self, X: Features) -> Floats:
        """The mean of the shards' probabilities, added up in the order of the shards; NaN where all abstain."""
        total, count = np.zeros((num_rows(X), self._num_classes)), np.zeros((num_rows(X), 1))
        first = 0
        for block, used in row_blocks(X):
            rows = np.arange(first, first + used)
            found = self._probabilities(block, used)
            for code, is_network in zip(self._fixed.tolist(), self._is_network.tolist(), strict=True):
                if is_network:
                    table = next(found)
                    known = ~np.isnan(table).any(axis=1)
                    total[rows[known]] += table[known]
                    count[rows[known]] += 1
                elif code != ABSTAIN:
                    total[rows, code] += 1
                    count[rows] += 1
            first += used
        with np.errstate(invalid="ignore"):
            return np.asarray(total / count)

    def _probabilities(self, block: NDArray[Any], used: int) -> Iterator[Floats]:
        """Every network's probabilities on the used rows of a block, (rows, classes)."""
        if self._program is not None:
            for scores in self._asked(self._scores, block):
                for start in range(0, len(scores), MODELS_AT_ONCE):
                    yield from softmax(scores[start : start + MODELS_AT_ONCE, :used])

    def _ask(self, block: NDArray[Any]) -> Codes:
        """The networks' votes on one block, (rows, models)."""
        return np.concatenate([*self._asked(self._program, block)]).T

    def _asked(self, program: Any, block: NDArray[Any]) -> Iterator[NDArray[Any]]:
        """What a program says about a block, for some networks at a time, which come first."""
        number, size = len(self._shards), self._models_at_once(program, block)
        if size == number:
            yield np.asarray(program(self._stacked, block))
            return
        for start in range(0, number, size):
            places = np.minimum(np.arange(start, start + size), number - 1)  # always as many: one program
            yield np.asarray(program(self._chosen(places), block))[: number - start]

    def _models_at_once(self, program: Any, block: NDArray[Any]) -> int:
        number, key = len(self._shards), (program, block.shape, block.dtype)
        if self._memory is None:
            return number
        if key not in self._fitting:
            self._fitting[key] = largest_fitting(
                lambda models: self._bytes(program, models, block), self._memory, most=number, purpose="ask"
            )
        return self._fitting[key]

    def _bytes(self, program: Any, models: int, block: NDArray[Any]) -> int:
        return program_bytes(program.lower(self._chosen(np.zeros(models, np.intp)), block).compile())

    def _chosen(self, places: NDArray[np.intp]) -> Any:
        return jax.tree.map(lambda leaves: leaves[places], self._stacked)


def dump_model(model: Model) -> StoredModel:
    """A model as named arrays and plain values; `load_model` also needs the learner's settings."""
    if isinstance(model, Abstainer):
        return {"kind": "abstain"}
    if isinstance(model, ConstantModel):
        return {"kind": "constant", "code": model.code}
    if isinstance(model, JaxModel):
        return {"kind": "network", **dump_parameters(model.parameters)}
    raise InputError(f"the JAX learner cannot store a {type(model).__name__}")


def load_model(stored: Mapping[str, Any], shapes: Any, make: Callable[[Any], Model]) -> Model:
    """The model again. `shapes` is the tree of the network's weights, `make` turns weights into a model."""
    kind = stored.get("kind")
    if kind == "abstain":
        return Abstainer()
    if kind == "constant":
        return ConstantModel(int(stored["code"]))
    if kind == "network":
        return make(load_parameters(stored, shapes))
    raise InputError(f"a stored model must be of kind 'abstain', 'constant' or 'network', got {kind!r}")


def dump_parameters(parameters: Any) -> dict[str, NDArray[Any]]:
    """Every array under its path in the tree, in a type that NumPy has, so that a store can read it again."""
    return {
        "weights" + jax.tree_util.keystr(path): np.ascontiguousarray(_stored(leaf))
        for path, leaf in jax.tree_util.tree_leaves_with_path(parameters)
    }


def _stored(leaf: NDArray[Any]) -> NDArray[Any]:
    """Write numbers of a type that NumPy lacks (bfloat16) as float32, which loses nothing."""
    return leaf.astype(np.float32) if leaf.dtype.kind == "V" else leaf


def load_parameters(stored: Mapping[str, Any], shapes: Any) -> Any:
    """The tree again. An array that is missing, surplus or of another shape is an error that names it."""

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
