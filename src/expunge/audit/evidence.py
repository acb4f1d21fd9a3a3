"""What the trials of an audit prove: the exact test of (0,0,0)-unlearning, and the certified lower bound on α.

*The test.* In a trial both arms share the data and the requests u. Under (0,0,0)-unlearning the updated and the
retrained models have the same law given u, and they are independent given u, so exchanging the two arms of any trial
changes nothing: in each trial in which the statistics differ, either is the larger with probability ½. The number of
trials in which the unlearned one is larger is therefore Bin(number of differing trials, ½): the exact two-sided sign
test (on an indicator, McNemar's exact test). It needs no assumption about the statistic, and no cut-off.

*The bound.* If R_A is (α,β,γ)-unlearning then P(E|u) ≤ e^α P₀(E_u) + β for all u but a set of probability γ, on which
P(E|u) ≤ 1. Averaged over u: p₁ ≤ e^α p₀ + β + γ(1−β), where p₁ and p₀ are the event's probabilities in the two arms.
So α ≥ ln((p₁ − η)/p₀) with η = 1 − (1−β)(1−γ), and Clopper–Pearson limits, each at half of the allowed failure,
make it a statement about the true probabilities. An event that the trials themselves chose would cheat: the cut-offs
are chosen on trials that are then left out, and if several were chosen the failure is divided among them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainccinv, betaincinv, gammaln, logsumexp

from expunge.core.errors import ParameterError


def lower_limit(count: int, trials: int, *, failure: float) -> float:
    """A number that is above the probability with probability at most `failure`."""
    _check(count, trials, failure)
    return 0.0 if count == 0 else float(betaincinv(count, trials - count + 1, failure))


def upper_limit(count: int, trials: int, *, failure: float) -> float:
    """A number that is below the probability with probability at most `failure`."""
    _check(count, trials, failure)
    return 1.0 if count == trials else float(betainccinv(count + 1, trials - count, failure))


def clopper_pearson(count: int, trials: int, *, confidence: float = 0.95) -> tuple[float, float]:
    """The exact two-sided interval: it misses the probability at most so often on either side as (1−confidence)/2."""
    if not 0 < confidence < 1:
        raise ParameterError(f"confidence must be in (0, 1), got {confidence!r}")
    failure = (1 - confidence) / 2
    return lower_limit(count, trials, failure=failure), upper_limit(count, trials, failure=failure)


def _check(count: int, trials: int, failure: float) -> None:
    if not 0 <= count <= trials:
        raise ParameterError(f"count must be between 0 and the {trials} trials, got {count!r}")
    if not 0 < failure < 1:
        raise ParameterError(f"failure must be in (0, 1), got {failure!r}")


Scores = NDArray[np.float64]
Side = Literal["at most", "at least"]
_SIDES: tuple[Side, ...] = ("at most", "at least")
_MOST_CUTS = 200


@dataclass(frozen=True, slots=True)
class Event:
    """E: a statistic at most, or at least, a cut-off."""

    statistic: str
    side: Side
    cut: float

    def happened(self, scores: Scores) -> NDArray[np.bool_]:
        """In which trials; an undefined statistic (NaN) is no event."""
        with np.errstate(invalid="ignore"):
            return scores <= self.cut if self.side == "at most" else scores >= self.cut

    def __str__(self) -> str:
        return f"{self.statistic} {self.side} {self.cut:.6g}"


@dataclass(frozen=True, slots=True)
class SignTest:
    """The exact two-sided sign test on one statistic; `log10_p` is there for p-values too small for a float."""

    statistic: str
    unlearned_larger: int
    retrained_larger: int
    ties: int
    log10_p: float

    @property
    def p_value(self) -> float:
        """The probability of a split at least as uneven, if both arms had the same law."""
        return min(1.0, 10**self.log10_p)


def sign_test(statistic: str, unlearned: Scores, retrained: Scores) -> SignTest:
    """Compare the arms trial by trial; trials without a difference, or without a value, say nothing."""
    with np.errstate(invalid="ignore"):
        up, down = int((unlearned > retrained).sum()), int((unlearned < retrained).sum())
    log_p = log_binomial_tail(max(up, down), up + down) + math.log(2)
    return SignTest(statistic, up, down, len(unlearned) - up - down, min(0.0, log_p / math.log(10)))


def log_binomial_tail(least: int, trials: int) -> float:
    """ln P(Bin(trials, ½) ≥ least), exactly however small."""
    if least <= 0:
        return 0.0
    hits = np.arange(least, trials + 1)
    terms = gammaln(trials + 1) - gammaln(hits + 1) - gammaln(trials - hits + 1)
    return min(0.0, float(logsumexp(terms)) - trials * math.log(2))


def strongest(tests: Sequence[SignTest]) -> tuple[SignTest, float]:
    """The test with the smallest p-value, and log₁₀ of that p-value times the number of tests (Bonferroni)."""
    best = min(tests, key=lambda test: test.log10_p)
    return best, min(0.0, best.log10_p + math.log10(len(tests)))


def allowance(*, beta: float, gamma: float) -> float:
    """η = 1 − (1−β)(1−γ): by how much p₁ may exceed e^α p₀ once the requests are averaged over."""
    for name, value in (("beta", beta), ("gamma", gamma)):
        if not 0 <= value <= 1:
            raise ParameterError(f"{name} must be in [0, 1], got {value!r}")
    return beta + gamma - beta * gamma


def alpha_lower_bound(
    unlearned: int, retrained: int, trials: int, *, beta: float, gamma: float, confidence: float
) -> float:
    """max(0, ln((p₁_low − η)/p₀_high)): above the true α with probability at most 1 − confidence.

    `unlearned` and `retrained` count the event in the same number of `trials` of each arm. The two limits hold
    together by a union bound, so the arms need not be independent of each other.
    """
    if not 0 < confidence < 1:
        raise ParameterError(f"confidence must be in (0, 1), got {confidence!r}")
    failure = (1 - confidence) / 2
    low = lower_limit(unlearned, trials, failure=failure) - allowance(beta=beta, gamma=gamma)
    high = upper_limit(retrained, trials, failure=failure)
    return max(0.0, math.log(low / high)) if low > 0 else 0.0


def choose_events(
    unlearned: Mapping[str, Scores], retrained: Mapping[str, Scores], *, most: int, beta: float, gamma: float
) -> list[Event]:
    """The most promising cut-off for every statistic and side, the best `most` of them.

    Judged by the bound on α that these very trials would give (at 50% confidence), then by the difference of
    frequencies. Whatever is chosen here is valid, because it is evaluated on other trials.
    """
    ranked: list[tuple[tuple[float, int], Event]] = []
    for name in unlearned:
        for side in _SIDES:
            cuts = _cuts(unlearned[name], retrained[name])
            one, zero = (_counts(arm[name], side, cuts) for arm in (unlearned, retrained))
            promise = _promise(one, zero, len(unlearned[name]), allowance(beta=beta, gamma=gamma))
            graded = [
                ((float(promise[place]), int(one[place] - zero[place])), Event(name, side, float(cut)))
                for place, cut in enumerate(cuts)
            ]
            ranked += [max(graded, key=lambda pair: pair[0])] if graded else []
    ranked.sort(key=lambda pair: pair[0], reverse=True)
    return [event for _, event in ranked[:most]]


def _cuts(unlearned: Scores, retrained: Scores) -> Scores:
    """Cut-offs half-way between neighbouring values that were seen; the value itself if there is but one."""
    values = np.unique(np.concatenate([unlearned, retrained]))
    values = values[np.isfinite(values)]
    between = (values[1:] + values[:-1]) / 2
    if len(between) > _MOST_CUTS:
        between = between[np.linspace(0, len(between) - 1, _MOST_CUTS).astype(int)]
    return np.asarray(values if len(values) == 1 else between)


def _counts(scores: Scores, side: Side, cuts: Scores) -> NDArray[np.int64]:
    """How often each event happened."""
    ordered = np.sort(scores[np.isfinite(scores)])
    if side == "at most":
        return np.searchsorted(ordered, cuts, side="right").astype(np.int64)
    return (len(ordered) - np.searchsorted(ordered, cuts, side="left")).astype(np.int64)


def _promise(one: NDArray[np.int64], zero: NDArray[np.int64], trials: int, eta: float) -> Scores:
    """The bound on α that the counts would give at 50% confidence, at least 0."""
    low = np.where(one > 0, betaincinv(np.maximum(one, 1), trials - one + 1, 0.25), 0.0) - eta
    high = np.where(zero < trials, betainccinv(zero + 1, np.maximum(trials - zero, 1), 0.25), 1.0)
    return np.asarray(np.maximum(0.0, np.log(np.maximum(low, 1e-300) / high)))
