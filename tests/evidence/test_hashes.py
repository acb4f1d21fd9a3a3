from __future__ import annotations

import hashlib
import hmac

import pytest

from expunge.core.errors import ParameterError
from expunge.evidence import hash_id, hash_ids, keyed_hash, request_key

KEY = bytes(range(32))


def test_the_hash_is_plain_hmac_of_the_id_in_json():
    assert hash_id(KEY, "ana") == hmac.new(KEY, b'"ana"', hashlib.sha256).hexdigest()
    assert hash_id(KEY, 17) == hmac.new(KEY, b"17", hashlib.sha256).hexdigest()
    assert hash_id(KEY, 2**62) == hmac.new(KEY, b"4611686018427387904", hashlib.sha256).hexdigest()
    assert hash_id(KEY, 17) != hash_id(KEY, "17")


def test_the_spellings_of_one_id_have_one_hash():
    """An auditor who types the decomposed form finds the match."""
    assert hash_id(KEY, "Zoe\u0308") == hash_id(KEY, "Zo\u00eb")
    assert hash_ids(KEY, ["Zoe\u0308"]) == (hash_id(KEY, "Zo\u00eb"),)


def test_the_order_of_ids_says_nothing():
    assert hash_ids(KEY, [17, 23, "x"]) == hash_ids(KEY, ["x", 23, 17])


@pytest.mark.parametrize("size", [32, 33, 63, 64, 65, 200])
def test_many_hashes_under_one_key_are_hmacs(size):
    key = bytes(range(256))[-size:]
    digest = keyed_hash(key)
    for message in (b"", b"17", b"x" * 63, b"x" * 64, b"x" * 1000, b"17"):
        assert digest(message) == hmac.new(key, message, hashlib.sha256).digest()
    assert hash_ids(key, [17, "ana"]) == tuple(sorted([hash_id(key, 17), hash_id(key, "ana")]))
    with pytest.raises(ParameterError, match="at least 32 bytes"):
        keyed_hash(key[:31])


def test_every_request_has_its_own_key():
    keys = {request_key(KEY, name) for name in ("a", "b")} | {request_key(bytes(32), "a")}
    assert len(keys) == 3
    assert all(len(key) == 32 for key in keys)
    assert hash_id(request_key(KEY, "a"), 17) != hash_id(request_key(KEY, "b"), 17)


@pytest.mark.parametrize(("key", "record"), [(b"short", 1), ("text" * 8, 1), (KEY, True), (KEY, 1.5), (KEY, None)])
def test_bad_keys_and_ids_are_refused_without_quoting_them(key, record):
    with pytest.raises(ParameterError) as caught:
        hash_id(key, record)
    assert "short" not in str(caught.value)
    assert "1.5" not in str(caught.value)
