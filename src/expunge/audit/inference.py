"""What the trials of an audit prove: the exact test of (0,0,0)-unlearning, and the certified lower bound on α.

*The test.* In a trial both arms share the data and the requests u. Under (0,0,0)-unlearning the updated and the
retrained models have the same law given u, and they are independent given u, so exchanging the two arms of any trial
changes nothing. In each trial in which the statistics differ, either is the larger with probability ½. The number of
trials in which the unlearned one is larger is therefore Bin(number of differing trials, ½). This is the exact two-sided
sign test (on an indicator, McNemar's exact test). It needs no assumption about the statistic, and no cut-off.

*The bound.* If R_A is (α,β,γ)-unlearning then P(E|u) ≤ e^α P₀(E_u) + β for all u but a set of probability γ, on which
P(E|u) ≤ 1. Averaged over u: p₁ ≤ e^α p₀ + β + γ(1−β), where p₁ and p₀ are the event's probabilities in the two arms.
So α ≥ ln((p₁ − η)/p₀) with η = 1 − (1−β)(1−γ). Clopper–Pearson limits, each at half of the allowed failure
probability, make it a statement about the true probabilities. An event must not be chosen on the trials that evaluate
it. So the cut-offs are chosen on trials that are then left out, and if several are chosen, the failure probability is
divided among them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainccinv, betaincinv, gammaln, logsumexp

from expunge.core.checks import require_count, require_number, require_probability


def lower_limit(count: int, trials: int, *, failure: float) -> float:
    """Exact lower confidence limit: it is above the true probability with probability at most `failure`."""
    _check(count, trials, failure)
    return 0.0 if count == 0 else float(betaincinv(count, trials - count + 1, failure))


def upper_limit(count: int, trials: int, *, failure: float) -> float:
    """Exact upper confidence limit: it is below the true probability with probability at most `failure`."""
    _check(count, trials, failure)
    return 1.0 if count == trials else float(betainccinv(count + 1, trials - count, failure))


def clopper_pearson(count: int, trials: int, *, confidence: float = 0.95) -> tuple[float, float]:
    """Exact two-sided confidence interval for a probability.

    Parameters
    ----------
    count
        How often the event happened.
    trials
        In how many independent trials.
    confidence
        The interval misses the true probability on either side with probability at most (1 − confidence)/2.

    Returns
    -------
    tuple of float
        The lower and the upper limit.

    Raises
    ------
    ParameterError
        If the count is not in 0, …, trials, or the confidence is not in (0, 1).

    Examples
    --------
    >>> low, high = clopper_pearson(3, 20)
    >>> f"{low:.4f} to {high:.4f}"
    '0.0321 to 0.3789'
    """
    failure = (1 - require_number("confidence", confidence, above=0, below=1)) / 2
    return lower_limit(count, trials, failure=failure), upper_limit(count, trials, failure=failure)


def _check(count: int, trials: int, failure: float) -> None:
    require_count("count", count, least=0, most=trials)
    require_number("failure", failure, above=0, below=1)


Scores = NDArray[np.float64]
Side = Literal["at most", "at least"]
_SIDES: tuple[Side, ...] = ("at most", "at least")
_MOST_CUTS = 200


@dataclass(frozen=True, slots=True)
class Event:
    """An event E: a statistic is at most, or at least, a cut-off.

    Parameters
    ----------
    statistic
        The name of the statistic.
    side
        "at most" or "at least".
    cut
        The cut-off.

    Examples
    --------
    >>> import numpy as np
    >>> event = Event("accuracy", "at most", 0.5)
    >>> event.happened(np.array([0.4, 0.5, 0.6, np.nan])).tolist()
    [True, True, False, False]
    """

    statistic: str
    side: Side
    cut: float

    def happened(self, scores: Scores) -> NDArray[np.bool_]:
        """In which trials the event happened. An undefined statistic (NaN) is no event."""
        with np.errstate(invalid="ignore"):
            return scores <= self.cut if self.side == "at most" else scores >= self.cut

    def __str__(self) -> str:
        return f"{self.statistic} {self.side} {self.cut:.6g}"


@dataclass(frozen=True, slots=True)
class SignTest:
    """The result of the exact two-sided sign test on one statistic.

    Parameters
    ----------
    statistic
        The name of the statistic.
    unlearned_larger, retrained_larger
        In how many trials the unlearned, or the retrained, models had the larger value.
    ties
        In how many trials the values were equal, or one of them was undefined.
    log10_p
        log₁₀ of the p-value, which may be too small for a float.
    """

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
    """Compare the arms trial by trial. Trials with equal or undefined values do not count.

    Parameters
    ----------
    statistic
        The name of the statistic, for the result.
    unlearned, retrained
        Its value in each trial, in both arms.

    Returns
    -------
    SignTest
        The counts and the p-value.

    Examples
    --------
    >>> import numpy as np
    >>> found = sign_test("accuracy", np.array([0.1, 0.2, 0.3, 0.9]), np.array([0.4, 0.5, 0.6, 0.9]))
    >>> found.unlearned_larger, found.retrained_larger, found.ties, round(found.p_value, 3)
    (0, 3, 1, 0.25)
    """
    with np.errstate(invalid="ignore"):
        up, down = int((unlearned > retrained).sum()), int((unlearned < retrained).sum())
    log_p = log_binomial_tail(max(up, down), up + down) + math.log(2)
    return SignTest(statistic, up, down, len(unlearned) - up - down, min(0.0, log_p / math.log(10)))


def log_binomial_tail(least: int, trials: int) -> float:
    """ln P(Bin(trials, ½) ≥ least), without underflow."""
    if least <= 0:
        return 0.0
    hits = np.arange(least, trials + 1)
    terms = gammaln(trials + 1) - gammaln(hits + 1) - gammaln(trials - hits + 1)
    return min(0.0, float(logsumexp(terms)) - trials * math.log(2))


def most_significant(tests: Sequence[SignTest]) -> tuple[SignTest, float]:
    """The test with the smallest p-value, and log₁₀ of that p-value times the number of tests (Bonferroni)."""
    best = min(tests, key=lambda test: test.log10_p)
    return best, min(0.0, best.log10_p + math.log10(len(tests)))


def allowance(*, beta: float, gamma: float) -> float:
    """η = 1 − (1−β)(1−γ): by how much p₁ may exceed e^α p₀, averaged over the requests."""
    require_probability("beta", beta)
    require_probability("gamma", gamma)
    return beta + gamma - beta * gamma


def alpha_lower_bound(
    unlearned: int, retrained: int, trials: int, *, beta: float, gamma: float, confidence: float
) -> float:
    """Lower bound on α from how often an event happened in the two arms: max(0, ln((p₁_low − η)/p₀_high)).

    It is above the true α with probability at most 1 − confidence. The two limits hold together by a union bound, so
    the arms need not be independent of each other. The event must be fixed in advance, or chosen on other trials.

    Parameters
    ----------
    unlearned, retrained
        How often the event happened in each arm.
    trials
        How many trials each arm has.
    beta, gamma
        The β and γ for which α is bounded; η = 1 − (1−β)(1−γ).
    confidence
        The probability with which the bound holds, at least.

    Returns
    -------
    float
        The bound; 0 if the trials prove nothing.

    Raises
    ------
    ParameterError
        If a count is not in 0, …, trials, β or γ is not in [0, 1], or the confidence is not in (0, 1).

    Examples
    --------
    >>> round(alpha_lower_bound(90, 5, 100, beta=1e-3, gamma=1e-3, confidence=0.95), 2)
    1.99
    """
    failure = (1 - require_number("confidence", confidence, above=0, below=1)) / 2
    low = lower_limit(unlearned, trials, failure=failure) - allowance(beta=beta, gamma=gamma)
    high = upper_limit(retrained, trials, failure=failure)
    return max(0.0, math.log(low / high)) if low > 0 else 0.0


def choose_events(
    unlearned: Mapping[str, Scores], retrained: Mapping[str, Scores], *, most: int, beta: float, gamma: float
) -> list[Event]:
    """Choose the most promising cut-off for every statistic and side, and return the best `most` of them.

    The order is by the bound on α that these trials would give (at 50% confidence), then by the difference of
    frequencies. Any choice is valid, because the event is evaluated on other trials.
    """
    ranked: list[tuple[tuple[float, int], Event]] = []
    for name in unlearned:
        for side in _SIDES:
            cuts = _cuts(unlearned[name], retrained[name])
            one, zero = (_counts(arm[name], side, cuts) for arm in (unlearned, retrained))
            bounds = _likely_bounds(one, zero, len(unlearned[name]), allowance(beta=beta, gamma=gamma))
            graded = [
                ((float(bounds[place]), int(one[place] - zero[place])), Event(name, side, float(cut)))
                for place, cut in enumerate(cuts)
            ]
            ranked += [max(graded, key=lambda pair: pair[0])] if graded else []
    ranked.sort(key=lambda pair: pair[0], reverse=True)
    return [event for _, event in ranked[:most]]


def _cuts(unlearned: Scores, retrained: Scores) -> Scores:
    """Cut-offs half-way between neighbouring seen values; the value itself if there is only one."""
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


def _likely_bounds(one: NDArray[np.int64], zero: NDArray[np.int64], trials: int, eta: float) -> Scores:
    """The bound on α that the counts would give at 50% confidence, at least 0."""
    low = np.where(one > 0, betaincinv(np.maximum(one, 1), trials - one + 1, 0.25), 0.0) - eta
    high = np.where(zero < trials, betainccinv(zero + 1, np.maximum(trials - zero, 1), 0.25), 1.0)
    return np.asarray(np.maximum(0.0, np.log(np.maximum(low, 1e-300) / high)))
