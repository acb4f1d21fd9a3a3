"""OIDC tokens beside keys: signed by the issuer, for this audience, in time, with a role; no other opens anything."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from expunge.core.errors import InputError
from expunge.service.bearer import Issuer, Tokens

OWN, OTHER = ec.generate_private_key(ec.SECP256R1()), rsa.generate_private_key(65537, 2048)


def keys_of(key, name):
    made = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(key.public_key()))
    return {"keys": [{**made, "kid": name, "alg": "ES256", "use": "sig"}]}


@pytest.fixture
def issuer():
    """An issuer on this machine, with its discovery document and keys."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            url = f"http://127.0.0.1:{self.server.server_address[1]}"
            told = {"issuer": url, "jwks_uri": f"{url}/keys"} if "openid" in self.path else keys_of(OWN, "first")
            body = json.dumps(told).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def token(url, *, key=OWN, name="first", algorithm="ES256", **claims):
    now = int(time.time())
    told = {"iss": url, "aud": "expunge", "sub": "jo", "exp": now + 60, "role": "predict", **claims}
    told = {claim: value for claim, value in told.items() if value is not None}
    return jwt.encode(told, key, algorithm=algorithm, headers={"kid": name})


def test_a_token_of_the_issuer_has_the_role_of_its_claim(issuer):
    tokens = Tokens(Issuer(url=issuer, audience="expunge"))
    tokens.load()
    assert tokens.caller_of(token(issuer)).role == "predict"
    assert tokens.caller_of(token(issuer, role=["x", "auditor", "update"])).role == "auditor"
    named = Tokens(Issuer(url=issuer, audience="expunge", claim="groups", roles={"admins": "operator"}))
    named.load()
    assert named.caller_of(token(issuer, groups=["staff", "admins"])).role == "operator"
    assert named.caller_of(token(issuer, groups=["staff"])) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"exp": 1},
        {"exp": None},
        {"nbf": 2**33},
        {"aud": "another"},
        {"aud": None},
        {"iss": "https://elsewhere"},
        {"sub": None},
        {"role": "root"},
        {"role": None},
        {"role": 3},
        {"name": "unknown"},
        {"key": OTHER, "algorithm": "RS256"},
        {"key": "secret" * 8, "algorithm": "HS256"},
        {"key": None, "algorithm": "none"},
    ],
    ids=str,
)
def test_any_other_token_opens_nothing(issuer, wrong):
    tokens = Tokens(Issuer(url=issuer, audience="expunge"))
    tokens.load()
    assert tokens.caller_of(token(issuer, **wrong)) is None


def test_a_token_that_was_changed_opens_nothing(issuer, tmp_path):
    (tmp_path / "keys.json").write_text(json.dumps(keys_of(OWN, "first")))
    tokens = Tokens(Issuer(url=issuer, audience="expunge", keys=tmp_path / "keys.json"))
    tokens.load()
    head, body, signature = token(issuer).split(".")
    more = jwt.utils.base64url_encode(json.dumps({"role": "operator"}).encode()).decode()
    for strange in (f"{head}.{more}.{signature}", f"{head}.{body}.", "a.b.c", "", "expunge"):
        assert tokens.caller_of(strange) is None
    assert tokens.caller_of(f"{head}.{body}.{signature}") is not None


def test_an_issuer_is_reached_by_https_and_its_keys_are_read(tmp_path):
    for wrong in ({"url": "http://issuer.example"}, {"url": "https://x", "roles": {"a": "root"}}):
        with pytest.raises(InputError):
            Issuer(audience="expunge", **wrong)
    (tmp_path / "keys.json").write_text("{}")
    with pytest.raises(InputError, match="cannot be read"):
        Tokens(Issuer(url="https://x", audience="expunge", keys=tmp_path / "keys.json")).load()


def test_the_service_accepts_keys_and_tokens(churn, serve, issuer):
    with serve(churn, "--oidc-issuer", issuer, "--oidc-audience", "expunge") as service:
        assert service.ask("GET", "/v1/status", key=token(issuer)).status == 200
        assert service.ask("GET", "/v1/updates", key=token(issuer)).status == 403
        assert service.ask("GET", "/v1/status", key=token(issuer, exp=1)).status == 401
        assert service.ask("GET", "/v1/updates", role="update").status == 200
