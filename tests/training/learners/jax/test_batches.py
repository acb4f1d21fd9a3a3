from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from expunge.training.learners.jax.options import poisson_capacity
from expunge.training.learners.jax.rows import capacity, epoch_batch, least_size, poisson_batch, shuffled_orders


def test_capacities_hold_their_shards_and_waste_little() -> None:
    rooms = [capacity(size) for size in range(1, 5000)]
    assert all(room >= size for size, room in enumerate(rooms, start=1))
    assert all(room <= max(32, 1.25 * size) for size, room in enumerate(rooms, start=1))
    assert rooms == sorted(rooms)
    for room in sorted(set(rooms)):
        assert rooms.index(room) + 1 == least_size(room)


def test_an_order_is_a_permutation_of_the_rows_and_epochs_differ() -> None:
    orders = np.asarray(shuffled_orders(jax.random.key(0), jnp.int32(45), 48, 5))
    assert all(sorted(order[:45]) == list(range(45)) for order in orders)
    assert len({tuple(order) for order in orders}) == 5


def test_orders_are_uniform() -> None:
    """6,000 orders of three rows: a chi-squared of 5 degrees of freedom exceeds 45 with probability below 2e-8."""
    orders = np.asarray(shuffled_orders(jax.random.key(1), jnp.int32(3), 32, 6000))[:, :3]
    _, counts = np.unique(orders, axis=0, return_counts=True)
    assert len(counts) == 6
    assert ((counts - 1000) ** 2 / 1000).sum() < 45


def test_an_epoch_visits_every_row_once_and_drops_the_incomplete_batch() -> None:
    size = jnp.int32(35)
    orders = shuffled_orders(jax.random.key(0), size, 40, 2)
    batches = [epoch_batch(orders, size, jnp.int32(step), 8) for step in range(8)]
    assert all(present.tolist() == [1.0] * 8 for _, present in batches)
    first = np.concatenate([places for places, _ in batches[:4]])
    assert len(set(first.tolist())) == 32
    assert np.concatenate([places for places, _ in batches[4:]]).tolist() == np.asarray(orders[1, :32]).tolist()


def test_a_batch_takes_no_more_places_than_the_shard_has() -> None:
    size = jnp.int32(35)
    orders = shuffled_orders(jax.random.key(0), size, 40, 2)
    places, present = epoch_batch(orders, size, jnp.int32(1), 10**6)
    assert places.shape == present.shape == (40,)
    assert present.tolist() == [1.0] * 35 + [0.0] * 5
    assert sorted(places[:35].tolist()) == list(range(35))


def test_poisson_batches_have_the_right_rate_and_never_touch_padding() -> None:
    """4,000 batches of 60 trials at 1/6: 8 standard deviations of the mean, false alarm below 1e-14."""
    size, rate = 60, 1 / 6
    keys = jax.random.split(jax.random.key(0), 4000)
    places, present = jax.vmap(lambda key: poisson_batch(key, jnp.int32(size), 64, 10, 40))(keys)
    sizes = np.asarray(present).sum(axis=1)
    assert abs(sizes.mean() - size * rate) < 8 * (size * rate * (1 - rate) / 4000) ** 0.5
    assert sizes.var() == pytest.approx(size * rate * (1 - rate), rel=0.25)
    assert np.asarray(places).max() == size - 1


def test_room_for_poisson_batches() -> None:
    from scipy.stats import binom

    for batch in (1, 16, 256):
        assert binom.sf(poisson_capacity(batch), 100 * batch, 0.01) <= 1e-18
        assert poisson_capacity(batch) < batch + 60 + 12 * batch**0.5
