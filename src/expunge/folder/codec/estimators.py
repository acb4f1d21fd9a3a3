"""The state of scikit-learn's estimators, and the checks that compiled code needs before it can use a stored state.

Decision trees, boosted trees and support vector machines are evaluated by compiled code that does not check indices: a
crafted file could make it read outside of its arrays. So trees must point forwards and at existing features, and the
sizes of a support vector machine must fit together. Search trees of nearest neighbours are not stored; they are built
again from the points.
"""

from __future__ import annotations

from inspect import Parameter, signature
from typing import Any

import numpy as np
import sklearn
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.ensemble._forest import BaseForest
from sklearn.ensemble._gb import BaseGradientBoosting
from sklearn.neighbors import BallTree, KDTree
from sklearn.tree._tree import NODE_DTYPE, Tree

from expunge.core.errors import ModelFormatError

_LEAF = -1
_TRANSIENT = frozenset({"_tree", "_stop_words_id", "refit_time_", "cv_results_", "n_threads"})
_SEARCH_TREES = {"ball_tree": BallTree, "kd_tree": KDTree}


def state_of(value: Any) -> dict[str, Any]:
    """Take the attributes of an object that are to be stored."""
    kind = type(value)
    if not isinstance(value, BaseEstimator) or kind.__getstate__ is BaseEstimator.__getstate__:
        state: dict[str, Any] = vars(value)
    else:
        state = value.__getstate__()
        state.pop("_sklearn_version", None)
    if state.get("memory") is not None:
        raise ModelFormatError(f"{kind.__name__} with memory= is refused: its cache would keep copies of training data")
    return state if _TRANSIENT.isdisjoint(state) else _drop_transient(kind, state)


def _drop_transient(kind: type, state: dict[str, Any]) -> dict[str, Any]:
    """Drop what says nothing about the model and changes from run to run: addresses, timings, threads."""
    lasting = {name: part for name, part in state.items() if name != "_stop_words_id"}
    if isinstance(state.get("_tree"), KDTree | BallTree):
        del lasting["_tree"]
    if "refit_time_" in state:
        lasting["refit_time_"] = 0.0
    if "cv_results_" in state:
        results = state["cv_results_"].items()
        lasting["cv_results_"] = {n: np.zeros_like(part) if n.endswith("_time") else part for n, part in results}
    if kind.__name__ == "_BinMapper":
        lasting["n_threads"] = None  # as many as there are
    return lasting


def restore(value: Any, state: dict[str, Any]) -> None:
    """Set the attributes of a new object, and check what compiled code relies on."""
    kind = type(value)
    if state.get("memory") is not None:
        raise ModelFormatError(f"the stored model is malformed: {kind.__name__} with a cache")
    if "__setstate__" in kind.__dict__ and issubclass(kind, BaseEstimator):
        value.__setstate__({**state, "_sklearn_version": sklearn.__version__})
    else:
        vars(value).update(_new_options(kind, state) | state)
    if kind.__module__.startswith("sklearn."):
        for name, check in _CHECKS.items():
            if name in state:
                check(value)


def _new_options(kind: Any, state: dict[str, Any]) -> dict[str, Any]:
    """The default values of options that an older release of scikit-learn did not have."""
    if not issubclass(kind, BaseEstimator) or not kind.__module__.startswith("sklearn."):
        return {}
    options = signature(kind).parameters
    missing = [name for name in kind._get_param_names() if name not in state]
    return {name: options[name].default for name in missing if options[name].default is not Parameter.empty}


def is_tree(value: Any) -> bool:
    """Say whether this is a compiled decision tree."""
    return type(value) is Tree


def split_tree(tree: Any) -> tuple[Any, ...]:
    """Take a decision tree apart. Its nodes become columns, because the gaps between their fields hold stray memory."""
    _, (num_features, num_classes, num_outputs), state = tree.__reduce__()
    nodes = state["nodes"].copy()
    nodes["missing_go_to_left"][nodes["left_child"] == _LEAF] = 0  # never set by training, never read
    columns = [np.ascontiguousarray(nodes[name]) for name in NODE_DTYPE.names]
    return num_features, num_classes, num_outputs, state["max_depth"], state["values"], *columns


