"""Audits over HTTP: recomputations of the models in service, and attacks on a copy of the deployment in two arms.

Both run beside the service (`expunge.service.jobs`). Which shards differ, and how long they took, depends on ζ: under
(α,β,γ) recomputations are for the operator alone. The attacks train ensembles of their own from fresh randomness, so
nothing about them depends on ζ; but they are made of people's records, so they are for auditors and operators.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec

from expunge.core.words import seconds_of
from expunge.folder.disclosure import record_recomputation
from expunge.service.access import Role
from expunge.service.exchange import NO_STORE, Answer, Request, Route, as_json, asked
from expunge.service.jobs import Job
from expunge.service.problems import Problem

if TYPE_CHECKING:
    from expunge.service.application import Service

AUDITORS: Final[frozenset[Role]] = frozenset({"auditor", "operator"})
_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]
_MOST_SHARDS: Final = 10**9


class Recompute(msgspec.Struct, forbid_unknown_fields=True):
    """What is asked of a recomputation: how many shards, the auditor's seed, and whether the log is to tell of it."""

    shards: Annotated[int, msgspec.Meta(ge=1, le=_MOST_SHARDS)] | Literal["all"] = 20
    seed: _Text | None = None
    record: bool = False


class Audit(msgspec.Struct, forbid_unknown_fields=True):
    """What is asked of an attack: which one, how often, and on how many records."""

    scenario: Literal["label-only", "white-box", "membership", "slow-down", "lookup"] = "label-only"
    trials: Annotated[int, msgspec.Meta(ge=2, le=2000)] = 40
    records: Annotated[int, msgspec.Meta(ge=5)] | None = 300


def routes(service: Service) -> list[Route]:
    """The routes of this module."""
    jobs = service.jobs

    def admit(request: Request) -> None:
        if not service.told.is_exact and request.caller is not None and request.caller.role != "operator":
            raise Problem(
                403,
                "forbidden",
                "under this promise what a recomputation finds, and how long it takes, is for the operator; an auditor "
                "gets a bundle (expunge export --for-audit)",
            )

    async def recompute(request: Request) -> Answer:
        admit(request)
        wanted = asked(request, Recompute)
        options = {"shards": wanted.shards, "seed": wanted.seed}
        job = jobs.start("recompute", options, round=service.deployment.status.round)
        if wanted.record:
            jobs.when_done(job, lambda: _record(service, job))
        return _accepted(job, "/v1/recompute")

    async def audit(request: Request) -> Answer:
        wanted = asked(request, Audit)
        if service.deployment.records.is_regression and wanted.scenario != "lookup":
            raise Problem(409, "conflict", "the attacks look at labels, and this deployment predicts numbers")
        options = {"scenario": wanted.scenario, "trials": wanted.trials, "records": wanted.records}
        return _accepted(jobs.start("audit", options, round=service.deployment.status.round), "/v1/audits")

    async def list_recomputations(request: Request) -> Answer:
        admit(request)
        return _told({"recomputations": [each.to_dict() for each in reversed(jobs.of("recompute"))]})

    async def list_audits(request: Request) -> Answer:
        return _told({"audits": [each.to_dict(leave_out=["page"]) for each in reversed(jobs.of("audit"))]})

    async def one_recomputation(request: Request) -> Answer:
        admit(request)
        return _told(jobs.get("recompute", request.parts["id"]).to_dict())

    async def one_audit(request: Request) -> Answer:
        found = jobs.get("audit", request.parts["id"])
        if "text/html" not in (request.headers.get("accept") or ""):
            return _told(found.to_dict(leave_out=["page"]))
        if found.result is None:
            raise Problem(409, "conflict", "the audit is not done")
        return Answer(found.result["page"].encode(), "text/html; charset=utf-8", headers=[NO_STORE])

    async def stop_recomputation(request: Request) -> Answer:
        admit(request)
        return await _stopped(service, jobs.get("recompute", request.parts["id"]))

    async def stop_audit(request: Request) -> Answer:
        return await _stopped(service, jobs.get("audit", request.parts["id"]))

    return [
        Route("POST", "/v1/recompute", AUDITORS, recompute, {"summary": "Train shards again and compare bits"}),
        Route("GET", "/v1/recompute", AUDITORS, list_recomputations, {"summary": "Recomputations, newest first"}),
        Route("GET", "/v1/recompute/{id}", AUDITORS, one_recomputation, {"summary": "How far a recomputation is"}),
        Route("DELETE", "/v1/recompute/{id}", AUDITORS, stop_recomputation, {"summary": "Stop a recomputation"}),
        Route("POST", "/v1/audits", AUDITORS, audit, {"summary": "Attack a copy of the deployment in two arms"}),
        Route("GET", "/v1/audits", AUDITORS, list_audits, {"summary": "Audits, newest first"}),
        Route("GET", "/v1/audits/{id}", AUDITORS, one_audit, {"summary": "How far an audit is; its page as HTML"}),
        Route("DELETE", "/v1/audits/{id}", AUDITORS, stop_audit, {"summary": "Stop an audit"}),
    ]


def _told(data: dict[str, Any]) -> Answer:
    return as_json(data, headers=[NO_STORE])


def _accepted(job: Job, path: str) -> Answer:
    return as_json(job.to_dict(), status=202, headers=[("location", f"{path}/{job.id}"), NO_STORE])


async def _stopped(service: Service, job: Job) -> Answer:
    await service.jobs.cancel(job)
    return _told(job.to_dict(leave_out=["page"]))


async def _record(service: Service, job: Job) -> None:
    """Write a recomputation into the log; the entry is dated from its beginning."""
    found = job.result
    assert found is not None
    if not service.told.is_exact:  # the log, which others see, grows on a tick: how long the work took depends on ζ
        tick = service.deployment.tick_seconds
        await asyncio.sleep(tick - time.time() % tick)
    await asyncio.to_thread(
        record_recomputation,
        service.deployment,
        generation=found["generation"],
        round=found["round"],
        begun=float(seconds_of(job.started_at)),
        num_checked=found["num_checked"],
        num_different=len(found["different"]),
        agrees=found["agrees"],
        chosen_by=found["chosen_by"],
        checkpoint=None,
    )
    found["recorded"] = True
