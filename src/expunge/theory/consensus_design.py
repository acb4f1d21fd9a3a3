"""Design the tables of a consensus gate for a target, most generous first (T4, "Design for software").

The failure budget γ/G is split between leaving the main path, which fixes T_max (and U_max), and small main-path
probabilities, which fix the regimes; the regimes fix the tables. Nothing here is trusted: the finished table is
certified afresh by `consensus_certificate`.

*Regimes (Theorems C and D).* A regime (floor η, rate R, moment λ) says: the steps of ln S above level η must satisfy
Theorem B with R_λ ≤ R. By Theorem C it then bounds H at main-path probability p by (1 + ω)·B_R(α − ln(1 + ω)), with
ω = η/p.

*Tables (Theorem B, solved for the steps).* Going down from d = T_max, ln S rises by the largest step that the regime of
the current level allows. With the tangent at π_d = min(d/k, π*) Theorem B's Γ_d is k·max_{π ≤ d/k} h(π, sΔ_d), up to
the neighbour's A_{d+1} (a relative 1/k). Its integrated form asks that the mean of Γ_d(s)/s² over 1 ≤ s ≤ 1 + λ be at
most R. Small overshoots (the maximum over d inside the integral, the neighbour) are for the caller's slack to absorb;
the certificate decides.

*Cache.* Designed tables are kept on disk, by parameters: one file a target, JSON with floats in hexadecimal (exact,
readable, cannot run code), written completely or not at all. Any fault in a file makes it count as absent. What is read
back is certified again by the caller, never trusted.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr

from expunge.core.checks import require_choice, require_count, require_number
from expunge.core.errors import GuaranteeError, InputError, ParameterError
from expunge.core.files import write_whole
from expunge.core.guarantee import Form

# Far below any sensible failure probability; grids of p stay small and nothing underflows.
_SMALLEST_FAILURE = 1e-60


@dataclass(frozen=True, slots=True)
class ConsensusTarget:
    """What a consensus gate has to guarantee, and for how long: the parameters that determine a design.

    Parameters
    ----------
    num_shards
        k, the number of shards.
    max_queries, generations
        l_max, the number of queries in a generation, and G, the number of generations.
    alpha, beta, gamma
        The guarantee, over all generations.
    form
        "paper" conditions on the updates only, as the paper's definition does; "transcript" conditions on everything
        that the requester saw.
    two_sided
        Whether the gate also abstains on low agreement (Theorem E). In the paper's form only without noise.
    design_point
        q̄ ≥ ½ (Theorem E); it only matters when `two_sided`.

    Raises
    ------
    ParameterError
        If a parameter is out of range, or β·γ/G is below 1e-60.
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
        require_number("alpha", self.alpha, above=0)
        for name in ("beta", "gamma"):
            require_number(name, getattr(self, name), above=0, below=1)
        if self.beta * self.gamma / self.generations < _SMALLEST_FAILURE:
            raise ParameterError(
                f"beta * gamma / generations must be at least {_SMALLEST_FAILURE:g}, got beta={self.beta!r}, "
                f"gamma={self.gamma!r}, generations={self.generations!r}"
            )
        require_choice("form", self.form, get_args(Form))
        require_number("design_point", self.design_point, least=0.5, below=1)

    def __str__(self) -> str:
        generations = "1 generation" if self.generations == 1 else f"{self.generations:,} generations"
        return (
            f"alpha={self.alpha:g}, beta={self.beta:g}, gamma={self.gamma:g} ({self.form} form, "
            f"{'two' if self.two_sided else 'one'}-sided), {generations} of {self.max_queries:,} queries"
        )


Floats = NDArray[np.float64]

_OMEGAS: Floats = np.geomspace(2e-3, 8.0, 48)
_NUM_MOMENTS = 72


class Regime(NamedTuple):
    """Steps of ln S above ln `floor` lose at rate at most `rate` up to the moment `moment` (η, R and λ)."""

    floor: float
    rate: float
    moment: float


class RegimeChain(NamedTuple):
    """Regimes from the lowest floor to the highest, and their leading-order length Σ ln(η_{i+1}/η_i)/√R_i."""

    regimes: tuple[Regime, ...]
    length: float


def _moments(alpha: float, target: float) -> Floats:
    """A grid of λ around the optimum, which is near 2 ln(1/target)/α."""
    centre = 2 * (1 + math.log(1 / target)) / alpha
    return np.geomspace(min(0.05, centre / 40), max(8.0, 4 * centre), _NUM_MOMENTS)


