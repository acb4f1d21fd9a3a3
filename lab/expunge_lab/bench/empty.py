"""An empty endpoint on the service's own server: it reads the body and answers with a few bytes.

python -m expunge_lab.bench.empty        serves until it is ended, and prints its port
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

HEADERS = [("content-type", "application/json")]


class Empty:
    """Answers every request alike."""

    async def __rsgi__(self, scope: Any, protocol: Any) -> None:
        """Answer."""
        await protocol()
        protocol.response_bytes(200, HEADERS, b'{"labels":["no"],"round":0}')


async def _serve() -> None:
    from granian.constants import Interfaces
    from granian.server.embed import Server

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = Server(
        Empty(),
        "127.0.0.1",
        port,
        interface=Interfaces.RSGI,
        websockets=False,
        log_enabled=False,
        backlog=1024,
        backpressure=1024,
    )
    serving = asyncio.create_task(server.serve())
    print(port, flush=True)
    await serving


if __name__ == "__main__":
    import uvloop

    uvloop.run(_serve())
