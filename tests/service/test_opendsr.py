"""`/opendsr`: requests by other systems are received once, done like any other, and told no more than they may know."""

from __future__ import annotations

import base64
import hashlib
import json
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from sklearn.naive_bayes import GaussianNB

import expunge
from expunge.core.words import seconds_of

WITHOUT = "nobody-of-that-name"
IDENTITIES = {"identities": ["household", "email:sha256"]}
STEP = 0.05


def sent(id, *values, kind="household", form="raw", **more):
    identities = [{"identity_type": kind, "identity_value": each, "identity_format": form} for each in values]
    given = {"subject_request_id": id, "subject_request_type": "erasure", "subject_identities": identities}
    return {**given, "submitted_time": "2026-01-01T00:00:00Z", "regulation": "gdpr", **more}


def ask(service, id, *values, **more):
    return service.ask("POST", "/opendsr/requests", sent(id, *values, **more), role="integration")


def status(service, id):
    return service.ask("GET", f"/opendsr/requests/{id}", role="integration").json["request_status"]


def wait_until(service, id, wanted):
    for _ in range(1200):
        if status(service, id) == wanted:
            return
        time.sleep(STEP)
    raise AssertionError(f"{id} is {status(service, id)}, not {wanted}")


def ticking(folder, people, program, *options, clock=1):
    """A deployment whose clock ticks every second."""
    people(60).to_csv(folder / "train.csv", index=False)
    columns = ("--label", "churned", "--id", "id", "--subject", "household", "--clock", clock)
    made = folder / "shop"
    program(
        "create", made, "--data", folder / "train.csv", *columns, "--learner", "naive-bayes", "--shards", 3, *options
    )
    return made


@pytest.fixture(scope="module")
def shop(tmp_path_factory, people, program, serve):
    with serve(ticking(tmp_path_factory.mktemp("opendsr"), people, program), integration=IDENTITIES) as running:
        yield running


def test_a_request_is_received_signed_and_completed(shop):
    found = ask(shop, "a-1", "h1")
    assert (found.status, found.json["controller_id"], found.json["subject_request_id"]) == (201, "crm", "a-1")
    assert json.loads(base64.b64decode(found.json["encoded_request"])) == sent("a-1", "h1")
    certificate = x509.load_pem_x509_certificate(shop.ask("GET", "/opendsr/certificate", role=None).body)
    for answer in (found, shop.ask("GET", "/opendsr/requests/a-1", role="integration")):
        signature = base64.b64decode(answer.headers["x-opendsr-signature"])
        certificate.public_key().verify(signature, answer.body, ec.ECDSA(SHA256()))
        assert answer.headers["x-opendsr-processor-domain"] == "127.0.0.1"
    wait_until(shop, "a-1", "completed")
    assert shop.ask("POST", "/v1/updates", {"delete": {"subjects": ["h1"]}}).json["type"].endswith("unknown-record")


def test_the_same_id_gives_the_same_answer_and_counts_once(shop):
    before = shop.ask("GET", "/v1/status").json["records"]
    with ThreadPoolExecutor(6) as pool:
        answers = [each.result() for each in [pool.submit(ask, shop, "a-2", "h2") for _ in range(6)]]
    assert {each.status for each in answers} == {201}
    assert len({each.body for each in answers}) == 1
    wait_until(shop, "a-2", "completed")
    assert ask(shop, "a-2", "h2").body == answers[0].body
    assert shop.ask("GET", "/v1/status").json["records"] == before - 3
    other = ask(shop, "a-2", "h3")
    assert (other.status, other.json["type"]) == (422, "urn:expunge:problem:idempotency")
    assert "the id a-2 was used for another request" in other.json["detail"]


