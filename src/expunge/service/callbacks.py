"""Callbacks: other systems are told when a petition is completed or cancelled.

Whom to tell is in the database with the petition, so no message is lost by a crash; it is removed when the address has
answered with 2xx. So a message may come twice, under the same id. What fails is tried again, less and less often, for
about three days. Only addresses that the operator allowed are told, redirects are not followed, and nothing of what
they answer but the status is read.
"""

from __future__ import annotations

import asyncio
import random
import ssl
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec

from expunge.core.errors import ExpungeError
from expunge.core.version import __version__
from expunge.core.words import utc
from expunge.folder.store.petitions import Callback
from expunge.service.integrations import Integration, origin
from expunge.service.opendsr import VERSION, expected, signed_fields
from expunge.service.petitions import status_of
from expunge.service.signing import BODY_CLAIM, TOLERANCE, digest_of, sign
from expunge.service.updates import in_thread

if TYPE_CHECKING:
    from expunge.service.application import Service

DELAYS: Final = (1, 5, 30, 120, 600, 1800, 3600, *(14400,) * 18)  # seconds before an attempt is repeated
_LOOK_SECONDS: Final = 1.0
_PATIENCE: Final = 15.0
_AT_ONCE: Final = 16
_MOST_LINE: Final = 1024
_encode = msgspec.json.Encoder().encode


class Callbacks:
    """Tells other systems what became of their petitions.

    Parameters
    ----------
    service
        The service.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self.counts: Counter[str] = Counter()  # of attempts: "delivered", "failed", "given up"

    async def run(self) -> None:
        """Send what is due, again and again."""
        while True:
            try:
                while await self._send_due():
                    pass
            except (ExpungeError, OSError) as error:
                self._service.lines.error(error, where="callbacks cannot be read or kept")
            await asyncio.sleep(_LOOK_SECONDS)

    async def _send_due(self) -> bool:
        """Send the next ones at the same time. Return whether there may be more."""
        desk, book, moment = self._service.desk, self._service.deployment.petitions, time.time()
        look = partial(book.due, now=utc(moment), seconds=int(moment), limit=_AT_ONCE)
        found: list[Callback] = await in_thread(desk, look)
        await asyncio.gather(*map(self._send, found))
        return len(found) == _AT_ONCE

    async def _send(self, callback: Callback) -> None:
        desk, book = self._service.desk, self._service.deployment.petitions
        sender = self._service.integrations.by_name.get(callback.petition.sender)
        if sender is None or not sender.may_tell(callback.url):
            what, why = "given up", "the operator does not allow it any more"
        else:
            why = await self._told(sender, callback)
            what = "failed" if why else "delivered"
        next_at = None
        if what == "failed":
            if callback.attempts < len(DELAYS):
                next_at = int(time.time() + DELAYS[callback.attempts] * random.uniform(1.0, 1.2))
            else:
                what = "given up"
        keep: Callable[[], None] = partial(book.delivered, callback)
        if what != "delivered":
            keep = partial(book.failed, callback, next_at=next_at)
        await in_thread(desk, keep)
        self.counts[what] += 1
        scheme, host, port = origin(callback.url)
        self._service.lines.say(
            "callback",
            integration=callback.petition.sender,
            message=callback.message,
            to=f"{scheme}://{host}:{port}",
            outcome=what,
            attempt=callback.attempts + 1,
            **({"why": why} if why else {}),
        )

    async def _told(self, sender: Integration, callback: Callback) -> str:
        """Send a message. Return why it did not arrive; empty if it did."""
        body, fields = self._message(sender, callback)
        try:
            async with asyncio.timeout(_PATIENCE):
                status = await _post(callback.url, body, fields)
        except TimeoutError:
            return f"no answer in {_PATIENCE:g} s"
        except ssl.SSLError as error:
            return f"TLS: {error.reason or 'refused'}"
        except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            return f"no connection: {type(error).__name__}"
        return "" if 200 <= status < 300 else f"it answered {status}"

    def _message(self, sender: Integration, callback: Callback) -> tuple[bytes, dict[str, str]]:
        """A message and its header fields, signed for now."""
        service, petition, moment = self._service, callback.petition, int(time.time())
        status = status_of(callback.state, callback.at, moment)
        more: list[tuple[str, str]] = []
        if callback.form == "opendsr":
            body = _encode(
                {
                    "controller_id": sender.name,
                    "status_callback_url": callback.url,
                    "subject_request_id": petition.id,
                    "request_status": status,
                    "expected_completion_time": expected(petition.received_at),
                    "api_version": VERSION,
                }
            )
            more = signed_fields(service, body)
        else:
            told = {"id": petition.id, "status": status}
            body = _encode({"type": f"erasure.{status}", "timestamp": callback.at, "data": told})
        claims: dict[str, Any] = {
            "iss": service.public_url,
            "aud": callback.url,
            "iat": moment,
            "exp": moment + TOLERANCE,
            "jti": callback.message,
            BODY_CLAIM: digest_of(body),
        }
        return body, {
            "content-type": "application/json",
            "user-agent": f"expunge/{__version__}",
            "webhook-id": callback.message,
            "webhook-timestamp": str(moment),
            "webhook-signature": sign(sender.secret, callback.message, moment, body),
            "authorization": f"Bearer {service.signer.token(claims)}",
            **dict(more),
        }


async def _post(url: str, body: bytes, fields: dict[str, str]) -> int:
    """Send a body, and return the status of the answer. Redirects and proxies are not followed."""
    parts, (scheme, host, port) = urlsplit(url), origin(url)
    secure = ssl.create_default_context() if scheme == "https" else None
    reader, writer = await asyncio.open_connection(host, port, ssl=secure, limit=_MOST_LINE)
    try:
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        told = {"host": parts.netloc, "content-length": str(len(body)), "connection": "close", **fields}
        head = "".join(f"{name}: {value}\r\n" for name, value in told.items())
        writer.write(f"POST {target} HTTP/1.1\r\n{head}\r\n".encode("ascii") + body)
        await writer.drain()
        version, status, *_ = (await reader.readuntil(b"\n")).split()
        if not version.startswith(b"HTTP/1.") or len(status) != 3 or not status.isdigit():
            raise ValueError("that is no HTTP")
        return int(status)
    finally:
        writer.close()
