"""How few predictions noise on every prediction can serve, for all constants."""

from __future__ import annotations

import math
from typing import Final, TypedDict

from expunge.core.guarantee import Guarantee
from expunge.privacy.accounting.events import BoundedRange
from expunge.theory import max_predictions, paper_predictions, repeated_query_ceiling

#: The target of the table: a ≤ 1 at b = g = 1e-3, per generation.
TABLE_TARGET: Final = Guarantee(1.0, 1e-3, 1e-3)
_ROWS: Final = ((100, 0.01), (100, 0.001), (1000, 0.01), (1000, 0.001), (10_000, 0.001))
_UNANIMOUS_SHARDS: Final = (1000, 10_000, 1_000_000)


class TheoryRow(TypedDict):
    """One row: the largest number of predictions per generation, by each way of certifying it."""

    k: int
    epsilon0: float
    paper: int
    t1: int
    best: int
    ceiling: int | None


def theory_table(*, with_ceiling: bool = True) -> list[TheoryRow]:
    """The exponential mechanism at k shards and ε0 a prediction, within (1, 1e-3, 1e-3).

    `paper`: the paper's count through the Rogers-style form; `t1`: T1 alone; `best`: the best theorem;
    `ceiling`: a concrete system breaks the target one prediction later (None when not computed).
    """
    return [_row(num_shards, epsilon, with_ceiling=with_ceiling) for num_shards, epsilon in _ROWS]


def unanimous_table() -> list[TheoryRow]:
    """The same with ε0 = 2 ln 99 / k, at which a unanimous binary vote is answered right 99% of the time."""
    return [_row(k, 2 * math.log(99) / k, with_ceiling=False) for k in _UNANIMOUS_SHARDS]


def _row(num_shards: int, epsilon: float, *, with_ceiling: bool) -> TheoryRow:
    target = TABLE_TARGET
    # With γ = 0 only T1 applies.
    pure = Guarantee(target.alpha, target.beta, 0.0)
    event = BoundedRange(epsilon)
    ceiling = None
    if with_ceiling:
        ceiling = repeated_query_ceiling(num_shards=num_shards, epsilon=epsilon, target=target)
    return TheoryRow(
        k=num_shards,
        epsilon0=epsilon,
        paper=paper_predictions(
            num_shards=num_shards, epsilon=epsilon, alpha=target.alpha, beta=target.beta, gamma=target.gamma
        ),
        t1=max_predictions(pure, event=event, num_shards=num_shards),
        best=max_predictions(target, event=event, num_shards=num_shards),
        ceiling=ceiling,
    )
