"""Range checks of options: one clear line that names the parameter and the value."""

from __future__ import annotations

from numbers import Integral

from expunge.errors import ParameterError


def require_count(name: str, value: object) -> None:
    """Refuse anything but an integer >= 1."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise ParameterError(f"{name} must be an integer >= 1, got {value!r}")


def require_positive(name: str, value: float) -> None:
    """Refuse anything but a finite number > 0."""
    if not 0 < value < float("inf"):
        raise ParameterError(f"{name} must be a finite number > 0, got {value!r}")
