from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier

from expunge.core.errors import InputError, ParameterError
from expunge.training.fallback import NearestNeighbours, neighbours
from expunge.training.fallback.neighbours import NeighbourBlock


def by_hand(table, slots, queries, width):
    """All distances, sorted by (distance, slot)."""
    gaps = queries[:, None, :] - table[None, :, :]
    distances = np.array([np.einsum("ij,ij->i", block, block) for block in gaps])
    order = np.lexsort((np.broadcast_to(slots, distances.shape), distances), axis=-1)[:, :width]
    return np.take_along_axis(distances, order, axis=1), slots[order]


def points(generator, kind, size, width):
    if kind == "grid":  # ties everywhere
        return generator.integers(0, 3, size=(size, width)).astype(float)
    if kind == "far":  # means are far larger than deviations: the matrix product has hardly a correct digit left
        return 1e9 + generator.normal(size=(size, width))
    if kind == "scales":
        return generator.normal(size=(size, width)) * 10.0 ** generator.integers(-30, 30, size=(size, 1))
    return generator.normal(size=(size, width))


@pytest.mark.parametrize("kind", ["normal", "grid", "far", "scales"])
@pytest.mark.parametrize("width", [2, 10, 11, 40])
def test_search_is_exact_after_additions_and_deletions(kind, width):
    generator = np.random.default_rng(11)
    table = points(generator, kind, 3000, width)
    labels = generator.integers(0, 4, size=3000)
    queries = np.vstack([points(generator, kind, 150, width), table[::100]])
    model = NearestNeighbours(num_neighbours=7).fit(table[:2500], labels[:2500], num_classes=4)
    live = np.ones(3000, dtype=bool)
    for first in range(2500, 3000, 50):  # a block, then many small ones, with holes in all of them
        more = np.arange(first, first + 50)
        model = model.add(table[more], labels[more], more)
        gone = generator.choice(np.flatnonzero(live[: first + 50]), size=40, replace=False)
        gone.sort()
        model = model.delete(table[gone], labels[gone], gone)
        live[gone] = False
    assert model.num_records == live.sum()
    slots = np.flatnonzero(live)
    distances, nearest = by_hand(table[slots], slots, queries, 7)
    found = model.neighbours(queries, 7)
    np.testing.assert_array_equal(found.slots, nearest)
    assert found.distances.tobytes() == distances.tobytes()
    np.testing.assert_array_equal(found.codes, labels[nearest])


@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(1, 5))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_trees_with_dead_regions_are_exact(seed, width, asked):
    generator = np.random.default_rng(seed)
    table = points(generator, generator.choice(["normal", "grid", "far", "scales"]), 160, width)
    gone = np.sort(np.argsort(table[:, 0], kind="stable")[:39])  # all neighbours of some queries are deleted
    slots = np.setdiff1d(np.arange(160), gone)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(neighbours, "_SMALLEST_TREE", 8)
        model = NearestNeighbours(num_neighbours=asked).fit(table, np.zeros(160, dtype=int), num_classes=1)
        model = model.delete(table[gone], np.zeros(39, dtype=int), gone)
        assert len(model.blocks[0]) == 160
        found = model.neighbours(table, asked)
    distances, nearest = by_hand(table[slots], slots, table, asked)
    np.testing.assert_array_equal(found.slots, nearest)
    assert found.distances.tobytes() == distances.tobytes()


def test_candidates_without_room_for_rounding_would_miss_neighbours(monkeypatch):
    """Negative control: the matrix product alone does not find the nearest rows of distant data."""
    generator = np.random.default_rng(2)
    table = points(generator, "far", 400, 12)
    model = NearestNeighbours(num_neighbours=5).fit(table, np.zeros(400, dtype=int), num_classes=1)
    _, nearest = by_hand(table, np.arange(400), table, 5)
    np.testing.assert_array_equal(model.neighbours(table, 5).slots, nearest)

    def careless(self, queries, tile, known):
        distances = self.squares - 2.0 * queries @ self.rows.table.T
        places = np.argsort(distances, axis=1, kind="stable")[:, :5]
        return np.repeat(np.arange(len(queries)), 5), places.ravel()

    monkeypatch.setattr(NeighbourBlock, "_by_product", careless)
    assert (model.neighbours(table, 5).slots != nearest).any()


