"""A request, an answer, and a route: what handlers get, what they give, and how they are found and described."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import parse_qsl

import msgspec

from expunge.service.access import ROLES, Caller, Role
from expunge.service.problems import Problem

JSON: Final = "application/json"
PROBLEM: Final = "application/problem+json"
Headers = list[tuple[str, str]]

#: Sent with every answer. A page has a content policy of its own.
SECURITY: Final[tuple[tuple[str, str], ...]] = (
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
)
NO_CONTENT: Final = ("content-security-policy", "default-src 'none'; frame-ancestors 'none'")
NO_STORE: Final = ("cache-control", "no-store")

EVERYBODY: Final = frozenset(ROLES)


class Fields(Protocol):
    """The header fields of a request."""

    def get(self, key: str, default: Any = None) -> Any:
        """A field by its name in small letters."""


class Request:
    """What a handler gets.

    Parameters
    ----------
    method, path, query
        As they were sent.
    headers
        The header fields.
    id
        Names the request in answers and logs.
    """

    __slots__ = ("_options", "body", "caller", "headers", "id", "method", "parts", "path", "query")

    def __init__(self, method: str, path: str, query: str, headers: Fields, id: str) -> None:
        self.method, self.path, self.query, self.headers, self.id = method, path, query, headers, id
        self.body = b""
        self.caller: Caller | None = None
        self.parts: Mapping[str, str] = {}
        self._options: dict[str, str] | None = None

    @property
    def options(self) -> dict[str, str]:
        """The options after the question mark. One that is given twice is refused."""
        if self._options is None:
            found = dict[str, str]()
            try:
                pairs = parse_qsl(self.query, keep_blank_values=True, strict_parsing=bool(self.query), errors="strict")
            except (ValueError, UnicodeDecodeError):
                raise Problem(
                    400, "invalid", "the part of the address after the question mark cannot be read"
                ) from None
            for name, value in pairs:
                if name in found:
                    raise Problem(400, "invalid", f"{name!r:.80} is given twice", errors=[_at(name, "given twice")])
                found[name] = value
            self._options = found
        return self._options

    def only_options(self, *known: str) -> dict[str, str]:
        """The options; one that is not among those known is refused."""
        options = self.options
        for name in options:
            if name not in known:
                said = f"there is no option {name!r:.80}; there {_are(known)}"
                raise Problem(400, "invalid", said, errors=[_at(name, "unknown")])
        return options

    def count(self, name: str, default: int | None, *, least: int = 0, most: int = 2**62) -> int | None:
        """An option that is a whole number."""
        text = self.options.get(name)
        if text is None:
            return default
        if not (text.isascii() and text.isdigit() and len(text) < 20) or not least <= int(text) <= most:
            said = f"{name} must be a whole number from {least:,} to {most:,}, got {text!r:.40}"
            raise Problem(400, "invalid", said, errors=[_at(name, said)])
        return int(text)

    def flag(self, name: str) -> bool:
        """An option that is true or false; false if it is not given."""
        text = self.options.get(name, "false")
        if text not in ("true", "false"):
            said = f"{name} must be true or false, got {text!r:.40}"
            raise Problem(400, "invalid", said, errors=[_at(name, said)])
        return text == "true"


def _at(field: str, message: str) -> dict[str, Any]:
    return {"message": message, "field": field}


def _are(known: tuple[str, ...]) -> str:
    return f"are {', '.join(known)}" if known else "are none here"


_Asked = TypeVar("_Asked")
_PATH: Final = re.compile(r" - at `\$\.?(.*)`$")


def asked(request: Request, kind: type[_Asked]) -> _Asked:
    """The body of a request, read as JSON into a `msgspec.Struct`; an empty body has the members' usual values.

    Raises
    ------
    Problem
        If it is no JSON, or a member is unknown or has a wrong type. The member is named.
    """
    try:
        return msgspec.json.decode(request.body or b"{}", type=kind)
    except msgspec.ValidationError as error:
        message, place = str(error), _PATH.search(str(error))
        said = message[: place.start()] if place else message
        where = place[1] if place else ""
        raise Problem(
            400, "invalid", f"{where}: {said}" if where else said, errors=[_at(where, said)] if where else []
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Problem(400, "invalid", "the body is not JSON") from None


@dataclass(slots=True)
class Answer:
    """What a handler gives.

    Parameters
    ----------
    body
        The content.
    kind
        Its media type.
    status
        The HTTP status.
    headers
        Header fields beside those that every answer has.
    rows
        How many rows were answered, for the metrics.
    """

    body: bytes = b""
    kind: str = JSON
    status: int = 200
    headers: Headers = field(default_factory=list)
    rows: int = 0


_encode = msgspec.json.Encoder(decimal_format="number").encode


def as_json(data: Any, *, status: int = 200, headers: Headers | None = None) -> Answer:
    """An answer in JSON."""
    return Answer(_encode(data), JSON, status, headers or [])


def tagged(request: Request, answer: Answer) -> Answer:
    """The answer with an ETag; 304 without content if the caller has this very content already."""
    tag = f'"{blake2b(answer.body, digest_size=16, person=answer.kind.encode()[:16]).hexdigest()}"'
    headers = [
        *answer.headers,
        ("etag", tag),
        ("cache-control", "private, no-cache"),
        ("vary", "authorization, accept"),
    ]
    known = request.headers.get("if-none-match")
    if known is not None and (
        known.strip() == "*" or tag in {each.strip().removeprefix("W/") for each in known.split(",")}
    ):
        return Answer(b"", answer.kind, 304, headers)
    return Answer(answer.body, answer.kind, answer.status, headers)


Handler = Callable[[Request], Awaitable[Answer]]


@dataclass(frozen=True)
class Route:
    """One thing that can be asked for.

    Parameters
    ----------
    method, path
        What is asked for. `{name}` in the path stands for one part, which the handler finds in `Request.parts`.
    roles
        Who may ask; None needs no key.
    handle
        Gives the answer.
    described
        The operation in the OpenAPI document.
    most
        The most bytes of a body; None for the service's limit.
    """

    method: str
    path: str
    roles: frozenset[Role] | None
    handle: Handler
    described: Mapping[str, Any] = field(default_factory=dict)
    most: int | None = None

    @cached_property
    def pattern(self) -> tuple[str, ...]:
        """The parts of the path."""
        return tuple(self.path.strip("/").split("/"))


class Routes:
    """All routes, found by method and path.

    Parameters
    ----------
    routes
        The routes.
    otherwise
        What answers everything else; None for 404.
    """

    def __init__(self, routes: list[Route], *, otherwise: Route | None = None) -> None:
        self.all, self._otherwise = routes, otherwise
        self._fixed: dict[str, dict[str, Route]] = {}
        self._open: list[tuple[tuple[str, ...], dict[str, Route]]] = []
        for each in routes:
            if "{" not in each.path:
                self._fixed.setdefault(each.path, {})[each.method] = each
                continue
            for pattern, methods in self._open:
                if pattern == each.pattern:
                    methods[each.method] = each
                    break
            else:
                self._open.append((each.pattern, {each.method: each}))

    def find(self, request: Request) -> Route:
        """The route of a request, whose `parts` are set.

        Raises
        ------
        Problem
            If there is none: 404, or 405 for another method.
        """
        methods = self._fixed.get(request.path) or self._opened(request)
        if methods is None:
            if self._otherwise is not None:
                return self._otherwise
            raise Problem(404, "not-found", "nothing is at this address")
        found = methods.get(request.method)
        if found is None:
            allowed = sorted({*methods, *(["HEAD"] if "GET" in methods else [])})
            if request.method == "HEAD" and "GET" in methods:
                return methods["GET"]
            raise Problem(
                405, "method-not-allowed", f"use {' or '.join(allowed)} here", headers=[("allow", ", ".join(allowed))]
            )
        return found

    def _opened(self, request: Request) -> dict[str, Route] | None:
        parts = tuple(request.path.strip("/").split("/"))
        for pattern, methods in self._open:
            if len(pattern) == len(parts) and all(
                own.startswith("{") or own == part for own, part in zip(pattern, parts, strict=True)
            ):
                request.parts = {
                    own[1:-1]: part for own, part in zip(pattern, parts, strict=True) if own.startswith("{")
                }
                return methods
        return None
