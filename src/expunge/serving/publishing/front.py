"""Who answers a query: the ensemble itself, a router in front of it, or a student that learned from it.

A front opens every round anew, because it may depend on D^t, on public constants, and on what was released; never on r
itself. The gate or the ledger of the generation (`Publisher`) stands between it and the votes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from expunge.core.features import Features
from expunge.core.randomness import Randomness
from expunge.core.records import Change, Records
from expunge.serving.publishing.publisher import Publisher
from expunge.training.ensemble import EnsembleState, learn
from expunge.training.execution import Executor
from expunge.training.recipe import PUBLIC_KEY, Recipe
from expunge.training.sampling import IndependentSampler


@dataclass(frozen=True)
class Opening:
    """What a front gets to open a round with.

    `rng` is the generation's secret randomness, for the release alone. A front's own coins are public constants: they
    say nothing about r. `change` tells what the round's update did to the slots of the previous round's dataset,
    None if the slots were renumbered or this is the first round.
    """

    state: EnsembleState
    publisher: Publisher
    rng: Randomness
    executor: Executor
    previous: Round | None = None
    change: Change | None = None

    def settled(self) -> Opening:
        """The part that a round keeps: nothing of earlier rounds, whose records may have been deleted since."""
        return replace(self, previous=None, change=None)


class Round(Protocol):
    """One round's way of answering."""

    @property
    def is_repeatable(self) -> bool:
        """Whether asking again gives the same answer at no cost without a cache."""

    def answer(self, rows: Features) -> NDArray[np.int64]:
        """Released class codes."""


class Front(Protocol):
    """A way of answering, for every round."""

    def open_round(self, opening: Opening) -> Round:
        """Make ready for D^t."""


@dataclass(frozen=True)
class DirectRound:
    """Every query goes to the ensemble."""

    opening: Opening

    @property
    def is_repeatable(self) -> bool:
        """As the publisher says."""
        return self.opening.publisher.is_repeatable

    def answer(self, rows: Features) -> NDArray[np.int64]:
        """Votes, through the publisher."""
        return self.opening.publisher.release(self.opening.state.count_votes(rows), self.opening.rng)


@dataclass(frozen=True)
class DirectFront:
    """No router, no student."""

    def open_round(self, opening: Opening) -> DirectRound:
        """Nothing to prepare."""
        return DirectRound(opening.settled())


def throw_away_shares(opening: Opening, records: Records, points: Features, num_shards: int) -> NDArray[np.float64]:
    """The top vote's share on `points` in an ensemble drawn and trained for this purpose alone, and then destroyed.

    Its shards are drawn with the inclusion probability of the real ones and with a public key, so what it says is a
    function of `records` alone and says nothing about r (T5).
    """
    state = opening.state
    sampler = IndependentSampler(state.sampler.inclusion_probability(state.num_shards))
    recipe = Recipe(state.learner, num_shards, sampler, PUBLIC_KEY)
    thrown_away = learn(records, recipe, executor=opening.executor)
    shares: NDArray[np.float64] = thrown_away.count_votes(points).max(axis=1) / num_shards
    return shares
