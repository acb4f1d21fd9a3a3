"""The accountant the other way round: the best α for a share, the fewest shards for a share, and what T4 buys.

Both searches bisect on certified designs, so what they return is certified; being discrete, the surely released share
is monotone only up to a shard or two, and a slightly better answer may exist within that rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from expunge.errors import GuaranteeError, ParameterError
from expunge.guarantees._consensus_target import Form
from expunge.guarantees.consensus import ConsensusDesign, design_consensus

#: Beyond it a guarantee says nothing: an event of one in 10^8 may become certain.
LARGEST_ALPHA = 18.0
SMALLEST_ALPHA = 1e-3
MOST_SHARDS = 10**5


def best_alpha(
    *,
    num_shards: int,
    share: float,
    max_queries: int,
    generations: int,
    beta: float,
    gamma: float,
    form: Form = "paper",
    tolerance: float = 0.01,
    cache_folder: Path | None = None,
) -> ConsensusDesign:
    """The design with the smallest α (within the relative tolerance) that surely releases top shares ≥ `share`."""
    _check_share(share)

    def attempt(alpha: float) -> ConsensusDesign | None:
        return _if_released(
            share,
            lambda: design_consensus(
                num_shards=num_shards,
                max_queries=max_queries,
                generations=generations,
                alpha=alpha,
                beta=beta,
                gamma=gamma,
                form=form,
                cache_folder=cache_folder,
            ),
        )

    best = attempt(LARGEST_ALPHA)
    if best is None:
        raise GuaranteeError(
            f"num_shards={num_shards} cannot surely release share={share:g} at beta={beta:g}, gamma={gamma:g} "
            f"with any alpha up to {LARGEST_ALPHA:g}"
        )
    low, high = SMALLEST_ALPHA, LARGEST_ALPHA
    while high > low * (1 + tolerance):
        # Geometric: what matters is the ratio.
        middle = (low * high) ** 0.5
        design = attempt(middle)
        if design is None:
            low = middle
        else:
            best, high = design, middle
    return best


def fewest_shards(
    *,
    share: float,
    max_queries: int,
    generations: int,
    alpha: float,
    beta: float,
    gamma: float,
    form: Form = "paper",
    most: int = MOST_SHARDS,
    cache_folder: Path | None = None,
) -> ConsensusDesign:
    """The design with the fewest shards (at most `most`) that surely releases top shares ≥ `share`."""
    _check_share(share)

    def attempt(num_shards: int) -> ConsensusDesign | None:
        return _if_released(
            share,
            lambda: design_consensus(
                num_shards=num_shards,
                max_queries=max_queries,
                generations=generations,
                alpha=alpha,
                beta=beta,
                gamma=gamma,
                form=form,
                cache_folder=cache_folder,
            ),
        )

    low, high = 0, min(16, most)
    best = attempt(high)
    while best is None and high < most:
        low, high = high, min(2 * high, most)
        best = attempt(high)
    if best is None:
        raise GuaranteeError(
            f"share={share:g} cannot be surely released at alpha={alpha:g}, beta={beta:g}, gamma={gamma:g} "
            f"with up to {most} shards"
        )
    while high - low > 1:
        middle = (low + high) // 2
        design = attempt(middle)
        if design is None:
            low = middle
        else:
            best, high = design, middle
    return best


def _check_share(share: float) -> None:
    if not 0.5 < share <= 1:
        raise ParameterError(f"share must be in (0.5, 1], got {share!r}")


def _if_released(share: float, make: Callable[[], ConsensusDesign]) -> ConsensusDesign | None:
    """The design if there is one and it surely releases `share`."""
    try:
        design = make()
    except GuaranteeError:
        return None
    # 1 − d/k and the caller's share may round apart.
    return design if design.sure_release_share <= share + 1e-12 else None


@dataclass(frozen=True, slots=True)
class ConsensusRow:
    """One entry of the table "What it buys": the lowest top share that is always clean, or None when there is none."""

    k: int
    alpha: float
    beta: float
    gamma: float
    form: Form
    generations: int
    l_max: int
    share: float | None


_SETTINGS: tuple[tuple[float, float, int], ...] = (
    (1e-3, 1.0, 1000),
    (1e-3, 1.0, 3000),
    (1e-3, 1.0, 10_000),
    (1e-3, 5.0, 300),
    (1e-3, 5.0, 1000),
    (1e-3, 5.0, 10_000),
    (1e-2, 1.0, 1000),
    (1e-2, 1.0, 10_000),
    (1e-2, 5.0, 300),
    (1e-2, 5.0, 1000),
)
_COLUMNS: tuple[tuple[Form, int, int], ...] = (
    ("transcript", 1, 10**4),
    ("transcript", 1, 10**6),
    ("paper", 1, 10**4),
    ("paper", 1, 10**6),
    ("paper", 100, 10**4),
)


def consensus_table(*, cache_folder: Path | None = None) -> tuple[ConsensusRow, ...]:
    """Every entry of the T4 table "What it buys", one-sided, each from a certified design."""
    return tuple(
        _row(failure, alpha, num_shards, form, generations, max_queries, cache_folder)
        for failure, alpha, num_shards in _SETTINGS
        for form, generations, max_queries in _COLUMNS
    )


def _row(
    failure: float, alpha: float, num_shards: int, form: Form, generations: int, max_queries: int, folder: Path | None
) -> ConsensusRow:
    try:
        share = design_consensus(
            num_shards=num_shards,
            max_queries=max_queries,
            generations=generations,
            alpha=alpha,
            beta=failure,
            gamma=failure,
            form=form,
            cache_folder=folder,
        ).sure_release_share
    except GuaranteeError:
        share = None
    return ConsensusRow(num_shards, alpha, failure, failure, form, generations, max_queries, share)
