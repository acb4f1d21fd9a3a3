"""Running the service: TLS, rates, keys that end, what others may read of it, and how it starts and ends."""

from __future__ import annotations

import datetime
import http.client
import ipaddress
import json
import socket
import ssl
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from expunge.core.errors import InputError
from expunge.service.access import KeyFile
from expunge.service.server import Listening

MARK = 77123.25  # a value in a body, which no log may hold


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    """A certificate for this machine that signs itself, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(names, critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    plain, form = serialization.NoEncryption(), serialization.PrivateFormat.PKCS8
    (folder / "key.pem").write_bytes(key.private_bytes(serialization.Encoding.PEM, form, plain))
    other = ec.generate_private_key(ec.SECP256R1())
    (folder / "other.pem").write_bytes(other.private_bytes(serialization.Encoding.PEM, form, plain))
    secret = serialization.BestAvailableEncryption(b"secret")
    (folder / "locked.pem").write_bytes(key.private_bytes(serialization.Encoding.PEM, form, secret))
    (folder / "text.pem").write_text("no certificate\n")
    return folder


@pytest.mark.parametrize(
    ("certificate", "key", "why"),
    [
        ("absent.pem", "key.pem", "no such file"),
        ("cert.pem", "absent.pem", "no such file"),
        ("text.pem", "key.pem", "no certificate and its key"),
        ("cert.pem", "text.pem", "no certificate and its key"),
        ("cert.pem", "other.pem", "the key is another one's"),
        ("cert.pem", "locked.pem", "has a password"),
        ("", "key.pem", "is a directory"),
    ],
)
def test_wrong_files_for_tls_are_one_line(tls, certificate, key, why):
    with pytest.raises(InputError, match=f"cannot serve HTTPS with .*{why}") as caught:
        Listening(certificate=tls / certificate, key=tls / key)
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def secured(tls, first_churn, tmp_path_factory, serve):
    """The service with TLS and a rate, and its log."""
    import shutil

    folder = shutil.copytree(first_churn, tmp_path_factory.mktemp("secured") / "churn")
    log = folder.parent / "service.log"
    with (
        open(log, "wb") as errors,
        serve(
            folder, "--tls-cert", tls / "cert.pem", "--tls-key", tls / "key.pem", "--rate", 5, errors=errors
        ) as running,
    ):
        yield running, log


def until(true):
    """Wait until it is so."""
    ends = time.monotonic() + 60
    while not true():
        assert time.monotonic() < ends
        time.sleep(0.2)


def ask(service, tls, key, path="/v1/status", body=None):
    context = ssl.create_default_context(cafile=str(tls / "cert.pem"))
    connection = http.client.HTTPSConnection("127.0.0.1", service.port, timeout=60, context=context)
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    connection.request("GET" if body is None else "POST", path, body, headers)
    found = connection.getresponse()
    content = found.read()
    connection.close()
    return found, content


def test_it_speaks_tls_and_nothing_else(secured, tls):
    service, _ = secured
    assert service.url.startswith("https://")
    found, content = ask(service, tls, service.keys["predict"])
    assert (found.status, json.loads(content)["records"]) == (200, 300)
    with pytest.raises(ssl.SSLCertVerificationError):
        ssl.create_default_context().wrap_socket(
            socket.create_connection(("127.0.0.1", service.port)), server_hostname="127.0.0.1"
        )
    with pytest.raises((http.client.HTTPException, OSError)):
        service.ask("GET", "/healthz", role=None)


def test_callers_that_ask_too_often_are_told_when_to_ask_again(secured, tls):
    service, _ = secured
    slow, _ = KeyFile(service.folder).create("predict", rate=1)
    until(lambda: ask(service, tls, slow)[0].status == 200)  # the service has read the keys again
    time.sleep(1.1)
    for key, rate in ((service.keys["update"], 5), (slow, 1)):  # of the service, and of the key
        begun = time.monotonic()
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _, key=key: ask(service, tls, key), range(40)))
        statuses = [found.status for found, _ in answers]
        assert rate <= statuses.count(200) <= rate * (time.monotonic() - begun + 1) + 1
        found, content = next(each for each in answers if each[0].status == 429)
        assert 1 <= int(found.headers["retry-after"]) <= 2
        assert found.headers["content-type"] == "application/problem+json"
        assert json.loads(content)["type"] == "urn:expunge:problem:too-many-requests"
    assert ask(service, tls, service.keys["auditor"])[0].status == 200  # others are not held up
    time.sleep(1.1)
    assert ask(service, tls, slow)[0].status == 200


def test_keys_end_when_they_expire_and_when_they_are_revoked(secured, tls):
    service, _ = secured
    lasting, made = KeyFile(service.folder).create("predict")
    until(lambda: ask(service, tls, lasting)[0].status == 200)
    KeyFile(service.folder).revoke(made.id)
    brief, _ = KeyFile(service.folder).create("predict", expires=8)
    until(lambda: ask(service, tls, lasting)[0].status == 401)
    until(lambda: ask(service, tls, brief)[0].status == 200)
    until(lambda: ask(service, tls, brief)[0].status == 401)


def test_no_secret_is_in_the_log_or_in_the_list_of_processes(secured, tls):
    service, log = secured
    marked = json.dumps({"rows": [{"age": MARK, "spend": 0}]}).encode()
    assert ask(service, tls, service.keys["predict"], "/v1/predictions", marked)[0].status == 200
    wrong = service.keys["operator"][:-4] + "0000"
    assert ask(service, tls, wrong)[0].status == 401
    last, _ = ask(service, tls, wrong, f"/v1/status?key={MARK}")
    assert last.status == 401
    until(lambda: last.headers["x-request-id"] in log.read_text())  # lines are written once a second
    written, seen = log.read_text(), list[bytes]()
    for each in Path("/proc").glob("[0-9]*"):
        try:
            group = int((each / "stat").read_text().rpartition(")")[2].split()[1])
            if service.process.pid in (int(each.name), group):  # the service and its children
                seen.append((each / "cmdline").read_bytes())
        except (OSError, ValueError):
            continue
    assert len(seen) >= 2
    assert '"event":"request"' in written
    secrets = [key.rpartition("_")[2] for key in (*service.keys.values(), wrong)]
    for secret in [*secrets, str(MARK)]:
        assert secret not in written
        assert not any(secret.encode() in each for each in seen)


def test_a_port_that_is_in_use_is_one_line(first_churn, program):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        told = program("serve", first_churn, "--port", port, code=2).stderr
    lines = [line for line in told.splitlines() if not line.startswith("{")]
    assert f"127.0.0.1:{port} is in use" in " ".join(lines)
    assert "Traceback" not in told
