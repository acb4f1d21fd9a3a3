"""The trust boundary at the wire, under (α,β,γ): but for the operator nothing that leaves depends on ζ.

Two deployments have the same records and different keys ζ, once under a consensus and once under noise. Every route is
driven with every role, in the same order. All that comes back is compared: status, headers, bodies, metrics and log
lines. What is drawn anew for each deployment and published on purpose (ids, times, hashes, signatures, noisy labels) is
replaced by its kind. When requests become applied, and how long they take to be accepted, is in
`tests/folder/test_pace.py`.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

import expunge
from expunge import Consensus, Noise
from expunge.core.errors import InputError
from expunge.core.words import seconds_of
from expunge.service.about import longer_than_a_tick
from expunge.service.access import ROLES, KeyFile
from expunge.service.application import make_app
from expunge.service.integrations import IntegrationFile
from expunge.service.signing import sign

RNG = np.random.default_rng(5)
X = RNG.normal(size=(300, 2))
Y = np.where(X[:, 0] > 0, "stay", "goes")  # noise may draw either: both are as long
FAR = [[4.0, 0.0], [-4.0, 0.0]]  # where all shards agree
TICK = 1
PATIENCE = 120
PROMISES = {"consensus": Consensus(max_predictions=1000), "noise": Noise(max_predictions=1000)}
DRAWN = [
    (r"-----BEGIN CERTIFICATE-----[\s\S]*-----END CERTIFICATE-----", "<certificate>"),
    (r'"[xy]":\s?"[\w-]{43}"', "<point>"),
    (r"http://127\.0\.0\.1:\d+(/\d)?", "<address>"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "<time>"),
    (r"expunge/[0-9a-f]{32}", "<log>"),
    (r"(?:[0-9a-f]{4} ){3,}[0-9a-f]{4}", "<fingerprint>"),
    (r"\w{3}, \d\d \w{3} \d{4} [\d:]+ GMT", "<date>"),
    (r"[A-Za-z0-9+/]{40,}={0,2}", "<bytes>"),
    (r"\b[0-9a-f]{8,}\b", "<hex>"),
    (r"\b\d{10}(\.\d+)?\b", "<seconds>"),
    (r'"rows":\s?\[[\d, ]{300,}\]', "<rows in each second>"),
]
LABELS = (r'"(?:stay|goes)"', "<label>")
# Programs that are forked have imported everything, and are processes and servers of their own.
FORKED = """
import json, os, sys
import expunge.cli.serve, expunge.mlflow, expunge.service.replica, expunge.service.server, sklearn.naive_bayes
from expunge.cli.app import main
for folder, log in json.loads(sys.argv[1]):
    if not os.fork():
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT), 2)
        os.environ["OTEL_SERVICE_NAME"] = folder
        sys.argv = ["expunge", "serve", folder, "--port", "0", "--jobs", "1", "--allow-unguarded"]
        main()
os.wait()
"""


def made(folder, promise):
    options = {"n_shards": 30, "inclusion_probability": 0.2, "clock_seconds": TICK, "apply": "now"}
    expunge.create(folder, GaussianNB(), X, Y, promise=PROMISES[promise], **options).close()
    return folder


class Receiver(BaseHTTPRequestHandler):
    """Another system, which is told what became of its petitions."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.path == "/v1/traces":
            self.server.traces.append(gzip.decompress(body) if self.headers["content-encoding"] == "gzip" else body)
            self.send_response(200)
            self.end_headers()
            return
        self.server.told[self.path].append((time.time(), sorted(name.lower() for name in self.headers), body))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def served_together(folders, served):
    """All of them are served, each by a process of its own."""
    keys = [{role: KeyFile(folder).create(role)[0] for role in ROLES} for folder in folders]
    receiver, others = ThreadingHTTPServer(("127.0.0.1", 0), Receiver), []
    receiver.told, receiver.traces = {f"/{place}": [] for place in range(len(folders))}, []
    threading.Thread(target=receiver.serve_forever, daemon=True).start()
    for (where, told), folder, own in zip(receiver.told.items(), folders, keys, strict=True):
        callback = f"http://127.0.0.1:{receiver.server_address[1]}{where}"
        own["integration"], made = IntegrationFile(folder).create("crm", callbacks=[callback])
        others.append((made, told))
    logs = [folder.with_suffix(".log") for folder in folders]
    told = json.dumps([[str(folder), str(log)] for folder, log in zip(folders, logs, strict=True)])
    collector = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{receiver.server_address[1]}",
        "OTEL_BSP_SCHEDULE_DELAY": "500",
    }
    process = subprocess.Popen(
        [sys.executable, "-c", FORKED, told],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, **collector},
    )
    try:
        urls, ends = {}, time.monotonic() + PATIENCE
        while len(urls) < len(folders):
            assert select.select([process.stdout], [], [], max(0, ends - time.monotonic()))[0], "they did not start"
            folder, _, url = process.stdout.readline().partition(" is served at ")
            urls[folder] = url.strip()
        yield (
            [
                served(folder, process, urls[str(folder)], own, *other)
                for folder, own, other in zip(folders, keys, others, strict=True)
            ],
            logs,
            receiver.traces,
        )
    finally:
        receiver.shutdown()
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


