"""How many models a program trains at once: as many as fit the setting, and never depending on the shards at hand.

And arrays that a program on the CPU can read where they are.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from expunge.errors import ParameterError

MOST_MODELS = 16
_ALIGNMENT = 64  # bytes; from such addresses on XLA reads an array on the CPU without copying it


def program_bytes(compiled: Any) -> int:
    """Peak device memory of a compiled program: arguments, results and temporaries."""
    found = compiled.memory_analysis()
    return int(found.argument_size_in_bytes + found.output_size_in_bytes + found.temp_size_in_bytes)


def largest_fitting(
    bytes_of: Callable[[int], int], limit: int | None, *, most: int | None = None, purpose: str = "train"
) -> int:
    """`most`, or halved until its program needs at most `limit` bytes.

    On a CPU batching models does not pay, so one at a time is the default there.
    """
    top = most if most is not None else (1 if jax.default_backend() == "cpu" else MOST_MODELS)
    if limit is None:
        return top
    models, needed = top, bytes_of(top)
    while models > 1 and needed > limit:
        models //= 2
        needed = bytes_of(models)
    if needed > limit:
        raise ParameterError(f"max_device_memory must be at least {needed} bytes to {purpose} one model, got {limit}")
    return models


def aligned_empty(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """`np.empty`, at an address that spares the CPU a copy."""
    kind = np.dtype(dtype)
    size = prod(shape) * kind.itemsize
    memory = np.empty(size + _ALIGNMENT, dtype=np.uint8)
    first = -memory.ctypes.data % _ALIGNMENT
    array: NDArray[Any] = memory[first : first + size].view(kind).reshape(shape)
    return array
