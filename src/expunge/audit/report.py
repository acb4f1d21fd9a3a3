"""What an audit found, in numbers, and in words for the terminal and the page."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from expunge.audit.inference import Event, SignTest
from expunge.audit.trials import Trial
from expunge.core.guarantee import Guarantee

ARMS = ("before", "unlearned", "retrained")


@dataclass(frozen=True, slots=True)
class ArmCount:
    """How often the event happened in one arm, with the exact interval for its probability.

    Parameters
    ----------
    count
        How often it happened.
    trials
        In how many trials.
    interval
        The lower and the upper limit.
    """

    count: int
    trials: int
    interval: tuple[float, float]

    @property
    def rate(self) -> float:
        """The frequency; NaN if there are no trials."""
        return self.count / self.trials if self.trials else math.nan

    def to_dict(self) -> dict[str, Any]:
        """The counts as a mapping for JSON."""
        rate = self.rate if self.trials else None
        return {"count": self.count, "trials": self.trials, "rate": rate, "interval": list(self.interval)}


@dataclass(frozen=True, slots=True)
class KnownNull:
    """Exact two-sided binomial tests of both arms, if symmetry gives the event's probability after retraining."""

    value: float
    control_p_value: float
    unlearned_p_value: float


@dataclass(frozen=True, slots=True)
class RunTime:
    """N^t against Theorem 4.2: how often more shards would be retrained than the bound allows.

    Parameters
    ----------
    failure
        The probability with which `adaptive` may be exceeded.
    adaptive
        The bound on the number of shards, for any requester.
    oblivious
        The bound for requests chosen in advance. The difference shows what adaptivity gains.
    largest
        The largest number of shards that was seen.
    exceeded
        How often `adaptive` was exceeded.
    alarm
        Whether the trials contradict the bound.
    """

    failure: float
    adaptive: int
    oblivious: int
    largest: int
    exceeded: ArmCount
    alarm: bool

    def to_dict(self) -> dict[str, Any]:
        """The numbers as a mapping for JSON."""
        return {
            "failure": self.failure,
            "adaptive_bound": self.adaptive,
            "oblivious_bound": self.oblivious,
            "largest": self.largest,
            "exceeded": self.exceeded.to_dict(),
            "alarm": self.alarm,
        }


@dataclass(frozen=True)
class AuditReport:
    """The outcome of an audit.

    Parameters
    ----------
    scenario, about, scheme, setting, requester
        What was audited: names, one line about the data and the attack, what was published, and who asked.
    parameters
        What the scenario and the scheme were made from.
    seed
        The seed that repeats the audit.
    significance, confidence
        The options of the audit.
    tests
        The sign test of every statistic.
    decisive
        The test with the smallest p-value.
    log10_p
        log₁₀ of that p-value times the number of tests.
    event
        The event that the intervals and the bound on α are about.
    num_events
        How many events were evaluated. The failure probability of the bound on α is divided among them.
    num_choosing
        How many trials, from the first on, chose the events and were then left out.
    before, unlearned, retrained
        How often the event happened before any request, after unlearning, and after full retraining.
    alpha_lower
        The lower bound on α.
    guarantee
        What the scheme claims for what was published.
    beta, gamma
        The β and γ for which α is bounded.
    known_null
        The tests against a probability known by symmetry; None if there is none.
    run_time
        How many shards a deletion retrains, against Theorem 4.2; None if that was not measured.
    trials
        The raw numbers. Everything else is computed from them.

    Examples
    --------
    >>> from expunge.audit import audit, lookup_scenario, make_scheme
    >>> scenario = lookup_scenario(num_pairs=10)
    >>> report = audit(scenario, make_scheme("sisa", scenario), num_trials=20, seed=1)
    >>> report.rejected, report.alarm, report.alpha_certified, len(report.trials)
    (True, False, inf, 20)
    >>> report.decisive.statistic
    'shards that know a surviving record'
    """

    scenario: str
    about: str
    scheme: str
    setting: str
    requester: str
    parameters: Mapping[str, Any]
    seed: int
    significance: float
    confidence: float
    tests: tuple[SignTest, ...]
    decisive: SignTest
    log10_p: float
    event: Event
    num_events: int
    num_choosing: int
    before: ArmCount
    unlearned: ArmCount
    retrained: ArmCount
    alpha_lower: float
    guarantee: Guarantee
    beta: float
    gamma: float
    known_null: KnownNull | None
    run_time: RunTime | None
    trials: tuple[Trial, ...]

    @property
    def p_value(self) -> float:
        """The p-value of the exact sign test, times the number of statistics."""
        return min(1.0, 10**self.log10_p)

    @property
    def rejected(self) -> bool:
        """Whether (0,0,0)-unlearning is rejected at the stated significance."""
        return self.log10_p <= math.log10(self.significance)

    @property
    def alpha_certified(self) -> float:
        """The certificate's α; infinite if nothing is certified for what was published."""
        return math.inf if self.guarantee.note else self.guarantee.alpha

    @property
    def alarm(self) -> bool:
        """Whether the trials contradict the certificate: the lower bound on α is above its α, or Theorem 4.2 fails."""
        return self.alpha_lower > self.alpha_certified or (self.run_time is not None and self.run_time.alarm)

    @property
    def verdict(self) -> str:
        """The outcome in one sentence."""
        if self.alarm:
            return "ALARM: the trials contradict the certificate"
        if not self.rejected:
            return "no difference from full retraining was found"
        if math.isinf(self.alpha_certified):
            return "the updated models differ from retrained ones, and nothing is promised that would forbid it"
        return "the updated models differ from retrained ones, within what the certificate allows"

    def to_dict(self) -> dict[str, Any]:
        """The report as a mapping for JSON, without the raw trials; an infinite α is written as None."""
        certified = self.alpha_certified
        return {
            "scenario": self.scenario,
            "about": self.about,
            "scheme": self.scheme,
            "setting": self.setting,
            "requester": self.requester,
            "parameters": dict(self.parameters),
            "seed": self.seed,
            "trials": len(self.trials),
            "rejected": self.rejected,
            "p_value": self.p_value,
            "log10_p_value": self.log10_p,
            "significance": self.significance,
            "test": _test_words(self.decisive, len(self.tests)),
            "tests": [_test(test) for test in self.tests],
            "event": {"statistic": self.event.statistic, "side": self.event.side, "cut": self.event.cut},
            "events_evaluated": self.num_events,
            "trials_to_choose_the_event": self.num_choosing,
            "confidence": self.confidence,
            "before": self.before.to_dict(),
            "unlearned": self.unlearned.to_dict(),
            "retrained": self.retrained.to_dict(),
            "beta": self.beta,
            "gamma": self.gamma,
            "alpha_lower": self.alpha_lower,
            "alpha_certified": certified if math.isfinite(certified) else None,
            "certificate": self.guarantee.to_dict(),
            "alarm": self.alarm,
            "verdict": self.verdict,
            "known_null": None if self.known_null is None else _null(self.known_null),
            "run_time": None if self.run_time is None else self.run_time.to_dict(),
        }


