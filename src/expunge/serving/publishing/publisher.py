"""What a deployment asks of its way of publishing: one object per generation, thrown away with the generation's r."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol, Self, get_args

import numpy as np
from numpy.typing import NDArray

from expunge.core.errors import ParameterError
from expunge.core.randomness import Randomness
from expunge.theory import Guarantee

Exhaustion = Literal["retrain_on_update", "retrain_now", "refuse"]
"""What happens when the budget is spent: predictions go on and the next update retrains everything (the paper's rule);
a full retraining starts at once, in the background; or predictions are refused until the next update."""


def require_exhaustion(value: object) -> None:
    """Refuse an `on_exhausted` that does not exist."""
    if value not in get_args(Exhaustion):
        raise ParameterError(f"on_exhausted must be one of {', '.join(get_args(Exhaustion))}, got {value!r}")


def require_limit(value: object) -> int:
    """Refuse a `max_predictions` that is no number of predictions."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
        raise ParameterError(f"max_predictions must be a whole number of at least 0, got {value!r}")
    return int(value)


@dataclass(frozen=True, slots=True)
class BudgetStatus:
    """The generation's budget as the public may see it.

    It depends on how much was published; under consensus also on whether a consensus failed, which may be known (T4).
    """

    spent: float
    left: float
    predictions: int
    predictions_left: float
    exhausted: bool


class Journal(Protocol):
    """Where a publisher writes before it releases, so that a crash cannot make it forget what it released."""

    def reserve(self, total: int, limit: float) -> None:
        """Have it on record that `total` predictions of this generation are paid for; more may be reserved, up to
        `limit`, so that not every release has to wait."""

    def mark_dirty(self) -> None:
        """Have it on record that the next update must be a full retraining."""


class Publisher(Protocol):
    """The publishing side of one generation."""

    on_exhausted: Exhaustion
    journal: Journal | None

    @property
    def is_repeatable(self) -> bool:
        """Whether asking again in the same round gives the same answer at no cost without a cache."""

    @property
    def capacity(self) -> float:
        """How many predictions a generation allows; infinite without a limit."""

    @property
    def must_retrain(self) -> bool:
        """Whether the next update has to be a full retraining."""

    @property
    def status(self) -> BudgetStatus:
        """Spent and left."""

    def release(self, counts: NDArray[np.int64], rng: Randomness) -> NDArray[np.int64]:
        """Pay for a batch of answers, all or nothing, then draw them; class codes, or DECLINED."""

    def guarantee(self, *, num_shards: int, beta: float | None, gamma: float | None, num_generations: int) -> Guarantee:
        """What is promised of models updated while `must_retrain` was false; None leaves β and γ to the publisher."""

    def new_generation(self, rng: Randomness) -> Self:
        """A publisher for fresh randomness."""

    def snapshot(self) -> dict[str, Any]:
        """The books, as plain data."""

    @property
    def secret(self) -> dict[str, Any]:
        """What the generation drew for itself, as plain data; kept with the rest of the secret randomness."""

    def restore(self, *, predictions: int, dirty: bool, secret: dict[str, Any]) -> None:
        """Go on with books and secrets that were kept."""


def require_answers(publisher: Publisher) -> Publisher:
    """Itself; an error if it would refuse every query, in every generation."""
    if publisher.on_exhausted == "refuse" and publisher.capacity < 1:
        words = "use more shards, a larger budget, or a mechanism that costs less"
        raise ParameterError(f"the budget does not cover a single prediction, and on_exhausted is 'refuse': {words}")
    return publisher
