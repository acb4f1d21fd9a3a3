"""What if: what this deployment would cost and promise with another number of shards, promise or traffic.

A plan is arithmetic on public numbers: records, shards, classes, traffic and a target. A measurement trains throw-away
models on the deployment's records, with public coins: it compares numbers of shards, or rehearses a consensus. Nothing
in it depends on ζ, but it is made of people's records: so it is for the operator alone.
"""

from __future__ import annotations

import asyncio
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec

from expunge.core.checks import require_number
from expunge.core.errors import ParameterError
from expunge.core.guarantee import Guarantee
from expunge.service import rehearsals
from expunge.service.access import Role
from expunge.service.audits import AUDITORS
from expunge.service.exchange import NO_STORE, Answer, Request, Route, as_json, asked, tagged
from expunge.service.problems import invalid
from expunge.theory.planning import Offer, Plan, plan
from expunge.training.choice import choose
from expunge.training.comparison import Candidate, Comparison

if TYPE_CHECKING:
    from expunge.service.application import Service
    from expunge.service.jobs import Job

OPERATOR: Final[frozenset[Role]] = frozenset({"operator"})
_MOST: Final = 1e12
LEAST_A_DAY: Final = 1e-9
TRAFFIC: Final = {"deletions_per_day": 10.0, "batches_per_day": 24.0, "predictions_per_day": 1000.0}
USUAL: Final = {"copies": 1.0, **TRAFFIC, "alpha": 5.0, "beta": 1e-3, "gamma": 1e-3}


_Share = Annotated[float, msgspec.Meta(gt=0, lt=1)]


class Measure(msgspec.Struct, forbid_unknown_fields=True):
    """What is asked of a measurement: how long it may take, and what is measured.

    The other members are for the promise "consensus". Without shards the planner says how many the target needs.
    Without copies each record is in one of them on average, or in as many as the planner says.
    """

    seconds: Annotated[float, msgspec.Meta(ge=1, le=600)] = 30.0
    promise: Literal["exact", "consensus"] = "exact"
    shards: Annotated[int, msgspec.Meta(ge=2, le=100_000)] | None = None
    copies: Annotated[float, msgspec.Meta(gt=0, le=1000)] | None = None
    alpha: Annotated[float, msgspec.Meta(gt=0, le=1000)] = 5.0
    beta: _Share = 1e-3
    gamma: _Share = 1e-3
    max_predictions: Annotated[int, msgspec.Meta(ge=1, le=10**9)] = 10**6
    max_generations: Annotated[int, msgspec.Meta(ge=1, le=10**6)] = 100


_FOR_BOTH: Final = ("seconds", "promise")


def routes(service: Service) -> list[Route]:
    """The routes of this module."""
    jobs = service.jobs

    async def make_plan(request: Request) -> Answer:
        request.only_options("shards", *USUAL)
        status, deployment = service.deployment.status, service.deployment
        shards = request.count("shards", status.num_shards, least=1, most=10**9)
        assert shards is not None
        if deployment.records.is_regression:
            return tagged(request, as_json({"plan": None, "why": "the (α,β,γ) promises count votes for classes"}))
        numbers = tuple(_number(request, name, usual) for name, usual in USUAL.items())
        made = await asyncio.to_thread(_plan, status.num_records, shards, len(deployment.classes), *numbers)
        return tagged(request, as_json({"plan": made, "why": ""}))

    async def measure(request: Request) -> Answer:
        wanted = asked(request, Measure)
        if wanted.promise == "consensus" and service.deployment.records.is_regression:
            raise invalid("a consensus counts votes for classes, and this deployment predicts numbers", field="promise")
        job = jobs.start("measure", _wished(wanted), round=service.deployment.status.round)
        return as_json(_without_result(job.to_dict()), status=202, headers=[NO_STORE])

    async def measurement(request: Request) -> Answer:
        request.only_options(*TRAFFIC)
        traffic = {name: _number(request, name, usual, least=LEAST_A_DAY) for name, usual in TRAFFIC.items()}
        found = jobs.of("measure")
        told: dict[str, Any] = {"job": _without_result(found[-1].to_dict()) if found else None}
        for name, promise, tell in (("measured", "exact", _compared), ("rehearsed", "consensus", _rehearsed)):
            done = [each for each in found if each.state == "done" and each.options["promise"] == promise]
            told[name] = None
            if done:
                facts = await asyncio.to_thread(tell, done[-1], traffic)
                told[name] = {"round": done[-1].round, "at": done[-1].ended_at, **facts}
        return as_json(told, headers=[NO_STORE])

    async def stop(request: Request) -> Answer:
        job = jobs.get("measure", request.parts["id"])
        await jobs.cancel(job)
        return as_json(_without_result(job.to_dict()), headers=[NO_STORE])

    return [
        Route("GET", "/v1/plan", AUDITORS, make_plan, {"summary": "What could be promised, and what it would cost"}),
        Route("POST", "/v1/measurements", OPERATOR, measure, _MEASURES),
        Route("GET", "/v1/measurements", OPERATOR, measurement, {"summary": "What was measured and rehearsed last"}),
        Route("DELETE", "/v1/measurements/{id}", OPERATOR, stop, {"summary": "Stop a measurement"}),
    ]


