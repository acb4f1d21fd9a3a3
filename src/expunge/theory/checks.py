"""Range checks shared by the theorems: one clear line that names the parameter and the value."""

from __future__ import annotations

import math
from numbers import Integral

from expunge.core.errors import ParameterError


def require_count(name: str, value: object, *, least: int) -> None:
    """Refuse anything but an integer >= least."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ParameterError(f"{name} must be an integer >= {least}, got {value!r}")


def require_nonnegative(name: str, value: float) -> None:
    """Refuse NaN and negative numbers; infinity stands for "no bound"."""
    if math.isnan(value) or value < 0:
        raise ParameterError(f"{name} must be a number >= 0, got {value!r}")


def require_probability(name: str, value: float) -> None:
    """Refuse anything outside [0, 1]."""
    if not 0 <= value <= 1:
        raise ParameterError(f"{name} must be a probability in [0, 1], got {value!r}")
