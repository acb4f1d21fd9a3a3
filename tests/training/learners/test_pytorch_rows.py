from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from torch import nn

from expunge import UnlearningClassifier
from expunge.core.errors import InputError
from expunge.training.learners.pytorch import DPSGD, TorchLearner, TorchSlicedLearner


def table(n: int = 60, seed: int = 0):
    """Rows of small whole numbers, which every number type holds."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    return rng.integers(4, size=(n, 8)) + 2 * np.eye(3, 8, dtype=int)[y], y


X, Y = table()
LEARNER = TorchLearner(partial(nn.Linear, 8, 3), epochs=1)
PLAIN = LEARNER.fit(X.astype(np.float64), Y, 0)


def flipped(array):
    """The same values, stored the other way round."""
    return np.ascontiguousarray(array[..., ::-1])[..., ::-1]


def mixed_frame() -> pd.DataFrame:
    """A column of every kind of number, whose only type in common is that of Python's objects."""
    frame = pd.DataFrame(X, columns=list("abcdefgh")).astype({"b": float, "c": "float32", "d": "uint8"})
    return frame.astype({"e": "Float64", "f": "Int64", "g": "Float32"})


CONTAINERS = {
    "flipped": flipped(X.astype(float)),
    "flipped rows": X[::-1][::-1],
    "big-endian": X.astype(">f8"),
    "big-endian whole numbers": X.astype(">i4"),
    "big-endian unsigned": X.astype(">u2"),
    "long double": X.astype(np.longdouble),
    "half": X.astype(np.float16),
    "every other column": np.repeat(X, 2, axis=1)[:, ::2],
    "frame": mixed_frame(),
    "sparse long double": scipy.sparse.csr_array(X.astype(np.longdouble)),
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_the_same_numbers_give_the_same_model_in_any_container(name):
    rows = CONTAINERS[name]
    model = LEARNER.fit(rows, Y, 0)
    assert all(model.state[part].tobytes() == PLAIN.state[part].tobytes() for part in PLAIN.state)
    np.testing.assert_array_equal(model.predict(rows), PLAIN.predict(X))
    np.testing.assert_array_equal(LEARNER.make_voter([model], 3).votes(rows)[:, 0], PLAIN.predict(X))


def test_truth_values_beside_numbers():
    rows = X.copy()
    rows[:, 0] = rows[:, 0] > 1
    expected = LEARNER.fit(rows, Y, 0).predict(rows)
    for kind in (bool, "boolean"):
        frame = pd.DataFrame(rows).astype({0: kind, 1: float})
        np.testing.assert_array_equal(LEARNER.fit(frame, Y, 0).predict(frame), expected)
    classifier = UnlearningClassifier(LEARNER, n_shards=2, inclusion_probability=0.5, random_state=0)
    frame.columns = list("abcdefgh")
    assert len(classifier.fit(frame, Y).predict(frame)) == len(Y)


def test_a_missing_number_is_no_vote():
    frame = mixed_frame()
    frame.loc[4, "e"] = pd.NA
    assert PLAIN.predict(frame)[4] == -1
    assert (np.delete(PLAIN.predict(frame), 4) >= 0).all()


@pytest.mark.parametrize(
    ("column", "kind"),
    [(["x"] * 60, "object|str"), (pd.Categorical(["x"] * 60), "category"), ([1j] * 60, "complex128")],
)
def test_a_column_without_numbers_is_named(column, kind):
    frame = mixed_frame()
    frame["g"] = column
    with pytest.raises(InputError, match=f"needs numbers, but column 'g' has values of type ({kind})$"):
        LEARNER.fit(frame, Y, 0)


def test_labels_and_weights_in_any_layout():
    weights = np.linspace(0.5, 2, len(Y))
    expected = LEARNER.fit(X, Y, 0, weights=weights).state
    for labels, factors in [
        (flipped(Y), flipped(weights)),
        (Y.astype(">i8"), weights.astype(">f8")),
        (Y.tolist(), weights.tolist()),
        (Y.astype(np.uint8), weights.astype(np.longdouble)),
    ]:
        state = LEARNER.fit(X, labels, 0, weights=factors).state
        assert all(state[name].tobytes() == expected[name].tobytes() for name in expected)


ONES = np.ones(len(Y))
BAD_SHARDS = [
    ({"y": Y[:-3]}, "there must be a label a row, got 60 rows and 57 labels"),
    ({"X": X[:-3]}, "there must be a label a row, got 57 rows and 60 labels"),
    ({"y": []}, "there must be a label a row, got 60 rows and 0 labels"),
    ({"y": Y[:, None]}, r"there must be a label a row, got 60 rows and labels of the shape \(60, 1\)"),
    ({"X": 3.0}, "features must be a table with one row per record, got a single value"),
    ({"y": Y + 0.5}, "labels must be codes from 0 to 2, got values of type float64"),
    ({"y": Y.astype(str)}, "labels must be codes from 0 to 2, got values of type <U21"),
    ({"y": np.array(["a"] * 60, dtype=object)}, "labels must be codes from 0 to 2, got values of type object"),
    ({"y": Y - 1}, "labels must be codes from 0 to 2, got -1"),
    ({"y": Y + 2}, "labels must be codes from 0 to 2, got 3"),
    ({"y": 0 * Y - 1}, "labels must be codes from 0 to 2, got -1"),  # would be a constant that abstains
    ({"weights": ONES[:3]}, "there must be a weight a row, got 60 rows and 3 weights"),
    ({"weights": 2.0}, r"there must be a weight a row, got 60 rows and weights of the shape \(\)"),
    ({"weights": ONES.astype(str)}, "weights must be numbers, got values of type <U32"),
    ({"weights": -ONES}, "weights must be finite and at least 0, got -1.0"),
    ({"weights": ONES * np.nan}, "weights must be finite and at least 0, got nan"),
]


@pytest.mark.parametrize(("change", "message"), BAD_SHARDS)
def test_a_shard_that_does_not_fit_is_refused_in_one_line(change, message):
    shard = {"X": X, "y": Y, "seed": 0, "weights": None} | change
    learner = LEARNER.for_classes(np.arange(3))
    with pytest.raises(InputError, match=f"^{message}$"):
        learner.fit(**shard)
    with pytest.raises(InputError, match=f"^{message}$"):
        TorchSlicedLearner(learner, num_slices=2).extend(None, **shard)


def test_labels_without_a_known_number_of_classes():
    with pytest.raises(InputError, match=r"^labels must be codes from 0 on, got -1$"):
        LEARNER.fit(X, Y - 1, 0)
    private = TorchLearner(partial(nn.Linear, 8, 3), privacy=DPSGD(max_grad_norm=1.0, noise_multiplier=1.0))
    with pytest.raises(InputError, match=r"^labels must be codes from 0 on, got values of type float64$"):
        private.fit(X, Y + 0.5, 0)
