"""Offers: each is one way of publishing, with what the theorems certify, what it promises and what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any, Literal

from expunge.core.guarantee import Guarantee
from expunge.privacy.mechanisms import Mechanism
from expunge.theory import LARGEST_COUNT
from expunge.theory.planning.question import Forecast, Question
from expunge.theory.planning.work import Alternatives, Schedule, schedule

Standing = Literal["certified", "comparison", "illustrative"]


@dataclass(frozen=True, slots=True)
class TheoremLimit:
    """The most predictions that a theorem allows in a generation within the target.

    Parameters
    ----------
    theorem
        The theorem's name.
    predictions
        The number of predictions.
    pays_gamma
        Whether the theorem may fail, so that its γ is paid once per generation. Otherwise any number of generations is
        covered.
    standing
        "certified" counts. "comparison" is valid, for display: a deployment does not certify by it. "illustrative" has
        constants set to one where the literature leaves them open, and is no bound.
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

    Parameters
    ----------
    sure_release_share
        Answers with a top-vote share of at least this never make the generation dirty.
    max_predictions
        l_max.
    max_dissent
        Answers with more dissenters than this always make the generation dirty.
    queries_per_update
        In the steady state, how often the ensemble is asked between updates.
    updates_per_generation
        In the steady state, how many updates a generation takes on average.
    passes_per_update
        The work beside retraining shards: throw-away ensembles, and the student's own learning.
    ensemble_share
        The part of the traffic that the ensemble answers.
    forecast
        What a sample of queries predicts.
    cautious
        The work if hard queries are as many as the sample cannot exclude, with 95% confidence.
    assumption
        What the costs suppose without having seen it.
    reason
        Why nothing is offered.
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

    Parameters
    ----------
    name
        The way's name.
    mechanism
        The mechanism; None for a way that needs none.
    noise
        The mechanism's noise in a word.
    unanimous_accuracy, majority_accuracy
        The chance of the right answer when all shards agree, and when 80% of them do and the others stand together.
        None if something other than the shards answers, or if there is no answer.
    limits
        One entry for each theorem.
    guarantee
        The certificate for a generation that publishes as much as the best limit allows; None if not even one
        prediction is certified within the target.
    schedule
        Updates and work.
    consensus
        The terms of publishing by consensus; None for noisy mechanisms.
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
        """Whether the number of predictions has no limit, as for a student."""
        return self.predictions >= LARGEST_COUNT

    @property
    def assumption(self) -> str:
        """What its costs suppose about the traffic without having seen it; empty if nothing."""
        return self.consensus.assumption if self.consensus else ""

    def limit(self, prefix: str) -> TheoremLimit | None:
        """The largest limit among the theorems whose name starts with `prefix`; None if there is none."""
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

    An offer that saves at least half of retraining from scratch without supposing anything about the traffic comes
    before an offer that may save more if the traffic is as supposed.
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
