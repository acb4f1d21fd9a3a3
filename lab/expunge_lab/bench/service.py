"""The service under load: single rows against an empty endpoint on the same server, batches, and the slowest answers.

Costs are of the server's processor time, so that the work of asking does not count. All requests are sent from this
machine, by one process with many connections; large batches and deletions beside single rows by another process, so
that single rows do not wait for their sender. The service writes no line for each request.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from expunge.folder import create
from expunge.service.access import KeyFile
from expunge.training.learners.named import named_learner
from expunge_lab.bench.measurement import Line, Progress, Target

SHARDS, MANY_SHARDS, FEATURES, RECORDS = 100, 1000, 10, 20_000
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


def _send(port: int, request: bytes, times: int) -> None:
    """Send a request so often over one connection: for a process of its own."""
    asyncio.run(_load(port, request, connections=1, each=times))


async def _beside(
    port: int, request: bytes, *, connections: int, each: int, sender: ProcessPoolExecutor, other: bytes, times: int
) -> list[float]:
    """How long requests took while another process sent another one, so often."""
    beside = asyncio.get_running_loop().run_in_executor(sender, _send, port, other, times)
    await asyncio.sleep(0.2)
    found = await _load(port, request, connections=connections, each=each)
    await beside
    return found


def _slow(took: list[float]) -> float:
    return float(np.quantile(took, 0.99))


def run(*, quick: bool, progress: Progress) -> list[Line]:
    """The suite."""
    repeats = 1 if quick else 7
    with (
        tempfile.TemporaryDirectory() as name,
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as sender,
        progress("service", 7 * repeats) as advance,
    ):
        options: dict[str, Any] = {"repeats": repeats, "each": 20 if quick else 300, "advance": advance}
        sender.submit(int).result()  # it runs
        with _serving(Path(name), SHARDS, quick=quick) as (served, X):
            lines = [*_costs(served, X, **options), *_tails(served, X, SHARDS, sender=sender, quick=quick, **options)]
        with _serving(Path(name), 120 if quick else MANY_SHARDS, quick=quick) as (served, X):
            return [*lines, *_tails(served, X, MANY_SHARDS, sender=sender, quick=quick, **options)]


@contextmanager
def _serving(place: Path, shards: int, *, quick: bool) -> Iterator[tuple[Server, np.ndarray]]:
    """A service of so many shards, and the rows that it learned from."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2_000 if quick else RECORDS, FEATURES))
    y = X[:, 0] + rng.normal(size=len(X)) > 0
    folder = place / f"served-{shards}"
    create(folder, named_learner("logistic"), X, y, n_shards=shards).close()
    key = KeyFile(folder).create("operator")[0]
    with _running("expunge", "serve", str(folder), "--port", "0", "--no-log-requests", key=key) as served:
        yield served, X


def _single(served: Server, X: np.ndarray) -> bytes:
    return served.request("/v1/predictions", b'{"rows":[' + str(X[0].tolist()).encode() + b"]}")


def _costs(served: Server, X: np.ndarray, *, repeats: int, each: int, advance: Callable[[int], None]) -> list[Line]:
    """Processor time of a single row, of an empty request, and of a row in a batch."""
    arrow = served.request("/v1/predictions", _arrow(X, 1000), "application/vnd.apache.arrow.stream")
    costs: dict[str, list[float]] = {name: [] for name in ("single", "empty", "arrow")}
    with _running("expunge_lab.bench.empty", key=served.key) as empty:
        tasks = (
            ("single", served, _single(served, X), 1),
            ("empty", empty, _single(empty, X), 1),
            ("arrow", served, arrow, 1000),
        )
        for _, server, request, _ in tasks:
            _run(_load(server.port, request, connections=8, each=20))
        for _ in range(repeats):
            for name, server, request, rows in tasks:
                before, times = server.spent(), each if rows == 1 else max(2, each // 5)
                took = _run(_load(server.port, request, connections=64 if rows == 1 else 4, each=times))
                costs[name].append(max(server.spent() - before, 1 / _TICKS) / (len(took) * rows))
                advance(1)
    return [
        Line.faster(
            f"single rows, k = {SHARDS}: processor time a request",
            costs["single"],
            "an empty endpoint on the same server",
            costs["empty"],
            target=Target.ratio_at_least(0.5),
        ),
        Line.alone(
            f"a row of 1,000 in Arrow, k = {SHARDS}: processor time",
            costs["arrow"],
            target=Target.ours_at_most(1 / 300_000),
        ),
    ]


def _tails(
    served: Server,
    X: np.ndarray,
    shards: int,
    *,
    sender: ProcessPoolExecutor,
    quick: bool,
    repeats: int,
    each: int,
    advance: Callable[[int], None],
) -> list[Line]:
    """The slowest of 100 single rows at rest, beside large batches, and while records are deleted."""
    arrow = "application/vnd.apache.arrow.stream"
    batch = served.request("/v1/predictions", _arrow(X, 2_000 if quick else 100_000), arrow)
    single, took = _single(served, X), {name: list[float]() for name in ("rest", "batches", "training")}
    _run(_load(served.port, single, connections=8, each=20))
    for repeat in range(repeats):
        took["rest"].append(_slow(_run(_load(served.port, single, connections=4, each=each))))
        advance(1)
        ids = b'{"delete":{"ids":' + str(list(range(10 * repeat, 10 * repeat + 10))).encode() + b"}}"
        deletion = served.request("/v1/updates", ids).replace(b"Host: x", b"Host: x\r\nPrefer: wait=60", 1)
        for name, other, times in (("batches", batch, 3 if quick else 8), ("training", deletion, 1)):
            work = _beside(served.port, single, connections=4, each=each, sender=sender, other=other, times=times)
            took[name].append(_slow(_run(work)))
        advance(1)
    slower = Target.ratio_at_most(3.0)
    return [
        Line.cost(
            f"the slowest of 100 single rows {what}, k = {shards}", took[name], "at rest", took["rest"], target=slower
        )
        for name, what in (
            ("batches", "beside batches of 100,000"),
            ("training", "while 10 records are deleted"),
        )
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
