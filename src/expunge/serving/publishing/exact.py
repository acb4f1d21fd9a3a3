"""Publishing under the exact promise (T6): everything may be released, without limit and without a charge.

T6 holds for every requester, also if everything was published, the models included. So there are no books here, nothing
is ever used up, and the key is not renewed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self, get_args

import numpy as np
from numpy.typing import NDArray

from expunge.core.checks import require_choice
from expunge.core.errors import ParameterError
from expunge.core.features import Features
from expunge.core.guarantee import Guarantee
from expunge.core.randomness import Randomness
from expunge.privacy.mechanisms.consensus import plurality
from expunge.serving.publishing.front import DirectFront, DirectRound, RoundContext
from expunge.serving.publishing.publisher import BudgetStatus, Exhaustion, Journal
from expunge.training.learners.protocol import Combination, Cut, cut_of, likeliest

NOT_CLAIMED = "everything may be published here, so nothing bounds what is published about the secret key"
_DECLINED = -1

Threshold = tuple[Any, float]
"""A class, and the probability from which on it is the answer."""


def require_threshold(threshold: Any) -> None:
    """Check a threshold.

    Parameters
    ----------
    threshold
        None, or a class and a probability.

    Raises
    ------
    ParameterError
        If it is anything else, or the probability is not above 0 and at most 1.

    Examples
    --------
    >>> require_threshold(("yes", 0.3))
    """
    if threshold is None:
        return
    if not isinstance(threshold, tuple | list) or len(threshold) != 2:
        raise ParameterError(f"threshold must be a class and a probability, such as ('yes', 0.3), got {threshold!r}")
    least = threshold[1]
    is_number = isinstance(least, int | float | np.number) and not isinstance(least, bool)
    if not is_number or not 0 < least <= 1:
        raise ParameterError(f"threshold must have a probability above 0 and at most 1, got {least!r}")


class ExactPublisher:
    """Release the plurality of the votes, without limit.

    Examples
    --------
    >>> publisher = ExactPublisher()
    >>> publisher.release(np.array([[1, 4], [0, 0]]), Randomness.from_seed(0))
    array([ 1, -1])
    >>> publisher.must_retrain
    False
    """

    on_exhausted: Exhaustion = "retrain_on_update"
    journal: Journal | None = None

    @property
    def is_repeatable(self) -> bool:
        """True: an answer is a function of the models."""
        return True

    @property
    def capacity(self) -> float:
        """Infinite."""
        return math.inf

    @property
    def shows_budget(self) -> bool:
        """True: there is nothing to hide."""
        return True

    @property
    def must_retrain(self) -> bool:
        """Never: no update is a full retraining."""
        return False

    @property
    def status(self) -> BudgetStatus:
        """Nothing is counted, and nothing is used up."""
        return BudgetStatus(spent=0.0, left=math.inf, predictions=0, predictions_left=math.inf, exhausted=False)

    def release(self, counts: NDArray[np.int64], rng: Randomness) -> NDArray[np.int64]:
        """The class with the most votes; DECLINED where no shard voted."""
        return np.where(counts.any(axis=1), plurality(counts), _DECLINED)

    def guarantee(self, *, num_shards: int, beta: float | None, gamma: float | None, num_generations: int) -> Guarantee:
        """No (α,β,γ) is claimed."""
        return Guarantee(math.inf, beta or 0.0, gamma or 0.0, note=NOT_CLAIMED)

    def new_generation(self, rng: Randomness) -> Self:
        """Another one, because a folder keeps a journal for each generation."""
        return type(self)()

    def snapshot(self) -> dict[str, Any]:
        """Empty."""
        return {}

    @property
    def secret(self) -> dict[str, Any]:
        """Empty."""
        return {}

    def restore(self, *, predictions: int, dirty: bool, secret: dict[str, Any]) -> None:
        """There is nothing to restore."""

    def __getstate__(self) -> dict[str, Any]:
        return {}


@dataclass(frozen=True)
class ExactRound(DirectRound):
    """A round that answers with labels, probabilities and scores; or with values, if the learner is a regressor.

    Parameters
    ----------
    opening
        The ensemble and its publisher.
    combine
        How the values of regressors become one: "mean" or "median".
    cut
        The code of a class, and the probability from which on it is the answer; None for the likeliest class.
    """

    combine: Combination = "mean"
    cut: Cut | None = None

    @property
    def decides_by_probabilities(self) -> bool:
        """Whether answers follow from probabilities, and not from the votes."""
        return self.cut is not None or self.opening.state.has_probabilities

    def answer(self, rows: Features) -> NDArray[np.int64]:
        """The class with the largest mean probability if every model has probabilities, else with the most votes.

        A learner with thresholds decides by these. DECLINED where every shard abstains. Among equals the first class
        wins. With a threshold of the promise see `likeliest`; the shares of the votes stand for probabilities where a
        model has none.
        """
        if not self.decides_by_probabilities:
            return super().answer(rows)
        return self.likeliest(self.opening.state.mean_probabilities(rows))

    def likeliest(self, probabilities: NDArray[np.float64]) -> NDArray[np.int64]:
        """The class with the largest probability, or as thresholds say; DECLINED where there is none."""
        table = probabilities if self.cut is not None else self.opening.state.margins(probabilities)
        return likeliest(table, self.cut)

    def values(self, rows: Features) -> NDArray[np.float64]:
        """The mean or the median of the shards' values. NaN where no shard has one."""
        return self.opening.state.values(rows, self.combine)


@dataclass(frozen=True)
class ExactFront(DirectFront):
    """The ensemble answers every query, with labels, probabilities, scores or values as its models have them.

    Parameters
    ----------
    combine
        How the values of regressors become one: "mean" or "median".
    threshold
        A class, and the probability from which on it is the answer; None for the likeliest class.
    """

    combine: Combination = "mean"
    threshold: Threshold | None = None

    def __post_init__(self) -> None:
        require_choice("combine", self.combine, get_args(Combination))
        require_threshold(self.threshold)

    def open_round(self, opening: RoundContext) -> ExactRound:
        """Open a round; there is nothing to prepare. `ParameterError` if the threshold names no class."""
        records, learner = opening.state.records, opening.state.learner
        learners = (learner, getattr(learner, "learner", None))  # the second of one that abstains where it fails
        if self.threshold is not None and any(getattr(each, "has_thresholds", False) for each in learners):
            raise ParameterError("a threshold of the promise does not go with thresholds of the learner: choose one")
        if self.threshold is not None and records.is_regression:
            raise ParameterError("a threshold is for classes, and these models predict numbers")
        return ExactRound(opening.settled(), self.combine, cut_of(self.threshold, records.classes))
