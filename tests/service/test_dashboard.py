"""The dashboard's page without data, its overview, and what its pages ask for beside the API."""

from __future__ import annotations

import asyncio
import re
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

from expunge.core.records import Records
from expunge.service import planning
from expunge.service.access import ROLES
from expunge.service.dashboard import page_files, page_policy
from expunge.service.exchange import Request
from expunge.service.problems import Problem
from expunge.service.traffic import SECONDS, Traffic

PATIENCE = 120


def until_done(service, path, identity, role="operator"):
    for _ in range(PATIENCE * 10):
        found = service.ask("GET", f"{path}/{identity}", role=role).json
        if found["state"] != "running":
            return found
        time.sleep(0.1)
    raise AssertionError("it did not end")


def test_the_page_is_there_without_a_key_and_without_data(service):
    shell = service.ask("GET", "/", role=None)
    assert shell.status == 200
    assert shell.headers["content-security-policy"] == page_policy()
    assert b"churn" not in shell.body
    for name in re.findall(rb'(?:src|href)="(/[^"]+)"', shell.body):
        assert service.ask("GET", name.decode(), role=None).status == 200, name
    again = service.ask("GET", "/", role=None, If_None_Match=shell.headers["etag"])
    assert (again.status, again.body) == (304, b"")


def test_the_page_fetches_nothing_from_elsewhere():
    for name, (content, _) in page_files().items():
        found = re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^\s\"'`)]*", content.decode())
        assert [each for each in found if "www.w3.org" not in each] == [], name


def test_the_overview_is_for_every_role_and_the_log_for_all_but_one(service):
    assert service.ask("GET", "/v1/overview", role=None).status == 401
    for role in ROLES:
        found = service.ask("GET", "/v1/overview", role=role)
        assert found.headers["cache-control"] == "no-store"
        assert (found.json["role"], found.json["records"]) == (role, 300)
        assert len(found.json["traffic"]["rows"]) == SECONDS
        assert ("log" in found.json) == (role != "predict")
    assert found.json["requests"] == {"accepted": 0, "applied": 0, "pending": 0, "cancelled": 0}
    assert found.json["recomputation"] is None
    assert found.json["log"]["size"] >= 1


def test_traffic_forgets_what_is_too_old():
    now = [50.0]
    traffic = Traffic(lambda: now[0])
    traffic.count(3)
    now[0] += SECONDS
    assert sum(traffic.rows()) == 3
    now[0] += 1
    assert sum(traffic.rows()) == 0
    traffic.count(4)
    now[0] += 10 * SECONDS
    assert sum(traffic.rows()) == 0


def test_what_is_inside_is_for_the_operator_alone(service):
    for role in ROLES:
        assert service.ask("GET", "/v1/inside", role=role).status == (200 if role == "operator" else 403)
    found = service.ask("GET", "/v1/inside").json
    assert sum(found["sizes"]) == 300
    assert len(found["accuracy"]["values"]) == 10
    assert sorted(found["accuracy"]["values"])[5] > 0.7
    assert found["alpha"] is None


def test_a_recomputation_is_recorded_and_then_in_the_overview(churn, serve):
    with serve(churn) as service:
        asked = {"shards": "all", "record": True}
        assert service.ask("POST", "/v1/recompute", asked, role="update").status == 403
        begun = service.ask("POST", "/v1/recompute", asked, role="auditor")
        assert begun.status == 202
        assert begun.headers["location"] == f"/v1/recompute/{begun.json['id']}"
        assert service.ask("POST", "/v1/recompute", asked).status == 409
        found = until_done(service, "/v1/recompute", begun.json["id"], role="auditor")
        assert (found["state"], found["done"], found["total"]) == ("done", 10, 10)
        assert found["result"]["agrees"]
        assert found["result"]["recorded"]
        told = service.ask("GET", "/v1/overview", role="auditor").json
        assert (told["recomputation"]["checked"], told["recomputation"]["agrees"]) == (10, True)
        assert service.ask("GET", "/v1/recompute", role="auditor").json["recomputations"][0] == found


def test_an_audit_in_two_arms_gives_a_report_and_a_page(service):
    begun = service.ask("POST", "/v1/audits", {"scenario": "label-only", "trials": 4, "records": 60}).json
    found = until_done(service, "/v1/audits", begun["id"])
    assert found["state"] == "done", found["error"]
    assert found["result"]["report"]["trials"] == 4
    assert "page" not in found["result"]
    page = service.ask("GET", f"/v1/audits/{begun['id']}", Accept="text/html")
    assert b"<svg" in page.body


def test_a_measurement_can_be_stopped_and_one_that_ends_says_what_to_choose(service):
    begun = service.ask("POST", "/v1/measurements", {"seconds": 60}).json
    assert service.ask("DELETE", f"/v1/measurements/{begun['id']}").json["state"] == "cancelled"
    service.ask("POST", "/v1/measurements", {"seconds": 1})
    for _ in range(PATIENCE * 10):
        found = service.ask("GET", "/v1/measurements?deletions_per_day=1000&batches_per_day=1000").json
        if found["measured"]:
            break
        time.sleep(0.1)
    shards = [each["shards"] for each in found["measured"]["candidates"]]
    assert {1, 10} <= set(shards)
    assert found["measured"]["chosen"] in shards
    assert service.ask("GET", "/v1/measurements", role="auditor").status == 403


