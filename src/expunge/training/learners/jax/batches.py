"""Which examples make up a batch: shuffled epochs, or Poisson sampling. Shapes depend on a shard's bucket alone.

A shard of n rows is padded to the next of a few sizes, its capacity, so that shards of nearly the same size, or the
same shard after a deletion, run the same compiled program. Everything random is drawn at the capacity, a function of n,
so a training depends on its own rows and key and on nothing else.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from expunge.training.learners.jax.layers import Array

_PARTS = 4  # capacities a power of two: at most a fifth of a shard is padding
_LEAST = 32


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
    """The places of batch number `step`, and which of them count: all, unless the shard is smaller than a batch."""
    room = orders.shape[1]
    per_epoch = jnp.maximum(size // batch_size, 1)
    epoch, number = step // per_epoch, step % per_epoch
    # A shard smaller than its batch is one batch an epoch, with the rest of its places empty.
    width = min(batch_size, room)
    places = jax.lax.dynamic_slice(orders, (epoch, number * batch_size), (1, width))[0]
    present = jnp.arange(width) < size
    return jnp.where(present, places, 0), present.astype(jnp.float32)


def poisson_batch(key: Array, size: Array, room: int, batch_size: int, width: int) -> tuple[Array, Array]:
    """Every row independently with probability batch_size / size, in the order of the rows, in `width` places."""
    # Uniform numbers are multiples of 2^-23: a little less than the rate, so that no record is drawn more often.
    rate = jnp.where(size <= batch_size, 1.0, batch_size / size - 2.0**-22)
    chosen = (jax.random.uniform(key, (room,)) < rate) & (jnp.arange(room) < size)
    places = jnp.nonzero(chosen, size=width, fill_value=0)[0].astype(jnp.int32)
    present = jnp.arange(width) < jnp.sum(chosen)
    return places, present.astype(jnp.float32)
