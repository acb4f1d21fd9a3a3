"""What would make publishing by consensus certified, or cheaper than retraining from scratch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from expunge.errors import GuaranteeError, ParameterError
from expunge.guarantees import best_alpha
from expunge.guarantees.consensus_search import MOST_SHARDS
from expunge.planning.advice import FEW_RECORDS, WANTED_SHARE, shards_for_consensus
from expunge.planning.change import Change
from expunge.planning.choice import cheaper_offer
from expunge.planning.consensus import consensus_offers
from expunge.planning.offer import Offer
from expunge.planning.question import DEFAULT_POOL_SIZE, Question, one_copy
from expunge.planning.words import count, passes, percent
from expunge.planning.work import alternatives


def consensus_changes(question: Question, offers: Sequence[Offer]) -> tuple[Change, ...]:
    """More shards or α where no gate is certified; otherwise what makes it cheaper: fewer copies, a public pool."""
    ways = [offer for offer in offers if offer.consensus is not None]
    if not any(offer.predictions for offer in ways):
        return _more_shards(question), _larger_alpha(question)
    return tuple(_cheaper(question))


def _more_shards(question: Question) -> Change:
    """The fewest shards that surely release a vote of 90%, with the copies of each record kept."""
    try:
        shards = shards_for_consensus(
            target=question.target,
            num_generations=question.num_generations,
            max_predictions=question.max_predictions,
        )
    except (GuaranteeError, ParameterError) as error:
        return Change("num_shards", None, f"More shards, for consensus: no, {error}.")
    if shards <= question.num_shards:
        # Too many for the designer, which is no reason to have fewer: noise may do.
        words = f"Fewer shards, for consensus: {count(shards)} surely release a vote of {percent(WANTED_SHARE)}."
        return Change("num_shards", shards, words)
    larger = replace(question, num_shards=shards, inclusion_probability=min(1.0, max(question.copies, 1.0) / shards))
    size = larger.records_per_shard
    little = " (too few to learn much from)" if size < FEW_RECORDS else ""
    words = (
        f"More shards, for consensus: {count(shards)}, of {count(float(f'{size:.2g}'))} records each{little}, "
        f"surely release a vote of "
        f"{percent(WANTED_SHARE)}, {count(question.max_predictions)} times per generation"
    )
    best = _cheaper_way(larger)
    if best is None:
        return Change("num_shards", shards, f"{words}; retraining one model would still be cheaper.")
    return Change("num_shards", shards, f"{words}; {_cost(best)}.")


def _larger_alpha(question: Question) -> Change:
    """The smallest α, to one percent, with which these shards surely release a vote of 90%."""
    try:
        design = best_alpha(
            num_shards=min(question.num_shards, MOST_SHARDS),
            share=WANTED_SHARE,
            max_queries=question.max_predictions,
            generations=question.num_generations,
            beta=question.target.beta,
            gamma=question.target.gamma,
        )
    except (GuaranteeError, ParameterError):
        design = None
    if design is None or design.guarantee.is_vacuous or question.num_shards > MOST_SHARDS:
        return Change("alpha", None, "Larger alpha, for consensus: no, every alpha that would do is vacuous.")
    # Rounded up, so that the words can be typed back in.
    alpha = math.ceil(design.target.alpha * 1000) / 1000
    words = f"Larger alpha, for consensus: {alpha:.3f} surely releases a vote of {percent(WANTED_SHARE)}."
    return Change("alpha", alpha, words)


def _cheaper(question: Question) -> Iterator[Change]:
    if question.pool_size == 0:
        best = _cheaper_way(replace(question, pool_size=DEFAULT_POOL_SIZE))
        if best is not None:
            words = f"A public pool for a student, of {count(DEFAULT_POOL_SIZE)} points: {_cost(best)}."
            yield Change("pool_size", DEFAULT_POOL_SIZE, words)
    if question.copies > 1:
        single = one_copy(question.num_shards)
        best = _cheaper_way(replace(question, inclusion_probability=single))
        if best is not None:
            words = f"Fewer copies, for consensus: an inclusion probability of {single:.3g}; {_cost(best)}."
            yield Change("inclusion_probability", single, words)


def _cheaper_way(question: Question) -> Offer | None:
    """The way by consensus that is cheaper than retraining from scratch; None if there is none."""
    return cheaper_offer(consensus_offers(question), alternatives(question))


def _cost(offer: Offer) -> str:
    condition = f", if {offer.assumption}" if offer.assumption else ""
    return f"{offer.name} would cost {passes(offer.schedule.passes_per_day)} a day{condition}"
