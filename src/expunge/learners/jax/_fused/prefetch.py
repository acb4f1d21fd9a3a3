"""A loop over a program's examples in which memory answers for the next one while this one is computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from expunge.learners.jax._fused.layout import GRID, GROUP
from expunge.learners.jax._fused.strips import PICTURE
from expunge.learners.jax.layers import Array

LANES = 128  # one load of a program of four warps; less than a cache line of 128 bytes apart for all that is loaded

# A flat array, where an example's part of it begins, and how many values that part has.
Source = tuple[Any, Callable[[Array], Array], int]


def over_examples(one: Callable[[Array, Any], Any], start: Any, ahead: list[Source], seen: list[Any]) -> Any:
    """`one(example, carry)` for all examples of the group.

    With an array `seen` for a witness, a value of every cache line that the next example needs is loaded ahead, and
    looked at an example later; nothing but the time depends on these values.
    """
    if not seen:
        return jax.lax.fori_loop(0, GROUP, one, start)

    def step(example: Array, carry: Any) -> Any:
        own, witness, asked = carry
        witness = _look(witness, asked)
        asked = _ask(ahead, jnp.minimum(example + 1, GROUP - 1))
        return one(example, own), witness, asked

    nothing = jnp.zeros((LANES,), jnp.float32)
    found, witness, asked = jax.lax.fori_loop(0, GROUP, step, (start, nothing, _ask(ahead, jnp.int32(0))))
    seen[0][jnp.arange(LANES)] = _look(witness, asked)
    return found


def strips_ahead(rows: Any, table: Any) -> list[Source]:
    """An example's pictures."""
    return [(plane, lambda example: rows[example] * PICTURE, PICTURE) for plane in table]


def tables_ahead(arrays: list[Any], width: int, pad: int = 0) -> list[Source]:
    """An example's tables of 64 rows in arrays with so many rows before the first."""
    return [(array, lambda example: (pad + example * GRID) * width, GRID * width) for array in arrays]


def _ask(ahead: list[Source], example: Array) -> list[Array]:
    """A value of every cache line."""
    lanes = jnp.arange(LANES)
    return [source[first(example) + lanes * (size // LANES)] for source, first, size in ahead]


def _look(witness: Array, asked: list[Array]) -> Array:
    """Something that depends on all values, so that no compiler leaves the loads out."""
    for values in asked:
        witness = jnp.maximum(witness, values.astype(jnp.float32))
    return witness
