"""Signed webhooks: nothing unsigned or old is taken, an event counts once, and the outcome is told until it comes."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.client
import json
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import jwt
import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.hashes import SHA256

import expunge
from expunge.core.errors import FormatError, InputError
from expunge.service.access import KeyFile
from expunge.service.bearer import Issuer
from expunge.service.integrations import Identity, IntegrationFile, read_url
from expunge.service.signing import Signer, is_signed, new_key, sign

KEY, OTHER = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
ISSUER, AUDIENCE = "https://id.example.com", "expunge"
PAGE = (Path(__file__).parents[2] / "docs" / "integrations.md").read_text(encoding="utf-8")


def public_keys():
    made = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(KEY.public_key()))
    return {"keys": [{**made, "kid": "first", "alg": "ES256", "use": "sig"}]}


def event(*values, kind="household", **more):
    identities = [{"type": kind, "value": each} for each in values]
    return json.dumps({"type": "erasure.requested", "data": {"identities": identities}, **more}).encode()


def signed(service, body, *, id="evt-1", at=None, secret=None):
    at = int(time.time()) if at is None else at
    made = sign(secret or service.integration.secret, id, at, body)
    return {"webhook-id": id, "webhook-timestamp": str(at), "webhook-signature": made}


def token(body, *, key=KEY, name="first", algorithm="ES256", **changed):
    now = int(time.time())
    claims = {"iss": ISSUER, "aud": AUDIENCE, "iat": now, "exp": now + 60, "jti": "jwt-1"}
    claims |= {"request_body_sha256": hashlib.sha256(body).hexdigest(), **changed}
    claims = {claim: value for claim, value in claims.items() if value is not None}
    return {"Authorization": "Bearer " + jwt.encode(claims, key, algorithm=algorithm, headers={"kid": name})}


def post(service, body, fields, name="crm"):
    headers = {"Content-Type": "application/json", **fields}
    return service.ask("POST", f"/v1/webhooks/{name}", role=None, body=body, **headers)


@dataclass
class Receiver:
    """What another system was told."""

    url: str = ""
    answers: list = field(default_factory=list)  # statuses that come first; then 200
    got: list = field(default_factory=list)

    def wait(self, count):
        for _ in range(1200):
            if len(self.got) >= count:
                return self.got
            time.sleep(0.05)
        raise AssertionError(f"{len(self.got)} messages, and not {count}")


@contextlib.contextmanager
def receiving(*answers):
    """Another system, which answers with these statuses first."""
    found = Receiver(answers=[*answers])

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            found.got.append((self.path, {name.lower(): value for name, value in self.headers.items()}, body))
            self.send_response(found.answers.pop(0) if found.answers else 200)
            self.send_header("Location", f"{found.url}/elsewhere")
            self.end_headers()

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        found.url = f"http://127.0.0.1:{server.server_address[1]}"
        yield found
        server.shutdown()


@pytest.fixture(scope="module")
def receiver():
    with receiving() as found:
        yield found


@pytest.fixture(scope="module")
def made(tmp_path_factory, people, program):
    folder = tmp_path_factory.mktemp("webhooks")
    people(90).to_csv(folder / "train.csv", index=False)
    columns = ("--label", "churned", "--id", "id", "--subject", "household", "--clock", 1)
    program(
        "create", folder / "shop", "--data", folder / "train.csv", *columns, "--learner", "naive-bayes", "--shards", 3
    )
    return folder / "shop"


@pytest.fixture(scope="module")
def shop(made, tmp_path_factory, serve, receiver):
    folder = tmp_path_factory.mktemp("served")
    shutil.copytree(made, folder / "shop")
    issuer = Issuer(url=ISSUER, audience=AUDIENCE, keys=public_keys())
    options = {"identities": ["household"], "callbacks": [f"{receiver.url}/hooks?key=17"], "issuer": issuer}
    with open(folder / "log", "wb") as log, serve(folder / "shop", integration=options, errors=log) as running:
        running.log = folder / "log"
        yield running


def num_records(service):
    return service.ask("GET", "/v1/status").json["records"]


def test_an_event_is_taken_once_and_its_sender_is_told(shop, receiver):
    before, body = num_records(shop), event("h1")
    receiver.got.clear()
    found = post(shop, body, signed(shop, body, id="in-1"))
    assert (found.status, found.json["id"], found.json["status"]) == (202, "in-1", "pending")
    again = post(shop, body, signed(shop, body, id="in-1", at=int(time.time()) - 100))
    assert (again.status, again.json["received_at"]) == (202, found.json["received_at"])
    ((path, headers, told),) = receiver.wait(1)
    assert path == "/hooks?key=17"
    assert json.loads(told)["type"] == "erasure.completed"
    assert json.loads(told)["data"] == {"id": "in-1", "status": "completed"}
    assert is_signed(
        shop.integration.secret, headers["webhook-id"], headers["webhook-timestamp"], told, headers["webhook-signature"]
    )
    keys = jwt.PyJWKSet.from_dict(shop.ask("GET", "/.well-known/jwks.json", role=None).json)
    bearer = headers["authorization"].removeprefix("Bearer ")
    key = keys[jwt.get_unverified_header(bearer)["kid"]]
    claims = jwt.decode(bearer, key, algorithms=["ES256"], audience=f"{receiver.url}/hooks?key=17", issuer=shop.url)
    assert (claims["jti"], claims["request_body_sha256"]) == (headers["webhook-id"], hashlib.sha256(told).hexdigest())
    assert num_records(shop) == before - 3
    assert post(shop, body, signed(shop, body, id="in-1")).json["status"] == "completed"
    other = event("h2")
    assert post(shop, other, signed(shop, other, id="in-1")).status == 422
    time.sleep(1.5)
    assert len(receiver.got) == 1


def wrong_signatures(service, body):
    now, right = int(time.time()), signed(service, body, id="evil")
    yield {}
    yield {**right, "webhook-signature": "v1,"}
    yield {**right, "webhook-signature": right["webhook-signature"].replace("v1,", "v2,")}
    yield {**right, "webhook-signature": "v1," + base64.b64encode(bytes(32)).decode()}
    yield {**right, "webhook-signature": "v1,\u00e9".encode().decode("latin-1")}
    yield {**right, "webhook-id": "evil-2"}
    yield {**right, "webhook-timestamp": str(now + 1)}
    yield {**right, "webhook-timestamp": ""}
    yield signed(service, body, id="evil", at=now - 400)
    yield signed(service, body, id="evil", at=now + 400)
    yield signed(service, body, id="evil", at="1e9")
    yield signed(service, body + b" ", id="evil")
    yield signed(service, body, id="evil", secret="whsec_" + base64.b64encode(bytes(32)).decode())
    yield signed(service, body, id="")
    yield {"Authorization": f"Bearer {service.keys['operator']}"}
    yield {"Authorization": f"Bearer {service.keys['integration']}"}
    yield token(body, jti="evil", key=OTHER)
    yield token(body, jti="evil", key=OTHER, name="second")
    yield token(body + b" ", jti="evil")
    yield token(body, jti="evil", request_body_sha256=None)
    yield token(body, jti="evil", exp=None)
    yield token(body, jti="evil", iat=None)
    yield token(body, jti="evil", iat=now - 400)
    yield token(body, jti="evil", exp=now - 60)
    yield token(body, jti=None)
    yield token(body, jti="evil", aud="other")
    yield token(body, jti="evil", iss="https://evil.example.com")
    yield token(body, jti="evil", key="x" * 32, algorithm="HS256")
    yield {"Authorization": "Bearer " + jwt.encode({"jti": "evil"}, None, algorithm="none")}


def test_what_is_not_signed_right_and_now_is_refused_in_one_way(shop):
    before, body = shop.ask("GET", "/v1/updates").json, event("h3")
    answers = [post(shop, body, each) for each in wrong_signatures(shop, body)]
    assert [each.status for each in answers] == [401] * len(answers)
    assert len({each.json["detail"] for each in answers}) == 1
    unknown = post(shop, body, signed(shop, body, id="evil"), name="nobody")
    assert (unknown.status, unknown.json["detail"]) == (401, answers[0].json["detail"])
    assert shop.ask("GET", "/v1/updates").json == before
    assert post(shop, body, signed(shop, body, id="good")).status == 202


def test_a_jwt_is_taken_once(shop):
    body = event("h4")
    first, again = post(shop, body, token(body, jti="j-1")), post(shop, body, token(body, jti="j-1"))
    assert (first.status, again.json["received_at"]) == (202, first.json["received_at"])
    assert post(shop, event("h5"), token(event("h5"), jti="j-1")).status == 422


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[]", 400),
        (b'{"type": "erasure.requested"}', 400),
        (b'{"type": "erasure.requested", "data": {"identities": []}}', 400),
        (event("h6", type="person.created"), 400),
        (event("h6", kind="email"), 400),
        (event(*["h6"] * 101), 400),
        (b'{"a": ' + b"[" * 50_000, 400),
        (b" " * (1 << 19), 413),
    ],
)
def test_events_that_say_nothing_are_refused(shop, body, status):
    found = post(shop, body, signed(shop, body, id="empty"))
    assert (found.status, found.headers["content-type"]) == (status, "application/problem+json")


def test_a_message_comes_until_it_is_answered_also_over_a_kill(made, tmp_path, serve):
    """The service is killed after the request was accepted; after the next start two attempts fail, and one arrives."""
    with receiving(500, 302) as receiver:
        _kill_and_receive(shutil.copytree(made, tmp_path / "shop"), serve, receiver)


def _kill_and_receive(folder, serve, receiver):
    options = {"identities": ["household"], "callbacks": [f"{receiver.url}/"]}
    ask = {
        "subject_request_id": "kill-1",
        "subject_request_type": "erasure",
        "subject_identities": [{"identity_type": "household", "identity_value": "h7"}],
        "status_callback_urls": [f"{receiver.url}/status"],
    }
    with serve(folder, integration=options) as service:
        assert service.ask("POST", "/opendsr/requests", ask, role="integration").status == 201
        service.process.send_signal(signal.SIGKILL)
        service.process.wait()
        assert receiver.got == []
    with serve(folder) as service:
        messages = receiver.wait(3)
        assert {path for path, _, _ in messages} == {"/status"}
        assert len({headers["webhook-id"] for _, headers, _ in messages}) == 1
        assert len({headers["webhook-timestamp"] for _, headers, _ in messages}) > 1
        _, headers, body = messages[-1]
        told = json.loads(body)
        assert (told["request_status"], told["status_callback_url"]) == ("completed", f"{receiver.url}/status")
        certificate = x509.load_pem_x509_certificate(service.ask("GET", "/opendsr/certificate", role=None).body)
        signature = base64.b64decode(headers["x-opendsr-signature"])
        certificate.public_key().verify(signature, body, ec.ECDSA(SHA256()))
        time.sleep(1.2)
        assert len(receiver.got) == 3


@pytest.mark.long
def test_kills_again_and_again_lose_no_petition_and_no_message(made, tmp_path, serve):
    """Some arrive twice, some never; a third of the messages fails. `test_a_message_comes_until…` is its share."""
    folder, chance = shutil.copytree(made, tmp_path / "shop"), random.Random(7)
    with receiving(*[chance.choice([200, 200, 500, 302]) for _ in range(300)]) as receiver:
        options = {"identities": ["household"], "callbacks": [f"{receiver.url}/"]}
        asked, answers, integration = {}, {}, None
        for kill in range(6):
            with serve(folder, **({} if kill else {"integration": options})) as service:
                service.integration = integration = integration or service.integration
                timer = threading.Timer(chance.uniform(0.3, 3), service.process.kill)
                timer.start()
                while service.process.poll() is None:
                    number = len(asked) if chance.random() < 0.6 else chance.randrange(len(asked) + 1)
                    person = asked.setdefault(f"p-{number}", chance.choice([f"h{number % 30}", "nobody"]))
                    body = event(person)
                    with contextlib.suppress(OSError, http.client.HTTPException):
                        found = post(service, body, signed(service, body, id=f"p-{number}"))
                        assert found.status == 202
                        first = answers.setdefault(f"p-{number}", found.json["received_at"])
                        assert found.json["received_at"] == first
        with serve(folder) as service:
            told = set()
            while not answers.keys() <= told:
                time.sleep(2)  # also for one that was accepted and not answered
                told = {json.loads(body)["data"]["id"] for _, _, body in receiver.got}
            gone = {asked[id] for id in told} - {"nobody"}
            assert num_records(service) == 90 - sum(2 if person == "h0" else 3 for person in gone)
        messages = {(json.loads(body)["data"]["id"], headers["webhook-id"]) for _, headers, body in receiver.got}
        assert len(messages) == len(told)
        assert len(answers) > 50


def test_no_secret_and_no_name_is_in_the_log(shop):
    body = event("h8-secretive")
    post(shop, body, signed(shop, body, id="log-1"))
    time.sleep(3.5)
    told = shop.log.read_text()
    assert '"callback"' in told
    for secret in (shop.integration.secret, shop.keys["integration"], "h8-secretive", "key=17", "v1,"):
        assert secret not in told, secret
    kept = (shop.folder / "integrations.json").stat()
    assert kept.st_mode & 0o77 == 0


@pytest.mark.parametrize(
    "url",
    [
        "http://crm.example.com/",
        "https://user@crm.example.com/",
        "https://crm.example.com@evil.example.com/",
        "ftp://crm.example.com/",
        "https:///path",
        "https://crm.example.com/#part",
        "https://crm.example.com\\@evil.example.com/",
        "https://crm.example.com:port/",
        "https://crm.example.com/a b",
        "https://crm.example.com/\r\nhost: evil",
        "http://127.0.0.1.evil.example.com/",
        "http://[::1",
        "file:///etc/passwd",
        "",
    ],
)
def test_addresses_that_may_not_be_told(url):
    assert read_url(url) is None


def test_a_host_port_and_scheme_are_allowed_together(made, tmp_path):
    folder = shutil.copytree(made, tmp_path / "shop")
    _, found = IntegrationFile(folder).create("crm", callbacks=["https://crm.example.com/hooks"])
    assert found.may_tell("https://crm.example.com/other?x=1")
    assert found.may_tell("https://CRM.example.com:443/")
    for url in (
        "https://crm.example.com:8443/",
        "https://evil.example.com/",
        "http://localhost/",
        "https://example.com/",
    ):
        assert not found.may_tell(url)


def test_mistakes_of_the_operator_are_one_line(tmp_path):
    file = IntegrationFile(tmp_path)
    for wrong, word in (
        ({"name": "CRM"}, "small letters"),
        ({"identities": ["email:rot13"]}, "FORM one of"),
        ({"identities": ["email", "email:sha1"]}, "twice"),
        ({"callbacks": ["http://crm.example.com/"]}, "https://"),
        ({"issuer": Issuer(url=ISSUER, audience="x", keys=tmp_path / "none")}, "cannot be read"),
    ):
        with pytest.raises(InputError, match=word) as caught:
            file.create(**{"name": "crm", **wrong})
        assert "\n" not in str(caught.value)
    assert file.read() == ()
    with pytest.raises(InputError, match="no integration"):
        file.revoke("crm")
    file.create("crm")
    with pytest.raises(InputError, match="already"):
        file.create("crm")
    assert KeyFile(tmp_path).create("predict")[1].role == "predict"
    file.revoke("crm")
    assert [(each.name, each.revoked_at is None, each.secret) for each in file.read()] == [("crm", False, "")]
    assert KeyFile(tmp_path).read()[0].revoked_at is not None
    assert file.create("crm")[1].secret.startswith("whsec_")
    for damaged in ('{"integrations": [{}]}', "{", "[" * 100_000):
        (tmp_path / "integrations.json").write_text(damaged)
        with pytest.raises(FormatError, match="damaged"):
            file.read()
    assert Identity.parse("email").accepted[0] == "raw"


def test_the_program_makes_lists_and_ends_integrations(made, tmp_path, program):
    folder = shutil.copytree(made, tmp_path / "shop")
    wrong = program("integrations", "create", folder, "--name", "crm", "--jwt-keys", "x", code=2)
    assert len(wrong.stderr.strip().splitlines()) == 1
    told = program("integrations", "create", folder, "--name", "crm", "--callback", "https://crm.example.com/")
    assert [each.split("_")[0] for each in told.stdout.splitlines()] == ["key expunge", "secret whsec"]
    (listed,) = json.loads(program("integrations", "list", folder, "--json").stdout)["integrations"]
    assert (listed["name"], listed["state"], listed["requests"]) == ("crm", "active", 0)
    assert "secret" not in listed
    with expunge.open(folder) as deployment:
        made_of = deployment.receive("crm", "evt-1", ["h1"], asked=b"", form="webhook").request
    (found,) = json.loads(program("integrations", "requests", folder, "--name", "crm", "--json").stdout)["requests"]
    assert (
        "there is no integration 'crn'" in program("integrations", "requests", folder, "--name", "crn", code=2).stderr
    )
    assert (found["id"], found["request"], found["state"], found["deletions"]) == ("evt-1", made_of, "pending", 3)


@pytest.mark.parametrize(
    "key",
    [
        rsa.generate_private_key(65537, 2048),
        ec.generate_private_key(ec.SECP384R1()),
        ed25519.Ed25519PrivateKey.generate(),
    ],
    ids=["rsa", "p-384", "ed25519"],
)
def test_any_usual_key_signs(key):
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    signer = Signer(pem)
    made = signer.token({"jti": "1"})
    keys = jwt.PyJWKSet.from_dict(signer.public_keys)
    assert jwt.decode(made, keys[signer.key_id], algorithms=[keys.keys[0].algorithm_name]) == {"jti": "1"}
    assert x509.load_pem_x509_certificate(signer.certificate).public_key() == key.public_key()
    assert signer.sign(b"a") != signer.sign(b"b")


def test_several_signatures_may_be_given_and_one_must_be_right():
    secret = "whsec_" + base64.b64encode(b"k" * 24).decode()
    right = sign(secret, "i", 1, b"{}")
    assert is_signed(secret, "i", 1, b"{}", f"v1,AAAA v1a,xyz {right}")
    assert not is_signed(secret, "i", 1, b"{}", "v1,AAAA v1a,xyz")
    assert not is_signed(None, "i", 1, b"{}", sign("whsec_" + base64.b64encode(bytes(32)).decode(), "i", 1, b"{}"))
    with pytest.raises(InputError, match="cannot be read"):
        Signer(b"no key")
    odd = ec.generate_private_key(ec.SECP256K1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    with pytest.raises(InputError, match="P-256"):
        Signer(odd)
    assert Signer(new_key()).key_id != Signer(new_key()).key_id


def blocks(kind):
    return re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def send_as_fides(service, key, *ids):
    """Read the connector, fill in what is in angle brackets, and send its requests. Return the statuses."""
    folder = Path(__file__).parents[2] / "deploy" / "fides"
    config, dataset = (
        yaml.safe_load((folder / f"expunge_{name}.yml").read_text().replace("<instance_fides_key>", "expunge_1"))
        for name in ("config", "dataset")
    )
    told, (data,) = config["saas_config"], dataset["dataset"]
    assert told.keys() == SAAS_CONFIG
    (endpoint,), (collection,) = told["endpoints"], data["collections"]
    erase = endpoint["requests"]["delete"]
    assert erase.keys() <= SAAS_REQUEST
    assert (told["fides_key"], endpoint["name"]) == (data["fides_key"], collection["name"])
    assert [each["name"] for each in erase["param_values"]] == [each["name"] for each in collection["fields"]]
    assert {each["name"] for each in told["connector_params"]} == {"host", "key"}
    assert told["client_config"]["authentication"] == {"strategy": "bearer", "configuration": {"token": "<key>"}}
    fixed = {"email": "ann@example.com", "key": key}
    statuses = [service.ask(told["test_request"]["method"], told["test_request"]["path"], key=key).status]
    for id in ids:
        values = {**fixed, "privacy_request_id": id, "iso_8601_datetime": f"2026-10-02T15:00:{len(statuses):02}Z"}
        body = re.sub(r"<([^<>]+)>", lambda found, values=values: values[found[1]], erase["body"])
        statuses.append(service.ask(erase["method"], erase["path"], data=json.loads(body), key=key).status)
    return statuses


#: The members that Fides 2.78.2 wants in a connector, and those that a request in it may have: it refuses others.
SAAS_CONFIG = {
    *("fides_key", "name", "type", "description", "version"),
    *("connector_params", "client_config", "test_request", "endpoints"),
}
SAAS_REQUEST = {"method", "path", "headers", "query_params", "body", "param_values", "ignore_errors"}


def test_what_the_page_shows_runs(made, tmp_path, serve):
    with receiving() as receiver:
        _run_page(made, tmp_path, serve, receiver)


def _run_page(made, tmp_path, serve, receiver):
    folder = shutil.copytree(made, tmp_path / "shop")
    make_jwt, check = blocks("python")
    (tmp_path / "make_jwt.py").write_text(make_jwt)
    (tmp_path / "key.pem").write_bytes(
        KEY.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    callbacks = ["https://crm.example.com/hooks", f"{receiver.url}/hooks"]
    issuer = Issuer(url=ISSUER, audience=AUDIENCE, keys=public_keys())
    with serve(
        folder, integration={"identities": ["household", "email"], "callbacks": callbacks, "issuer": issuer}
    ) as service:
        told = {"URL": service.url, "KEY": service.keys["integration"], "SECRET": service.integration.secret}
        told["PATH"] = f"{Path(sys.executable).parent}:/usr/bin:/bin"
        commands = [each for each in blocks("sh") if "curl" in each]
        for each in commands:
            done = subprocess.run(["bash", "-ec", each], env=told, cwd=tmp_path, capture_output=True, check=False)
            assert (done.returncode, done.stdout != b"") == (0, True), (each, done)
        assert len(commands) >= 6
        assert send_as_fides(service, told["KEY"], "pri_1", "pri_1", "pri_2") == [200, 201, 201, 201]
        _, headers, body = receiver.wait(1)[0]
        found = {}
        exec(compile(check, "docs/integrations.md", "exec"), found)
        assert found["is_right"](service.integration.secret, headers, body)
        assert not found["is_right"](service.integration.secret, headers, body + b" ")
