"""How many shards to draw, and how large: what consensus publishing needs for a target."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from expunge.errors import GuaranteeError, ParameterError
from expunge.guarantees import Guarantee, design_consensus
from expunge.guarantees.consensus_search import MOST_SHARDS

_FIRST_GUESS: Final = 500
#: A vote of this share is to be released for sure.
WANTED_SHARE: Final = 0.9
#: A shard should hold this many records, and this many of each class, to learn from.
FEW_RECORDS: Final = 200
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

    low, high, guess = 0, MOST_SHARDS + 1, _FIRST_GUESS
    while high - low > max(1, low // 100):
        share = sure_share(guess)
        enough = share is not None and share <= WANTED_SHARE
        low, high = (low, guess) if enough else (guess, high)
        if low == MOST_SHARDS:
            break
        guess = _next_guess(guess, share, low, high)
    if high > MOST_SHARDS:
        raise GuaranteeError(
            f"a vote of {WANTED_SHARE:.0%} cannot be surely released at alpha={alpha:g}, beta={beta:g}, "
            f"gamma={gamma:g} with up to {MOST_SHARDS} shards"
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
    if high > MOST_SHARDS:
        # No number of shards is known to do: as many as there may be, before giving up.
        guess = min(guess, MOST_SHARDS)
    return guess if low < guess < high else (low + high) // 2