def test_moving_the_last_row_into_a_hole_would_remember():
    """Negative control: deletion by swapping, the usual trick, changes which of two equally near rows comes first."""
    table, labels = np.array([[5.0], [1.0], [1.0]]), np.array([0, 1, 2])
    fresh = NearestNeighbours(num_neighbours=1).fit(table[1:], labels[1:], num_classes=3)
    swapped = NearestNeighbours(num_neighbours=1).fit(table[[2, 1]], labels[[2, 1]], num_classes=3)
    deleted = NearestNeighbours(num_neighbours=1).fit(table, labels, num_classes=3).delete(table[:1], labels[:1], [0])
    assert deleted.predict([[1.0]]).tolist() == fresh.predict([[1.0]]).tolist() == [1]
    assert swapped.predict([[1.0]]).tolist() == [2]


@pytest.mark.parametrize("asked", [1, 5, 10])
def test_agrees_with_scikit_learn_on_digits(asked):
    X, y = load_digits(return_X_y=True)
    X = (
        X + np.random.default_rng(0).normal(size=X.shape) * 1e-3
    )  # integer pixels give ties, and scikit-learn orders them in another way
    ours = NearestNeighbours(num_neighbours=asked).fit(X[:1200], y[:1200], num_classes=10).predict(X[1200:])
    theirs = KNeighborsClassifier(asked, algorithm="brute").fit(X[:1200], y[:1200]).predict(X[1200:])
    np.testing.assert_array_equal(ours, theirs)


def test_agrees_with_scikit_learn_on_blobs(blobs):
    X, y, queries, _ = blobs
    ours = NearestNeighbours(num_neighbours=15).fit(X, y, num_classes=4).predict(queries)
    np.testing.assert_array_equal(ours, KNeighborsClassifier(15).fit(X, y).predict(queries))


def test_ties_go_to_the_first_record_and_the_lowest_class():
    recipe = NearestNeighbours(num_neighbours=2)
    model = recipe.fit([[1.0], [-1.0], [1.0]], [2, 1, 0], num_classes=3)
    assert model.predict([[0.0]]).tolist() == [1]  # the first two records vote, one each
    assert model.margin([[0.0]]).tolist() == [0.0]


def test_margin_is_the_lead_among_more_neighbours():
    recipe = NearestNeighbours(num_neighbours=1, margin_neighbours=5)
    model = recipe.fit([[0.0], [1.0], [2.0], [3.0], [4.0], [9.0]], [0, 0, 0, 1, 0, 1], num_classes=3)
    assert model.margin([[0.0]]).tolist() == [(4 - 1) / 5]
    assert model.margin([[3.1]]).tolist() == [0.0]  # answers 1, where 0 leads
    assert recipe.fit([[0.0], [1.0]], [0, 0], num_classes=2).margin([[0.0]]).tolist() == [1.0]


def test_blocks_stay_few_and_dead_rows_go(monkeypatch):
    monkeypatch.setattr(neighbours, "_SMALL_BLOCK", 4)
    generator = np.random.default_rng(0)
    table = generator.normal(size=(600, 3))
    model = NearestNeighbours().fit(table[:1], [0], num_classes=1)
    for slot in range(1, 600):
        model = model.add(table[slot : slot + 1], [0], [slot])
        assert len(model.blocks) <= 12
    for slot in range(590):
        model = model.delete(table[slot : slot + 1], [0], [slot])
        assert all(4 * block.num_live > 3 * len(block) for block in model.blocks)
    assert model.num_records == 10


def test_an_update_shares_the_rows():
    table = np.random.default_rng(0).normal(size=(5000, 20))
    model = NearestNeighbours().fit(table, np.zeros(5000, dtype=int), num_classes=1)
    later = model.delete(table[:1], [0], [0]).add(table[:1], [0], [5000])
    assert np.shares_memory(later.blocks[0].rows.table, model.blocks[0].rows.table)
    assert model.num_records == later.num_records == 5000


def test_slots_must_ascend_and_be_there():
    model = NearestNeighbours().fit([[1.0], [2.0]], [0, 1], num_classes=2, slots=[3, 8])
    with pytest.raises(InputError, match="above all others"):
        model.add([[1.0]], [0], [8])
    gone = model.delete([[2.0]], [1], [8])
    with pytest.raises(InputError, match="not in the dataset"):
        gone.delete([[2.0]], [1], [8])


@pytest.mark.parametrize("name", ["num_neighbours", "margin_neighbours"])
@pytest.mark.parametrize("value", [0, -1, 2.5, True])
def test_bad_options_are_named(name, value):
    with pytest.raises(ParameterError, match=f"{name} must be an integer >= 1, got {value!r}"):
        NearestNeighbours(**{name: value})