@pytest.fixture(scope="module")
def pairs(tmp_path_factory, served):
    """For each promise: two services with different keys, what everybody was told, and their logs."""
    folder = tmp_path_factory.mktemp("pairs")
    folders = []
    for promise in PROMISES:
        for which in ("first", "second"):
            (folder / promise / which).mkdir(parents=True)
            folders.append(made(folder / promise / which / "shop", promise))  # so few shards: the promise is vacuous
    with served_together(folders, served) as (services, logs, traces), ThreadPoolExecutor(len(services)) as pool:
        told = list(pool.map(drive, services))
        last = [service.ask("GET", "/v1/inside") for service in services]
        inside = [each.json for each in last]
        for each, log in zip(last, logs, strict=True):
            wait_for_line(log, each.headers["x-request-id"])
        others = [
            (service.told, spans_of(traces, service.folder, at_least=len(answers) + 6))
            for service, answers in zip(services, told, strict=True)
        ]
        written = [[json.loads(line) for line in log.read_text().splitlines()] for log in logs]
    everything = list(zip(told, list(zip(written, others, strict=True)), inside, strict=True))
    return {promise: everything[2 * place : 2 * place + 2] for place, promise in enumerate(PROMISES)}


def wait_for_line(log, identity):
    """Lines about requests are written once a second."""
    ends = time.monotonic() + PATIENCE
    while not any(identity in line and line.endswith("}") for line in log.read_text().splitlines()):
        assert time.monotonic() < ends
        time.sleep(0.05)


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


