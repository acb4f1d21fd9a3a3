"""The rows of shards on the device: a copy of each shard's, or everybody's once and places in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from expunge.learners.jax._batches import capacity
from expunge.learners.jax._memory import aligned_empty
from expunge.learners.jax.model import dense_rows
from expunge.learners.protocol import ShardData, SharedRows, SharedShard

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
