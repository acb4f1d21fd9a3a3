"""A deployment's options in words: how they become a sampler, a publisher and a front.

The estimator and the durable deployment take the same options; this is the one place that reads them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from expunge.core.errors import ParameterError
from expunge.core.features import Features
from expunge.core.randomness import Randomness
from expunge.core.records import Records
from expunge.privacy.accounting import Accountant, PrivacyBudget
from expunge.privacy.mechanisms import MECHANISM_NAMES, Mechanism
from expunge.privacy.mechanisms import calibrated_mechanism as calibrate
from expunge.serving.publishing import (
    DEFAULT_MAX_PREDICTIONS,
    DEFAULT_TARGET,
    ConsensusPublisher,
    DirectFront,
    Exhaustion,
    Front,
    NoisyPublisher,
    Publisher,
    RouterFront,
    StudentFront,
)
from expunge.theory import Guarantee, require_target
from expunge.theory import max_predictions as certified_predictions
from expunge.theory.planning import recommend_shards
from expunge.training.fallback import Fallback
from expunge.training.learners import Learner, SlicedLearner
from expunge.training.sampling import IndependentSampler, PartitionSampler, Sampler


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The options of `UnlearningClassifier`, `expunge.create` and `expunge create`, under the same names."""

    n_shards: int | str = 10
    inclusion_probability: float | None = None
    sampling: str | Sampler = "independent"
    mechanism: str | Mechanism = "consensus"
    target: Guarantee | None = None
    max_predictions: int | None = None
    budget: PrivacyBudget | tuple[float, float] | None = None
    accountant: str | Accountant = "best"
    on_exhausted: Exhaustion = "retrain_on_update"
    max_generations: int = 100
    publish: str | Front = "direct"
    pool: Features = None
    fallback: Fallback | None = None

    def sizes(self, records: Records) -> tuple[int, float | None]:
        """k and p, asked of the planner if wanted."""
        if self.n_shards == "auto":
            advice = recommend_shards(
                num_records=len(records),
                num_classes=records.num_classes,
                target=DEFAULT_TARGET if self.target is None else self.target,
                num_generations=self.max_generations,
                max_predictions=self._max_predictions,
            )
            chosen = self.inclusion_probability
            return advice.num_shards, advice.inclusion_probability if chosen is None else chosen
        if isinstance(self.n_shards, bool) or not isinstance(self.n_shards, int | np.integer) or self.n_shards < 1:
            raise ParameterError(f"n_shards must be a whole number of at least 1 or 'auto', got {self.n_shards!r}")
        return int(self.n_shards), self.inclusion_probability

    @property
    def _max_predictions(self) -> int:
        return DEFAULT_MAX_PREDICTIONS if self.max_predictions is None else self.max_predictions

    def make_sampler(self, probability: float | None) -> Sampler:
        """How shards are drawn, with p as `sizes` found it."""
        if isinstance(self.sampling, Sampler) and not isinstance(self.sampling, type):
            if self.inclusion_probability is not None:
                raise ParameterError("inclusion_probability needs sampling='independent', not a sampler of its own")
            return self.sampling
        if self.sampling == "independent":
            return IndependentSampler(probability)
        if self.inclusion_probability is not None:
            raise ParameterError("inclusion_probability needs sampling='independent'")
        if self.sampling == "partition":
            return PartitionSampler()
        raise ParameterError(f"sampling must be independent or partition, got {self.sampling!r}")

    def make_publisher(
        self, num_shards: int, num_classes: int, rng: Randomness, *, cache_folder: Path | None = None
    ) -> Publisher:
        """The books of the first generation."""
        if self.target is not None:
            require_target(self.target)
        if self.mechanism == "consensus":
            if self.budget is not None:
                raise ParameterError("budget is for noisy mechanisms; consensus takes a target and max_predictions")
            return ConsensusPublisher(
                num_shards=num_shards,
                rng=rng,
                target=DEFAULT_TARGET if self.target is None else self.target,
                max_predictions=self._max_predictions,
                max_generations=self.max_generations,
                on_exhausted=self.on_exhausted,
                cache_folder=cache_folder,
            )
        mechanism = self.make_mechanism(num_shards, num_classes)
        limits = [] if self.max_predictions is None else [self.max_predictions]
        if self.target is not None:
            limits.append(
                certified_predictions(
                    self.target,
                    event=mechanism.event,
                    num_shards=num_shards,
                    num_generations=self.max_generations,
                )
            )
        return NoisyPublisher(
            mechanism,
            budget=as_budget(self.budget),
            max_predictions=min(limits, default=None),
            accountant=self.accountant,
            on_exhausted=self.on_exhausted,
        )

    def make_mechanism(self, num_shards: int, num_classes: int) -> Mechanism:
        """The noisy mechanism, calibrated to the number of shards where only its name was given."""
        if isinstance(self.mechanism, Mechanism):
            return self.mechanism
        if self.mechanism not in MECHANISM_NAMES:
            names = ", ".join(("consensus", *MECHANISM_NAMES))
            raise ParameterError(f"mechanism must be one of {names}, or a Mechanism, got {self.mechanism!r}")
        return calibrate(self.mechanism, num_shards=num_shards, num_classes=num_classes)

    def make_front(self, student: Learner | SlicedLearner) -> Front:
        """Who answers; `student` is what a student front teaches."""
        if not isinstance(self.publish, str):
            if not hasattr(self.publish, "open_round"):
                raise ParameterError(f"publish must be direct, router, student or a Front, got {self.publish!r}")
            return self.publish
        if self.publish == "student":
            if self.pool is None:
                raise ParameterError("publish='student' needs a pool of public points")
            return StudentFront(self.pool, student)
        if self.publish == "router":
            if self.fallback is not None and not isinstance(self.fallback, Fallback):
                raise ParameterError(f"fallback must be one of expunge.training.fallback, got {self.fallback!r}")
            return RouterFront() if self.fallback is None else RouterFront(self.fallback)
        if self.publish == "direct":
            return DirectFront()
        raise ParameterError(f"publish must be direct, router, student or a Front, got {self.publish!r}")


def as_budget(budget: PrivacyBudget | tuple[float, float] | None) -> PrivacyBudget | None:
    """A budget given as itself or as a pair."""
    if budget is None or isinstance(budget, PrivacyBudget):
        return budget
    try:
        epsilon, delta = budget
    except (TypeError, ValueError):
        raise ParameterError(f"budget must be a PrivacyBudget or a pair (epsilon, delta), got {budget!r}") from None
    return PrivacyBudget(epsilon, delta)
