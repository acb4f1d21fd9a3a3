"""How long a generation stays clean at the consensus gate (T4), predicted from a sample of top-vote shares.

No guarantee rests on this: a wrong prediction costs full retrainings and nothing else.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from expunge.guarantees import ConsensusDesign

#: Shares and dissenters may round apart: 1 − 0.9 of 1000 shards is 100 dissenters, not 101.
_ROUNDING: Final = 1e-9
_CONFIDENCE: Final = 0.95


@dataclass(frozen=True, eq=False)
class CleanLaw:
    """How likely a generation is still clean after a number of queries.

    The threshold T is drawn once per generation: `weights[t]` = P(T = t). `passing[t]` is the chance that a query
    has at most t dissenters. Queries are taken to be independent of one another.
    """

    weights: NDArray[np.float64]
    passing: NDArray[np.float64]

    @classmethod
    def always_clean(cls) -> CleanLaw:
        """When every query has a share that is released for sure."""
        return cls(np.ones(1), np.ones(1))

    @classmethod
    def constant(cls, dirty_chance: float, *, queries: int) -> CleanLaw:
        """When so many queries together make the generation dirty with this chance, whatever T."""
        return cls(np.ones(1), np.array([(1 - dirty_chance) ** (1 / queries)]))

    @classmethod
    def from_sample(cls, design: ConsensusDesign, shares: NDArray[np.float64]) -> CleanLaw:
        """When queries are drawn from a sample of top-vote shares."""
        below = np.append(design.survival[1:], 0.0)
        most = np.arange(design.survival.size)
        dissent = np.sort(_dissent(shares, design.target.num_shards))
        return cls(design.survival - below, np.searchsorted(dissent, most, side="right") / len(dissent))

    def clean_chance(self, queries: float) -> float:
        """The chance that so many queries leave a new generation clean."""
        still = self.passing**queries
        clean, dirty = float(self.weights @ still), float(self.weights @ (1 - still))
        return clean / (clean + dirty)  # the weights add up to 1 only up to rounding

    def updates_per_generation(self, *, queries_per_update: Fraction, max_queries: int) -> float:
        """How many updates a generation takes on average, the full retraining at its end included.

        Update j of a generation is a partial one if the queries before it, j times `queries_per_update`, are fewer than
        l_max and left the generation clean: a geometric series for each value of T.
        """
        most = max(0, math.ceil(max_queries / queries_per_update) - 1)
        with np.errstate(divide="ignore"):
            log_clean = float(queries_per_update) * np.log(self.passing)
        found = np.full(len(log_clean), float(most))
        some = log_clean < 0
        logs = log_clean[some]
        # x + x² + … + x^J, where x may be a rounding error below 1, or 0.
        found[some] = np.exp(logs) * np.expm1(most * logs) / np.expm1(logs) if most else 0.0
        return 1 + float(self.weights @ found)


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a sample of queries foretells about the gate.

    `below_sure`: the share of the sampled queries that the gate does not surely release; `below_sure_at_most`: the
    same for all queries, with 95% confidence (Clopper and Pearson). `dirty_before_update`: the chance that the queries
    between two updates make a new generation dirty; `dirty_generations`: the share of the generations that end by a
    failed consensus and not because their predictions are used up.
    """

    sampled: int
    below_sure: float
    below_sure_at_most: float
    dirty_before_update: float
    dirty_generations: float

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able mapping."""
        return asdict(self)


def forecast(
    design: ConsensusDesign, shares: NDArray[np.float64], *, queries_per_update: Fraction, max_queries: int
) -> Forecast:
    """The forecast for a gate and a sample of the queries that it will see."""
    law = CleanLaw.from_sample(design, shares)
    count = len(shares)
    below = int(np.count_nonzero(~is_sure(design, shares)))
    return Forecast(
        sampled=count,
        below_sure=below / count,
        below_sure_at_most=1.0 if below == count else float(betaincinv(below + 1, count - below, _CONFIDENCE)),
        dirty_before_update=1 - law.clean_chance(min(float(queries_per_update), max_queries)),
        dirty_generations=1 - law.clean_chance(max_queries),
    )


def is_sure(design: ConsensusDesign, shares: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which of these shares the gate releases whatever T turns out to be."""
    sure: NDArray[np.bool_] = _dissent(shares, design.target.num_shards) <= design.sure_dissent
    return sure


def _dissent(shares: NDArray[np.float64], num_shards: int) -> NDArray[np.int64]:
    """How many shards dissent, rounded up: a share seen in one ensemble is applied to another size."""
    return np.ceil((1 - shares) * num_shards - _ROUNDING * num_shards).astype(np.int64)
