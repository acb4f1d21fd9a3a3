"""Traces for OpenTelemetry, if it is installed and the environment says where to: one span a request, one a round.

A trace leaves the operator's machine, so the same holds as for the log. Under (α,β,γ) a span outside says no length of
time: a request ends when it begins, a round begins and ends on ticks of the clock, and a round that failed is not told.
With `tells_inside` all is told, for a collector that only the operator reads. No span ever has an id, a subject, a key
or the path of a request.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from expunge.core.errors import InputError

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

    from expunge.service.exchange import Fields

#: Any of these turns traces on, as the specification of OpenTelemetry has it.
SWITCHES: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_NEEDS: Final = "traces need an extra: pip install 'expunge[tracing]'"
_SECOND: Final = 1_000_000_000  # nanoseconds
_LAST_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Made:
    """A round that was made, or was not.

    Parameters
    ----------
    begun, ended
        When, in seconds since 1970.
    round
        Its number; None if it failed.
    models
        How many models were trained.
    """

    begun: float
    ended: float
    round: int | None
    models: int


class Tracing:
    """Tells a collector of requests and rounds. Make one by `make_tracing`.

    Parameters
    ----------
    tracer
        Makes spans.
    tick_seconds
        The tick to which times of rounds are rounded down; None if all may be told.
    close
        Sends what waits, and ends.
    """

    def __init__(self, tracer: Tracer, *, tick_seconds: int | None, close: Callable[[], None] = lambda: None) -> None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._tracer, self._tick, self.close = tracer, tick_seconds, close
        self._propagator = TraceContextTextMapPropagator()

    def request(self, method: str, route: str, status: int, role: str | None, seconds: float, headers: Fields) -> None:
        """A request was answered, just now. Its parent is the span that it names, if it does."""
        from opentelemetry.trace import SpanKind, Status, StatusCode

        ended = time.time_ns()
        begun = ended - int(seconds * _SECOND)
        given = {name: value for name in ("traceparent", "tracestate") if (value := headers.get(name))}
        span = self._tracer.start_span(
            f"{method} {route}",
            context=self._propagator.extract(given) if given else None,
            kind=SpanKind.SERVER,
            start_time=begun,
            attributes={
                "http.request.method": method,
                "http.route": route,
                "http.response.status_code": status,
                "expunge.role": role or "none",
            },
        )
        if status >= 500:
            span.set_status(Status(StatusCode.ERROR))
        span.end(begun if self._tick else ended)

    def round(self, made: Made) -> None:
        """A round was made."""
        from opentelemetry.trace import Status, StatusCode

        if self._tick is not None and made.round is None:
            return
        attributes = {"expunge.models_trained": made.models} if self._tick is None else {}
        if made.round is not None:
            attributes["expunge.round"] = made.round
        begun, ended = (self._nanoseconds(at) for at in (made.begun, made.ended))
        span = self._tracer.start_span("round", start_time=begun, attributes=attributes)
        if made.round is None:
            span.set_status(Status(StatusCode.ERROR))
        span.end(ended)

    def _nanoseconds(self, at: float) -> int:
        return int(at * _SECOND) if self._tick is None else int(at // self._tick * self._tick) * _SECOND


def is_wanted() -> bool:
    """Whether the environment says where traces go to."""
    is_disabled = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    return not is_disabled and any(os.environ.get(each) for each in SWITCHES)


def make_tracing(*, tick_seconds: int | None, tells_inside: bool, tell: Callable[[str], None]) -> Tracing | None:
    """Tell the collector that the environment names, if it names one.

    Parameters
    ----------
    tick_seconds
        The deployment's tick under (α,β,γ); None under the exact promise.
    tells_inside
        Whether the collector may know what is inside the trust boundary.
    tell
        Called with a line when spans cannot be sent.

    Returns
    -------
    Tracing or None
        None if no collector is named.

    Raises
    ------
    InputError
        If a collector is named, or `tells_inside` is said, and OpenTelemetry is not installed.
    """
    if not is_wanted():
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise InputError(f"{_NEEDS} ({error})") from None
    named = os.environ.get("OTEL_SERVICE_NAME") or "expunge"
    provider = TracerProvider(resource=Resource.create({"service.name": named}), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    _Told(tell).listen()

    def close() -> None:
        last = threading.Thread(target=provider.force_flush, daemon=True)  # it repeats for longer than it is told
        last.start()
        last.join(_LAST_SECONDS)

    return Tracing(provider.get_tracer("expunge"), tick_seconds=None if tells_inside else tick_seconds, close=close)


class _Told(logging.Handler):
    """What OpenTelemetry complains of, as lines of the operator's log."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        """Tell a complaint."""
        self._tell(" ".join(record.getMessage().split())[:300])

    def listen(self) -> None:
        """Take the place of what writes to the standard error."""
        logger: Any = logging.getLogger("opentelemetry")
        logger.handlers, logger.propagate = [self], False
