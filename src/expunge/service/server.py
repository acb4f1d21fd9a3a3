"""Running the application: Granian in this very process, so that one process alone has the folder open.

It listens until SIGTERM or SIGINT. Then it takes no more connections, finishes the requests that it has, and closes the
folder. Requests that are accepted and not applied are on the disk, and are applied after the next start.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import signal
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from granian.constants import Interfaces
from granian.http import HTTP1Settings
from granian.server.embed import Server

from expunge.core.errors import InputError
from expunge.service.application import Host
from expunge.training.surroundings import vote_for_good

HOST: Final = "127.0.0.1"
PORT: Final = 8437
_WAITING: Final = 1024  # connections that wait to be taken, and requests that are answered at once
_HEADER_MILLISECONDS: Final = 15_000
_ALLOCATIONS: Final = 20_000  # objects between two searches for garbage


@dataclass(frozen=True, kw_only=True)
class Listening:
    """Where the service listens.

    Parameters
    ----------
    host, port
        The address; port 0 takes a free one.
    certificate, key
        Files for TLS, in PEM form; None for plain HTTP.

    Raises
    ------
    InputError
        If the files cannot be used.
    """

    host: str = HOST
    port: int = PORT
    certificate: Path | None = None
    key: Path | None = None

    def __post_init__(self) -> None:
        if self.certificate is None or self.key is None:
            return
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.certificate, self.key, password=_no_password)
        except (OSError, ValueError) as error:
            why = str(error) if isinstance(error, ValueError) else (error.strerror or str(error)).lower()
            if isinstance(error, ssl.SSLError):
                is_other = error.reason == "KEY_VALUES_MISMATCH"
                why = "the key is another one's" if is_other else "they are no certificate and its key, in PEM form"
            raise InputError(f"cannot serve HTTPS with {self.certificate} and {self.key}: {why}") from None

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        return self.host in ("127.0.0.1", "::1", "localhost")

    def url(self, port: int) -> str:
        """Where clients find it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self.certificate is None else 'https'}://{host}:{port}"


def _no_password() -> str:
    raise ValueError("the key has a password: give one without")


def run(service: Host, listening: Listening, *, announce: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT.

    Parameters
    ----------
    service
        The application. It is closed at the end.
    listening
        Where to listen.
    announce
        Called with the address, once it answers.

    Raises
    ------
    InputError
        If the address is taken or cannot be listened at, or the files for TLS cannot be used.
    """
    vote_for_good()
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_serve(service, listening, announce))
    finally:
        gc.unfreeze()  # else what is left at the end is taken down in another order, and complains
        service.close()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The faster loop, where there is one."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _serve(service: Host, listening: Listening, announce: Callable[[str], None]) -> None:
    held = _reserve(listening)
    port = int(held.getsockname()[1])
    options: dict[str, Any] = {}
    if listening.certificate is not None:
        options = {"ssl_cert": listening.certificate, "ssl_key": listening.key}
    server = Server(
        service,
        listening.host,
        port,
        interface=Interfaces.RSGI,
        websockets=False,
        log_enabled=False,
        backlog=_WAITING,
        backpressure=_WAITING,
        http1_settings=HTTP1Settings(header_read_timeout=_HEADER_MILLISECONDS),
        **options,
    )
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    serving = asyncio.create_task(server.serve())
    try:
        await _until_it_answers(listening.host, port, serving)
        held.close()
        await service.start()
        _collect_less_often()
        announce(listening.url(port))
        await asyncio.wait([serving, waiting := asyncio.create_task(ended.wait())], return_when="FIRST_COMPLETED")
        waiting.cancel()
    finally:
        server.stop()  # type: ignore[no-untyped-call]
        await serving
        await service.stop()


def _collect_less_often() -> None:
    """Leave what was made at the start out of searches for garbage, and search less often: single rows would wait."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS, 20, 20)


def _reserve(listening: Listening) -> socket.socket:
    """Hold the address until the server listens there. Granian would share it with another process."""
    family = socket.AF_INET6 if ":" in listening.host else socket.AF_INET
    with suppress(OSError), socket.socket(family) as trial:
        trial.settimeout(0.2)
        if listening.port and trial.connect_ex((listening.host, listening.port)) == 0:
            raise InputError(f"{listening.host}:{listening.port} is in use: another program listens there")
    held = socket.socket(family)
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind((listening.host, listening.port))
    except OSError as error:
        held.close()
        why = "it is in use" if error.errno == errno.EADDRINUSE else (error.strerror or str(error)).lower()
        raise InputError(f"cannot listen at {listening.host}:{listening.port}: {why}") from None
    except OverflowError as error:
        held.close()
        raise InputError(f"cannot listen at {listening.host}:{listening.port}: {error}") from None
    return held


async def _until_it_answers(host: str, port: int, serving: asyncio.Task[None]) -> None:
    while True:
        if serving.done():
            await serving
            raise InputError(f"the server ended before it listened at {host}:{port}")
        with suppress(OSError):
            _, writer = await asyncio.open_connection(host, port)
            writer.close()
            return
        await asyncio.sleep(0.01)
