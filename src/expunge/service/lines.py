"""The service's log for its operator: one JSON object a line, on standard error.

A line without `"inside": true` depends on nothing secret: under (α,β,γ) it does not say how long anything took. Keys,
tokens, bodies and records are never written down.
"""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any, Final

import msgspec

from expunge.core.words import utc

_MOST: Final = 10_000  # lines that wait to be written; more are dropped and counted
_encode = msgspec.json.Encoder().encode


def _to_standard_error(content: bytes) -> None:
    if sys.stderr is not None:
        sys.stderr.buffer.write(content)
        sys.stderr.flush()


class Lines:
    """Writes lines. Those about requests are kept until `flush`, so that an answer waits for no disk.

    Parameters
    ----------
    write
        Takes whole lines.
    tells_requests
        Whether each request has a line.
    tells_times
        Whether lines say how long a request took: not under (α,β,γ).

    Examples
    --------
    >>> kept = []
    >>> lines = Lines(kept.append, tells_times=False)
    >>> lines.request("17", "GET", "/v1/status", 200, None, None, 0, 0.5)
    >>> lines.flush()
    >>> b'"ms"' in kept[0]
    False
    """

    def __init__(
        self,
        write: Callable[[bytes], None] = _to_standard_error,
        *,
        tells_requests: bool = True,
        tells_times: bool = True,
    ) -> None:
        self._write, self._tells_requests, self._tells_times = write, tells_requests, tells_times
        self._lock = threading.Lock()
        self._waiting: list[tuple[Any, ...]] = []
        self._dropped = 0

    def request(
        self,
        identity: str,
        method: str,
        route: str,
        status: int,
        caller: str | None,
        role: str | None,
        rows: int,
        seconds: float,
    ) -> None:
        """A request was answered."""
        if not self._tells_requests:
            return
        if len(self._waiting) >= _MOST:
            self._dropped += 1
            return
        self._waiting.append((time.time(), identity, method, route, status, caller, role, rows, seconds))

    def flush(self) -> None:
        """Write what waits."""
        waiting, self._waiting = self._waiting, []
        dropped, self._dropped = self._dropped, 0
        if not waiting:
            return
        lines = [_encode(self._told(*each)) for each in waiting]
        if dropped:
            lines.append(_encode({"at": utc(time.time()), "event": "dropped", "lines": dropped}))
        self._put(b"\n".join(lines) + b"\n")

    def _told(
        self,
        at: float,
        identity: str,
        method: str,
        route: str,
        status: int,
        caller: str | None,
        role: str | None,
        rows: int,
        seconds: float,
    ) -> dict[str, Any]:
        told: dict[str, Any] = {"at": utc(at), "event": "request", "id": identity, "method": method, "route": route}
        told |= {"status": status, "caller": caller, "role": role}
        if rows:
            told["rows"] = rows
        if self._tells_times:
            told["ms"] = round(1000 * seconds, 3)
        return told

    def say(self, event: str, **facts: Any) -> None:
        """Something happened that everybody may know."""
        self._put(_encode({"at": utc(time.time()), "event": event, **facts}) + b"\n")

    def error(self, error: BaseException, *, identity: str | None = None, where: str = "") -> None:
        """Something failed inside. For the operator alone."""
        told: dict[str, Any] = {"at": utc(time.time()), "event": "error", "inside": True, "where": where}
        told |= {"id": identity, "error": f"{type(error).__name__}: {error}"}
        told["trace"] = "".join(traceback.format_exception(error))
        self._put(_encode(told) + b"\n")

    def _put(self, content: bytes) -> None:
        with self._lock:
            try:
                self._write(content)
            except (OSError, ValueError):  # its reader has gone
                self._tells_requests = False
