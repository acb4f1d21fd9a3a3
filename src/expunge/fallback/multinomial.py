"""Multinomial naive Bayes by exact sums of counts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from expunge.errors import InputError
from expunge.fallback._checks import require_positive
from expunge.fallback._counted import CountedModel, decide, odds_margin
from expunge.fallback._exact import ExactArray
from expunge.fallback._rows import Rows
from expunge.fallback._statistics import class_sums
from expunge.fallback.protocol import Assessment, Fallback, Floats


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
