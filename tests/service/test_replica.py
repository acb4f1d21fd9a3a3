"""`expunge serve --replica` over HTTP: the answers of the writer, and never those of a round left behind."""

from __future__ import annotations

import signal
import time

import pytest
from prometheus_client.parser import text_string_to_metric_families

import expunge
import expunge.folder

ROWS = {"rows": [[30, 0.5], [50, -0.5], [70, 0.1]]}


def delete(service, *ids):
    done = service.ask("POST", "/v1/updates", {"delete": {"ids": list(ids)}}, role="update", prefer="wait=60")
    assert done.json["state"] == "applied", done.body
    return done.json["round"]


def families(service, role):
    found = service.ask("GET", "/metrics", role=role)
    assert found.status == 200
    return {each.name: each for each in text_string_to_metric_families(found.body.decode())}


def predict(service):
    return service.ask("POST", "/v1/predictions?probabilities=true", ROWS)


def test_two_replicas_follow_the_writer(churn, serve):
    with (
        serve(churn) as writer,
        serve(churn, "--replica", "--lease", 1) as left,
        serve(churn, "--replica", "--lease", 1) as right,
    ):
        for record in (1, 2):
            number = delete(writer, record)
            for replica in (left, right):
                found = predict(replica)
                assert found.json == predict(writer).json
                assert found.json["round"] == int(found.headers["expunge-round"]) == number == record
        for path in ("/v1/status", "/v1/promise", "/v1/schema"):
            assert left.ask("GET", path, role="predict").json == writer.ask("GET", path, role="predict").json
        processes = {each.process.pid for each in (left, right)}
        told = writer.ask("GET", "/v1/status").json["replicas"]
        assert {each["process"] for each in told} == processes
        assert [(each["round"], each["lease"]) for each in told] == [(2, 1.0)] * 2
        assert "replicas" not in writer.ask("GET", "/v1/status", role="predict").json
        assert writer.ask("GET", "/v1/inside").json["replicas"] == told
        at = families(writer, "operator")["expunge_inside_replica_round"].samples
        assert {(int(each.labels["process"]), each.value) for each in at} == {(each, 2) for each in processes}
        with expunge.folder.open_view(churn) as view:
            assert {each["process"] for each in view.replicas} == processes
        own, more = families(left, "predict"), families(left, "operator")
        assert [each.value for name in ("expunge_round", "expunge_lease") for each in own[name].samples] == [2, 1]
        assert not [name for name in own if "inside" in name or "process" in name]
        assert {"expunge_inside_request_seconds", "process_cpu_seconds"} <= more.keys()
        refused = left.ask("POST", "/v1/updates", {"delete": {"ids": [3]}})
        assert refused.status == 421
        assert refused.json["type"] == "urn:expunge:problem:misdirected"
        assert refused.json["detail"].endswith(f"send this to {writer.url}")
        assert left.ask("GET", "/v1/updates", key="expunge_nonsense").status == 401
        assert left.ask("GET", "/healthz", role=None).json == {"status": "ok"}

        right.process.send_signal(signal.SIGSTOP)
        begun = time.monotonic()
        assert delete(writer, 3) == 3
        assert time.monotonic() - begun > 1
        right.process.send_signal(signal.SIGCONT)
        deadline = time.monotonic() + 30
        while (found := predict(right)).status == 503 and time.monotonic() < deadline:
            assert found.headers["retry-after"] == "1"
            time.sleep(0.05)
        assert found.json == predict(writer).json
        right.process.kill()
        assert delete(writer, 4) == predict(left).json["round"] == 4


def test_a_replica_needs_no_writer_and_ends_with_the_schema(churn, serve):
    with serve(churn, "--replica") as replica:
        assert predict(replica).status == 200
        refused = replica.ask("DELETE", "/v1/updates/1")
        assert refused.json["detail"].endswith("send this to the process that serves churn without --replica")
        with expunge.open(churn) as deployment:
            deployment.redeclare(add_classes=["perhaps"])
        assert replica.process.wait(30) == 2


@pytest.mark.parametrize("promise", ["noise", "unguarded"])
def test_a_promise_with_a_budget_is_refused(tmp_path, people, program, promise):
    people(60).to_csv(tmp_path / "train.csv", index=False)
    columns = ("--label", "churned", "--id", "id", "--subject", "household", "--learner", "naive-bayes")
    program("create", tmp_path / "d", "--data", tmp_path / "train.csv", *columns, "--promise", promise, "--shards", 5)
    done = program("serve", tmp_path / "d", "--replica", code=2)
    assert "one process serves it, without --replica" in " ".join(done.stderr.split())
