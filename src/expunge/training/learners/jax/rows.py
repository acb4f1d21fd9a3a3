"""The rows of shards on the device: a copy of each shard's, or everybody's once and places in them.

How many models a program trains at once: as many as fit the setting, and never depending on the shards at hand.

And arrays that a program on the CPU can read where they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from expunge.core.errors import ParameterError
from expunge.training.learners.jax.batches import capacity
from expunge.training.learners.jax.model import dense_rows
from expunge.training.learners.protocol import ShardData, SharedRows, SharedShard

MOST_MODELS = 16
_ALIGNMENT = 64  # bytes; from such addresses on XLA reads an array on the CPU without copying it


def program_bytes(compiled: Any) -> int:
    """Peak device memory of a compiled program: arguments, results and temporaries."""
    found = compiled.memory_analysis()
    return int(found.argument_size_in_bytes + found.output_size_in_bytes + found.temp_size_in_bytes)


def largest_fitting(
    bytes_of: Callable[[int], int], limit: int | None, *, most: int | None = None, purpose: str = "train"
) -> int:
    """`most`, or halved until its program needs at most `limit` bytes.

    On a CPU batching models does not pay, so one at a time is the default there.
    """
    top = most if most is not None else (1 if jax.default_backend() == "cpu" else MOST_MODELS)
    if limit is None:
        return top
    models, needed = top, bytes_of(top)
    while models > 1 and needed > limit:
        models //= 2
        needed = bytes_of(models)
    if needed > limit:
        raise ParameterError(f"max_device_memory must be at least {needed} bytes to {purpose} one model, got {limit}")
    return models


def aligned_empty(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """`np.empty`, at an address that spares the CPU a copy."""
    kind = np.dtype(dtype)
    size = prod(shape) * kind.itemsize
    memory = np.empty(size + _ALIGNMENT, dtype=np.uint8)
    first = -memory.ctypes.data % _ALIGNMENT
    array: NDArray[Any] = memory[first : first + size].view(kind).reshape(shape)
    return array


Shard = ShardData | SharedShard
Rows = tuple[tuple[Any, Any, Any], NDArray[np.int32]]  # features, codes and weights; and of every shard its places


def stored_rows(shard: Shard) -> NDArray[Any]:
    """Rows of the shape and type that a program will get."""
    return _dense(shard.whole) if isinstance(shard, SharedShard) else dense_rows(shard.X)


def copied_rows(shards: Sequence[Shard], room: int) -> Rows:
    """The shards' rows one after another, each padded to the capacity."""
    rows = [dense_rows(shard.X) for shard in shards]
    X = aligned_empty((len(shards) * room, *rows[0].shape[1:]), rows[0].dtype)
    y = np.zeros(len(X), dtype=np.int32)
    weights = np.ones(len(X), dtype=np.float32)
    for number, (shard, own) in enumerate(zip(shards, rows, strict=True)):
        span = slice(number * room, number * room + len(own))
        X[span], y[span] = own, shard.y
        X[span.stop : (number + 1) * room] = 0
        if shard.weights is not None:
            weights[span] = shard.weights
    index = np.arange(len(X), dtype=np.int32).reshape(len(shards), room)
    return (jax.device_put(X), y, weights), index


def shared_rows(whole: SharedRows, shards: Sequence[Shard], room: int) -> Rows:
    """Everybody's rows, sent when the first program needs them; places beyond a shard's own are row 0's."""
    if "device" not in whole.placed:
        dense = _dense(whole)
        more = capacity(len(dense)) - len(dense)  # few programs for many numbers of records
        X = np.concatenate([dense, np.zeros((more, *dense.shape[1:]), dense.dtype)])
        y = np.concatenate([whole.y, np.zeros(more, whole.y.dtype)]).astype(np.int32)
        weights = np.ones(len(X), dtype=np.float32)
        if whole.weights is not None:
            weights[: len(whole.weights)] = whole.weights
        whole.placed["device"] = tuple(jax.device_put(array) for array in (X, y, weights))
    index = np.zeros((len(shards), room), dtype=np.int32)
    for number, shard in enumerate(shards):
        assert isinstance(shard, SharedShard)
        index[number, : len(shard.rows)] = shard.rows
    return whole.placed["device"], index


def _dense(whole: SharedRows) -> NDArray[Any]:
    """The shared rows as an array, made once."""
    if "dense" not in whole.placed:
        whole.placed["dense"] = dense_rows(whole.X)
    found: NDArray[Any] = whole.placed["dense"]
    return found