def _rates(alpha: float, targets: Floats, omegas: Floats, moments: Floats) -> tuple[Floats, Floats]:
    """The largest R with (1 + ω)·B_R(α − ln(1 + ω)) ≤ target and its λ, by (target, ω); R ≤ 0 where there is none.

    The condition is linear in R for each λ, so the best R is a maximum over λ; any λ of the grid is valid.
    """
    log_c = moments * np.log(moments) - (1 + moments) * np.log1p(moments)
    inflation = np.log1p(omegas)[None, :, None]
    numerator = np.log(targets)[:, None, None] - inflation - log_c + moments * (alpha - inflation)
    rates = numerator / (moments * (1 + moments))
    best = rates.argmax(axis=2)
    return np.take_along_axis(rates, best[:, :, None], axis=2)[:, :, 0], moments[best]


def transcript_regimes(*, alpha: float, beta: float, budget: float) -> RegimeChain | None:
    """One regime: H ≤ β for every p ≥ `budget`, with the ω that leaves the shortest table (Theorem D, transcript)."""
    return _shortest(alpha, np.array([budget]), np.array([beta]))


def paper_regimes(*, alpha: float, beta1: float, budget: float, ratio: float) -> RegimeChain | None:
    """Regimes with p·(bound(p) − β1) ≤ `budget` for every p (Theorem D, paper form), p on a grid of this ratio.

    Each cell of p is asked at its worst corner: the bound at its lower end, the weight at its upper end. One ω = η/p
    serves all cells; choosing it afresh for each cell gains less than a percent.
    """
    lowest, highest = budget / (1 - beta1), math.exp(-alpha)
    if lowest >= highest:
        return RegimeChain((), 0.0)
    edges = np.geomspace(lowest, highest, 1 + max(1, math.ceil(math.log(highest / lowest) / math.log(ratio))))
    return _shortest(alpha, edges[:-1], np.minimum(beta1 + budget / edges[1:], 1.0))


def _shortest(alpha: float, points: Floats, targets: Floats) -> RegimeChain | None:
    """The chain with bound(p) ≤ target at each of the (increasing) points whose ω = η/p gives the shortest table."""
    rates, moments = _rates(alpha, targets, _OMEGAS, _moments(alpha, float(targets[-1])))
    floors = np.minimum(points[:, None] * _OMEGAS, 1.0)
    usable = (rates > 0).all(axis=0)
    if not usable.any():
        return None
    # A step above η_i has to satisfy every regime before i too.
    rates = np.minimum.accumulate(np.where(usable, rates, 1.0), axis=0)
    moments = np.maximum.accumulate(moments, axis=0)
    rises = np.diff(np.log(floors), axis=0, append=0.0)
    lengths = np.where(usable, (rises / np.sqrt(rates)).sum(axis=0), np.inf)
    best = int(lengths.argmin())
    chain = [Regime(*map(float, row)) for row in zip(floors[:, best], rates[:, best], moments[:, best], strict=True)]
    return RegimeChain(tuple(regime for regime in chain if regime.floor < 1), float(lengths[best]))


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(6)
_NEWTON_STEPS = 4


def survival_table(num_shards: int, top: int, regimes: Sequence[Regime], *, scale: float, slack: float) -> Floats:
    """P(threshold ≥ d) for d = 0..top, rising from the lowest floor at `top` by the largest allowed steps.

    `scale` multiplies floors and steps alike (½ a side when two-sided, Theorem E). Without regimes there is no noise.
    """
    if not regimes or regimes[0].floor * scale >= 1:
        return np.ones(top + 1)
    floors = [math.log(regime.floor * scale) for regime in regimes]
    levels = np.zeros(top + 1)
    levels[top] = floors[0]
    d = top
    for i, regime in enumerate(regimes):
        ceiling = floors[i + 1] if i + 1 < len(regimes) else 0.0
        while d > 0 and levels[d] < ceiling:
            guess = scale * float(np.exp(_leading_order(num_shards, np.array([d]), regime.rate)[0]))
            count = min(d, math.ceil(1.2 * (ceiling - levels[d]) / guess) + 1)
            steps = scale * _steps(num_shards, np.arange(d, d - count, -1), regime, slack)
            rising = levels[d] + np.cumsum(steps)
            taken = min(int(np.searchsorted(rising, ceiling)) + 1, count)
            levels[d - taken : d] = rising[:taken][::-1]
            d -= taken
            levels[d] = _capped(float(levels[d]), float(steps[taken - 1]), regimes[i:], floors[i:])
    return np.exp(np.minimum(levels, 0.0))


