"""Exact (Clopper–Pearson) confidence limits for a probability."""

from __future__ import annotations

from scipy.special import betainccinv, betaincinv

from expunge.errors import ParameterError


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
