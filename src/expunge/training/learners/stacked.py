"""Fitted classifiers of many shards, asked together: each answers what it would answer about a row alone, to the bit.

A call of scikit-learn costs a tenth of a millisecond and more, mostly for checks, whatever it computes. Here the
parameters of all classifiers of a kind lie in common arrays, and one operation computes for all shards. The order of
all additions is that of scikit-learn for a single row, so no answer depends on the rows that are asked with it.

Where many rows are asked about, a call a shard costs little. Then trees are asked one after another, without the checks
of scikit-learn.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar, Final, Self, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.naive_bayes import GaussianNB, MultinomialNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier, ExtraTreeClassifier
from sklearn.utils import get_tags

from expunge.training.learners.trees import Nodes

Floats = NDArray[np.float64]
Masks = NDArray[np.bool_]

FEW_ROWS: Final = 16  # up to so many it is faster to walk all trees together
_NUMBERS_AT_ONCE, _NUMBERS_IN_CACHE = 1 << 23, 1 << 17  # of all shards together
_IN_ORDER = 8  # NumPy adds fewer numbers one after another
_CERTAIN = 1e-11  # relative; distances that differ by less may be ordered otherwise by another rounding


class Stack(ABC):
    """Classifiers of one kind, one a shard.

    Rows are (shards, rows, columns): what each shard's pipeline makes of them; or (1, rows, columns) for all shards.
    """

    kinds: ClassVar[tuple[type, ...]]

    def rows_at_once(self, num_shards: int, own_columns: int, num_classes: int) -> int:
        """How many rows to ask about at a time, where each shard has so many columns that others do not share."""
        return max(1, _NUMBERS_AT_ONCE // (num_shards * max(own_columns, num_classes)))

    @classmethod
    def is_wide(cls, classifier: Any) -> bool:
        """Whether the classifier computes in 64 bits, or in the same way for numbers of 32 and of 64."""
        return True

    @classmethod
    @abstractmethod
    def key(cls, classifier: Any) -> Hashable | None:
        """Classifiers with the same key stack; None if this one does not."""

    @classmethod
    @abstractmethod
    def of(cls, classifiers: Sequence[Any]) -> Self:
        """Stack classifiers with one key."""

    @abstractmethod
    def with_changed(self, changed: Mapping[int, Any]) -> Self | None:
        """The same but for the classifiers at these places, which have the same key; None if it is to be made anew."""

    @abstractmethod
    def scores(self, rows: Floats) -> Floats:
        """What decides: (shards, rows, numbers)."""

    def winners(self, scores: Floats) -> NDArray[np.intp]:
        """Which of its own classes each classifier predicts: (shards, rows)."""
        return np.asarray(scores.argmax(axis=-1))

    @abstractmethod
    def probabilities(self, scores: Floats) -> Floats:
        """The probabilities of each classifier's own classes: (shards, rows, classes)."""

    def refused(self, rows: Floats) -> Masks | None:
        """The rows that each classifier fails on, (shards, rows) or (1, rows); None if there are none."""
        return _where_not(np.isfinite(rows))


def stack_of(classifier: Any) -> tuple[type[Stack], Hashable] | None:
    """The stack that a fitted classifier belongs to, and its key there; None if it belongs to none."""
    kind = _KINDS.get(type(classifier))
    key = None if kind is None else kind.key(classifier)
    return None if kind is None or key is None else (kind, key)


def may_stack(classifier: Any) -> bool:
    """Whether a fitted classifier is of a kind that stacks, and may be asked about rows in 64 bits."""
    kind = _KINDS.get(type(classifier))
    return kind is not None and kind.is_wide(classifier)


def _where_not(is_right: Masks) -> Masks | None:
    """The rows with a number that is not right."""
    return None if is_right.all() else np.asarray(~is_right.all(axis=-1))


def _changed(table: NDArray[Any], rows: Mapping[int, Any]) -> NDArray[Any]:
    """A copy with some rows replaced."""
    copy = table.copy()
    for place, row in rows.items():
        copy[place] = row
    return copy


