"""The DSSE envelope: bytes of a named type, with one Ed25519 signature over both (github.com/secure-systems-lab/dsse).

    PAE(type, payload) = "DSSEv1" SP length(type) SP type SP length(payload) SP payload

The signature is over the PAE. So a signature on bytes of one type is never one on bytes of another type, nor one on a
checkpoint, which has another form.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from dataclasses import dataclass
from typing import Any, Final, Self

from expunge.core.errors import InputError
from expunge.evidence.canonical import read_canonical, write_canonical
from expunge.evidence.keys import PublicKey, SigningKey

_FIELDS: Final = {"payload", "payloadType", "signatures"}
_SIGNATURE_BYTES: Final = 64


def key_id(key: PublicKey) -> str:
    """The id of a key in an envelope: the SHA-256 of its 32 bytes, in hexadecimal. It begins with the fingerprint.

    Parameters
    ----------
    key
        The public key.

    Returns
    -------
    str
        64 hexadecimal digits.
    """
    return hashlib.sha256(key.raw).hexdigest()


@dataclass(frozen=True, slots=True)
class Envelope:
    """A signed payload.

    Parameters
    ----------
    payload_type
        What the payload is.
    payload
        The bytes.
    keyid
        The id of the key that signed, see `key_id`. It is a hint: it is not signed.
    signature
        The Ed25519 signature, 64 bytes.

    Examples
    --------
    >>> key = SigningKey.generate()
    >>> made = Envelope.sign("text/plain", b"hello", key)
    >>> Envelope.parse(made.to_json()) == made, made.is_signed_by(key.public_key)
    (True, True)
    """

    payload_type: str
    payload: bytes
    keyid: str
    signature: bytes

    @classmethod
    def sign(cls, payload_type: str, payload: bytes, key: SigningKey) -> Self:
        """Sign a payload.

        Parameters
        ----------
        payload_type
            What it is.
        payload
            The bytes.
        key
            The key.

        Returns
        -------
        Envelope
            The envelope.
        """
        return cls(payload_type, payload, key_id(key.public_key), key.sign(_encoded(payload_type, payload)))

    def is_signed_by(self, key: PublicKey) -> bool:
        """Whether the signature is this key's, over this payload and type.

        Parameters
        ----------
        key
            The key.

        Returns
        -------
        bool
            Whether it is.
        """
        return key.verifies(self.signature, _encoded(self.payload_type, self.payload))

    def to_json(self) -> bytes:
        """The file: canonical JSON and a newline."""
        signature = {"keyid": self.keyid, "sig": _to_base64(self.signature)}
        document = {"payload": _to_base64(self.payload), "payloadType": self.payload_type, "signatures": [signature]}
        return write_canonical(document) + b"\n"

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Read an envelope. Other spaces and another order of names are accepted, and nothing else.

        Parameters
        ----------
        data
            The whole file.

        Returns
        -------
        Envelope
            The envelope. Its signature is not checked.

        Raises
        ------
        InputError
            If it is not an envelope with one signature.
        """
        document: Any = read_canonical(data)
        if not isinstance(document, dict) or set(document) != _FIELDS or not isinstance(document["payloadType"], str):
            raise InputError("this is not a DSSE envelope: it must have payload, payloadType and signatures alone")
        signatures = document["signatures"]
        if not isinstance(signatures, list) or len(signatures) != 1:
            raise InputError("the envelope must have one signature")
        if not isinstance(signatures[0], dict) or set(signatures[0]) != {"keyid", "sig"}:
            raise InputError("the signature of the envelope must have keyid and sig, and nothing else")
        keyid, signature = signatures[0]["keyid"], _from_base64("sig", signatures[0]["sig"])
        if not isinstance(keyid, str) or len(signature) != _SIGNATURE_BYTES:
            raise InputError(
                "the signature of the envelope must be one of Ed25519, of 64 bytes, with the id of its key"
            )
        return cls(document["payloadType"], _from_base64("payload", document["payload"]), keyid, signature)


def _encoded(payload_type: str, payload: bytes) -> bytes:
    """The pre-authentication encoding."""
    kind = payload_type.encode("utf-8")
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def _to_base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode("ascii")


def _from_base64(name: str, text: object) -> bytes:
    """Decode base64 that is written in its one form."""
    try:
        raw = base64.b64decode(text.encode("ascii"), validate=True) if isinstance(text, str) else None
    except (binascii.Error, UnicodeEncodeError):
        raw = None
    if raw is None or _to_base64(raw) != text:
        raise InputError(f"{name} of the envelope is not written in base64")
    return raw
