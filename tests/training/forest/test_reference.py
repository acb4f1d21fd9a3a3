"""The exact forest as it is defined: a function of a set of records and a key."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.ensemble import ExtraTreesClassifier

from expunge.core.errors import ParameterError
from expunge.training.forest import draws, reference
from expunge.training.forest.draws import ForestOptions

KEY = draws.key_of(7)


def names_of(ids):
    ids = np.asarray(ids, dtype=np.uint64)
    return np.stack([np.ones_like(ids), ids], axis=1)


def data(count: int = 300, num_classes: int = 3):
    X, y = make_classification(
        count, 6, n_informative=4, n_redundant=0, n_classes=num_classes, random_state=1, flip_y=0.05
    )
    X = np.round(X, 1)  # many equal values
    X[np.random.default_rng(0).random(X.shape) < 0.1] = np.nan
    return X, y.astype(np.int64)


def grow(X, targets, ids, options, num_classes, key=KEY):
    return reference.grow_forest(key, X, targets, names_of(ids), options, num_classes)


def equal(first, second) -> bool:
    parts = ("sizes", "features", "thresholds", "totals")
    return all(getattr(first, name).tobytes() == getattr(second, name).tobytes() for name in parts)


def test_siphash_gives_the_words_that_its_authors_print():
    key = np.frombuffer(bytes(range(16)), "<u8").astype(np.uint64)
    assert int(draws.word(key, key[:1], key[1:])[0]) == 0x3F2ACC7F57C29BDB


def test_features_are_dealt_without_repetition_and_fractions_lie_inside():
    options = ForestOptions(num_candidates=17)
    for node in range(50):
        features, fractions = draws.candidates(KEY, np.uint64(node), 6, options)
        for start in (0, 6):
            assert sorted(features[start : start + 6]) == list(range(6))
        assert ((fractions > 0) & (fractions < 1)).all()


def test_samples_have_their_share_and_trees_differ():
    names, options = names_of(np.arange(20_000)), ForestOptions(share=0.3)
    first, second = (draws.sample(KEY, tree, names, options) for tree in (0, 1))
    # Four binomials of 20,000 trials; a deviation of 8 standard deviations has a chance below 1e-14.
    for found, share in ((first, 0.3), (second, 0.3), (first & second, 0.09), (first[::2] & first[1::2], 0.09)):
        assert abs(found.mean() - share) < 8 * np.sqrt(share * (1 - share) / len(found))


@pytest.mark.parametrize("num_classes", [3, None])
def test_the_order_of_records_does_not_matter_and_the_key_does(num_classes):
    X, y = data()
    options, ids = ForestOptions(num_trees=5, share=0.7, num_candidates=7), np.arange(len(y))
    targets = y if num_classes else reference.fixed_targets(y + 0.25, 2)
    trees = grow(X, targets, ids, options, num_classes)
    order = np.random.default_rng(2).permutation(len(y))
    assert equal(trees, grow(X[order], targets[order], ids[order], options, num_classes))
    assert not equal(trees, grow(X, targets, ids, options, num_classes, draws.key_of(8)))
    assert not equal(trees, grow(X, targets, ids + 1, options, num_classes))


def test_a_record_changes_only_the_trees_that_see_it():
    X, y = data()
    options, names = ForestOptions(num_trees=12, share=0.4), names_of(np.arange(len(y)))
    before, after = (grow(X[first:], y[first:], range(first, len(y)), options, 3) for first in (0, 1))
    starts = [np.cumsum([0, *each.sizes]) for each in (before, after)]
    for tree in range(12):
        own = [
            each.thresholds[start[tree] : start[tree + 1]] for each, start in zip((before, after), starts, strict=True)
        ]
        sees = draws.sample(KEY, tree, names[:1], options)[0]
        assert sees or np.array_equal(*own)


def test_leaves_hold_what_the_options_say():
    X, y = data()
    trees = grow(X, y, range(len(y)), ForestOptions(num_trees=4, share=1.0, min_leaf=5, max_depth=6), 3)
    assert trees.totals.sum() == 4 * len(y)
    assert trees.totals.sum(axis=1).min() >= 5
    leaves = reference.leaves_of(trees, X)
    for tree in range(4):
        held = np.bincount(leaves[:, tree], minlength=len(trees.totals))
        assert (held[np.unique(leaves[:, tree])] == trees.totals[np.unique(leaves[:, tree])].sum(axis=1)).all()
    whole = grow(X, y, range(len(y)), ForestOptions(num_trees=1, share=1.0, max_depth=0), 3)
    assert whole.totals.tolist() == [np.bincount(y).tolist()]


def test_it_learns_as_well_as_extremely_randomised_trees():
    X, y = make_classification(900, 10, n_informative=5, random_state=0)
    options = ForestOptions(num_trees=10, share=1.0, num_candidates=10)
    found = reference.probabilities(grow(X[:500], y[:500], range(500), options, 2), X[500:])
    theirs = ExtraTreesClassifier(10, max_features=None, random_state=0).fit(X[:500], y[:500])
    assert (found.argmax(axis=1) == y[500:]).mean() > theirs.score(X[500:], y[500:]) - 0.05


def test_it_learns_numbers():
    X = np.random.default_rng(0).normal(size=(800, 4))
    y = 1e6 + 3 * X[:, 0] + X[:, 1] ** 2
    exponent = reference.target_exponent(y[:400])
    assert 2.0 ** (exponent - 1) <= np.abs(y[:400]).max() < 2.0**exponent
    targets = reference.fixed_targets(y[:400], exponent)
    trees = grow(X[:400], targets, range(400), ForestOptions(10, 0.8, 4, min_leaf=2), None)
    found = reference.values(trees, X[400:], exponent)
    assert 1 - ((found - y[400:]) ** 2).mean() / y[400:].var() > 0.85


def test_no_records_no_opinion():
    empty = np.empty((0, 2))
    trees = grow(empty, np.empty(0, np.int64), [], ForestOptions(3), 2)
    assert np.isnan(reference.probabilities(trees, np.zeros((1, 2)))).all()
    assert np.isnan(reference.values(trees, np.zeros((1, 2)), 0)).all()


@pytest.mark.parametrize(
    "wrong", [{"num_trees": 0}, {"share": 0}, {"share": 1.5}, {"num_candidates": 0}, {"min_leaf": 0}, {"max_depth": -1}]
)
def test_options_out_of_range_are_refused(wrong):
    with pytest.raises(ParameterError, match=next(iter(wrong))):
        ForestOptions(**wrong)
