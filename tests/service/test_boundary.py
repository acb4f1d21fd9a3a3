"""The trust boundary at the wire, under (α,β,γ): but for the operator nothing that leaves depends on ζ.

Two deployments have the same records and different keys ζ. Every route is driven with every role, in the same order.
All that comes back is compared: status, headers, bodies, metrics and log lines. What is drawn anew for each deployment
and published on purpose (ids, times, hashes, signatures) is replaced by its kind.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

import expunge
from expunge import Consensus
from expunge.core.words import seconds_of
from expunge.service.access import ROLES
from expunge.service.signing import sign

RNG = np.random.default_rng(5)
X = RNG.normal(size=(300, 2))
Y = np.where(X[:, 0] > 0, "yes", "no")
FAR = [[4.0, 0.0], [-4.0, 0.0]]  # where all shards agree
TICK = 2
DRAWN = [
    (r"-----BEGIN CERTIFICATE-----[\s\S]*-----END CERTIFICATE-----", "<certificate>"),
    (r'"[xy]":\s?"[\w-]{43}"', "<point>"),
    (r"http://127\.0\.0\.1:\d+", "<address>"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "<time>"),
    (r"expunge/[0-9a-f]{32}", "<log>"),
    (r"(?:[0-9a-f]{4} ){3,}[0-9a-f]{4}", "<fingerprint>"),
    (r"\w{3}, \d\d \w{3} \d{4} [\d:]+ GMT", "<date>"),
    (r"[A-Za-z0-9+/]{40,}={0,2}", "<bytes>"),
    (r"\b[0-9a-f]{8,}\b", "<hex>"),
    (r"\b\d{10}(\.\d+)?\b", "<seconds>"),
    (r'"rows":\s?\[[\d, ]{300,}\]', "<rows in each second>"),
]


def made(folder, name):
    options = {"n_shards": 30, "inclusion_probability": 0.2, "clock_seconds": TICK, "apply": "now"}
    promise = Consensus(max_predictions=1000)
    folder.mkdir(exist_ok=True)
    expunge.create(folder / name, GaussianNB(), X, Y, promise=promise, **options).close()
    return folder / name


def plain(text):
    for pattern, kind in DRAWN:
        text = re.sub(pattern, kind, text)
    return text


@pytest.fixture(scope="module")
def pair(tmp_path_factory, serve):
    folder = tmp_path_factory.mktemp("pair")
    logs = [folder / "a.log", folder / "b.log"]
    with open(logs[0], "wb") as first, open(logs[1], "wb") as second:
        # The promise is vacuous for so few shards, which every answer then says; the boundary is the same.
        folders = [made(folder / each, "shop") for each in ("first", "second")]
        with (
            receiving() as receiver,
            serve(folders[0], "--allow-unguarded", errors=first, integration=sending(receiver, "a")) as a,
            serve(folders[1], "--allow-unguarded", errors=second, integration=sending(receiver, "b")) as b,
        ):
            a.told, b.told = ([] for _ in range(2))
            receiver.told = {"/a": a.told, "/b": b.told}
            yield a, b, logs


@contextlib.contextmanager
def receiving():
    """Another system, which is told of its petitions."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            fields = {name.lower(): value for name, value in self.headers.items()}
            self.server.told[self.path].append((time.time(), fields, body))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def sending(receiver, name):
    """The options of an integration that is told by this system."""
    return {"callbacks": [f"http://127.0.0.1:{receiver.server_address[1]}/{name}"]}


def petition(service, id, person):
    """An erasure request in the form of OpenDSR."""
    return {
        "subject_request_id": id,
        "subject_request_type": "erasure",
        "subject_identities": [{"identity_type": "controller_customer_id", "identity_value": person}],
        "status_callback_urls": list(service.integration.callbacks),
    }


def signed(service, id, person):
    """An event, and its header fields."""
    identities = [{"type": "controller_customer_id", "value": person}]
    body = json.dumps({"type": "erasure.requested", "data": {"identities": identities}}).encode()
    at = int(time.time())
    made = sign(service.integration.secret, id, at, body)
    return body, {"webhook-id": id, "webhook-timestamp": str(at), "webhook-signature": made}


def drive(service):
    """Ask for everything, as everybody."""
    told = []

    def ask(role, method, path, data=None, **more):
        found = service.ask(method, path, data, role=role, **more)
        kept = {name: value for name, value in found.headers.items() if name not in ("content-length", "etag")}
        told.append((role, method, plain(path), found.status, plain(json.dumps(kept)), body_of(found)))
        return found

    first = ask("update", "POST", "/v1/updates", {"delete": {"ids": [1]}}, Prefer="wait=30").json["request"]
    many = {"delete": {"ids": list(range(10, 60))}}
    second = ask("update", "POST", "/v1/updates", many, Prefer="wait=30").json["request"]
    for id, person in (("p-1", "250"), ("p-2", "nobody"), ("p-1", "250"), ("p-1", "251")):
        ask("integration", "POST", "/opendsr/requests", petition(service, id, person))
        ask("integration", "GET", f"/opendsr/requests/{id}")
    for id, person in (("w-1", "252"), ("w-2", "nobody")):
        body, fields = signed(service, id, person)
        ask(None, "POST", "/v1/webhooks/crm", body=body, **fields)
    while len(service.told) < 4:
        time.sleep(0.05)
    for id in ("p-1", "p-2", "p-3"):
        ask("integration", "GET", f"/opendsr/requests/{id}")
        ask("integration", "DELETE", f"/opendsr/requests/{id}")
    document = service.ask("GET", "/openapi.json").json
    paths = [(path, method) for path, methods in document["paths"].items() for method in methods]
    for role in (*ROLES, "integration", None):
        if role == "operator":
            continue
        for rows in (FAR[:1], FAR, FAR * 50):
            ask(role, "POST", "/v1/predictions", {"rows": rows})
            ask(role, "POST", "/v1/predictions?probabilities=true", {"rows": rows})
        ask(role, "POST", "/v1/updates", {"delete": {"ids": [1]}})
        for path, method in sorted(paths):
            if method == "get":
                for name in (first, second) if "{" in path else ("",):
                    ask(role, "GET", re.sub(r"\{\w+\}", name, path))
            elif path not in ("/v1/predictions", "/v1/updates"):
                ask(role, method.upper(), re.sub(r"\{\w+\}", first, path), {} if method == "post" else None)
    return told