def test_a_person_without_records_is_told_the_same(shop):
    """What comes back differs in the id alone, and completion is seen on a tick for both."""
    before = shop.ask("GET", "/v1/status").json["records"]
    ids = {"b-1": "h4", "b-2": WITHOUT, "b-3": "h1"}  # h1 was erased above
    answers = {id: ask(shop, id, name) for id, name in ids.items()}
    told = {
        json.dumps([each.status, sorted(set(each.headers) - {"content-length"}), sorted(each.json)])
        for each in answers.values()
    }
    assert len(told) == 1
    completed = {}
    while len(completed) < len(ids):
        for id in ids:
            if id not in completed and status(shop, id) == "completed":
                completed[id] = time.time()
        time.sleep(STEP)
    updates = shop.ask("GET", "/v1/updates?order=newest&limit=3").json["updates"][::-1]  # as they were accepted
    applied = [seconds_of(each["applied_by"]) for each in updates]
    assert all(
        at >= by for at, by in zip([completed[id] for id in ids], applied, strict=True)
    )  # not when it is trained
    assert shop.ask("GET", "/v1/status").json["records"] == before - 3
    assert len({shop.ask("GET", f"/opendsr/requests/{id}", role="integration").status for id in ids}) == 1


def test_hashed_names_are_found(shop):
    digest = hashlib.sha256(b"h5").hexdigest()
    assert ask(shop, "c-1", digest.upper(), form="sha256").status == 201
    assert ask(shop, "c-2", hashlib.md5(b"h6").hexdigest(), "h7", form="md5").status == 400
    assert ask(shop, "c-2", hashlib.md5(b"h6").hexdigest(), form="md5").status == 201
    assert ask(shop, "c-3", hashlib.sha1(b"unknown").hexdigest(), form="sha1").status == 201
    for id in ("c-1", "c-2", "c-3"):
        wait_until(shop, id, "completed")
    left = shop.ask("POST", "/v1/updates", {"delete": {"subjects": ["h5"]}})
    assert left.json["type"].endswith("unknown-record")
    assert shop.ask("POST", "/v1/updates", {"delete": {"subjects": ["h6"]}}).json["type"].endswith("unknown-record")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"subject_request_type": "access"}, "subject_request_type"),
        ({"subject_request_type": "portability"}, "subject_request_type"),
        ({"subject_identities": []}, "subject_identities"),
        ({"subject_identities": [{"identity_type": "phone", "identity_value": "1"}]}, "identity_type"),
        ({"subject_request_id": "a b"}, "subject_request_id"),
        ({"subject_request_id": "x" * 65}, "subject_request_id"),
        ({"subject_request_id": 7}, "subject_request_id"),
        ({"status_callback_urls": ["https://other.example.com/"]}, "status_callback_urls"),
        ({"status_callback_urls": "https://other.example.com/"}, "status_callback_urls"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(shop, change, field):
    found = shop.ask("POST", "/opendsr/requests", {**sent("d-1", "h8"), **change}, role="integration")
    assert (found.status, found.headers["content-type"]) == (400, "application/problem+json")
    assert found.json["errors"][0]["field"] == field
    assert shop.ask("GET", "/opendsr/requests/d-1", role="integration").status == 404


@pytest.mark.parametrize(
    ("value", "kind", "form", "field"),
    [
        ("", "household", "raw", "identity_value"),
        ("x" * 1001, "household", "raw", "identity_value"),
        ("12", "household", "sha256", "identity_value"),
        ("h8", "household", "rot13", "identity_format"),
        ("0" * 40, "email", "sha1", "identity_format"),
    ],
)
def test_names_in_a_wrong_form_are_refused(shop, value, kind, form, field):
    found = ask(shop, "d-2", value, kind=kind, form=form)
    assert (found.status, found.json["errors"][0]["field"], found.json["errors"][0]["row"]) == (400, field, 1)


def test_only_an_integration_may_ask_and_it_may_ask_nothing_else(shop):
    for role in ("predict", "update", "auditor", "operator"):
        assert shop.ask("POST", "/opendsr/requests", sent("e-1", "h8"), role=role).status == 403
        assert shop.ask("GET", "/opendsr/discovery", role=role).status == 403
    assert shop.ask("GET", "/opendsr/discovery", role=None).status == 401
    for path in ("/v1/status", "/v1/updates", "/v1/overview", "/v1/log/entries", "/metrics", "/openapi.json"):
        assert shop.ask("GET", path, role="integration").status == 403, path
    told = shop.ask("GET", "/opendsr/discovery", role="integration").json
    assert told["supported_subject_request_types"] == ["erasure"]
    assert {"identity_type": "email", "identity_format": "sha256"} in told["supported_identities"]
    assert told["processor_certificate"] == f"{shop.url}/opendsr/certificate"


def test_a_large_body_is_refused_before_it_is_read(shop):
    found = shop.ask("POST", "/opendsr/requests", body=b"[" * (1 << 20), role="integration")
    assert found.status == 413


def test_requests_survive_a_kill_cancelled_ones_stay_cancelled_and_others_see_none(tmp_path, people, program, serve):
    folder = ticking(tmp_path, people, program, "--apply", "manual")
    with serve(folder, integration=IDENTITIES) as service:
        first = ask(service, "f-1", "h1")
        ask(service, "f-2", WITHOUT)
        for id in ("f-1", "f-2"):
            gone = service.ask("DELETE", f"/opendsr/requests/{id}", role="integration")
            assert (gone.status, gone.json["subject_request_id"]) == (202, id)
            assert service.ask("DELETE", f"/opendsr/requests/{id}", role="integration").status == 202
            assert status(service, id) == "cancelled"
        assert ask(service, "f-1", "h1").body == first.body
        assert status(service, "f-1") == "cancelled"
        assert ask(service, "f-3", "h1").status == 201
        assert service.ask("POST", "/v1/apply").status == 202
        wait_until(service, "f-3", "completed")
        assert service.ask("DELETE", "/opendsr/requests/f-3", role="integration").status == 409
        assert service.ask("GET", "/v1/status").json["records"] == 57
        waiting = [ask(service, f"k-{each}", f"h{each}").json for each in range(2, 7)]
        service.process.send_signal(signal.SIGKILL)
        service.process.wait()
        keys = service.keys
    with serve(folder) as service:
        service.keys |= {"integration": keys["integration"]}
        again = ask(service, "f-1", "h1")
        assert (again.status, again.json) == (201, first.json)
        assert [status(service, id) for id in ("f-1", "f-2", "f-3")] == ["cancelled", "cancelled", "completed"]
        assert [ask(service, f"k-{each}", f"h{each}").json for each in range(2, 7)] == waiting
        service.ask("POST", "/v1/apply")
        wait_until(service, "k-6", "completed")
        assert service.ask("GET", "/v1/status").json["records"] == 57 - 15
        assert program("integrations", "revoke", folder, "--name", "crm")
        other = json.loads(program("integrations", "create", folder, "--name", "other", "--json").stdout)
        for _ in range(100):
            if ask(service, "f-1", "h1").status == 401:
                break
            time.sleep(STEP)
        service.keys["integration"] = other["key"]
        for _ in range(100):
            found = service.ask("GET", "/opendsr/requests/f-3", role="integration")
            if found.status == 404:
                break
            time.sleep(STEP)
        assert found.status == 404


def test_people_without_subjects_are_named_by_their_id(tmp_path, serve):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    expunge.create(tmp_path / "plain", GaussianNB(), X, X[:, 0] > 0, n_shards=3, clock_seconds=1).close()
    with serve(tmp_path / "plain", integration={}) as service:
        kinds = {"kind": "controller_customer_id"}
        assert ask(service, "g-1", "17", **kinds).status == 201
        assert ask(service, "g-2", "seventeen", **kinds).status == 201
        assert ask(service, "g-3", hashlib.sha256(b"18").hexdigest(), form="sha256", **kinds).status == 201
        for id in ("g-1", "g-2", "g-3"):
            wait_until(service, id, "completed")
        assert service.ask("GET", "/v1/status").json["records"] == 58
