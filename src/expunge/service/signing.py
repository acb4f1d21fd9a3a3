"""What is signed for and by other systems.

A webhook is signed in two ways, in both directions. By HMAC-SHA256 under a secret that both sides know, over id, time
and body, in the header fields of the Standard Webhooks specification. Or by a JWT (RS256, ES256, EdDSA, …) whose claim
`request_body_sha256` binds it to the body. The service's own key signs answers and callbacks of OpenDSR too.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa

from expunge.core.errors import InputError

TOLERANCE: Final = 300  # seconds by which the time of a message may differ from ours
BODY_CLAIM: Final = "request_body_sha256"
_CURVES: Final = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
_KINDS: Final = "a key to sign with is RSA, P-256, P-384, P-521 or Ed25519"
_NO_SECRET: Final = b"\0" * 32
_CERTIFICATE_DAYS: Final = 3650


def new_key() -> bytes:
    """A key to sign with, in PEM form."""
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def sign(secret: str, id: str, at: int, body: bytes) -> str:
    """The signature of a message, as the header field `webhook-signature` holds it.

    Examples
    --------
    >>> is_signed("whsec_AAAA", "msg_1", 7, b"{}", sign("whsec_AAAA", "msg_1", 7, b"{}"))
    True
    """
    return f"v1,{_signature(_bytes_of(secret), id, str(at), body)}"


def is_signed(secret: str | None, id: str, at: int | str, body: bytes, given: str) -> bool:
    """Whether one of the given signatures is that of the message. It takes as long for a wrong one or no secret."""
    wanted = _signature(_NO_SECRET if secret is None else _bytes_of(secret), id, str(at), body)
    found = False
    for each in given.split(" "):
        version, _, signature = each.partition(",")
        is_right = hmac.compare_digest(signature.encode("utf-8", "replace"), wanted.encode())
        found = found or (is_right and version == "v1")
    return found and secret is not None


def _signature(secret: bytes, id: str, at: str, body: bytes) -> str:
    return base64.b64encode(hmac.digest(secret, f"{id}.{at}.".encode() + body, "sha256")).decode()


def _bytes_of(secret: str) -> bytes:
    return base64.b64decode(secret.removeprefix("whsec_"))


def digest_of(body: bytes) -> str:
    """What binds a JWT to a body."""
    return hashlib.sha256(body).hexdigest()


class Signer:
    """Signs what the service says to other systems.

    Parameters
    ----------
    key
        The private key, in PEM form: RSA, P-256, P-384, P-521 or Ed25519.
    certificate
        Its certificate, in PEM form; None makes one that the key signs itself.

    Raises
    ------
    InputError
        If there is no such key in it.
    """

    def __init__(self, key: bytes, certificate: bytes | None = None) -> None:
        try:
            found = serialization.load_pem_private_key(key, password=None)
        except (ValueError, TypeError) as error:
            raise InputError(f"the key to sign with cannot be read: {error}") from None
        if not isinstance(found, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey):
            raise InputError(_KINDS)
        if isinstance(found, ec.EllipticCurvePrivateKey) and found.curve.name not in _CURVES:
            raise InputError(_KINDS)
        self._key, self._certificate = found, certificate

    @classmethod
    def of_files(cls, key: Path, certificate: Path) -> Signer:
        """The signer with the key and the certificate of TLS."""
        return cls(key.read_bytes(), certificate.read_bytes())

    def sign(self, body: bytes) -> str:
        """The signature of a body: SHA-256 with RSA (PKCS 1) or ECDSA, or Ed25519; in base 64."""
        match self._key:
            case rsa.RSAPrivateKey():
                made = self._key.sign(body, padding.PKCS1v15(), hashes.SHA256())
            case ec.EllipticCurvePrivateKey():
                made = self._key.sign(body, ec.ECDSA(hashes.SHA256()))
            case _:
                made = self._key.sign(body)
        return base64.b64encode(made).decode()

    def token(self, claims: dict[str, Any]) -> str:
        """A JWT with these claims."""
        return jwt.encode(claims, self._key, self._algorithm, headers={"kid": self.key_id})

    @cached_property
    def certificate(self) -> bytes:
        """The certificate of the key, in PEM form."""
        if self._certificate is not None:
            return self._certificate
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "expunge")])
        now = datetime.now(UTC)
        made = (
            x509.CertificateBuilder(name, name, self._key.public_key(), x509.random_serial_number())
            .not_valid_before(now)
            .not_valid_after(now + timedelta(days=_CERTIFICATE_DAYS))
            .sign(self._key, None if isinstance(self._key, ed25519.Ed25519PrivateKey) else hashes.SHA256())
        )
        return made.public_bytes(serialization.Encoding.PEM)

    @cached_property
    def key_id(self) -> str:
        """Names the key."""
        public = self._key.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        return hashlib.sha256(public).hexdigest()[:16]

    @property
    def public_keys(self) -> dict[str, Any]:
        """The public key, as a JSON Web Key Set."""
        form = jwt.get_algorithm_by_name(self._algorithm)
        told: dict[str, Any] = json.loads(form.to_jwk(self._key.public_key()))
        return {"keys": [{**told, "kid": self.key_id, "use": "sig", "alg": self._algorithm}]}

    @property
    def _algorithm(self) -> str:
        match self._key:
            case rsa.RSAPrivateKey():
                return "RS256"
            case ec.EllipticCurvePrivateKey(curve=curve):
                return _CURVES[curve.name]
        return "EdDSA"
