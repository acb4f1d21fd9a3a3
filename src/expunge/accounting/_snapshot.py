"""Privacy events as plain data, for storage. Names and fields here are part of the format: never reuse one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from expunge.accounting.budget import PrivacyBudget
from expunge.accounting.composition import Events, require_count
from expunge.accounting.events import (
    ApproximateDP,
    BoundedRange,
    ConcentratedDP,
    Event,
    GaussianDP,
    NonPrivate,
    PureDP,
)
from expunge.errors import ParameterError

FORMAT = 1
"""Bump when the meaning or the shape of a snapshot changes; keep reading every older number."""

_KINDS: dict[str, type[Event]] = {
    "pure": PureDP,
    "bounded_range": BoundedRange,
    "gaussian": GaussianDP,
    "concentrated": ConcentratedDP,
    "approximate": ApproximateDP,
    "non_private": NonPrivate,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}


def dump_events(events: Events) -> list[dict[str, Any]]:
    """Return the events as JSON-able rows: kind, count and the event's own fields."""
    return [
        {"kind": _NAMES[type(event)], "count": count}
        | {field.name: float(getattr(event, field.name)) for field in fields(event)}
        for event, count in events.items()
    ]


def load_events(rows: Any) -> dict[Event, int]:
    """Read what `dump_events` wrote, refusing anything else."""
    if not isinstance(rows, list):
        raise ParameterError(f"events of a snapshot must be a list, got {rows!r}")
    events: dict[Event, int] = {}
    for row in rows:
        event, count = _load_row(row)
        events[event] = events.get(event, 0) + count
    return events


def dump_budget(budget: PrivacyBudget | None) -> dict[str, float] | None:
    """Return the budget as JSON-able data."""
    return None if budget is None else {"epsilon": float(budget.epsilon), "delta": float(budget.delta)}


def load_budget(data: Any) -> PrivacyBudget | None:
    """Read what `dump_budget` wrote."""
    if data is None:
        return None
    try:
        return PrivacyBudget(**{name: float(value) for name, value in data.items()})
    except (TypeError, AttributeError) as error:
        raise ParameterError(f"budget of a snapshot is malformed: {data!r}") from error


def _load_row(row: Any) -> tuple[Event, int]:
    if not isinstance(row, Mapping) or row.get("kind") not in _KINDS or "count" not in row:
        raise ParameterError(f"event of a snapshot is malformed: {row!r}")
    parameters = {name: value for name, value in row.items() if name not in ("kind", "count")}
    try:
        return _KINDS[row["kind"]](**parameters), require_count(row["count"])
    except TypeError as error:
        raise ParameterError(f"event of a snapshot is malformed: {row!r}") from error
