"""The votes and probabilities of linear models, of all shards in one matrix product; and the values of regressors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from expunge.core.features import Features, codes_of, is_frame, is_sparse, num_rows
from expunge.training.learners.protocol import ABSTAIN, Codes, Floats

_LOWEST = float(np.finfo(np.float64).min)  # not -∞: some BLAS kernels multiply it by the zeros of their padding
_SCORES_AT_ONCE = 1 << 16  # float64 scores of a class that fit into the second-level cache while they are compared

# Of one shard: (weights, intercepts, class codes of the rows), a constant class code, or None for ⊥.
LinearScores = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]
LinearVote = LinearScores | int | None

Link = Literal["softmax", "one against the rest"]
"""How scores of three classes or more become probabilities. Two classes have the logistic function in both cases."""

_LEAST_BLOCK, _MOST_BLOCK = 16, 1024
_NUMBERS_IN_BLOCK = 1 << 14


class LinearVoter:
    """Compute the scores of all shards as matrix products.

    There is one product for each class (a single one for two classes), so that the classes are compared over whole
    rows of shards. The intercepts are the last row of the weights, against a column of ones. A class that a shard never
    saw gets the lowest score possible. With a `link` the voter has probabilities too.
    """

    def __init__(
        self, shards: Sequence[LinearVote], num_classes: int, num_features: int, link: Link | None = None
    ) -> None:
        self._num_classes = num_classes
        self._num_shards = len(shards)
        self._link = link
        self._is_voting = np.array([shard is not None for shard in shards])
        voting = [shard for shard in shards if shard is not None]
        self._is_known = np.zeros((num_classes, len(voting)), dtype=np.bool_)  # the classes that each shard has seen
        for place, shard in enumerate(voting):
            self._is_known[shard if isinstance(shard, int) else shard[2], place] = True
        if num_classes == 2:
            pairs = [_binary(shard, num_features) for shard in voting]
            self._weights = [_stacked([w for w, _ in pairs], [b for _, b in pairs], num_features)]
        else:
            full = [_full(shard, num_classes, num_features) for shard in voting]
            self._weights = [
                _stacked([w[code] for w, _ in full], [b[code] for _, b in full], num_features)
                for code in range(num_classes)
            ]

    def with_changed(self, shards: Mapping[int, LinearVote]) -> Self | None:
        """The same voter with other votes for some shards; None if one of them begins or ceases to abstain."""
        if any((vote is not None) != self._is_voting[shard] for shard, vote in shards.items()):
            return None
        changed = copy(self)
        changed._is_known = self._is_known.copy()
        changed._weights = [weights.copy() for weights in self._weights]
        num_features = len(self._weights[0]) - 1
        for shard, vote in shards.items():
            if vote is None:
                continue
            place = np.count_nonzero(self._is_voting[:shard])
            changed._is_known[:, place] = False
            changed._is_known[vote if isinstance(vote, int) else vote[2], place] = True
            if self._num_classes == 2:
                numbers, intercept = _binary(vote, num_features)
                changed._weights[0][:, place] = [*numbers, intercept]
                continue
            table, intercepts = _full(vote, self._num_classes, num_features)
            for weights, row, own in zip(changed._weights, table, intercepts, strict=True):
                weights[:, place] = [*row, own]
        return changed

    @property
    def link(self) -> Link | None:
        """How scores become probabilities."""
        return self._link

    def count(self, X: Features) -> NDArray[np.int64]:
        """Votes for each class."""
        counts = np.empty((num_rows(X), self._num_classes), dtype=np.int64)
        num_voting = int(self._is_voting.sum())
        for first, codes in self._chunks(X):
            part = counts[first : first + len(codes)]
            if self._num_classes == 2:
                ones = np.count_nonzero(codes, axis=1)
                part[:, 0], part[:, 1] = num_voting - ones, ones
            else:
                cells = codes + np.arange(0, part.size, self._num_classes)[:, np.newaxis]
                part[:] = np.bincount(cells.ravel(), minlength=part.size).reshape(part.shape)
        return counts

    def votes(self, X: Features) -> Codes:
        """Every shard's vote."""
        table = np.full((num_rows(X), self._num_shards), ABSTAIN, dtype=np.int32)
        for first, codes in self._chunks(X):
            table[first : first + len(codes), self._is_voting] = codes
        return table

    def mean_probabilities(
        self, X: Features, *, is_valid: NDArray[np.bool_] | None = None, is_fixed: NDArray[np.bool_] | None = None
    ) -> Floats | None:
        """The mean of the shards' probabilities: shape (rows, classes). None without a link.

        A row has the same answer, to the bit, whatever rows are asked about with it: all products have one shape.

        Parameters
        ----------
        X
            The rows.
        is_valid
            Which rows all shards have an opinion on; all by default.
        is_fixed
            The shards that have an opinion on every row.
        """
        if self._link is None:
            return None
        table = X if is_sparse(X) else np.asarray(X, dtype=np.float64)
        everywhere = is_valid is None or is_fixed is None
        has_opinion = np.ones((num_rows(X), self._is_known.shape[1]), dtype=np.bool_)
        if is_valid is not None and is_fixed is not None:
            has_opinion = is_valid[:, np.newaxis] | is_fixed[self._is_voting]
        found = np.empty((num_rows(X), self._num_classes))
        size = _block_size(self._is_known.size)
        for first in range(0, len(found), size):
            rows = table[first : first + size]
            last = first + num_rows(rows)
            with np.errstate(all="ignore"):
                opinions = self._opinions(rows if is_sparse(rows) else _padded(rows, size), last - first)
                totals = opinions.sum(axis=2).T
                if everywhere and not np.isnan(totals).any():  # nothing is left out, as is usual
                    found[first:last] = totals / opinions.shape[2]
                    continue
                counted = has_opinion[first:last] & ~np.isnan(opinions).any(axis=0)
                totals = np.where(counted, opinions, 0.0).sum(axis=2).T
                found[first:last] = totals / counted.sum(axis=1)[:, np.newaxis]
        return found

    def _opinions(self, rows: Any, count: int) -> Floats:
        """The probabilities of every shard that votes, for the first rows: shape (classes, rows, shards)."""
        if self._num_classes == 2:
            both = np.empty((2, count, self._is_known.shape[1]))
            expit(self._scores(rows, 0)[:count], out=both[1])
            is_constant = ~self._is_known.all(axis=0)
            if is_constant.any():
                both[1][:, is_constant] = self._is_known[1, is_constant]
            np.subtract(1.0, both[1], out=both[0])
            return both
        scores = np.stack([self._scores(rows, code)[:count] for code in range(self._num_classes)])
        table = np.exp(scores - scores.max(axis=0))
        if self._link != "softmax":
            has_many = self._is_known.sum(axis=0) > 2
            table[:, :, has_many] = expit(scores[:, :, has_many])
        table *= self._is_known[:, np.newaxis]
        totals = table.sum(axis=0)
        nothing = totals == 0  # as in scikit-learn, then all classes of the shard are equally likely
        table = np.where(nothing, self._is_known[:, np.newaxis], table)
        return np.asarray(table / np.where(nothing, self._is_known.sum(axis=0), totals))

    def _chunks(self, X: Features) -> Any:
        """(first row, codes of the voting shards) for chunks of rows."""
        table = X if is_sparse(X) else np.asarray(X, dtype=np.float64)
        at_once = max(1, _SCORES_AT_ONCE // max(1, self._weights[0].shape[1]))
        for first in range(0, num_rows(X), at_once):
            rows = table[first : first + at_once]
            if not is_sparse(rows):
                rows = np.concatenate([rows, np.ones((len(rows), 1))], axis=1)
            yield first, self._scores(rows, 0) > 0 if self._num_classes == 2 else self._winners(rows)

    def _winners(self, rows: Any) -> NDArray[np.unsignedinteger]:
        """The class with the largest score, the first among equals."""
        best = self._scores(rows, 0)
        codes = np.zeros(best.shape, dtype=np.min_scalar_type(self._num_classes))
        for code in range(1, self._num_classes):
            scores = self._scores(rows, code)
            higher = scores > best
            np.maximum(best, scores, out=best)
            # The latest class that is higher has the largest code: the maximum assigns it without a branch.
            np.maximum(codes, higher.astype(codes.dtype) * codes.dtype.type(code), out=codes)
        return codes

    def _scores(self, rows: Any, place: int) -> NDArray[np.float64]:
        weights = self._weights[place]
        scores: NDArray[np.float64] = rows @ weights[:-1] + weights[-1] if is_sparse(rows) else rows @ weights
        return scores


def _block_size(numbers_in_row: int) -> int:
    """How many rows each product takes: enough to be fast, and few enough for a single row."""
    size = _NUMBERS_IN_BLOCK // max(1, numbers_in_row)
    return min(max(size - size % _LEAST_BLOCK, _LEAST_BLOCK), _MOST_BLOCK)


def _padded(rows: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """Rows for one product: with a column of ones, and rows of zeros up to the size of every product."""
    table = np.zeros((size, rows.shape[1] + 1))
    table[: len(rows), :-1] = rows
    table[:, -1] = 1.0
    return table


def _stacked(weights: list[Any], intercepts: list[Any], num_features: int) -> NDArray[np.float64]:
    """The weights of one class: a column for every shard, with its intercept last."""
    columns = np.empty((num_features + 1, len(weights)))
    columns[:-1] = np.array(weights).reshape(len(weights), num_features).T
    columns[-1] = intercepts
    return columns


def _binary(shard: LinearVote, num_features: int) -> tuple[NDArray[np.float64], float]:
    """One score per row, positive for class 1."""
    if isinstance(shard, int):
        return np.zeros(num_features), 1.0 if shard == 1 else -1.0
    assert shard is not None
    weights, intercepts, _ = shard
    return weights[0], float(intercepts[0])


def _full(shard: LinearVote, num_classes: int, num_features: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """One score per class; the largest wins, the first among equals, as in scikit-learn."""
    weights = np.zeros((num_classes, num_features))
    intercepts = np.full(num_classes, _LOWEST)
    if isinstance(shard, int):
        intercepts[shard] = 0.0
        return weights, intercepts
    assert shard is not None
    own_weights, own_intercepts, codes = shard
    if len(codes) == 2:  # a single score: positive for the second class
        own_weights = np.vstack([np.zeros(num_features), own_weights])
        own_intercepts = np.concatenate([[0.0], own_intercepts])
    weights[codes] = own_weights
    intercepts[codes] = own_intercepts
    return weights, intercepts


def linear_scores(estimator: Any, classes: NDArray[Any] | None) -> LinearScores | None:
    """Weights, intercepts and class codes of a fitted linear classifier of scikit-learn; None for anything else."""
    from sklearn.linear_model._base import LinearClassifierMixin

    if not isinstance(estimator, LinearClassifierMixin) or not hasattr(estimator, "coef_"):
        return None
    if not type(estimator).__module__.startswith("sklearn."):
        return None  # another class may decide by another rule
    weights = np.asarray(estimator.coef_.toarray() if hasattr(estimator.coef_, "toarray") else estimator.coef_)
    weights = np.atleast_2d(weights).astype(np.float64)
    intercepts = np.broadcast_to(np.asarray(estimator.intercept_, dtype=np.float64), (len(weights),)).copy()
    own = estimator.classes_
    codes = own if classes is None else codes_of(own, classes)
    return weights, intercepts, np.asarray(codes, dtype=np.int64)


def common_link(estimators: Sequence[Any]) -> Link | None:
    """How the scores of these fitted classifiers become their `predict_proba`; None if they differ in it or have none.

    Pipelines count as their last step.
    """
    links = {_link(estimator[-1] if hasattr(estimator, "steps") else estimator) for estimator in estimators}
    return links.pop() if len(links) == 1 else None


def _link(classifier: Any) -> Link | None:
    from sklearn.linear_model import LogisticRegression, LogisticRegressionCV, SGDClassifier

    if type(classifier) in (LogisticRegression, LogisticRegressionCV):
        return "softmax"
    if type(classifier) is SGDClassifier and classifier.loss == "log_loss":
        return "one against the rest"
    return None


def is_linear_regressor(estimator: Any) -> bool:
    """Whether this is a fitted regressor of scikit-learn that predicts a linear function of a row."""
    from sklearn.linear_model import SGDRegressor
    from sklearn.linear_model._base import LinearModel

    is_own = type(estimator).__module__.startswith("sklearn.")  # another class may predict by another rule
    return is_own and isinstance(estimator, LinearModel | SGDRegressor) and hasattr(estimator, "coef_")


def linear_values(estimator: Any, X: Features) -> NDArray[np.float64]:
    """What a linear regressor predicts, in an order of additions that does not depend on the number of rows."""
    weights = np.atleast_2d(np.asarray(estimator.coef_, dtype=np.float64)).T
    intercepts = np.asarray(estimator.intercept_, dtype=np.float64)
    if is_sparse(X):
        return np.asarray(X @ weights + intercepts)
    table = np.asarray(X.to_numpy() if is_frame(X) else X, dtype=np.float64)
    total = np.zeros((len(table), weights.shape[1]))
    for column, factors in zip(table.T, weights, strict=True):
        total += column[:, np.newaxis] * factors
    return total + intercepts


def scaler_factors(scaler: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """A fitted scaler as x ↦ scale·x + shift, None if it is anything else."""
    from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler

    width = getattr(scaler, "n_features_in_", 0)
    if type(scaler) is StandardScaler:
        scale = np.ones(width) if scaler.scale_ is None else 1 / scaler.scale_
        mean = np.zeros(width) if not scaler.with_mean else scaler.mean_
        return scale, -mean * scale
    if type(scaler) is MaxAbsScaler and not getattr(scaler, "clip", False):
        return 1 / scaler.scale_, np.zeros(width)
    if type(scaler) is MinMaxScaler and not scaler.clip:
        return scaler.scale_, scaler.min_
    return None
