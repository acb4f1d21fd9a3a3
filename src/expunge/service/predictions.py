"""`POST /v1/predictions` and `GET /v1/schema`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from expunge.folder import DurableDeployment, Replica
from expunge.service.answers import Labels, form_of_answer, form_of_body, write
from expunge.service.exchange import EVERYBODY, Answer, Request, Route, as_json, tagged

if TYPE_CHECKING:
    from expunge.service.application import Host


def routes(service: Host, deployment: DurableDeployment | Replica) -> list[Route]:
    """The routes of this module."""
    columns, predictor = service.columns, service.predictor
    labels, limits = Labels.of(deployment.classes), service.limits

    async def predict(request: Request) -> Answer:
        probabilities = bool(request.query) and _wants_probabilities(request)
        form = form_of_body(request)
        wanted = form_of_answer(request, form)
        writer = partial(write, labels=labels, form=wanted)
        return await predictor.answer(form, request.body, writer, probabilities=probabilities, most=limits.rows)

    async def schema(request: Request) -> Answer:
        found = {**columns.described(), "classes": list(labels.values) or None, "probabilities": service.told.is_exact}
        return tagged(request, as_json(found))

    return [
        Route("POST", "/v1/predictions", frozenset({"predict", "operator"}), predict),
        Route("GET", "/v1/schema", EVERYBODY, schema, {"summary": "The columns, and what each holds"}),
    ]


def _wants_probabilities(request: Request) -> bool:
    request.only_options("probabilities")
    return request.flag("probabilities")
