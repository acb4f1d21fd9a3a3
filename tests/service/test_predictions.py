"""`POST /v1/predictions` over HTTP: every form, every mistake, and what the deployment itself answers."""

from __future__ import annotations

import io
import json
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import expunge


@pytest.fixture(scope="module")
def answers(first_churn, tmp_path_factory, people):
    """Questions, and what the deployment itself answers."""
    import shutil

    folder = shutil.copytree(first_churn, tmp_path_factory.mktemp("asked") / "churn")
    questions = people(5000, seed=7)[["age", "spend"]]
    with expunge.open(folder) as deployment:
        X = questions.to_numpy()
        return questions, deployment.predict(X).tolist(), deployment.predict_proba(X)


def as_json(frame):
    return {"rows": frame.to_dict("records")}


def test_single_rows_and_batches_get_the_deployments_own_labels(service, answers):
    questions, labels, shares = answers
    one = service.ask("POST", "/v1/predictions", as_json(questions[:1]), role="predict")
    assert one.json == {"labels": labels[:1], "round": 0}
    assert one.headers["expunge-round"] == "0"
    some = service.ask("POST", "/v1/predictions?probabilities=true", as_json(questions[:50]), role="predict").json
    assert some["labels"] == labels[:50]
    assert some["classes"] == ["no", "yes"]
    assert some["probabilities"] == shares[:50].tolist()
    middle = service.ask("POST", "/v1/predictions", {"rows": questions[:300].to_numpy().tolist()}).json
    assert middle["labels"] == labels[:300]
    many = service.ask("POST", "/v1/predictions?probabilities=true", as_json(questions)).json
    assert many["labels"] == labels
    assert many["probabilities"] == shares.tolist()


def test_every_form_in_and_out(service, answers):
    questions, labels, shares = answers
    sink, flat = pa.BufferOutputStream(), io.BytesIO()
    table = pa.Table.from_pandas(questions)
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    np.save(flat, questions.to_numpy())
    bodies = {
        "application/json": json.dumps(as_json(questions)).encode(),
        "text/csv": questions.to_csv(index=False).encode(),
        "application/vnd.apache.arrow.stream": bytes(sink.getvalue()),
        "application/x-npy": flat.getvalue(),
    }
    readers = {
        "application/json": lambda body: json.loads(body)["labels"],
        "text/csv": lambda body: pd.read_csv(io.BytesIO(body))["prediction"].tolist(),
        "application/vnd.apache.arrow.stream": lambda body: (
            pa.ipc.open_stream(body).read_all()["prediction"].to_pylist()
        ),
        "application/x-npy": lambda body: np.load(io.BytesIO(body)).tolist(),
    }
    for sent, body in bodies.items():
        found = service.ask("POST", "/v1/predictions", body=body, content_type=sent)
        assert found.headers["content-type"].startswith(sent)
        assert readers[sent](found.body) == labels
    for wanted, read in readers.items():
        body = bodies["text/csv"]
        found = service.ask("POST", "/v1/predictions", body=body, content_type="text/csv", accept=wanted)
        assert read(found.body) == labels
    table = service.ask(
        "POST",
        "/v1/predictions?probabilities=true",
        body=bodies["application/x-npy"],
        content_type="application/x-npy",
        accept="application/vnd.apache.arrow.stream;q=0.9, text/csv;q=0.1",
    )
    assert pa.ipc.open_stream(table.body).read_all()["probability_yes"].to_pylist() == shares[:, 1].tolist()
    flat = service.ask(
        "POST", "/v1/predictions?probabilities=true", body=bodies["application/x-npy"], content_type="application/x-npy"
    )
    assert np.array_equal(np.load(io.BytesIO(flat.body)), shares)