class _GivenScores(GaussianNB):  # type: ignore[misc]
    """scikit-learn's way from joint likelihoods to probabilities."""

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def _check_X(self, X: Any) -> Any:
        return X

    def _joint_log_likelihood(self, X: Any) -> Any:
        return X


class _Bayes(Stack):
    """What classifiers of naive Bayes have in common: from joint likelihoods on."""

    def rows_at_once(self, num_shards: int, own_columns: int, num_classes: int) -> int:
        """What fits into a processor's cache."""
        return max(1, _NUMBERS_IN_CACHE // (num_shards * max(self.num_columns, num_classes)))

    @property
    @abstractmethod
    def num_columns(self) -> int:
        """How many columns a row has."""

    @classmethod
    def is_wide(cls, classifier: Any) -> bool:
        """Whether its parameters have 64 bits."""
        learned = classifier.theta_ if hasattr(classifier, "theta_") else classifier.feature_log_prob_
        return bool(learned.dtype == np.float64)

    @classmethod
    def key(cls, classifier: Any) -> Hashable | None:
        """By columns and number of classes."""
        return (classifier.n_features_in_, len(classifier.classes_)) if len(classifier.classes_) > 1 else None

    def probabilities(self, scores: Floats) -> Floats:
        """As scikit-learn computes them."""
        num_classes = scores.shape[-1]
        flat = scores.reshape(-1, num_classes)
        # Sums along columns are faster. Up to seven numbers are added in the same order there.
        flat = np.asfortranarray(flat) if num_classes < _IN_ORDER else np.ascontiguousarray(flat)
        return np.asarray(_GivenScores().predict_proba(flat)).reshape(scores.shape)


class GaussianStack(_Bayes):
    """Gaussian naive Bayes: squared distances of all classes of all shards."""

    kinds = (GaussianNB,)

    def __init__(self, means: Floats, variances: Floats, logs: Floats, norms: Floats) -> None:
        self._means, self._variances = means, variances  # (classes, shards, 1, columns)
        self._logs, self._norms = logs, norms  # (classes, shards, 1)

    @classmethod
    def of(cls, classifiers: Sequence[Any]) -> Self:
        """Stack them."""
        means = np.stack([each.theta_ for each in classifiers], axis=1)[:, :, np.newaxis]
        variances = np.stack([each.var_ for each in classifiers], axis=1)[:, :, np.newaxis]
        logs = np.log(np.stack([each.class_prior_ for each in classifiers], axis=1))[:, :, np.newaxis]
        return cls(means, variances, logs, cls._norms_of(variances))

    @property
    def num_columns(self) -> int:
        """How many columns a row has."""
        return int(self._means.shape[-1])

    @staticmethod
    def _norms_of(variances: Floats) -> Floats:
        return np.asarray(-0.5 * np.log(2.0 * np.pi * variances).sum(axis=-1))

    def with_changed(self, changed: Mapping[int, Any]) -> Self:
        """Copies with some shards replaced."""
        means, variances = self._means.copy(), self._variances.copy()
        logs, norms = self._logs.copy(), self._norms.copy()
        for place, each in changed.items():
            means[:, place, 0], variances[:, place, 0] = each.theta_, each.var_
            logs[:, place, 0] = np.log(each.class_prior_)
            norms[:, place] = self._norms_of(variances[:, place])
        return type(self)(means, variances, logs, norms)

    def scores(self, rows: Floats) -> Floats:
        """Joint logarithms of likelihoods."""
        num_classes, num_shards, _, width = self._means.shape
        table = np.empty((num_classes, num_shards, rows.shape[1]))
        room = np.empty((num_shards, rows.shape[1], width))
        for code, (means, variances, logs, norms) in enumerate(
            zip(self._means, self._variances, self._logs, self._norms, strict=True)
        ):
            np.subtract(rows, means, out=room)
            np.square(room, out=room)
            np.divide(room, variances, out=room)
            table[code] = logs + (norms - 0.5 * room.sum(axis=-1))
        return np.moveaxis(table, 0, 2)


class MultinomialStack(_Bayes):
    """Multinomial naive Bayes: a product for each shard and row, as scikit-learn makes it for a row alone."""

    kinds = (MultinomialNB,)

    def __init__(self, weights: Floats, priors: Floats) -> None:
        self._weights, self._priors = weights, priors  # (shards, classes, columns), (shards, classes)

    @classmethod
    def of(cls, classifiers: Sequence[Any]) -> Self:
        """Stack them."""
        weights = np.stack([each.feature_log_prob_ for each in classifiers])
        return cls(weights, np.stack([each.class_log_prior_ for each in classifiers]))

    def with_changed(self, changed: Mapping[int, Any]) -> Self:
        """Copies with some shards replaced."""
        weights = _changed(self._weights, {place: each.feature_log_prob_ for place, each in changed.items()})
        return type(self)(
            weights, _changed(self._priors, {place: each.class_log_prior_ for place, each in changed.items()})
        )

    @property
    def num_columns(self) -> int:
        """How many columns a row has."""
        return int(self._weights.shape[-1])

    def refused(self, rows: Floats) -> Masks | None:
        """Rows with a number that is negative, infinite or missing."""
        return _where_not(np.isfinite(rows) & (rows >= 0))

    def scores(self, rows: Floats) -> Floats:
        """Joint logarithms of likelihoods."""
        single = np.ascontiguousarray(rows)[:, :, np.newaxis]
        found = np.matmul(single, self._weights[:, np.newaxis].swapaxes(-1, -2))
        return np.asarray(found[:, :, 0] + self._priors[:, np.newaxis])


class TreeStack(Stack):
    """Decision trees and forests: few rows walk down all trees together; many rows pass one tree after another."""

    kinds = (DecisionTreeClassifier, ExtraTreeClassifier, RandomForestClassifier, ExtraTreesClassifier)

    def __init__(self, fitted: list[Any], nodes: Nodes, takes_gaps: bool) -> None:
        self._fitted, self._nodes, self._takes_gaps = fitted, nodes, takes_gaps

    @classmethod
    def key(cls, classifier: Any) -> Hashable | None:
        """By the number of classes and of trees, and whether gaps are taken."""
        if classifier.n_outputs_ != 1:
            return None
        takes_gaps = bool(get_tags(_trees(classifier)[0]).input_tags.allow_nan)
        return len(classifier.classes_), len(_trees(classifier)), takes_gaps

    @classmethod
    def of(cls, classifiers: Sequence[Any]) -> Self:
        """Stack them."""
        nodes = Nodes.join([_tree_nodes(each) for each in classifiers])
        takes_gaps = bool(get_tags(_trees(classifiers[0])[0]).input_tags.allow_nan)
        return cls([_trees(each) for each in classifiers], nodes, takes_gaps)

    def with_changed(self, changed: Mapping[int, Any]) -> Self | None:
        """New nodes behind the others."""
        nodes = self._nodes.with_changed({place: _tree_nodes(each) for place, each in changed.items()})
        if nodes is None:
            return None
        fitted = list(self._fitted)
        for place, each in changed.items():
            fitted[place] = _trees(each)
        return type(self)(fitted, nodes, self._takes_gaps)

    def refused(self, rows: Floats) -> Masks | None:
        """Rows with an infinite number in 32 bits, or a gap that trees do not take."""
        with np.errstate(over="ignore"):
            narrow = rows.astype(np.float32)
        return _where_not(~np.isinf(narrow) if self._takes_gaps else np.isfinite(narrow))

    def scores(self, rows: Floats) -> Floats:
        """The mean of the trees' shares of classes."""
        with np.errstate(over="ignore"):
            narrow = np.ascontiguousarray(rows, dtype=np.float32)
        num_trees = len(self._fitted[0])
        total = np.zeros((len(self._fitted), rows.shape[1], self._nodes.values.shape[1]))
        if rows.shape[1] <= FEW_ROWS:
            leaves = self._nodes.leaves(narrow.astype(np.float64))
            for tree in range(num_trees):
                total += self._nodes.values.take(leaves[:, tree], axis=0)
        else:
            for place, trees in enumerate(self._fitted):
                own = narrow[place % len(narrow)]
                for tree in trees:
                    total[place] += tree.tree_.predict(own)[:, : total.shape[2]]
        return total / num_trees

    def probabilities(self, scores: Floats) -> Floats:
        """The same."""
        return scores


class HistogramStack(Stack):
    """Boosting on histograms: few rows walk down all trees together; many rows are asked of one model after another."""

    kinds = (HistGradientBoostingClassifier,)

    def __init__(self, fitted: list[Any], nodes: Nodes, baselines: Floats) -> None:
        self._fitted, self._nodes, self._baselines = fitted, nodes, baselines

    @classmethod
    def key(cls, classifier: Any) -> Hashable | None:
        """By columns, the number of classes and of trees."""
        is_plain = classifier.is_categorical_ is None and classifier._preprocessor is None
        if not is_plain or classifier._baseline_prediction.dtype != np.float64:
            return None
        return classifier.n_features_in_, len(classifier.classes_), len(classifier._predictors)

    @classmethod
    def of(cls, classifiers: Sequence[Any]) -> Self:
        """Stack them."""
        nodes = Nodes.join([_histogram_nodes(each) for each in classifiers])
        return cls(list(classifiers), nodes, np.stack([each._baseline_prediction[0] for each in classifiers]))

    def with_changed(self, changed: Mapping[int, Any]) -> Self | None:
        """New nodes behind the others."""
        nodes = self._nodes.with_changed({place: _histogram_nodes(each) for place, each in changed.items()})
        if nodes is None:
            return None
        fitted = list(self._fitted)
        for place, each in changed.items():
            fitted[place] = each
        baselines = {place: each._baseline_prediction[0] for place, each in changed.items()}
        return type(self)(fitted, nodes, _changed(self._baselines, baselines))

    def refused(self, rows: Floats) -> Masks | None:
        """None: it takes gaps and infinite numbers."""
        return None

    def scores(self, rows: Floats) -> Floats:
        """Raw predictions."""
        width = self._baselines.shape[1]
        if rows.shape[1] > FEW_ROWS:
            own = np.ascontiguousarray(rows)
            found = [each._raw_predict(own[n % len(own)], n_threads=1) for n, each in enumerate(self._fitted)]
            return np.stack(found)
        leaves = self._nodes.leaves(np.ascontiguousarray(rows))
        raw = np.repeat(self._baselines[:, np.newaxis], rows.shape[1], axis=1)
        for tree in range(leaves.shape[1]):
            raw[:, :, tree % width] += self._nodes.values.take(leaves[:, tree], axis=0)[..., 0]
        return raw

    def winners(self, scores: Floats) -> NDArray[np.intp]:
        """The class with the largest raw prediction; the second of two if its raw prediction is positive."""
        return (scores[..., 0] > 0).astype(np.intp) if scores.shape[2] == 1 else scores.argmax(axis=-1)

    def probabilities(self, scores: Floats) -> Floats:
        """As scikit-learn computes them."""
        return _by_loss(self._fitted[0], scores)


class BoostingStack(Stack):
    """Gradient boosting: its compiled loop over all trees of a model, without the checks around it."""

    kinds = (GradientBoostingClassifier,)

    def __init__(self, fitted: list[Any], starts: Floats) -> None:
        self._fitted, self._starts = fitted, starts

    @classmethod
    def key(cls, classifier: Any) -> Hashable | None:
        """By the number of classes and the loss; None if rows decide where the trees start from."""
        if classifier.init is not None and classifier.init != "zero":
            return None
        return len(classifier.classes_), type(classifier._loss)

    @staticmethod
    def _start(classifier: Any) -> Floats:
        row = np.zeros((1, classifier.n_features_in_), dtype=np.float32)
        return np.asarray(classifier._raw_predict_init(row)[0], dtype=np.float64)

    @classmethod
    def of(cls, classifiers: Sequence[Any]) -> Self:
        """Stack them."""
        return cls(list(classifiers), np.stack([cls._start(each) for each in classifiers]))

    def with_changed(self, changed: Mapping[int, Any]) -> Self:
        """Copies with some shards replaced."""
        fitted = list(self._fitted)
        for place, each in changed.items():
            fitted[place] = each
        return type(self)(fitted, _changed(self._starts, {place: self._start(each) for place, each in changed.items()}))

    def refused(self, rows: Floats) -> Masks | None:
        """Rows with a gap, or a number that is infinite in 32 bits."""
        with np.errstate(over="ignore"):
            return _where_not(np.isfinite(rows.astype(np.float32)))

    def scores(self, rows: Floats) -> Floats:
        """Raw predictions."""
        from sklearn.ensemble._gradient_boosting import predict_stages

        with np.errstate(over="ignore"):
            narrow = np.ascontiguousarray(rows, dtype=np.float32)
        raw = np.repeat(self._starts[:, np.newaxis], rows.shape[1], axis=1)
        for place, each in enumerate(self._fitted):
            predict_stages(each.estimators_, narrow[place % len(narrow)], each.learning_rate, raw[place])
        return raw

    def winners(self, scores: Floats) -> NDArray[np.intp]:
        """The class with the largest raw prediction; the second of two if its raw prediction is not negative."""
        return (scores[..., 0] >= 0).astype(np.intp) if scores.shape[2] == 1 else scores.argmax(axis=-1)

    def probabilities(self, scores: Floats) -> Floats:
        """As scikit-learn computes them."""
        return _by_loss(self._fitted[0], scores)


class NeighbourStack(Stack):
    """Nearest neighbours: distances to the records of all shards at once.

    Which records are nearest must not hang on how a distance is rounded. Where the last one that counts and the next
    one are as good as equally far, the model is asked about the row alone.
    """

    kinds = (KNeighborsClassifier,)

    @classmethod
    def is_wide(cls, classifier: Any) -> bool:
        """Whether its records have 64 bits."""
        return getattr(classifier._fit_X, "dtype", None) == np.float64

    def __init__(self, fitted: list[Any], records: Floats, lengths: Floats, labels: NDArray[np.intp]) -> None:
        self._fitted = fitted
        # (shards, most records, columns); squared lengths, infinite where a shard has no record; labels
        self._records, self._lengths, self._labels = records, lengths, labels

    @classmethod
    def key(cls, classifier: Any) -> Hashable | None:
        """By columns, the number of classes and of neighbours; None for other distances or weights."""
        known, count = classifier._fit_X, classifier.n_neighbors
        is_plain = isinstance(known, np.ndarray) and not classifier.outputs_2d_
        if not is_plain or classifier.effective_metric_ != "euclidean" or classifier.weights != "uniform":
            return None
        return (known.shape[1], len(classifier.classes_), count) if len(known) > count else None

    @classmethod
    def of(cls, classifiers: Sequence[Any]) -> Self:
        """Stack them."""
        most, width = max(len(each._fit_X) for each in classifiers), classifiers[0]._fit_X.shape[1]
        made = cls(
            list(classifiers),
            np.zeros((len(classifiers), most, width)),
            np.full((len(classifiers), most), np.inf),
            np.zeros((len(classifiers), most), dtype=np.intp),
        )
        for place, each in enumerate(classifiers):
            made._place(place, each)
        return made

    def _place(self, place: int, each: Any) -> None:
        size = len(each._fit_X)
        self._records[place, :size], self._labels[place, :size] = each._fit_X, each._y
        self._lengths[place, :size], self._lengths[place, size:] = np.square(each._fit_X).sum(axis=1), np.inf

    def with_changed(self, changed: Mapping[int, Any]) -> Self | None:
        """Copies with some shards replaced; anew if one has more records than there is room for."""
        if any(len(each._fit_X) > self._records.shape[1] for each in changed.values()):
            return None
        fitted = list(self._fitted)
        made = type(self)(fitted, self._records.copy(), self._lengths.copy(), self._labels.copy())
        for place, each in changed.items():
            fitted[place] = each
            made._place(place, each)
        return made

    def scores(self, rows: Floats) -> Floats:
        """The share of each class among the nearest."""
        nearest, is_sure = self._few(rows) if rows.shape[1] <= FEW_ROWS else self._many(rows)
        num_classes, count = len(self._fitted[0].classes_), nearest.shape[2]
        shares = np.stack([(nearest == code).sum(axis=2) for code in range(num_classes)], axis=2) / count
        for place, row in np.argwhere(~is_sure).tolist():
            shares[place, row] = self._fitted[place].predict_proba(rows[place % len(rows), row : row + 1])[0]
        return np.asarray(shares)

    def _few(self, rows: Floats) -> tuple[NDArray[np.intp], Masks]:
        """The labels of the nearest, (shards, rows, neighbours), and which of them are sure."""
        count = self._fitted[0].n_neighbors
        own = np.square(rows).sum(axis=2)
        distances = np.matmul(rows, self._records.swapaxes(1, 2))
        distances *= -2
        distances += self._lengths[:, np.newaxis]
        places = np.argpartition(distances, (count - 1, count), axis=2)[:, :, : count + 1]
        ends = np.take_along_axis(distances, places[:, :, -2:], axis=2)
        longest = np.where(np.isinf(self._lengths), 0, self._lengths).max(axis=1)[:, np.newaxis]
        is_sure = ends[:, :, 1] - ends[:, :, 0] > _CERTAIN * (longest + own)
        labels = np.take_along_axis(self._labels[:, np.newaxis], places[:, :, :count], axis=2)
        return labels, is_sure

    def _many(self, rows: Floats) -> tuple[NDArray[np.intp], Masks]:
        count = self._fitted[0].n_neighbors
        labels = np.empty((len(self._fitted), rows.shape[1], count), dtype=np.intp)
        is_sure = np.empty(labels.shape[:2], dtype=np.bool_)
        longest = np.where(np.isinf(self._lengths), 0, self._lengths).max(axis=1)
        for place, each in enumerate(self._fitted):
            own = np.ascontiguousarray(rows[place % len(rows)])
            distances, found = each.kneighbors(own, n_neighbors=count + 1)
            labels[place] = each._y[found[:, :count]]
            room = _CERTAIN * (longest[place] + np.square(own).sum(axis=1))
            is_sure[place] = distances[:, count] ** 2 - distances[:, count - 1] ** 2 > room
        return labels, is_sure

    def probabilities(self, scores: Floats) -> Floats:
        """The same."""
        return scores


def _trees(classifier: Any) -> list[Any]:
    return list(getattr(classifier, "estimators_", [classifier]))


def _tree_nodes(classifier: Any) -> list[dict[str, NDArray[Any]]]:
    """The nodes of each tree, as `Nodes` wants them."""
    found = []
    for tree in _trees(classifier):
        state = tree.tree_.__getstate__()
        nodes = state["nodes"]
        found.append(
            {
                "left": nodes["left_child"],
                "right": nodes["right_child"],
                "column": nodes["feature"],
                "threshold": nodes["threshold"],
                "gap_goes_left": nodes["missing_go_to_left"],
                "is_leaf": nodes["left_child"] == -1,
                "value": state["values"][:, 0, : len(classifier.classes_)],
            }
        )
    return found


def _histogram_nodes(classifier: Any) -> list[dict[str, NDArray[Any]]]:
    """The nodes of each tree: a tree of the first class, one of the second …, and the next round."""
    return [
        {
            "left": tree.nodes["left"],
            "right": tree.nodes["right"],
            "column": tree.nodes["feature_idx"],
            "threshold": tree.nodes["num_threshold"],
            "gap_goes_left": tree.nodes["missing_go_to_left"],
            "is_leaf": tree.nodes["is_leaf"].astype(np.bool_),
            "value": tree.nodes["value"][:, np.newaxis],
        }
        for trees in classifier._predictors
        for tree in trees
    ]


def _by_loss(classifier: Any, scores: Floats) -> Floats:
    flat = np.ascontiguousarray(scores).reshape(-1, scores.shape[-1])
    found = cast("Floats", classifier._loss.predict_proba(flat))
    return found.reshape(*scores.shape[:2], found.shape[-1])


_STACKS: Final = (GaussianStack, MultinomialStack, TreeStack, HistogramStack, BoostingStack, NeighbourStack)
_KINDS: Final[Mapping[type, type[Stack]]] = {kind: stack for stack in _STACKS for kind in stack.kinds}
