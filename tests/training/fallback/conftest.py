"""Datasets that change, and the check that every fallback must pass: it keeps no memory of the past."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import strategies as st

from expunge.core.records import Add, Delete, Records

CLASSES = np.arange(3)


@st.composite
def histories(draw, *, counts: bool = False):
    """A first dataset and batches of updates to it; few distinct rows, so that ties and duplicates are common."""
    dtype = draw(st.sampled_from([np.float64, np.float32, np.int64]))
    if dtype is np.int64:
        numbers = st.integers(0 if counts else -3, 3)
    else:
        special = [0.0, 0.1, 1 / 3, 1e-5, 1e7, 1e20, 1.0, 2.0] + ([] if dtype is np.float32 else [1e-300, 1e110, 5e-90])
        signs = st.just(1) if counts else st.sampled_from([1, -1])
        numbers = st.builds(lambda value, sign: value * sign, st.sampled_from(special) | st.floats(0, 10), signs)
    width = draw(st.integers(1, 3))
    rows = st.lists(numbers, min_size=width, max_size=width)
    labels = st.integers(0, 2)
    first = draw(st.lists(st.tuples(rows, labels), min_size=1, max_size=12))
    features = np.array([row for row, _ in first], dtype=dtype)
    records = Records.build(features, [label for _, label in first], classes=CLASSES)
    batches, live, next_id = [], list(range(len(first))), len(first)
    for _ in range(draw(st.integers(1, 4))):
        gone = draw(st.lists(st.sampled_from(live), unique=True, max_size=8)) if live else []
        new = draw(st.lists(st.tuples(rows, labels), max_size=4))
        added = [
            Add(id=next_id + place, features=np.array(row, dtype=dtype), label=label)
            for place, (row, label) in enumerate(new)
        ]
        batches.append([*map(Delete, gone), *added])
        live = [record for record in live if record not in gone] + [update.id for update in added]
        next_id += len(added)
    queries = np.array(draw(st.lists(rows, min_size=1, max_size=4)), dtype=np.float64)
    return records, batches, np.vstack([queries, features[:2].astype(np.float64)])


def assert_forgets(recipe, records, batches, queries):
    """Check that after every batch the new model answers as one fitted from scratch, and the old one as before."""
    model = recipe.fit_records(records)
    for batch in batches:
        before = model.assess(queries)
        after, change = records.apply(batch)
        changed = model.updated(records, after, change)
        fresh = recipe.fit_records(after.compacted())
        assert changed.num_records == fresh.num_records == len(after)
        _assert_equal(changed.assess(queries), fresh.assess(queries))
        _assert_equal(changed.assess(queries), recipe.fit_records(after).assess(queries))
        _assert_equal(model.assess(queries), before)
        model, records = changed, after
    return model, records


def _assert_equal(found, expected):
    assert found.codes.tobytes() == expected.codes.tobytes()
    assert found.margins.tobytes() == expected.margins.tobytes()


@pytest.fixture(name="histories", scope="session")
def histories_fixture():
    return histories


@pytest.fixture(name="assert_forgets", scope="session")
def assert_forgets_fixture():
    return assert_forgets


@pytest.fixture(scope="session")
def blobs():
    """Overlapping normal classes: 600 rows for training, 400 queries."""
    generator = np.random.default_rng(7)
    centres = generator.normal(size=(4, 6)) * 1.5
    labels = generator.integers(0, 4, size=1000)
    features = centres[labels] + generator.normal(size=(1000, 6))
    return features[:600], labels[:600], features[600:], labels[600:]