def spans_of(traces, folder, at_least):
    """The spans that a service sends."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    found, ends = [], time.monotonic() + PATIENCE
    while len(found) < at_least:
        assert time.monotonic() < ends, f"{len(found)} spans, and not {at_least}"
        time.sleep(0.1)
        found = _spans_in([*traces], folder, ExportTraceServiceRequest)
    return found


def _spans_in(traces, folder, form):
    found = []
    for body in traces:
        for each in form.FromString(body).resource_spans:
            names = [one.value.string_value for one in each.resource.attributes if one.key == "service.name"]
            if names == [str(folder)]:
                found += [span for scope in each.scope_spans for span in scope.spans]
    return found


def drive(service):
    """Ask for everything, as everybody but the operator."""
    told = []

    def ask(role, method, path, data=None, **more):
        found = service.ask(method, path, data, role=role, **more)
        told.append((role, method, path, found))
        return found

    paths = service.ask("GET", "/openapi.json").json["paths"]
    many = {"delete": {"ids": list(range(10, 60))}}
    request = ask("update", "POST", "/v1/updates", many).json["request"]
    assert ask("update", "GET", f"/v1/updates/{request}", Prefer="wait=60").json["state"] == "applied"
    for number, (id, person) in enumerate((("p-1", "250"), ("p-2", "nobody"), ("w-1", "nobody")), 1):
        if id == "w-1":
            body, fields = signed(service, id, person)
            ask(None, "POST", "/v1/webhooks/crm", body=body, **fields)
        else:
            ask("integration", "POST", "/opendsr/requests", petition(service, id, person))
            ask("integration", "POST", "/opendsr/requests", petition(service, id, "251"))  # the id is used
        while len(service.told) < number:  # one after another: so both services make the same rounds
            time.sleep(0.05)
    for id in ("p-1", "p-2", "p-3"):
        ask("integration", "GET", f"/opendsr/requests/{id}")
        ask("integration", "DELETE", f"/opendsr/requests/{id}")
    for role in (*(role for role in ROLES if role != "operator"), "integration", None):
        for rows in (FAR[:1], FAR, FAR * 50):
            ask(role, "POST", "/v1/predictions", {"rows": rows})
        ask(role, "POST", "/v1/predictions?probabilities=true", {"rows": FAR})
        ask(role, "POST", "/v1/updates", {"delete": {"ids": [10]}})  # it is gone
        for path, method in sorted((path, method) for path, methods in paths.items() for method in methods):
            if method == "get":
                where = re.sub(r"\{\w+\}", request, path)
                tag = ask(role, "GET", where).headers.get("etag")
                if tag is not None and not path.startswith("/v1/certificates"):  # these are dated by the clock
                    ask(role, "GET", where, If_None_Match=tag)
            elif path == "/v1/audits" and role == "auditor":
                begun = ask(role, "POST", path, {"trials": 2, "records": 50})
                ask(role, "DELETE", begun.headers["location"])
            elif path not in ("/v1/predictions", "/v1/updates"):
                data = {} if method == "post" else None
                ask(role, method.upper(), re.sub(r"\{\w+\}", request, path), data)
    return told


def plain(text, promise):
    for pattern, kind in [*DRAWN, *([LABELS] if promise == "noise" else [])]:
        text = re.sub(pattern, kind, text)
    return text


def body_of(found, promise):
    """The body; the statement in it, if it is a certificate."""
    if found.headers.get("content-type", "").startswith("application/json") and b'"payload"' in found.body:
        statement = json.loads(base64.b64decode(found.json["payload"]))
        return plain(json.dumps(statement, sort_keys=True), promise)
    return plain(found.body.decode(), promise)


def parts(answer, promise):
    """An answer in pieces, so that a difference is short."""
    role, method, path, found = answer
    # A connection is closed if a body that was not read has not come yet, which the network decides.
    kept = {
        name: value for name, value in found.headers.items() if name not in ("content-length", "etag", "connection")
    }
    told = (str(role), method, plain(path, promise), str(found.status), plain(json.dumps(kept), promise))
    return [*told[:4], *re.split(r"(?<=[,\n])", told[4]), *re.split(r"(?<=[,\n])", body_of(found, promise))]


@pytest.mark.parametrize("promise", PROMISES)
def test_no_answer_depends_on_the_key(pairs, promise):
    (first, _, one), (second, _, other) = pairs[promise]
    assert one["sizes"] != other["sizes"]  # the keys differ, and the operator sees it
    different = [
        (mine[:3], left, right)
        for mine, yours in zip(first, second, strict=True)
        for left, right in zip(parts(mine, promise), parts(yours, promise), strict=False)
        if left != right
    ]
    assert different == []
    assert len(first) > 150
    assert {found.status for *_, found in first} >= {200, 202, 304, 400, 401, 403, 404}


@pytest.mark.parametrize("promise", PROMISES)
def test_tags_and_lengths_follow_from_what_is_sent(pairs, promise):
    """So they depend on ζ no more than the content that was compared; and contents are of the same length."""
    (first, _, _), (second, _, _) = pairs[promise]
    tagged = 0
    for *_, found in (*first, *second):
        length, tag = found.headers.get("content-length"), found.headers.get("etag")
        assert "transfer-encoding" not in found.headers
        if found.status != 304:
            assert length == str(len(found.body))
        if tag is not None and found.status == 200:
            person = found.headers["content-type"].encode()[:16]
            assert tag == f'"{blake2b(found.body, digest_size=16, person=person).hexdigest()}"'
            tagged += 1
    assert tagged > 50
    unequal = {
        mine[2]
        for mine, yours in zip(first, second, strict=True)
        if len(mine[3].body) != len(yours[3].body)
        and not mine[2].startswith(("/v1/overview", "/metrics", "/opendsr/certificate"))
    }
    assert unequal == set()


@pytest.mark.parametrize("promise", PROMISES)
def test_no_line_of_the_log_depends_on_the_key(pairs, promise):
    kept = [
        [each | {"id": "", "at": "", "caller": "", "message": ""} for each in lines if not each.get("inside")]
        for _, (lines, _), _ in pairs[promise]
    ]
    told = [sorted((each for each in lines if each["event"] == "callback"), key=str) for lines in kept]
    kept = [[each for each in lines if each["event"] != "callback"] for lines in kept]
    assert len(kept[0]) > 150
    assert kept[0] == kept[1]
    assert not [each for each in kept[0] if "ms" in each]
    assert len(told[0]) == 3
    assert told[0] == told[1]


@pytest.mark.parametrize("promise", PROMISES)
def test_no_span_of_a_trace_depends_on_the_key(pairs, promise):
    """Nor says how long anything took."""
    (_, (_, (_, first)), _), (_, (_, (_, second)), _) = pairs[promise]
    named = [
        [(each.name, sorted(map(str, each.attributes))) for each in spans if each.name != "round"]
        for spans in (first, second)
    ]
    assert len(named[0]) > 150
    assert named[0] == named[1]
    rounds = [each for each in (*first, *second) if each.name == "round"]
    assert len(rounds) == 8
    for each in (*first, *second):
        if each.name == "round":
            assert each.start_time_unix_nano % (TICK * 10**9) == each.end_time_unix_nano % (TICK * 10**9) == 0
            assert {attribute.key for attribute in each.attributes} == {"expunge.round"}
        else:
            assert each.start_time_unix_nano == each.end_time_unix_nano


@pytest.mark.parametrize("promise", PROMISES)
def test_other_systems_are_told_the_same_and_not_before_the_tick(pairs, promise):
    """With or without records: the messages differ in the id alone."""
    (_, (_, (first, _)), _), (_, (_, (second, _)), _) = pairs[promise]
    assert sorted(plain(body.decode(), promise) for *_, body in first) == sorted(
        plain(body.decode(), promise) for *_, body in second
    )
    assert len({str(fields) for _, fields, _ in (*first, *second)}) == 2  # OpenDSR's signature, or not
    names = set()
    for at, _, body in (*first, *second):
        found = json.loads(body)
        names.add(found.get("subject_request_id") or found["data"]["id"])
        if "timestamp" in found:
            applied = seconds_of(found["timestamp"])
            assert applied % TICK == 0
            assert at >= applied
    assert names == {"p-1", "p-2", "w-1"}


@pytest.mark.parametrize("promise", PROMISES)
def test_every_answer_says_that_nothing_guards_it(pairs, promise):
    for told, _, _ in pairs[promise]:
        for *_, found in told:
            assert found.headers["expunge-promise"].startswith("unguarded"), found
    guarded = [
        found.json["guarded"]
        for told, _, _ in pairs[promise]
        for *_, path, found in told
        if path == "/v1/promise" and found.status == 200
    ]
    assert guarded
    assert not any(guarded)


@pytest.mark.parametrize("promise", PROMISES)
def test_requests_are_applied_on_a_tick_however_many_shards_are_trained(pairs, promise):
    """A round begins on a tick, is switched on the next one, and counts as applied on the one after that."""
    for told, _, _ in pairs[promise]:
        done = {
            found.json["request"]: found.json
            for *_, path, found in told
            if path.startswith("/v1/updates/") and found.status == 200 and found.json.get("state") == "applied"
        }
        assert len(done) == 1
        for each in done.values():
            assert seconds_of(each["applied_by"]) % TICK == 0
            assert seconds_of(each["applied_by"]) - seconds_of(each["accepted_at"]) >= 2 * TICK


def test_it_is_refused_unless_that_is_allowed(tmp_path):
    with pytest.raises(InputError, match="--allow-unguarded"):
        make_app(made(tmp_path / "c", "consensus"))


def test_the_operator_is_told_if_a_retraining_takes_longer_than_a_tick(tmp_path):
    costs = {"deletion": 0.1, "models_retrained": 6.0, "refit": 1.0, "is_estimated": False}
    with expunge.open(made(tmp_path / "c", "noise")) as deployment:
        deployment.add_provenance({"costs": costs})
        assert longer_than_a_tick(deployment) is None  # half a second for 30 models
        deployment.add_provenance({"costs": costs | {"deletion": 0.3}})
        assert "1.5 s of processor time, and the clock ticks every 1 s" in longer_than_a_tick(deployment)


def test_a_fixed_seed_is_refused(tmp_path):
    from expunge import Randomness

    options = {"n_shards": 3, "rng": Randomness.from_seed(1)}
    expunge.create(tmp_path / "seeded", GaussianNB(), X, Y, **options).close()
    with pytest.raises(InputError, match="fixed seed"):
        make_app(tmp_path / "seeded", allow_unguarded=True)
    shutil.rmtree(tmp_path / "seeded")
