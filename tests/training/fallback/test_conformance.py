"""What every fallback promises: its answer is a function of the current dataset and the query alone."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from expunge.core.errors import InputError, ParameterError, RecordError
from expunge.core.records import Add, AddMany, Delete, Records
from expunge.training.fallback import (
    NO_ANSWER,
    Assessment,
    Fallback,
    FallbackModel,
    GaussianNaiveBayes,
    MultinomialNaiveBayes,
    NearestNeighbours,
    RidgeFallback,
    neighbours,
)

RECIPES = [
    NearestNeighbours(num_neighbours=1),
    NearestNeighbours(num_neighbours=3, margin_neighbours=5),
    GaussianNaiveBayes(),
    MultinomialNaiveBayes(),
    RidgeFallback(),
    RidgeFallback(penalty=1e-6),
]
NAMES = [f"{type(recipe).__name__}-{place}" for place, recipe in enumerate(RECIPES)]

every_fallback = pytest.mark.parametrize("recipe", RECIPES, ids=NAMES)


@every_fallback
@given(data=st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_equals_fitting_from_scratch_bit_for_bit(recipe, histories, assert_forgets, data):
    records, batches, queries = data.draw(histories(counts=isinstance(recipe, MultinomialNaiveBayes)))
    with pytest.MonkeyPatch.context() as patch:  # small enough to use trees, tiles, merges and rebuilds
        patch.setattr(neighbours, "_SMALLEST_TREE", data.draw(st.sampled_from([4, 1024])))
        patch.setattr(neighbours, "_SMALLEST_TILE", 2)
        patch.setattr(neighbours, "_DISTANCES_AT_ONCE", 4)
        patch.setattr(neighbours, "_SMALL_BLOCK", 2)
        assert_forgets(recipe, records, batches, np.abs(queries))


@every_fallback
def test_long_history_on_real_numbers(recipe, blobs, assert_forgets):
    X, y, queries, _ = blobs
    generator = np.random.default_rng(3)
    X, queries = np.exp(X), np.exp(queries)
    records = Records.build(X[:400], y[:400], classes=np.arange(4))
    batches = [[Delete(int(record)) for record in part] for part in np.split(generator.permutation(400)[:320], 8)]
    for place, batch in enumerate(batches):
        new = range(400 + 20 * place, 420 + 20 * place)
        batch.append(AddMany(ids=list(new), features=X[new.start : new.stop], labels=y[new.start : new.stop]))
    model, after = assert_forgets(recipe, records, batches, queries)
    assert len(after) == model.num_records == 400 - 320 + 160


@dataclass(frozen=True)
class RoundedMeans(Fallback):
    """The negative control: nearest class mean, with the sums kept in floating point."""

    def _fit(self, rows, num_classes):
        sums = np.zeros((num_classes, rows.num_features))
        np.add.at(sums, rows.codes, rows.table)
        return RoundedMeansModel(rows.counts(num_classes), sums)


@dataclass(frozen=True)
class RoundedMeansModel(FallbackModel):
    counts: np.ndarray
    sums: np.ndarray
    num_classes = 4
    num_features = 6

    @property
    def num_records(self):
        return int(self.counts.sum())

    def _with(self, rows):
        sums = self.sums.copy()
        np.add.at(sums, rows.codes, rows.table)
        return replace(self, counts=self.counts + rows.counts(4), sums=sums)

    def _without(self, rows):
        sums = self.sums.copy()
        np.subtract.at(sums, rows.codes, rows.table)
        return replace(self, counts=self.counts - rows.counts(4), sums=sums)

    def _assess(self, table):
        means = self.sums / np.maximum(self.counts, 1)[:, None]
        distances = ((table[:, None] - means) ** 2).sum(axis=2)
        return Assessment(distances.argmin(axis=1), distances.min(axis=1))


def test_rounded_sums_remember_and_are_caught(blobs, assert_forgets):
    X, y, queries, _ = blobs
    records = Records.build(X, y, classes=np.arange(4))
    batch = [Delete(5), Delete(77)]
    with pytest.raises(AssertionError):
        assert_forgets(RoundedMeans(), records, [batch], queries)
    # Only the last bits differ: the control has no larger mistake.
    after, change = records.apply(batch)
    changed = RoundedMeans().fit_records(records).updated(records, after, change).margin(queries)
    np.testing.assert_allclose(changed, RoundedMeans().fit_records(after).margin(queries), rtol=1e-10)


@every_fallback
def test_the_answer_to_a_row_does_not_depend_on_other_rows(recipe, blobs):
    X, y, queries, _ = blobs
    model = recipe.fit(np.exp(X), y, num_classes=4)
    queries = np.exp(queries[:60])
    together = model.assess(queries)
    alone = [model.assess(queries[place : place + 1]) for place in range(60)]
    assert together.margins.tobytes() == np.concatenate([answer.margins for answer in alone]).tobytes()
    assert together.codes.tolist() == [int(answer.codes[0]) for answer in alone]
    np.testing.assert_array_equal(model.predict(queries), together.codes)
    np.testing.assert_array_equal(model.margin(queries), together.margins)


@every_fallback
def test_margins_are_between_zero_and_one_and_mean_something(recipe, blobs):
    X, y, queries, answers = blobs
    found = recipe.fit(np.exp(X), y, num_classes=4).assess(np.exp(queries))
    assert (found.margins >= 0).all()
    assert (found.margins <= 1).all()
    if recipe != RECIPES[0]:  # a single neighbour is always unanimous
        easy = found.margins >= np.quantile(found.margins, 0.7)
        right = found.codes == answers
        assert right[easy].mean() > right.mean() + 0.05


@every_fallback
def test_empty_dataset_has_no_answer(recipe):
    empty = recipe.fit(np.empty((0, 2)), np.empty(0, dtype=int), num_classes=3)
    assert empty.num_records == 0
    assert empty.predict([[1.0, 2.0]]).tolist() == [NO_ANSWER]
    assert empty.margin([[1.0, 2.0]]).tolist() == [0.0]
    full = empty.add([[1.0, 2.0]], [2], [0])
    assert full.predict([[1.0, 2.0]]).tolist() == [2]
    assert full.delete([[1.0, 2.0]], [2], [0]).predict([[1.0, 2.0]]).tolist() == [NO_ANSWER]


@every_fallback
def test_one_class_present_is_the_answer_everywhere(recipe):
    model = recipe.fit(np.array([[1.0, 0.0], [5.0, 2.0]]), [1, 1], num_classes=3)
    assert model.assess([[1.0, 2.0], [900.0, 0.0]]).codes.tolist() == [1, 1]
    assert model.margin([[1.0, 2.0]]).tolist() == [1.0]
    assert recipe.fit([[1.0]], [0], num_classes=1).margin([[3.0]]).tolist() == [1.0]


@every_fallback
def test_absent_class_is_never_the_answer(recipe, blobs):
    X, y, queries, _ = blobs
    keep = y != 2
    codes = recipe.fit(np.exp(X[keep]), y[keep], num_classes=4).predict(np.exp(queries))
    assert set(np.unique(codes)) <= {0, 1, 3}


@every_fallback
def test_constant_features_and_extreme_numbers(recipe):
    constant = recipe.fit(np.full((6, 3), 7.0), [0, 1, 2, 0, 1, 0], num_classes=3)
    assert constant.predict([[7.0, 7.0, 7.0]]).tolist() == [0]
    ends = np.array([[2.0**400, 0.0], [2.0**-400, 2.0**400], [0.0, 2.0**-399], [1.0, 5e-324]])
    found = recipe.fit(ends, [0, 1, 0, 1], num_classes=2).assess(ends)
    assert np.isfinite(found.margins).all()
    assert (found.codes >= 0).all()


@every_fallback
def test_containers_and_number_types_agree(recipe):
    generator = np.random.default_rng(5)
    table = generator.integers(0, 9, size=(40, 4))
    labels = generator.integers(0, 3, size=40)
    expected = recipe.fit(table.astype(float), labels, num_classes=3).assess(table)
    for rows in (table, table.astype(np.float32), scipy.sparse.csr_array(table), table.reshape(40, 2, 2)):
        found = recipe.fit(rows, labels, num_classes=3).assess(rows)
        assert found.margins.tobytes() == expected.margins.tobytes()
    frame = pd.DataFrame(table, columns=list("abcd"))
    assert recipe.fit(frame, labels, num_classes=3).margin(frame).tobytes() == expected.margins.tobytes()


@every_fallback
def test_bad_input_is_refused_and_named(recipe):
    model = recipe.fit([[1.0, 2.0], [2.0, 1.0]], [0, 1], num_classes=2)
    with pytest.raises(InputError, match="X must have 2 columns, got 3"):
        model.predict([[1.0, 2.0, 3.0]])
    with pytest.raises(InputError, match="X must have 2 columns"):
        model.add([[1.0]], [0], [7])
    with pytest.raises(InputError, match="row 1"):
        model.predict([[1.0, 2.0], [np.nan, 0.0]])
    with pytest.raises(InputError, match="row 0"):
        model.add([[1e200, 0.0]], [0], [7])
    with pytest.raises(InputError, match="class codes from 0 to 1"):
        model.add([[1.0, 0.0]], [2], [7])
    with pytest.raises(InputError, match="one class code per row"):
        model.add([[1.0, 0.0]], [0, 1], [7])
    with pytest.raises(InputError, match="slots"):
        model.add([[1.0, 0.0]] * 2, [0, 1], [8, 7])
    with pytest.raises(InputError, match="numbers"):
        model.predict([["a", "b"]])
    with pytest.raises(InputError, match="at least one column"):
        recipe.fit(np.empty((2, 0)), [0, 1], num_classes=2)
    with pytest.raises(InputError, match="not in the dataset"):
        model.delete([[1.0, 2.0]] * 2, [0, 0], [0, 9])
    with pytest.raises(ParameterError, match="num_classes"):
        recipe.fit([[1.0]], [0], num_classes=0)


@every_fallback
def test_weight_zero_is_absent_and_other_weights_are_refused(recipe):
    table = np.array([[1.0], [2.0], [9.0], [4.0]])
    records = Records.build(table, [0, 1, 1, 0], weights=[1, 0, 1, 1])
    model = recipe.fit_records(records)
    kept = recipe.fit(table[[0, 2, 3]], [0, 1, 0], num_classes=2)
    assert model.assess(table).margins.tobytes() == kept.assess(table).margins.tobytes()
    after, change = records.apply([Delete(1)])
    assert model.updated(records, after, change).num_records == 3
    heavy, change = records.apply([Add(id="heavy", features=[3.0], label=0, weight=2.5)])
    with pytest.raises(RecordError, match=r"'heavy' has the weight 2\.5"):
        model.updated(records, heavy, change)


@every_fallback
def test_a_number_beyond_the_largest_is_read_as_the_largest_and_stops_no_update(recipe):
    records = Records.build([[1.0], [2.0]], [0, 1])
    huge, change = records.apply([Add(id="huge", features=[1e200], label=0)])
    largest, _ = records.apply([Add(id="huge", features=[2.0**400], label=0)])
    found, expected = recipe.fit_records(records).updated(records, huge, change), recipe.fit_records(largest)
    assert found.num_records == 3
    np.testing.assert_array_equal(found.margin([[1.0], [2.0]]), expected.margin([[1.0], [2.0]]))
