"""`GET /metrics` for Prometheus. Everybody with a key sees what is safe outside; the operator sees more.

What is safe outside depends on who asks, and not on ζ: requests, rows, and how many requests were accepted and applied.
How long something took is the operator's.
"""

from __future__ import annotations

import asyncio
import bisect
import os
import resource
import time
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import CollectorRegistry

from expunge.service.exchange import EVERYBODY, NO_STORE, Answer, Request, Route
from expunge.service.updates import in_thread

if TYPE_CHECKING:
    from expunge.service.application import Host, Service
    from expunge.service.replica import ReplicaHost

_BOUNDS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)


class Counts:
    """What is counted for every request. Only the loop's thread counts."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str, int]] = Counter()
        self.rows = 0
        self.seconds: dict[str, list[int]] = {}
        self.sums: Counter[str] = Counter()
        self.started = time.time()

    def add(self, method: str, route: str, status: int, rows: int, seconds: float) -> None:
        """A request was answered."""
        self.requests[method, route, status] += 1
        self.rows += rows
        found = self.seconds.get(route)
        if found is None:
            found = self.seconds[route] = [0] * (len(_BOUNDS) + 1)
        found[bisect.bisect_left(_BOUNDS, seconds)] += 1
        self.sums[route] += seconds  # type: ignore[assignment]


class _HostCollector:
    """The metrics of one moment that a service and its replicas have."""

    def __init__(self, host: Host, status: Any, is_operator: bool) -> None:
        self._host, self._status, self._is_operator = host, status, is_operator

    def collect(self) -> Iterator[Metric]:
        """All metrics."""
        counts, status = self._host.counts, self._status
        answered = CounterMetricFamily(
            "expunge_requests", "Requests that were answered", labels=("method", "route", "status")
        )
        for (method, route, code), number in sorted(counts.requests.items()):
            answered.add_metric((method, route, str(code)), number)
        yield answered
        yield CounterMetricFamily("expunge_predicted_rows", "Rows that were answered", value=counts.rows)
        yield GaugeMetricFamily("expunge_records", "Records in the dataset", value=status.num_records)
        yield GaugeMetricFamily("expunge_shards", "Shards", value=status.num_shards)
        yield GaugeMetricFamily("expunge_round", "The round in service", value=status.round)
        guarded = float(self._host.told.is_guarded)
        yield GaugeMetricFamily("expunge_guarded", "1 if a promise is made that means anything", value=guarded)
        if self._is_operator:
            yield from self._times()

    def _times(self) -> Iterator[Metric]:
        counts = self._host.counts
        took = HistogramMetricFamily("expunge_inside_request_seconds", "How long answers took", labels=("route",))
        for route, found in sorted(counts.seconds.items()):
            total, buckets = 0, list[tuple[str, float]]()
            for bound, number in zip((*_BOUNDS, float("inf")), found, strict=True):
                total += number
                buckets.append(("+Inf" if bound == float("inf") else repr(bound), total))
            took.add_metric((route,), buckets, sum_value=counts.sums[route])
        yield took
        usage = resource.getrusage(resource.RUSAGE_SELF)
        yield CounterMetricFamily(
            "process_cpu_seconds", "Processor time of the service", value=usage.ru_utime + usage.ru_stime
        )
        yield GaugeMetricFamily("process_resident_memory_bytes", "Memory of the service", value=_resident())
        yield GaugeMetricFamily("process_start_time_seconds", "When the service started", value=counts.started)


class _ReplicaCollector(_HostCollector):
    """The metrics of one moment of a replica."""

    def __init__(self, host: ReplicaHost, status: Any, is_operator: bool) -> None:
        super().__init__(host, status, is_operator)
        self._has_lease = host.deployment.has_lease

    def collect(self) -> Iterator[Metric]:
        """All metrics."""
        yield from super().collect()
        yield GaugeMetricFamily("expunge_lease", "1 while the replica may answer", value=float(self._has_lease))


class _Collector(_HostCollector):
    """The metrics of one moment of a service."""

    def __init__(self, service: Service, status: Any, counts: dict[str, int], is_operator: bool) -> None:
        super().__init__(service, status, is_operator)
        self._service, self._log = service, counts

    def collect(self) -> Iterator[Metric]:
        """All metrics."""
        yield from super().collect()
        updates = CounterMetricFamily(
            "expunge_updates", "Requests for updates, by what became of them", labels=("event",)
        )
        for event in ("accepted", "applied", "cancelled"):
            updates.add_metric((event,), self._log.get(event, 0))
        yield updates
        told = CounterMetricFamily("expunge_callbacks", "Attempts to tell other systems", labels=("outcome",))
        for outcome, number in sorted(self._service.callbacks.counts.items()):
            told.add_metric((outcome,), number)
        yield told
        pending = self._status.pending
        yield GaugeMetricFamily("expunge_updates_pending", "Requests that are not applied yet", value=pending)
        if self._is_operator:
            yield from self._inside()

    def _inside(self) -> Iterator[Metric]:
        present = self._service.deployment.inside
        yield GaugeMetricFamily("expunge_inside_generation", "The generation in service", value=present.generation)
        yield CounterMetricFamily(
            "expunge_inside_models_trained", "Models trained since creation", value=present.models_trained
        )
        failing = float(self._service.trainer.error is not None)
        yield GaugeMetricFamily("expunge_inside_round_failed", "1 if the last round could not be made", value=failing)
        rounds = GaugeMetricFamily(
            "expunge_inside_replica_round", "The round that a replica acknowledged last", labels=("process",)
        )
        for each in self._service.deployment.replicas:
            rounds.add_metric((str(each["process"]),), -1 if each["round"] is None else each["round"])
        yield rounds


def _resident() -> float:
    try:
        with open("/proc/self/statm") as file:
            return float(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


def routes(service: Service) -> list[Route]:
    """The routes of this module."""

    async def show(request: Request) -> Answer:
        assert request.caller is not None
        deployment = service.deployment
        status, log = await in_thread(service.desk, lambda: (deployment.status, deployment.log_state))
        return _shown(_Collector(service, status, dict(log.counts), request.caller.role == "operator"))

    return [Route("GET", "/metrics", EVERYBODY, show, _DESCRIBED)]


def routes_of_replica(host: ReplicaHost) -> list[Route]:
    """The routes of this module for a replica."""

    async def show(request: Request) -> Answer:
        assert request.caller is not None
        status = await asyncio.to_thread(lambda: host.deployment.status)
        return _shown(_ReplicaCollector(host, status, request.caller.role == "operator"))

    return [Route("GET", "/metrics", EVERYBODY, show, _DESCRIBED)]


_DESCRIBED: Final = {"summary": "Metrics for Prometheus"}


def _shown(collector: _HostCollector) -> Answer:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    return Answer(generate_latest(registry), CONTENT_TYPE_LATEST, headers=[NO_STORE])
