"""The interface of publishing: one publisher for each generation, thrown away with the generation's r."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from expunge.core.errors import ParameterError
from expunge.core.guarantee import Guarantee
from expunge.core.randomness import Randomness

Exhaustion = Literal["retrain_on_update", "retrain_now", "refuse"]
"""What happens when the budget is spent: predictions go on and the next update retrains everything (the paper's rule);
a full retraining starts at once, in the background; or predictions are refused until the next update."""


def require_limit(value: object) -> int:
    """Check that `max_predictions` is a number of predictions."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
        raise ParameterError(f"max_predictions must be a whole number of at least 0, got {value!r}")
    return int(value)


@dataclass(frozen=True, slots=True)
class BudgetStatus:
    """The generation's budget.

    It depends on how much was published. Under consensus it also depends on whether a consensus failed. Then it is for
    the operator only, and so is the number of the generation (`Publisher.shows_budget`).

    Attributes
    ----------
    spent, left
        The privacy budget that is spent, and what is left.
    predictions
        How many predictions were released in this generation.
    predictions_left
        How many more may be released; infinite without a limit.
    exhausted
        Whether the budget is used up, so that the next update retrains everything.
    """

    spent: float
    left: float
    predictions: int
    predictions_left: float
    exhausted: bool


class Journal(Protocol):
    """Where a publisher writes before it releases, so that a crash cannot make it forget what it released."""

    def reserve(self, total: int, limit: float) -> None:
        """Record that `total` predictions of this generation are paid for.

        More may be reserved, up to `limit`, so that most releases need not wait.
        """

    def mark_dirty(self) -> None:
        """Record that the next update must be a full retraining."""


class Publisher(Protocol):
    """The publishing part of one generation."""

    on_exhausted: Exhaustion
    journal: Journal | None

    @property
    def is_repeatable(self) -> bool:
        """Whether a repeated query gets the same answer within a round, free of charge, without a cache."""

    @property
    def capacity(self) -> float:
        """How many predictions a generation allows; infinite without a limit."""

    @property
    def must_retrain(self) -> bool:
        """Whether the next update has to be a full retraining."""

    @property
    def shows_budget(self) -> bool:
        """Whether requesters may see `status` and the number of the generation: not if they depend on secret draws."""

    @property
    def status(self) -> BudgetStatus:
        """What is spent, and what is left."""

    def release(self, counts: NDArray[np.int64], rng: Randomness) -> NDArray[np.int64]:
        """Pay for a batch of answers, all or nothing, then draw them. An answer is a class code, or DECLINED."""

    def guarantee(self, *, num_shards: int, beta: float | None, gamma: float | None, num_generations: int) -> Guarantee:
        """The guarantee of models updated while `must_retrain` was false. None leaves β and γ to the publisher."""

    def new_generation(self, rng: Randomness) -> Self:
        """A publisher for the next generation, with fresh randomness."""

    def snapshot(self) -> dict[str, Any]:
        """The books, as plain data."""

    @property
    def secret(self) -> dict[str, Any]:
        """The publisher's own secret draws, as plain data. They are kept with the rest of the secret randomness."""

    def restore(self, *, predictions: int, dirty: bool, secret: dict[str, Any]) -> None:
        """Continue with books and secrets that were kept."""


def require_answers(publisher: Publisher) -> Publisher:
    """Refuse a publisher that would refuse every query, in every generation; return any other."""
    if publisher.on_exhausted == "refuse" and publisher.capacity < 1:
        words = "use more shards, a larger budget, or a mechanism that costs less"
        raise ParameterError(f"the budget does not cover a single prediction, and on_exhausted is 'refuse': {words}")
    return publisher
