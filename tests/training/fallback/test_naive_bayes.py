from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse
from sklearn.datasets import load_digits
from sklearn.naive_bayes import GaussianNB, MultinomialNB

from expunge.core.errors import InputError, ParameterError
from expunge.training.fallback import GaussianNaiveBayes, MultinomialNaiveBayes


def test_gaussian_agrees_with_scikit_learn(blobs):
    X, y, queries, _ = blobs
    ours, theirs = GaussianNaiveBayes().fit(X, y, num_classes=4), GaussianNB().fit(X, y)
    np.testing.assert_array_equal(ours.predict(queries), theirs.predict(queries))
    np.testing.assert_allclose(ours.means, theirs.theta_, rtol=1e-12)
    np.testing.assert_allclose(ours.variances + ours.smoothing, theirs.var_, rtol=1e-12)
    log_posteriors = np.sort(theirs.predict_log_proba(queries), axis=1)
    lead = log_posteriors[:, -1] - log_posteriors[:, -2]
    np.testing.assert_allclose(ours.margin(queries), lead / (1 + lead), rtol=1e-9, atol=1e-12)


def test_gaussian_agrees_with_scikit_learn_on_digits():
    X, y = load_digits(return_X_y=True)  # some pixels are constant within a class, some in all classes
    ours = GaussianNaiveBayes().fit(X[:1200], y[:1200], num_classes=10).predict(X[1200:])
    np.testing.assert_array_equal(ours, GaussianNB().fit(X[:1200], y[:1200]).predict(X[1200:]))


def test_gaussian_moments_are_the_nearest_floats_even_where_means_dwarf_deviations():
    table = 1e15 + np.arange(9).reshape(9, 1) / 8
    model = GaussianNaiveBayes().fit(table, np.zeros(9, dtype=int), num_classes=1)
    exact = [Fraction(float(x)) for x in table[:, 0]]
    mean = sum(exact) / 9
    assert model.means[0, 0] == float(mean)
    assert model.variances[0, 0] == float(sum((x - mean) ** 2 for x in exact) / 9)


def test_gaussian_statistics_and_parameters_equal_those_from_scratch():
    generator = np.random.default_rng(1)
    table, codes = generator.normal(size=(300, 5)) * 1e3, generator.integers(0, 3, size=300)
    gone = np.sort(generator.permutation(300)[:120])
    kept = np.setdiff1d(np.arange(300), gone)
    fresh = GaussianNaiveBayes().fit(table[kept], codes[kept], num_classes=3)
    model = GaussianNaiveBayes().fit(table, codes, num_classes=3)
    for slot in gone:
        model = model.delete(table[[slot]], codes[[slot]], [slot])
    assert model.sums == fresh.sums
    assert model.squares == fresh.squares
    assert model.means.tobytes() == fresh.means.tobytes()
    assert model.variances.tobytes() == fresh.variances.tobytes()
    assert model.smoothing == fresh.smoothing


def test_gaussian_smoothing_forgets_the_widest_record():
    table = np.array([[0.0, 1.0], [1.0, 0.0], [1e9, 0.5]])
    model = GaussianNaiveBayes().fit(table, [0, 1, 1], num_classes=2)
    without = model.delete(table[2:], [1], [2])
    assert model.smoothing > 1e8
    assert without.smoothing == 0.25e-9


def test_gaussian_margin_keeps_apart_what_a_posterior_does_not():
    table = np.repeat(np.array([[-1.0], [-2.0], [1.0], [2.0]]), 100, axis=1)
    margins = GaussianNaiveBayes().fit(table, [0, 0, 1, 1], num_classes=2).margin(np.ones((2, 100)) * [[1.0], [2.0]])
    assert margins[0] < margins[1] < 1  # both posteriors are 1 in floating point


@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf")])
def test_gaussian_bad_options_are_named(value):
    with pytest.raises(ParameterError, match=f"var_smoothing must be a finite number > 0, got {value!r}"):
        GaussianNaiveBayes(var_smoothing=value)


@pytest.mark.parametrize("smoothing", [1.0, 0.1])
def test_multinomial_agrees_with_scikit_learn_on_digits(smoothing):
    X, y = load_digits(return_X_y=True)
    ours = MultinomialNaiveBayes(smoothing=smoothing).fit(X[:1200], y[:1200], num_classes=10)
    theirs = MultinomialNB(alpha=smoothing).fit(X[:1200], y[:1200])
    np.testing.assert_array_equal(ours.predict(X[1200:]), theirs.predict(X[1200:]))
    np.testing.assert_allclose(ours.log_probabilities, theirs.feature_log_prob_, rtol=1e-12)
    log_posteriors = np.sort(theirs.predict_log_proba(X[1200:]), axis=1)
    lead = log_posteriors[:, -1] - log_posteriors[:, -2]
    np.testing.assert_allclose(ours.margin(X[1200:]), lead / (1 + lead), rtol=1e-9)


def test_multinomial_fractions_are_summed_exactly():
    generator = np.random.default_rng(1)
    table, codes = generator.random(size=(300, 5)), generator.integers(0, 3, size=300)
    model = MultinomialNaiveBayes().fit(table, codes, num_classes=3)
    for slot in range(200):
        model = model.delete(table[[slot]], codes[[slot]], [slot])
    fresh = MultinomialNaiveBayes().fit(table[200:], codes[200:], num_classes=3)
    assert model.sums == fresh.sums
    assert model.log_probabilities.tobytes() == fresh.log_probabilities.tobytes()


def test_multinomial_sparse_counts():
    table = scipy.sparse.random_array((50, 20), density=0.2, rng=np.random.default_rng(0), format="csr")
    codes = np.arange(50) % 2
    model = MultinomialNaiveBayes().fit(table, codes, num_classes=2)
    np.testing.assert_array_equal(model.predict(table), MultinomialNB().fit(table, codes).predict(table))


def test_multinomial_negative_counts_are_refused():
    with pytest.raises(InputError, match="negative"):
        MultinomialNaiveBayes().fit([[-1.0]], [0], num_classes=1)
    model = MultinomialNaiveBayes().fit([[1.0]], [0], num_classes=1)
    with pytest.raises(InputError, match="negative"):
        model.add([[-1.0]], [0], [1])


@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf")])
def test_multinomial_bad_options_are_named(value):
    with pytest.raises(ParameterError, match=f"smoothing must be a finite number > 0, got {value!r}"):
        MultinomialNaiveBayes(smoothing=value)
