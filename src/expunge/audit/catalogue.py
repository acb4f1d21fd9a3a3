"""The built-in schemes by name, fitted to a scenario.

A deliberately broken unlearner: it skips retraining every tenth touched shard. Every sensible audit must catch it.

It is broken in the one place that no check of the software's own sees: the learner. Asked to train a shard again, it
hands back the shard's previous model every tenth time, so records that were deleted stay in it, while the deployment's
books and its certificate look as they always do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from expunge.audit.scenario import Scenario
from expunge.audit.schemes import DeploymentScheme, EnsembleScheme, RetrainScheme, Scheme
from expunge.core.errors import ParameterError
from expunge.core.randomness import Randomness
from expunge.privacy.accounting import BoundedRange, Event, PureDP
from expunge.privacy.mechanisms import Majority, mechanism
from expunge.serving.publishing import ConsensusPublisher, NoisyPublisher, Publisher, StudentFront
from expunge.theory import Guarantee, max_epsilon
from expunge.training.learners import Learner, Model, ShardData, SlicedLearner, Voter
from expunge.training.learners.protocol import Codes, Weights, fit_many, for_classes, make_voter
from expunge.training.sampling import IndependentSampler, PartitionSampler


@dataclass(frozen=True)
class SkippingLearner:
    """Trains like `learner`, but every `every`-th retraining of a shard returns the shard's old model.

    It remembers models, so one object serves one deployment only.
    """

    learner: Learner
    every: int = 10
    _latest: dict[int, Model] = field(default_factory=dict, repr=False)
    _retrainings: list[int] = field(default_factory=lambda: [0], repr=False)

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ParameterError(f"every must be at least 1, got {self.every!r}")

    def for_classes(self, classes: Any) -> SkippingLearner:
        """The same memory, around the learner that knows the classes."""
        return replace(self, learner=for_classes(self.learner, classes))

    def fit(self, X: Any, y: Codes, seed: int, *, weights: Weights | None = None) -> Model:
        """A training on its own, of which nothing is remembered."""
        return self.learner.fit(X, y, seed, weights=weights)

    def fit_many(self, shards: Sequence[ShardData]) -> list[Model]:
        """Train these shards, or pretend to."""
        return [self._fit_shard(data) for data in shards]

    def _fit_shard(self, data: ShardData) -> Model:
        if data.shard in self._latest:
            self._retrainings[0] += 1
            if self._retrainings[0] % self.every == 0:
                return self._latest[data.shard]
        model = fit_many(self.learner, [data])[0]
        self._latest[data.shard] = model
        return model

    def make_voter(self, models: Sequence[Model], num_classes: int) -> Voter:
        """Votes are taken as they always are."""
        return make_voter(self.learner, models, num_classes)


NOISY = ("exponential", "permute-and-flip", "laplace", "gaussian", "confident")
SCHEME_NAMES = ("sisa", "majority", *NOISY, "consensus", "student", "broken", "retrain")
DEFAULT_TARGET = Guarantee(1.0, 1e-3, 1e-3)
_CONSENSUS_TARGET = Guarantee(5.0, 1e-3, 1e-3)
_CONSENSUS_ANSWERS = 10_000
_SKIP_EVERY = 10


@dataclass(frozen=True)
class Sizes:
    """Numbers of shards for a scenario: of a partition, of independent shards, and of shards that seek consensus."""

    partition: int
    independent: int
    consensus: int = 300
    probability: float | None = None
    consensus_probability: float | None = None


_SIZES = {
    "lookup": Sizes(partition=3, independent=20),
    "label-only": Sizes(partition=3, independent=20, probability=1 / 3, consensus_probability=0.2),
    "white-box": Sizes(partition=6, independent=6, consensus=6),
    "membership": Sizes(partition=20, independent=20, probability=0.3, consensus_probability=0.5),
    "slow-down": Sizes(partition=3, independent=20),
}


@dataclass(frozen=True)
class Fresh:
    """The same learner every time; with `skip_every` a broken one that starts without a memory."""

    learner: Learner | SlicedLearner
    skip_every: int | None = None

    def __call__(self) -> Learner | SlicedLearner:
        """A learner for one training from scratch."""
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
    """A scheme for the scenario's learner.

    Noise is chosen as small as the certificate `target` allows for everything that the scenario publishes. `broken`
    is the exponential mechanism's deployment, certificate and all, with a learner that skips retrainings.
    """
    if name not in SCHEME_NAMES:
        raise ParameterError(f"scheme must be one of {', '.join(SCHEME_NAMES)}, got {name!r}")
    sizes, learner = _SIZES.get(scenario.name, Sizes(3, 20)), scenario.task.learner
    if name in ("sisa", "retrain"):
        if inclusion_probability is not None:
            raise ParameterError(
                f"the scheme {name} is a partition and has no inclusion probability, got {inclusion_probability!r}"
            )
        shards = sizes.partition if num_shards is None else num_shards
        # Appendix C.2 uses equal parts. Elsewhere every record is assigned by itself (Theorem 5.1): only then are the
        # shards exchangeable, and unlearning exact for requests that were fixed in advance.
        sampler = PartitionSampler()
        return (EnsembleScheme if name == "sisa" else RetrainScheme)(name, learner, sampler, shards)
    seeks_consensus = name in ("consensus", "student")
    usual = _independent_shards(name, scenario, sizes)
    shards = usual if num_shards is None else num_shards
    probability = sizes.consensus_probability if seeks_consensus else sizes.probability
    return DeploymentScheme(
        name=name,
        make_learner=Fresh(learner, _SKIP_EVERY if name == "broken" else None),
        sampler=IndependentSampler(probability if inclusion_probability is None else inclusion_probability),
        num_shards=shards,
        publisher=_publisher(name, scenario, shards, target),
        front=_student(scenario) if name == "student" else None,
    )


def _independent_shards(name: str, scenario: Scenario, sizes: Sizes) -> int:
    if name in ("consensus", "student"):
        return sizes.consensus
    # A batch must touch ten shards or more for the broken scheme to show.
    return max(sizes.independent, 2 * _SKIP_EVERY) if name == "broken" else sizes.independent


def _publisher(name: str, scenario: Scenario, num_shards: int, target: Guarantee) -> Publisher:
    if name == "majority":
        return NoisyPublisher(Majority(), budget=None)
    if name in ("consensus", "student"):
        return ConsensusPublisher(
            num_shards=num_shards,
            rng=Randomness.from_seed(0),  # of a pattern only: every arm of every trial draws its own threshold
            target=_CONSENSUS_TARGET,
            max_predictions=max(_CONSENSUS_ANSWERS, scenario.num_published),
            max_generations=1,
        )
    return _noisy(name if name in NOISY else "exponential", scenario.num_published, num_shards, target)


def _noisy(name: str, num_published: int, num_shards: int, target: Guarantee) -> NoisyPublisher:
    """The named mechanism with the largest ε0 that is certified for `num_published` answers."""
    event: Callable[[float], Event] = PureDP if name in ("permute-and-flip", "laplace") else BoundedRange
    epsilon = max_epsilon(target, num_predictions=num_published, num_shards=num_shards, event=event)
    # A confident mechanism declines where no label has half of the shards.
    extra = {"threshold": 0.5 * num_shards} if name == "confident" else {}
    return NoisyPublisher(mechanism(name, epsilon=epsilon, **extra), budget=None, max_predictions=num_published)


def _student(scenario: Scenario) -> StudentFront:
    task = scenario.task
    if task.pool is None:
        raise ParameterError("the student scheme needs public points, and the scenario's data have none")
    if isinstance(task.learner, SlicedLearner):
        raise ParameterError("the student scheme needs a learner that is not trained in slices")
    # Tables that abstain never agree, so nothing would be selected: all of the pool is asked, and the gate takes note.
    share = 1.0 if scenario.name == "membership" else 0.0
    return StudentFront(task.pool, task.learner, selection_share=share, num_throw_away=30)
