"""What a consensus gate has to guarantee, and for how long: the parameters that determine a design."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import get_args

from expunge.errors import ParameterError
from expunge.guarantees._checks import require_count
from expunge.guarantees.guarantee import Form

# Far below any sensible failure probability; grids of p stay small and nothing underflows.
_SMALLEST_FAILURE = 1e-60


@dataclass(frozen=True, slots=True)
class ConsensusTarget:
    """(α,β,γ)-unlearning for `generations` generations of `max_queries` queries each (G and l_max).

    `form="paper"` conditions on the updates only, as the paper's definition does; `"transcript"` on everything that
    the requester saw. `design_point` (q̄ ≥ ½, Theorem E) only matters when `two_sided`.
    """

    num_shards: int
    max_queries: int
    generations: int
    alpha: float
    beta: float
    gamma: float
    form: Form = "paper"
    two_sided: bool = False
    design_point: float = 0.5

    def __post_init__(self) -> None:
        for name in ("num_shards", "max_queries", "generations"):
            require_count(name, getattr(self, name), least=1)
        if not (self.alpha > 0 and math.isfinite(self.alpha)):
            raise ParameterError(f"alpha must be positive and finite, got {self.alpha!r}")
        for name in ("beta", "gamma"):
            if not 0 < getattr(self, name) < 1:
                raise ParameterError(f"{name} must be in (0, 1), got {getattr(self, name)!r}")
        if self.beta * self.gamma / self.generations < _SMALLEST_FAILURE:
            raise ParameterError(
                f"beta * gamma / generations must be at least {_SMALLEST_FAILURE:g}, got beta={self.beta!r}, "
                f"gamma={self.gamma!r}, generations={self.generations!r}"
            )
        if self.form not in get_args(Form):
            raise ParameterError(f"form must be 'paper' or 'transcript', got {self.form!r}")
        if not 0.5 <= self.design_point < 1:
            raise ParameterError(f"design_point must be in [0.5, 1), got {self.design_point!r}")

    def __str__(self) -> str:
        generations = "1 generation" if self.generations == 1 else f"{self.generations:,} generations"
        return (
            f"alpha={self.alpha:g}, beta={self.beta:g}, gamma={self.gamma:g} ({self.form} form, "
            f"{'two' if self.two_sided else 'one'}-sided), {generations} of {self.max_queries:,} queries"
        )