def parts(told):
    """What was told, piece by piece, so that a difference is short."""
    return [*map(str, told[:4]), *re.split(r"(?<=[,\n])", told[4]), *re.split(r"(?<=[,\n])", told[5])]


def body_of(found):
    if found.headers.get("content-type", "").startswith("application/json") and b'"payload"' in found.body:
        import base64

        statement = json.loads(base64.b64decode(found.json["payload"]))
        return plain(json.dumps(statement, sort_keys=True))
    return plain(found.body.decode())


def test_nothing_that_leaves_depends_on_the_key(pair):
    a, b, logs = pair
    first, second = drive(a), drive(b)
    different = [
        (one[:4], mine, yours)
        for one, other in zip(first, second, strict=True)
        for mine, yours in zip(parts(one), parts(other), strict=False)
        if mine != yours
    ]
    assert different == []
    assert len(first) > 150
    inside = [service.ask("GET", "/v1/inside").json for service in (a, b)]
    assert inside[0]["sizes"] != inside[1]["sizes"]  # the keys differ, and the operator sees it
    lines, callbacks = [], []
    for log in logs:
        told = [json.loads(line) for line in log.read_text().splitlines()]
        outside = [each | {"id": "", "at": "", "caller": "", "message": ""} for each in told if not each.get("inside")]
        lines.append([each for each in outside if each["event"] != "callback"])
        callbacks.append(sorted(map(plain, map(json.dumps, (each for each in outside if each["event"] == "callback")))))
    shortest = min(map(len, lines))
    assert shortest > 100
    assert lines[0][:shortest] == lines[1][:shortest]
    assert not [each for each in lines[0] if "ms" in each]
    assert len(callbacks[0]) == 4
    assert callbacks[0] == callbacks[1]
    require_same_messages(a, b)


def require_same_messages(a, b):
    """Both tell the other system the same, not before the tick of the application, with or without records."""
    messages = [sorted(plain(body.decode()).replace("/b", "/a") for _, _, body in each.told) for each in (a, b)]
    assert messages[0] == messages[1]
    names = [sorted({name for _, fields, _ in each.told for name in fields}) for each in (a, b)]
    assert names[0] == names[1]
    for at, _, body in (*a.told, *b.told):
        told = json.loads(body)
        assert (told.get("subject_request_id") or told["data"]["id"]) in ("p-1", "p-2", "w-1", "w-2")
        if "timestamp" in told:
            applied = seconds_of(told["timestamp"])
            assert applied % TICK == 0
            assert at >= applied


def test_every_answer_says_that_nothing_guards_it(pair):
    a, _, _ = pair
    assert a.ask("GET", "/healthz", role=None).headers["expunge-promise"].startswith("unguarded")
    assert a.ask("GET", "/v1/promise", role="predict").json["guarded"] is False


def test_it_is_refused_unless_that_is_allowed(tmp_path, program):
    assert "--allow-unguarded" in program("serve", made(tmp_path, "c"), code=2).stderr


def test_a_fixed_seed_is_refused(tmp_path, program):
    from expunge import Randomness

    options = {"n_shards": 3, "rng": Randomness.from_seed(1)}
    expunge.create(tmp_path / "seeded", GaussianNB(), X, Y, **options).close()
    assert "fixed seed" in program("serve", tmp_path / "seeded", "--allow-unguarded", code=2).stderr


@pytest.mark.parametrize("ids", [[100], list(range(120, 180))])
def test_becoming_applied_is_seen_on_a_tick_however_many_shards_are_trained(pair, ids):
    """A round begins on a tick, is switched on the next, and counts as applied on the one after that."""
    a, _, _ = pair
    found = a.ask("POST", "/v1/updates", {"delete": {"ids": ids}}, role="update")
    assert found.status == 202
    accepted = seconds_of(found.json["accepted_at"])
    while True:
        before = time.time()
        told = a.ask("GET", f"/v1/updates/{found.json['request']}", role="update").json
        if told["state"] == "applied":
            break
        assert before < accepted + 60 * TICK
        time.sleep(0.02)
    applied_by = seconds_of(told["applied_by"])
    assert applied_by % TICK == 0
    assert applied_by - accepted >= 2 * TICK
    assert time.time() >= applied_by
