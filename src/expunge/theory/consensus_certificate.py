"""The independent certificate of a consensus gate: which γ an arbitrary survival table really guarantees.

It takes the finished tables as plain numbers, shares no code with the designer, and errs to the safe side everywhere:
grids are rounded against the claim, so any choice of η, λ, β1 that it happens to make is valid (Theorems B to E). It is
run whenever a design is made or read back, and it certifies hand-made tables just as well.

A two-sided gate in the paper's form is certified jointly with its thresholds. Its abstentions depend on T and U, which
live through deletions and are no part of the models, so a bound for the models alone does not cover them. Jointly,
noise in the thresholds hides nothing: the bound is that of constant thresholds (Theorem E).

Deviation from Theorem B as printed: the moment bound keeps the integral of its proof,
ln E[e^{λL}|m] ≤ (1 + λ)·∫_1^{1+λ} max_d Γ_d(s)/s² ds, instead of λ(1 + λ) times the supremum of the integrand. Between
grid points Γ_d is replaced by its chord: h(π, sΔ) is convex in s, so the chord of two tangents lies above it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, logsumexp

from expunge.core.errors import GuaranteeError, ParameterError

_Floats = NDArray[np.float64]

_S_RATIO = 1.06
_P_RATIO = 1.01
_COARSE = 128
# Relative room for rounding in the moment bound, far above the error of double precision and far below any gain.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class ConsensusCertificate:
    """What a consensus table guarantees over G generations of l_max queries, and how it was shown (Theorem D).

    Parameters
    ----------
    alpha, beta, gamma
        What is guaranteed, over all generations.
    form
        "paper" or "transcript".
    generations, max_queries
        G and l_max.
    num_shards
        k.
    kappa
        κ, which bounds the chance, per generation, of being clean off the main path.
    excess
        What the main path adds. Paper form: sup_p p·(bound(p) − β1)_+; transcript form: the largest p at which the
        bound exceeds β.
    beta1
        β1, the part of β that is granted to every p in paper form; β itself in transcript form.
    """

    alpha: float
    beta: float
    gamma: float
    form: str
    generations: int
    max_queries: int
    num_shards: int
    kappa: float
    excess: float
    beta1: float


def certify_consensus(
    survival: _Floats,
    *,
    num_shards: int,
    max_queries: int,
    generations: int,
    alpha: float,
    beta: float,
    form: str = "paper",
    abstain_survival: _Floats | None = None,
    design_point: float = 0.5,
) -> ConsensusCertificate:
    """The smallest γ that Theorem D (Theorem E when there is an abstaining side) gives these tables at (α, β).

    With an abstaining side and in the paper's form, it is the γ for the models and the thresholds together.

    Parameters
    ----------
    survival
        survival[d] = P(T ≥ d) for d = 0..T_max.
    num_shards
        k, the number of shards. Their randomness must be independent.
    max_queries, generations
        l_max and G.
    alpha, beta
        α and β of the guarantee.
    form
        "paper" or "transcript".
    abstain_survival
        abstain_survival[a] = P(U ≥ a) for a = 0..U_max; None when one-sided.
    design_point
        q̄ of Theorem E.

    Returns
    -------
    ConsensusCertificate
        With the γ that is certified. A γ of 1 or more is vacuous but still returned.

    Raises
    ------
    ParameterError
        If the tables are not what the theorems speak about.

    Examples
    --------
    >>> certificate = certify_consensus(
    ...     np.ones(61), num_shards=300, max_queries=10_000, generations=1, alpha=5.0, beta=0.01
    ... )
    >>> round(certificate.gamma, 4)
    0.1701
    """
    _check(survival, num_shards, max_queries, generations, alpha, beta, form, abstain_survival, design_point)
    kappa = _off_path(survival.size - 1, abstain_survival, num_shards, max_queries, design_point)
    if form == "paper" and abstain_survival is not None:
        # Jointly with T and U the transcript is no longer random: L = −ln p, as with constant thresholds.
        survival, abstain_survival = np.ones_like(survival), np.ones_like(abstain_survival)
    bound = _MainPathBound(survival, abstain_survival, num_shards, alpha, beta)
    if form == "transcript":
        beta1, excess = beta, bound.last_above(beta)
        gamma = generations * (kappa + excess)
    else:
        beta1, excess = bound.best_split(kappa)
        gamma = generations * (kappa + excess) / (beta - beta1)
    return ConsensusCertificate(alpha, beta, gamma, form, generations, max_queries, num_shards, kappa, excess, beta1)


def require_certificate(certificate: ConsensusCertificate, gamma: float) -> ConsensusCertificate:
    """Return the certificate if it reaches `gamma`; raise GuaranteeError otherwise."""
    if not certificate.gamma <= gamma:
        raise GuaranteeError(
            f"the consensus table certifies gamma={certificate.gamma:.6g} at alpha={certificate.alpha:g}, "
            f"beta={certificate.beta:g}, not gamma={gamma:g}"
        )
    return certificate


def _check(
    survival: _Floats,
    num_shards: int,
    max_queries: int,
    generations: int,
    alpha: float,
    beta: float,
    form: str,
    abstain_survival: _Floats | None,
    design_point: float,
) -> None:
    for name, table in (("survival", survival), ("abstain_survival", abstain_survival)):
        if table is None:
            continue
        valid = table.ndim == 1 and table.size > 0 and bool(np.isfinite(table).all())
        if not (valid and table[0] <= 1 and table[-1] > 0 and bool((np.diff(table) <= 0).all())):
            raise ParameterError(f"{name} must be non-increasing in (0, 1], got an array of shape {table.shape}")
    top = survival.size - 1
    if not 2 * top < num_shards:
        raise ParameterError(f"survival must end before num_shards/2 = {num_shards / 2:g}, got T_max = {top}")
    if min(max_queries, generations) < 1:
        raise ParameterError(f"max_queries and generations must be at least 1, got {max_queries}, {generations}")
    if not (alpha > 0 and math.isfinite(alpha) and 0 < beta < 1):
        raise ParameterError(f"alpha must be positive and beta in (0, 1), got {alpha!r}, {beta!r}")
    if form not in ("paper", "transcript"):
        raise ParameterError(f"form must be 'paper' or 'transcript', got {form!r}")
    if abstain_survival is None:
        return
    if top + abstain_survival.size - 1 >= num_shards:
        raise ParameterError(f"T_max + U_max must be below num_shards = {num_shards}")
    # Within these limits P(Bin(k, x) ≥ s)/x increases on (0, design_point], because P(Bin(k, x) ≥ s) is convex there.
    if not 0.5 <= design_point <= (num_shards - top - 1) / max(1, num_shards - 1):
        raise ParameterError(f"design_point must be in [0.5, (k - T_max - 1)/(k - 1)], got {design_point!r}")


def _off_path(top: int, abstain: _Floats | None, num_shards: int, max_queries: int, design_point: float) -> float:
    """κ: the chance of a clean answer off the main path in one generation (the main-path lemma; Theorem E)."""
    release = _log_tail(top, num_shards, 1 - design_point) - math.log(design_point)
    if abstain is None:
        return max_queries * 2 * math.exp(_log_tail(top, num_shards, 0.5))
    swap = _log_tail(max(top, abstain.size - 1), num_shards, design_point)
    return max_queries * math.exp(max(release, swap))


def _log_tail(most: int, trials: int, probability: float) -> float:
    """ln P(Bin(trials, probability) ≤ most), summed term by term in log space."""
    if probability == 0:
        return 0.0
    if probability == 1:
        return 0.0 if most >= trials else -math.inf
    j = np.arange(most + 1)
    terms = gammaln(trials + 1) - gammaln(j + 1) - gammaln(trials - j + 1)
    terms = terms + j * math.log(probability) + (trials - j) * math.log1p(-probability)
    # ln k! is about k ln k and known to a few units in its last place, which are more than the room above for large k.
    lost = 8 * np.finfo(np.float64).eps * (trials + 1) * math.log(trials + 1)
    return min(0.0, float(logsumexp(terms)) + max(_ROUNDING, lost))


class _MainPathBound:
    """Theorem C: an upper bound of H at the main node as a function of its probability p, non-increasing in p."""

    def __init__(self, survival: _Floats, abstain: _Floats | None, num_shards: int, alpha: float, beta: float) -> None:
        self._alpha = alpha
        self._beta = beta
        largest = 2 + 8 * (1 + math.log(1 / beta)) / alpha
        self._s = np.geomspace(1.0, max(4.0, largest), math.ceil(math.log(max(4.0, largest)) / math.log(_S_RATIO)) + 1)
        if abstain is None:
            loss, floors = _worst_loss(survival, num_shards, self._s), survival
        else:
            left, right = (_worst_loss(table, num_shards, 2 * self._s) for table in (survival, abstain))
            floors, rows = _paired_floors(survival, abstain)
            loss = 0.5 * left[rows[0]] + 0.5 * right[rows[1]]
        # Equal floors: keep the last, whose losses are the largest, hence valid for all of them.
        kept = np.append(floors[1:] < floors[:-1], True)
        self._log_floors: _Floats = np.log(floors[kept])
        self._log_moments = _log_moments(loss[kept], self._s)
        moment = self._s[1:] - 1
        self._moment = moment
        self._log_c: _Floats = moment * np.log(moment) - self._s[1:] * np.log1p(moment)

    def __call__(self, log_p: _Floats) -> _Floats:
        """Upper bounds of H at e^log_p; every (η, λ) is valid, so only a promising few are tried for each p."""
        rows = self._promising(log_p)
        best = np.full(log_p.shape, np.inf)
        reach = math.ceil(self._log_floors.size / _COARSE)
        for offset in np.unique(np.linspace(-reach, reach, 13).round().astype(np.int64)):
            row = np.clip(rows + offset, 0, self._log_floors.size - 1)
            best = np.minimum(best, self._log_bound(log_p, row).min(axis=1))
        plain = -np.expm1(np.minimum(0.0, self._alpha + log_p))
        return np.where(self._alpha + log_p >= 0, 0.0, np.minimum(plain, np.exp(np.minimum(best, 0.0))))

    def _promising(self, log_p: _Floats) -> NDArray[np.int64]:
        """For each p a row (a floor η) that does well, found on a thinned set of rows and of p."""
        size = self._log_floors.size
        thin = np.unique(np.linspace(0, size - 1, min(size, _COARSE)).round().astype(np.int64))
        every = max(1, log_p.size // _COARSE)
        sample = log_p[::every]
        values = np.stack([self._log_bound(sample, np.full(sample.shape, row)).min(axis=1) for row in thin])
        found = thin[values.argmin(axis=0)]
        return np.repeat(found, every)[: log_p.size] if every > 1 else found

    def _log_bound(self, log_p: _Floats, row: NDArray[np.int64]) -> _Floats:
        """ln of (1 + η/p)·C(λ)·e^{−λ(α − ln(1 + η/p))}·E e^{λL}, by (p, λ)."""
        inflation = np.logaddexp(0.0, self._log_floors[row] - log_p)[:, None]
        exponent = inflation * (1 + self._moment) - self._moment * self._alpha
        return np.asarray(exponent + self._log_c + self._log_moments[row])

    def last_above(self, beta: float) -> float:
        """sup{p: bound(p) > beta}, from above: each (η, λ) is at most beta from p = η/(e^c − 1) on, in closed form."""
        room = math.log(beta) + self._moment * self._alpha - self._log_c - self._log_moments
        c = room / (1 + self._moment)
        log_p = np.where(c > 0, self._log_floors[:, None] - _log_expm1(np.maximum(c, 1e-300)), np.inf)
        return math.exp(min(float(log_p.min()) + _ROUNDING, math.log1p(-beta) - self._alpha))

    def best_split(self, kappa: float) -> tuple[float, float]:
        """(β1, sup_p p·(bound(p) − β1)_+) with the smallest (κ + sup)/(β − β1); each cell of p at its worst corner."""
        lowest = min(float(self._log_floors[-1]), -self._alpha) - 8
        log_p = np.linspace(lowest, -self._alpha, math.ceil((-self._alpha - lowest) / math.log(_P_RATIO)) + 1)
        p = np.exp(log_p)
        upper = np.append(p[0], p[1:])
        bounds = np.append(1.0, self(log_p[:-1]))
        splits = self._beta * np.append(np.linspace(0.0, 0.98, 99), [0.985, 0.99])
        excess = np.array([float(np.max(upper * np.maximum(bounds - split, 0.0))) for split in splits])
        best = int(((kappa + excess) / (self._beta - splits)).argmin())
        return float(splits[best]), float(excess[best])


def _log_expm1(x: _Floats) -> _Floats:
    """ln(e^x − 1) for x > 0."""
    return np.asarray(x + np.log(-np.expm1(-x)))


def _worst_loss(table: _Floats, num_shards: int, s: _Floats) -> _Floats:
    """max_{d' ≤ d} Γ_{d'}(s) of Theorem B for S̃ = max(S, S(d)), by (d, s)."""
    steps = -np.diff(np.log(table))
    a = np.zeros((table.size + 1, s.size))
    b = np.zeros((table.size, s.size))
    # Flat stretches lose nothing; blocks of rows keep the temporaries small.
    moving = np.flatnonzero(steps > 0) + 1
    for rows in np.array_split(moving, max(1, moving.size // 512)):
        b[rows], a[rows] = _tangents(rows[:, None] / num_shards, steps[rows - 1, None] * s)
    gamma = num_shards * np.maximum(a[:-1], a[1:]) + np.arange(table.size)[:, None] * b
    # h and its slope are differences of terms of size x: a few units of rounding each.
    gamma += 16 * np.finfo(np.float64).eps * num_shards * steps.max(initial=0.0) * s
    return np.asarray(np.maximum.accumulate(gamma, axis=0))


def _tangents(share: _Floats, x: _Floats) -> tuple[_Floats, _Floats]:
    """(B, A) with h(π, x) ≤ A + Bπ for every π, tangent at min(share, argmax h)."""
    y = np.where(x > 1e-4, x, 1.0)
    # 1/y − 1/(e^y − 1), written with e^{−y} so that it cannot overflow.
    peak = np.where(x > 1e-4, 1 / y - np.exp(-y) / -np.expm1(-y), 0.5)
    pi = np.minimum(share, peak)
    # With w = e^{−x}: 1 + π(e^x − 1) = (π + (1 − π)w)/w.
    w = np.exp(-x)
    mixed = pi + (1 - pi) * w
    log_mean = np.where(x < 1, np.log1p(pi * np.expm1(np.minimum(x, 1.0))), x + np.log(mixed))
    h = np.maximum(log_mean - pi * x, 0.0)
    slope = np.maximum(-np.expm1(-x) / mixed - x, 0.0)
    return slope, np.maximum(h - pi * slope, 0.0)


def _paired_floors(survival: _Floats, abstain: _Floats) -> tuple[_Floats, tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Floors η = η_T + η_U of the two sides at common levels, and the row of each side (Theorem E)."""
    levels = np.unique(np.concatenate([survival, abstain]))[::-1]
    levels = levels[levels <= min(survival[0], abstain[0])]
    rows = tuple(np.searchsorted(-table, -levels, side="right") - 1 for table in (survival, abstain))
    return survival[rows[0]] + abstain[rows[1]], (rows[0], rows[1])


def _log_moments(loss: _Floats, s: _Floats) -> _Floats:
    """ln E[e^{λL}|m] ≤ (1 + λ)·∫_1^{1+λ} loss(s)/s² ds at λ = s_j − 1, the loss linear between grid points."""
    left, right = s[:-1], s[1:]
    rise = (loss[:, 1:] - loss[:, :-1]) / (right - left)
    base = loss[:, :-1] - rise * left
    pieces = base * (1 / left - 1 / right) + rise * np.log(right / left)
    return np.asarray(np.cumsum(pieces, axis=1) * right * (1 + _ROUNDING))
