"""How many shards to draw, how large, and who should answer: by what it costs (T4, T5)."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from expunge.planning.advice import ShardAdvice, recommend_shards
from expunge.planning.choice import cheaper_offer
from expunge.planning.consensus import DIRECT, ROUTER, STUDENT, consensus_offers
from expunge.planning.offer import Offer
from expunge.planning.question import Question
from expunge.planning.words import count, passes
from expunge.planning.work import alternatives

RETRAIN: Final = "retrain_one_model"
_WORDS: Final = {
    DIRECT: "ask the ensemble directly",
    ROUTER: "put a router in front of the ensemble",
    STUDENT: "let a student answer that learned from the ensemble",
}


@dataclass(frozen=True, slots=True)
class Recommendation:
    """k and p for consensus publishing, and the way: an offer's name, or "retrain_one_model" where that is cheaper.

    `sure_release_share` is the share that k surely releases, None if no number of shards will do. `passes_per_day`
    and `one_model_passes_per_day` are the costs of the way and of retraining one model after each batch.
    """

    num_shards: int
    inclusion_probability: float
    way: str
    sure_release_share: float | None
    passes_per_day: float
    one_model_passes_per_day: float
    words: str

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able mapping."""
        return asdict(self)


def recommend(question: Question) -> Recommendation:
    """The shards that `recommend_shards` advises for the question's data and target, and the cheapest way with them."""
    advice = recommend_shards(
        num_records=question.num_records,
        num_classes=question.num_classes,
        target=question.target,
        num_generations=question.num_generations,
        max_predictions=question.max_predictions,
    )
    advised = replace(question, num_shards=advice.num_shards, inclusion_probability=advice.inclusion_probability)
    offers, exact = consensus_offers(advised), alternatives(advised)
    best = cheaper_offer(offers, exact)
    scratch = exact.one_model_passes_per_day
    share = next(offer.consensus.sure_release_share for offer in offers if offer.consensus is not None)
    return Recommendation(
        num_shards=advice.num_shards,
        inclusion_probability=advice.inclusion_probability,
        way=RETRAIN if best is None else best.name,
        sure_release_share=share,
        passes_per_day=scratch if best is None else best.schedule.passes_per_day,
        one_model_passes_per_day=scratch,
        words=_without(advice, offers, scratch) if best is None else _with(advice, advised, best, scratch),
    )


def _shards(advice: ShardAdvice) -> str:
    return f"{count(advice.num_shards)} shards with an inclusion probability of {advice.inclusion_probability:.3g}"


def _with(advice: ShardAdvice, advised: Question, best: Offer, scratch: float) -> str:
    size = count(float(f"{advised.records_per_shard:.2g}"))
    words = (
        f"{_shards(advice)} ({size} records each): {advice.reason}. Then {_WORDS[best.name]}: "
        f"{passes(best.schedule.passes_per_day)} over the data a day, against {count(scratch)} for retraining one "
        "model from scratch after each batch."
    )
    return f"{words} This supposes that {best.assumption}." if best.assumption else words


def _without(advice: ShardAdvice, offers: list[Offer], scratch: float) -> str:
    instead = (
        f"Retrain one model from scratch instead, after each batch of deletions: {passes(scratch)} over the data a day."
    )
    certified = [offer for offer in offers if offer.predictions > 0]
    if not certified:
        return f"{instead} No number of shards will do for consensus: {advice.reason}."
    least = min(offer.schedule.passes_per_day for offer in certified)
    return f"{instead} Consensus would need {_shards(advice)}, and cost {passes(least)} a day."