def _capped(level: float, step: float, regimes: Sequence[Regime], floors: Sequence[float]) -> float:
    """The level reached by a step of the first regime that crosses floors: above each floor its own regime's rules.

    A step of another regime at the same depth is in proportion to √R, to leading order.
    """
    for regime, floor in zip(regimes[1:], floors[1:], strict=True):
        if floor >= level:
            break
        level = min(level, floor + step * math.sqrt(regime.rate / regimes[0].rate))
    return level


def _leading_order(num_shards: int, depths: NDArray[np.int64], rate: float) -> Floats:
    """ln Δ_d from h ≈ π(1 − π)x²/2."""
    pi = np.minimum(depths / num_shards, 0.5)
    return np.asarray(0.5 * np.log(2 * rate / (num_shards * pi * (1 - pi))))


def _steps(num_shards: int, depths: NDArray[np.int64], regime: Regime, slack: float) -> Floats:
    """The largest Δ_d with mean over s of k·max_{π ≤ d/k} h(π, sΔ)/s² ≤ R(1 − slack), by Newton's method in ln Δ."""
    rate = regime.rate * (1 - slack)
    s = 1 + regime.moment * (_NODES + 1) / 2
    weights = num_shards * _WEIGHTS / (2 * s**2)
    share = depths[:, None] / num_shards
    # ln(mean) against ln Δ is nearly a line of slope 2.
    log_step = _leading_order(num_shards, depths, rate)
    for _ in range(_NEWTON_STEPS):
        x = np.exp(log_step)[:, None] * s
        loss, slope = _loss(share, x)
        mean = loss @ weights
        log_step -= np.clip(np.log(mean / rate) * mean / ((slope * x) @ weights), -1.0, 1.0)
    return np.asarray(np.exp(log_step))


def _loss(share: Floats, x: Floats) -> tuple[Floats, Floats]:
    """max over π ≤ share of h(π, x) = ln(1 + π(e^x − 1)) − πx, for x > 0, and its derivative by x."""
    small = np.minimum(x, 30.0)
    peak = np.where(x < 1e-3, 0.5 - x / 12, 1 / x - 1 / np.expm1(small))
    pi = np.minimum(share, peak)
    mixed = pi + (1 - pi) * np.exp(-x)
    # ln(1 + π(e^x − 1)) without overflow: past 30 the e^x dominates.
    log_mean = np.where(x < 30.0, np.log1p(pi * np.expm1(small)), x + np.log(mixed))
    return log_mean - pi * x, pi / mixed - pi


# Share of the failure budget that is spent on leaving the main path (κ); the rest pays for small p.
_PATH_SHARE = 0.05
# β1/β, the part of β that is granted to every p (Theorem D, paper form).
_SPLITS = (0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.8)
# Ratios of the grid of p, for comparing splits and for the final chain.
_COARSE, _FINE = 1.5, 1.08
# Slack on the rates of loss, see `_steps`. The grid of p leaves room for a slack a little below 0.
_SLACKS = (-0.04, -0.03, -0.02, -0.01, 0.0, 0.005, 0.01, 0.02, 0.03, 0.045, 0.06, 0.09, 0.14, 0.22, 0.35)

Tables = tuple[Floats, Floats | None]


class _Outline(NamedTuple):
    """Where the tables end (T_max, U_max), and their regimes."""

    top: int
    abstain_top: int
    chain: RegimeChain


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
    tables = [survival_table(target.num_shards, e, outline.chain.regimes, scale=scale, slack=slack) for e in ends]
    return tables[0], tables[1] if target.two_sided else None


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
        return _ends(target, failure - rest, RegimeChain((), 0.0))
    chain = transcript_regimes(alpha=target.alpha, beta=target.beta, budget=(1 - _PATH_SHARE) * failure)
    return None if chain is None else _ends(target, _PATH_SHARE * failure, chain)


def _paper(target: ConsensusTarget, failure: float) -> _Outline | None:
    # T ≡ T_max: bound(p) = 1 − e^α p, and with β1 = 0 sup_p p·bound(p) = e^{−α}/4; a little room for the grid of p.
    rest = 1.02 * math.exp(-target.alpha) / 4
    if rest <= (1 - _PATH_SHARE) * target.beta * failure:
        return _ends(target, target.beta * failure - rest, RegimeChain((), 0.0))
    if target.two_sided:
        raise GuaranteeError(
            f"a two-sided gate needs thresholds without noise at {target}: whether it abstains would reveal secret "
            "ones, which no certificate of the models covers; use a one-sided gate, a larger alpha, or the transcript "
            "form"
        )
    outlines = ((_split(target, failure, fraction, ratio=_COARSE), fraction) for fraction in _SPLITS)
    found = [(_angle(target, outline), fraction) for outline, fraction in outlines if outline is not None]
    return _split(target, failure, max(found)[1], ratio=_FINE) if found else None


