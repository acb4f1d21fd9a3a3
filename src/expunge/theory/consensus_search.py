"""Search over certified consensus gates (T4): the best α for a share, the fewest shards for a share, what T4 buys.

Both searches bisect on certified designs, so what they return is certified. Being discrete, the surely released share
is monotone only up to a shard or two, and a slightly better answer may exist within that rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from expunge.core.checks import require_number
from expunge.core.errors import GuaranteeError
from expunge.core.guarantee import Form
from expunge.theory.consensus import ConsensusDesign, design_consensus

#: Beyond it a guarantee says nothing: an event of one in 10^8 may become certain.
LARGEST_ALPHA = 18.0
SMALLEST_ALPHA = 1e-3
MOST_SHARDS_SEARCHED = 10**5


@dataclass(frozen=True, slots=True)
class _Terms:
    """What the searches and the table hold fixed: everything but α and k."""

    max_queries: int
    generations: int
    beta: float
    gamma: float
    form: Form
    cache_folder: Path | None

    def design(self, *, num_shards: int, alpha: float) -> ConsensusDesign | None:
        """The certified design, or None when there is none."""
        try:
            return design_consensus(
                num_shards=num_shards,
                max_queries=self.max_queries,
                generations=self.generations,
                alpha=alpha,
                beta=self.beta,
                gamma=self.gamma,
                form=self.form,
                cache_folder=self.cache_folder,
            )
        except GuaranteeError:
            return None

    def released(self, share: float, *, num_shards: int, alpha: float) -> ConsensusDesign | None:
        """The design if there is one and it surely releases `share`."""
        design = self.design(num_shards=num_shards, alpha=alpha)
        # 1 − d/k and the caller's share may round apart.
        return design if design is not None and design.sure_release_share <= share + 1e-12 else None


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
    """The design with the smallest α that surely releases top shares ≥ `share` (T4).

    Parameters
    ----------
    num_shards
        k, the number of shards.
    share
        The share of the shards behind the top answer, above 0.5.
    max_queries, generations, beta, gamma, form, cache_folder
        As for `design_consensus`.
    tolerance
        How close to the smallest α the search goes, relatively.

    Returns
    -------
    ConsensusDesign
        The design; `design.target.alpha` is α.

    Raises
    ------
    ParameterError
        If an option is out of range.
    GuaranteeError
        If no α up to 18 will do.

    Examples
    --------
    >>> design = best_alpha(
    ...     num_shards=100, share=0.9, max_queries=100, generations=1, beta=0.01, gamma=0.01, tolerance=1.0
    ... )
    >>> design.sure_release_share <= 0.9
    True
    """
    require_number("share", share, above=0.5, most=1)
    terms = _Terms(max_queries, generations, beta, gamma, form, cache_folder)

    def attempt(alpha: float) -> ConsensusDesign | None:
        return terms.released(share, num_shards=num_shards, alpha=alpha)

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
    most: int = MOST_SHARDS_SEARCHED,
    cache_folder: Path | None = None,
) -> ConsensusDesign:
    """The design with the fewest shards that surely releases top shares ≥ `share` (T4).

    Parameters
    ----------
    share
        The share of the shards behind the top answer, above 0.5.
    max_queries, generations, alpha, beta, gamma, form, cache_folder
        As for `design_consensus`.
    most
        The largest number of shards to try.

    Returns
    -------
    ConsensusDesign
        The design; `design.target.num_shards` is the number of shards.

    Raises
    ------
    ParameterError
        If an option is out of range.
    GuaranteeError
        If `most` shards are too few.

    Examples
    --------
    >>> design = fewest_shards(share=0.95, max_queries=1000, generations=1, alpha=8.0, beta=0.01, gamma=0.01)
    >>> design.target.num_shards
    37
    """
    require_number("share", share, above=0.5, most=1)
    terms = _Terms(max_queries, generations, beta, gamma, form, cache_folder)

    def attempt(num_shards: int) -> ConsensusDesign | None:
        return terms.released(share, num_shards=num_shards, alpha=alpha)

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


@dataclass(frozen=True, slots=True)
class ConsensusRow:
    """One entry of the table "What it buys" (T4).

    Parameters
    ----------
    k
        The number of shards.
    alpha, beta, gamma
        The guarantee, over all generations.
    form
        "paper" or "transcript".
    generations, l_max
        G, and the number of queries in a generation.
    share
        The lowest top share that is always clean, or None when there is none.
    """

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
    """Every entry of the T4 table "What it buys", one-sided, each from a certified design.

    Parameters
    ----------
    cache_folder
        As for `design_consensus`.

    Returns
    -------
    tuple of ConsensusRow
        The entries, row by row.
    """
    return tuple(
        _row(failure, alpha, num_shards, form, generations, max_queries, cache_folder)
        for failure, alpha, num_shards in _SETTINGS
        for form, generations, max_queries in _COLUMNS
    )


def _row(
    failure: float, alpha: float, num_shards: int, form: Form, generations: int, max_queries: int, folder: Path | None
) -> ConsensusRow:
    terms = _Terms(max_queries, generations, failure, failure, form, folder)
    design = terms.design(num_shards=num_shards, alpha=alpha)
    share = None if design is None else design.sure_release_share
    return ConsensusRow(num_shards, alpha, failure, failure, form, generations, max_queries, share)
