"""Keeping a deployment: begin a round, commit it, erase what it replaced, and reserve predictions.

A `Deployment` trains and serves, and calls its keeper at every step that a crash must not undo. In memory there is
nothing to do (`InMemory`). In a folder the keeper is the protocol of crash safety (`expunge.folder.keeper`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Protocol

from expunge.core.randomness import Randomness
from expunge.serving.publishing import BudgetStatus, Journal, Publisher, Round
from expunge.training.ensemble import EnsembleState, StateWriter, UpdateReport

_ONE_COPY = "One copy of a generation is served: a copy that was loaded retrains everything at its first update."
_SEED_IS_SECRET = (
    "The seed that was given is kept secret; a deployment that serves people draws its seed from the system. Training "
    "again with the same seed gives the same secrets: it starts no new generation."
)


@dataclass(frozen=True, slots=True)
class RoundState:
    """One round of a deployment: everything that a switch replaces, at once.

    Much of it depends on the secret randomness. Showing any of it to a requester voids an (α,β,γ) guarantee.

    Attributes
    ----------
    state
        The records, shards and models.
    publisher
        The gate or ledger of the generation.
    rng
        The randomness of the generation.
    serving
        The front, made ready for this round.
    models_trained
        How many models have been trained since the deployment was created.
    generation, round
        The number of the generation, from 1, and of the round, from 0.
    last_report
        What the last update touched and trained; None before the first update.
    is_copy
        Whether other copies serve the same generation.
    key_drawn
        When the recipe key was drawn, in seconds since 1970.
    renewed
        Why the key before it was replaced: "by hand", "on a clock" or "generation used up". Empty for the first key.
    seconds
        How long it took to make this round, by the clock; None if another process made it.
    answers
        Codes that were released in this round, by the row's key: at most 100,000, the last ones. This alone changes
        while the round is served.
    """

    state: EnsembleState
    publisher: Publisher
    rng: Randomness
    serving: Round
    models_trained: int
    generation: int = 1
    round: int = 0
    last_report: UpdateReport | None = None
    is_copy: bool = False
    key_drawn: float = field(default_factory=time.time)
    renewed: str = ""
    seconds: float | None = None
    answers: dict[bytes, int] = field(default_factory=dict, repr=False)

    @property
    def budget(self) -> BudgetStatus:
        """What the generation has spent on predictions, what is left, and whether the next update retrains everything.

        Under a consensus it is for the operator only: it tells whether one has failed.
        """
        return self.publisher.status


class Keeper(Protocol):
    """Keeps the rounds and the books of one deployment.

    A deployment calls `begin`, `stage`, `commit` and `erase` for each new round, in this order and for one round at a
    time. If anything up to the switch fails, it calls `drop`.
    """

    def working(self) -> AbstractContextManager[None]:
        """Enter this before anything is trained for a new round, and before waiting for another update."""

    def begin(self, present: RoundState) -> StateWriter | None:
        """Get ready to keep the round after `present`. What is returned takes the records and models as they come."""

    def stage(self, present: RoundState, following: RoundState) -> RoundState:
        """Write the round down, where nothing refers to it yet. Return the one to go on with, with the same records."""

    def commit(self, present: RoundState, following: RoundState, switch: Callable[[RoundState], None]) -> None:
        """Keep the round completely or not at all, and then put it in service: call `switch` with it."""

    def erase(self, present: RoundState) -> None:
        """Erase what the round that is now in service replaced."""

    def drop(self, present: RoundState) -> None:
        """Forget a round that failed; `present` is in service."""

    def journal(self, present: RoundState) -> Journal | None:
        """Where the publisher of a new generation reserves its predictions before it releases them."""

    def close(self, present: RoundState) -> None:
        """Keep no more. Predictions that have to be reserved are refused from now on."""

    def assumptions(self, rng: Randomness) -> list[str]:
        """What a guarantee assumes about copies of the deployment and about the seed."""


class InMemory:
    """Keeps nothing: the deployment ends with its process.

    Examples
    --------
    >>> InMemory().assumptions(Randomness.from_system())
    ['One copy of a generation is served: a copy that was loaded retrains everything at its first update.']
    """

    def working(self) -> AbstractContextManager[None]:
        """Nothing to do."""
        return nullcontext()

    def begin(self, present: RoundState) -> None:
        """Nothing to do."""

    def stage(self, present: RoundState, following: RoundState) -> RoundState:
        """The same round."""
        return following

    def commit(self, present: RoundState, following: RoundState, switch: Callable[[RoundState], None]) -> None:
        """Put it in service."""
        switch(following)

    def erase(self, present: RoundState) -> None:
        """Nothing to do."""

    def drop(self, present: RoundState) -> None:
        """Nothing to do."""

    def journal(self, present: RoundState) -> None:
        """Nothing to reserve: the books are in the publisher."""

    def close(self, present: RoundState) -> None:
        """Nothing to do."""

    def assumptions(self, rng: Randomness) -> list[str]:
        """One copy, and a secret seed."""
        return [_ONE_COPY, *([] if rng.is_system else [_SEED_IS_SECRET])]
