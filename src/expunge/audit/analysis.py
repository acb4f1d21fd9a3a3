"""An audit from beginning to end: run the trials, and say what they prove.

The report has the test, the event, the intervals, the bound on α, and the certificate beside it.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import binomtest

from expunge.audit import inference
from expunge.audit.inference import Event, Scores
from expunge.audit.report import ARMS, ArmCount, AuditReport, KnownNull, RunTime
from expunge.audit.scenario import Scenario, Scheme
from expunge.audit.statistics import HOLDERS
from expunge.audit.trials import Progress, Trial, no_progress, read_header, run_trials
from expunge.core.checks import require_count, require_number
from expunge.core.errors import ParameterError
from expunge.core.guarantee import Guarantee
from expunge.theory import adaptive_quantile, oblivious_quantile

_LEAST_TRIALS, _MOST_TRIALS = 4, 10_000_000
_CHOOSING_SHARE = 1 / 3
_MOST_EVENTS = 3
_RUN_TIME_FAILURE = 1e-3
_MODELS_SHOWN = "whole models were published, which no certificate of released labels covers"

Table = dict[str, dict[str, Scores]]


def audit(
    scenario: Scenario,
    scheme: Scheme[Any],
    *,
    num_trials: int = 100,
    seed: int | None = None,
    n_jobs: int | None = None,
    resume: Path | None = None,
    significance: float = 0.05,
    confidence: float = 0.95,
    beta: float = 1e-3,
    gamma: float = 1e-3,
    progress: Progress = no_progress,
) -> AuditReport:
    """Play many trials of a scenario against a scheme, and weigh the evidence.

    Each trial plays the scenario's requester against the scheme, then trains from scratch on the records that are left,
    and takes the scenario's statistics of both. A trial depends on the seed and its number alone, so neither `n_jobs`
    nor interruptions change any number.

    Parameters
    ----------
    scenario
        The attack.
    scheme
        What is attacked.
    num_trials
        How many trials; at least 4.
    seed
        Makes the audit repeatable. None draws a new seed, or takes the one in the file `resume`. The report has it.
    n_jobs
        How many processes, as in scikit-learn: None or 1 for this process, -1 for all cores.
    resume
        A file of finished trials, which is continued, or made if it does not exist.
    significance
        (0,0,0)-unlearning is rejected at this level: a perfect scheme is rejected that often.
    confidence
        Of the intervals, and of the lower bound on α.
    beta, gamma
        The bound on α is for the certificate's β and γ. If the scheme has no certificate, it is for these.
    progress
        A context manager that is given a description and the number of trials, and yields a function to call with the
        number of trials just finished.

    Returns
    -------
    AuditReport
        What was found.

    Raises
    ------
    ParameterError
        If an option is out of range.
    InputError
        If `resume` is not a file of this audit's trials, or the scheme cannot publish what the scenario needs.

    Examples
    --------
    >>> from expunge.audit import lookup_scenario, make_scheme
    >>> scenario = lookup_scenario(num_pairs=10)
    >>> audit(scenario, make_scheme("sisa", scenario), num_trials=20, seed=1).rejected
    True
    >>> audit(scenario, make_scheme("retrain", scenario), num_trials=20, seed=1).rejected
    False
    """
    require_count("num_trials", num_trials, least=_LEAST_TRIALS, most=_MOST_TRIALS)
    require_number("significance", significance, above=0, below=1)
    require_number("confidence", confidence, above=0, below=1)
    require_number("beta", beta, least=0, below=1)
    require_number("gamma", gamma, least=0, below=1)
    seed = _choose_seed(seed, resume)
    trials = run_trials(
        scenario, scheme, num_trials=num_trials, seed=seed, n_jobs=n_jobs, resume=resume, progress=progress
    )
    return analyse(
        scenario,
        scheme,
        trials,
        seed=seed,
        significance=significance,
        confidence=confidence,
        beta=beta,
        gamma=gamma,
    )


def _choose_seed(seed: int | None, resume: Path | None) -> int:
    """The seed that was given, or that of the file to be continued, or a new one."""
    if seed is None and resume is not None:
        header = read_header(resume)
        seed = None if header is None else header.get("seed")
    return secrets.randbits(48) if seed is None else require_count("seed", seed, least=0)


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
    """Compute the report from the trials. Nothing here is random."""
    table = {arm: _scores(trials, arm) for arm in ARMS}
    tests = tuple(
        inference.sign_test(name, table["unlearned"][name], table["retrained"][name]) for name in table["unlearned"]
    )
    decisive, log10_p = inference.most_significant(tests)
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
    """What the scheme claims for what was published. A perfect claim holds for everything that is published."""
    claimed = scheme.guarantee(beta=beta, gamma=gamma)
    is_perfect = claimed.alpha == claimed.beta == claimed.gamma == 0 and not claimed.note
    if scenario.setting == "models" and not claimed.note and not is_perfect:
        return Guarantee(math.inf, beta, gamma, note=_MODELS_SHOWN)
    return claimed


def _events(scenario: Scenario, table: Table, num_trials: int, beta: float, gamma: float) -> tuple[list[Event], int]:
    """Choose the events to look for, and say how many trials, from the first on, were used for it."""
    if scenario.event is not None:
        return [scenario.event], 0
    num = max(1, int(num_trials * _CHOOSING_SHARE))
    chosen = {arm: {name: values[:num] for name, values in table[arm].items()} for arm in ("unlearned", "retrained")}
    events = inference.choose_events(
        chosen["unlearned"], chosen["retrained"], most=_MOST_EVENTS, beta=beta, gamma=gamma
    )
    return events or [Event(next(iter(table["unlearned"])), "at least", 0.0)], num


def _bound(event: Event, rest: Table, *, confidence: float, beta: float, gamma: float) -> float:
    unlearned, retrained = (event.happened(rest[arm][event.statistic]) for arm in ("unlearned", "retrained"))
    return inference.alpha_lower_bound(
        int(unlearned.sum()), int(retrained.sum()), len(unlearned), beta=beta, gamma=gamma, confidence=confidence
    )


def _count(event: Event, scores: dict[str, Scores], confidence: float) -> ArmCount:
    values = scores[event.statistic]
    count = int(event.happened(values).sum())
    return ArmCount(count, len(values), inference.clopper_pearson(count, len(values), confidence=confidence))


def _count_before(event: Event, scores: dict[str, Scores], confidence: float) -> ArmCount:
    """Count the event before any request, in the trials in which the statistic (of what is deleted, say) is defined."""
    defined = scores[event.statistic][np.isfinite(scores[event.statistic])]
    return _count(event, {event.statistic: defined}, confidence)


def _known_null(scenario: Scenario, scheme: Scheme[Any], counts: dict[str, ArmCount]) -> KnownNull | None:
    """Test both arms against the known probability. Symmetry needs as many targeted shards as others."""
    if scenario.null_value is None or getattr(scheme, "num_shards", 0) % 2:
        return None
    p_values = [
        float(binomtest(counts[arm].count, counts[arm].trials, scenario.null_value).pvalue)
        for arm in ("retrained", "unlearned")
    ]
    return KnownNull(scenario.null_value, *p_values)


def _run_time(scenario: Scenario, scheme: Scheme[Any], table: Table, confidence: float) -> RunTime | None:
    """Compare the deletion named after the last round with Theorem 4.2, which needs independent shards."""
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
    exceeded = ArmCount(count, len(seen), inference.clopper_pearson(count, len(seen), confidence=confidence))
    alarm = inference.lower_limit(count, len(seen), failure=1 - confidence) > _RUN_TIME_FAILURE
    return RunTime(_RUN_TIME_FAILURE, adaptive, oblivious, int(seen.max()), exceeded, alarm)


def _scheme_parameters(scheme: Scheme[Any]) -> dict[str, Any]:
    sampler = getattr(scheme, "sampler", None)
    found: dict[str, Any] = {}
    if hasattr(scheme, "num_shards"):
        found["num_shards"] = scheme.num_shards
        if sampler is not None:
            found["inclusion_probability"] = sampler.inclusion_probability(scheme.num_shards)
    return found