_MEASURES: Final = {"summary": "Compare numbers of shards on the records, or rehearse a consensus"}


def _wished(wanted: Measure) -> dict[str, Any]:
    """The options of the work; Problem if one would have no effect."""
    if wanted.promise == "consensus":
        return msgspec.structs.asdict(wanted)
    for name, usual in msgspec.structs.asdict(Measure()).items():
        if name not in _FOR_BOTH and getattr(wanted, name) != usual:
            raise invalid(f"{name} is for the promise consensus, not for exact", field=name)
    return {name: getattr(wanted, name) for name in _FOR_BOTH}


def _compared(done: Job, traffic: dict[str, float]) -> dict[str, Any]:
    comparison = msgspec.convert(done.result, Comparison)
    return _choice(comparison, traffic["deletions_per_day"], traffic["batches_per_day"])


def _rehearsed(done: Job, traffic: dict[str, float]) -> dict[str, Any]:
    return rehearsals.tell(done.result or {}, done.options, traffic)


def _without_result(job: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in job.items() if name != "result"}


def _number(request: Request, name: str, usual: float, *, least: float | None = None) -> float:
    text = request.options.get(name)
    if text is None:
        return usual
    try:
        value = float(text)
    except ValueError:
        raise invalid(f"{name} must be a number, got {text!r:.40}", field=name) from None
    try:
        return require_number(name, value, least=least, above=None if least else 0, most=_MOST)
    except ParameterError as error:
        raise invalid(str(error), field=name) from None


@lru_cache(maxsize=256)
def _plan(
    records: int,
    shards: int,
    classes: int,
    copies: float,
    deletions: float,
    batches: float,
    predictions: float,
    alpha: float,
    beta: float,
    gamma: float,
) -> dict[str, Any]:
    made = plan(
        num_records=max(records, 1),
        num_shards=shards,
        num_classes=max(classes, 2),
        inclusion_probability=min(1.0, copies / shards),
        target=Guarantee(alpha, beta, gamma),
        predictions_per_day=predictions,
        deletions_per_day=deletions,
        batches_per_day=batches,
    )
    return {
        "shards": shards,
        "records_per_shard": made.question.records_per_shard,
        "meaning": list(made.meaning),
        "verdict": made.verdict.words,
        "recommendation": made.verdict.recommendation,
        "recommended": made.recommended.words,
        "recommended_shards": made.recommended.num_shards,
        "recommended_copies": made.recommended.num_shards * made.recommended.inclusion_probability,
        "remarks": list(made.remarks),
        "one_model_passes": made.exact.one_model_passes_per_day,
        "ensemble_passes": made.exact.ensemble_passes_per_day,
        "batch_passes": made.deletion.passes_per_batch * made.question.updates_per_day,
        "best": None if made.best is None else made.best.name,
        "offers": [_offer(each, made) for each in made.offers if each.name != "majority"],
    }


def _offer(offer: Offer, made: Plan) -> dict[str, Any]:
    terms = offer.consensus
    return {
        "name": offer.name,
        "noise": offer.noise,
        "predictions": None if offer.is_unlimited else offer.predictions,
        "passes": offer.schedule.passes_per_day,
        "generation_days": offer.schedule.generation_days if offer.predictions else None,
        "certified_by": offer.best.theorem if offer.best else None,
        "alpha": None if offer.guarantee is None else offer.guarantee.alpha,
        "unanimous": offer.unanimous_accuracy,
        "majority": offer.majority_accuracy,
        "assumption": offer.assumption,
        "reason": "" if terms is None else terms.reason,
        "cheaper": offer.predictions > 0 and offer.schedule.passes_per_day < made.exact.cheapest,
    }


def _choice(found: Comparison, deletions: float, batches: float) -> dict[str, Any]:
    choice = choose(found, deletions_per_day=deletions, batches_per_day=batches)
    return {
        "records": found.num_records,
        "tested": found.tested,
        "refit": found.refit,
        "baseline": found.baseline.main.value,
        "most_frequent": found.most_frequent,
        "measure": "accuracy" if found.baseline.recalls else "R²",
        "chosen": choice.num_shards,
        "words": choice.words,
        "skipped": list(found.skipped),
        "candidates": [_candidate(each, deletions, batches) for each in found.candidates],
    }


def _candidate(each: Candidate, deletions: float, batches: float) -> dict[str, Any]:
    main, gap = each.scores.main, each.against_one
    return {
        "shards": each.num_shards,
        "value": main.value,
        "low": main.low,
        "high": main.high,
        "day": each.day(deletions, batches),
        "deletion": each.deletion,
        "training": each.training,
        "measured": each.measured,
        "against_one": None if gap is None else [gap.value, gap.low, gap.high],
    }
