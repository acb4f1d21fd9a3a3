"""`/v1/updates` over HTTP: accepted durably, applied exactly once, followed page by page, taken back."""

from __future__ import annotations

import http.client
import io
import os
import signal
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest
from sklearn.naive_bayes import GaussianNB

import expunge

PATH = os.environ.get("PYTHONPATH", "")
NEW = {"id": 9001, "household": "h9", "age": 40, "spend": 1.5, "churned": "yes"}


@pytest.fixture(scope="module")
def shop(first_churn, tmp_path_factory, serve):
    """A service whose records tests may change, each its own ones."""
    import shutil

    folder = shutil.copytree(first_churn, tmp_path_factory.mktemp("shop") / "churn")
    with serve(folder) as running:
        yield running


def applied(service, data=None, **more):
    """Send an update and wait until it is applied."""
    found = service.ask("POST", "/v1/updates" + more.pop("path", ""), data, Prefer="wait=60", **more)
    assert found.status == 200, found.body
    assert found.json["state"] == "applied"
    return found


def num_records(service):
    return service.ask("GET", "/v1/status").json["records"]


def test_an_update_is_accepted_with_an_id_and_then_applied(shop):
    found = shop.ask("POST", "/v1/updates", {"delete": {"ids": [1]}}, role="update")
    assert found.status in (200, 202)
    assert found.headers["location"] == f"/v1/updates/{found.json['request']}"
    done = shop.ask("GET", found.headers["location"], role="auditor", Prefer="wait=60")
    assert (done.json["state"], done.json["deletions"]) == ("applied", 1)
    assert done.headers["preference-applied"] == "wait=60"
    again = shop.ask("GET", found.headers["location"], If_None_Match=done.headers["etag"])
    assert (again.status, again.body) == (304, b"")
    assert "unknown-record" in shop.ask("POST", "/v1/updates", {"delete": {"ids": [1]}}).json["type"]


def test_everything_in_one_request_or_nothing(shop):
    before = num_records(shop)
    asked = {"delete": {"ids": [2, 3], "subjects": ["h30"]}, "add": {"rows": [NEW, {**NEW, "id": 9002}]}}
    found = applied(shop, asked)
    assert (found.json["deletions"], found.json["additions"]) == (5, 2)
    assert num_records(shop) == before - 3
    wrong = {"delete": {"ids": [4]}, "add": {"rows": [{**NEW, "id": 9003}, NEW]}}
    refused = shop.ask("POST", "/v1/updates", wrong)
    assert (refused.status, refused.json["errors"][0]["record"]) == (409, 9001)
    assert num_records(shop) == before - 3
    back = {"add": {"rows": [{**NEW, "id": 2}]}}
    assert shop.ask("POST", "/v1/updates", back).status == 400
    applied(shop, {**back, "readmit": True})


def test_the_same_key_counts_once_and_another_request_under_it_is_refused(shop):
    asked = {"delete": {"ids": [10]}}
    with ThreadPoolExecutor(6) as pool:
        sent = [pool.submit(applied, shop, asked, Idempotency_Key="once") for _ in range(6)]
        assert len({each.result().json["request"] for each in sent}) == 1
    other = shop.ask("POST", "/v1/updates", {"delete": {"ids": [11]}}, Idempotency_Key='"once"')
    assert (other.status, other.json["type"]) == (422, "urn:expunge:problem:idempotency")
    assert shop.ask("POST", "/v1/updates", asked, Idempotency_Key="x" * 256).status == 400


def test_corrections_name_the_columns_that_change(shop):
    found = applied(shop, {"correct": {"rows": [{"id": 20, "age": 33}, {"id": 21, "age": 34}]}})
    assert found.json["corrections"] == 2
    uneven = shop.ask("POST", "/v1/updates", {"correct": {"rows": [{"id": 20, "age": 1}, {"id": 21, "spend": 2}]}})
    assert uneven.json["errors"][0]["row"] == 2
    both = shop.ask("POST", "/v1/updates", {"delete": {"ids": [22]}, "correct": {"rows": [{"id": 23, "age": 1}]}})
    assert "request of its own" in both.json["detail"]


def test_tables_add_delete_and_correct(shop, people):
    more = people(8, seed=5, first=9100)
    before = num_records(shop)
    csv = more[:4].to_csv(index=False).encode()
    assert applied(shop, body=csv, content_type="text/csv", path="?operation=add").json["additions"] == 4
    sink = pa.BufferOutputStream()
    table = pa.Table.from_pandas(more[4:], preserve_index=False)
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    arrow = bytes(sink.getvalue())
    kind = "application/vnd.apache.arrow.stream"
    assert applied(shop, body=arrow, content_type=kind, path="?operation=add").json["additions"] == 4
    assert num_records(shop) == before + 8
    change = b"id,age\n9100,50\n9101,51\n"
    assert applied(shop, body=change, content_type="text/csv", path="?operation=correct").json["corrections"] == 2
    gone = b"id\n9100\n9101\n9102\n9103\n"
    assert applied(shop, body=gone, content_type="text/csv", path="?operation=delete").json["deletions"] == 4
    assert num_records(shop) == before + 4


