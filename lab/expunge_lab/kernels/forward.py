"""The forward pass of a program's examples.

Nothing goes through memory between the layers: rows are moved by one from thread to thread, and by eight by a product
with a matrix of ones and zeros, so that outputs of products stay in registers until the next product needs them. What
goes through a product, or is compared in a pool, is rounded to bfloat16 before.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp

from expunge.training.learners.jax.layers import Array
from expunge_lab.kernels.kernel import Kernel
from expunge_lab.kernels.layout import (
    CANDIDATES,
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
    piece_places,
)
from expunge_lab.kernels.pictures import field_parts, load_fields
from expunge_lab.kernels.scratch import Scratch
from expunge_lab.kernels.tables import Moves, dot, interleave

OUTSIDE = 9  # the code of a pool's output that is none of the picture's
# Added to what codes are put on: zero with a code would be so small that a device may take it for zero.
_TINY = 2.0**-100


def convolutions(kernel: Kernel, rows: Any, fields: Any, moving: Any, weights: Weights, scratch: Scratch) -> None:
    """Both convolutions of all examples, one after another; `weights` as by `forward_operands`.

    What the backward pass needs is kept if there is scratch memory for it.
    """
    parts = field_parts(kernel.shape.channels)
    filters = [weights.w1[at(width, 64, sum(parts[:number]) * 64)] for number, width in enumerate(parts)]
    taps = [
        [weights.w2[at(FIRST, 2 * SECOND, (pair * 4 + parity) * FIRST * 2 * SECOND)] for parity in range(4)]
        for pair in range(2)
    ]
    moves = Moves(kernel, moving, 1)
    bias1, bias2 = weights.b1[jnp.arange(FIRST)][None, :], weights.b2[jnp.arange(SECOND)][None, :]

    def one(example: Array, nothing: Array) -> Array:
        row = kernel.known(rows[example])
        seen = load_fields(fields, row, kernel.shape.channels)
        a1 = _first_layer(kernel, example, seen, filters, moves, bias1, scratch)
        _second_layer(kernel, example, a1, taps, moves, bias2, scratch)
        return nothing

    jax.lax.fori_loop(0, GROUP, one, jnp.int32(0))
    kernel.barrier()


def _first_layer(
    kernel: Kernel,
    example: Array,
    seen: list[Array],
    filters: list[Array],
    moves: Moves,
    bias: Array,
    scratch: Scratch,
) -> list[Array]:
    """Convolution, pool, activation: a1 of every parity."""
    z = dot(seen[0], filters[0])
    for part, own in zip(seen[1:], filters[1:], strict=True):
        z += dot(part, own)
    coded = scratch.win1 is not None
    parities = jnp.split((z + _TINY if coded else z).astype(jnp.bfloat16), 4, axis=1)
    best = _pool_with_codes(parities, moves) if coded else _pool(parities, moves)
    a1 = [kernel.activate(one * (1.0 / 255.0) + bias).astype(jnp.bfloat16) for one in best]
    if coded:
        scratch.a1[at(GRID, 64, example * GRID * 64)] = interleave(a1)
        scratch.win1[at(GRID, 64, (PAD + example * GRID) * 64)] = interleave([_code(one, 15) for one in best])
    return a1


def _pool(z: list[Array], moves: Moves) -> list[Array]:
    """First of neighbours across, then of neighbours down."""
    rows = [
        jnp.maximum(z[0], z[1]),
        jnp.maximum(z[1], moves.along(z[0])),
        jnp.maximum(z[2], z[3]),
        jnp.maximum(z[3], moves.along(z[2])),
    ]
    below = [rows[2], rows[3], *(one.astype(jnp.bfloat16) for one in moves.both_aside(rows[0], rows[1]))]
    return [jnp.maximum(rows[parity], below[parity]).astype(jnp.float32) for parity in range(4)]


def _pool_with_codes(z: list[Array], moves: Moves) -> list[Array]:
    """The same, with the number of the candidate that won in the lowest bits."""
    tables: dict[tuple[int, int], Array] = {(parity, 0): own for parity, own in enumerate(z)}
    tables[0, 1], tables[2, 1] = moves.along(z[0]), moves.along(z[2])
    tables[0, SIDE], tables[1, SIDE] = moves.both_aside(z[0], z[1])
    tables[0, SIDE + 1] = moves.along(tables[0, SIDE])
    best: list[Any] = [None] * 4
    for number, place in enumerate(TABLES):
        own = _with_code(tables[place].astype(jnp.float32), first_code(number))
        for out, candidates in enumerate(CANDIDATES):
            if place in candidates:
                best[out] = own if best[out] is None else jnp.maximum(best[out], own)
    return best


def first_code(number: int) -> int:
    """Of a table of TABLES: among equals that are not negative the first one wins."""
    return len(TABLES) - 1 - number


def second_code(number: int) -> int:
    """Of a move of MOVES."""
    return len(MOVES) - 1 - number


def _with_code(z: Array, code: int) -> Array:
    """The same value of bfloat16's precision, with a code in the lowest bits: the higher value's code goes along."""
    bits = jax.lax.bitcast_convert_type(z, jnp.int32) | code
    return jax.lax.bitcast_convert_type(bits, jnp.float32)


def _code(z: Array, mask: int) -> Array:
    return (jax.lax.bitcast_convert_type(z, jnp.int32) & mask).astype(jnp.int8)


def _second_layer(
    kernel: Kernel,
    example: Array,
    a1: list[Array],
    taps: list[list[Array]],
    moves: Moves,
    bias: Array,
    scratch: Scratch,
) -> None:
    """Convolution, pool, activation: a2, zero outside of the picture, and which candidate won."""
    rows = []
    for first, *others in taps:
        both = dot(a1[0], first)
        for inputs, own in zip(a1[1:], others, strict=True):
            both += dot(inputs, own)
        left, right = jnp.split(both, 2, axis=1)
        rows.append(left + moves.along(right))
    z2 = rows[0] + moves.side(rows[1])
    coded = scratch.win2 is not None
    half = (z2 + _TINY if coded else z2).astype(jnp.bfloat16)
    if coded:
        own, below = half.astype(jnp.float32), moves.side(half)
        tables = [own, moves.along(own), below, moves.along(below)]  # by MOVES
        best = reduce(jnp.maximum, [_with_code(z, second_code(number)) for number, z in enumerate(tables)])
    else:
        across = jnp.maximum(half, moves.along(half))
        best = jnp.maximum(across, moves.side(across).astype(jnp.bfloat16)).astype(jnp.float32)
    inside = _inside(kernel.shape)
    a2 = jnp.where(inside, kernel.activate(best + bias), 0.0)
    place = at(GRID, SECOND, (PAD + example * GRID) * SECOND)
    scratch.a2[place] = a2.astype(jnp.bfloat16)
    if coded:
        scratch.win2[place] = jnp.where(inside, _code(best, 3), jnp.int8(OUTSIDE))


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
