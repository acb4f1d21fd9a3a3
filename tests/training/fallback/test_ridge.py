from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.linear_model import RidgeClassifier

from expunge.core.errors import ParameterError
from expunge.training.fallback import RidgeFallback


def scores(model, queries):
    return (queries - model.means) @ model.coefficients.T + 2 * model.counts / model.num_records - 1


@pytest.mark.parametrize("penalty", [1.0, 100.0])
@pytest.mark.parametrize("load", [load_digits, load_breast_cancer])
def test_agrees_with_scikit_learn(penalty, load):
    X, y = load(return_X_y=True)
    cut = len(X) // 2
    ours = RidgeFallback(penalty=penalty).fit(X[:cut], y[:cut], num_classes=len(set(y)))
    theirs = RidgeClassifier(alpha=penalty, solver="cholesky").fit(X[:cut], y[:cut])
    np.testing.assert_array_equal(ours.predict(X[cut:]), theirs.predict(X[cut:]))
    expected = theirs.decision_function(X[cut:])
    found = scores(ours, X[cut:])
    np.testing.assert_allclose(found[:, 1] if expected.ndim == 1 else found, expected, atol=1e-7)


def test_margin_is_half_the_lead(blobs):
    X, y, queries, _ = blobs
    model = RidgeFallback().fit(X, y, num_classes=4)
    ranked = np.sort(scores(model, queries), axis=1)
    np.testing.assert_allclose(model.margin(queries), np.minimum((ranked[:, -1] - ranked[:, -2]) / 2, 1), atol=1e-12)


def test_statistics_and_coefficients_equal_those_from_scratch():
    generator = np.random.default_rng(1)
    table = generator.normal(size=(300, 12)) * 10.0 ** generator.integers(-4, 4, size=12)
    codes = generator.integers(0, 3, size=300)
    model = RidgeFallback().fit(table, codes, num_classes=3)
    for slot in range(200):
        model = model.delete(table[[slot]], codes[[slot]], [slot])
    fresh = RidgeFallback().fit(table[200:], codes[200:], num_classes=3)
    assert model.sums == fresh.sums
    assert model.products == fresh.products
    assert model.coefficients.tobytes() == fresh.coefficients.tobytes()


def test_a_downdated_inverse_would_remember():
    """Negative control: the same deletions by rank-one downdates of a floating-point inverse change the last bits."""
    table = np.random.default_rng(1).normal(size=(300, 12))

    def inverse(rows):
        return np.linalg.inv(rows.T @ rows + np.eye(12))

    downdated = inverse(table)
    for row in table[:200]:
        towards = downdated @ row
        downdated += np.outer(towards, towards) / (1 - row @ towards)
    np.testing.assert_allclose(downdated, inverse(table[200:]), rtol=1e-8, atol=1e-10)
    assert downdated.tobytes() != inverse(table[200:]).tobytes()


def test_means_that_dwarf_deviations_cost_no_accuracy(blobs):
    X, y, queries, _ = blobs
    X, queries = np.round(X * 64) / 64, np.round(queries * 64) / 64  # so that the shift itself is exact
    near, far = (RidgeFallback().fit(X + shift, y, num_classes=4) for shift in (0.0, 2.0**40))
    np.testing.assert_allclose(far.coefficients, near.coefficients, rtol=1e-9)
    np.testing.assert_array_equal(far.predict(queries + 2.0**40), near.predict(queries))


def test_a_matrix_that_rounding_made_indefinite_is_solved_all_the_same():
    generator = np.random.default_rng(0)
    table = generator.normal(size=(60, 3)) * 1e12
    # Collinear, and the penalty is far below rounding.
    table = np.hstack([table, table @ generator.normal(size=(3, 5))])
    codes = (table[:, 0] > 0).astype(int)
    model = RidgeFallback(penalty=1e-12).fit(table, codes, num_classes=2)
    count = model.num_records
    matrix = (model.products.scaled(count) - model.sums.total(axis=0).outer_square()).to_float() / count
    with pytest.raises(np.linalg.LinAlgError):
        scipy.linalg.cho_factor(matrix + 1e-12 * np.eye(8), lower=True)
    alone = RidgeFallback(penalty=1e-12).fit(table[:, :3], codes, num_classes=2)
    np.testing.assert_allclose(scores(model, table), scores(alone, table[:, :3]), atol=1e-6)


@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf")])
def test_bad_options_are_named(value):
    with pytest.raises(ParameterError, match=f"penalty must be a finite number > 0, got {value!r}"):
        RidgeFallback(penalty=value)
