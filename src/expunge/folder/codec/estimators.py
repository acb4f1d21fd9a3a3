"""The state of scikit-learn's estimators, and the checks that compiled code needs before it can use a stored state.

Decision trees, boosted trees and support vector machines are evaluated by compiled code that does not check indices: a
crafted file could make it read or write outside of its arrays. So trees must point forwards and at existing features,
and the sizes of boosted trees, support vector machines, clusters and neighbours must fit together. No attribute may
take the place of a method: a check would then say nothing about what runs. Search trees of nearest neighbours are not
stored; they are built again from the points.
"""

from __future__ import annotations

from functools import partial
from inspect import Parameter, signature
from typing import Any

import numpy as np
import scipy.sparse
import sklearn
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, is_classifier
from sklearn.compose import ColumnTransformer
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble._forest import BaseForest
from sklearn.ensemble._gb import BaseGradientBoosting
from sklearn.feature_extraction import FeatureHasher
from sklearn.neighbors import BallTree, KDTree
from sklearn.preprocessing import FunctionTransformer, OrdinalEncoder
from sklearn.tree._tree import NODE_DTYPE, Tree
from sklearn.utils.validation import check_array

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
    if _reads_files(kind, state):
        raise ModelFormatError(
            f"{kind.__name__}(input={state['input']!r}) is refused: its records would name files to read; use the texts"
        )
    if isinstance(value, BaseGradientBoosting) and "init_" in state and not _is_plain_start(state["init_"]):
        raise ModelFormatError(f"{kind.__name__} with init= is refused: leave init at None, or use 'zero'")
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
    if _is_scikit(kind):
        _require(not _reads_files(kind, state))
        _require(not any(callable(getattr(kind, name, None)) for name in state))
    if "__setstate__" in kind.__dict__ and issubclass(kind, BaseEstimator):
        value.__setstate__({**state, "_sklearn_version": sklearn.__version__})
    else:
        vars(value).update(_new_options(kind, state) | state)
    if _is_scikit(kind):
        for name, check in _CHECKS.items():
            if name in state:
                check(value)


def _is_scikit(kind: type) -> bool:
    return kind.__module__.startswith("sklearn.")


def _reads_files(kind: type, state: dict[str, Any]) -> bool:
    """Whether a vectorizer takes names of files for its records, and would open them."""
    return _is_scikit(kind) and state.get("input", "content") != "content"


def _new_options(kind: Any, state: dict[str, Any]) -> dict[str, Any]:
    """The default values of options that an older release of scikit-learn did not have."""
    if not issubclass(kind, BaseEstimator) or not _is_scikit(kind):
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
            _require(type(member.tree_) is Tree and member.tree_.n_features == value.n_features_in_)
    if isinstance(value, BaseGradientBoosting):
        _check_stages(value)


def _check_stages(value: Any) -> None:
    """Check that there is a column for every tree of a stage: the trees' values are written into it unchecked."""
    width = value.n_trees_per_iteration_
    _require(np.shape(value.estimators_) == (len(value.estimators_), width) and len(value.estimators_) > 0)
    _require(_is_plain_start(value.init_) and _is_loss(value._loss) and _is_loss(value._loss.link))
    _require(is_classifier(value) or isinstance(value.init_, str | DummyRegressor))
    _require(value._raw_predict_init(np.zeros((2, value.n_features_in_), dtype=np.float32)).shape == (2, width))


def _is_loss(value: Any) -> bool:
    return type(value).__module__.startswith("sklearn._loss.")


def _is_plain_start(value: Any) -> bool:
    """Whether boosting starts from zero, or from the class frequencies or the mean of the labels."""
    return value == "zero" if isinstance(value, str) else type(value) in (DummyClassifier, DummyRegressor)


def _check_predictors(value: Any) -> None:
    mapper = value._bin_mapper
    _require(len(mapper.is_categorical_) == value.n_features_in_)
    _require(value._preprocessor is None or _keeps_width(value._preprocessor, value.n_features_in_))
    for stage in value._predictors:
        for predictor in stage:
            _check_predictor(predictor, np.asarray(mapper.is_categorical_, dtype=bool))


def _keeps_width(value: Any, width: int) -> bool:
    """Whether it codes categories and leaves other columns alone, as boosting does before its trees see a row."""
    if type(value) is not ColumnTransformer:
        return False
    (_, coder, coded), (_, plain, others), *rest = value.transformers_
    is_plain = isinstance(plain.func, partial) and plain.func.func is check_array
    is_known = type(coder) is OrdinalEncoder and type(plain) is FunctionTransformer and is_plain
    is_known = is_known and all(part == "drop" for _, part, _ in rest)
    return is_known and sorted([*np.arange(width)[coded], *np.arange(width)[others]]) == [*range(width)]


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
    if type(value)._impl in ("c_svc", "nu_svc"):
        counted = int(np.sum(value._n_support))
    else:  # numbers and outliers: libsvm takes them for two classes, and counts the vectors of both together twice
        _require(num_classes == 2 and value._n_support[0] == value._n_support[1])
        counted = int(value._n_support[0])
    _require(counted == num_vectors and bool((np.asarray(value._n_support) >= 0).all()))
    _require(value._dual_coef_.shape == (num_classes - 1, num_vectors))
    is_sparse: bool = scipy.sparse.issparse(value._dual_coef_)
    _require(not is_sparse or value._dual_coef_.nnz == (num_classes - 1) * num_vectors)
    _require(value.shape_fit_[1] == value.n_features_in_)
    _require(bool(((value.support_ >= 0) & (value.support_ < value.shape_fit_[0])).all()))
    _require(value.support_vectors_.shape[0] == kernel_rows or value.kernel == "precomputed")
    _require(value.kernel == "precomputed" or value.support_vectors_.shape[1] == value.shape_fit_[1])
    _require(len(value._intercept_) == num_pairs)
    _require(len(value._probA) in (0, num_pairs) and len(value._probB) in (0, num_pairs))
    has_chances = value._effective_probability
    _require(has_chances is False or (has_chances is True and len(value._probA) == len(value._probB) == num_pairs))


def _check_vocabulary(value: Any) -> None:
    places = sorted(int(place) for place in value.vocabulary_.values())
    _require(places == list(range(len(places))))


def _check_clusters(value: Any) -> None:
    _require(np.shape(value.cluster_centers_)[1:] == (value.n_features_in_,))


def _check_hasher(value: Any) -> None:
    _require(not isinstance(value, FeatureHasher) or 0 < value.n_features < 2**31)


def _check_neighbours(value: Any) -> None:
    """Check the points and their classes, and build the search tree as `NeighborsBase._fit` does."""
    _require(value._fit_X.shape == (value.n_samples_fit_, value.n_features_in_))
    if is_classifier(value):
        classes = value.classes_ if value.outputs_2d_ else [value.classes_]
        codes = np.asarray(value._y).reshape(value.n_samples_fit_, -1)
        _require(codes.shape[1] == len(classes) and bool((codes >= 0).all()))
        _require(all(bool((codes[:, place] < len(each)).all()) for place, each in enumerate(classes)))
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
    "cluster_centers_": _check_clusters,
    "n_features": _check_hasher,
    "vocabulary_": _check_vocabulary,
    "_fit_method": _check_neighbours,
}
