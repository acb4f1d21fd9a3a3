"""Integrations: other systems that send erasure requests to the service, and are told when one is done.

Each has a key of its own for OpenDSR, of the role "integration", and a secret that webhooks are signed with in both
directions (`expunge.service.signing`). A secret that signs must be known as it is: so the file `integrations.json` of
the folder holds it in clear, beside the key that the service itself signs with. It is readable by its owner only, is in
no back-up, and opens nothing but the sending of erasure requests.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from expunge.core.checks import quoted
from expunge.core.errors import InputError
from expunge.core.words import utc
from expunge.service.access import KeyFile, SharedFile
from expunge.service.bearer import Issuer, Tokens
from expunge.service.signing import new_key

NAME: Final = "integrations.json"
RAW: Final = "raw"
HASHES: Final = {"sha256": 64, "sha1": 40, "md5": 32}  # digits of each
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_TYPE: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_URL: Final = re.compile(r"[!-~]{1,2000}")
_SECRET_BYTES: Final = 32
LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
DEFAULT: Final = "controller_customer_id"


@dataclass(frozen=True, slots=True)
class Identity:
    """A kind of name that a person may be given by.

    Parameters
    ----------
    type
        What the sender calls it, such as "email".
    form
        How the deployment holds it: "raw", or as the hexadecimal digits of a hash of it.

    Examples
    --------
    >>> Identity.parse("email:sha256")
    Identity(type='email', form='sha256')
    """

    type: str
    form: str = RAW

    @classmethod
    def parse(cls, text: str) -> Identity:
        """Read "email" or "email:sha256"."""
        name, _, form = text.partition(":")
        if not _TYPE.fullmatch(name) or (form or RAW) not in (RAW, *HASHES):
            raise InputError(
                f"an identity is TYPE or TYPE:FORM, FORM one of {', '.join((RAW, *HASHES))}; got {text!r:.60}"
            )
        return cls(name, form or RAW)

    @property
    def accepted(self) -> tuple[str, ...]:
        """The forms in which it may be sent."""
        return (RAW, *HASHES) if self.form == RAW else (RAW, self.form)


@dataclass(frozen=True, slots=True)
class Integration:
    """Another system.

    Parameters
    ----------
    name
        What the operator calls it.
    key
        The id of its key.
    secret
        What webhooks are signed with.
    identities
        How it may name people.
    callbacks
        The addresses that may be told.
    issuer
        Whose JWTs are accepted instead of the secret: "url", "audience", and "keys" or None; None if nobody's.
    created_at, revoked_at
        When it was made, and ended.
    """

    name: str
    key: str
    secret: str
    identities: tuple[Identity, ...]
    callbacks: tuple[str, ...]
    issuer: Mapping[str, Any] | None
    created_at: str
    revoked_at: str | None = None

    @classmethod
    def from_dict(cls, told: Mapping[str, Any]) -> Integration:
        """Read what `asdict` wrote."""
        identities = tuple(Identity(each["type"], each["form"]) for each in told["identities"])
        return cls(**{**told, "identities": identities, "callbacks": tuple(told["callbacks"])})

    def to_dict(self) -> dict[str, Any]:
        """What may be shown of it."""
        shown = asdict(self)
        del shown["secret"]
        shown["issuer"] = None if self.issuer is None else self.issuer["url"]
        shown["identities"] = [f"{each.type}:{each.form}" for each in self.identities]
        return {**shown, "state": "active" if self.revoked_at is None else "revoked"}

    def may_tell(self, url: str) -> bool:
        """Whether this address may be told: one of the same host, port and scheme was allowed."""
        found = read_url(url)
        return found is not None and any(origin(url) == origin(each) for each in self.callbacks)


def read_url(text: str) -> SplitResult | None:
    """The parts of an address that may be told; None if there is none such: it begins with https, or stays here."""
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return None
    is_safe = parts.scheme == "https" or (parts.scheme == "http" and host in LOOPBACK)
    is_plain = _URL.fullmatch(text) and "@" not in parts.netloc and "\\" not in text and not parts.fragment
    return parts if host and is_safe and is_plain else None


def origin(url: str) -> tuple[str, str, int]:
    """Scheme, host and port of an address."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)


