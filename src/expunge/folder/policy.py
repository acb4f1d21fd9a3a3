"""When accepted requests are applied: now, at regular times, or once enough of them are pending."""

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
    """When a deployment applies its pending requests.

    With "every", the time of an answer says nothing about how many shards a request touched, as long as no training
    takes longer than a beat; see docs/limits.md.

    Parameters
    ----------
    mode
        "now" applies a request at once, "every" on a clock, "at" when enough requests are pending, and "manual" only
        when `apply` is called.
    amount
        The seconds between two beats of the clock for "every"; the number of pending requests for "at".

    Examples
    --------
    >>> ApplyPolicy.parse("every 3600s").amount
    3600.0
    >>> str(ApplyPolicy("at", 100))
    'at 100'
    """

    mode: Literal["now", "every", "at", "manual"] = "now"
    amount: float = 0.0

    @classmethod
    def parse(cls, text: str | ApplyPolicy) -> Self:
        """Read a policy from "now", "every 3600s", "at 100" or "manual"; other text raises ParameterError."""
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

    @property
    def enough(self) -> int:
        """How many pending requests are enough to apply them; 0 if no number is."""
        return {"now": 1, "every": 1, "at": math.ceil(self.amount), "manual": 0}[self.mode]

    def is_due(self, pending: int, seconds_waiting: float) -> bool:
        """Return whether to apply, given the number of pending requests and the age of the oldest in seconds."""
        return 0 < self.enough <= pending and (self.mode != "every" or seconds_waiting >= self.amount)

    def beats(self, now: Callable[[], float]) -> Iterator[float]:
        """Yield the seconds until the next beat of the clock, again and again. A beat comes every `amount` seconds.

        Beats count from the first call. They do not depend on the end of a training, which depends on how many shards
        it touched. A training that takes longer than a beat skips the beats that it overlaps.
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
    """Write a number with all its digits and no exponent, so that `parse` reads it."""
    return f"{Decimal(repr(float(value))).normalize():f}"


def _positive(value: float, text: object) -> float:
    if not 0 < value < math.inf:
        raise ParameterError(f"apply must name a positive number, got {text!r}")
    return value
