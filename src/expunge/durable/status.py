"""Where a deployment in a folder stands."""

from __future__ import annotations

from dataclasses import dataclass

from expunge.deployment import Status


@dataclass(frozen=True, slots=True)
class DurableStatus(Status):
    """Where a deployment in a folder stands."""

    name: str
    pending: int
    apply: str