def _split(target: ConsensusTarget, failure: float, fraction: float, *, ratio: float) -> _Outline | None:
    beta1 = fraction * target.beta
    budget = (target.beta - beta1) * failure
    chain = paper_regimes(alpha=target.alpha, beta1=beta1, budget=(1 - _PATH_SHARE) * budget, ratio=ratio)
    return None if chain is None else _ends(target, _PATH_SHARE * budget, chain)


def _angle(target: ConsensusTarget, outline: _Outline) -> float:
    """The leading-order arcsin√(d0/k), d0 the surely released dissent; below zero when there is none."""
    length = outline.chain.length * (2 if target.two_sided else 1)
    return math.asin(math.sqrt(outline.top / target.num_shards)) - length / math.sqrt(8 * target.num_shards)


def _ends(target: ConsensusTarget, budget: float, chain: RegimeChain) -> _Outline | None:
    """The largest T_max and U_max whose κ stays within `budget` (main-path lemma, Theorem E)."""
    k, q, queries = target.num_shards, target.design_point, target.max_queries
    # Slightly below the budget, because the certificate sums the same tail in another way.
    budget *= 1 - 1e-6
    most = min((k - 1) // 2, math.floor((k - 1) * (1 - q)))
    top = _largest(most, lambda d: queries * float(bdtr(d, k, 1 - q)) <= budget * q)
    if not target.two_sided:
        return None if top < 0 else _Outline(top, 0, chain)
    swap = _largest(k - 1, lambda d: queries * float(bdtr(d, k, q)) <= budget)
    top = min(top, swap)
    return None if top < 0 else _Outline(top, min(swap, k - 1 - top), chain)


def _largest(most: int, holds: Callable[[int], bool]) -> int:
    """The largest d ≤ most with holds(d), for a property that only switches from true to false; −1 if there is none."""
    low, high = -1, most + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


#: Raise it whenever the designer changes what it returns: files of other versions are not read.
_VERSION = 1


def default_cache_folder() -> Path:
    """The folder for designed tables: $EXPUNGE_CACHE, else $XDG_CACHE_HOME/expunge, else ~/.cache/expunge.

    Nothing is cached unless a caller passes a folder; this is the one for callers that want a cache.

    Returns
    -------
    Path
        The folder, which need not exist yet.
    """
    named = os.environ.get("EXPUNGE_CACHE")
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "expunge"


def load(folder: Path, target: ConsensusTarget) -> tuple[Floats, Floats | None] | None:
    """Read the tables kept for exactly this target; None if there are none."""
    try:
        content = json.loads(_path(folder, target).read_text(encoding="ascii"))
        if content["version"] != _VERSION or content["target"] != _key(target) or content["sum"] != _sum(content):
            return None
        abstain = content["abstain_survival"]
        return _table(content["survival"]), None if abstain is None else _table(abstain)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return None


def save(folder: Path, target: ConsensusTarget, survival: Floats, abstain_survival: Floats | None) -> None:
    """Keep the tables. If the folder cannot be written to, they are made again next time."""
    content = {
        "version": _VERSION,
        "target": _key(target),
        "survival": _text(survival),
        "abstain_survival": None if abstain_survival is None else _text(abstain_survival),
    }
    content["sum"] = _sum(content)
    with suppress(OSError, InputError):
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(_path(folder, target), json.dumps(content).encode("ascii"))


def _sum(content: dict[str, Any]) -> str:
    """The checksum of the content: a table with a changed digit would be another gate."""
    rest = {name: value for name, value in content.items() if name != "sum"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def _path(folder: Path, target: ConsensusTarget) -> Path:
    digest = hashlib.sha256(json.dumps([_VERSION, _key(target)], sort_keys=True).encode()).hexdigest()
    return folder / f"consensus-{digest[:32]}.json"


def _key(target: ConsensusTarget) -> dict[str, Any]:
    """The target with floats in hexadecimal: equal keys mean equal targets, to the last bit."""
    return {name: float(value).hex() if isinstance(value, float) else value for name, value in asdict(target).items()}


def _text(table: Floats) -> list[str]:
    return [value.hex() for value in table.tolist()]


def _table(values: list[str]) -> Floats:
    return np.array([float.fromhex(value) for value in values], dtype=np.float64)
