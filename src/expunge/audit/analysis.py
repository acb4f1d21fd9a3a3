"""From the trials to the report: the test, the event, the intervals, the bound on α, and the certificate beside it.

Exact (Clopper–Pearson) confidence limits for a probability.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.stats import binomtest

from expunge.audit.evidence import (
    Event,
    Scores,
    alpha_lower_bound,
    choose_events,
    clopper_pearson,
    lower_limit,
    sign_test,
    strongest,
)
from expunge.audit.report import ARMS, ArmCount, AuditReport, KnownNull, RunTime
from expunge.audit.scenario import Scenario
from expunge.audit.scenarios.slow_down import HOLDERS
from expunge.audit.schemes import Scheme
from expunge.audit.trials import Trial
from expunge.core.errors import ParameterError
from expunge.theory import Guarantee, adaptive_quantile, oblivious_quantile

_CHOOSING_SHARE = 1 / 3
_MOST_EVENTS = 3
_RUN_TIME_FAILURE = 1e-3
_MODELS_SHOWN = "whole models were published, which no certificate of released labels covers"

Table = dict[str, dict[str, Scores]]


def analyse(
    scenario: Scenario,
    scheme: Scheme[Any],
    trials: Sequence[Trial],
    *,
    seed: int,
    significance: float,
    confidence: float,
    beta: float,
    gamma: float,
) -> AuditReport:
    """Everything that the trials say. Nothing here is random."""
    table = {arm: _scores(trials, arm) for arm in ARMS}
    tests = tuple(sign_test(name, table["unlearned"][name], table["retrained"][name]) for name in table["unlearned"])
    decisive, log10_p = strongest(tests)
    guarantee = _guarantee(scenario, scheme, beta, gamma)
    # The bound on α is for the certificate's own β and γ, so that the two can be compared.
    beta, gamma = (beta, gamma) if guarantee.note else (guarantee.beta, guarantee.gamma)
    events, num_choosing = _events(scenario, table, len(trials), beta, gamma)
    rest = {arm: {name: values[num_choosing:] for name, values in table[arm].items()} for arm in ARMS}
    share = 1 - (1 - confidence) / len(events)
    bounds = [_bound(event, rest, confidence=share, beta=beta, gamma=gamma) for event in events]
    best = max(range(len(events)), key=lambda place: bounds[place])
    event = events[best]
    counts = {arm: _count(event, rest[arm], confidence) for arm in ("unlearned", "retrained")}
    return AuditReport(
        scenario=scenario.name,
        about=scenario.about,
        scheme=scheme.name,
        setting=scenario.setting,
        requester=str(scenario.parameters.get("requester", "")),
        parameters={**_scheme_parameters(scheme), **scenario.parameters},
        seed=seed,
        significance=significance,
        confidence=confidence,
        tests=tests,
        decisive=decisive,
        log10_p=log10_p,
        event=event,
        num_events=len(events),
        num_choosing=num_choosing,
        before=_count_before(event, rest["before"], confidence),
        unlearned=counts["unlearned"],
        retrained=counts["retrained"],
        alpha_lower=bounds[best],
        guarantee=guarantee,
        beta=beta,
        gamma=gamma,
        known_null=_known_null(scenario, scheme, counts),
        run_time=_run_time(scenario, scheme, table, confidence),
        trials=tuple(trials),
    )


def _scores(trials: Sequence[Trial], arm: str) -> dict[str, Scores]:
    rows = [getattr(trial, arm) for trial in trials]
    names = list(trials[0].unlearned)
    if any(list(row) != names for row in rows):
        raise ParameterError("the trials are of different audits: their statistics differ")
    return {name: np.array([row[name] for row in rows], dtype=np.float64) for name in names}


def _guarantee(scenario: Scenario, scheme: Scheme[Any], beta: float, gamma: float) -> Guarantee:
    """What is claimed of what was published. Perfect claims hold whatever is published."""
    claimed = scheme.guarantee(beta=beta, gamma=gamma)
    is_perfect = claimed.alpha == claimed.beta == claimed.gamma == 0 and not claimed.note
    if scenario.setting == "models" and not claimed.note and not is_perfect:
        return Guarantee(math.inf, beta, gamma, note=_MODELS_SHOWN)
    return claimed


def _events(scenario: Scenario, table: Table, num_trials: int, beta: float, gamma: float) -> tuple[list[Event], int]:
    """The events to look for, and how many trials, from the first on, went into choosing them."""
    if scenario.event is not None:
        return [scenario.event], 0
    num = max(1, int(num_trials * _CHOOSING_SHARE))
    chosen = {arm: {name: values[:num] for name, values in table[arm].items()} for arm in ("unlearned", "retrained")}
    events = choose_events(chosen["unlearned"], chosen["retrained"], most=_MOST_EVENTS, beta=beta, gamma=gamma)
    return events or [Event(next(iter(table["unlearned"])), "at least", 0.0)], num


def _bound(event: Event, rest: Table, *, confidence: float, beta: float, gamma: float) -> float:
    unlearned, retrained = (event.happened(rest[arm][event.statistic]) for arm in ("unlearned", "retrained"))
    return alpha_lower_bound(
        int(unlearned.sum()), int(retrained.sum()), len(unlearned), beta=beta, gamma=gamma, confidence=confidence
    )


def _count(event: Event, scores: dict[str, Scores], confidence: float) -> ArmCount:
    values = scores[event.statistic]
    count = int(event.happened(values).sum())
    return ArmCount(count, len(values), clopper_pearson(count, len(values), confidence=confidence))


def _count_before(event: Event, scores: dict[str, Scores], confidence: float) -> ArmCount:
    """Before any request some statistics (of what was deleted, say) are not defined; such trials are left out."""
    defined = scores[event.statistic][np.isfinite(scores[event.statistic])]
    return _count(event, {event.statistic: defined}, confidence)


def _known_null(scenario: Scenario, scheme: Scheme[Any], counts: dict[str, ArmCount]) -> KnownNull | None:
    """Symmetry needs as many targeted shards as others."""
    if scenario.null_value is None or getattr(scheme, "num_shards", 0) % 2:
        return None
    p_values = [
        float(binomtest(counts[arm].count, counts[arm].trials, scenario.null_value).pvalue)
        for arm in ("retrained", "unlearned")
    ]
    return KnownNull(scenario.null_value, *p_values)


def _run_time(scenario: Scenario, scheme: Scheme[Any], table: Table, confidence: float) -> RunTime | None:
    """Theorem 4.2 for the deletion that was named after the last round; only independent shards have the bound."""
    seen = table["unlearned"].get(HOLDERS)
    sampler = getattr(scheme, "sampler", None)
    if seen is None or sampler is None or not sampler.is_independent or not np.isfinite(seen).any():
        return None
    seen = seen[np.isfinite(seen)]
    k: int = scheme.num_shards  # type: ignore[attr-defined]
    p = sampler.inclusion_probability(k)
    num_records = len(scenario.task.records) + scenario.max_rounds + 1
    adaptive = adaptive_quantile(
        num_shards=k,
        inclusion_probability=p,
        failure=_RUN_TIME_FAILURE,
        num_records=num_records,
        num_generations=getattr(scheme, "max_generations", 1) + 1,
    )
    oblivious = oblivious_quantile(num_shards=k, inclusion_probability=p, failure=_RUN_TIME_FAILURE)
    count = int((seen > adaptive).sum())
    exceeded = ArmCount(count, len(seen), clopper_pearson(count, len(seen), confidence=confidence))
    alarm = lower_limit(count, len(seen), failure=1 - confidence) > _RUN_TIME_FAILURE
    return RunTime(_RUN_TIME_FAILURE, adaptive, oblivious, int(seen.max()), exceeded, alarm)


def _scheme_parameters(scheme: Scheme[Any]) -> dict[str, Any]:
    sampler = getattr(scheme, "sampler", None)
    found: dict[str, Any] = {}
    if hasattr(scheme, "num_shards"):
        found["num_shards"] = scheme.num_shards
        if sampler is not None:
            found["inclusion_probability"] = sampler.inclusion_probability(scheme.num_shards)
    return found
