"""Schemes: what an audit attacks. A scheme is a pair (A, R_A) together with what it publishes.

`make_scheme` makes the built-in schemes by name. `UserScheme` completes a scheme of your own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from expunge.audit.scenario import Codes, Scenario, Scheme
from expunge.core.checks import require_choice, require_count
from expunge.core.errors import ParameterError
from expunge.core.features import Features, num_rows
from expunge.core.guarantee import Guarantee
from expunge.core.randomness import Randomness
from expunge.core.records import Records
from expunge.privacy import accounting
from expunge.privacy.mechanisms import Majority, mechanism
from expunge.serving.deployment import Deployment
from expunge.serving.interaction import Batch, EnsemblePair
from expunge.serving.publishing import ConsensusPublisher, Front, NoisyPublisher, Publisher, StudentFront
from expunge.theory import max_epsilon
from expunge.training.ensemble import EnsembleState
from expunge.training.learners import Learner, Model, ShardData, SlicedLearner, Voter, protocol
from expunge.training.sampling import IndependentSampler, PartitionSampler, Sampler

NOTHING_CLAIMED = Guarantee(math.inf, 0.0, 0.0, note="the scheme claims no guarantee")
_PARTITION = "the shards are a partition: they are not independent, and no certificate covers them (Theorem 5.1)"


@dataclass(frozen=True)
class PublishVotes:
    """Publish the plurality of the shards' answers on fixed points, with ⊥ as an answer like any other (Section 5.1).

    This is what the paper's SISA example publishes. Only audits do: a deployment never releases ⊥. Ties go to the
    lowest answer, and ⊥ is the lowest.

    Parameters
    ----------
    points
        The points to publish labels of.

    Examples
    --------
    >>> import numpy as np
    >>> from expunge.audit import make_pairs
    >>> from expunge.training.ensemble import learn
    >>> from expunge.training.learners import LookupTableLearner
    >>> from expunge.training.recipe import Recipe
    >>> state = learn(make_pairs(4), Recipe(LookupTableLearner(), 1))
    >>> PublishVotes(np.array([[0.0], [1.0], [99.0]]))(0, state).tolist()
    [0, 1, -1]
    """

    points: Features

    def __call__(self, round_number: int, state: EnsembleState) -> Codes:
        """The winning class code at every point, `ABSTAIN` where ⊥ wins."""
        counts = state.count_votes(self.points)
        silent = state.num_shards - counts.sum(axis=1)
        winners: Codes = np.argmax(np.column_stack([silent, counts]), axis=1) - 1
        assert len(winners) == num_rows(self.points)
        return winners


@dataclass(frozen=True)
class EnsembleScheme:
    """Algorithms 2 and 3 (or SISA's 5 and 6, with a partition), publishing the shards' plurality with ⊥ as it is.

    This is the paper's label-only example (Section 5.1, Appendix C.2). It claims no guarantee.

    Parameters
    ----------
    name
        What the report calls the scheme.
    learner
        What trains one shard.
    sampler
        How records are assigned to shards.
    num_shards
        How many shards there are.

    Examples
    --------
    >>> from expunge.audit import audit, lookup_scenario
    >>> from expunge.training.learners import LookupTableLearner
    >>> from expunge.training.sampling import PartitionSampler
    >>> sisa = EnsembleScheme("sisa", LookupTableLearner(), PartitionSampler(), 3)
    >>> audit(lookup_scenario(num_pairs=10), sisa, num_trials=20, seed=1).rejected
    True
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
        """The records of the state."""
        return state.records

    def release(self, state: EnsembleState, points: Features) -> Codes:
        """The most frequent of the shards' answers, ⊥ included."""
        return PublishVotes(points)(0, state)

    decide = release

    def models(self, state: EnsembleState) -> tuple[Model, ...]:
        """Every shard's model."""
        return tuple(state.models)

    def ensemble(self, state: EnsembleState) -> EnsembleState:
        """The state itself."""
        return state

    def guarantee(self, *, beta: float, gamma: float) -> Guarantee:
        """No guarantee: α is infinite."""
        note = NOTHING_CLAIMED.note if self.sampler.is_independent else _PARTITION
        return Guarantee(math.inf, beta, gamma, note=note)


class RetrainScheme(EnsembleScheme):
    """Exact unlearning by retraining everything at every update: the audit's own control, (0,0,0) by construction.

    Parameters
    ----------
    name
        What the report calls the scheme.
    learner
        What trains one shard.
    sampler
        How records are assigned to shards.
    num_shards
        How many shards there are.

    Examples
    --------
    >>> from expunge.audit import audit, lookup_scenario
    >>> from expunge.training.learners import LookupTableLearner
    >>> from expunge.training.sampling import PartitionSampler
    >>> control = RetrainScheme("retrain", LookupTableLearner(), PartitionSampler(), 3)
    >>> audit(lookup_scenario(num_pairs=10), control, num_trials=20, seed=1).rejected
    False
    """

    def update(self, state: EnsembleState, batch: Batch, rng: Randomness) -> EnsembleState:
        """A(D^t)."""
        return self.learn(state.records.apply(batch)[0], rng)

    def guarantee(self, *, beta: float, gamma: float) -> Guarantee:
        """(0,0,0): nothing of the old models is left."""
        return Guarantee(0.0, 0.0, 0.0, theorem="full retraining")


@dataclass(frozen=True)
class DeploymentScheme:
    """PrivatePredictionInteraction (Algorithm 4) as it is deployed: a `Deployment` is the state.

    Parameters
    ----------
    name
        What the report calls the scheme.
    make_learner
        Called for every training from scratch, so that a learner with a memory starts without one.
    sampler
        How records are assigned to shards.
    num_shards
        How many shards there are.
    publisher
        What releases answers. It is a template: every arm of every trial starts from its `new_generation`.
    front
        What stands between the publisher and the users, for example a student.
    max_generations
        How many generations of models a deployment may have.

    Examples
    --------
    >>> from expunge.audit import audit, lookup_scenario
    >>> from expunge.privacy.mechanisms import Majority
    >>> from expunge.training.learners import LookupTableLearner
    >>> scheme = DeploymentScheme(
    ...     name="plurality",
    ...     make_learner=LookupTableLearner,
    ...     sampler=IndependentSampler(),
    ...     num_shards=20,
    ...     publisher=NoisyPublisher(Majority(), budget=None),
    ... )
    >>> audit(lookup_scenario(num_pairs=10), scheme, num_trials=10, seed=1).alpha_certified
    inf
    """

    name: str
    make_learner: Callable[[], Learner | SlicedLearner]
    sampler: Sampler
    num_shards: int
    publisher: Publisher = field(repr=False)
    front: Front | None = field(default=None, repr=False)
    max_generations: int = 1

    def learn(self, records: Records, rng: Randomness) -> Deployment:
        """Make a new deployment on the records."""
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
        """The records of the deployment."""
        return state.records

    def release(self, state: Deployment, points: Features) -> Codes:
        """The answers that the deployment releases, charged to its budget."""
        return state.predict_codes(points)

    def decide(self, state: Deployment, points: Features) -> Codes:
        """The plurality of the votes."""
        return np.asarray(state.inside.state.count_votes(points).argmax(axis=1), dtype=np.int64)

    def models(self, state: Deployment) -> tuple[Model, ...]:
        """Every shard's model."""
        return tuple(state.inside.state.models)

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


class UserScheme:
    """A scheme of your own, with the methods of `Scheme` that it leaves out.

    It must have `learn`, `update`, `records_of` and `release`. Without `decide`, the released labels stand for the
    models' answers. Without `models`, the full-model setting cannot be audited. Without `guarantee`, nothing is
    claimed. For an example see `Scheme`.

    Parameters
    ----------
    given
        The scheme, or a tuple (pair, release) of an object with the first three methods and a function.
    name
        What the report calls the scheme.
    """

    def __init__(self, given: Any, *, name: str) -> None:
        self.name = name
        self._pair, self._release = given if isinstance(given, tuple) else (given, getattr(given, "release", None))

    @property
    def missing(self) -> list[str]:
        """Which of the necessary methods are missing."""
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
        """The user's own `decide`; without one, what is released."""
        own = getattr(self._pair, "decide", None)
        return self.release(state, points) if own is None else np.asarray(own(state, points), dtype=np.int64)

    def models(self, state: Any) -> tuple[Model, ...]:
        """The user's models; empty if they cannot be seen."""
        own = getattr(self._pair, "models", None)
        return () if own is None else tuple(own(state))

    def ensemble(self, state: Any) -> EnsembleState | None:
        """The user's ensemble; without that method the state, if it is an ensemble."""
        own = getattr(self._pair, "ensemble", None)
        found = state if own is None else own(state)
        return found if isinstance(found, EnsembleState) else None

    def guarantee(self, *, beta: float, gamma: float) -> Guarantee:
        """The user's claim; without one, no guarantee."""
        own = getattr(self._pair, "guarantee", None)
        claimed = None if own is None else own(beta=beta, gamma=gamma)
        return claimed if isinstance(claimed, Guarantee) else NOTHING_CLAIMED


@dataclass(frozen=True)
class SkippingLearner:
    """A deliberately broken learner: every `every`-th retraining of a shard returns the shard's old model.

    Every sensible audit must catch it. The learner is the one place that no check of the software's own sees: deleted
    records stay in the model, while the deployment's books and its certificate look as they always do. It remembers
    models, so one object serves one deployment only.

    Parameters
    ----------
    learner
        What trains a shard when a retraining is not skipped.
    every
        One retraining in so many is skipped.

    Raises
    ------
    ParameterError
        If `every` is not a positive integer.
    """

    learner: Learner
    every: int = 10
    _latest: dict[int, Model] = field(default_factory=dict, repr=False)
    _retrainings: list[int] = field(default_factory=lambda: [0], repr=False)

    def __post_init__(self) -> None:
        require_count("every", self.every)

    def for_classes(self, classes: Any) -> SkippingLearner:
        """Return a learner that knows the classes and shares this one's memory."""
        return replace(self, learner=protocol.for_classes(self.learner, classes))

    def fit(self, X: Any, y: protocol.Codes, seed: int, *, weights: protocol.Weights | None = None) -> Model:
        """Train without remembering the model."""
        return self.learner.fit(X, y, seed, weights=weights)

    def fit_many(self, shards: Sequence[ShardData]) -> list[Model]:
        """Train these shards, except those that are skipped."""
        return [self._fit_shard(data) for data in shards]

    def _fit_shard(self, data: ShardData) -> Model:
        if data.shard in self._latest:
            self._retrainings[0] += 1
            if self._retrainings[0] % self.every == 0:
                return self._latest[data.shard]
        model = protocol.fit_many(self.learner, [data])[0]
        self._latest[data.shard] = model
        return model

    def make_voter(self, models: Sequence[Model], num_classes: int) -> Voter:
        """Make the voter of the learner inside."""
        return protocol.make_voter(self.learner, models, num_classes)


NOISY = ("exponential", "permute-and-flip", "laplace", "gaussian", "confident")
SCHEME_NAMES = ("sisa", "majority", *NOISY, "consensus", "student", "broken", "retrain")
DEFAULT_TARGET = Guarantee(1.0, 1e-3, 1e-3)
_CONSENSUS_TARGET = Guarantee(5.0, 1e-3, 1e-3)
_CONSENSUS_ANSWERS = 10_000
_SKIP_EVERY = 10


@dataclass(frozen=True)
class _ShardCounts:
    """Numbers of shards for a scenario: of a partition, of independent shards, and of shards that seek consensus."""

    partition: int
    independent: int
    consensus: int = 300
    probability: float | None = None
    consensus_probability: float | None = None


_SHARD_COUNTS = {
    "lookup": _ShardCounts(partition=3, independent=20),
    "label-only": _ShardCounts(partition=3, independent=20, probability=1 / 3, consensus_probability=0.2),
    "white-box": _ShardCounts(partition=6, independent=6, consensus=6),
    "membership": _ShardCounts(partition=20, independent=20, probability=0.3, consensus_probability=0.5),
    "slow-down": _ShardCounts(partition=3, independent=20),
}


@dataclass(frozen=True)
class LearnerFactory:
    """Make the learner for one training from scratch; with `skip_every` a broken one that starts without a memory."""

    learner: Learner | SlicedLearner
    skip_every: int | None = None

    def __call__(self) -> Learner | SlicedLearner:
        """Make the learner."""
        if self.skip_every is None:
            return self.learner
        if isinstance(self.learner, SlicedLearner):
            raise ParameterError("the broken scheme needs a learner that is not trained in slices")
        return SkippingLearner(self.learner, every=self.skip_every)


def make_scheme(
    name: str,
    scenario: Scenario,
    *,
    num_shards: int | None = None,
    inclusion_probability: float | None = None,
    target: Guarantee = DEFAULT_TARGET,
) -> Scheme[Any]:
    """Make a built-in scheme for a scenario's learner.

    Parameters
    ----------
    name
        "sisa": a partition that publishes labels with ⊥, as in the paper. "majority": independent shards and their
        plurality, without noise. "exponential", "permute-and-flip", "laplace", "gaussian", "confident": private
        mechanisms. "consensus": a label is released where enough shards agree. "student": a student model, trained on
        public points, answers. "broken": the exponential mechanism's deployment, certificate included, with a learner
        that skips every tenth retraining. "retrain": everything is retrained at every update.
    scenario
        The scenario to be audited.
    num_shards
        How many shards; None takes the usual number for the scenario.
    inclusion_probability
        The probability that a record is in a shard; None takes the usual one for the scenario.
    target
        The guarantee that the private mechanisms must have for everything that the scenario publishes. Noise is as
        small as it allows.

    Returns
    -------
    Scheme
        The scheme.

    Raises
    ------
    ParameterError
        If there is no such scheme, an option does not fit it, or the scenario's data do not (a student needs public
        points).

    Examples
    --------
    >>> from expunge.audit import lookup_scenario
    >>> scheme = make_scheme("exponential", lookup_scenario(num_pairs=10), num_shards=30)
    >>> scheme.num_shards, round(scheme.guarantee(beta=1e-3, gamma=1e-3).alpha, 3)
    (30, 1.0)
    """
    require_choice("scheme", name, SCHEME_NAMES)
    counts, learner = _SHARD_COUNTS.get(scenario.name, _ShardCounts(3, 20)), scenario.task.learner
    if name in ("sisa", "retrain"):
        if inclusion_probability is not None:
            raise ParameterError(
                f"the scheme {name} is a partition and has no inclusion probability, got {inclusion_probability!r}"
            )
        shards = counts.partition if num_shards is None else num_shards
        # Appendix C.2 uses equal parts. Elsewhere each record is assigned independently (Theorem 5.1): only then are
        # the shards exchangeable, and unlearning exact for requests that were fixed in advance.
        sampler = PartitionSampler()
        return (EnsembleScheme if name == "sisa" else RetrainScheme)(name, learner, sampler, shards)
    seeks_consensus = name in ("consensus", "student")
    usual = _independent_shards(name, counts)
    shards = usual if num_shards is None else num_shards
    probability = counts.consensus_probability if seeks_consensus else counts.probability
    return DeploymentScheme(
        name=name,
        make_learner=LearnerFactory(learner, _SKIP_EVERY if name == "broken" else None),
        sampler=IndependentSampler(probability if inclusion_probability is None else inclusion_probability),
        num_shards=shards,
        publisher=_make_publisher(name, scenario, shards, target),
        front=_make_student(scenario) if name == "student" else None,
    )


def _independent_shards(name: str, counts: _ShardCounts) -> int:
    if name in ("consensus", "student"):
        return counts.consensus
    # A batch must touch ten shards or more for the broken scheme to show.
    return max(counts.independent, 2 * _SKIP_EVERY) if name == "broken" else counts.independent


def _make_publisher(name: str, scenario: Scenario, num_shards: int, target: Guarantee) -> Publisher:
    if name == "majority":
        return NoisyPublisher(Majority(), budget=None)
    if name in ("consensus", "student"):
        return ConsensusPublisher(
            num_shards=num_shards,
            rng=Randomness.from_seed(0),  # of the template only: every arm of every trial draws its own threshold
            target=_CONSENSUS_TARGET,
            max_predictions=max(_CONSENSUS_ANSWERS, scenario.num_published),
            max_generations=1,
        )
    return _make_noisy(name if name in NOISY else "exponential", scenario.num_published, num_shards, target)


def _make_noisy(name: str, num_published: int, num_shards: int, target: Guarantee) -> NoisyPublisher:
    """Make the named mechanism with the largest ε0 that is certified for `num_published` answers."""
    is_pure = name in ("permute-and-flip", "laplace")
    event: Callable[[float], accounting.Event] = accounting.PureDP if is_pure else accounting.BoundedRange
    epsilon = max_epsilon(target, num_predictions=num_published, num_shards=num_shards, event=event)
    # The confident mechanism gives no answer where no label has half of the shards.
    extra = {"threshold": 0.5 * num_shards} if name == "confident" else {}
    return NoisyPublisher(mechanism(name, epsilon=epsilon, **extra), budget=None, max_predictions=num_published)


def _make_student(scenario: Scenario) -> StudentFront:
    task = scenario.task
    if task.pool is None:
        raise ParameterError("the student scheme needs public points, and the scenario's data have none")
    if isinstance(task.learner, SlicedLearner):
        raise ParameterError("the student scheme needs a learner that is not trained in slices")
    # Tables that abstain never agree, so no point would be selected: ask about the whole pool, and the gate takes note.
    share = 1.0 if scenario.name == "membership" else 0.0
    # A student of no use is attacked as any other: a refusal would end the trial.
    return StudentFront(task.pool, task.learner, selection_share=share, num_throw_away=30, least_agreement=0.0)
