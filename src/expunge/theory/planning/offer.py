"""Offers: one way of publishing each, with what the theorems certify, what it promises and what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any, Literal

from expunge.privacy.mechanisms import Mechanism
from expunge.theory import LARGEST_COUNT, Guarantee
from expunge.theory.planning.question import Forecast, Question
from expunge.theory.planning.work import Alternatives, Schedule, schedule

Standing = Literal["certified", "comparison", "illustrative"]


@dataclass(frozen=True, slots=True)
class TheoremLimit:
    """The most predictions that a theorem allows in a generation within the target.

    `standing`: "certified" counts; "comparison" is valid but nothing that a deployment certifies, for display;
    "illustrative" has constants set to one where the literature leaves them open and is no bound. `pays_gamma`: whether
    the theorem may fail, so that its γ is paid once per generation; without that any number of generations is covered.
    """

    theorem: str
    predictions: int
    pays_gamma: bool
    standing: Standing = "certified"

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able mapping."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class ConsensusTerms:
    """What is particular to publishing by consensus (T4).

    Answers with a top-vote share of at least `sure_release_share` never make the generation dirty, those with more than
    `max_dissent` dissenters always do. `max_predictions` is l_max. In the steady state the ensemble is asked
    `queries_per_update` times between updates, and a generation takes `updates_per_generation` of them on average.
    `passes_per_update` is spent beside retraining shards: throw-away ensembles, and the student's own learning.
    `ensemble_share`: what part of the traffic the ensemble answers. `forecast` comes from a sample of queries;
    `cautious` is the work if hard queries are as many as the sample cannot exclude, with 95% confidence.
    `assumption`: what the costs suppose without having seen it. `reason`: why nothing is offered.
    """

    sure_release_share: float | None
    max_predictions: int
    max_dissent: int | None = None
    queries_per_update: float | None = None
    updates_per_generation: float | None = None
    passes_per_update: float | None = None
    ensemble_share: float | None = None
    forecast: Forecast | None = None
    cautious: Schedule | None = None
    assumption: str = ""
    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able mapping."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Offer:
    """One way of publishing, set so that the wanted accuracy is reached.

    `mechanism` is None for a way that needs none; `noise` describes it in a word. The accuracies are the chance of the
    right answer when all shards agree, and when 80% of them do and the others stand together; None if others than the
    shards answer, or nobody. `limits` has one entry a theorem; `guarantee` is the certificate for a generation that
    publishes as much as the best of them allows, None if not even one prediction is certified within the target.
    `consensus` is None for noisy mechanisms.
    """

    name: str
    mechanism: Mechanism | None
    noise: str
    unanimous_accuracy: float | None
    majority_accuracy: float | None
    limits: tuple[TheoremLimit, ...]
    guarantee: Guarantee | None
    schedule: Schedule
    consensus: ConsensusTerms | None = None

    @property
    def parameters(self) -> dict[str, float]:
        """Those of the mechanism, by name."""
        return dict(asdict(self.mechanism)) if is_dataclass(self.mechanism) else {}

    @property
    def best(self) -> TheoremLimit | None:
        """The limit of the strongest theorem; None if no theorem certifies a single prediction."""
        return best_limit(self.limits)

    @property
    def predictions(self) -> int:
        """How many predictions a generation may publish; LARGEST_COUNT stands for no limit."""
        return self.best.predictions if self.best else 0

    @property
    def is_unlimited(self) -> bool:
        """Whether there is no limit to the predictions, as for a student."""
        return self.predictions >= LARGEST_COUNT

    @property
    def assumption(self) -> str:
        """What its costs suppose about the traffic without having seen it; empty if nothing."""
        return self.consensus.assumption if self.consensus else ""

    def limit(self, prefix: str) -> TheoremLimit | None:
        """The largest limit among the theorems whose name starts so; None if there is none."""
        matching = [limit for limit in self.limits if limit.theorem.startswith(prefix)]
        return max(matching, key=lambda limit: limit.predictions, default=None)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able mapping."""
        return {
            "name": self.name,
            "parameters": self.parameters,
            "unanimous_accuracy": self.unanimous_accuracy,
            "majority_accuracy": self.majority_accuracy,
            "predictions_per_generation": None if self.is_unlimited else self.predictions,
            "best_theorem": self.best.theorem if self.best else None,
            "limits": [limit.to_dict() for limit in self.limits],
            "guarantee": self.guarantee.to_dict() if self.guarantee else None,
            "consensus": self.consensus.to_dict() if self.consensus else None,
            **self.schedule.to_dict(),
        }


def best_limit(limits: tuple[TheoremLimit, ...]) -> TheoremLimit | None:
    """The certified limit with the most predictions; among equals one that does not pay γ for each generation."""
    certified = [limit for limit in limits if limit.standing == "certified" and limit.predictions > 0]
    return max(certified, key=lambda limit: (limit.predictions, not limit.pays_gamma), default=None)


def limits_schedule(question: Question, limits: tuple[TheoremLimit, ...]) -> Schedule:
    """The steady state under the best of these limits."""
    best = best_limit(limits)
    if best is None:
        return schedule(question, predictions=0, pays_gamma=False)
    return schedule(question, predictions=best.predictions, pays_gamma=best.pays_gamma)


def best_offer(offers: Sequence[Offer], exact: Alternatives) -> Offer | None:
    """The certified offer with the least work, the most predictions, the most accuracy; None if there is none.

    What saves at least half of retraining from scratch without supposing anything about the traffic goes before what
    may save more if the traffic is as supposed.
    """
    certified = [offer for offer in offers if offer.predictions > 0]
    return cheaper_offer(offers, exact) or min(certified, key=_preference, default=None)


def cheaper_offer(offers: Sequence[Offer], exact: Alternatives) -> Offer | None:
    """The best of the certified offers that are cheaper than retraining from scratch; None if there is none."""
    cheaper = [offer for offer in offers if offer.predictions > 0 and offer.schedule.passes_per_day < exact.cheapest]

    def rank(offer: Offer) -> tuple[bool, tuple[float, int, float]]:
        is_safe = not offer.assumption and offer.schedule.passes_per_day <= exact.cheapest / 2
        return not is_safe, _preference(offer)

    return min(cheaper, key=rank, default=None)


def _preference(offer: Offer) -> tuple[float, int, float]:
    return offer.schedule.passes_per_day, -offer.predictions, -(offer.majority_accuracy or 0.0)