@pytest.mark.parametrize(
    ("how", "status", "row", "field"),
    [
        ({"data": {}}, 400, None, None),
        ({"data": {"delete": {}}}, 400, None, None),
        ({"data": {"delete": {"ids": 3}}}, 400, None, "delete.ids"),
        ({"data": {"delete": {"id": [3]}}}, 400, None, "id"),
        ({"data": {"delete": {"ids": ["x"]}}}, 400, 1, "ids"),
        ({"data": {"delete": {"ids": [1.5]}}}, 400, None, "delete.ids[0]"),
        ({"data": {"delete": {"ids": [10**30]}}}, 409, None, None),
        ({"data": {"remove": {"ids": [3]}}}, 400, None, "remove"),
        ({"data": {"add": {"rows": []}}}, 400, None, "rows"),
        ({"data": {"add": {"rows": [{**NEW, "id": 9900}, {**NEW, "id": 9901, "age": "x"}]}}}, 400, 2, "age"),
        ({"data": {"add": {"rows": [{**NEW, "id": 9900, "churned": "perhaps"}]}}}, 400, 1, "churned"),
        ({"data": {"add": {"rows": [{**NEW, "id": 9900}] * 2}}}, 400, 1, "id"),
        ({"data": {"add": {"rows": [{"id": 9900}]}}}, 400, 1, "age"),
        ({"data": {"add": {"rows": [[1, 2]]}}}, 400, None, "ids"),
        ({"data": {"add": {"rows": [[1, 2]], "ids": [9900]}}}, 400, None, "labels"),
        ({"data": {"add": {"rows": [[1, 2]], "ids": [1, 2], "labels": ["yes"]}}}, 400, None, "ids"),
        ({"body": b"id\n1\n", "content_type": "text/csv"}, 400, None, "operation"),
        ({"body": b"id\n1\n", "content_type": "text/csv", "path": "?operation=drop"}, 400, None, "operation"),
        ({"body": b"name\n1\n", "content_type": "text/csv", "path": "?operation=delete"}, 400, None, "name"),
        ({"body": b"\x93NUMPY", "content_type": "application/x-npy", "path": "?operation=add"}, 415, None, None),
        ({"data": {"delete": {"ids": [3]}}, "role": "predict"}, 403, None, None),
        ({"data": {"delete": {"ids": [3]}}, "role": "auditor"}, 403, None, None),
    ],
)
def test_mistakes_are_named_and_change_nothing(shop, how, status, row, field):
    how = dict(how)
    before = shop.ask("GET", "/v1/updates").json
    found = shop.ask("POST", "/v1/updates" + how.pop("path", ""), **how)
    assert found.status == status, found.body
    assert found.headers["content-type"] == "application/problem+json"
    if row is not None or field is not None:
        error = found.json["errors"][0]
        assert (error.get("row"), error.get("field")) == (row, field), error
    assert shop.ask("GET", "/v1/updates").json == before


def test_pages_of_requests_hold_each_request_once(shop):
    for each in range(40, 47):
        applied(shop, {"delete": {"ids": [each]}})
    every = [each["request"] for each in shop.ask("GET", "/v1/updates").json["updates"]]
    seen, path = [], "/v1/updates?limit=3"
    while path:
        page = shop.ask("GET", path, role="auditor")
        seen += [each["request"] for each in page.json["updates"]]
        link = page.headers.get("link", "")
        path = link[1 : link.index(">")] if link else None
        assert bool(path) == (page.json["next"] is not None)
    assert seen == every
    newest = shop.ask("GET", "/v1/updates?order=newest&limit=2").json["updates"]
    assert [each["request"] for each in newest] == every[:-3:-1]
    assert shop.ask("GET", "/v1/updates?state=pending").json["updates"] == []
    for wrong in ("limit=0", "limit=x", "state=lost", "order=up", "after=nobody", "page=2"):
        assert shop.ask("GET", f"/v1/updates?{wrong}").status in (400, 409), wrong
    assert shop.ask("GET", "/v1/updates/nobody").status == 404


def test_pending_requests_wait_for_their_rule_and_can_be_taken_back(first_churn, tmp_path, serve, program, people):
    people(60).to_csv(tmp_path / "train.csv", index=False)
    folder = tmp_path / "manual"
    columns = ("--label", "churned", "--id", "id", "--subject", "household", "--apply", "manual")
    program("create", folder, "--data", tmp_path / "train.csv", *columns, "--learner", "naive-bayes", "--shards", 3)
    with serve(folder) as service:
        first = service.ask("POST", "/v1/updates", {"delete": {"ids": [1]}})
        second = service.ask("POST", "/v1/updates", {"delete": {"ids": [2]}})
        assert (first.status, second.status) == (202, 202)
        brief = service.ask("GET", first.headers["location"], Prefer="wait=1").json
        assert brief["state"] == "pending"
        gone = service.ask("DELETE", first.headers["location"], role="update")
        assert gone.json["state"] == "cancelled"
        assert service.ask("DELETE", first.headers["location"]).status == 409
        assert service.ask("POST", "/v1/apply", role="update").status == 403
        assert service.ask("POST", "/v1/apply").status == 202
        assert service.ask("GET", second.headers["location"], Prefer="wait=60").json["state"] == "applied"
        assert num_records(service) == 59


