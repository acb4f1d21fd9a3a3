"""The OpenAPI document of a deployment, and `/docs`: Swagger UI, served from this package.

The page holds no data. It asks for a key, and fetches the document with it: the document names the deployment's
columns.
"""

from __future__ import annotations

import gzip
import json
import re
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Final, get_args

import msgspec

from expunge.core.version import __version__
from expunge.service import audits, dashboard, planning
from expunge.service.columns import FORMS
from expunge.service.exchange import EVERYBODY, JSON, PROBLEM, Answer, Request, Route, as_json, tagged
from expunge.service.petitions import ID, MOST_IDENTITIES, Status
from expunge.service.problems import KINDS, Problem

if TYPE_CHECKING:
    from expunge.service.application import Service

_FILES: Final = {"swagger-ui-bundle.js": "text/javascript; charset=utf-8", "swagger-ui.css": "text/css; charset=utf-8"}
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_PAGE: Final = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>The API</title>
<link rel="stylesheet" href="/docs/swagger-ui.css">
<form id="ask" style="margin: 2rem; font: 1rem sans-serif">
<label for="key">Key: <input id="key" type="password" size="40" autocomplete="off"></label>
<button>Show the API</button> <output id="said"></output>
</form>
<div id="api"></div>
<script src="/docs/swagger-ui-bundle.js"></script>
<script src="/docs/start.js"></script>
</html>
"""
_START: Final = """"use strict";
document.getElementById("ask").addEventListener("submit", async (event) => {
  event.preventDefault();
  const bearer = "Bearer " + document.getElementById("key").value.trim();
  const found = await fetch("/openapi.json", { headers: { Authorization: bearer } });
  document.getElementById("said").textContent = found.ok ? "" : "this key is not valid";
  if (!found.ok) return;
  SwaggerUIBundle({
    spec: await found.json(),
    dom_id: "#api",
    validatorUrl: null,
    requestInterceptor: (request) => { request.headers.Authorization = bearer; return request; },
  });
});
"""


@cache
def files() -> dict[str, tuple[bytes, str]]:
    """The files below `/docs`, by name: their content and their media type."""
    folder = resources.files("expunge.service").joinpath("swagger")
    packed = {
        name: (gzip.decompress(folder.joinpath(f"{name}.gz").read_bytes()), kind) for name, kind in _FILES.items()
    }
    return packed | {"start.js": (_START.encode(), "text/javascript; charset=utf-8")}


def routes(service: Service) -> list[Route]:
    """The routes of this module."""

    async def document(request: Request) -> Answer:
        return tagged(request, as_json(describe(service)))

    async def page(request: Request) -> Answer:
        return tagged(
            request, Answer(_PAGE.encode(), "text/html; charset=utf-8", headers=[("content-security-policy", _POLICY)])
        )

    async def file(request: Request) -> Answer:
        found = files().get(request.parts["name"])
        if found is None:
            raise Problem(404, "not-found", "nothing is at this address")
        return tagged(request, Answer(*found))

    return [
        Route("GET", "/openapi.json", EVERYBODY, document, {"summary": "This document"}),
        Route("GET", "/docs", None, page, {"summary": "The API, to be read and tried"}),
        Route("GET", "/docs/{name}", None, file),
    ]


def describe(service: Service) -> dict[str, Any]:
    """The document."""
    details = _details(service)
    paths: dict[str, dict[str, Any]] = {}
    for route in service.routes.all:
        if route.path == "/" or route.path.startswith(("/docs", "/page/")):
            continue
        told = {**route.described, **details.get((route.method, route.path), {})}
        names = re.findall(r"\{(\w+)\}", route.path)
        own = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string", "maxLength": 64}}
            for name in names
        ]
        operation: dict[str, Any] = {
            "operationId": _name_of(route),
            "summary": told.get("summary", ""),
            "parameters": [*own, *told.get("parameters", [])],
            "responses": {**told.get("responses", {"200": _json({})}), "default": _PROBLEM},
        }
        if "requestBody" in told:
            operation["requestBody"] = told["requestBody"]
        if route.roles is not None:
            operation["security"] = [{"key": []}]
            operation["description"] = f"For {', '.join(sorted(route.roles))}."
        paths.setdefault(route.path, {})[route.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "expunge", "version": __version__, "description": service.told.header},
        "paths": paths,
        "components": {
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Problem": _PROBLEM_SCHEMA, "Update": _UPDATE},
        },
    }


def _name_of(route: Route) -> str:
    parts = [part.strip("{}") for part in route.path.strip("/").split("/") if part != "v1"]
    return "_".join([route.method.lower(), *(re.sub(r"\W", "_", part) for part in parts)])


_PROBLEM_SCHEMA: Final = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "request_id"],
    "properties": {
        "type": {"enum": [f"urn:expunge:problem:{kind}" for kind in KINDS]},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "request_id": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["message"],
                "properties": {
                    "message": {"type": "string"},
                    "row": {"type": "integer", "minimum": 1},
                    "field": {"type": "string"},
                    "record": {"type": ["string", "integer"]},
                },
            },
        },
    },
}
_PROBLEM: Final = {
    "description": "What is wrong (RFC 9457)",
    "content": {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}},
}
_MAYBE: Final = {"type": ["string", "null"]}
_MAYBE_OBJECT: Final = {"type": ["object", "null"]}
_UPDATE: Final = {
    "type": "object",
    "required": ["request", "state", "kind", "deletions", "additions", "corrections", "accepted_at"],
    "properties": {
        "request": {"type": "string"},
        "state": {"enum": ["pending", "applied", "cancelled"]},
        "kind": {"enum": ["deletion", "addition", "correction", "mixed"]},
        "deletions": {"type": "integer"},
        "additions": {"type": "integer"},
        "corrections": {"type": "integer"},
        "accepted_at": {"type": "string"},
        "applied_by": _MAYBE,
        "cancelled_at": _MAYBE,
        "round": {"type": ["integer", "null"]},
    },
}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "required": [*properties], "properties": properties}


def _json(schema: dict[str, Any], description: str = "The answer") -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _option(name: str, schema: dict[str, Any], where: str = "query") -> dict[str, Any]:
    return {"name": name, "in": where, "required": False, "schema": schema}


def _text(description: str, kind: str = "text/plain") -> dict[str, Any]:
    return {"description": description, "content": {kind: {"schema": {"type": "string"}}}}


def _asks(kind: type[Any]) -> dict[str, Any]:
    """A body in JSON whose members a `msgspec.Struct` says; without a body they have their usual values."""
    return {"content": {JSON: {"schema": msgspec.json.schema(kind)["$defs"][kind.__name__]}}}


def _details(service: Service) -> dict[tuple[str, str], dict[str, Any]]:
    """What the routes of the API take and give."""
    row = service.columns.json_schema()
    update, waiting = {"$ref": "#/components/schemas/Update"}, _option("Prefer", {"type": "string"}, "header")
    binary: dict[str, Any] = {kind: {"schema": {}} for kind in FORMS if kind != "application/json"}
    questions = {
        "type": "object",
        "required": ["rows"],
        "additionalProperties": False,
        "properties": {"rows": {"type": "array", "minItems": 1, "items": row}},
    }
    answers = {
        "type": "object",
        "required": ["round"],
        "properties": {
            "round": {"type": "integer"},
            "labels": {"type": "array"},
            "values": {"type": "array"},
            "classes": {"type": "array"},
            "probabilities": {"type": "array", "items": {"type": "array", "items": {"type": ["number", "null"]}}},
        },
    }
    names = {"type": "array", "items": {"type": ["string", "integer"]}}
    lists = {"ids": names, "subjects": {"type": "array", "items": {"type": ["string", "integer", "null"]}}}
    lists |= {"labels": {"type": "array"}, "weights": {"type": "array", "items": {"type": "number"}}}
    rows = {"type": "array", "items": {"type": ["object", "array", "string"]}}
    changes = {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "delete": {
                "type": "object",
                "additionalProperties": False,
                "properties": {"ids": names, "subjects": names},
            },
            "add": {
                "type": "object",
                "required": ["rows"],
                "additionalProperties": False,
                "properties": {"rows": rows, **lists},
            },
            "correct": {"type": "object", "additionalProperties": False, "properties": {"rows": rows, **lists}},
            "readmit": {"type": "boolean"},
        },
    }
    count = {"type": "integer", "minimum": 1, "maximum": 1000}
    whole = {"type": "integer", "minimum": 0}
    number = {"type": "number", "exclusiveMinimum": 0}
    daily = {"type": "number", "minimum": planning.LEAST_A_DAY}

    def page_or_facts(description: str) -> dict[str, Any]:
        pages = {JSON: {"schema": {"type": "object"}}, "text/html": {"schema": {"type": "string"}}}
        return {"description": description, "content": pages}

    certificate = {"200": page_or_facts("The certificate: a DSSE envelope, or a page")}
    begun = {"202": _json(_object({"id": {"type": "string"}, "state": {"type": "string"}}), "It has begun")}
    identity = {
        "type": "object",
        "required": ["identity_type", "identity_value"],
        "properties": {
            "identity_type": {"type": "string"},
            "identity_value": {"type": "string"},
            "identity_format": {"enum": ["raw", "sha256", "sha1", "md5"]},
        },
    }
    petition = {
        "type": "object",
        "required": ["subject_request_id", "subject_request_type", "subject_identities"],
        "properties": {
            "subject_request_id": {"type": "string", "pattern": ID},
            "subject_request_type": {"enum": ["erasure"]},
            "subject_identities": {"type": "array", "minItems": 1, "maxItems": MOST_IDENTITIES, "items": identity},
            "submitted_time": {"type": "string"},
            "regulation": {"type": "string"},
            "status_callback_urls": {"type": "array", "items": {"type": "string"}},
        },
    }
    event = {
        "type": "object",
        "required": ["type", "data"],
        "properties": {
            "type": {"enum": ["erasure.requested"]},
            "data": {
                "type": "object",
                "required": ["identities"],
                "properties": {
                    "identities": {
                        "type": "array",
                        "minItems": 1,
                        "maxItems": MOST_IDENTITIES,
                        "items": {
                            "type": "object",
                            "required": ["type", "value"],
                            "properties": {name: {"type": "string"} for name in ("type", "value", "format")},
                        },
                    }
                },
            },
        },
    }
    texts = ("controller_id", "subject_request_id", "expected_completion_time")
    received = {name: {"type": "string"} for name in (*texts, "received_time", "encoded_request")}
    standing = {**{name: {"type": "string"} for name in texts}, "request_status": {"enum": [*get_args(Status)]}}
    cancelled = {name: {"type": "string"} for name in ("controller_id", "subject_request_id", "received_time")}
    taken = {"id": {"type": "string"}, "status": {"enum": [*get_args(Status)]}, "received_at": {"type": "string"}}
    signed = [_option(f"webhook-{name}", {"type": "string"}, "header") for name in ("id", "timestamp", "signature")]
    return {
        ("POST", "/opendsr/requests"): {
            "requestBody": {"required": True, "content": {"application/json": {"schema": petition}}},
            "responses": {"201": _json(_object(received), "It was received")},
        },
        ("GET", "/opendsr/requests/{id}"): {"responses": {"200": _json(_object(standing))}},
        ("DELETE", "/opendsr/requests/{id}"): {"responses": {"202": _json(_object(cancelled), "It is cancelled")}},
        ("GET", "/opendsr/certificate"): {"responses": {"200": _text("X.509, PEM", "application/x-pem-file")}},
        ("POST", "/v1/webhooks/{integration}"): {
            "parameters": signed,
            "requestBody": {"required": True, "content": {"application/json": {"schema": event}}},
            "responses": {"202": _json(_object(taken), "It was taken")},
        },
        ("POST", "/v1/predictions"): {
            "summary": "Labels, or numbers; probabilities where the promise allows",
            "parameters": [_option("probabilities", {"type": "boolean"})],
            "requestBody": {"required": True, "content": {"application/json": {"schema": questions}, **binary}},
            "responses": {
                "200": {
                    "description": "An answer for each row, all of one round",
                    "content": {"application/json": {"schema": answers}, **binary},
                }
            },
        },
        ("POST", "/v1/updates"): {
            "summary": "Delete, add or correct records, all or nothing",
            "parameters": [
                _option("operation", {"enum": ["add", "delete", "correct"]}),
                _option("readmit", {"type": "boolean"}),
                _option("Idempotency-Key", {"type": "string", "minLength": 1, "maxLength": 255}, "header"),
                waiting,
            ],
            "requestBody": {"required": True, "content": {"application/json": {"schema": changes}}},
            "responses": {"200": _json(update, "It was applied"), "202": _json(update, "It was accepted")},
        },
        ("GET", "/v1/updates"): {
            "summary": "Requests, page by page",
            "parameters": [
                _option("limit", count),
                _option("after", {"type": "string"}),
                _option("state", {"enum": ["pending", "applied", "cancelled"]}),
                _option("order", {"enum": ["oldest", "newest"]}),
            ],
            "responses": {
                "200": _json(
                    {
                        "type": "object",
                        "required": ["updates", "next"],
                        "properties": {"updates": {"type": "array", "items": update}, "next": _MAYBE},
                    }
                )
            },
        },
        ("GET", "/v1/updates/{id}"): {
            "summary": "How far a request is",
            "parameters": [waiting],
            "responses": {"200": _json(update)},
        },
        ("DELETE", "/v1/updates/{id}"): {"summary": "Take back a pending request", "responses": {"200": _json(update)}},
        ("POST", "/v1/apply"): {"responses": {"202": _json({"type": "object"})}},
        ("GET", "/v1/certificates"): {"responses": certificate},
        ("GET", "/v1/certificates/{request}"): {"responses": certificate},
        ("GET", "/v1/log/checkpoint"): {"responses": {"200": _text("A signed note")}},
        ("GET", "/v1/log/key"): {"responses": {"200": _text("name+id+key")}},
        ("GET", "/v1/log/entries"): {"parameters": [_option("after", whole), _option("limit", count)]},
        ("GET", "/v1/log/inclusion"): {"parameters": [_option("sequence", whole), _option("size", whole)]},
        ("GET", "/v1/log/consistency"): {"parameters": [_option("from", whole), _option("to", whole)]},
        ("POST", "/v1/recompute"): {"requestBody": _asks(audits.Recompute), "responses": begun},
        ("POST", "/v1/audits"): {"requestBody": _asks(audits.Audit), "responses": begun},
        ("GET", "/v1/audits/{id}"): {"responses": {"200": page_or_facts("The audit; its page when it is done")}},
        ("POST", "/v1/measurements"): {"requestBody": _asks(planning.Measure), "responses": begun},
        ("GET", "/v1/measurements"): {
            "parameters": [_option(name, daily) for name in planning.TRAFFIC],
            "responses": {
                "200": _json(_object(dict.fromkeys(("job", "measured", "rehearsed"), _MAYBE_OBJECT))),
            },
        },
        ("GET", "/v1/plan"): {
            "parameters": [_option("shards", whole), *(_option(name, number) for name in planning.USUAL)]
        },
        ("POST", "/v1/updates/find"): {
            "requestBody": _asks(dashboard.Names),
            "responses": {"200": _json(_object({"updates": {"type": "array", "items": update}}))},
        },
        ("POST", "/v1/letters/{request}"): {
            "requestBody": _asks(dashboard.LetterWords),
            "responses": {"200": _text("The letter", "text/html")},
        },
        ("GET", "/metrics"): {"responses": {"200": _text("The text format of Prometheus")}},
        ("GET", "/healthz"): {"summary": "Whether it lives"},
    }


def manifest() -> dict[str, Any]:
    """The version, licence and hashes of Swagger UI."""
    told: dict[str, Any] = json.loads(
        resources.files("expunge.service").joinpath("swagger", "manifest.json").read_text(encoding="utf-8")
    )
    return told
