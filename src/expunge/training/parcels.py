"""Parcels: what travels to the workers of a cluster and back, sealed under a key that only one call has.

A cluster keeps what travels: in its object store, on the disks that this spills to, in messages about errors. So
nothing travels as it is. Functions, items and results, and errors too, which may quote a record, are pickled and
encrypted with AES-256-GCM under a key that is drawn for one call of `map` and forgotten at its end. What is left on a
disk is then noise, and stays noise.
"""

from __future__ import annotations

import os
import pickle
import secrets
from typing import Any, Final

import cloudpickle
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from expunge.core.errors import ExpungeError

_PIECE: Final = 1 << 30  # bytes that are encrypted at once
_TAG, _SALT, _COUNT = 16, 8, 4  # a nonce is the salt of a parcel and the number of a piece


def make_key() -> bytes:
    """Draw a key from the operating system.

    Returns
    -------
    bytes
        32 of them.

    Examples
    --------
    >>> key = make_key()
    >>> open_parcel(key, seal(key, [1, "two"]))
    [1, 'two']
    """
    return secrets.token_bytes(32)


def seal(key: bytes, value: Any) -> bytes:
    """Pickle and encrypt a value. Functions that no module holds are pickled whole.

    Parameters
    ----------
    key
        From `make_key`.
    value
        What is to travel.

    Returns
    -------
    bytes
        The parcel.
    """
    plain, cipher, salt = memoryview(cloudpickle.dumps(value, protocol=5)), AESGCM(key), os.urandom(_SALT)
    pieces = [
        cipher.encrypt(salt + number.to_bytes(_COUNT, "big"), plain[low : low + _PIECE], None)
        for number, low in enumerate(range(0, len(plain), _PIECE))
    ]
    return b"".join([salt, *pieces])


def open_parcel(key: bytes, parcel: bytes) -> Any:
    """Decrypt and unpickle a value. Only this process, and the workers that it trusts, have the key.

    Parameters
    ----------
    key
        The key that it was sealed with.
    parcel
        What `seal` returned.

    Returns
    -------
    Any
        The value.
    """
    view, cipher, size = memoryview(parcel)[_SALT:], AESGCM(key), _PIECE + _TAG
    salt = parcel[:_SALT]
    pieces = [
        cipher.decrypt(salt + number.to_bytes(_COUNT, "big"), view[low : low + size], None)
        for number, low in enumerate(range(0, len(view), size))
    ]
    return pickle.loads(pieces[0] if len(pieces) == 1 else b"".join(pieces))


def work(key: bytes, function: bytes, item: bytes) -> bytes:
    """On a worker: make a call, and seal its result, or its error.

    Parameters
    ----------
    key
        The key of everything that travels.
    function, item
        What to call, and with what, sealed.

    Returns
    -------
    bytes
        What `result_of` reads.
    """
    try:
        outcome = True, open_parcel(key, function)(open_parcel(key, item))
    except Exception as error:
        outcome = False, _portable(error)
    try:
        return seal(key, outcome)
    except Exception as error:
        return seal(key, (False, ExpungeError(f"a result cannot be sent back: {type(error).__name__}: {error}")))


def result_of(key: bytes, parcel: bytes) -> Any:
    """Read what `work` sent: a result, or an error, which is raised.

    Parameters
    ----------
    key
        The key of everything that travels.
    parcel
        What `work` returned.

    Returns
    -------
    Any
        The result.
    """
    is_done, found = open_parcel(key, parcel)
    if is_done:
        return found
    raise found


def _portable(error: Exception) -> Exception:
    """The error, or one with the same words if it cannot be pickled."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return ExpungeError(f"{type(error).__name__}: {error}")
    return error
