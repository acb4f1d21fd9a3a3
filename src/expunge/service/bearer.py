"""OIDC bearer tokens instead of keys: signed by an issuer, for this audience, with the role in a claim.

The issuer's public keys come from a file, or from the address that it names in its discovery document. They are fetched
again, at most once a minute, when a token names a key that is not known. Only asymmetric signatures are accepted.
"""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import jwt

from expunge.core.errors import InputError
from expunge.service.access import ROLES, Caller

_ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "ES512", "EdDSA")
_LEEWAY: Final = 30  # seconds by which clocks may differ
_LEAST_SECONDS: Final = 60.0
_MOST_BYTES: Final = 1 << 20
_PATIENCE: Final = 10.0


@dataclass(frozen=True, kw_only=True)
class Issuer:
    """Whose tokens are accepted.

    Parameters
    ----------
    url
        The issuer, as the tokens name it.
    audience
        Whom the tokens must be for.
    claim
        The claim with the role, or with a list of names among which the role is.
    roles
        The role that each name in the claim stands for.
    keys
        The issuer's keys (a JSON Web Key Set), or a file with them; None fetches them from the issuer.
    """

    url: str
    audience: str
    claim: str = "role"
    roles: Mapping[str, str] | None = None
    keys: Path | Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        is_local = parts.hostname in ("127.0.0.1", "::1", "localhost")
        if parts.scheme != "https" and not (parts.scheme == "http" and is_local):
            raise InputError(f"an OIDC issuer begins with https://, got {self.url!r:.80}")
        for name in (self.roles or {}).values():
            if name not in ROLES:
                raise InputError(f"--oidc-role stands for one of {', '.join(ROLES)}, got {name!r:.40}")


class Tokens:
    """Checks tokens of one issuer.

    Parameters
    ----------
    issuer
        Whose tokens are accepted.
    """

    def __init__(self, issuer: Issuer) -> None:
        self._issuer = issuer
        self._keys: dict[str | None, jwt.PyJWK] = {}
        self._fetched = float("-inf")
        self._fetching: asyncio.Task[None] | None = None

    def load(self) -> None:
        """Read the issuer's keys.

        Raises
        ------
        InputError
            If they cannot be read.
        """
        self._fetched = time.monotonic()
        try:
            known = self._issuer.keys
            found = known if isinstance(known, Mapping) else json.loads(known.read_bytes() if known else self._fetch())
            keys = [jwt.PyJWK(each) for each in found["keys"] if each.get("use", "sig") == "sig"]
            self._keys = {each.key_id: each for each in keys}
        except (OSError, ValueError, KeyError, TypeError, jwt.PyJWTError) as error:
            raise InputError(f"the keys of {self._issuer.url} cannot be read: {' '.join(str(error).split())}") from None

    def _fetch(self) -> bytes:
        told = json.loads(_get(f"{self._issuer.url.rstrip('/')}/.well-known/openid-configuration"))
        if told.get("issuer") != self._issuer.url:
            raise ValueError("its discovery document is of another issuer")
        return _get(told["jwks_uri"])

    def caller_of(self, token: str) -> Caller | None:
        """Whose token this is; None if it opens nothing."""
        claims = self.claims_of(token, "sub")
        role = None if claims is None else self._role(claims.get(self._issuer.claim))
        return None if role is None or claims is None else Caller(f"oidc:{claims['sub']!s:.64}", role)  # type: ignore[arg-type]

    def claims_of(self, token: str, *required: str) -> dict[str, Any] | None:
        """What a token of the issuer claims, these claims among it; None if it is not valid now."""
        try:
            header = jwt.get_unverified_header(token)
            key = self._keys.get(header.get("kid"))
            if key is None:
                self._look_again()
                return None
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=list(_ALGORITHMS),
                audience=self._issuer.audience,
                issuer=self._issuer.url,
                leeway=_LEEWAY,
                options={"require": ["exp", "iss", "aud", *required]},
            )
        except (jwt.PyJWTError, ValueError, TypeError, KeyError):
            return None
        return claims

    def _role(self, said: Any) -> str | None:
        names = said if isinstance(said, list) else [said]
        known = self._issuer.roles or {role: role for role in ROLES}
        found = {known[name] for name in names if isinstance(name, str) and name in known}
        return next((role for role in reversed(ROLES) if role in found), None)

    def _look_again(self) -> None:
        """Fetch the keys in the background: the issuer may have new ones."""
        if self._issuer.keys is not None or time.monotonic() - self._fetched < _LEAST_SECONDS:
            return
        self._fetched = time.monotonic()

        async def look() -> None:
            await asyncio.to_thread(self._try)

        self._fetching = asyncio.ensure_future(look())

    def _try(self) -> None:
        try:
            self.load()
        except InputError:  # the keys that are known stay
            return


def _get(url: str) -> bytes:
    if urlsplit(url).scheme not in ("http", "https"):
        raise ValueError(f"not an address: {url!r:.80}")
    with urllib.request.urlopen(url, timeout=_PATIENCE) as answer:
        content: bytes = answer.read(_MOST_BYTES)
    return content
