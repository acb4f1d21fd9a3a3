"""Ed25519 keys: the operator signs with the private half, and an auditor checks with the public half."""

from __future__ import annotations

import errno
import hashlib
import os
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import Any, Final, Self

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from expunge.core.errors import InputError
from expunge.core.files import flush_file, read_bounded, write_new, write_whole

_FINGERPRINT_BYTES: Final = 16
_NO_LINKS: Final = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
_MAX_KEY_FILE: Final = 65536


class PublicKey:
    """The public half of an operator's key, which checks signatures.

    Get one from a file with `PublicKey.load`, or from a `SigningKey`.

    Parameters
    ----------
    key
        The key, as the cryptography package represents it.

    Examples
    --------
    >>> key = SigningKey.generate()
    >>> key.public_key.verifies(key.sign(b"message"), b"message")
    True
    """

    __slots__ = ("_key",)

    def __init__(self, key: Ed25519PublicKey) -> None:
        self._key = key

    @classmethod
    def from_pem(cls, pem: bytes, *, source: str = "the public key") -> Self:
        """Read a key from PEM (SubjectPublicKeyInfo). Error messages call it `source`."""
        if b"PRIVATE KEY-----" in pem:
            raise InputError(f"{source} is a private key; give the public one, and keep the private one to yourself")
        try:
            key = serialization.load_pem_public_key(pem)
        except (ValueError, UnsupportedAlgorithm):
            raise InputError(f"{source} is not a public key in PEM") from None
        if not isinstance(key, Ed25519PublicKey):
            raise InputError(f"{source} is not an Ed25519 key")
        return cls(key)

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Read a key from a PEM file. An InputError says what is wrong with a file that holds none."""
        return cls.from_pem(_read(path, "public key"), source=str(path))

    @classmethod
    def from_raw(cls, raw: bytes) -> Self:
        """Read a key from its 32 bytes (RFC 8032)."""
        try:
            return cls(Ed25519PublicKey.from_public_bytes(raw))
        except ValueError:
            raise InputError("not an Ed25519 key: it has 32 bytes") from None

    @property
    def raw(self) -> bytes:
        """The 32 bytes of RFC 8032."""
        return self._key.public_bytes_raw()

    @property
    def fingerprint(self) -> str:
        """The first half of SHA-256 of the 32 bytes, in groups of four digits that can be compared on the telephone."""
        digits = hashlib.sha256(self.raw).hexdigest()[: 2 * _FINGERPRINT_BYTES]
        return " ".join(digits[place : place + 4] for place in range(0, len(digits), 4))

    def to_pem(self) -> str:
        """Write the key as PEM, which openssl reads."""
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        return self._key.public_bytes(serialization.Encoding.PEM, form).decode("ascii")

    def save(self, path: Path | str) -> None:
        """Write the PEM file. An existing file is replaced: the key is not a secret."""
        write_whole(path, self.to_pem().encode("ascii"))

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Whether the signature of the message was made with the private half."""
        try:
            self._key.verify(signature, message)
        except InvalidSignature:
            return False
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PublicKey) and self.raw == other.raw

    def __hash__(self) -> int:
        return hash(self.raw)

    def __repr__(self) -> str:
        return f"PublicKey({self.fingerprint})"


class SigningKey:
    """The private half of an operator's key, which signs. It is never printed, pickled or put on a command line.

    Make one with `SigningKey.generate`, or read one with `SigningKey.load`.

    Parameters
    ----------
    key
        The key, as the cryptography package represents it.

    Examples
    --------
    >>> len(SigningKey.generate().sign(b"message"))
    64
    """

    __slots__ = ("_key",)

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key

    @classmethod
    def generate(cls) -> Self:
        """Make a new key from the operating system's randomness."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Read a key from a PEM file (PKCS8, without a password)."""
        return cls.from_pem(_read(path, "signing key"), source=str(path))

    @classmethod
    def from_pem(cls, pem: bytes, *, source: str) -> Self:
        """Read a key from PEM (PKCS8, without a password). `source` names it in errors."""
        try:
            key = serialization.load_pem_private_key(pem, password=None)
        except TypeError:
            raise InputError(f"{source} is protected by a password, which is not supported") from None
        except (ValueError, UnsupportedAlgorithm):
            raise InputError(f"{source} is not a private key in PEM") from None
        if not isinstance(key, Ed25519PrivateKey):
            raise InputError(f"{source} is not an Ed25519 key")
        return cls(key)

    def save(self, path: Path | str) -> None:
        """Write a PEM file, completely or not at all, that only its owner can read. No file is ever replaced."""
        pem = self._key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        _write_secret(Path(path), pem)

    @property
    def public_key(self) -> PublicKey:
        """The public half."""
        return PublicKey(self._key.public_key())

    def sign(self, message: bytes) -> bytes:
        """Sign a message; the signature has 64 bytes."""
        return self._key.sign(message)

    def __repr__(self) -> str:
        return f"SigningKey({self.public_key.fingerprint})"

    def __reduce__(self) -> Any:
        raise TypeError("a signing key is not pickled; save it to a file")


def _read(path: Path | str, what: str) -> bytes:
    try:
        data = read_bounded(path, most=_MAX_KEY_FILE)
    except FileNotFoundError:
        raise InputError(f"there is no {what} at {path}") from None
    except OSError as error:
        raise InputError(f"the {what} {path} cannot be read: {error.strerror}") from None
    if len(data) > _MAX_KEY_FILE:
        raise InputError(f"{path} is too large to be a {what}")
    return data


def _write_secret(path: Path, data: bytes) -> None:
    """Put the whole file in place with a hard link, which fails if there is a file already."""
    temporary = path.with_name(f".{path.name}.{token_hex(8)}.tmp")
    try:
        write_new(temporary, data)
        try:
            os.link(temporary, path)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            write_new(path, data)  # a file system without hard links
        flush_file(path.parent)
    except FileExistsError:
        raise InputError(f"{path} exists already; a key is never overwritten") from None
    except OSError as error:
        raise InputError(f"the signing key cannot be written to {path}: {error.strerror}") from None
    finally:
        with suppress(OSError):
            temporary.unlink()
