"""The service under load: single rows against an empty endpoint on the same server, batches, and the slowest answers.

Costs are of the server's processor time, so that the work of asking does not count. All requests are sent from this
machine, by one process with many connections.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from expunge.folder import create
from expunge.service.access import KeyFile
from expunge.training.learners.named import named_learner
from expunge_lab.bench.measurement import Line, Progress, Target

SHARDS, FEATURES, RECORDS = 100, 10, 20_000
_TICKS = os.sysconf("SC_CLK_TCK")


class Server:
    """A process that serves, and what it has spent."""

    def __init__(self, process: subprocess.Popen[str], port: int, key: str) -> None:
        self.process, self.port, self.key = process, port, key

    def spent(self) -> float:
        """The processor time of the process and of its children that still run, in seconds."""
        return sum(_spent(pid) for pid in [self.process.pid, *_children(self.process.pid)])

    def request(self, path: str, body: bytes, kind: str = "application/json") -> bytes:
        """A request as it is sent."""
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self.key}\r\nContent-Type: {kind}\r\n"
        return head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body


def _run(work: Coroutine[Any, Any, list[float]]) -> list[float]:
    """Run it in a thread of its own: the caller's thread may have a loop already."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


def _spent(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _children(pid: int) -> list[int]:
    found = []
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            try:
                fields = (each / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == pid:
                found.append(int(each.name))
    return found


@contextmanager
def _running(*command: str, key: str = "") -> Iterator[Server]:
    process = subprocess.Popen(
        [sys.executable, "-m", *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline().split()[-1].rpartition(":")[2])
        time.sleep(1.0)
        yield Server(process, port, key)
    finally:
        process.terminate()
        process.wait()


async def _ask(port: int, request: bytes, times: int | None, took: list[float], ended: asyncio.Event) -> None:
    """Send a request again and again over one connection, so often or until the end, and note how long each took."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    while (times is None or len(took) < times) and not ended.is_set():
        begun = time.perf_counter()
        writer.write(request)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        at = head.find(b"content-length:")
        await reader.readexactly(int(head[at + 15 : head.find(b"\r", at)]))
        if not head.startswith(b"http/1.1 20"):
            raise RuntimeError(f"the service answered {head[:40]!r}")
        took.append(time.perf_counter() - begun)
    writer.close()


async def _load(port: int, request: bytes, *, connections: int, each: int) -> list[float]:
    """How long requests took that many connections sent at the same time."""
    took: list[list[float]] = [[] for _ in range(connections)]
    await asyncio.gather(*[_ask(port, request, each, own, asyncio.Event()) for own in took])
    return [one for own in took for one in own]


async def _beside(
    port: int, request: bytes, *, connections: int, each: int, other: Callable[[], object]
) -> list[float]:
    """The same while something else goes on in a thread, which is ended at the end."""
    beside = asyncio.create_task(asyncio.to_thread(other))
    await asyncio.sleep(0.2)
    found = await _load(port, request, connections=connections, each=each)
    await beside
    return found


def _slow(took: list[float]) -> float:
    return float(np.quantile(took, 0.99))


def run(*, quick: bool, progress: Progress) -> list[Line]:
    """The suite."""
    records, repeats, each = (2_000, 1, 20) if quick else (RECORDS, 7, 300)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(records, FEATURES))
    y = X[:, 0] + rng.normal(size=records) > 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "served"
        create(folder, named_learner("logistic"), X, y, n_shards=SHARDS).close()
        key = KeyFile(folder).create("operator")[0]
        command = ("expunge", "serve", str(folder), "--port", "0", "--no-log-requests")
        with (
            progress("service", 4 * repeats) as advance,
            _running(*command, key=key) as served,
            _running("expunge_lab.bench.empty") as empty,
        ):
            return _measured(served, empty, X, repeats=repeats, each=each, quick=quick, advance=advance)


def _measured(
    served: Server,
    empty: Server,
    X: np.ndarray,
    *,
    repeats: int,
    each: int,
    quick: bool,
    advance: Callable[[int], None],
) -> list[Line]:
    one = b'{"rows":[' + str(X[0].tolist()).encode() + b"]}"
    single, nothing = served.request("/v1/predictions", one), empty.request("/", one)
    arrow = served.request("/v1/predictions", _arrow(X, 1000), "application/vnd.apache.arrow.stream")
    large = served.request(
        "/v1/predictions", _arrow(X, 2_000 if quick else 100_000), "application/vnd.apache.arrow.stream"
    )
    costs: dict[str, list[float]] = {name: [] for name in ("single", "empty", "arrow", "rest", "batches", "training")}
    _run(_load(served.port, single, connections=8, each=20))
    for repeat in range(repeats):
        for name, server, request, rows in (
            ("single", served, single, 1),
            ("empty", empty, nothing, 1),
            ("arrow", served, arrow, 1000),
        ):
            before, times = server.spent(), each if rows == 1 else max(2, each // 5)
            took = _run(_load(server.port, request, connections=64 if rows == 1 else 4, each=times))
            costs[name].append(max(server.spent() - before, 1 / _TICKS) / (len(took) * rows))
            advance(1)
        costs["rest"].append(_slow(_run(_load(served.port, single, connections=4, each=each))))

        def batches() -> None:
            _run(_load(served.port, large, connections=1, each=3 if quick else 8))

        def training(first: int = 10 * repeat) -> None:
            ids = b'{"delete":{"ids":' + str(list(range(first, first + 10))).encode() + b"}}"
            wait = served.request("/v1/updates", ids).replace(b"Host: x", b"Host: x\r\nPrefer: wait=60", 1)
            _run(_load(served.port, wait, connections=1, each=1))

        for name, other in (("batches", batches), ("training", training)):
            took = _run(_beside(served.port, single, connections=4, each=each, other=other))
            costs[name].append(_slow(took))
        advance(1)
    faster, slower = Target.ratio_at_least(0.5), Target.ratio_at_most(3.0)
    rest = "at rest"
    return [
        Line.faster(
            f"single rows, k = {SHARDS}: processor time a request",
            costs["single"],
            "an empty endpoint on the same server",
            costs["empty"],
            target=faster,
        ),
        Line.alone(
            f"a row of 1,000 in Arrow, k = {SHARDS}: processor time",
            costs["arrow"],
            target=Target.ours_at_most(1 / 300_000),
        ),
        Line.cost(
            "the slowest of 100 single rows beside batches of 100,000",
            costs["batches"],
            rest,
            costs["rest"],
            target=slower,
        ),
        Line.cost(
            "the slowest of 100 single rows while 10 records are deleted",
            costs["training"],
            rest,
            costs["rest"],
            target=slower,
        ),
    ]


def _arrow(X: np.ndarray, rows: int) -> bytes:
    """So many rows as a stream of Arrow."""
    import pyarrow as pa

    table = X[np.arange(rows) % len(X)]
    columns = pa.table({f"x{place}": table[:, place] for place in range(table.shape[1])})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, columns.schema) as writer:
        writer.write_table(columns)
    return bytes(sink.getvalue())