def _test(test: SignTest) -> dict[str, Any]:
    return {
        "statistic": test.statistic,
        "unlearned_larger": test.unlearned_larger,
        "retrained_larger": test.retrained_larger,
        "ties": test.ties,
        "p_value": test.p_value,
        "log10_p_value": test.log10_p,
    }


def _test_words(decisive: SignTest, num_tests: int) -> str:
    times = f", Bonferroni over {num_tests} statistics" if num_tests > 1 else ""
    return f"exact two-sided sign test between the arms of each trial, on {decisive.statistic!r}{times}"


def _null(known: KnownNull) -> dict[str, float]:
    return {
        "value": known.value,
        "control_p_value": known.control_p_value,
        "unlearned_p_value": known.unlearned_p_value,
    }


_REQUESTERS = {
    "correct": "The requester deleted every record that was labelled correctly.",
    "one-by-one": "The requester deleted every record that was labelled correctly, one a round.",
    "random-correct": "The requester deleted a random part of the records that were labelled correctly.",
    "random": "The requester deleted records that were chosen in advance.",
    "add": "The requester added copies of the records that were labelled wrongly, round after round.",
    "targeted": "The requester deleted the records that one half of the models seemed to know best.",
    "these": "The requester deleted records that were chosen in advance.",
    "most-shards": "The requester deleted the record believed to sit in the most shards, round after round.",
}


def rate_words(value: float) -> str:
    """A measured probability with three decimals, or in scientific notation if it is small; – if undefined."""
    if math.isnan(value):
        return "–"
    return f"{value:.3f}" if value >= 0.001 or value == 0 else f"{value:.1e}"


def requester_words(name: str) -> str:
    """Say what the requester did."""
    return _REQUESTERS.get(name, "The requester was the user's own.")


def event_words(report: AuditReport) -> str:
    """Describe the event."""
    if report.event.cut == 0.5 and report.num_choosing == 0:
        return report.event.statistic
    return f"{report.event.statistic}: {report.event.side} {report.event.cut:.4g}"


def p_words(report: AuditReport) -> str:
    """Say whether the test rejects (0,0,0)-unlearning."""
    p = f"{report.p_value:.3g}" if report.p_value > 0 else f"10^{report.log10_p:.0f}"
    if report.rejected:
        return (
            "That updating is the same as training from scratch is rejected: by accident this would be seen with "
            f"probability at most {p}."
        )
    return f"That updating is the same as training from scratch is not rejected (p = {p})."


def certificate_words(report: AuditReport) -> str:
    """Compare the lower bound on α with the certificate's α."""
    lower, certified = report.alpha_lower, report.alpha_certified
    shown = f"The trials show that α is at least {lower:.3g}" if lower > 0 else "The trials give no bound on α"
    if math.isinf(certified):
        return f"{shown}; nothing is certified: {report.guarantee.reason}."
    if lower > certified:
        return f"{shown}, but α ≤ {certified:.3g} is certified."
    return f"{shown}; α ≤ {certified:.3g} is certified."
