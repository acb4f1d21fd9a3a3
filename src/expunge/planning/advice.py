"""How many shards to draw, and how large: what consensus publishing needs for a target."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from expunge.errors import GuaranteeError, ParameterError
from expunge.guarantees import Guarantee, fewest_shards

#: A vote of this share is to be released for sure.
WANTED_SHARE: Final = 0.9
#: A shard should hold this many records, and this many of each class, to learn from.
_RECORDS_PER_SHARD: Final = 200
_RECORDS_PER_CLASS: Final = 40


@dataclass(frozen=True, slots=True)
class ShardAdvice:
    """k and p, and why."""

    num_shards: int
    inclusion_probability: float
    reason: str


def recommend_shards(
    *, num_records: int, num_classes: int, target: Guarantee, num_generations: int, max_predictions: int
) -> ShardAdvice:
    """The fewest shards with which a vote of 90% is released for sure within the target, each of a useful size.

    Overlapping shards (p above 1/k) cost more work per deletion and nothing else: the certificate needs independence,
    not disjointness. Where no number of shards will do, 100 of them, and the guarantee will say that it is vacuous.
    """
    wanted = max(_RECORDS_PER_SHARD, _RECORDS_PER_CLASS * num_classes)
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
    """The fewest shards with which a vote of 90% is released for sure; GuaranteeError if no number will do."""
    return _fewest(target.alpha, target.beta, target.gamma, num_generations, max_predictions)


@lru_cache(maxsize=64)
def _fewest(alpha: float, beta: float, gamma: float, num_generations: int, max_predictions: int) -> int:
    design = fewest_shards(
        share=WANTED_SHARE,
        alpha=alpha,
        beta=beta,
        gamma=gamma,
        max_queries=max_predictions,
        generations=num_generations,
    )
    return design.target.num_shards
