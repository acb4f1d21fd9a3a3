"""The promises: what a deployment says about deleted records, with the options that belong to each.

There are two kinds, and they are never mixed. *Exact* (T6) compares with the same recipe, run from scratch on the
records that are left. *(α,β,γ)* (T1 to T5) compares with retraining with fresh randomness. `Exact` makes the first
claim alone, and lets everything be published. `Consensus`, `Router`, `Student` and `Noise` make the second one too, and
therefore publish labels only, through a mechanism. `Unguarded` publishes labels only and claims no (α,β,γ).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, Self, get_args

import numpy as np

from expunge.core.checks import quoted, require_choice, require_count
from expunge.core.errors import ParameterError
from expunge.core.features import Features, as_features, num_rows
from expunge.core.guarantee import Guarantee, require_target
from expunge.core.randomness import Randomness
from expunge.core.records import RecordId, Records
from expunge.privacy.accounting import Accountant, PrivacyBudget
from expunge.privacy.accounting import accountant as accountant_by_name
from expunge.privacy.mechanisms import MECHANISM_NAMES, Majority, Mechanism
from expunge.privacy.mechanisms import calibrated_mechanism as calibrate
from expunge.serving import publishing
from expunge.serving.publishing import Exhaustion, Front, Publisher
from expunge.serving.publishing.publisher import require_limit
from expunge.serving.publishing.student import LEAST_AGREEMENT, Augment
from expunge.theory import max_predictions as certified_predictions
from expunge.theory.planning import recommend_shards
from expunge.training.choice import choose_shards
from expunge.training.environment import Origins
from expunge.training.fallback import Fallback, GaussianNaiveBayes, NearestNeighbours, RidgeFallback
from expunge.training.learners import Learner, SlicedLearner, TableFallback, as_learner
from expunge.training.learners.protocol import Combination
from expunge.training.sampling import IndependentSampler, PartitionSampler, Sampler

SamplingName = Literal["independent", "partition"]
NOISE_NAMES = tuple(name for name in MECHANISM_NAMES if name != Majority.name)
#: The most shards: each is a model.
MOST_SHARDS: Final = 10_000_000
ONLY_LABELS = (
    "which publishes labels only, because anything more would reveal more than it accounts for; use promise='exact'"
)


@dataclass(frozen=True, slots=True)
class Statement:
    """One thing that is promised about deleted records, or that is not claimed.

    Parameters
    ----------
    name
        "exact" or "(α,β,γ)".
    statement
        What is promised, in plain English; "not claimed" if it is not.
    compares_with
        What the models in service are compared with.
    limits
        What the promise does not say.
    reason
        Why it is not claimed; empty if it is.
    in_short
        The exact promise for a screen: two lines on what it says, and one on what it does not.

    Examples
    --------
    >>> exact, other = make_statements(Guarantee(5, 1e-3, 1e-3, note="the shards are a partition"))
    >>> exact.is_claimed, other.is_claimed
    (True, False)
    """

    name: str
    statement: str
    compares_with: str
    limits: str = ""
    reason: str = ""
    in_short: tuple[str, ...] = ()

    @property
    def is_claimed(self) -> bool:
        """Whether it is promised."""
        return not self.reason

    def to_dict(self) -> dict[str, Any]:
        """The statement as plain data."""
        return {"claimed": self.is_claimed, **{each.name: getattr(self, each.name) for each in fields(self)}}

    def __str__(self) -> str:
        if not self.is_claimed:
            return f"{self.name}: not claimed, because {self.reason}"
        limits = f" {self.limits}" if self.limits else ""
        return f"{self.name}: {self.statement} It compares with {self.compares_with}.{limits}"


EXACT_STATEMENT = Statement(
    "exact",
    "The models of the shards are, bit for bit, those that the recipe gives when it is run from scratch on the records "
    "that are left (T6). This holds after any history of questions, answers and requests.",
    "retraining by the same recipe: learner, shards, columns, classes, key and environment",
    "It protects deletion, not accuracy: deletions that people choose after seeing the models may leave records behind "
    "on which this key does badly, and a fresh key would do better.",
    in_short=(
        "After a deletion the models are, bit for bit, those that the same recipe",
        "trains on the records that are left, whatever requesters saw and asked.",
        "It does not say that these models are good: hostile deletions may spoil them.",
    ),
)
ONLY_CLASSES = "a regressor needs promise='exact': the other promises count votes for classes, and numbers have none"
ONLY_MEANS = (
    "thresholds need promise='exact': the other promises count votes, and thresholds are for mean probabilities"
)
_FRESH = "retraining from scratch with fresh randomness"


_ROUNDED = (
    "The models of the shards are, up to rounding, those that the recipe gives when it is run from scratch on the "
    "records that are left (T6), because they were trained in different environments: {origins}. Each of them is, bit "
    "for bit, what the recipe gives in its own environment. This holds after any history of questions, answers and "
    "requests."
)
_ROUNDED_IN_SHORT = (
    "After a deletion the models are, up to rounding, those that the same recipe trains",
    "on the records that are left: {origins}.",
    EXACT_STATEMENT.in_short[-1],
)


def make_statements(
    guarantee: Guarantee, origins: Origins | None = None, *, unclaimed: str = ""
) -> tuple[Statement, ...]:
    """The promises in force, each as a statement of its own.

    Parameters
    ----------
    guarantee
        The (α,β,γ) that the deployment's publishing gives. If it is vacuous, it is not claimed.
    origins
        The environments that the models in service come from. If there are several, the exact promise holds up to
        rounding only, and says how many models come from where. None names no environment.
    unclaimed
        Why the exact promise is not claimed; empty if it is.

    Returns
    -------
    tuple of Statement
        The exact promise, and the (α,β,γ) one.

    Examples
    --------
    >>> for each in make_statements(Guarantee(5, 1e-3, 1e-3, theorem="T4")):
    ...     print(each.name, each.is_claimed)
    exact True
    (α,β,γ) True
    """
    exact, reason = _exact_statement(origins), guarantee.reason.rstrip(". ")
    if unclaimed:
        exact = replace(exact, statement="not claimed", limits="", reason=unclaimed.rstrip(". "), in_short=())
    if reason:
        return exact, Statement("(α,β,γ)", "not claimed", _FRESH, reason=reason)
    words = (
        f"The models in service after an update are ({guarantee.alpha:g}, {guarantee.beta:g}, {guarantee.gamma:g})-"
        f"close to those of retraining, by {guarantee.theorem}, also for people who choose requests by what they saw."
    )
    return exact, Statement("(α,β,γ)", words, _FRESH)


def _exact_statement(origins: Origins | None) -> Statement:
    """The exact promise, for the environments that the models come from."""
    if origins is None or not origins.counts:
        return EXACT_STATEMENT
    if origins.is_mixed:
        in_short = tuple(line.format(origins=origins) for line in _ROUNDED_IN_SHORT)
        return replace(EXACT_STATEMENT, statement=_ROUNDED.format(origins=origins), in_short=in_short)
    return replace(EXACT_STATEMENT, compares_with=f"{EXACT_STATEMENT.compares_with} ({origins.counts[0][0]})")


class Promise(ABC):
    """What a deployment promises, with its options. It makes what publishes answers and what answers them.

    A promise is a value: it does not change, but for `set_params`, which scikit-learn calls on a copy of its own, so
    that `promise__max_predictions` can be searched over.
    """

    name: ClassVar[str]
    is_exact: ClassVar[bool] = False
    default_sampling: ClassVar[SamplingName] = "independent"
    target: ClassVar[Guarantee | None] = None
    max_predictions: ClassVar[int | None] = None
    max_generations: ClassVar[int] = 100

    @abstractmethod
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
            What releases answers and counts them.
        """

    def make_front(self, learner: Any) -> Front:
        """What answers queries: the ensemble itself, unless the promise has a router or a student.

        Parameters
        ----------
        learner
            The learner of the shards. A student that is not given learns by it too.

        Returns
        -------
        Front
            The front.
        """
        return publishing.DirectFront()

    def sizes(
        self, n_shards: int | str, probability: float | None, records: Records, learner: Learner | SlicedLearner
    ) -> tuple[int, float | None]:
        """The number of shards and the inclusion probability, chosen if `n_shards` is "auto".

        For a promise with a target the planner chooses them, from numbers alone. For the others they are chosen from
        what throw-away models do on these records (`expunge.training.comparison`); k is then part of the recipe.

        Parameters
        ----------
        n_shards
            k, or "auto".
        probability
            p, or None.
        records
            The dataset to train on.
        learner
            What trains a shard.

        Returns
        -------
        int
            The number of shards k.
        float or None
            The probability p; None stands for 1/k.

        Raises
        ------
        ParameterError
            If `n_shards` is not a positive integer.
        """
        if n_shards == "auto":
            if not isinstance(self, _Limited):
                sampler = self.make_sampler(None, probability)
                rule: Combination = getattr(self, "combine", "mean")
                chosen, _ = choose_shards(
                    records,
                    learner,
                    sampler=sampler,
                    by_votes=not self.is_exact,
                    combination=rule,
                    threshold=getattr(self, "threshold", None),
                )
                return chosen.num_shards, probability
            limit = self.max_predictions
            advice = recommend_shards(
                num_records=len(records),
                num_classes=records.num_classes,
                target=publishing.DEFAULT_TARGET if self.target is None else self.target,
                num_generations=self.max_generations,
                max_predictions=publishing.DEFAULT_MAX_PREDICTIONS if limit is None else limit,
            )
            return advice.num_shards, advice.inclusion_probability if probability is None else probability
        if isinstance(n_shards, bool) or not isinstance(n_shards, int | np.integer) or not 1 <= n_shards <= MOST_SHARDS:
            wanted = f"a whole number from 1 to {MOST_SHARDS:,} or 'auto'"
            raise ParameterError(f"n_shards must be {wanted}, got {quoted(n_shards)}")
        return int(n_shards), probability

    def sampling_name(self, sampling: SamplingName | None, probability: float | None) -> SamplingName:
        """The sampling by name: what was given, else what the promise needs.

        Parameters
        ----------
        sampling
            "independent", "partition" or None.
        probability
            p. Given alone it asks for independent shards, because a partition has none.

        Returns
        -------
        str
            "independent" or "partition".

        Raises
        ------
        ParameterError
            If there is no such sampling, or a partition is given a probability.
        """
        if sampling is None:
            return "independent" if probability is not None else self.default_sampling
        require_choice("sampling", sampling, get_args(SamplingName))
        if sampling == "partition" and probability is not None:
            raise ParameterError("inclusion_probability needs sampling='independent'")
        return sampling

    def make_sampler(self, sampling: SamplingName | Sampler | None, probability: float | None) -> Sampler:
        """The sampler that draws the shards.

        Parameters
        ----------
        sampling
            A name, a sampler of one's own, or None for what the promise needs.
        probability
            The inclusion probability, as `sizes` gives it.

        Returns
        -------
        Sampler
            The sampler.

        Raises
        ------
        ParameterError
            As `sampling_name`, or if a sampler of one's own is given a probability.
        """
        if isinstance(sampling, Sampler) and not isinstance(sampling, type):
            if probability is not None:
                raise ParameterError("inclusion_probability needs sampling='independent', not a sampler of its own")
            return sampling
        name = self.sampling_name(sampling, probability)  # type: ignore[arg-type]
        return IndependentSampler(probability) if name == "independent" else PartitionSampler()

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The options by name, as scikit-learn's estimators give theirs.

        Parameters
        ----------
        deep
            Whether to add the parameters of estimators among them, as `student__C`.

        Returns
        -------
        dict
            The options.
        """
        found = {each.name: getattr(self, each.name) for each in fields(self)}  # type: ignore[arg-type]
        if deep:
            inner = {name: value for name, value in found.items() if hasattr(value, "get_params")}
            found |= {
                f"{name}__{key}": each for name, value in inner.items() for key, each in value.get_params().items()
            }
        return found

    def set_params(self, **params: Any) -> Self:
        """Set options by name; wrong ones are refused, and nothing is set.

        Parameters
        ----------
        **params
            Options as in `get_params`.

        Returns
        -------
        Promise
            The promise itself.

        Raises
        ------
        ParameterError
            If there is no such option, or its value is out of range.
        """
        known, own = self.get_params(deep=False), {}
        for name, value in params.items():
            outer, _, inner = name.partition("__")
            if outer not in known:
                words = ", ".join(known) or "none"
                raise ParameterError(f"{type(self).__name__} has no option {outer!r}; its options: {words}")
            if inner:
                known[outer].set_params(**{inner: value})
            else:
                own[name] = value
        checked = replace(self, **own)  # type: ignore[type-var]
        for name in own:
            object.__setattr__(self, name, getattr(checked, name))
        return self


@dataclass(frozen=True)
class Exact(Promise):
    """The models in service are, bit for bit, what the recipe gives on the records that are left (T6). The default.

    It holds against every requester, for any number of shards. Labels, probabilities and models may be published
    without limit, and only the shards of a deleted record are ever retrained. It compares with retraining by the same
    recipe, key included; it claims no (α,β,γ).

    Parameters
    ----------
    combine
        How the values of regressors become one: "mean" or "median". It does not concern classifiers.
    threshold
        A class, and the probability from which on it is the answer, such as ("yes", 0.3); elsewhere the answer is the
        most likely of the other classes. None for the likeliest class. It changes answers, and no model.

    Raises
    ------
    ParameterError
        If `combine` is neither, or `threshold` is no class with a probability above 0 and at most 1.

    Examples
    --------
    >>> Exact().default_sampling
    'partition'
    """

    name: ClassVar[str] = "exact"
    is_exact: ClassVar[bool] = True
    default_sampling: ClassVar[SamplingName] = "partition"
    combine: Combination = "mean"
    threshold: publishing.Threshold | None = None

    def __post_init__(self) -> None:
        require_choice("combine", self.combine, get_args(Combination))
        publishing.require_threshold(self.threshold)

    def make_publisher(
        self, num_shards: int, num_classes: int, rng: Randomness, *, cache_folder: Path | None = None
    ) -> Publisher:
        """A publisher without books."""
        return publishing.ExactPublisher()

    def make_front(self, learner: Any) -> Front:
        """A front that answers with labels and probabilities, or with values."""
        if self.threshold is None:
            return publishing.ExactFront(self.combine)
        label, least = self.threshold
        return publishing.ExactFront(self.combine, (getattr(label, "item", lambda: label)(), float(least)))


@dataclass(frozen=True)
class Unguarded(Promise):
    """Labels by plain majority, from independent shards, without an (α,β,γ) claim: for experiments and comparisons.

    Examples
    --------
    >>> Unguarded().name
    'unguarded'
    """

    name: ClassVar[str] = "unguarded"

    def make_publisher(
        self, num_shards: int, num_classes: int, rng: Randomness, *, cache_folder: Path | None = None
    ) -> Publisher:
        """Plain majority, without a limit."""
        return publishing.NoisyPublisher(Majority(), budget=None)


class _Limited(Promise):
    """What the promises with an (α,β,γ) have in common: a limit for each generation."""

    def _check_limits(self) -> None:
        if self.target is not None:
            require_target(self.target)
        require_count("max_generations", self.max_generations)


@dataclass(frozen=True, kw_only=True)
class Consensus(_Limited):
    """(α,β,γ) by consensus (T4): agreement is free, and after a disagreement the next update retrains everything.

    Parameters
    ----------
    target
        The (α,β,γ) to be met; (5, 1e-3, 1e-3) if None.
    max_predictions
        How many predictions a generation may publish; 1,000,000 if None.
    max_generations
        The number of full trainings that the guarantee covers.

    Raises
    ------
    ParameterError
        If an option is out of range.

    Examples
    --------
    >>> Consensus(max_predictions=1000).set_params(max_generations=10)
    Consensus(target=None, max_predictions=1000, max_generations=10)
    """

    name: ClassVar[str] = "consensus"
    target: Guarantee | None = None  # type: ignore[misc]
    max_predictions: int | None = None  # type: ignore[misc]
    max_generations: int = 100  # type: ignore[misc]

    def __post_init__(self) -> None:
        self._check_limits()
        if self.max_predictions is not None:
            require_count("max_predictions", self.max_predictions)

    def make_publisher(
        self, num_shards: int, num_classes: int, rng: Randomness, *, cache_folder: Path | None = None
    ) -> Publisher:
        """A `ConsensusPublisher`."""
        limit = self.max_predictions
        return publishing.ConsensusPublisher(
            num_shards=num_shards,
            rng=rng,
            target=publishing.DEFAULT_TARGET if self.target is None else self.target,
            max_predictions=publishing.DEFAULT_MAX_PREDICTIONS if limit is None else int(limit),
            max_generations=int(self.max_generations),
            cache_folder=cache_folder,
        )


_FOR_TABLES = (RidgeFallback, GaussianNaiveBayes, NearestNeighbours)


@dataclass(frozen=True, kw_only=True)
class Router(Consensus):
    """`Consensus` with a model in front that keeps the hard queries from the ensemble, so that generations stay clean.

    Parameters
    ----------
    fallback
        What answers the hard queries: a model that unlearns exactly; `RidgeFallback()` if None. `RidgeFallback`,
        `GaussianNaiveBayes` and `NearestNeighbours` also read tables with categories and gaps (`TableFallback`).
    num_queries
        The number of distinct queries that a generation is expected to see.
    dirty_chance
        The largest accepted chance that one of them makes the generation dirty.
    threshold
        A fixed margin; None calibrates it in every round.
    num_throw_away
        The number of shards of the throw-away ensemble.
    calibration_size
        The number of held-out records that it is asked about.
    target, max_predictions, max_generations
        As in `Consensus`.

    Raises
    ------
    ParameterError
        If an option is out of range.

    Examples
    --------
    >>> Router(threshold=0.5).make_front(None).threshold
    0.5
    """

    name: ClassVar[str] = "router"
    fallback: Fallback | None = None
    num_queries: int = 10_000
    dirty_chance: float = 0.05
    threshold: float | None = None
    num_throw_away: int = 100
    calibration_size: int = 2000

    def __post_init__(self) -> None:
        super().__post_init__()
        self.make_front(None)  # it checks its options

    def make_front(self, learner: Any) -> publishing.RouterFront:
        """A `RouterFront`."""
        if self.fallback is not None and not isinstance(self.fallback, Fallback):
            raise ParameterError(f"fallback must be one of expunge.training.fallback, got {self.fallback!r}")
        kind = RidgeFallback() if self.fallback is None else self.fallback
        return publishing.RouterFront(
            TableFallback(kind=kind) if type(kind) in _FOR_TABLES else kind,
            num_queries=self.num_queries,
            dirty_chance=self.dirty_chance,
            threshold=self.threshold,
            num_throw_away=self.num_throw_away,
            calibration_size=self.calibration_size,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Student(Consensus):
    """`Consensus` on a pool of public points, from which a student learns that answers everything (T5).

    Parameters
    ----------
    pool
        Public, unlabelled points that are not records of this deployment, and never will be.
    student
        A classifier or learner; the learner of the shards if None.
    selection_share, dirty_chance, num_throw_away, self_training, confidence, augment, pool_ids, least_agreement
        As in `expunge.serving.publishing.StudentFront`.
    target, max_predictions, max_generations
        As in `Consensus`.

    Raises
    ------
    ParameterError
        If an option is out of range, or there is no pool.

    Examples
    --------
    >>> Student(np.zeros((20, 3)), max_generations=5).max_generations
    5
    """

    name: ClassVar[str] = "student"
    pool: Features = field(kw_only=False)
    student: Any = None
    selection_share: float | None = None
    dirty_chance: float = 0.01
    num_throw_away: int = 100
    self_training: int = 0
    confidence: float = 0.8
    augment: Augment | None = None
    pool_ids: tuple[RecordId, ...] = ()
    least_agreement: float = LEAST_AGREEMENT

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pool is None or num_rows(as_features(self.pool)) == 0:
            raise ParameterError("a student needs a pool of public points, and the pool is empty")

    def make_front(self, learner: Any) -> publishing.StudentFront:
        """A `StudentFront`."""
        student: Learner | SlicedLearner = as_learner(learner if self.student is None else self.student)
        return publishing.StudentFront(
            self.pool,
            student,
            selection_share=self.selection_share,
            dirty_chance=self.dirty_chance,
            num_throw_away=self.num_throw_away,
            self_training=self.self_training,
            confidence=self.confidence,
            augment=self.augment,
            pool_ids=self.pool_ids,
            least_agreement=self.least_agreement,
        )


@dataclass(frozen=True, kw_only=True)
class Noise(_Limited):
    """(α,β,γ) by noise on every vote (T1 to T3): few predictions in a generation, for any votes.

    Parameters
    ----------
    mechanism
        "exponential", "permute-and-flip", "laplace", "gaussian", "confident", or a `Mechanism`. A name stands for the
        smallest ε0 that answers a unanimous vote rightly 99 times in 100.
    budget
        A `PrivacyBudget` or (ε, δ) that one generation may spend.
    accountant
        "best", "paper", "basic", "advanced", "zcdp", "pld", or an `Accountant`.
    target
        The (α,β,γ) to be met: a generation publishes as much as the theorems certify for it.
    max_predictions
        How many predictions a generation may publish; what budget and target allow if None.
    max_generations
        The number of full trainings that the guarantee covers.
    on_exhausted
        What happens when a generation is used up: "retrain_on_update", "retrain_now" or "refuse".

    Raises
    ------
    ParameterError
        If an option is out of range, or the mechanism is plain majority.

    Examples
    --------
    >>> publisher = Noise("laplace", max_predictions=9).make_publisher(50, 2, Randomness.from_seed(0))
    >>> publisher.capacity
    9
    """

    name: ClassVar[str] = "noise"
    mechanism: str | Mechanism = field(default="exponential", kw_only=False)
    budget: PrivacyBudget | tuple[float, float] | None = None
    accountant: str | Accountant = "best"
    target: Guarantee | None = None  # type: ignore[misc]
    max_predictions: int | None = None  # type: ignore[misc]
    max_generations: int = 100  # type: ignore[misc]
    on_exhausted: Exhaustion = "retrain_on_update"

    def __post_init__(self) -> None:
        self._check_limits()
        require_choice("on_exhausted", self.on_exhausted, get_args(Exhaustion))
        if self.mechanism == Majority.name or isinstance(self.mechanism, Majority):
            raise ParameterError("plain majority has no noise: promise='unguarded' publishes by it")
        if not isinstance(self.mechanism, Mechanism) and self.mechanism not in NOISE_NAMES:
            raise ParameterError(
                f"mechanism must be one of {', '.join(NOISE_NAMES)}, or a Mechanism, got {self.mechanism!r}"
            )
        as_budget(self.budget)
        if isinstance(self.accountant, str):
            accountant_by_name(self.accountant)
        if self.max_predictions is not None:
            require_limit(self.max_predictions)

    def make_publisher(
        self, num_shards: int, num_classes: int, rng: Randomness, *, cache_folder: Path | None = None
    ) -> Publisher:
        """A `NoisyPublisher` that is limited by the budget, the target and `max_predictions`."""
        mechanism = self.make_mechanism(num_shards, num_classes)
        limits = [] if self.max_predictions is None else [int(self.max_predictions)]
        if self.target is not None:
            limits.append(
                certified_predictions(
                    self.target,
                    event=mechanism.event,
                    num_shards=num_shards,
                    num_generations=int(self.max_generations),
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
        """
        if isinstance(self.mechanism, Mechanism):
            return self.mechanism
        return calibrate(self.mechanism, num_shards=num_shards, num_classes=num_classes)


