"""Traces: what spans say of requests and rounds, outside the trust boundary and inside; collectors that are away."""

from __future__ import annotations

import socket
import sys
import threading
import time

import pytest

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from expunge.core.errors import InputError
from expunge.service.tracing import SWITCHES, Made, Tracing, is_wanted, make_tracing

PARENT = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}


@pytest.fixture
def kept():
    return InMemorySpanExporter()


def tracing(kept, tick_seconds):
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    return Tracing(provider.get_tracer("test"), tick_seconds=tick_seconds)


def test_under_the_exact_promise_spans_say_how_long_things_take(kept):
    made, now = tracing(kept, None), time.time_ns()
    made.request("GET", "/v1/updates/{id}", 200, "update", 0.25, PARENT)
    made.request("POST", "/v1/updates", 503, None, 0.25, {})
    made.round(Made(1000.25, 1007.5, 3, 17))
    made.round(Made(1010.0, 1011.0, None, 2))
    asked, failed, done, undone = kept.get_finished_spans()
    assert asked.name == "GET /v1/updates/{id}"
    assert asked.end_time - asked.start_time == 250_000_000
    assert abs(asked.end_time - now) < 60 * 10**9
    assert f"{asked.parent.span_id:x}" == "b7ad6b7169203331"
    assert dict(asked.attributes) == {
        "http.request.method": "GET",
        "http.route": "/v1/updates/{id}",
        "http.response.status_code": 200,
        "expunge.role": "update",
    }
    assert (failed.parent, failed.status.is_ok, asked.status.is_ok) == (None, False, True)
    assert (done.end_time - done.start_time, dict(done.attributes)) == (
        7_250_000_000,
        {"expunge.models_trained": 17, "expunge.round": 3},
    )
    assert not undone.status.is_ok


def test_outside_the_boundary_no_span_says_how_long_anything_took(kept):
    made = tracing(kept, 60)
    made.request("GET", "/v1/status", 200, "update", 0.25, PARENT)
    made.round(Made(1000.25, 1107.5, 3, 17))
    made.round(Made(1010.0, 1011.0, None, 2))
    asked, done = kept.get_finished_spans()
    assert asked.end_time == asked.start_time
    assert (done.start_time, done.end_time) == (960 * 10**9, 1080 * 10**9)
    assert dict(done.attributes) == {"expunge.round": 3}


def test_the_environment_turns_traces_on(monkeypatch):
    for name in (*SWITCHES, "OTEL_SDK_DISABLED"):
        monkeypatch.delenv(name, raising=False)
    assert make_tracing(tick_seconds=60, tells_inside=False, tell=print) is None
    for name in SWITCHES:
        monkeypatch.setenv(name, "http://127.0.0.1:1")
        assert is_wanted()
        monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
        assert not is_wanted()
        monkeypatch.delenv("OTEL_SDK_DISABLED")
        monkeypatch.delenv(name)


def test_a_collector_without_the_extra_is_one_line(monkeypatch):
    monkeypatch.setenv(SWITCHES[0], "http://127.0.0.1:1")
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(InputError, match=r"pip install 'expunge\[tracing\]'"):
        make_tracing(tick_seconds=None, tells_inside=False, tell=print)


def test_a_collector_that_is_away_costs_lines_and_the_end_does_not_wait_for_it(monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv(SWITCHES[0], f"http://127.0.0.1:{taken.getsockname()[1]}")
        told = []
        made = make_tracing(tick_seconds=60, tells_inside=True, tell=told.append)
        for _ in range(100):
            made.request("GET", "/v1/status", 200, "update", 0.0, {})
        assert made._tick is None  # all is told inside
        closing = threading.Thread(target=made.close, daemon=True)
        closing.start()
        closing.join(60)
        assert not closing.is_alive()
        assert told
        assert all("\n" not in each for each in told)
