"""A shard's rows: as arrays, on the device, padded to a capacity, and cut into batches.

A shard of n rows is padded to the next of a few sizes, its *capacity*. So shards of nearly the same size, and the same
shard after a deletion, run the same compiled program. Everything random is drawn at the capacity, which is a function
of n. So a training depends on its own rows and key and on nothing else.

Batches come from shuffled epochs or from Poisson sampling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from expunge.core.errors import InputError, ParameterError
from expunge.core.features import Features, is_frame, is_sparse
from expunge.training.learners.jax.layers import Array
from expunge.training.learners.protocol import ShardData, SharedRows, SharedShard

ROWS_AT_ONCE = 256  # always: the program, and with it a row's answer, must not depend on the rows asked with it
_ALIGNMENT = 64  # bytes; from such addresses on XLA reads an array on the CPU without copying it
_PARTS = 4  # capacities a power of two: at most a fifth of a shard is padding
_LEAST = 32

Shard = ShardData | SharedShard
Rows = tuple[tuple[Any, Any, Any], NDArray[np.int32]]  # features, codes and weights; and of every shard its places


def dense_rows(X: Features) -> NDArray[Any]:
    """Rows of numbers as an array. It may be the given array, so the caller must not write to it.

    The type is float32, except for booleans and integers of at most 16 bits (pictures, for example): a program turns
    those into float32 when it reads them. Numbers too large for float32 become infinite.
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


def program_bytes(compiled: Any) -> int:
    """Peak device memory of a compiled program: arguments, results and temporaries."""
    found = compiled.memory_analysis()
    return int(found.argument_size_in_bytes + found.output_size_in_bytes + found.temp_size_in_bytes)


def largest_fitting(bytes_of: Callable[[int], int], limit: int | None, *, most: int, purpose: str = "train") -> int:
    """The number of models in a program: `most`, halved until the program needs at most `limit` bytes.

    It never depends on the shards at hand.
    """
    if limit is None:
        return most
    models, needed = most, bytes_of(most)
    while models > 1 and needed > limit:
        models //= 2
        needed = bytes_of(models)
    if needed > limit:
        raise ParameterError(f"max_device_memory must be at least {needed} bytes to {purpose} one model, got {limit}")
    return models


def aligned_empty(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Like `np.empty`, at an address from which XLA reads the array on the CPU without a copy."""
    kind = np.dtype(dtype)
    size = prod(shape) * kind.itemsize
    memory = np.empty(size + _ALIGNMENT, dtype=np.uint8)
    first = -memory.ctypes.data % _ALIGNMENT
    array: NDArray[Any] = memory[first : first + size].view(kind).reshape(shape)
    return array


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
    """The rows of all shards, sent when the first program needs them. A shard's missing places point to row 0."""
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


def capacity(size: int) -> int:
    """The smallest of 32, 40, 48, 56, 64, 80, 96, … that holds `size` rows."""
    if size <= _LEAST:
        return _LEAST
    power = 1 << (size - 1).bit_length() - 1
    step = power // _PARTS
    return power + -(-(size - power) // step) * step


def least_size(room: int) -> int:
    """The fewest rows whose capacity is `room`."""
    if room <= _LEAST:
        return 1
    power = 1 << (room - 1).bit_length() - 1
    return room - power // _PARTS + 1


def shuffled_orders(key: Array, size: Array, room: int, num_epochs: int) -> Array:
    """(epochs, capacity): every row is a uniformly random order of 0..size-1, then the padding."""

    def order(epoch: Array) -> Array:
        bits = jax.random.bits(jax.random.fold_in(key, epoch), (room,), jnp.uint32)
        place = jnp.where(jnp.arange(room) < size, bits, jnp.uint32(0xFFFFFFFF))
        return jnp.argsort(place, stable=True).astype(jnp.int32)  # rows come before padding in a tie, too

    return jax.lax.map(order, jnp.arange(num_epochs))


def epoch_batch(orders: Array, size: Array, step: Array, batch_size: int) -> tuple[Array, Array]:
    """The places of batch number `step`, and which of them count. In a shard smaller than a batch not all do."""
    room = orders.shape[1]
    per_epoch = jnp.maximum(size // batch_size, 1)
    epoch, number = step // per_epoch, step % per_epoch
    # A shard smaller than its batch is one batch an epoch, with the rest of its places empty.
    width = min(batch_size, room)
    places = jax.lax.dynamic_slice(orders, (epoch, number * batch_size), (1, width))[0]
    present = jnp.arange(width) < size
    return jnp.where(present, places, 0), present.astype(jnp.float32)


def poisson_batch(key: Array, size: Array, room: int, batch_size: int, width: int) -> tuple[Array, Array]:
    """A batch that every row joins independently with probability batch_size / size, in `width` places."""
    # Uniform numbers are multiples of 2^-23: a little less than the rate, so that no record is drawn more often.
    rate = jnp.where(size <= batch_size, 1.0, batch_size / size - 2.0**-22)
    chosen = (jax.random.uniform(key, (room,)) < rate) & (jnp.arange(room) < size)
    places = jnp.nonzero(chosen, size=width, fill_value=0)[0].astype(jnp.int32)
    present = jnp.arange(width) < jnp.sum(chosen)
    return places, present.astype(jnp.float32)
