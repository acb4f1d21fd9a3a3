"""How many shards to draw, how large, and who should answer: by what it costs (T4, T5).

How many shards to draw, and how large: what consensus publishing needs for a target.

The verdict in plain words, and what α, β and γ mean.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any, Final

from expunge.core.errors import GuaranteeError, ParameterError
from expunge.theory import Guarantee, design_consensus
from expunge.theory.consensus_search import MOST_SHARDS_SEARCHED
from expunge.theory.planning.consensus import DIRECT, ROUTER, STUDENT, consensus_offers
from expunge.theory.planning.offer import Offer, cheaper_offer
from expunge.theory.planning.question import Question
from expunge.theory.planning.words import count, passes
from expunge.theory.planning.work import alternatives

_FIRST_GUESS: Final = 500
#: A vote of this share is to be released for sure.
WANTED_SHARE: Final = 0.9
#: A shard should hold this many records, and this many of each class, to learn from.
FEW_RECORDS: Final = 200
_RECORDS_PER_CLASS: Final = 40


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


@dataclass(frozen=True, slots=True)
class ShardAdvice:
    """k and p, and why."""

    num_shards: int
    inclusion_probability: float
    reason: str


def recommend_shards(
    *, num_records: int, num_classes: int, target: Guarantee, num_generations: int, max_predictions: int
) -> ShardAdvice:
    """About the fewest shards that surely release a vote of 90% within the target, each of a useful size.

    Overlapping shards (p above 1/k) cost more work per deletion and nothing else: the certificate needs independence,
    not disjointness. Where no number of shards will do, 100 of them, and the guarantee will say that it is vacuous.
    """
    wanted = max(FEW_RECORDS, _RECORDS_PER_CLASS * num_classes)
    try:
        num_shards = shards_for_consensus(
            target=target, num_generations=num_generations, max_predictions=max_predictions
        )
        reason = f"the fewest shards that surely release a vote of {WANTED_SHARE:.0%} within the target"
    except (GuaranteeError, ParameterError) as error:
        num_shards, reason = 100, str(error)
    probability = min(1.0, max(1 / num_shards, wanted / max(1, num_records)))
    return ShardAdvice(num_shards, probability, reason)


def shards_for_consensus(*, target: Guarantee, num_generations: int, max_predictions: int) -> int:
    """The fewest shards, to one percent, with which a vote of 90% is released for sure; GuaranteeError if none will do.

    `fewest_shards` finds the exact number and takes several times as long.
    """
    return _fewest(target.alpha, target.beta, target.gamma, num_generations, max_predictions)


@lru_cache(maxsize=64)
def _fewest(alpha: float, beta: float, gamma: float, num_generations: int, max_predictions: int) -> int:
    def sure_share(num_shards: int) -> float | None:
        try:
            design = design_consensus(
                num_shards=num_shards,
                max_queries=max_predictions,
                generations=num_generations,
                alpha=alpha,
                beta=beta,
                gamma=gamma,
            )
        except GuaranteeError:
            return None
        return design.sure_release_share

    low, high, guess = 0, MOST_SHARDS_SEARCHED + 1, _FIRST_GUESS
    while high - low > max(1, low // 100):
        share = sure_share(guess)
        enough = share is not None and share <= WANTED_SHARE
        low, high = (low, guess) if enough else (guess, high)
        if low == MOST_SHARDS_SEARCHED:
            break
        guess = _next_guess(guess, share, low, high)
    if high > MOST_SHARDS_SEARCHED:
        raise GuaranteeError(
            f"a vote of {WANTED_SHARE:.0%} cannot be surely released at alpha={alpha:g}, beta={beta:g}, "
            f"gamma={gamma:g} with up to {MOST_SHARDS_SEARCHED} shards"
        )
    return high


def _next_guess(num_shards: int, share: float | None, low: int, high: int) -> int:
    """Where the wanted share should be, from the share at `num_shards`; strictly between low and high.

    By the leading order of T4's design, arcsin √(1 − share) = π/4 − C/√k with C the same for all k. Half a percent to
    the side that is still open, so that the answer is soon enclosed; where that leads out, the middle.
    """
    if share is None:
        guess = 4 * num_shards
    else:
        gap = math.pi / 4 - math.asin(math.sqrt(1 - share))
        wanted = math.pi / 4 - math.asin(math.sqrt(1 - WANTED_SHARE))
        nudge = 0.995 if share <= WANTED_SHARE else 1.005
        guess = round(num_shards * (gap / wanted) ** 2 * nudge)
    if high > MOST_SHARDS_SEARCHED:
        # No number of shards is known to do: as many as there may be, before giving up.
        guess = min(guess, MOST_SHARDS_SEARCHED)
    return guess if low < guess < high else (low + high) // 2


RETRAIN: Final = "retrain_one_model"
_WORDS: Final = {
    DIRECT: "ask the ensemble directly",
    ROUTER: "put a router in front of the ensemble",
    STUDENT: "let a student answer that learned from the ensemble",
}


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
