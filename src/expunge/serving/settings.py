"""The options of a deployment, and how they become a sampler, a publisher and a front.

The estimator and the durable deployment take the same options. They are read here and nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from expunge.core.checks import require_choice
from expunge.core.errors import ParameterError
from expunge.core.features import Features
from expunge.core.guarantee import Guarantee, require_target
from expunge.core.randomness import Randomness
from expunge.core.records import Records
from expunge.privacy.accounting import Accountant, PrivacyBudget
from expunge.privacy.mechanisms import MECHANISM_NAMES, Mechanism
from expunge.privacy.mechanisms import calibrated_mechanism as calibrate
from expunge.serving import publishing
from expunge.serving.publishing import Exhaustion, Front, Publisher
from expunge.theory import max_predictions as certified_predictions
from expunge.theory.planning import recommend_shards
from expunge.training.fallback import Fallback
from expunge.training.learners import Learner, SlicedLearner
from expunge.training.sampling import IndependentSampler, PartitionSampler, Sampler


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The options of `UnlearningClassifier`, `expunge.create` and `expunge create`, under the same names.

    Parameters
    ----------
    n_shards
        The number of shards k, or "auto": the planner chooses k and p for the target.
    inclusion_probability
        The chance p of a record to be in a shard; 1/k if None.
    sampling
        "independent", "partition", "random_partition", or a `Sampler`.
    mechanism
        "consensus", the name of a noisy mechanism, or a `Mechanism`.
    target
        The (α,β,γ) to be met. For consensus (5, 1e-3, 1e-3) if None; for a noisy mechanism it limits the predictions.
    max_predictions
        How many predictions a generation may publish. For consensus 1,000,000 if None.
    budget
        The (ε, δ) that a generation of a noisy mechanism may spend.
    accountant
        The name of an accountant, or an `Accountant`.
    on_exhausted
        What happens when the budget is spent: "retrain_on_update", "retrain_now" or "refuse".
    max_generations
        The number of generations that the guarantee covers.
    publish
        What answers queries: "direct", "router", "student", or a `Front`.
    pool
        The public points that a student learns from.
    fallback
        What answers the queries that a router keeps from the ensemble.
    """

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
        """The number of shards and the inclusion probability; the planner chooses them if `n_shards` is "auto".

        Parameters
        ----------
        records
            The dataset to train on.

        Returns
        -------
        int
            The number of shards k.
        float or None
            The probability p; None stands for 1/k.

        Raises
        ------
        ParameterError
            If `n_shards` is neither a positive integer nor "auto".
        """
        if self.n_shards == "auto":
            advice = recommend_shards(
                num_records=len(records),
                num_classes=records.num_classes,
                target=publishing.DEFAULT_TARGET if self.target is None else self.target,
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
        return publishing.DEFAULT_MAX_PREDICTIONS if self.max_predictions is None else self.max_predictions

    def make_sampler(self, probability: float | None) -> Sampler:
        """The sampler that draws the shards.

        Parameters
        ----------
        probability
            The inclusion probability, as `sizes` gives it.

        Returns
        -------
        Sampler
            The sampler by its name, or the one that was given.

        Raises
        ------
        ParameterError
            If there is no such sampler, or an inclusion probability is given to one that takes none.
        """
        if isinstance(self.sampling, Sampler) and not isinstance(self.sampling, type):
            if self.inclusion_probability is not None:
                raise ParameterError("inclusion_probability needs sampling='independent', not a sampler of its own")
            return self.sampling
        if self.sampling == "independent":
            return IndependentSampler(probability)
        if self.inclusion_probability is not None:
            raise ParameterError("inclusion_probability needs sampling='independent'")
        name = require_choice("sampling", self.sampling, ("independent", "partition", "random_partition"))
        return PartitionSampler(equal_sizes=name == "partition")

    def make_publisher(
        self, num_shards: int, num_classes: int, rng: Randomness, *, cache_folder: Path | None = None
    ) -> Publisher:
        """The publisher of the first generation, with empty books.

        Parameters
        ----------
        num_shards, num_classes
            What the votes are counted over.
        rng
            The secret randomness of the generation.
        cache_folder
            Where designs of the consensus gate are kept; the default folder if None.

        Returns
        -------
        Publisher
            A `ConsensusPublisher`, or a `NoisyPublisher` limited by the budget, the target and `max_predictions`.

        Raises
        ------
        ParameterError
            If an option is wrong, or a budget is given to consensus.
        """
        if self.target is not None:
            require_target(self.target)
        if self.mechanism == "consensus":
            if self.budget is not None:
                raise ParameterError("budget is for noisy mechanisms; consensus takes a target and max_predictions")
            return publishing.ConsensusPublisher(
                num_shards=num_shards,
                rng=rng,
                target=publishing.DEFAULT_TARGET if self.target is None else self.target,
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
        return publishing.NoisyPublisher(
            mechanism,
            budget=as_budget(self.budget),
            max_predictions=min(limits, default=None),
            accountant=self.accountant,
            on_exhausted=self.on_exhausted,
        )

    def make_mechanism(self, num_shards: int, num_classes: int) -> Mechanism:
        """The noisy mechanism. One that is given by name is calibrated to the number of shards.

        Parameters
        ----------
        num_shards, num_classes
            What the votes are counted over.

        Returns
        -------
        Mechanism
            The mechanism.

        Raises
        ------
        ParameterError
            If there is no such mechanism.
        """
        if isinstance(self.mechanism, Mechanism):
            return self.mechanism
        if self.mechanism not in MECHANISM_NAMES:
            names = ", ".join(("consensus", *MECHANISM_NAMES))
            raise ParameterError(f"mechanism must be one of {names}, or a Mechanism, got {self.mechanism!r}")
        return calibrate(self.mechanism, num_shards=num_shards, num_classes=num_classes)

    def make_front(self, student: Learner | SlicedLearner) -> Front:
        """The front that answers queries.

        Parameters
        ----------
        student
            The learner that a student front trains.

        Returns
        -------
        Front
            The front by its name, or the one that was given.

        Raises
        ------
        ParameterError
            If there is no such front, or it lacks its pool, or its fallback is of another kind.
        """
        if not isinstance(self.publish, str) and hasattr(self.publish, "open_round"):
            return self.publish
        if self.publish == "student":
            if self.pool is None:
                raise ParameterError("publish='student' needs a pool of public points")
            return publishing.StudentFront(self.pool, student)
        if self.publish == "router":
            if self.fallback is not None and not isinstance(self.fallback, Fallback):
                raise ParameterError(f"fallback must be one of expunge.training.fallback, got {self.fallback!r}")
            return publishing.RouterFront() if self.fallback is None else publishing.RouterFront(self.fallback)
        if self.publish == "direct":
            return publishing.DirectFront()
        raise ParameterError(f"publish must be direct, router, student or a Front, got {self.publish!r}")


def as_budget(budget: PrivacyBudget | tuple[float, float] | None) -> PrivacyBudget | None:
    """Take a budget that is given as itself or as a pair.

    Parameters
    ----------
    budget
        A `PrivacyBudget`, a pair (ε, δ), or None.

    Returns
    -------
    PrivacyBudget or None
        The budget.

    Raises
    ------
    ParameterError
        If it is neither, or ε or δ is out of range.

    Examples
    --------
    >>> as_budget((1.0, 1e-6))
    PrivacyBudget(epsilon=1.0, delta=1e-06)
    """
    if budget is None or isinstance(budget, PrivacyBudget):
        return budget
    try:
        epsilon, delta = budget
    except (TypeError, ValueError):
        raise ParameterError(f"budget must be a PrivacyBudget or a pair (epsilon, delta), got {budget!r}") from None
    return PrivacyBudget(epsilon, delta)
