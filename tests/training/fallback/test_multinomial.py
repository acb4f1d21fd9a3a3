from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from sklearn.datasets import load_digits
from sklearn.naive_bayes import MultinomialNB

from expunge.core.errors import InputError, ParameterError
from expunge.training.fallback import MultinomialNaiveBayes


@pytest.mark.parametrize("smoothing", [1.0, 0.1])
def test_agrees_with_scikit_learn_on_digits(smoothing):
    X, y = load_digits(return_X_y=True)
    ours = MultinomialNaiveBayes(smoothing=smoothing).fit(X[:1200], y[:1200], num_classes=10)
    theirs = MultinomialNB(alpha=smoothing).fit(X[:1200], y[:1200])
    np.testing.assert_array_equal(ours.predict(X[1200:]), theirs.predict(X[1200:]))
    np.testing.assert_allclose(ours.log_probabilities, theirs.feature_log_prob_, rtol=1e-12)
    log_posteriors = np.sort(theirs.predict_log_proba(X[1200:]), axis=1)
    lead = log_posteriors[:, -1] - log_posteriors[:, -2]
    np.testing.assert_allclose(ours.margin(X[1200:]), lead / (1 + lead), rtol=1e-9)


def test_fractions_are_summed_exactly():
    generator = np.random.default_rng(1)
    table, codes = generator.random(size=(300, 5)), generator.integers(0, 3, size=300)
    model = MultinomialNaiveBayes().fit(table, codes, num_classes=3)
    for slot in range(200):
        model = model.delete(table[[slot]], codes[[slot]], [slot])
    fresh = MultinomialNaiveBayes().fit(table[200:], codes[200:], num_classes=3)
    assert model.sums == fresh.sums
    assert model.log_probabilities.tobytes() == fresh.log_probabilities.tobytes()


def test_sparse_counts():
    table = scipy.sparse.random_array((50, 20), density=0.2, rng=np.random.default_rng(0), format="csr")
    codes = np.arange(50) % 2
    model = MultinomialNaiveBayes().fit(table, codes, num_classes=2)
    np.testing.assert_array_equal(model.predict(table), MultinomialNB().fit(table, codes).predict(table))


def test_negative_counts_are_refused():
    with pytest.raises(InputError, match="negative"):
        MultinomialNaiveBayes().fit([[-1.0]], [0], num_classes=1)
    model = MultinomialNaiveBayes().fit([[1.0]], [0], num_classes=1)
    with pytest.raises(InputError, match="negative"):
        model.add([[-1.0]], [0], [1])


@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf")])
def test_bad_options_are_named(value):
    with pytest.raises(ParameterError, match=f"smoothing must be a finite number > 0, got {value!r}"):
        MultinomialNaiveBayes(smoothing=value)
