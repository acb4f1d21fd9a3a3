"""Keyed hashes of record ids: whoever has the key recognises an id, nobody else can guess it."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterable
from typing import Final

from expunge.core.errors import ParameterError
from expunge.evidence.canonical import canonical

_KEY_BYTES: Final = 32
_BLOCK_BYTES: Final = 64  # of SHA-256
_INNER, _OUTER = (bytes(byte ^ pad for byte in range(256)) for pad in (0x36, 0x5C))  # what RFC 2104 adds to the key
_PURPOSE: Final = b"expunge request key\x00"

RecordName = str | int


def request_key(secret: bytes, request_id: str) -> bytes:
    """The key for the ids of one request, made from the deployment's secret.

    The operator may tell it to the requester without giving away anything about the ids of other requests.
    """
    return hmac.new(_require_key(secret), _PURPOSE + request_id.encode("utf-8"), hashlib.sha256).digest()


def hash_id(key: bytes, record_id: RecordName) -> str:
    """HMAC-SHA256 of the id in canonical JSON, in hexadecimal; the number 17 and the text "17" differ."""
    return hmac.digest(_require_key(key), _written(record_id), "sha256").hex()


def hash_ids(key: bytes, record_ids: Iterable[RecordName]) -> tuple[str, ...]:
    """The hashes of several ids, sorted, so that their order says nothing."""
    digest = keyed_hash(key)
    return tuple([hashed.hex() for hashed in sorted([digest(_written(record_id)) for record_id in record_ids])])


def keyed_hash(key: bytes) -> Callable[[bytes], bytes]:
    """HMAC-SHA256 under one key for many short messages: the key is taken in once, which is most of the work."""
    secret = _require_key(key)
    block = (hashlib.sha256(secret).digest() if len(secret) > _BLOCK_BYTES else secret).ljust(_BLOCK_BYTES, b"\0")
    inner, outer = hashlib.sha256(block.translate(_INNER)), hashlib.sha256(block.translate(_OUTER))

    def digest(message: bytes) -> bytes:
        within, around = inner.copy(), outer.copy()
        within.update(message)
        around.update(within.digest())
        return around.digest()

    return digest


def _written(record_id: RecordName) -> bytes:
    if type(record_id) is int and -(2**63) <= record_id < 2**63:
        return b"%d" % record_id  # what canonical JSON writes, at a tenth of the time
    if isinstance(record_id, bool) or not isinstance(record_id, str | int):
        raise ParameterError(f"a record id must be text or a whole number, got a {type(record_id).__name__}")
    return canonical(record_id)


def _require_key(key: bytes) -> bytes:
    if not isinstance(key, bytes) or len(key) < _KEY_BYTES:
        raise ParameterError(f"the key of a keyed hash must be at least {_KEY_BYTES} bytes")
    return key
