"""Gaussian naive Bayes by exact sums and sums of squares.

Multinomial naive Bayes by exact sums of counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from expunge.core.errors import InputError
from expunge.training.fallback.protocol import Assessment, Fallback, Floats, Rows, require_positive
from expunge.training.fallback.statistics import (
    LIMB_BITS,
    CountedModel,
    ExactArray,
    class_moments,
    class_sums,
    decide,
    odds_margin,
)

_LARGEST_DEVIATION = 1e150  # standard deviations; its square can still be summed
_LEAST_VARIANCE = 2.0**-1000


@dataclass(frozen=True, kw_only=True)
class GaussianNaiveBayes(Fallback):
    """Independent normal features within each class, as scikit-learn's GaussianNB.

    `var_smoothing` times the largest variance of a feature over all of D^t is added to every variance (times 1 where
    no feature varies). Means and variances are computed from exact sums and rounded once, so they are the nearest
    floats to the true ones and do not depend on the order or the history of the records.

    The margin is g/(1+g) with g the log-odds, in nats, of the best class against the next: unlike the posterior
    probability it does not run into 1 where there are many features.
    """

    var_smoothing: float = 1e-9

    def __post_init__(self) -> None:
        require_positive("var_smoothing", self.var_smoothing)

    def _fit(self, rows: Rows, num_classes: int) -> GaussianNaiveBayesModel:
        sums, squares = class_moments(rows, num_classes)
        empty = np.zeros((num_classes, rows.num_features))
        return GaussianNaiveBayesModel._of(
            self, rows.counts(num_classes), sums, squares, means=empty, variances=empty, touched=range(num_classes)
        )


@dataclass(frozen=True, eq=False)
class GaussianNaiveBayesModel(CountedModel):
    """Counts, sums and sums of squares of every class, and what follows from them."""

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
        """The model of these statistics; only the means and variances of `touched` classes are computed afresh."""
        means, variances = means.copy(), variances.copy()
        for code in touched:
            means[code], variances[code] = _moments(int(counts[code]), sums.row(code), squares.row(code))
        return cls(recipe, counts, sums, squares, means, variances)

    @cached_property
    def smoothing(self) -> float:
        """What is added to every variance: a share of the largest over all of D^t."""
        _, overall = _moments(self.num_records, self.sums.total(axis=0), self.squares.total(axis=0))
        largest = float(overall.max())
        return max(self.recipe.var_smoothing * (largest if largest > 0 else 1.0), _LEAST_VARIANCE)

    def _with(self, rows: Rows) -> Self:
        sums, squares = class_moments(rows, self.num_classes)
        counts = self._counts_with(rows)
        return self._changed(counts, self.sums + sums, self.squares + squares, rows)

    def _without(self, rows: Rows) -> Self:
        counts = self._counts_without(rows)
        sums, squares = class_moments(rows, self.num_classes)
        return self._changed(counts, self.sums - sums, self.squares - squares, rows)

    def _changed(self, counts: NDArray[np.int64], sums: ExactArray, squares: ExactArray, rows: Rows) -> Self:
        touched = np.unique(rows.codes)
        return self._of(self.recipe, counts, sums, squares, means=self.means, variances=self.variances, touched=touched)

    def _assess(self, table: Floats) -> Assessment:
        codes, lead = decide(self._log_likelihoods(table))
        return Assessment(codes, odds_margin(lead))

    def _log_likelihoods(self, table: Floats) -> Floats:
        """Up to a constant: log prior − Σ (log σ + ½ z²); −∞ for a class without records."""
        scores = np.full((len(table), self.num_classes), -np.inf)
        for code in np.flatnonzero(self.counts):
            variance = self.variances[code] + self.smoothing
            with np.errstate(over="ignore"):
                deviations = (table - self.means[code]) / np.sqrt(variance)
            np.clip(deviations, -_LARGEST_DEVIATION, _LARGEST_DEVIATION, out=deviations)
            scores[:, code] = -0.5 * np.einsum("ij,ij->i", deviations, deviations)
            scores[:, code] += np.log(self.counts[code]) - 0.5 * np.log(variance).sum()
        return scores


def _moments(count: int, sums: ExactArray, squares: ExactArray) -> tuple[Floats, Floats]:
    """Mean and variance of every feature, each the nearest float to the exact value: S/n and (n Σx² − S²)/n²."""
    if count == 0:
        return np.zeros(sums.shape), np.zeros(sums.shape)
    lowest = min(sums.lowest(), squares.lowest() // 2, 0)
    unit = 1 << (-LIMB_BITS * lowest)
    first, second = sums.to_integers(lowest), squares.to_integers(2 * lowest)
    # A quotient of Python integers is rounded correctly, however long they are.
    means = first / (count * unit)
    variances = (count * second - first * first) / (count * count * unit * unit)
    return means.astype(np.float64), variances.astype(np.float64)


@dataclass(frozen=True, kw_only=True)
class MultinomialNaiveBayes(Fallback):
    """Features as counts of events (words, say) drawn within each class, as scikit-learn's MultinomialNB.

    `smoothing` is added to the count of every feature in every class (1 is Laplace's rule). Counts need not be whole
    but must not be negative. Sums are exact, so they do not depend on the order or the history of the records. The
    margin is g/(1+g) with g the log-odds, in nats, of the best class against the next.
    """

    smoothing: float = 1.0

    def __post_init__(self) -> None:
        require_positive("smoothing", self.smoothing)

    def _fit(self, rows: Rows, num_classes: int) -> MultinomialNaiveBayesModel:
        _require_counts(rows)
        return MultinomialNaiveBayesModel(self, rows.counts(num_classes), class_sums(rows, num_classes))


@dataclass(frozen=True, eq=False)
class MultinomialNaiveBayesModel(CountedModel):
    """How many records each class has, and the exact sum of each feature over them."""

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
        return type(self)(self.recipe, counts, self.sums + class_sums(rows, self.num_classes))

    def _without(self, rows: Rows) -> Self:
        counts = self._counts_without(rows)
        return type(self)(self.recipe, counts, self.sums - class_sums(rows, self.num_classes))

    def _assess(self, table: Floats) -> Assessment:
        # einsum, unlike a matrix product, gives a row the same bits whatever rows are asked together with it.
        scores = np.einsum("ij,cj->ic", table, self.log_probabilities)
        with np.errstate(divide="ignore"):
            scores += np.log(self.counts)
        codes, lead = decide(scores)
        return Assessment(codes, odds_margin(lead))


def _require_counts(rows: Rows) -> None:
    if (rows.table < 0).any():
        raise InputError("multinomial naive Bayes needs features that are counts; one is negative")
