"""Checks of single options, each with one clear line."""

from __future__ import annotations

from math import isfinite
from typing import Any

import numpy as np

from expunge.errors import ParameterError

_MOST = 2**31 - 1  # programs count in 32 bits


def check_whole(name: str, value: Any, *, most: int | None = _MOST) -> None:
    """Refuse what is not a whole number from 1 on."""
    is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not is_whole or value < 1:
        raise ParameterError(f"{name} must be a whole number of at least 1, got {value!r}")
    if most is not None and value > most:
        raise ParameterError(f"{name} must be at most {most}, got {value!r}")


def is_number(value: Any) -> bool:
    """Whether it is a finite number, and not a truth value."""
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool) and isfinite(value)
