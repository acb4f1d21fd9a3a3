"""The interaction between a learner pair, a publishing function and an update requester (Algorithm 1).

The pair (A, R_A) learns a state from records and updates it. The publishing function depends on the round and the
state. The requester sees the published objects and its own updates only: this makes an audit honest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from expunge.core.randomness import Randomness
from expunge.core.records import Records, Update
from expunge.training.ensemble import EnsembleState, learn, update
from expunge.training.execution import Executor
from expunge.training.learners import Learner, SlicedLearner
from expunge.training.sampling import Sampler

State = TypeVar("State")
Batch = Sequence[Update]
Publish = Callable[[int, State], Any]


class LearnerPair(Protocol[State]):
    """(A, R_A): `learn` from scratch, `update` for one round. `records_of` gives the dataset D^t of a state."""

    def learn(self, records: Records, rng: Randomness) -> State:
        """A(D)."""

    def update(self, state: State, batch: Batch, rng: Randomness) -> State:
        """R_A(D^{t-1}, u^t, s^{t-1})."""

    def records_of(self, state: State) -> Records:
        """D^t."""


class Requester(Protocol):
    """UpdReq (Definition 2.2): chooses the next request from what was published and asked so far."""

    def next_batch(self, published: Sequence[Any], asked: Sequence[Batch]) -> Batch | None:
        """u^t from (ψ^0, u^1, ψ^1, …, u^{t-1}, ψ^{t-1}); None ends the interaction."""


@dataclass(frozen=True)
class EnsemblePair:
    """A_distr and R_A of this package (or SISA's, with a partition sampler) as a learner pair.

    Parameters
    ----------
    learner
        What trains one shard's model.
    sampler
        How shards are drawn.
    num_shards
        The number of shards k.
    executor
        Where models are trained; one after the other in this process if None.
    """

    learner: Learner | SlicedLearner
    sampler: Sampler
    num_shards: int
    executor: Executor | None = None

    def learn(self, records: Records, rng: Randomness) -> EnsembleState:
        """Algorithm 2 (or 5)."""
        return learn(
            records,
            self.learner,
            num_shards=self.num_shards,
            sampler=self.sampler,
            rng=rng,
            executor=self.executor,
        )

    def update(self, state: EnsembleState, batch: Batch, rng: Randomness) -> EnsembleState:
        """Algorithm 3 (or 6)."""
        return update(state, batch, rng=rng, executor=self.executor)[0]

    def records_of(self, state: EnsembleState) -> Records:
        """The dataset of the state."""
        return state.records


@dataclass(frozen=True)
class Interaction(Generic[State]):
    """A finished interaction.

    Attributes
    ----------
    state
        The final state; it stays inside the trust boundary.
    published, asked
        The transcript that the requester saw.
    """

    state: State
    published: tuple[Any, ...]
    asked: tuple[Batch, ...]


def interact(
    pair: LearnerPair[State],
    publish: Publish[State],
    requester: Requester,
    records: Records,
    *,
    rng: Randomness,
    max_rounds: int,
) -> Interaction[State]:
    """Play the interaction of Algorithm 1: learn and publish; then update on request and publish again.

    Parameters
    ----------
    pair
        The learner pair (A, R_A).
    publish
        f_publish: called with the round and the state.
    requester
        The update requester; it ends the interaction by returning None.
    records
        The first dataset D^0.
    rng
        The source of all randomness of the pair.
    max_rounds
        The largest number of updates.

    Returns
    -------
    Interaction
        The final state and the transcript.
    """
    state = pair.learn(records, rng)
    published = [publish(0, state)]
    asked: list[Batch] = []
    while len(asked) < max_rounds:
        batch = requester.next_batch(tuple(published), tuple(asked))
        if batch is None:
            break
        state = pair.update(state, batch, rng)
        asked.append(batch)
        published.append(publish(len(asked), state))
    return Interaction(state, tuple(published), tuple(asked))