def test_lists_with_ids_beside_them_serve_a_deployment_without_names(tmp_path, serve):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    options = {"ids": [f"p{each}" for each in range(60)], "n_shards": 3}
    expunge.create(tmp_path / "plain", GaussianNB(), X, X[:, 0] > 0, **options).close()
    with serve(tmp_path / "plain") as service:
        rows = {"rows": [[3, 0, 0], [-3, 0, 0]]}
        assert service.ask("POST", "/v1/predictions", rows).json["labels"] == [True, False]
        applied(service, {"add": {**rows, "ids": ["n1", "n2"], "labels": [True, False]}})
        applied(service, {"correct": {"ids": ["n1"], "rows": [[4, 5, 6]]}})
        applied(service, {"correct": {"ids": ["n1"], "labels": [False]}})
        applied(service, {"delete": {"ids": ["n2", "p7"]}})
        assert num_records(service) == 60
        assert (
            "no column names"
            in service.ask("POST", "/v1/updates?operation=delete", body=b"id\np1\n", content_type="text/csv").json[
                "detail"
            ]
        )


def test_what_was_accepted_survives_a_kill_and_is_applied_once(churn, serve):
    with serve(churn) as service:
        sent = [
            service.ask("POST", "/v1/updates", {"delete": {"ids": [each]}}, Idempotency_Key=f"k{each}")
            for each in range(100, 110)
        ]
        service.process.send_signal(signal.SIGKILL)
        service.process.wait()
    with serve(churn) as service:
        for each, found in zip(range(100, 110), sent, strict=True):
            again = applied(service, {"delete": {"ids": [each]}}, Idempotency_Key=f"k{each}")
            assert again.json["request"] == found.json["request"]
        assert num_records(service) == 290


def test_a_stop_finishes_answers_and_leaves_the_rest_for_the_next_start(churn, serve):
    with serve(churn, "--patience", 0) as service:
        ask = service.ask
        accepted = [ask("POST", "/v1/updates", {"delete": {"ids": [id]}}).json["request"] for id in range(1, 31)]
        key, flat = {"Authorization": f"Bearer {service.keys['operator']}"}, io.BytesIO()
        np.save(flat, np.tile([41.0, 0.5], (700_000, 1)))
        waiting, batch = (http.client.HTTPConnection("127.0.0.1", service.port, timeout=60) for _ in range(2))
        waiting.request("GET", "/healthz")
        waiting.getresponse().read()
        waiting.request("GET", f"/v1/updates/{accepted[-1]}", headers={**key, "Prefer": "wait=30"})
        kinds = {"Content-Type": "application/x-npy", "Accept": "application/x-npy"}
        batch.request("POST", "/v1/predictions", flat.getvalue(), {**key, **kinds})  # sockets do not hold so much
        service.process.send_signal(signal.SIGTERM)
        assert waiting.getresponse().status == 200
        assert len(np.load(io.BytesIO(batch.getresponse().read()))) == 700_000
        assert service.process.wait(60) == 0
    with expunge.open(churn) as deployment:
        assert {deployment.request(each).state for each in accepted} <= {"applied", "pending"}
        deployment.apply()
        assert {deployment.request(each).state for each in accepted} == {"applied"}
        assert len(deployment.records) == 270


def test_a_round_that_fails_is_told_to_the_operator_alone(tmp_path, serve, monkeypatch):
    (tmp_path / "picky.py").write_text(
        "import numpy as np\n"
        "from sklearn.naive_bayes import GaussianNB\n"
        "class Picky(GaussianNB):\n"
        "    def fit(self, X, y, sample_weight=None):\n"
        "        if (np.asarray(X) == 13).any():\n"
        "            raise ValueError('unlucky')\n"
        "        return super().fit(X, y, sample_weight)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    from picky import Picky

    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    expunge.create(tmp_path / "plain", Picky(), X, X[:, 0] > 0, n_shards=2, trust=["picky"]).close()
    with serve(tmp_path / "plain", "--trust", "picky", PYTHONPATH=f"{tmp_path}:{PATH}") as service:
        bad = service.ask("POST", "/v1/updates", {"add": {"rows": [[13, 1]], "ids": [77], "labels": [True]}})
        for _ in range(60):
            told = service.ask("GET", bad.headers["location"], Prefer="wait=1")
            assert told.json["state"] == "pending"
            error = service.ask("GET", "/v1/inside").json["trainer"]["error"]
            if error:
                break
        assert "unlucky" in error
        assert b"unlucky" not in told.body
        service.ask("DELETE", bad.headers["location"])
        fine = service.ask("POST", "/v1/updates", {"delete": {"ids": [3]}}, Prefer="wait=60")
        assert fine.json["state"] == "applied"
        assert service.ask("GET", "/v1/inside").json["trainer"]["error"] is None
