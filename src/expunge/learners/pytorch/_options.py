"""What an option's value is, asked of anything that a caller may hand over."""

from __future__ import annotations

from math import isfinite

import numpy as np


def is_whole(value: object, low: int, high: int) -> bool:
    """Whether `value` is an integer in low..high."""
    return not isinstance(value, bool) and isinstance(value, int | np.integer) and low <= int(value) <= high


def is_number(value: object) -> bool:
    """Whether `value` is a finite number, and not a truth value or a text that reads like one."""
    return not isinstance(value, bool) and isinstance(value, int | float | np.integer | np.floating) and isfinite(value)