def test_a_consensus_is_rehearsed_and_told_for_any_traffic(service):
    before = service.ask("GET", "/v1/measurements").json["measured"]
    wide = {"alpha": 20, "beta": 0.4, "gamma": 0.4, "max_predictions": 1000, "max_generations": 2}
    asked = {"promise": "consensus", "shards": 40, "copies": 8, "seconds": 2, **wide}
    assert service.ask("POST", "/v1/measurements", asked, role="auditor").status == 403
    begun = service.ask("POST", "/v1/measurements", asked)
    assert (begun.status, begun.json["options"]) == (202, asked)
    told = until_measured(service, begun.json["id"])
    found = told["rehearsed"]
    assert told["measured"] == before
    assert {name: found[name] for name in wide} == wide
    assert (found["shards"], found["copies"], found["promised"]) == (40, 8, True)
    assert 0.5 < found["agreement"] <= 1
    assert 1 <= found["predictions"] <= 1000
    assert found["generation_days"] == pytest.approx(found["predictions"] / 1000)
    assert len(found["words"]) >= 2
    traffic = "deletions_per_day=20&batches_per_day=48&predictions_per_day=2000"
    twice = service.ask("GET", f"/v1/measurements?{traffic}").json["rehearsed"]
    assert twice["generation_days"] == pytest.approx(found["generation_days"] / 2)
    assert twice["one_day"] == pytest.approx(2 * found["one_day"])
    assert twice["day"] == pytest.approx(2 * found["day"])
    refused = service.ask("GET", "/v1/measurements?deletions_per_day=1e-300")
    assert (refused.status, refused.json["errors"][0]["field"]) == (400, "deletions_per_day")


def test_a_rehearsal_without_a_gate_says_that_nothing_can_be_promised(service):
    asked = {"promise": "consensus", "shards": 25, "seconds": 1}
    begun = service.ask("POST", "/v1/measurements", asked).json
    found = until_measured(service, begun["id"])["rehearsed"]
    assert found["words"][0].startswith("Retrain one model")
    assert found["words"][1].startswith("Nothing can be promised with 25 shards: num_shards=25 is too few")
    assert [found[name] for name in ("promised", "needed", "sure", "predictions", "day")] == [False, *[None] * 4]


def test_consensus_is_not_rehearsed_where_numbers_are_predicted():
    records = Records.build(np.ones((4, 1)), np.arange(4.0), is_regression=True)
    service = SimpleNamespace(jobs=None, deployment=SimpleNamespace(records=records))
    measure = next(each for each in planning.routes(service) if each.method == "POST")
    request = Request("POST", measure.path, "", {}, "1")
    request.body = b'{"promise": "consensus"}'
    # In a thread of its own: a browser of another test may have a loop that runs in this one.
    with ThreadPoolExecutor(1) as pool, pytest.raises(Problem, match="this deployment predicts numbers") as refused:
        pool.submit(asyncio.run, measure.handle(request)).result()
    assert (refused.value.status, refused.value.errors[0]["field"]) == (400, "promise")


def until_measured(service, identity):
    for _ in range(PATIENCE * 10):
        found = service.ask("GET", "/v1/measurements").json
        if found["job"]["state"] != "running":
            assert (found["job"]["id"], found["job"]["state"]) == (identity, "done"), found["job"]
            return found
        time.sleep(0.1)
    raise AssertionError("it did not end")


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/v1/recompute", {"shards": 0}, "shards"),
        ("/v1/recompute", {"seed": ""}, "seed"),
        ("/v1/recompute", {"shard": 3}, None),
        ("/v1/audits", {"trials": 1}, "trials"),
        ("/v1/audits", {"scenario": "sorcery"}, "scenario"),
        ("/v1/measurements", {"seconds": "long"}, "seconds"),
        ("/v1/measurements", {"promise": "noise"}, "promise"),
        ("/v1/measurements", {"shards": 40}, "shards"),
        ("/v1/measurements", {"promise": "consensus", "shards": 1}, "shards"),
        ("/v1/measurements", {"promise": "consensus", "beta": 0}, "beta"),
        ("/v1/measurements", [], None),
    ],
)
def test_wrong_work_is_refused_and_the_field_named(service, path, body, field):
    refused = service.ask("POST", path, body)
    assert refused.status == 400
    assert [each["field"] for each in refused.json.get("errors", [])] == ([field] if field else [])


def test_a_plan_is_arithmetic_on_public_numbers(service):
    found = service.ask("GET", "/v1/plan?shards=1000&deletions_per_day=100", role="auditor").json["plan"]
    assert found["shards"] == 1000
    names = [each["name"] for each in found["offers"]]
    assert {"exponential", "consensus"} <= set(names)
    assert service.ask("GET", "/v1/plan?shards=none").json["errors"][0]["field"] == "shards"
    assert service.ask("GET", "/v1/plan?alpha=soon").json["errors"][0]["field"] == "alpha"
    assert service.ask("GET", "/v1/plan?alpha=-1").status == 400
    assert service.ask("GET", "/v1/plan", role="predict").status == 403