@pytest.mark.parametrize(
    ("how", "status", "kind"),
    [
        ({"body": b"{", "content_type": "application/json"}, 400, "invalid"),
        ({"body": b"{}", "content_type": "application/xml"}, 415, "unsupported-media-type"),
        ({"body": b"{}", "content_type": "application/json; charset=utf-16"}, 415, "unsupported-media-type"),
        ({"data": {"rows": [[1, 2]]}, "accept": "image/png"}, 406, "not-acceptable"),
        ({"data": {"rows": [[1, 2]]}, "path": "?probability=true"}, 400, "invalid"),
        ({"data": {"rows": [[1, 2]]}, "path": "?probabilities=maybe"}, 400, "invalid"),
        ({"data": {"rows": [[1, 2]]}, "role": "update"}, 403, "forbidden"),
        ({"data": {"rows": [[1, 2]]}, "role": "auditor"}, 403, "forbidden"),
        ({"data": {"rows": [[1, 2]]}, "key": "expunge_nonsense"}, 401, "unauthorized"),
        ({"data": {"rows": [[1, 2]]}, "method": "GET"}, 405, "method-not-allowed"),
        ({"data": {"rows": [[1, 2]]}, "path": "/more"}, 404, "not-found"),
    ],
)
def test_mistakes_are_problems(service, how, status, kind):
    how = dict(how)
    path, method = "/v1/predictions" + how.pop("path", ""), how.pop("method", "POST")
    found = service.ask(method, path, **how)
    assert found.status == status, found.body
    assert found.headers["content-type"] == "application/problem+json"
    assert found.json["type"] == f"urn:expunge:problem:{kind}"
    assert found.json["request_id"] == found.headers["x-request-id"]


def test_limits_on_body_and_batch(churn, serve):
    with serve(churn, "--max-body", 1000, "--max-rows", 10) as service:
        ask = lambda rows: service.ask("POST", "/v1/predictions", {"rows": [[1, 2]] * rows})  # noqa: E731
        assert ask(10).status == 200
        assert ask(11).json["type"] == "urn:expunge:problem:too-large"
        assert ask(500).status == 413
        assert service.ask("POST", "/v1/predictions", body=iter([b"1" * 600] * 2)).status == 413


def test_many_callers_at_a_time_get_their_own_answers(service, answers):
    questions, labels, _ = answers
    ready = threading.Barrier(8)

    def ask(worker):
        ready.wait()
        rows = range(worker, 160, 8)
        found = [service.ask("POST", "/v1/predictions", as_json(questions[row : row + 1])).json for row in rows]
        return [each["labels"][0] for each in found] == [labels[row] for row in rows]

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(8)))


def test_a_wrong_row_spoils_nothing_for_others(service, answers):
    questions, labels, _ = answers
    good, bad = as_json(questions[:1]), {"rows": [[1e308 * 10, 1]]}
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(service.ask, "POST", "/v1/predictions", good) for _ in range(40)]
        wrong = pool.submit(service.ask, "POST", "/v1/predictions", bad)
        assert {each.result().json["labels"][0] for each in asked} == {labels[0]}
        assert wrong.result().status == 400


def test_security_headers_are_on_every_answer(service):
    for found in (
        service.ask("GET", "/healthz", role=None),
        service.ask("GET", "/nowhere"),
        service.ask("POST", "/v1/predictions"),
    ):
        assert found.headers["x-content-type-options"] == "nosniff"
        assert found.headers["x-frame-options"] == "DENY"
        assert "default-src 'none'" in found.headers["content-security-policy"]
        assert found.headers["expunge-promise"] == "exact"
    again = service.ask("GET", "/healthz", role=None, x_request_id="shop-17")
    assert again.headers["x-request-id"] == "shop-17"
    strange = service.ask("GET", "/healthz", role=None, x_request_id="a b\tc")
    assert strange.headers["x-request-id"] != "a b\tc"


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no priority of their own")
def test_the_thread_of_large_batches_gives_way(service, people):
    flat = io.BytesIO()
    np.save(flat, people(20_000)[["age", "spend"]].to_numpy())
    found = service.ask("POST", "/v1/predictions", body=flat.getvalue(), content_type="application/x-npy")
    assert found.status == 200
    stats = [each.read_text() for each in Path(f"/proc/{service.process.pid}/task").glob("*/stat")]
    niceness = [int(each.rpartition(")")[2].split()[16]) - os.getpriority(os.PRIO_PROCESS, 0) for each in stats]
    assert niceness.count(10) == 1
    assert set(niceness) == {0, 10}
