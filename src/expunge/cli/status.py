"""`expunge status`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from expunge.cli.app import app
from expunge.cli.costs import costs_of, tell_costs
from expunge.cli.create import advice_for, count_shards, tell_promise
from expunge.cli.desk import request_facts
from expunge.cli.folders import opened, settle
from expunge.cli.output import AsJson, Folder, Trust, console, say, show_json
from expunge.cli.report import tell_figures, tell_report
from expunge.core.words import plural

if TYPE_CHECKING:
    from expunge.folder import DeploymentView, DurableDeployment, DurableStatus, Request
    from expunge.serving.publishing import BudgetStatus, Publisher
    from expunge.training.environment import Origins

_STATES = ("applied", "pending", "cancelled")
_MOST_NAMED = 10


@app.command()
def status(
    folder: Folder,
    request: Annotated[str | None, typer.Option(metavar="REQUEST", help="Show the state of this request only.")] = None,
    inside: Annotated[
        bool, typer.Option("--inside", help="Add what depends on the secret randomness: for operators only.")
    ] = False,
    trust: Trust = None,
    as_json: AsJson = False,
) -> None:
    """Show the state of a deployment: records, requests, budget, and what is promised at this moment.

    It only reads, so it works while another process serves the folder. `--inside` needs the folder for itself.

    Example: `expunge status churn/ --json`
    """
    from expunge.folder import open_view

    settle(folder)
    with open_view(folder) as view:
        if request is not None:
            _show_request(view.request(request), as_json=as_json)
            return
        facts, secret = view.status, None
        if inside:
            with opened(folder, trust=trust) as deployment:
                secret = _inside(deployment)
        # How long trainings take is secret under (α,β,γ), as everything that depends on the key.
        shows_costs = inside or view.promise_name == "exact"
        if as_json:
            found, costs = _as_data(view, facts, folder, tuple(trust or ())), {"costs": view.provenance.get("costs")}
            if view.promise_name == "exact":
                found |= costs
            elif secret is not None:
                secret |= costs
            show_json(found | ({} if secret is None else {"inside": secret}))
        else:
            _tell(view, facts, folder, tuple(trust or ()), shows_costs=shows_costs)
            if secret is not None:
                _tell_inside(secret)


def _counts(view: DeploymentView) -> dict[str, int]:
    states = [request.public_state for request in view.requests()]
    return {state: states.count(state) for state in _STATES}


def _pending(view: DeploymentView) -> list[str]:
    return [request.request for request in view.requests() if request.public_state == "pending"]


def _as_data(view: DeploymentView, facts: DurableStatus, folder: Path, trust: Sequence[str]) -> dict[str, Any]:
    guarantee = view.guarantee()
    return {
        "folder": str(folder),
        "name": facts.name,
        "generation": facts.generation,
        "round": facts.round,
        "records": facts.num_records,
        "records_at": view.records_at,
        "shards": facts.num_shards,
        "pending": facts.pending,
        "pending_requests": _pending(view),
        "requests": _counts(view),
        "apply": facts.apply,
        "replicas": view.replicas,
        "budget": None if facts.budget is None else _budget(facts.budget),
        "promise": [each.to_dict() for each in view.promise],
        "environment": view.origins(trust=trust).to_dict(),
        "key_is_from_system": view.key_is_from_system,
        "guarantee": guarantee.to_dict(),
        "advice": advice_for(guarantee, view.provenance),
        "report": view.provenance.get("report"),
        **view.figures,
    }


def _budget(budget: BudgetStatus) -> dict[str, Any]:
    return {name: _finite(value) for name, value in asdict(budget).items()}


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and math.isinf(value) else value


def _tell(view: DeploymentView, facts: DurableStatus, folder: Path, trust: Sequence[str], *, shows_costs: bool) -> None:
    counts = _counts(view)
    name = escape(str(folder))
    generation = "" if facts.generation is None else f"generation {facts.generation}, "
    console.print(f"[bold]{name}[/bold]: {generation}round {facts.round}", soft_wrap=True)
    at = "" if view.records_at is None else f", kept in {view.records_at}"
    say(f"{facts.num_records:,} records in {count_shards(facts.num_shards)}{at}")
    say(
        f"requests: {counts['applied']:,} applied, {facts.pending:,} pending, {counts['cancelled']:,} cancelled; "
        f"new ones are applied {_rule(facts.apply)}"
    )
    waiting = _pending(view)
    for request in waiting[:_MOST_NAMED]:
        say(f"pending: {request}")
    if len(waiting) > _MOST_NAMED:
        say(f"and {len(waiting) - _MOST_NAMED:,} more, all of them with --json")
    if view.promise_name == "exact":
        say("predictions: without a limit, and not counted")
    elif facts.budget is None:
        say("predictions: how many there were and what is left, and the generation, is for operators (--inside)")
    else:
        say(f"predictions in this generation: {facts.budget.predictions:,}, {_left(facts.budget)}")
    for each in view.replicas:
        at = "reads the folder" if each["round"] is None else f"answers from round {each['round']}"
        say(f"replica, process {each['process']}: {at}, with leases of {each['lease']:g} s")
    _tell_environment(view.origins(trust=trust))
    if not view.key_is_from_system:
        say("the recipe key follows from a fixed seed: this deployment is for tests, not for people's data")
    tell_promise(view.promise, view.guarantee(), provenance=view.provenance)
    tell_report(view.provenance.get("report"), as_of=", as measured when this recipe was first trained")
    tell_figures(view.figures)
    costs = costs_of(view.provenance) if shows_costs else None
    if costs is not None:
        console.print("\n[bold]What a deletion costs[/bold], as measured when this recipe was first trained")
        tell_costs(costs, num_shards=facts.num_shards, promise=view.promise_name)


def _tell_environment(origins: Origins) -> None:
    """Print what has changed since the models were trained, and what the next update does about it."""
    for count, differences in origins.changes:
        trained = f"{plural(count, 'model')} {'was' if count == 1 else 'were'} trained"
        say(f"changed since {trained}: {', '.join(differences)}")
    if origins.retrains_everything:
        say("so the next update trains every one of these models again, or `expunge rekey` does now")
    elif origins.changes:
        say("the next updates train the shards that they touch: the exact promise then holds up to rounding (lenient)")


def _rule(apply: str) -> str:
    mode, _, amount = apply.partition(" ")
    return {
        "now": "at once",
        "every": f"every {amount}",
        "at": f"when {amount} are pending",
        "manual": "by `expunge apply`",
    }[mode]


def _left(budget: BudgetStatus) -> str:
    if budget.exhausted:
        return "and its budget is used up: the next update retrains everything"
    if math.isinf(budget.predictions_left):
        return "without a limit"
    return f"{budget.predictions_left:,.0f} left"


def _show_request(request: Request, *, as_json: bool) -> None:
    facts = request_facts(request)
    if as_json:
        show_json(facts)
        return
    applied = f" by {request.applied_by}, in round {request.round}" if facts["applied_by"] else ""
    console.print(
        f"Request {request.request}: {request.public_state}{applied}; accepted {request.accepted_at}, "
        f"{request.deletions:,} deletions, {request.additions:,} additions, {request.corrections:,} corrections.",
        markup=False,
        soft_wrap=True,
    )


def _inside(deployment: DurableDeployment) -> dict[str, Any]:
    """Facts that must stay inside the trust boundary."""
    from expunge.training.learners import Abstainer

    found = deployment.inside
    sizes = sorted(map(len, found.state.members))
    abstaining = sum(isinstance(model, Abstainer) for model in found.state.models)
    return {
        "generation": found.generation,
        "budget": _budget(found.budget),
        "end": end_of_generation(found.publisher),
        "models_trained": found.models_trained,
        "smallest_shard": sizes[0],
        "median_shard": sizes[len(sizes) // 2],
        "largest_shard": sizes[-1],
        "empty_shards": sizes.count(0),
        "failed_shards": abstaining - sizes.count(0),
    }


def end_of_generation(publisher: Publisher) -> str:
    """What ended a generation; empty if it goes on. Under a consensus this is for the operator."""
    if not publisher.must_retrain:
        return ""
    if publisher.shows_budget:
        return "the budget of the generation is used up"
    is_full = publisher.status.predictions >= publisher.capacity
    return "the predictions of the generation are used up" if is_full else "a consensus failed"


def _tell_inside(secret: dict[str, Any]) -> None:
    console.print("\n[bold]Inside (operators only)[/bold]: showing this to a requester voids the guarantee")
    say(
        f"records a shard: {secret['smallest_shard']:,} to {secret['largest_shard']:,}, median "
        f"{secret['median_shard']:,}; {secret['empty_shards']:,} shards are empty, {secret['failed_shards']:,} could "
        "not be trained"
    )
    say(f"models trained since creation: {secret['models_trained']:,}; this is generation {secret['generation']:,}")
    if secret["budget"]["predictions_left"] is not None or secret["budget"]["exhausted"]:
        end = f"{secret['end']}: the next update retrains everything" if secret["end"] else "it is not used up"
        say(f"predictions in this generation: {secret['budget']['predictions']:,}; {end}")
