"""A client of the service, with the names that a deployment in this process has. It needs the base install only."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, urlencode, urlsplit

import numpy as np
from numpy.typing import NDArray

from expunge.core.errors import ExpungeError, ParameterError

_SECONDS = 330.0


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
        return self._json("GET", "/v1/status")

    @property
    def promise(self) -> dict[str, Any]:
        """What is promised about deleted records."""
        return self._json("GET", "/v1/promise")

    @property
    def schema(self) -> dict[str, Any]:
        """The columns, and what each holds."""
        return self._json("GET", "/v1/schema")

    @property
    def classes(self) -> list[Any]:
        """The labels, in the order of the columns of `predict_proba`; empty if numbers are predicted."""
        return list(self.schema["classes"] or [])

    def predict(self, X: Any) -> NDArray[Any]:
        """Ask for a label, or a number, for every row.

        Parameters
        ----------
        X
            The rows: a data frame, an array, or lists.

        Returns
        -------
        array
            The labels, None where there is no answer; or the numbers.

        Raises
        ------
        ServiceError
            If a row does not fit. `problem` names it.
        """
        found = self._json("POST", "/v1/predictions", {"rows": _rows(X)})
        return _column(found["labels"]) if "labels" in found else np.array(found["values"], dtype=np.float64)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Ask for the probabilities of the classes, one row each; exact promise only.

        Parameters
        ----------
        X
            As for `predict`.

        Returns
        -------
        array
            Shape (rows, classes); NaN in a row without an answer.
        """
        found = self._json("POST", "/v1/predictions?probabilities=true", {"rows": _rows(X)})
        return np.array(found["probabilities"], dtype=np.float64)

    def delete(
        self,
        ids: Iterable[Any] = (),
        *,
        subjects: Iterable[Any] = (),
        key: str | None = None,
        wait: float | None = None,
    ) -> dict[str, Any]:
        """Delete records by id, and all records of the given subjects, as one request.

        Parameters
        ----------
        ids, subjects
            Whom to delete.
        key
            Makes the request idempotent: the same key again returns the first request.
        wait
            The seconds to wait until it is applied.

        Returns
        -------
        dict
            The request: its id is "request", and its "state" "pending" or "applied".
        """
        asked = {"ids": [_plain(each) for each in ids], "subjects": [_plain(each) for each in subjects]}
        return self.update({"delete": asked}, key=key, wait=wait)

    def add(
        self,
        X: Any,
        y: Iterable[Any] | None = None,
        ids: Iterable[Any] | None = None,
        *,
        subjects: Iterable[Any] | None = None,
        weights: Iterable[float] | None = None,
        key: str | None = None,
        readmit: bool = False,
        wait: float | None = None,
    ) -> dict[str, Any]:
        """Add records under new ids, as one request.

        Parameters
        ----------
        X
            A data frame with all columns of the deployment; or the features alone, with the rest beside them.
        y, ids, subjects, weights
            The labels and ids, and where there are any the subjects and weights, unless X holds them.
        key, wait
            As for `delete`.
        readmit
            Whether records may come back that were deleted on request.

        Returns
        -------
        dict
            As `delete`.
        """
        rows = _rows(X) if y is None else _lists(X)
        asked: dict[str, Any] = {"rows": rows}
        beside = {"labels": y, "ids": ids, "subjects": subjects, "weights": weights}
        asked |= {name: [_plain(each) for each in given] for name, given in beside.items() if given is not None}
        return self.update({"add": asked, "readmit": readmit}, key=key, wait=wait)

    def correct(
        self,
        ids: Iterable[Any],
        X: Any = None,
        y: Iterable[Any] | None = None,
        *,
        key: str | None = None,
        wait: float | None = None,
    ) -> dict[str, Any]:
        """Replace what records say, under the ids that they have, as one request.

        Parameters
        ----------
        ids
            The records.
        X, y
            Their new features, all columns of them, and their new labels. What is not given stays as it is.
        key, wait
            As for `delete`.

        Returns
        -------
        dict
            As `delete`.
        """
        asked: dict[str, Any] = {"ids": [_plain(each) for each in ids]}
        if X is not None:
            asked["rows"] = _lists(X)
        if y is not None:
            asked["labels"] = [_plain(each) for each in y]
        return self.update({"correct": asked}, key=key, wait=wait)

    def update(self, asked: Mapping[str, Any], *, key: str | None = None, wait: float | None = None) -> dict[str, Any]:
        """Send a request as the service takes it: {"delete": …, "add": …}.

        Parameters
        ----------
        asked
            What to do.
        key, wait
            As for `delete`.

        Returns
        -------
        dict
            As `delete`.
        """
        headers = {} if key is None else {"Idempotency-Key": key}
        if wait is not None:
            headers["Prefer"] = f"wait={max(0, int(wait))}"
        return self._json("POST", "/v1/updates", asked, headers)

    def request(self, request: str, *, wait: float | None = None) -> dict[str, Any]:
        """Return a request as it stands now, by its id; or when it is applied, if that comes within `wait` seconds."""
        headers = {} if wait is None else {"Prefer": f"wait={max(0, int(wait))}"}
        return self._json("GET", f"/v1/updates/{quote(request, safe='')}", headers=headers)

    def requests(self, *, state: str | None = None) -> Iterator[dict[str, Any]]:
        """Yield all requests, oldest first, page by page; those in a state if one is named."""
        after: str | None = ""
        while after is not None:
            query = {"limit": "1000", **({"after": after} if after else {}), **({"state": state} if state else {})}
            page = self._json("GET", f"/v1/updates?{urlencode(query)}")
            yield from page["updates"]
            after = page["next"]

    def cancel(self, request: str) -> dict[str, Any]:
        """Take back a pending request."""
        return self._json("DELETE", f"/v1/updates/{quote(request, safe='')}")

    def certificate(self, request: str | None = None) -> bytes:
        """Return a signed certificate about a request, or about the whole deployment, for `expunge verify`."""
        about = "" if request is None else f"/{quote(request, safe='')}"
        return self._send("GET", f"/v1/certificates{about}")[1]

    def checkpoint(self) -> str:
        """Return the signed checkpoint of the log."""
        return self._send("GET", "/v1/log/checkpoint", headers={"Accept": "text/plain"})[1].decode()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _json(
        self, method: str, path: str, data: Any = None, headers: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        body = None if data is None else json.dumps(data, allow_nan=False).encode()
        sent = {"Content-Type": "application/json"} if body is not None else {}
        found: dict[str, Any] = json.loads(self._send(method, path, body, {**sent, **(headers or {})})[1])
        return found

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


def _plain(value: Any) -> Any:
    """A value as JSON has it; a gap is None."""
    found = value.item() if isinstance(value, np.generic) else value
    return None if found is None or found != found or type(found).__name__ in ("NAType", "NaTType") else found


def _rows(X: Any) -> list[Any]:
    """Rows as objects with the names of a data frame's columns, or as lists."""
    if not (hasattr(X, "columns") and hasattr(X, "itertuples")):
        return _lists(X)
    names = [str(name) for name in X.columns]
    return [dict(zip(names, map(_plain, row), strict=True)) for row in X.itertuples(index=False, name=None)]


def _lists(X: Any) -> list[Any]:
    """Rows as lists of values."""
    if hasattr(X, "columns") and hasattr(X, "itertuples"):
        return [[_plain(each) for each in row] for row in X.itertuples(index=False, name=None)]
    listed = X.tolist() if hasattr(X, "tolist") else list(X)
    return [[_plain(each) for each in row] if isinstance(row, list | tuple) else _plain(row) for row in listed]


def _column(values: list[Any]) -> NDArray[Any]:
    if any(value is None for value in values):
        found = np.empty(len(values), dtype=object)
        found[:] = values
        return found
    return np.array(values)
