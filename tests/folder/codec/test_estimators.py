"""Files whose arrays would lead compiled code astray, with a right checksum: refused before anything is computed."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.svm import SVC, SVR
from sklearn.tree import DecisionTreeClassifier

from expunge.core.errors import ModelFormatError
from expunge.folder.codec import container, decode, encode

X = np.random.default_rng(0).normal(size=(40, 3))
Y = (X[:, 0] > 0).astype(np.int64)


def refused(data, match="do not fit together"):
    with pytest.raises(ModelFormatError, match=match):
        decode("arrays", data)


def change_arrays(data, wanted, make):
    """The file with every array of a number type changed."""
    tree, arrays = container.unpack(data)
    return container.pack(tree, [make(array) if array.dtype == wanted else array for array in arrays])


FOREST = encode(RandomForestClassifier(2, random_state=0).fit(X, Y)).data
TREE = encode(DecisionTreeClassifier(random_state=0).fit(X, Y)).data


@pytest.mark.parametrize("value", [10**6, -5, 0])
@pytest.mark.parametrize("data", [FOREST, TREE], ids=["forest", "tree"])
def test_trees_that_point_elsewhere(data, value):
    """Children, features and sample counts of trees are the arrays of whole numbers."""
    refused(change_arrays(data, np.int64, lambda array: np.where(array > 0, value, array)), "malformed")


def test_trees_of_more_features_than_their_owner():
    wide = RandomForestClassifier(1, random_state=0).fit(np.column_stack([X, X, X]), Y)
    narrow = RandomForestClassifier(1, random_state=0).fit(X, Y)
    for owner in (narrow, GradientBoostingClassifier(n_estimators=1).fit(X, Y)):
        if owner is narrow:
            owner.estimators_ = wide.estimators_
        else:
            owner.estimators_[0, 0] = wide.estimators_[0]
        refused(encode(owner).data)
    single = DecisionTreeClassifier().fit(X, Y)
    single.tree_ = wide.estimators_[0].tree_
    refused(encode(single).data)


@pytest.mark.parametrize("field", ["left", "right", "feature_idx", "bitset_idx"])
def test_boosted_trees_that_point_elsewhere(field):
    model = HistGradientBoostingClassifier(max_iter=2, categorical_features=[2], min_samples_leaf=2)
    model.fit(np.column_stack([X[:, :2], np.arange(40) % 4]), np.arange(40) % 2)
    nodes = model._predictors[0][0].nodes
    places = (nodes["is_leaf"] == 0) & ((nodes["is_categorical"] != 0) | (field != "bitset_idx"))
    assert places.any()
    nodes[field][places] = 10**6
    refused(encode(model).data)


@pytest.mark.parametrize("name", ["_dual_coef_", "_intercept_", "_n_support", "support_vectors_", "support_"])
@pytest.mark.parametrize("kind", [SVC, SVR])
def test_machines_whose_sizes_do_not_fit(kind, name):
    model = kind().fit(X, Y)
    setattr(model, name, getattr(model, name)[..., :-1])
    refused(encode(model).data)


def test_vocabularies_that_point_elsewhere():
    model = CountVectorizer().fit(["some words here"])
    model.vocabulary_["words"] = 10**9
    refused(encode(model).data)


def test_sparse_matrices_that_point_elsewhere(forge):
    parts = [np.ones(2), np.array([0, 10**6]), np.array([0, 1, 2])]
    refused(forge(["sparse", "csr_matrix", [2, 3], *[["array", n] for n in range(3)]], parts), "malformed")
