"""When accepted requests are applied: now, every so many seconds, or once so many are waiting."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal, Self

from expunge.core.errors import ParameterError

_FORM = re.compile(r"(now|manual)|every\s+(\d+(?:\.\d+)?)\s*s?|at\s+(\d+)")


@dataclass(frozen=True, slots=True)
class ApplyPolicy:
    """`now` applies at once, `every` on a clock, `at` when enough are waiting, `manual` when told to.

    On a clock the time of an answer says nothing about how many shards a request touched, as long as no training takes
    longer than a beat; see docs/limits.md.
    """

    mode: Literal["now", "every", "at", "manual"] = "now"
    amount: float = 0.0

    @classmethod
    def parse(cls, text: str | ApplyPolicy) -> Self:
        """From "now", "every 3600s", "at 100" or "manual"."""
        if isinstance(text, ApplyPolicy):
            return cls(text.mode, text.amount)
        found = _FORM.fullmatch(text.strip()) if isinstance(text, str) else None
        if found is None:
            raise ParameterError(f"apply must be now, every SECONDS, at COUNT or manual, got {text!r}")
        if found[1]:
            return cls(found[1])  # type: ignore[arg-type]
        if found[2]:
            return cls("every", _positive(float(found[2]), text))
        return cls("at", _positive(float(found[3]), text))

    def is_due(self, pending: int, seconds_waiting: float) -> bool:
        """Whether to apply, with so many waiting, the oldest of them so long."""
        match self.mode:
            case "now":
                return pending > 0
            case "every":
                return pending > 0 and seconds_waiting >= self.amount
            case "at":
                return pending >= self.amount
        return False

    def beats(self, now: Callable[[], float]) -> Iterator[float]:
        """On a clock: how long to wait for the next beat, by multiples of the amount since the first call.

        Never counted from the end of a training, which depends on how many shards it touched; a training that takes
        longer than a beat leaves out those that it lasted over.
        """
        start, number = now(), 0
        while True:
            gone = now() - start
            number = max(number + 1, math.ceil(gone / self.amount))
            yield max(number * self.amount - gone, 0.0)

    def __str__(self) -> str:
        match self.mode:
            case "every":
                return f"every {_digits(self.amount)}s"
            case "at":
                return f"at {_digits(self.amount)}"
        return self.mode


def _digits(value: float) -> str:
    """All digits and no exponent: it is read again."""
    return f"{Decimal(repr(float(value))).normalize():f}"


def _positive(value: float, text: object) -> float:
    if not 0 < value < math.inf:
        raise ParameterError(f"apply must name more than nothing, got {text!r}")
    return value
