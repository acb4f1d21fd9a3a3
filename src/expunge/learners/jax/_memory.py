"""How many models a program trains at once: as many as fit the setting, and never depending on the shards at hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from expunge.errors import ParameterError

_MOST = 16


def program_bytes(compiled: Any) -> int:
    """Peak device memory of a compiled program: arguments, results and temporaries."""
    found = compiled.memory_analysis()
    return int(found.argument_size_in_bytes + found.output_size_in_bytes + found.temp_size_in_bytes)


def largest_fitting(bytes_of: Callable[[int], int], limit: int | None, *, most: int | None = None) -> int:
    """The largest power of two up to `most` whose program needs at most `limit` bytes.

    On a CPU batching models does not pay, so one at a time is the default there.
    """
    top = most if most is not None else (1 if jax.default_backend() == "cpu" else _MOST)
    if limit is None:
        return top
    models, needed = top, bytes_of(top)
    while models > 1 and needed > limit:
        models //= 2
        needed = bytes_of(models)
    if needed > limit:
        raise ParameterError(f"max_device_memory must be at least {needed} bytes to train one model, got {limit}")
    return models
