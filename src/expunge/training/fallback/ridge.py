"""A ridge classifier whose Gram matrix is exact."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from expunge.core.checks import require_number
from expunge.core.errors import InputError
from expunge.training.fallback.protocol import Assessment, Fallback, Floats, Rows
from expunge.training.fallback.statistics import MAX_FACTOR, CountedModel, ExactArray, class_sums, decide, gram


@dataclass(frozen=True, kw_only=True)
class RidgeFallback(Fallback):
    """Least squares on targets ±1, one class against the rest, as scikit-learn's RidgeClassifier with an intercept.

    The statistics (class counts, class sums, Σ x xᵀ) are exact; adding or deleting a record is a rank-one change of
    them. The coefficients are solved for when they are first read after a change, from centred statistics that are
    rounded once. So they are a function of D^t alone. Updates of a floating-point factor would not be: its last bits
    depend on history. The price is one Cholesky factorisation a round.

    The margin is half the lead of the best score over the next. It is at most 1, which is a lead of the full distance
    between the targets.

    Parameters
    ----------
    penalty
        The weight of the squared coefficients, > 0.
    is_scaled
        Whether the penalty is on coefficients of features that are divided by their standard deviations, so that units
        do not matter. The answer is then that of the scaled features, and the statistics stay exact.

    Raises
    ------
    ParameterError
        If the penalty is not a finite number > 0.

    Examples
    --------
    >>> model = RidgeFallback(penalty=1.0).fit([[0.0], [1.0], [8.0], [9.0]], [0, 0, 1, 1], num_classes=2)
    >>> model.predict([[2.0], [7.0]])
    array([0, 1])
    """

    penalty: float = 1.0
    is_scaled: bool = False

    def __post_init__(self) -> None:
        require_number("penalty", self.penalty, above=0)

    def _fit(self, rows: Rows, num_classes: int) -> RidgeModel:
        return RidgeModel(self, rows.counts(num_classes), class_sums(rows, num_classes), gram(rows))


@dataclass(frozen=True, eq=False)
class RidgeModel(CountedModel):
    """Exact statistics of D^t; the coefficients are computed from them when first needed.

    `RidgeFallback` makes it. It holds fewer than 2^27 records.

    Parameters
    ----------
    recipe
        The options.
    counts
        The number of records of each class.
    sums
        Σ x over the records of each class: shape (classes, features).
    products
        Σ x xᵀ over all records: shape (features, features).

    Raises
    ------
    InputError
        If there are too many records.
    """

    recipe: RidgeFallback
    counts: NDArray[np.int64]
    sums: ExactArray
    products: ExactArray

    def __post_init__(self) -> None:
        if self.num_records >= MAX_FACTOR:
            raise InputError(f"a ridge fallback holds fewer than {MAX_FACTOR} records, got {self.num_records}")

    @cached_property
    def coefficients(self) -> Floats:
        """One row of weights for each class: (XᵀX + penalty·I)⁻¹ XᵀT for centred X and T."""
        count, total = self.num_records, self.sums.total(axis=0)
        # n·(centred Σ x xᵀ) and n/2·(centred Σ x t) are still exact: no precision is lost where means are much larger
        # than deviations.
        centred = self.products.scaled(count) - total.outer_square()
        towards = self.sums.scaled(count) - _spread(total, self.counts)
        matrix = centred.to_float() / count
        diagonal = np.diag_indices_from(matrix)
        variances = matrix[diagonal] / count
        matrix[diagonal] += self.recipe.penalty * np.where(self.recipe.is_scaled & (variances > 0), variances, 1.0)
        return _solve(matrix, 2.0 * towards.to_float().T / count).T.copy()

    @cached_property
    def means(self) -> Floats:
        """The mean of every feature over D^t."""
        return self.sums.total(axis=0).to_float() / self.num_records

    def _with(self, rows: Rows) -> Self:
        counts = self._counts_with(rows)
        sums = self.sums + class_sums(rows, self.num_classes)
        return type(self)(self.recipe, counts, sums, self.products + gram(rows))

    def _without(self, rows: Rows) -> Self:
        counts = self._counts_without(rows)
        sums = self.sums - class_sums(rows, self.num_classes)
        return type(self)(self.recipe, counts, sums, self.products - gram(rows))

    def scores(self, table: Floats) -> Floats:
        """Each class against the rest: about 1 for the class of a row, and about -1 for the others."""
        # einsum, unlike a matrix product, gives a row the same bits no matter which rows are asked together with it.
        scores = np.einsum("ij,cj->ic", table - self.means, self.coefficients)
        return np.asarray(scores + (2.0 * self.counts / self.num_records - 1.0))

    def _assess(self, table: Floats) -> Assessment:
        scores = self.scores(table)
        scores[:, self.counts == 0] = -np.inf
        codes, lead = decide(scores)
        return Assessment(codes, np.minimum(lead / 2.0, 1.0))


def _spread(total: ExactArray, counts: NDArray[np.int64]) -> ExactArray:
    """counts[c] · total[f]: shape (classes, features)."""
    column = ExactArray((1, *total.shape), {place: limb[None, :] for place, limb in total.limbs.items()})
    return column.scaled(counts[:, None])


def _solve(matrix: Floats, targets: Floats) -> Floats:
    """Solve by Cholesky; if rounding made the matrix indefinite, use the eigenvalues that are above rounding."""
    try:
        factor = scipy.linalg.cho_factor(matrix, lower=True)
        return np.asarray(scipy.linalg.cho_solve(factor, targets))
    except np.linalg.LinAlgError:
        scale = 1.0 / np.sqrt(np.diag(matrix))[:, None]  # so that features of small numbers do not count as rounding
        values, vectors = scipy.linalg.eigh(matrix * scale * scale.T)
        kept = values > 16 * len(matrix) * np.finfo(np.float64).eps * values[-1]
        components = (vectors.T @ (scale * targets))[kept] / values[kept, None]
        return np.asarray(scale * (vectors[:, kept] @ components))