class IntegrationFile:
    """The integrations of one deployment's folder. Other processes may change them at the same time.

    Parameters
    ----------
    folder
        The deployment's folder.
    """

    def __init__(self, folder: str | PathLike[str]) -> None:
        self._file, self._keys = SharedFile(folder, NAME), KeyFile(folder)

    def mark(self) -> tuple[int, int, int] | None:
        """Something that changes whenever the integrations do; None if there are none."""
        return self._file.mark()

    def read(self) -> tuple[Integration, ...]:
        """All integrations, oldest first."""
        return self._understood(self._file.read())[1]

    def signing_key(self) -> bytes | None:
        """The key that the service signs with, in PEM form; None before there is an integration."""
        return self._understood(self._file.read())[0]

    def create(
        self,
        name: str,
        *,
        identities: Iterable[str] = (),
        callbacks: Iterable[str] = (),
        issuer: Issuer | None = None,
        rate: float | None = None,
    ) -> tuple[str, Integration]:
        """Make an integration.

        Parameters
        ----------
        name
            What to call it: small letters, digits and hyphens.
        identities
            How it may name people: "email", or "email:sha256" if the deployment holds hashes; `DEFAULT` if nothing is
            given.
        callbacks
            The addresses that may be told: those of webhooks, and the hosts of those that OpenDSR requests name.
        issuer
            Whose JWTs may take the place of the secret.
        rate
            How many OpenDSR requests a second its key allows, on average.

        Returns
        -------
        key : str
            Its key, which is shown this once.
        integration : Integration
            What is kept, with the secret.

        Raises
        ------
        InputError
            If an option is wrong, or the name is in use.
        """
        if not _NAME.fullmatch(name):
            raise InputError(f"an integration's name has small letters, digits and hyphens, got {name!r:.60}")
        known = tuple(map(Identity.parse, identities)) or (Identity(DEFAULT),)
        if len({each.type for each in known}) < len(known):
            raise InputError("an identity is given twice")
        told = tuple(callbacks)
        for each in told:
            if read_url(each) is None:
                raise InputError(
                    "a callback is https://HOST/PATH (http:// on this machine alone), with no user and no #, "
                    f"got {quoted(each)}"
                )
        kept = None if issuer is None else _kept(issuer)
        self._require_free(name, self.read())
        key, made = self._keys.create_for_integration(name, rate=rate)
        secret = f"whsec_{base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()}"
        found = Integration(name, made.id, secret, known, told, kept, utc(time.time()))
        try:
            with self._file.changing() as place:
                signing, present = self._understood(self._file.read(place))
                self._require_free(name, present)
                others = tuple(each for each in present if each.name != name)
                self._write(place, signing or new_key(), (*others, found))
        except BaseException:
            self._keys.revoke(made.id)
            raise
        return key, found

    def revoke(self, name: str) -> Integration:
        """End an integration for good. What it asked for stays, and callbacks that wait are not sent.

        Raises
        ------
        InputError
            If there is no such integration.
        """
        with self._file.changing() as place:
            signing, present = self._understood(self._file.read(place))
            found = next((each for each in present if each.name == name), None)
            if found is None or signing is None:
                raise InputError(f"there is no integration {name!r:.60}; `expunge integrations list` shows them")
            ended = found if found.revoked_at else replace(found, revoked_at=utc(time.time()), secret="")
            self._write(place, signing, tuple(ended if each.name == name else each for each in present))
        self._keys.revoke(ended.key)
        return ended

    @staticmethod
    def _require_free(name: str, present: tuple[Integration, ...]) -> None:
        if any(each.name == name and each.revoked_at is None for each in present):
            raise InputError(f"there is an integration {name!r} already: revoke it first, or choose another name")

    def _understood(self, told: Any) -> tuple[bytes | None, tuple[Integration, ...]]:
        try:
            if told is None:
                return None, ()
            return told["signing_key"].encode(), tuple(map(Integration.from_dict, told["integrations"]))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise self._file.damaged(error) from None

    def _write(self, place: Any, signing: bytes, integrations: tuple[Integration, ...]) -> None:
        told = {"signing_key": signing.decode(), "integrations": [asdict(each) for each in integrations]}
        self._file.write(place, told)


def _kept(issuer: Issuer) -> dict[str, Any]:
    """An issuer as it is kept, with its keys if they are in a file."""
    keys = issuer.keys
    if isinstance(keys, Path):
        Tokens(issuer).load()  # refuses what cannot be read
        keys = json.loads(keys.read_bytes())
    return {"url": issuer.url, "audience": issuer.audience, "keys": keys}


class IntegrationRing:
    """The integrations in memory, for the service: it follows the file.

    Parameters
    ----------
    file
        The integrations of a folder.
    """

    def __init__(self, file: IntegrationFile) -> None:
        self._file = file
        self._mark: object = object()
        self.by_name: dict[str, Integration] = {}
        self.by_key: dict[str, Integration] = {}
        self.tokens: dict[str, Tokens] = {}
        self.signing_key: bytes | None = None
        self.follow()

    def follow(self) -> None:
        """Read the integrations again if the file was changed. If it cannot be read, there are none."""
        mark = self._file.mark()
        if mark == self._mark:
            return
        self.by_name, self.by_key, self.tokens = {}, {}, {}
        found = [each for each in self._file.read() if each.revoked_at is None]
        self.signing_key = self._file.signing_key()
        self.by_name = {each.name: each for each in found}
        self.by_key = {each.key: each for each in found}
        for each in found:
            if each.issuer is not None:
                self.tokens[each.name] = tokens = Tokens(Issuer(**each.issuer))
                if each.issuer["keys"] is not None:
                    tokens.load()
        self._mark = mark


def hashed(value: str, form: str) -> str:
    """The hexadecimal digits of a hash of a text."""
    return hashlib.new(form, value.encode(), usedforsecurity=False).hexdigest()
