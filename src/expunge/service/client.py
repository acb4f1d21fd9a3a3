"""A client of the service, with the names that a deployment in this process has. It needs the base install only."""

from __future__ import annotations

import http.client
import json
import ssl
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from expunge.core.errors import ExpungeError, ParameterError

_SECONDS = 60.0


class ServiceError(ExpungeError):
    """The service refused a request, or failed.

    Parameters
    ----------
    status
        The HTTP status.
    problem
        The problem details that it answered with.
    """

    def __init__(self, status: int, problem: dict[str, Any]) -> None:
        super().__init__(f"{problem.get('detail') or problem.get('title') or 'the service answered'} ({status})")
        self.status, self.problem = status, problem


class Client:
    """A deployment that is served elsewhere.

    One connection is kept open; a client is for one thread.

    Parameters
    ----------
    url
        Where the service is, such as "http://127.0.0.1:8437".
    key
        The key, or an OIDC token.
    timeout
        The seconds to wait for an answer.
    context
        The TLS context; Python's default if None.

    Raises
    ------
    ParameterError
        If the address is none.

    Examples
    --------
    >>> client = Client("http://127.0.0.1:8437", "expunge_…")
    >>> client.url
    'http://127.0.0.1:8437'
    """

    def __init__(self, url: str, key: str, *, timeout: float = _SECONDS, context: ssl.SSLContext | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ParameterError(f"the address of a service begins with http:// or https://, got {url!r:.80}")
        self.url = url.rstrip("/")
        self._base, self._key = parts.path.rstrip("/"), key
        host, port = parts.hostname, parts.port
        self._connection: http.client.HTTPConnection
        if parts.scheme == "https":
            self._connection = http.client.HTTPSConnection(host, port, timeout=timeout, context=context)
        else:
            self._connection = http.client.HTTPConnection(host, port, timeout=timeout)

    @property
    def status(self) -> dict[str, Any]:
        """The round, the records and the requests."""
        found: dict[str, Any] = self._json("GET", "/v1/status")
        return found

    @property
    def promise(self) -> dict[str, Any]:
        """What is promised about deleted records."""
        found: dict[str, Any] = self._json("GET", "/v1/promise")
        return found

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _json(self, method: str, path: str, data: Any = None, headers: dict[str, str] | None = None) -> Any:
        body = None if data is None else json.dumps(data, allow_nan=False).encode()
        sent = {"Content-Type": "application/json"} if body is not None else {}
        return json.loads(self._send(method, path, body, {**sent, **(headers or {})})[1])

    def _send(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[http.client.HTTPResponse, bytes]:
        """Send a request, once more if the connection that was kept turns out to be closed."""
        sent = {"Authorization": f"Bearer {self._key}", "Accept": "application/json", **(headers or {})}
        for attempt in (1, 2):
            is_kept = self._connection.sock is not None
            try:
                self._connection.request(method, self._base + path, body=body, headers=sent)
                found = self._connection.getresponse()
                content = found.read()
                break
            except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
                self._connection.close()
                if attempt == 2 or not is_kept or method not in ("GET", "HEAD"):
                    raise
        if found.status >= 400:
            try:
                problem = json.loads(content)
            except ValueError:
                problem = {"title": found.reason}
            raise ServiceError(found.status, problem)
        return found, content
