"""Tables for a target, most generous first (T4, "Design for software").

The failure budget γ/G is split between leaving the main path, which fixes T_max (and U_max), and small main-path
probabilities, which fix the regimes; the regimes fix the tables. Nothing here is trusted before it is certified.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from scipy.special import bdtr

from expunge.errors import GuaranteeError
from expunge.guarantees._consensus_ladder import survival_ladder
from expunge.guarantees._consensus_regimes import Floats, Plan, paper_plan, transcript_plan
from expunge.guarantees._consensus_target import ConsensusTarget

# Share of the failure budget that is spent on leaving the main path (κ); the rest pays for small p.
_PATH_SHARE = 0.05
# β1/β, the part of β that is granted to every p (Theorem D, paper form).
_SPLITS = (0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.8)
# Ratios of the grid of p, for comparing splits and for the final plan.
_COARSE, _FINE = 1.5, 1.08
# Slack on the rates of loss, see `_consensus_ladder`. The grid of p leaves room for a little less than none.
_SLACKS = (-0.04, -0.03, -0.02, -0.01, 0.0, 0.005, 0.01, 0.02, 0.03, 0.045, 0.06, 0.09, 0.14, 0.22, 0.35)

Tables = tuple[Floats, Floats | None]


class _Outline(NamedTuple):
    """Where the tables end (T_max, U_max), and their regimes."""

    top: int
    abstain_top: int
    plan: Plan


def design_tables(target: ConsensusTarget, certifies: Callable[[Floats, Floats | None], bool]) -> Tables:
    """The most generous tables (P(T ≥ d), P(U ≥ a) or None) that certify, found by bisecting the slack.

    Raises GuaranteeError when there are none that release unanimous votes for sure.
    """
    outline = _outline(target)
    best: Tables | None = None
    sure = 0.0
    low, high = -1, len(_SLACKS)
    while high - low > 1:
        middle = (low + high) // 2
        survival, abstain = _tables(target, outline, _SLACKS[middle])
        sure = max(sure, float(survival[0]))
        if survival[0] < 1:
            high = middle
        elif certifies(survival, abstain):
            best, high = (survival, abstain), middle
        else:
            low = middle
    if best is None:
        raise GuaranteeError(
            f"num_shards={target.num_shards} is too few for {target}: even a unanimous vote could not be released "
            f"for sure" + (f", only with probability {sure:.3g}" if sure < 1 else "")
        )
    return best


def _tables(target: ConsensusTarget, outline: _Outline, slack: float) -> Tables:
    # Two-sided: half the steps and half the floors a side (Theorem E).
    scale = 0.5 if target.two_sided else 1.0
    ends = (outline.top, outline.abstain_top) if target.two_sided else (outline.top,)
    ladders = [survival_ladder(target.num_shards, e, outline.plan.regimes, scale=scale, slack=slack) for e in ends]
    return ladders[0], ladders[1] if target.two_sided else None


def _outline(target: ConsensusTarget) -> _Outline:
    failure = target.gamma / target.generations
    outline = _transcript(target, failure) if target.form == "transcript" else _paper(target, failure)
    if outline is None:
        raise GuaranteeError(f"num_shards={target.num_shards} is too few for {target}")
    return outline


def _transcript(target: ConsensusTarget, failure: float) -> _Outline | None:
    rest = math.exp(-target.alpha)
    if rest <= (1 - _PATH_SHARE) * failure:
        # Theorem 0: p ≥ e^{−α} loses nothing, smaller p is paid for by γ; no noise.
        return _ends(target, failure - rest, Plan((), 0.0))
    plan = transcript_plan(alpha=target.alpha, beta=target.beta, budget=(1 - _PATH_SHARE) * failure)
    return None if plan is None else _ends(target, _PATH_SHARE * failure, plan)


def _paper(target: ConsensusTarget, failure: float) -> _Outline | None:
    # T ≡ T_max: bound(p) = 1 − e^α p, and with β1 = 0 sup_p p·bound(p) = e^{−α}/4; a little room for the grid of p.
    rest = 1.02 * math.exp(-target.alpha) / 4
    if rest <= (1 - _PATH_SHARE) * target.beta * failure:
        return _ends(target, target.beta * failure - rest, Plan((), 0.0))
    outlines = ((_split(target, failure, fraction, ratio=_COARSE), fraction) for fraction in _SPLITS)
    found = [(_angle(target, outline), fraction) for outline, fraction in outlines if outline is not None]
    return _split(target, failure, max(found)[1], ratio=_FINE) if found else None


def _split(target: ConsensusTarget, failure: float, fraction: float, *, ratio: float) -> _Outline | None:
    beta1 = fraction * target.beta
    budget = (target.beta - beta1) * failure
    plan = paper_plan(alpha=target.alpha, beta1=beta1, budget=(1 - _PATH_SHARE) * budget, ratio=ratio)
    return None if plan is None else _ends(target, _PATH_SHARE * budget, plan)


def _angle(target: ConsensusTarget, outline: _Outline) -> float:
    """The leading-order arcsin√(d0/k), d0 the surely released dissent; below zero when there is none."""
    length = outline.plan.length * (2 if target.two_sided else 1)
    return math.asin(math.sqrt(outline.top / target.num_shards)) - length / math.sqrt(8 * target.num_shards)


def _ends(target: ConsensusTarget, budget: float, plan: Plan) -> _Outline | None:
    """The largest T_max and U_max whose κ stays within `budget` (main-path lemma, Theorem E)."""
    k, q, queries = target.num_shards, target.design_point, target.max_queries
    # A hair below the budget: the certificate sums the same tail in another way.
    budget *= 1 - 1e-6
    most = min((k - 1) // 2, math.floor((k - 1) * (1 - q)))
    top = _largest(most, lambda d: queries * float(bdtr(d, k, 1 - q)) <= budget * q)
    if not target.two_sided:
        return None if top < 0 else _Outline(top, 0, plan)
    swap = _largest(k - 1, lambda d: queries * float(bdtr(d, k, q)) <= budget)
    top = min(top, swap)
    return None if top < 0 else _Outline(top, min(swap, k - 1 - top), plan)


def _largest(most: int, holds: Callable[[int], bool]) -> int:
    """The largest d ≤ most with holds(d), for a property that only switches from true to false; −1 if there is none."""
    low, high = -1, most + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
