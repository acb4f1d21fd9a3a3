"""What can be audited: a scheme is a pair (A, R_A) together with what it publishes.

The audit calls `learn`, `update` and `release` as Algorithm 1 does, and looks inside through `models` only to compute
statistics of the models (which is what the guarantee is about) and, in the full-model setting, to publish them.

What crosses the boundary in an audit: the paper's labels with ⊥, or whole models.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from expunge.core.features import Features, num_rows
from expunge.core.randomness import Randomness
from expunge.core.records import Records
from expunge.serving.deployment import Deployment
from expunge.serving.interaction import Batch, EnsemblePair
from expunge.serving.publishing import Front, Publisher
from expunge.theory import Guarantee
from expunge.training.ensemble import EnsembleState
from expunge.training.learners import Learner, Model, SlicedLearner
from expunge.training.sampling import Sampler


@dataclass(frozen=True)
class PublishVotes:
    """Mode of the shards' answers on fixed points, with ⊥ as an answer like any other (Section 5.1).

    This is what the paper's SISA example publishes, and only audits do: a deployment never releases ⊥. Ties go to the
    lowest answer, with ⊥ lowest.
    """

    points: Features

    def __call__(self, round_number: int, state: EnsembleState) -> NDArray[np.int64]:
        """The winning class code at every point, `ABSTAIN` where ⊥ wins."""
        counts = state.count_votes(self.points)
        silent = state.num_shards - counts.sum(axis=1)
        winners: NDArray[np.int64] = np.argmax(np.column_stack([silent, counts]), axis=1) - 1
        assert len(winners) == num_rows(self.points)
        return winners


@dataclass(frozen=True)
class PublishedModels:
    """The full-model setting: every shard's model, in the order of the shards. Who is in which shard stays hidden."""

    models: tuple[Model, ...]
    num_classes: int


State = TypeVar("State")
Codes = NDArray[np.int64]

NOTHING_CLAIMED = Guarantee(math.inf, 0.0, 0.0, note="the scheme claims no guarantee")
_PARTITION = "the shards are a partition: they are not independent, and no certificate covers them (Theorem 5.1)"


@runtime_checkable
class Scheme(Protocol[State]):
    """(learn, update, publish). `AnyScheme` fills in what a user's own scheme leaves out."""

    @property
    def name(self) -> str:
        """What the report calls it."""

    def learn(self, records: Records, rng: Randomness) -> State:
        """A(D)."""

    def update(self, state: State, batch: Batch, rng: Randomness) -> State:
        """R_A(D^{t-1}, u^t, s^{t-1})."""

    def records_of(self, state: State) -> Records:
        """D^t, as the scheme keeps it."""

    def release(self, state: State, points: Features) -> Codes:
        """f_publish: the labels that leave the system, as class codes; negative where none is given."""

    def decide(self, state: State, points: Features) -> Codes:
        """The answers of the models before any noise: inside, for statistics."""

    def models(self, state: State) -> tuple[Model, ...]:
        """The models, in the order of the shards: what the full-model setting publishes."""

    def ensemble(self, state: State) -> EnsembleState | None:
        """The shards behind the state, None where there are none to be seen."""

    def guarantee(self, *, beta: float, gamma: float) -> Guarantee:
        """What the scheme claims of label-only publishing; infinite α where it claims nothing."""


@dataclass(frozen=True)
class EnsembleScheme:
    """Algorithms 2 and 3 (or SISA's 5 and 6, under a partition) whose answers, ⊥ among them, are published as they are.

    This is the paper's label-only example (Section 5.1, Appendix C.2). It claims nothing.
    """

    name: str
    learner: Learner | SlicedLearner
    sampler: Sampler
    num_shards: int

    @property
    def _pair(self) -> EnsemblePair:
        return EnsemblePair(self.learner, self.sampler, self.num_shards)

    def learn(self, records: Records, rng: Randomness) -> EnsembleState:
        """Algorithm 2 (or 5)."""
        return self._pair.learn(records, rng)

    def update(self, state: EnsembleState, batch: Batch, rng: Randomness) -> EnsembleState:
        """Algorithm 3 (or 6)."""
        return self._pair.update(state, batch, rng)

    def records_of(self, state: EnsembleState) -> Records:
        """The dataset of the state."""
        return state.records

    def release(self, state: EnsembleState, points: Features) -> Codes:
        """The mode of the shards' answers, ⊥ included."""
        return PublishVotes(points)(0, state)

    decide = release

    def models(self, state: EnsembleState) -> tuple[Model, ...]:
        """Every shard's model."""
        return state.models

    def ensemble(self, state: EnsembleState) -> EnsembleState:
        """The state itself."""
        return state

    def guarantee(self, *, beta: float, gamma: float) -> Guarantee:
        """None."""
        note = NOTHING_CLAIMED.note if self.sampler.is_independent else _PARTITION
        return Guarantee(math.inf, beta, gamma, note=note)


