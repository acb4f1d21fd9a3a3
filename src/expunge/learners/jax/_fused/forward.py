"""The forward pass of a program's examples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

from expunge.learners.jax._fused.kernel import Kernel, dot, taps
from expunge.learners.jax._fused.layout import (
    CANDIDATES,
    FILTER,
    FIRST,
    GRID,
    GROUP,
    HIDDEN,
    MOVES,
    OUT,
    PAD,
    PIECE,
    SECOND,
    SIDE,
    TABLES,
    Shape,
    Weights,
    at,
    first_places,
    piece_places,
)
from expunge.learners.jax._fused.prefetch import over_examples, strips_ahead
from expunge.learners.jax._fused.scratch import Scratch
from expunge.learners.jax.layers import Array

OUTSIDE = 9  # the code of a pool's output that is none of the picture's


def convolutions(
    kernel: Kernel, rows: Any, table: Any, weights: Weights, scratch: Scratch, seen: list[Any], *, keeps: bool
) -> None:
    """Both convolutions of all examples, one after another; with or without keeping every example's a1."""
    filters = [weights.w1[at(FILTER, FIRST, channel * FILTER * FIRST)] for channel in range(kernel.shape.channels)]
    second = taps(weights)

    def one(example: Array, nothing: Array) -> Array:
        slot = example if keeps else 0
        tables = _first_outputs(kernel, rows[example], table, filters, scratch)
        _first_pool(kernel, slot, tables, weights, scratch)
        kernel.barrier()
        _second_layer(kernel, example, slot, second, weights, scratch)
        return nothing

    over_examples(one, jnp.int32(0), strips_ahead(rows, table), seen)
    kernel.barrier()


def _first_outputs(kernel: Kernel, row: Array, table: Any, filters: list[Array], scratch: Scratch) -> Iterator[Array]:
    """The first convolution at every table's places, a few loads ahead of the products that need them.

    Moved tables are products of moved patches, or (`convolve_once`) what was stored, loaded from moved places.
    """
    products = [place for place in TABLES if place[1] == 0 or not kernel.tuning.convolve_once]
    found = []
    for first in range(0, len(products), kernel.tuning.ahead):
        some = products[first : first + kernel.tuning.ahead]
        for (parity, _), planes in zip(some, [kernel.patches(table, row, *place) for place in some], strict=True):
            z = dot(planes[0], filters[0])
            for plane, weights in zip(planes[1:], filters[1:], strict=True):
                z += dot(plane, weights)
            if kernel.tuning.convolve_once:
                scratch.z1[at(GRID, FIRST, parity * (GRID + PAD) * FIRST)] = z
                found.append(z)
            else:
                yield z
    if kernel.tuning.convolve_once:
        kernel.barrier()
        yield from found
        for parity, move in TABLES[len(found) :]:
            yield scratch.z1[at(GRID, FIRST, (parity * (GRID + PAD) + move) * FIRST)]


def _first_pool(kernel: Kernel, slot: Any, tables: Iterator[Array], weights: Weights, scratch: Scratch) -> None:
    """Pool and activation: table number `slot` of a1, and which candidate won."""
    best: list[Any] = [None] * 4
    code: list[Any] = [None] * 4
    for number, z in enumerate(tables):
        for parity in range(4):
            if TABLES[number] not in CANDIDATES[parity]:
                continue
            best[parity], code[parity] = _better(best[parity], code[parity], z, number, scratch.win1 is not None)
    bias = weights.b1[jnp.arange(FIRST)][None, :]
    for parity in range(4):
        a1 = kernel.activate(best[parity] * (1.0 / 255.0) + bias)
        scratch.a1[at(GRID, FIRST, slot * GRID * 64 + parity * FIRST, 64)] = a1.astype(jnp.bfloat16)
        if scratch.win1 is not None:
            scratch.win1[first_places(slot, parity, 0)] = code[parity]


def _better(best: Any, code: Any, z: Array, number: int, coded: bool) -> tuple[Array, Any]:
    """The higher of two, the earlier among equals, and its number where it is wanted."""
    mine = jnp.full(z.shape, number, jnp.int8) if coded else None
    if best is None:
        return z, mine
    if not coded:
        return jnp.maximum(best, z), None
    higher = z > best
    return jnp.where(higher, z, best), jnp.where(higher, mine, code)


def _second_layer(
    kernel: Kernel, example: Array, slot: Any, second: list[Array], weights: Weights, scratch: Scratch
) -> None:
    """Convolution, pool, activation: a2, zero outside of the picture, and which candidate won.

    Every example uses the same z1 and z2, and may use the same slot of a1: a barrier always lies between what an
    example loads and what the next one stores there.
    """
    moved = [scratch.a1[at(GRID, 64, (slot * GRID + move) * 64)] for move in MOVES]
    z2 = dot(moved[0], second[0])
    for inputs, tap in zip(moved[1:], second[1:], strict=True):
        z2 += dot(inputs, tap)
    scratch.z2[at(GRID, SECOND, 0)] = z2
    kernel.barrier()
    coded = scratch.win2 is not None
    best, winner = _better(None, None, z2, 0, coded)
    for number, move in enumerate(MOVES[1:], start=1):
        best, winner = _better(best, winner, scratch.z2[at(GRID, SECOND, move * SECOND)], number, coded)
    inside = _inside(kernel.shape)
    a2 = jnp.where(inside, kernel.activate(best + weights.b2[jnp.arange(SECOND)][None, :]), 0.0)
    place = at(GRID, SECOND, (PAD + example * GRID) * SECOND)
    scratch.a2[place] = a2.astype(jnp.bfloat16)
    if coded:
        scratch.win2[place] = jnp.where(inside, winner, jnp.int8(OUTSIDE))


def _inside(shape: Shape) -> Array:
    """Whether a row of the second pool's output belongs to the picture."""
    row = jax.lax.broadcasted_iota(jnp.int32, (GRID, SECOND), 0)
    last = shape.last_side
    return (row // SIDE < last) & (row % SIDE < last)


def hidden_layers(kernel: Kernel, weights: Weights, scratch: Scratch) -> tuple[Array, Array, Array]:
    """The hidden layer and the scores of all examples, and ‖a2‖² of each."""

    def add(piece: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        z3, square = carry
        a2 = scratch.a2[piece_places(kernel.shape, piece)]
        z3 += dot(a2, weights.w3[at(PIECE, HIDDEN, piece * PIECE * HIDDEN)])
        return z3, square + jnp.sum(a2.astype(jnp.float32) ** 2, axis=1)

    start = jnp.zeros((GROUP, HIDDEN), jnp.float32), jnp.zeros((GROUP,), jnp.float32)
    z3, square = jax.lax.fori_loop(0, kernel.shape.num_pieces, add, start)
    h3 = kernel.activate(z3 + weights.b3[jnp.arange(HIDDEN)][None, :])
    z4 = dot(h3, weights.w4[at(HIDDEN, OUT, 0)]) + weights.b4[jnp.arange(OUT)][None, :]
    real = jax.lax.broadcasted_iota(jnp.int32, (GROUP, OUT), 1) < kernel.shape.num_classes
    return h3, jnp.where(real, z4, -1e30), square
