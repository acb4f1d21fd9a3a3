"""A change: one option of a plan, and the value of it that would help."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Change:
    """One option, the value of it that would do with all others kept, and a sentence; None if no value would do."""

    option: str
    value: float | None
    words: str

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able mapping."""
        return asdict(self)