@dataclass(frozen=True)
class DeploymentScheme:
    """PrivatePredictionInteraction (Algorithm 4) as it is deployed: a `Deployment` is the state.

    `make_learner` is called for every training from scratch, so that a learner with a memory starts without one.
    `publisher` is a pattern: every arm of every trial starts from its `new_generation`.
    """

    name: str
    make_learner: Callable[[], Learner | SlicedLearner]
    sampler: Sampler
    num_shards: int
    publisher: Publisher = field(repr=False)
    front: Front | None = field(default=None, repr=False)
    max_generations: int = 1

    def learn(self, records: Records, rng: Randomness) -> Deployment:
        """A deployment of its own."""
        return Deployment(
            records,
            self.make_learner(),
            num_shards=self.num_shards,
            sampler=self.sampler,
            publisher=self.publisher.new_generation(rng),
            rng=rng,
            front=self.front,
            max_generations=self.max_generations,
        )

    def update(self, state: Deployment, batch: Batch, rng: Randomness) -> Deployment:
        """The deployment's own update, which retrains everything once its budget is spent."""
        state.update(batch)
        return state

    def records_of(self, state: Deployment) -> Records:
        """The dataset of the deployment."""
        return state.records

    def release(self, state: Deployment, points: Features) -> Codes:
        """Released answers, paid for."""
        return state.predict_codes(points)

    def decide(self, state: Deployment, points: Features) -> Codes:
        """The plurality of the votes."""
        return np.asarray(state.inside.state.count_votes(points).argmax(axis=1), dtype=np.int64)

    def models(self, state: Deployment) -> tuple[Model, ...]:
        """Every shard's model."""
        return state.inside.state.models

    def ensemble(self, state: Deployment) -> EnsembleState:
        """The ensemble behind the deployment."""
        return state.inside.state

    def guarantee(self, *, beta: float, gamma: float) -> Guarantee:
        """What `Deployment.guarantee` says."""
        if not self.sampler.is_independent:
            return Guarantee(math.inf, beta, gamma, note=_PARTITION)
        return self.publisher.guarantee(
            num_shards=self.num_shards, beta=beta, gamma=gamma, num_generations=self.max_generations
        )


class RetrainScheme(EnsembleScheme):
    """Exact unlearning by retraining everything at every update: the harness's own control, (0,0,0) by construction."""

    def update(self, state: EnsembleState, batch: Batch, rng: Randomness) -> EnsembleState:
        """A(D^t)."""
        return self.learn(state.records.apply(batch)[0], rng)

    def guarantee(self, *, beta: float, gamma: float) -> Guarantee:
        """(0,0,0): nothing of the old models is left."""
        return Guarantee(0.0, 0.0, 0.0, theorem="full retraining")


class AnyScheme:
    """A user's scheme with what it leaves out filled in.

    It must have `learn`, `update`, `records_of` and `release` (or be a pair (pair, release) of those). Without `decide`
    the released labels stand for the models; without `models` the full-model setting cannot be audited.
    """

    def __init__(self, given: Any, *, name: str) -> None:
        self.name = name
        self._pair, self._release = given if isinstance(given, tuple) else (given, getattr(given, "release", None))

    @property
    def missing(self) -> list[str]:
        """Which of the necessary methods are not there."""
        absent = [method for method in ("learn", "update", "records_of") if not hasattr(self._pair, method)]
        return absent if callable(self._release) else [*absent, "release"]

    def learn(self, records: Records, rng: Randomness) -> Any:
        """A(D)."""
        return self._pair.learn(records, rng)

    def update(self, state: Any, batch: Batch, rng: Randomness) -> Any:
        """R_A."""
        return self._pair.update(state, batch, rng)

    def records_of(self, state: Any) -> Records:
        """D^t."""
        records: Records = self._pair.records_of(state)
        return records

    def release(self, state: Any, points: Features) -> Codes:
        """The user's publishing function."""
        return np.asarray(self._release(state, points), dtype=np.int64)

    def decide(self, state: Any, points: Features) -> Codes:
        """The user's own `decide`, or what is released."""
        own = getattr(self._pair, "decide", None)
        return self.release(state, points) if own is None else np.asarray(own(state, points), dtype=np.int64)

    def models(self, state: Any) -> tuple[Model, ...]:
        """The user's models; none where they are not to be seen."""
        own = getattr(self._pair, "models", None)
        return () if own is None else tuple(own(state))

    def ensemble(self, state: Any) -> EnsembleState | None:
        """The user's ensemble, or the state where it is one."""
        own = getattr(self._pair, "ensemble", None)
        found = state if own is None else own(state)
        return found if isinstance(found, EnsembleState) else None

    def guarantee(self, *, beta: float, gamma: float) -> Guarantee:
        """The user's claim, if any."""
        own = getattr(self._pair, "guarantee", None)
        claimed = None if own is None else own(beta=beta, gamma=gamma)
        return claimed if isinstance(claimed, Guarantee) else NOTHING_CLAIMED
