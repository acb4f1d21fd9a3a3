"""Metrics that Prometheus reads, and the operator's log: no secrets, and outside nothing but counts."""

from __future__ import annotations

import json

from prometheus_client.parser import text_string_to_metric_families

from expunge.service.access import KeyFile
from expunge.service.lines import Lines


def families(service, role):
    found = service.ask("GET", "/metrics", role=role)
    assert found.status == 200
    return {each.name: each for each in text_string_to_metric_families(found.body.decode())}


def test_counts_for_everybody_and_times_for_the_operator(churn, serve, tmp_path):
    with open(tmp_path / "log", "wb") as log, serve(churn, errors=log) as service:
        for _ in range(3):
            service.ask("POST", "/v1/predictions", {"rows": [[40, 1], [20, -1]]}, role="predict")
        service.ask("POST", "/v1/updates", {"delete": {"ids": [1]}}, Prefer="wait=60")
        assert service.ask("GET", "/metrics", role=None).status == 401
        outside, inside = families(service, "predict"), families(service, "operator")
        samples = {tuple(each.labels.values()): each.value for each in outside["expunge_requests"].samples}
        assert samples["POST", "/v1/predictions", "200"] == 3
        assert [each.value for each in outside["expunge_predicted_rows"].samples] == [6]
        assert {each.labels["event"]: each.value for each in outside["expunge_updates"].samples} == {
            "accepted": 1,
            "applied": 1,
            "cancelled": 0,
        }
        assert not [name for name in outside if "inside" in name or "seconds" in name or "process" in name]
        assert inside["expunge_inside_request_seconds"].type == "histogram"
        assert {"expunge_inside_models_trained", "process_cpu_seconds"} <= inside.keys()
        service.ask("GET", "/v1/status", key="expunge_nonsense", x_request_id="mine")
        keys = list(service.keys.values())
    told = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    mine = next(each for each in told if each.get("id") == "mine")
    assert (mine["status"], mine["caller"], mine["route"]) == (401, None, "/v1/status")
    asked = [each for each in told if each.get("route") == "/v1/predictions"]
    ids = {each.id for each in KeyFile(churn).read()}
    assert len(asked) == 3
    assert all(each["caller"] in ids and each["rows"] == 2 and each["ms"] >= 0 for each in asked)
    content = (tmp_path / "log").read_text()
    assert not [key for key in keys if key.rpartition("_")[2] in content]


def test_nobody_sees_a_key_in_the_list_of_processes(service):
    with open(f"/proc/{service.process.pid}/cmdline", "rb") as file:
        shown = file.read()
    assert not [key for key in service.keys.values() if key.rpartition("_")[2].encode() in shown]


def test_without_times_a_line_says_nothing_of_them_and_a_lost_reader_breaks_nothing():
    kept = []
    lines = Lines(kept.append, tells_times=False)
    lines.request("1", "GET", "/v1/status", 200, "a", "predict", 0, 1.5)
    lines.error(ValueError("shard 3"), identity="1")
    lines.flush()
    error, request = (json.loads(each) for each in kept)
    assert "ms" not in request
    assert error["inside"] is True

    def closed(_):
        raise BrokenPipeError

    lost = Lines(closed)
    lost.say("started")
    lost.request("1", "GET", "/", 200, None, None, 0, 0.0)
    lost.flush()
