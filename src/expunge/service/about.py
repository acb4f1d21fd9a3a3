"""What a deployment says about itself: its promise, its state and its columns."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from expunge.core.errors import InputError
from expunge.core.words import spell_time
from expunge.folder import DurableDeployment, Replica
from expunge.service.exchange import EVERYBODY, Answer, Request, Route, as_json, tagged

if TYPE_CHECKING:
    from expunge.service.application import Host


@dataclass(frozen=True, slots=True)
class Told:
    """What every answer says about the promise.

    Parameters
    ----------
    name
        The short name of the promise, such as "exact" or "consensus".
    header
        The header field `Expunge-Promise`.
    is_exact
        Whether everything may be published.
    is_guarded
        Whether a promise is made that means anything.
    """

    name: str
    header: str
    is_exact: bool
    is_guarded: bool


def told(deployment: DurableDeployment | Replica, *, allow_unguarded: bool) -> Told:
    """What is told of a deployment; an error if it may not be served."""
    if not deployment.key_is_from_system:
        raise InputError(
            f"{deployment.path} follows from a fixed seed, so it is for tests: anybody who has the seed has the key. "
            "Create it without --seed to serve it"
        )
    name = deployment.promise_name
    if deployment.is_exact:
        return Told(name, "exact", is_exact=True, is_guarded=True)
    found = deployment.guarantee()
    if not found.is_vacuous:
        return Told(name, f"exact, {name} ({found.alpha:g}, {found.beta:g}, {found.gamma:g})", False, True)
    if not allow_unguarded:
        raise InputError(
            f"nothing guards what {deployment.path} would publish: {found.reason}. To serve it all the same, say "
            "--allow-unguarded; every answer then says so"
        )
    return Told(name, f"unguarded; no (alpha, beta, gamma) is claimed for {name}", False, False)


def longer_than_a_tick(deployment: DurableDeployment) -> str | None:
    """A sentence for the operator if a full retraining takes longer than a tick of the clock, as far as is known.

    Under (α,β,γ) the tick at which a request is applied would then tell how many shards were trained.
    """
    costs = None if deployment.is_exact else (deployment.provenance or {}).get("costs")
    if not costs or not costs["models_retrained"]:
        return None
    everything = costs["deletion"] / costs["models_retrained"] * deployment.status.num_shards
    if everything < deployment.tick_seconds:
        return None
    return (
        f"a full retraining takes about {spell_time(everything)} of processor time, and the clock ticks every "
        f"{deployment.tick_seconds} s: how late a request counts as applied may tell how many shards were trained. "
        "Create the deployment with a longer tick"
    )


def routes(service: Host, deployment: DurableDeployment | Replica) -> list[Route]:
    """The routes of this module."""

    async def promise(request: Request) -> Answer:
        return tagged(request, as_json(_promise(deployment, service.told)))

    async def status(request: Request) -> Answer:
        found = _status(deployment)
        is_operator = request.caller is not None and request.caller.role == "operator"
        if is_operator and isinstance(deployment, DurableDeployment):
            found["replicas"] = deployment.replicas
        return tagged(request, as_json(found))

    return [
        Route("GET", "/v1/promise", EVERYBODY, promise, {"summary": "What is promised about deleted records"}),
        Route("GET", "/v1/status", EVERYBODY, status, {"summary": "Records, round and requests"}),
    ]


def _promise(deployment: DurableDeployment | Replica, told: Told) -> dict[str, Any]:
    statements = [each.to_dict() for each in deployment.promise]
    return {
        "promise": told.name,
        "guarded": told.is_guarded,
        "statements": statements,
        "guarantee": deployment.guarantee().to_dict(),
    }


def _status(deployment: DurableDeployment | Replica) -> dict[str, Any]:
    found = deployment.status
    return {
        "name": found.name,
        "round": found.round,
        "records": found.num_records,
        "shards": found.num_shards,
        "pending": found.pending,
        "apply": found.apply,
        "generation": found.generation,
        "budget": None if found.budget is None else _finite(asdict(found.budget)),
    }


def _finite(data: dict[str, Any]) -> dict[str, Any]:
    """The same data, with None for a number without a limit."""
    return {name: None if value == math.inf else value for name, value in data.items()}