def make_tree(
    num_features: int, num_classes: NDArray[np.intp], num_outputs: int, depth: int, values: Any, *columns: Any
) -> Any:
    """Make the decision tree of `split_tree`, and check it."""
    nodes = np.zeros(len(columns[0]), dtype=NODE_DTYPE)
    for name, column in zip(NODE_DTYPE.names, columns, strict=True):
        nodes[name] = column
    left, right, features = nodes["left_child"], nodes["right_child"], nodes["feature"]
    inner = left != _LEAF
    _require(len(nodes) > 0 and len(num_classes) == num_outputs >= 1 and bool((num_classes >= 1).all()))
    _require(bool((right[~inner] == _LEAF).all()))
    _require_forward(left, inner)
    _require_forward(right, inner)
    _require(bool(((features[inner] >= 0) & (features[inner] < num_features)).all()))
    tree = Tree(num_features, num_classes, num_outputs)
    tree.__setstate__({"max_depth": depth, "node_count": len(nodes), "nodes": nodes, "values": values})
    return tree


def _require(is_fine: bool) -> None:
    if not is_fine:
        raise ModelFormatError("the stored model is malformed: its parts do not fit together")


def _require_forward(children: NDArray[Any], inner: NDArray[np.bool_]) -> None:
    """Check that every child comes after its parent, as training orders them. Then there is no cycle either."""
    places = np.flatnonzero(inner)
    targets = children[inner].astype(np.int64)
    _require(bool(((targets > places) & (targets < len(children))).all()))


def _check_tree(value: Any) -> None:
    _require(type(value.tree_) is Tree and value.tree_.n_features == value.n_features_in_)


def _check_members(value: Any) -> None:
    """Check the members of a forest or of boosting: they are evaluated on the owner's rows without a further check."""
    if isinstance(value, BaseForest | BaseGradientBoosting):
        for member in np.asarray(value.estimators_, dtype=object).ravel():
            _require(member.tree_.n_features == value.n_features_in_)


def _check_predictors(value: Any) -> None:
    mapper = value._bin_mapper
    _require(len(mapper.is_categorical_) == value.n_features_in_)
    for stage in value._predictors:
        for predictor in stage:
            _check_predictor(predictor, np.asarray(mapper.is_categorical_, dtype=bool))


def _check_predictor(predictor: Any, is_categorical: NDArray[np.bool_]) -> None:
    nodes = predictor.nodes
    inner = nodes["is_leaf"] == 0
    _require(len(nodes) > 0)
    _require_forward(nodes["left"], inner)
    _require_forward(nodes["right"], inner)
    features = nodes["feature_idx"][inner]
    _require(bool(((features >= 0) & (features < len(is_categorical))).all()))
    by_category = inner & (nodes["is_categorical"] != 0)
    _require(bool((nodes["bitset_idx"][by_category] < len(predictor.raw_left_cat_bitsets)).all()))
    _require(bool(is_categorical[nodes["feature_idx"][by_category]].all()))


def _check_machine(value: Any) -> None:
    """Check that support vectors, coefficients and intercepts have the sizes that libsvm reads."""
    if not hasattr(value, "_dual_coef_"):
        return
    num_classes, num_vectors = len(value._n_support), len(value.support_)
    num_pairs = num_classes * (num_classes - 1) // 2
    kernel_rows = 0 if value.kernel == "precomputed" else num_vectors
    _require(int(np.sum(value._n_support)) == num_vectors and bool((np.asarray(value._n_support) >= 0).all()))
    _require(value._dual_coef_.shape == (num_classes - 1, num_vectors))
    _require(value.support_vectors_.shape[0] == kernel_rows or value.kernel == "precomputed")
    _require(value.kernel == "precomputed" or value.support_vectors_.shape[1] == value.shape_fit_[1])
    _require(len(value._intercept_) == num_pairs)
    _require(len(value._probA) in (0, num_pairs) and len(value._probB) in (0, num_pairs))


def _check_vocabulary(value: Any) -> None:
    places = sorted(int(place) for place in value.vocabulary_.values())
    _require(places == list(range(len(places))))


def _rebuild_search_tree(value: Any) -> None:
    """Build the search tree as `NeighborsBase._fit` does."""
    search = _SEARCH_TREES.get(value._fit_method)
    value._tree = None
    if search is not None:
        value._tree = search(
            value._fit_X, value.leaf_size, metric=value.effective_metric_, **value.effective_metric_params_
        )


# Attribute -> the check that an object with this attribute needs.
_CHECKS = {
    "tree_": _check_tree,
    "estimators_": _check_members,
    "_predictors": _check_predictors,
    "_n_support": _check_machine,
    "vocabulary_": _check_vocabulary,
    "_fit_method": _rebuild_search_tree,
}
