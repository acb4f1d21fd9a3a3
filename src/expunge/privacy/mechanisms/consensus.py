"""The consensus gate: the mechanism of T4 as a small state machine. Its tables are given as plain numbers.

The answer is always the plurality. The gate only watches whether the shards agree well enough. While the generation is
clean, an update retrains only the shards it touches. Once the generation is dirty, the next update is a full
retraining, which draws fresh shards and fresh thresholds. The thresholds are secret, and are stored with the rest of
the secret randomness. So is `dirty`, which depends on them, under a certificate in the paper's form; in the transcript
form requesters see it. Abstentions depend on them too: a two-sided gate is for the transcript form, or without noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from expunge.core.checks import require_count
from expunge.core.errors import ParameterError
from expunge.core.randomness import Randomness

# Every finite double is a whole multiple of 2^-1074, so 17 words decide each comparison with a double exactly.
_WORDS = 17
_BITS = 64 * _WORDS


def draw_threshold(survival: Sequence[float] | NDArray[np.float64], rng: Randomness) -> int:
    """Draw a secret integer T with P(T ≥ d) = survival[d] exactly, d = 0..T_max, and T = −1 otherwise.

    `survival` is non-increasing in [0, 1]. One uniform 1088-bit integer is compared with the table, in integers.
    """
    table = [float(value) for value in survival]
    if not table or not all(1 >= a >= b >= 0 for a, b in zip(table, [*table[1:], 0.0], strict=True)):
        raise ParameterError("survival must be a non-empty, non-increasing table of probabilities")
    uniform = int.from_bytes(rng.words(_WORDS).tobytes(), "little")
    low, high = -1, len(table)
    while high - low > 1:
        middle = (low + high) // 2
        numerator, denominator = table[middle].as_integer_ratio()
        reached = uniform * denominator < numerator << _BITS
        low, high = (middle, high) if reached else (low, middle)
    return low


def plurality(counts: NDArray[np.integer]) -> NDArray[np.int64]:
    """Find the class with the most votes for each query (row); ties go to the lowest class code."""
    return np.asarray(np.argmax(counts, axis=1), dtype=np.int64)


@dataclass(slots=True)
class ConsensusGate:
    """One generation of the gate (T4): n, dirty, the secret thresholds T and (two-sided) U, and l_max.

    Deviation from Theorem E's "unlimited": abstentions count towards `max_queries` too, because the bound on leaving
    the main path is a union over all queries.

    Parameters
    ----------
    threshold
        T, the largest dissent that passes. Secret.
    max_queries
        l_max. The generation is dirty after this many queries.
    abstain_threshold
        U of a two-sided gate: the gate abstains when the top vote is at most U and the dissent is above T. Secret.
        None means one-sided.
    queries
        n, how many queries were observed so far.
    dirty
        Whether the next update must be a full retraining.

    Raises
    ------
    ParameterError
        If `max_queries` is not a positive integer.
    """

    threshold: int
    max_queries: int
    abstain_threshold: int | None = None
    queries: int = 0
    dirty: bool = False

    def __post_init__(self) -> None:
        require_count("max_queries", self.max_queries)
        # T < 0: even unanimity would not pass. U < 0 alone only means that the gate never abstains.
        self.dirty = self.dirty or self.threshold < 0

    @classmethod
    def draw(
        cls,
        rng: Randomness,
        *,
        survival: Sequence[float] | NDArray[np.float64],
        max_queries: int,
        abstain_survival: Sequence[float] | NDArray[np.float64] | None = None,
    ) -> ConsensusGate:
        """Draw a gate for a new generation, with fresh independent thresholds."""
        abstain = None if abstain_survival is None else draw_threshold(abstain_survival, rng)
        return cls(draw_threshold(survival, rng), max_queries, abstain)

    def observe(self, counts: NDArray[np.integer], num_shards: int) -> NDArray[np.bool_]:
        """Record the votes of a batch of queries, in order; return True where the gate abstains (one-sided: nowhere).

        `counts` is (queries, classes). Abstaining shards are not counted, so they are dissent: D = k − max V. Whether
        the gate abstains on a query does not depend on `dirty`, so answers stay the same inside a round.
        """
        votes = np.asarray(counts)
        if votes.ndim != 2 or votes.shape[1] == 0:
            raise ParameterError(f"counts must be (queries, classes), got shape {votes.shape}")
        top = votes.max(axis=1)
        if top.size and (top.max() > num_shards or top.min() < 0):
            raise ParameterError("counts must lie between 0 and num_shards")
        passed = num_shards - top <= self.threshold
        abstained = np.zeros(top.shape, dtype=np.bool_)
        if self.abstain_threshold is not None:
            abstained = (top <= self.abstain_threshold) & ~passed
        self.queries += top.size
        if not (passed | abstained).all() or (top.size and self.queries >= self.max_queries):
            self.dirty = True
        return abstained
