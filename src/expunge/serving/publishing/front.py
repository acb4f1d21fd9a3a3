"""What answers a query: the ensemble itself, a router in front of it, or a student that learned from it.

A front opens every round anew, because it may depend on D^t, on public constants, and on what was released; never on r
itself. The gate or the ledger of the generation (`Publisher`) stands between it and the votes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from expunge.core.blocks import Block
from expunge.core.features import Features, digest_values
from expunge.core.randomness import Randomness
from expunge.core.records import Change, Records
from expunge.serving.publishing.publisher import Publisher
from expunge.training.ensemble import EnsembleState, retrain
from expunge.training.execution import Executor
from expunge.training.learners import Abstainer, Model
from expunge.training.learners.slices import SlicedShard
from expunge.training.recipe import PUBLIC_KEY, Recipe, digest_contents
from expunge.training.sampling import IndependentSampler


@dataclass(frozen=True)
class RoundContext:
    """What a front gets in order to open a round.

    Parameters
    ----------
    state
        The ensemble, with its records D^t.
    publisher
        The gate or ledger of the generation.
    rng
        The generation's secret randomness, for the release alone. A front's own coins are public constants: they say
        nothing about r.
    executor
        Where models are trained.
    previous
        The round before.
    change
        What the update did to the slots of the previous dataset. None if they were renumbered, or in the first round.
    """

    state: EnsembleState
    publisher: Publisher
    rng: Randomness
    executor: Executor
    previous: Round | None = None
    change: Change | None = None

    def settled(self) -> RoundContext:
        """The part that a round keeps: without earlier rounds, whose records may have been deleted since."""
        return replace(self, previous=None, change=None)


class Round(Protocol):
    """How queries are answered in one round."""

    @property
    def is_repeatable(self) -> bool:
        """Whether a repeated query gets the same answer, free of charge, without a cache."""

    @property
    def figures(self) -> dict[str, Any]:
        """How the round turned out, as plain data for anybody: D^t, constants and what was released decide it."""

    def consider(self, rows: Features) -> Any:
        """Compute all that answers need, such as the votes. Nothing is released, charged or counted.

        It takes the time of a prediction, and other threads may do it meanwhile.
        """

    def release(self, considered: Any) -> NDArray[np.int64]:
        """Release a class code for every row that was considered: charge, draw and count."""

    def answer(self, rows: Features) -> NDArray[np.int64]:
        """Release a class code for every row: consider them first."""

    def moved(self, state: EnsembleState) -> Self:
        """The same round after its records were rewritten into other slots."""


class Front(Protocol):
    """How queries are answered, in every round.

    A folder keeps what a round has learned, so that it is not learned, or paid for, twice.
    """

    def open_round(self, opening: RoundContext) -> Round:
        """Make the front ready for D^t."""

    def dump_round(self, serving: Any, state: EnsembleState) -> dict[str, Any]:
        """What one of this front's rounds has learned, as arrays and plain values; nothing if it learns nothing."""

    def load_round(self, opening: RoundContext, kept: Mapping[str, Any]) -> Round:
        """The round again, from what `dump_round` returned. It is not made, or paid for, a second time."""

    def refuse(self, block: Block, classes: NDArray[Any]) -> None:
        """Raise an error that names the first of these records that no round could be opened with.

        If such a record were accepted, it would keep all pending requests from being applied.
        """


@dataclass(frozen=True)
class DirectRound:
    """A round in which every query goes to the ensemble.

    Parameters
    ----------
    opening
        The ensemble and its publisher.
    """

    opening: RoundContext

    @property
    def is_repeatable(self) -> bool:
        """As the publisher's."""
        return self.opening.publisher.is_repeatable

    @property
    def figures(self) -> dict[str, Any]:
        """Nothing: all of it would depend on r."""
        return {}

    def consider(self, rows: Features) -> NDArray[np.int64]:
        """Count the votes."""
        return self.opening.state.count_votes(rows)

    def release(self, considered: NDArray[np.int64]) -> NDArray[np.int64]:
        """Release the votes through the publisher."""
        return self.opening.publisher.release(considered, self.opening.rng)

    def answer(self, rows: Features) -> NDArray[np.int64]:
        """Release the votes through the publisher."""
        return self.release(self.consider(rows))

    def moved(self, state: EnsembleState) -> Self:
        """The same round with this state."""
        return replace(self, opening=replace(self.opening, state=state))


@dataclass(frozen=True)
class DirectFront:
    """The ensemble answers every query, without a router or a student."""

    def open_round(self, opening: RoundContext) -> DirectRound:
        """Open a round; there is nothing to prepare."""
        return DirectRound(opening.settled())

    def dump_round(self, serving: DirectRound, state: EnsembleState) -> dict[str, Any]:
        """Nothing: the round has learned nothing."""
        return {}

    def load_round(self, opening: RoundContext, kept: Mapping[str, Any]) -> DirectRound:
        """The round, opened again."""
        return self.open_round(opening)

    def refuse(self, block: Block, classes: NDArray[Any]) -> None:
        """Refuse nothing."""


@dataclass(frozen=True)
class ThrowAway:
    """The throw-away ensemble of one round. It is kept so that the next round trains only what has changed.

    It holds no records: its models were trained on records of D^t only, because a shard that loses a record is trained
    again. A model is used again only for the same shard with the same contents, to the bit, so that every round has the
    ensemble that training from scratch would give it.

    Parameters
    ----------
    models
        The model of every shard.
    digests
        Of every shard, a digest of exactly what its model was trained on.
    """

    models: tuple[Model, ...]
    digests: tuple[bytes, ...]


def throw_away_votes(
    opening: RoundContext, records: Records, points: Features, num_shards: int
) -> tuple[NDArray[np.int64], ThrowAway]:
    """The votes for each class on `points` in an ensemble that is drawn and trained for this purpose alone.

    Its shards are drawn with the inclusion probability of the real ones and with a public key, so what it says is a
    function of `records` alone and says nothing about r (T5). Only the shards whose contents are not those of the round
    before are trained.
    """
    state = opening.state
    sampler = IndependentSampler(state.sampler.inclusion_probability(state.num_shards))
    recipe = Recipe(state.learner, num_shards, sampler, PUBLIC_KEY).for_classes(records.classes)
    blank = EnsembleState(records, recipe, recipe.members(records), ())
    before: ThrowAway | None = getattr(opening.previous, "throw_away", None)
    models: dict[int, Model] = {}
    digests = tuple(_digest(blank, shard) for shard in range(num_shards))
    if before is not None and len(before.models) == num_shards:
        models = {
            shard: model
            for shard, model in enumerate(before.models)
            # A shard that could not be trained is tried again: the cause may have been a lack of memory.
            if before.digests[shard] == digests[shard] and not isinstance(model, Abstainer)
        }
    rest = [shard for shard in range(num_shards) if shard not in models]
    models |= dict(zip(rest, retrain(blank, rest, executor=opening.executor), strict=True))
    thrown_away = replace(blank, models=tuple(models[shard] for shard in range(num_shards)))
    return thrown_away.count_votes(points), ThrowAway(tuple(thrown_away.models), digests)


def _digest(state: EnsembleState, shard: int) -> bytes:
    """A digest of all that decides the model of a shard, under one learner and key: the environment decides too."""
    data, environment = state.contents(shard), state.recipe.environment.digest.encode()
    parts = [digest_contents(data.X, data.y, data.weights), digest_values(state.records.classes), environment]
    if isinstance(data, SlicedShard):
        parts.append(digest_values(data.slice_of))
    return b"".join(parts)
