"""Measuring one way on one dataset, in a process of its own: quality, latencies, disk and memory.

Times are processor time with one thread of linear algebra, compiling not counted; of networks on a GPU they are on the
wall, since a processor that waits for a GPU counts nothing. Memory is the highest that the process needed beyond what
it had with the data loaded.
"""

from __future__ import annotations

import gc
import multiprocessing
import re
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, nullcontext
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from expunge_lab.bench.environment import Environment
from expunge_lab.bench.measurement import Progress, one_thread
from expunge_lab.compare.methods import Method, Running, methods_for
from expunge_lab.compare.tables import DATASETS, Table

_MOST, _MOST_IN_FOLDER = 200, 20  # operations of a kind, one by one
_SECONDS = 4.0  # for them, of processor time
_WARM = 2  # deletions that do not count


@dataclass(frozen=True)
class Latency:
    """What operations cost one by one, in seconds."""

    count: int
    median: float
    mean: float
    p99: float

    @classmethod
    def of(cls, times: list[float]) -> Latency:
        """Of at least one."""
        found = np.array(times)
        return cls(len(times), float(np.median(found)), float(found.mean()), float(np.quantile(found, 0.99)))


@dataclass(frozen=True)
class Figures:
    """What was measured of one method; seconds and bytes."""

    name: str
    kind: str
    num_shards: int | None
    accuracy: float
    auc: float | None
    recalls: dict[str, float]
    fit: float
    deletion: Latency
    batches: dict[str, float]
    addition: Latency
    one_row: float
    thousand_rows: float
    disk: int
    memory: int | None
    folder_deletion: float | None
    promise: str
    device: str = "CPU"  # of another one the times are on the wall
    extra: dict[str, float] = field(default_factory=dict)


def measure_dataset(
    name: str,
    *,
    quick: bool,
    progress: Progress,
    only: str = "",
    keep: Callable[[dict[str, Any]], object] | None = None,
) -> dict[str, Any]:
    """Every method on a dataset, as plain data; each in a fresh process.

    What there is so far is handed to `keep` after each of them, because some take minutes.
    """
    dataset = DATASETS[name]
    table = dataset.make(quick)
    found: dict[str, Any] = {
        "dataset": name,
        "quick": quick,
        "environment": asdict(Environment.current()),
        "records": len(table.y),
        "shape": list(table.X.shape[1:]),
        "asked": len(table.y_asked),
        "methods": [],
    }
    methods = [each for each in methods_for(name, len(table.y), quick=quick) if only in each.name]
    with progress(name, len(methods)) as advance:
        for place in range(len(methods)):
            found["methods"].append(_in_a_process(name, methods[place].name, quick=quick))
            if keep is not None:
                keep(found)
            advance(1)
    return found


def _in_a_process(dataset: str, method: str, *, quick: bool) -> dict[str, Any]:
    """Measured in a process that has done nothing before; a quick one in this."""
    if quick:
        return asdict(measure(dataset, method, quick=True))
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return asdict(pool.submit(measure, dataset, method, quick=False).result())


def measure(dataset: str, name: str, *, quick: bool) -> Figures:
    """One method on one dataset."""
    table = DATASETS[dataset].make(quick)
    method = next(each for each in methods_for(dataset, len(table.y), quick=quick) if each.name == name)
    with one_thread(), warnings.catch_warnings(), tempfile.TemporaryDirectory() as place:
        warnings.simplefilter("ignore")
        return _Trial(method, table, quick=quick).run(DATASETS[dataset].batches, Path(place))


