"""What the models by sufficient statistics have in common: class counts, class sums, and a decision by scores."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from expunge.errors import InputError
from expunge.fallback._exact import ExactArray
from expunge.fallback._rows import Rows
from expunge.fallback.protocol import Codes, FallbackModel, Floats


class CountedModel(FallbackModel):
    """A model with the number of records of each class and the exact sum of each feature over them."""

    counts: NDArray[np.int64]
    sums: ExactArray

    @property
    def num_classes(self) -> int:
        """How many classes may be answered."""
        return len(self.counts)

    @property
    def num_features(self) -> int:
        """How many columns a row has."""
        return self.sums.shape[1]

    @property
    def num_records(self) -> int:
        """|D^t|."""
        return int(self.counts.sum())

    def _counts_with(self, rows: Rows) -> NDArray[np.int64]:
        return self.counts + rows.counts(self.num_classes)

    def _counts_without(self, rows: Rows) -> NDArray[np.int64]:
        left = self.counts - rows.counts(self.num_classes)
        if (left < 0).any():
            raise InputError("the rows to delete are not in the dataset")
        return left


def decide(scores: Floats) -> tuple[Codes, Floats]:
    """The class of the highest score (the lowest code among equals) and its lead over the next; +∞ without a next."""
    codes = scores.argmax(axis=1).astype(np.int64)
    if scores.shape[1] == 1:
        return codes, np.full(len(scores), np.inf)
    best = np.partition(scores, scores.shape[1] - 2, axis=1)[:, -2:]
    return codes, best[:, 1] - best[:, 0]


def odds_margin(log_odds: Floats) -> Floats:
    """g/(1+g): from 0 to 1, increasing, and slow to saturate, which a probability is not."""
    return 1.0 - 1.0 / (1.0 + log_odds)
