"""The OpenAPI document says what there is, `/docs` needs nothing from elsewhere, and no request breaks the service."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re

import numpy as np
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import load_all_checks, not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from sklearn.naive_bayes import GaussianNB

import expunge
from expunge import Consensus
from expunge.service.access import ROLES
from expunge.service.openapi import files, manifest

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
KINDS = (
    "application/json",
    "text/csv",
    "application/vnd.apache.arrow.stream",
    "application/vnd.apache.arrow.file",
    "application/x-npy",
)


@pytest.fixture(scope="module")
def shop(first_churn, tmp_path_factory, serve):
    import shutil

    folder = shutil.copytree(first_churn, tmp_path_factory.mktemp("fuzzed") / "churn")
    with serve(folder, "--no-log-requests", integration={}) as running:
        yield running


def test_the_page_of_the_api_is_served_from_the_package(shop):
    page = shop.ask("GET", "/docs", role=None)
    assert page.status == 200
    assert not re.search(rb"https?://", page.body)
    for path in re.findall(rb'(?:src|href)="([^"]+)"', page.body):
        found = shop.ask("GET", path.decode(), role=None)
        assert (found.status, len(found.body) > 100) == (200, True), path
    assert shop.ask("GET", "/docs/manifest.json", role=None).status == 404
    assert shop.ask("GET", "/openapi.json", role=None).status == 401


def test_swagger_ui_is_what_was_released():
    told = manifest()
    assert told["license"] == "Apache-2.0"
    assert {name: hashlib.sha256(files()[name][0]).hexdigest() for name in told["sha256"]} == told["sha256"]


def test_every_operation_has_a_summary_and_a_name_of_its_own(shop):
    document = shop.ask("GET", "/openapi.json", role="predict").json
    operations = [each for methods in document["paths"].values() for each in methods.values()]
    assert len({each["operationId"] for each in operations}) == len(operations) > 20
    assert [each["operationId"] for each in operations if not each["summary"]] == []


BY_OTHERS = ("/opendsr", "/v1/webhooks")


@pytest.fixture(scope="module")
def agreed(tmp_path_factory, serve):
    """A deployment under a consensus, made in Python: its columns have no names."""
    X = np.random.default_rng(5).normal(size=(200, 2))
    folder, options = tmp_path_factory.mktemp("agreed") / "shop", {"n_shards": 20, "clock_seconds": 1}
    expunge.create(folder, GaussianNB(), X, X[:, 0] > 0, promise=Consensus(max_predictions=10_000), **options).close()
    with serve(folder, "--no-log-requests", "--allow-unguarded") as running:
        yield running


@pytest.mark.parametrize("which", ["shop", "agreed"])
def test_what_the_document_says_holds_for_generated_requests(which, request):
    """Every route, mostly as the operator, and as the others."""
    service = request.getfixturevalue(which)
    before = service.ask("GET", "/v1/status").json["records"]
    load_all_checks()
    schema = schemathesis.openapi.from_dict(service.ask("GET", "/openapi.json").json)
    tried = [_try(result.ok(), service) for result in schema.get_all_operations()]
    assert len(tried) > 30
    assert min(map(len, tried)) >= 1
    assert sum(map(len, tried)) > 300
    assert sum(min(statuses) < 300 for statuses in tried) > 20  # operations that answered at least once
    _require_nothing_lost(service, before)


def _try(operation, service):
    """Send what the document allows, and see that the answers are what it says. Long work that is begun is stopped."""
    statuses = []

    @settings(
        max_examples=12, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck), database=None
    )
    @given(case=operation.as_strategy(), role=st.sampled_from(["operator", "operator", "operator", *ROLES]))
    def run(case, role):
        case.headers = {**(case.headers or {}), "Authorization": f"Bearer {service.keys[role]}"}
        case.headers.pop("Prefer", None)
        found = case.call_and_validate(base_url=service.url, checks=CHECKS)
        statuses.append(found.status_code)
        if found.status_code == 202 and operation.path in ("/v1/recompute", "/v1/audits"):
            assert service.ask("DELETE", found.headers["location"][0]).status == 200
        if found.status_code == 202 and operation.path == "/v1/measurements":
            assert service.ask("DELETE", f"/v1/measurements/{found.json()['id']}").status == 200

    run()
    return statuses


def _require_nothing_lost(service, before):
    """Every request that was accepted is applied as a whole, or was taken back."""
    updates = service.ask("GET", "/v1/updates?limit=1000").json["updates"]
    for each in updates:
        found = service.ask("GET", f"/v1/updates/{each['request']}", Prefer="wait=60").json
        assert found["state"] in ("applied", "cancelled"), found
    done = [service.ask("GET", f"/v1/updates/{each['request']}").json for each in updates]
    after = service.ask("GET", "/v1/status").json["records"]
    assert after - before == sum(each["additions"] - each["deletions"] for each in done if each["state"] == "applied")


SEEDS = {
    "application/json": [
        b'{"rows": [{"age": 41, "spend": 0.5}]}',
        b'{"rows": [[41, 0.5], [20, -1]]}',
        b'{"delete": {"ids": [17], "subjects": ["h1"]}}',
        b'{"add": {"rows": [{"id": 1, "household": "h1", "age": 4, "spend": 1, "churned": "yes"}]}, "readmit": true}',
        b'{"correct": {"rows": [{"id": 20, "age": 33}]}}',
    ],
    "text/csv": [b"age,spend\n41,0.5\n", b"id,household,age,spend,churned\n900,h1,4,1,yes\n", b"id\n17\n"],
}


PETITION = (
    b'{"subject_request_id": "a-1", "subject_request_type": "erasure", "subject_identities": '
    b'[{"identity_type": "controller_customer_id", "identity_value": "nobody"}]}'
)


def mutated(rng, body):
    """The body with a few bytes changed, cut out, doubled or put in."""
    found = bytearray(body)
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(found) + 1)
        match rng.randrange(5):
            case 0 if found:
                found[at % len(found)] = rng.randrange(256)
            case 1:
                del found[at : at + rng.randint(1, 8)]
            case 2:
                found[at:at] = found[at : at + rng.randint(1, 30)]
            case 3:
                found[at:at] = rng.choice(
                    [b"null", b"[", b"]", b'"', b",", b"1e999", b"-", b"\xff", b"\x00", b"{}", b"\n"]
                )
            case _:
                found[at:at] = str(rng.choice([10**40, -1, 0.1, True])).encode()
    return bytes(found)


def test_ten_thousand_broken_bodies_break_nothing(shop):
    import http.client

    amount = int(os.environ.get("EXPUNGE_FUZZED_BODIES", "10000"))
    rng, before = random.Random(13), shop.ask("GET", "/v1/status").json["records"]
    connection = http.client.HTTPConnection("127.0.0.1", shop.port, timeout=60)
    statuses, key = {}, f"Bearer {shop.keys['operator']}"
    for number in range(amount):
        kind = rng.choice(KINDS)
        seeds = SEEDS.get(kind) or [
            b"ARROW1\x00\x00",
            b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'shape': (1, 2), }\n",
            b"",
        ]
        body = rng.choice(seeds) if rng.random() < 0.02 else mutated(rng, rng.choice(seeds))
        path = (
            "/v1/predictions"
            if number % 10
            else "/v1/updates" + rng.choice(["", "?operation=add", "?operation=delete"])
        )
        sender = key
        if number % 25 == 1:
            path, sender, body = "/opendsr/requests", f"Bearer {shop.keys['integration']}", mutated(rng, PETITION)
        connection.request("POST", path, body, {"Authorization": sender, "Content-Type": kind})
        found = connection.getresponse()
        content = found.read()
        assert found.status in (200, 201, 202, 400, 409, 413, 415, 422), (found.status, kind, body, content)
        if found.status >= 400:
            assert json.loads(content)["type"].startswith("urn:expunge:problem:")
        statuses[found.status] = statuses.get(found.status, 0) + 1
    assert statuses[400] > amount // 2
    assert statuses[200] > 50
    _require_nothing_lost(shop, before)
