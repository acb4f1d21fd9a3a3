"""The audit in words, for the terminal and for the page."""

from __future__ import annotations

import math

from expunge.audit.report import AuditReport

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


def chance(value: float) -> str:
    """A probability with as many digits as make sense."""
    if math.isnan(value):
        return "–"
    return f"{value:.3f}" if value >= 0.001 or value == 0 else f"{value:.1e}"


def requester_words(name: str) -> str:
    """What the requester did."""
    return _REQUESTERS.get(name, "The requester was the user's own.")


def event_words(report: AuditReport) -> str:
    """The event, in words."""
    if report.event.cut == 0.5 and report.num_choosing == 0:
        return report.event.statistic
    return f"{report.event.statistic}: {report.event.side} {report.event.cut:.4g}"


def p_words(report: AuditReport) -> str:
    """The test of (0,0,0)-unlearning."""
    p = f"{report.p_value:.3g}" if report.p_value > 0 else f"10^{report.log10_p:.0f}"
    if report.rejected:
        return (
            "That updating is the same as training from scratch is rejected: by accident this would be seen with "
            f"probability at most {p}."
        )
    return f"That updating is the same as training from scratch is not rejected (p = {p})."


def certificate_words(report: AuditReport) -> str:
    """The two bounds on α beside each other."""
    lower, certified = report.alpha_lower, report.alpha_certified
    shown = f"The trials show that α is at least {lower:.3g}" if lower > 0 else "The trials give no bound on α"
    if math.isinf(certified):
        return f"{shown}; nothing is certified: {report.guarantee.reason}."
    if lower > certified:
        return f"{shown}, but α ≤ {certified:.3g} is certified."
    return f"{shown}; α ≤ {certified:.3g} is certified."
