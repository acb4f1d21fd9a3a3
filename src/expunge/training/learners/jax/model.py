"""A trained shard: weights as numpy arrays, and predicting with them in blocks of one fixed size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from expunge.core.errors import InputError
from expunge.core.features import Features, is_frame, is_sparse
from expunge.training.learners.jax.architecture import Architecture, check_rows
from expunge.training.learners.jax.layers import Array
from expunge.training.learners.protocol import ABSTAIN, Codes

MODELS_AT_ONCE = 64  # that vote on a block side by side, so that memory does not grow with the number of shards
ROWS_AT_ONCE = 256  # always: the program, and with it a row's answer, must not depend on the company it is asked in


@dataclass(frozen=True, eq=False)
class JaxModel:
    """A network with its weights (numpy arrays)."""

    architecture: Architecture
    parameters: Any = field(repr=False)
    input_scale: float = 1.0

    def scores(self, X: Features) -> NDArray[np.float32]:
        """The network's outputs, (rows, classes). Inside the trust boundary only."""
        check_rows(self.architecture, dense_rows(X))
        scores = score_program(self.architecture, self.input_scale)  # type: ignore[arg-type]
        blocks = [np.asarray(scores(self.parameters, block))[:used] for block, used in row_blocks(X)]
        return np.concatenate(blocks)

    def predict(self, X: Features) -> Codes:
        """The class with the largest score, the first among equals; ⊥ where a score is not a number."""
        table = dense_rows(X)
        if not len(table):
            return np.empty(0, dtype=np.int64)
        scores = self.scores(table)
        return np.where(np.isnan(scores).any(axis=1), ABSTAIN, scores.argmax(axis=1)).astype(np.int64)


def dense_rows(X: Features) -> NDArray[Any]:
    """Rows of numbers as an array, the given one where it will do: not to be written to.

    Float32, but for truth values and whole numbers of at most 16 bits (pictures, say), which a program turns into
    float32 when it reads them. What is too large for float32 is infinite.
    """
    if is_frame(X):
        return _frame_rows(X)
    table = np.asarray(X.toarray() if is_sparse(X) else X)
    if table.dtype.kind not in "fiub":
        raise InputError(f"the JAX learner needs numbers, got values of type {table.dtype}")
    if table.dtype.kind != "f" and table.dtype.itemsize <= 2:
        return table
    with np.errstate(over="ignore"):
        return table.astype(np.float32, copy=False)


def _frame_rows(X: Any) -> NDArray[Any]:
    for name, kind in X.dtypes.items():
        if kind.kind not in "fiub":
            raise InputError(f"the JAX learner needs numbers, but column {name!r} has values of type {kind}")
    with np.errstate(over="ignore"):
        return np.asarray(X.to_numpy(dtype=np.float32, na_value=np.nan))


def row_blocks(X: Features) -> Iterator[tuple[NDArray[Any], int]]:
    """Runs of `ROWS_AT_ONCE` rows, the last one filled up with zeros, and how many of them are real."""
    table = dense_rows(X)
    for first in range(0, len(table), ROWS_AT_ONCE):
        block = table[first : first + ROWS_AT_ONCE]
        used = len(block)
        if used < ROWS_AT_ONCE:
            block = np.concatenate([block, np.zeros((ROWS_AT_ONCE - used, *block.shape[1:]), block.dtype)])
        yield block, used


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
    """Votes on one block by many models, (rows, models); ⊥ where a score is not a number."""

    def votes(stacked: Any, block: Array) -> Array:
        x = as_inputs(architecture, input_scale, block)

        def one(parameters: Any) -> Array:
            scores = architecture.apply(parameters, x)
            best = jnp.argmax(scores, axis=1).astype(jnp.int32)
            return jnp.where(jnp.isnan(scores).any(axis=1), ABSTAIN, best)

        return jax.lax.map(one, stacked, batch_size=None if jax.default_backend() == "cpu" else MODELS_AT_ONCE).T

    return jax.jit(votes)