_BY_NAME: dict[str, type[Promise]] = {each.name: each for each in (Exact, Consensus, Router, Noise, Unguarded)}
PROMISE_NAMES = tuple(_BY_NAME)
"""The short names that `as_promise` knows."""


def as_promise(promise: str | Promise) -> Promise:
    """Take a promise that is given as itself or by its short name.

    Parameters
    ----------
    promise
        A `Promise`, or "exact", "consensus", "router", "noise" or "unguarded", each with its default options.

    Returns
    -------
    Promise
        The promise.

    Raises
    ------
    ParameterError
        If it is neither.

    Examples
    --------
    >>> as_promise("exact")
    Exact(combine='mean', threshold=None)
    """
    if isinstance(promise, Promise):
        return promise
    if promise == Student.name:
        raise ParameterError("promise='student' needs a pool of public points: promise=Student(pool)")
    if not isinstance(promise, str) or promise not in _BY_NAME:
        raise ParameterError(f"promise must be one of {', '.join(PROMISE_NAMES)}, or a Promise, got {promise!r}")
    return _BY_NAME[promise]()


def refusal(promise: Promise, what: str) -> str:
    """The one line that says why something is not published, and what to do.

    Parameters
    ----------
    promise
        The promise in force.
    what
        What was asked for.

    Returns
    -------
    str
        The line.

    Examples
    --------
    >>> refusal(Consensus(), "predict_proba")[:50]
    "no predict_proba under promise='consensus', which "
    """
    also = ", or publish the student itself (deployment_.student)" if isinstance(promise, Student) else ""
    return f"no {what} under promise={promise.name!r}, {ONLY_LABELS}{also}"


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
