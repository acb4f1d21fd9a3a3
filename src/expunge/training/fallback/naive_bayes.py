"""Gaussian naive Bayes from exact sums and sums of squares, and multinomial naive Bayes from exact sums of counts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from expunge.core.checks import require_number
from expunge.core.errors import InputError
from expunge.training.fallback import statistics
from expunge.training.fallback.protocol import Assessment, Fallback, Floats, Rows
from expunge.training.fallback.statistics import CountedModel, ExactArray

_LARGEST_DEVIATION = 1e150  # standard deviations; its square can still be summed


@dataclass(frozen=True, kw_only=True)
class GaussianNaiveBayes(Fallback):
    """Independent normal features within each class, as scikit-learn's GaussianNB.

    Means and variances are computed from exact sums and rounded once. So they are the nearest floats to the true ones
    and do not depend on the order or the history of the records.

    The margin is g/(1+g), where g is the log-odds, in nats, of the best class against the next. Unlike the posterior
    probability, it does not saturate at 1 where there are many features.

    Parameters
    ----------
    var_smoothing
        This number times the largest variance of a feature over all of D^t is added to every variance (times 1 where
        no feature varies). It is > 0.

    Raises
    ------
    ParameterError
        If `var_smoothing` is not a finite number > 0.

    Examples
    --------
    >>> model = GaussianNaiveBayes().fit([[0.0], [1.0], [8.0], [9.0]], [0, 0, 1, 1], num_classes=2)
    >>> model.predict([[2.0], [7.0]])
    array([0, 1])
    """

    var_smoothing: float = 1e-9

    def __post_init__(self) -> None:
        require_number("var_smoothing", self.var_smoothing, above=0)

    def _fit(self, rows: Rows, num_classes: int) -> GaussianNaiveBayesModel:
        sums, squares = statistics.class_moments(rows, num_classes)
        empty = np.zeros((num_classes, rows.num_features))
        return GaussianNaiveBayesModel._of(
            self, rows.counts(num_classes), sums, squares, means=empty, variances=empty, touched=range(num_classes)
        )


@dataclass(frozen=True, eq=False)
class GaussianNaiveBayesModel(CountedModel):
    """Counts, sums and sums of squares of every class, with the means and variances that follow from them.

    `GaussianNaiveBayes` makes it.

    Parameters
    ----------
    recipe
        The options.
    counts
        The number of records of each class.
    sums, squares
        Σ x and Σ x² over the records of each class: shape (classes, features).
    means, variances
        The mean and the variance of every feature in each class, rounded to the nearest float.
    """

    recipe: GaussianNaiveBayes
    counts: NDArray[np.int64]
    sums: ExactArray
    squares: ExactArray
    means: Floats
    variances: Floats

    @classmethod
    def _of(
        cls,
        recipe: GaussianNaiveBayes,
        counts: NDArray[np.int64],
        sums: ExactArray,
        squares: ExactArray,
        *,
        means: Floats,
        variances: Floats,
        touched: Any,
    ) -> Self:
        """The model of these statistics; only the means and variances of `touched` classes are computed anew."""
        means, variances = means.copy(), variances.copy()
        for code in touched:
            means[code], variances[code] = moments(int(counts[code]), sums.row(code), squares.row(code))
        return cls(recipe, counts, sums, squares, means, variances)

    @cached_property
    def smoothing(self) -> float:
        """The number that is added to every variance: a share of the largest variance over all of D^t."""
        _, overall = moments(self.num_records, self.sums.total(axis=0), self.squares.total(axis=0))
        largest = float(overall.max())
        return max(self.recipe.var_smoothing * (largest if largest > 0 else 1.0), statistics.LEAST_VARIANCE)

    def _with(self, rows: Rows) -> Self:
        sums, squares = statistics.class_moments(rows, self.num_classes)
        counts = self._counts_with(rows)
        return self._changed(counts, self.sums + sums, self.squares + squares, rows)

    def _without(self, rows: Rows) -> Self:
        counts = self._counts_without(rows)
        sums, squares = statistics.class_moments(rows, self.num_classes)
        return self._changed(counts, self.sums - sums, self.squares - squares, rows)

    def _changed(self, counts: NDArray[np.int64], sums: ExactArray, squares: ExactArray, rows: Rows) -> Self:
        touched = np.unique(rows.codes)
        return self._of(self.recipe, counts, sums, squares, means=self.means, variances=self.variances, touched=touched)

    def _assess(self, table: Floats) -> Assessment:
        codes, lead = statistics.decide(self._log_likelihoods(table))
        return Assessment(codes, statistics.odds_margin(lead))

    def _log_likelihoods(self, table: Floats) -> Floats:
        """log prior − Σ (log σ + ½ z²), up to a constant; −∞ for a class without records."""
        scores = np.full((len(table), self.num_classes), -np.inf)
        for code in np.flatnonzero(self.counts):
            variance = self.variances[code] + self.smoothing
            with np.errstate(over="ignore"):
                deviations = (table - self.means[code]) / np.sqrt(variance)
            np.clip(deviations, -_LARGEST_DEVIATION, _LARGEST_DEVIATION, out=deviations)
            scores[:, code] = -0.5 * np.einsum("ij,ij->i", deviations, deviations)
            scores[:, code] += np.log(self.counts[code]) - 0.5 * np.log(variance).sum()
        return scores


def moments(count: Any, sums: ExactArray, squares: ExactArray) -> tuple[Floats, Floats]:
    """Mean and variance of every feature, each the nearest float to the exact value: S/n and (n Σx² − S²)/n².

    `count` is n, or n for each feature; both are 0 where n is.
    """
    counts = np.broadcast_to(np.asarray(count), sums.shape).astype(object)
    counts[counts == 0] = 1
    lowest = min(sums.lowest(), squares.lowest() // 2, 0)
    unit = 1 << (-statistics.LIMB_BITS * lowest)
    first, second = sums.to_integers(lowest), squares.to_integers(2 * lowest)
    # A quotient of Python integers is rounded correctly, however long they are.
    means = first / (counts * unit)
    variances = (counts * second - first * first) / (counts * counts * unit * unit)
    return means.astype(np.float64), variances.astype(np.float64)


@dataclass(frozen=True, kw_only=True)
class MultinomialNaiveBayes(Fallback):
    """Features as counts of events, for example of words, within each class, as scikit-learn's MultinomialNB.

    Counts may be fractions but must not be negative. Sums are exact, so they do not depend on the order or the history
    of the records. The margin is g/(1+g), where g is the log-odds, in nats, of the best class against the next.

    Parameters
    ----------
    smoothing
        This number is added to the count of every feature in every class (1 is Laplace's rule). It is > 0.

    Raises
    ------
    ParameterError
        If `smoothing` is not a finite number > 0.

    Examples
    --------
    >>> model = MultinomialNaiveBayes().fit([[3, 0], [2, 1], [0, 4]], [0, 0, 1], num_classes=2)
    >>> model.predict([[5, 0], [0, 5]])
    array([0, 1])
    """

    smoothing: float = 1.0

    def __post_init__(self) -> None:
        require_number("smoothing", self.smoothing, above=0)

    def _fit(self, rows: Rows, num_classes: int) -> MultinomialNaiveBayesModel:
        _require_counts(rows)
        return MultinomialNaiveBayesModel(self, rows.counts(num_classes), statistics.class_sums(rows, num_classes))


@dataclass(frozen=True, eq=False)
class MultinomialNaiveBayesModel(CountedModel):
    """How many records each class has, and the exact sum of each feature over them.

    `MultinomialNaiveBayes` makes it.

    Parameters
    ----------
    recipe
        The options.
    counts
        The number of records of each class.
    sums
        Σ x over the records of each class: shape (classes, features).
    """

    recipe: MultinomialNaiveBayes
    counts: NDArray[np.int64]
    sums: ExactArray

    @cached_property
    def log_probabilities(self) -> Floats:
        """log P(feature | class): shape (classes, features)."""
        events = self.sums.to_float() + self.recipe.smoothing
        totals = self.sums.total(axis=1).to_float() + self.recipe.smoothing * self.num_features
        return np.asarray(np.log(events) - np.log(totals)[:, None])

    def _with(self, rows: Rows) -> Self:
        _require_counts(rows)
        counts = self._counts_with(rows)
        return type(self)(self.recipe, counts, self.sums + statistics.class_sums(rows, self.num_classes))

    def _without(self, rows: Rows) -> Self:
        counts = self._counts_without(rows)
        return type(self)(self.recipe, counts, self.sums - statistics.class_sums(rows, self.num_classes))

    def _assess(self, table: Floats) -> Assessment:
        # einsum, unlike a matrix product, gives a row the same bits no matter which rows are asked together with it.
        scores = np.einsum("ij,cj->ic", table, self.log_probabilities)
        with np.errstate(divide="ignore"):
            scores += np.log(self.counts)
        codes, lead = statistics.decide(scores)
        return Assessment(codes, statistics.odds_margin(lead))


def _require_counts(rows: Rows) -> None:
    if (rows.table < 0).any():
        raise InputError("multinomial naive Bayes needs features that are counts; one is negative")
