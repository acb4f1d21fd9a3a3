"""Keyed hashes of record ids: with the key an id can be recognised, without it the hashes say nothing."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterable
from typing import Final

from expunge.core.checks import canonical
from expunge.core.errors import ParameterError
from expunge.evidence.canonical import write_canonical

_KEY_BYTES: Final = 32
_HASH_BYTES: Final = 32
_BLOCK_BYTES: Final = 64  # of SHA-256
_INNER, _OUTER = (bytes(byte ^ pad for byte in range(256)) for pad in (0x36, 0x5C))  # what RFC 2104 adds to the key
_PURPOSE: Final = b"expunge request key\x00"

RecordName = str | int


def request_key(secret: bytes, request_id: str) -> bytes:
    """Derive the key for the ids of one request from the deployment's secret.

    The operator may tell this key to the requester. It says nothing about the ids of other requests.

    Parameters
    ----------
    secret
        The deployment's secret, at least 32 bytes.
    request_id
        The request.

    Returns
    -------
    bytes
        32 bytes: HMAC-SHA256 of `expunge request key`, a zero byte and the request id.

    Raises
    ------
    ParameterError
        If the secret is too short.

    Examples
    --------
    >>> len(request_key(bytes(32), "b7f6c2a1"))
    32
    """
    return hmac.new(_require_key(secret), _PURPOSE + request_id.encode("utf-8"), hashlib.sha256).digest()


def hash_id(key: bytes, record_id: RecordName) -> str:
    """Hash one record id: HMAC-SHA256 of the id in canonical JSON. A text is hashed in Unicode's form NFC.

    Parameters
    ----------
    key
        The request's key, from `request_key`.
    record_id
        The id, a number in decimal digits. The number 17 and the text "17" have different hashes; two spellings of one
        text in Unicode have one.

    Returns
    -------
    str
        64 hexadecimal digits.

    Raises
    ------
    ParameterError
        If the key is too short, or the id is neither text nor a whole number. The message does not quote the value.

    Examples
    --------
    >>> hash_id(bytes(32), 17)[:16]
    '4c25b0ad8ea42f56'
    """
    return hmac.digest(_require_key(key), _written(record_id), "sha256").hex()


def hash_ids(key: bytes, record_ids: Iterable[RecordName]) -> tuple[str, ...]:
    """Hash several record ids, as `hash_id` does.

    Parameters
    ----------
    key
        The request's key, from `request_key`.
    record_ids
        The ids.

    Returns
    -------
    tuple of str
        The hashes, sorted, so that their order says nothing.

    Raises
    ------
    ParameterError
        If the key is too short, or an id is neither text nor a whole number.

    Examples
    --------
    >>> hash_ids(bytes(32), [17, 23]) == hash_ids(bytes(32), [23, 17])
    True
    """
    return split_hashes(joined_hashes(key, record_ids))


def joined_hashes(key: bytes, record_ids: Iterable[RecordName]) -> bytes:
    """Hash several record ids, as `hash_ids` does, into one run of bytes: 32 for each hash.

    Parameters
    ----------
    key
        The request's key, from `request_key`.
    record_ids
        The ids.

    Returns
    -------
    bytes
        The hashes, sorted. Its SHA-256 is `digest_of_hashes` of them.

    Raises
    ------
    ParameterError
        As `hash_ids`.

    Examples
    --------
    >>> split_hashes(joined_hashes(bytes(32), [17, 23])) == hash_ids(bytes(32), [17, 23])
    True
    """
    digest = keyed_hash(key)
    return b"".join(sorted([digest(_written(record_id)) for record_id in record_ids]))


def split_hashes(joined: bytes) -> tuple[str, ...]:
    """The hashes in a run of bytes that `joined_hashes` made, in hexadecimal.

    Parameters
    ----------
    joined
        32 bytes for each hash.

    Returns
    -------
    tuple of str
        The hashes, in their order.

    Examples
    --------
    >>> split_hashes(bytes(64)) == ("00" * 32, "00" * 32)
    True
    """
    text = joined.hex()
    return tuple([text[at : at + 2 * _HASH_BYTES] for at in range(0, len(text), 2 * _HASH_BYTES)])


def digest_of_hashes(hashes: Iterable[str]) -> str:
    """One digest of many hashes, which the log's entry about a request commits to.

    Parameters
    ----------
    hashes
        What `hash_ids` gave.

    Returns
    -------
    str
        SHA-256 of the hashes, 32 bytes each, one after the other; in hexadecimal.

    Examples
    --------
    >>> digest_of_hashes([])[:16]
    'e3b0c44298fc1c14'
    """
    return hashlib.sha256(b"".join(map(bytes.fromhex, hashes))).hexdigest()


def keyed_hash(key: bytes) -> Callable[[bytes], bytes]:
    """Prepare HMAC-SHA256 under one key for many short messages.

    The key is processed once, which is most of the work for a short message.

    Parameters
    ----------
    key
        At least 32 bytes.

    Returns
    -------
    callable
        A function from a message to its 32-byte HMAC.

    Raises
    ------
    ParameterError
        If the key is too short.

    Examples
    --------
    >>> keyed_hash(bytes(32))(b"17").hex() == hash_id(bytes(32), 17)
    True
    """
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
    return write_canonical(canonical(record_id))


def _require_key(key: bytes) -> bytes:
    if not isinstance(key, bytes) or len(key) < _KEY_BYTES:
        raise ParameterError(f"the key of a keyed hash must be at least {_KEY_BYTES} bytes")
    return key