class _Trial:
    """The measurements of one method, in their order."""

    def __init__(self, method: Method, table: Table, *, quick: bool) -> None:
        self.method, self.table, self.device = method, table, _device() if method.compiles else "CPU"
        self.most, self.seconds = (3, 0.1) if quick else (_MOST, _SECONDS)
        self.running = method.make()
        self.left = np.random.default_rng(3).permutation(len(table.y)).tolist()

    def run(self, batches: tuple[int, ...], place: Path) -> Figures:
        """All of them."""
        table, running = self.table, self.running
        if not self.method.compiles:
            few = np.concatenate([np.flatnonzero(table.y == code)[:15] for code in np.unique(table.y)])
            self.method.make().fit(table.X[few], table.y[few])  # what is imported or compiled at first does not count
        before = _reset_peak()
        fit = self._seconds(lambda: running.fit(table.X, table.y))
        if self.method.compiles:
            fit = self._seconds(running.retrain)
        quality = None if self.method.is_charged else self._quality()
        is_refit = self.method.kind in ("refitted", "bagging")  # then every change costs the same
        for _ in range(0 if is_refit else _WARM):
            self._delete(1)
        deletion = addition = self._one_by_one(lambda: self._delete(1), known=[fit] if is_refit else [])
        amounts = {**{str(many): many for many in batches}, "100": 100, "1%": max(1, len(table.y) // 100)}
        times = dict.fromkeys(amounts, deletion.median)
        if not is_refit:
            new = iter(range(len(table.y_more)))
            addition = self._one_by_one(lambda: self._add(next(new)), at_most=min(30, len(table.y_more) - 1))
            times = {
                size: self._seconds(partial(self._delete, many))
                for size, many in amounts.items()
                if many < len(self.left) // 2
            }
        extra: dict[str, float] = {}
        memory = _peak_since(before)
        if quality is None:
            quality = self._quality()
            extra["deletion after a failed consensus"] = self._seconds(lambda: self._delete(1))
        disk, from_folder = self._stored(place)
        inner = getattr(getattr(getattr(running, "running", running), "model", None), "deployment_", None)
        return Figures(
            name=self.method.name,
            kind=self.method.kind,
            num_shards=None if inner is None else inner.inside.state.num_shards,
            fit=fit,
            deletion=deletion,
            batches=times,
            addition=addition,
            disk=disk,
            memory=memory,
            folder_deletion=from_folder,
            promise="" if inner is None else _claims(inner),
            device=self.device,
            extra=extra,
            **quality,
        )

    def _delete(self, many: int) -> None:
        self.running.delete([self.left.pop() for _ in range(many)])

    def _add(self, row: int) -> None:
        table = self.table
        self.running.add(table.X_more[row : row + 1], table.y_more[row : row + 1], [len(table.y) + row])

    def _one_by_one(
        self, work: Callable[[], None], *, at_most: int | None = None, known: Sequence[float] = ()
    ) -> Latency:
        """Until there are enough, with those that are known, or the time is over."""
        times = [*known]
        while len(times) < min(self.most, at_most or self.most) and (sum(times) < self.seconds or not times):
            times.append(self._seconds(work, collects=False))
        return Latency.of(times)

    def _seconds(self, work: Callable[[], Any], *, collects: bool = True) -> float:
        """Processor time of this process, all threads; on a GPU the time on the wall."""
        clock = time.process_time if self.device == "CPU" else time.perf_counter
        if collects:
            gc.collect()
        started = clock()
        work()
        return max(clock() - started, 1e-9)

    def _quality(self) -> dict[str, Any]:
        table, running = self.table, self.running
        rows, truth = table.X_asked, table.y_asked
        if self.method.is_charged:
            rows, truth = rows[:1000], truth[:1000]
        running.predict(rows[:1])  # makes what votes for all shards together
        thousand = self._seconds(lambda: running.predict(rows[:1000])) * 1000 / min(1000, len(rows))
        codes = running.predict(rows)
        single = self._one_by_one(lambda: _ask_one(running, rows), at_most=50)
        opinions = running.probabilities(rows)
        recalls = {str(code): float((codes[truth == code] == code).mean()) for code in np.unique(truth)}
        return {
            "accuracy": float((codes == truth).mean()),
            "auc": None if opinions is None else _area(truth, opinions),
            "recalls": recalls,
            "one_row": single.median,
            "thousand_rows": thousand,
        }

    def _stored(self, place: Path) -> tuple[int, float | None]:
        """The bytes on the disk, and what a deletion from there costs."""
        table, folder = self.table, place / "stored"
        stored = self.running.store(folder, table.X, table.y)
        with nullcontext() if stored is None else closing(stored):
            size = sum(each.stat().st_size for each in folder.rglob("*") if each.is_file())
            if stored is None:
                return size, None
            ids = iter(range(len(table.y)))
            for _ in range(_WARM):
                stored.delete([next(ids)])
            found = self._one_by_one(lambda: stored.delete([next(ids)]), at_most=_MOST_IN_FOLDER)
            return size, found.median


def _ask_one(running: Running, rows: Any) -> None:
    place = int(np.random.default_rng().integers(len(rows)))
    running.predict(rows[place : place + 1])


def _area(truth: NDArray[Any], opinions: NDArray[np.float64]) -> float | None:
    """The area under the ROC curve; the mean over classes against the others."""
    there = np.unique(truth)
    if len(there) < 2:
        return None
    if opinions.shape[1] == 2:
        return float(roc_auc_score(truth, opinions[:, 1]))
    return float(np.mean([roc_auc_score(truth == code, opinions[:, code]) for code in there]))


def _claims(deployment: Any) -> str:
    """The promises in force, by name."""
    return ", ".join(each.name for each in deployment.promise if each.is_claimed)


def _device() -> str:
    """What networks run on."""
    import jax

    return "CPU" if jax.default_backend() == "cpu" else str(jax.devices()[0].device_kind)


def _reset_peak() -> int | None:
    """Bytes in use now, from where on the peak is watched; None where the system cannot say."""
    gc.collect()
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return None
    return _status("VmRSS")


def _peak_since(before: int | None) -> int | None:
    peak = None if before is None else _status("VmHWM")
    return None if peak is None or before is None else max(0, peak - before)


def _status(name: str) -> int | None:
    try:
        text = Path("/proc/self/status").read_text(encoding="utf-8")
    except OSError:
        return None
    found = re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)
    return None if found is None else 1024 * int(found[1])
