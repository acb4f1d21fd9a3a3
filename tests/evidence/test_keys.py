from __future__ import annotations

import os
import pickle
import stat
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key

from expunge.core.errors import InputError
from expunge.evidence import PublicKey, SigningKey, keys


def test_a_saved_key_signs_the_same_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    key, path = SigningKey.generate(), tmp_path / "key.pem"
    before = os.umask(0)
    try:
        key.save(path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["key.pem"]
    again = SigningKey.load(path)
    assert again.sign(b"x") == key.sign(b"x")
    assert again.public_key == key.public_key
    assert key.public_key.verifies(key.sign(b"x"), b"x")
    assert not key.public_key.verifies(key.sign(b"x"), b"y")
    assert not SigningKey.generate().public_key.verifies(key.sign(b"x"), b"x")


@pytest.mark.parametrize("links", [True, False])
def test_a_key_is_never_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool) -> None:
    if not links:
        monkeypatch.setattr(keys.os, "link", _no_links)
    key, path = SigningKey.generate(), tmp_path / "key.pem"
    key.save(path)
    with pytest.raises(InputError, match="never overwritten"):
        SigningKey.generate().save(path)
    assert SigningKey.load(path).public_key == key.public_key
    assert os.listdir(tmp_path) == ["key.pem"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def _no_links(*_: object) -> None:
    raise OSError(keys.errno.EPERM, "no hard links here")


def test_a_folder_that_is_not_there_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        SigningKey.generate().save(tmp_path / "no" / "key.pem")


def test_the_secret_half_is_never_shown() -> None:
    key = SigningKey.generate()
    assert repr(key) == f"SigningKey({key.public_key.fingerprint})"
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(key)


def test_public_keys_come_back_and_openssl_reads_them(tmp_path: Path) -> None:
    key, path = SigningKey.generate().public_key, tmp_path / "operator.pem"
    key.save(path)
    assert PublicKey.load(path) == key
    assert hash(PublicKey.load(path)) == hash(key)
    assert len(key.raw) == 32
    groups = key.fingerprint.split(" ")
    assert [len(group) for group in groups] == [4] * 8
    done = subprocess.run(
        ["openssl", "pkey", "-pubin", "-in", str(path), "-noout", "-text"], capture_output=True, text=True, check=False
    )
    assert "ED25519" in done.stdout.upper()


def _other_key(tmp_path: Path) -> tuple[Path, Path]:
    other = generate_private_key(SECP256R1())
    private, public = tmp_path / "other.pem", tmp_path / "other-public.pem"
    pem = serialization.Encoding.PEM
    private.write_bytes(other.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    public.write_bytes(other.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo))
    return private, public


def test_wrong_files_are_named(tmp_path: Path) -> None:
    private, public = _other_key(tmp_path)
    nonsense, large = tmp_path / "nonsense", tmp_path / "large"
    nonsense.write_text("hello")
    large.write_bytes(bytes(100_000))
    own = tmp_path / "own.pem"
    SigningKey.generate().save(own)
    for path, word in [
        (tmp_path / "gone", "there is no"),
        (nonsense, "not a"),
        (large, "too large"),
        (tmp_path, "cannot be read"),
        (public, "not an Ed25519"),
        (own, "private key"),
    ]:
        with pytest.raises(InputError, match=word):
            PublicKey.load(path)
    for path, word in [(tmp_path / "gone", "there is no"), (nonsense, "not a private key"), (private, "Ed25519")]:
        with pytest.raises(InputError, match=word):
            SigningKey.load(path)


def test_a_key_with_a_password_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "locked.pem"
    secret = keys.Ed25519PrivateKey.generate()
    locked = serialization.BestAvailableEncryption(b"x")
    path.write_bytes(secret.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked))
    with pytest.raises(InputError, match="password"):
        SigningKey.load(path)
