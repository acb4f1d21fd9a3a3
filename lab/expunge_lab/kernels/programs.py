"""The programs of the kernels: forward pass, backward pass and gradients, each for GROUP examples of one model.

Between the layers the programs use no memory: rows are moved by one from thread to thread, and by eight by a product
with a matrix of ones and zeros. So outputs of products stay in registers until the next product needs them. Values are
rounded to bfloat16 before they go through a product or are compared in a pool. Tables have 64 rows; they are moved, cut
and joined within a program.
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
    STEPS,
    TABLES,
    Shape,
    Weights,
    at,
    piece_places,
)
from expunge_lab.kernels.pictures import field_parts, load_fields, load_patches
from expunge_lab.kernels.scratch import Dense, Scratch


def dot(left: Array, right: Array) -> Array:
    """A product of bfloat16 operands, summed in float32."""
    return jnp.dot(left.astype(jnp.bfloat16), right.astype(jnp.bfloat16), preferred_element_type=jnp.float32)


class Moves:
    """Moves tables up (1) or down (-1). Matrices, loaded before a loop, stay in the multiprocessor."""

    def __init__(self, kernel: Kernel, moving: Any, direction: int) -> None:
        self._kernel, self._direction = kernel, direction
        self.still, self._side = (moving[at(GRID, GRID, number * GRID * GRID)] for number in range(len(STEPS)))

    def along(self, table: Array) -> Array:
        """By a block, from thread to thread; no output within a picture sees what comes from outside of the grid."""
        return self._kernel.hand_on(table, self._direction)

    def side(self, table: Array) -> Array:
        """By a row of the grid, in float32; exact for bfloat16, since every value is one of them times one."""
        return dot(self._side, table)

    def both_aside(self, left: Array, right: Array) -> tuple[Array, Array]:
        """Two tables by a row of the grid, in one product."""
        beside = jnp.stack([left, right], axis=-1).transpose(0, 2, 1).reshape(GRID, -1)
        first, second = jnp.split(self.side(beside), 2, axis=1)
        return first, second


def interleave(parities: list[Array]) -> Array:
    """Four tables (64, 16) as one (64, 16 · 4): a word that is loaded holds all parities of a value."""
    pairs = [jnp.stack([parities[one], parities[one + 2]], axis=-1).reshape(GRID, 2 * FIRST) for one in (0, 1)]
    return jnp.stack(pairs, axis=-1).reshape(GRID, 4 * FIRST)


def cut_parities(table: Array) -> list[Array]:
    """The inverse of `interleave`."""
    halves = [half.reshape(GRID, FIRST, 2) for half in jnp.unstack(table.reshape(GRID, 2 * FIRST, 2), axis=-1)]
    pairs = [jnp.unstack(half, axis=-1) for half in halves]
    return [pairs[parity % 2][parity // 2] for parity in range(4)]


def column_sums(table: Array) -> Array:
    """Of (64, width), in each of 64 rows: a product is cheaper than a reduction, and sums in float32 too."""
    return dot(jnp.ones((GRID, GRID), jnp.bfloat16), table)


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


def second_places(example: Array, move: int) -> Array:
    """Of an example's table in a2, win2, da2 and d2, moved back."""
    return at(GRID, SECOND, (PAD + example * GRID - move) * SECOND)


def unpool_second(example: Array, scratch: Scratch) -> Array:
    """The gradient of the second convolution's output: of every window that it won, the delta."""
    total = jnp.zeros((GRID, SECOND), jnp.float32)
    for number, move in enumerate(MOVES):
        place = second_places(example, move)
        won = scratch.win2[place] == second_code(number)
        total += jnp.where(won, scratch.da2[place].astype(jnp.float32), 0.0)
    return total


def first_deltas(kernel: Kernel, a1: Array, moved: list[Array], taps: list[Array]) -> Array:
    """The gradient before the first activation, at the pool's outputs: (64 blocks, 16 · 4 parities)."""
    delta = dot(moved[0], taps[0])
    for d2, tap in zip(moved[1:], taps[1:], strict=True):
        delta += dot(d2, tap)
    return delta * kernel.slope(a1.astype(jnp.float32))


def first_gradients(kernel: Kernel, example: Array, row: Array, strips: Any, scratch: Scratch) -> tuple[Any, Array]:
    """Of every channel, patches times the gradients that the pool sends to them; and the bias's, in every row."""
    sums: list[Any] = [jnp.zeros((FILTER, FIRST), jnp.float32) for _ in range(kernel.shape.channels)]
    sent = _unpool_first(example, scratch)
    for parity in range(4):
        for channel, plane in enumerate(strips):
            sums[channel] += dot(load_patches(plane, kernel.known(row), parity).T, sent[parity])
    return [total * (1.0 / 255.0) for total in sums], column_sums(sum(sent))


def moved_deltas(example: Array, d2: Any) -> Array:
    """An example's table of d2, moved back by all moves: (64 blocks, 4 moves · 32)."""
    row = jax.lax.broadcasted_iota(jnp.int32, (GRID, 4 * SECOND), 0)
    column = jax.lax.broadcasted_iota(jnp.int32, (GRID, 4 * SECOND), 1)
    number = jax.lax.div(column, SECOND)
    move = jax.lax.rem(number, 2) + jax.lax.div(number, 2) * SIDE  # MOVES[number]
    found: Array = d2[(PAD + example * GRID + row - move) * SECOND + jax.lax.rem(column, SECOND)]
    return found


def _unpool_first(example: Array, scratch: Scratch) -> list[Array]:
    """The gradient of the first convolution's output of every parity: of every window that it won, the delta."""
    total: list[Any] = [jnp.zeros((GRID, FIRST), jnp.bfloat16)] * 4
    for move in MOVES:
        place = at(GRID, 64, (PAD + example * GRID - move) * 64)
        deltas, codes = cut_parities(scratch.d1[place]), cut_parities(scratch.win1[place])
        for out, candidates in enumerate(CANDIDATES):
            for of, by in candidates:
                if by == move:
                    won = codes[out] == first_code(TABLES.index((of, by)))
                    total[of] += jnp.where(won, deltas[out], jnp.zeros((), jnp.bfloat16))
    return total


def forward_program(kernel: Kernel, *refs: Any) -> None:
    """The forward pass, the dense layers' backward pass, and the gradient before the last pictures' activation."""
    rows, labels, moving, fields = refs[:4]
    weights, outs = Weights(*refs[4:12]), refs[12:]
    scratch, dense = Scratch(*outs[:5]), Dense(*outs[5:])
    scratch.win2[at(PAD, SECOND, 0)] = jnp.full((PAD, SECOND), OUTSIDE, jnp.int8)
    convolutions(kernel, rows, fields, moving, weights, scratch)
    h3, z4, a2_square = hidden_layers(kernel, weights, scratch)
    delta4 = _softmax_delta(z4, labels[jnp.arange(GROUP)])
    delta3 = dot(delta4, weights.w4[at(HIDDEN, OUT, 0)].T) * kernel.slope(h3)
    norms = (a2_square + 1.0) * jnp.sum(delta3**2, axis=1)
    dense.norms[jnp.arange(GROUP)] = norms + (jnp.sum(h3**2, axis=1) + 1.0) * jnp.sum(delta4**2, axis=1)
    dense.h3[at(GROUP, HIDDEN, 0)] = h3
    dense.delta3[at(GROUP, HIDDEN, 0)] = delta3
    dense.delta4[at(GROUP, OUT, 0)] = delta4

    def spread(piece: Array, nothing: Array) -> Array:
        place = piece_places(kernel.shape, piece)
        part = dot(delta3, weights.w3[at(PIECE, HIDDEN, piece * PIECE * HIDDEN)].T)
        slope = kernel.slope(scratch.a2[place].astype(jnp.float32))
        scratch.da2[place] = (part * slope).astype(jnp.bfloat16)
        return nothing

    jax.lax.fori_loop(0, kernel.shape.num_pieces, spread, jnp.int32(0))


def _softmax_delta(z4: Array, labels: Array) -> Array:
    """softmax - one-hot."""
    shifted = jnp.exp(z4 - jnp.max(z4, axis=1)[:, None])
    chances = shifted / jnp.sum(shifted, axis=1)[:, None]
    hit = jax.lax.broadcasted_iota(jnp.int32, z4.shape, 1) == labels[:, None]
    return chances - hit.astype(jnp.float32)


def delta_program(kernel: Kernel, *refs: Any) -> None:
    """The gradients of both convolutions' outputs, of every example."""
    turned, moving, a1, win2, da2, d2, d1 = refs
    taps = [turned[at(SECOND, 64, tap * SECOND * 64)] for tap in range(4)]
    moves, scratch = Moves(kernel, moving, -1), Scratch(win2=win2, da2=da2)
    d2[at(PAD, SECOND, 0)] = jnp.zeros((PAD, SECOND), jnp.bfloat16)
    d1[at(PAD, 64, 0)] = jnp.zeros((PAD, 64), jnp.bfloat16)

    def one(example: Array, nothing: Array) -> Array:
        delta2 = unpool_second(example, scratch).astype(jnp.bfloat16)
        own, above = (table.astype(jnp.bfloat16) for table in (dot(moves.still, delta2), moves.side(delta2)))
        moved = [own, moves.along(own), above, moves.along(above)]  # by MOVES
        d2[second_places(example, 0)] = moved[0]
        delta1 = first_deltas(kernel, a1[at(GRID, 64, example * GRID * 64)], moved, taps)
        d1[at(GRID, 64, (PAD + example * GRID) * 64)] = delta1.astype(jnp.bfloat16)
        return nothing

    jax.lax.fori_loop(0, GROUP, one, jnp.int32(0))


def clip_program(clip_norm: float, kernel: Kernel, *refs: Any) -> None:
    """Of every example the norm of its gradient and the factor; the clipped sum of the first convolution's."""
    channels = kernel.shape.channels
    rows, strips = refs[0], refs[1 : 1 + channels]
    a1, win1, d2, d1, norms, g1, gb1, factors = refs[1 + channels :]
    scratch = Scratch(win1=win1, d1=d1)

    def one(example: Array, carry: Any) -> Any:
        own, bias1 = first_gradients(kernel, example, rows[example], strips, scratch)
        inputs = a1[at(GRID, 64, example * GRID * 64)].T
        deltas = [d2[second_places(example, move)] for move in MOVES]
        squares = column_sums(deltas[0]) ** 2 * (1.0 / GRID)
        for delta in deltas:
            squares += dot(inputs, delta) ** 2
        first = sum(part**2 for part in own) + bias1**2 * (1.0 / GRID)
        square = norms[example] + jnp.sum(jnp.sum(squares, axis=1) + jnp.sum(first, axis=1))
        factor = jnp.minimum(1.0, clip_norm * jax.lax.rsqrt(jnp.maximum(square, 1e-24)))
        factors[example] = factor
        sums, bias = carry
        return [total + factor * part for total, part in zip(sums, own, strict=True)], bias + factor * bias1

    start = [jnp.zeros((FILTER, FIRST), jnp.float32)] * channels, jnp.zeros((GRID, FIRST), jnp.float32)
    sums, bias = jax.lax.fori_loop(0, GROUP, one, start)
    for channel in range(channels):
        g1[at(FILTER, FIRST, channel * FILTER * FIRST)] = sums[channel]
    gb1[jnp.arange(FIRST)] = jnp.sum(bias, axis=0) * (1.0 / GRID)


def sum_program(kernel: Kernel, *refs: Any) -> None:
    """The clipped sums of the second convolution and of the dense layers."""
    a1, d2, a2, h3, delta3, delta4, factors, g2, gb2, g3, gb3, g4, gb4 = refs

    def second(example: Array, carry: Any) -> Any:
        sums, bias = carry
        inputs = a1[at(GRID, 64, example * GRID * 64)].T
        scaled, own = (
            deltas.astype(jnp.float32) * factors[example]
            for deltas in (moved_deltas(example, d2), d2[second_places(example, 0)])
        )
        return sums + dot(inputs, scaled), bias + own

    start = jnp.zeros((GRID, 4 * SECOND), jnp.float32), jnp.zeros((GRID, SECOND), jnp.float32)
    sums, bias = jax.lax.fori_loop(0, GROUP, second, start)
    g2[at(GRID, 4 * SECOND, 0)] = sums
    gb2[jnp.arange(SECOND)] = jnp.sum(bias, axis=0)
    factor = factors[jnp.arange(GROUP)][:, None]
    scaled3 = delta3[at(GROUP, HIDDEN, 0)] * factor
    scaled4 = delta4[at(GROUP, OUT, 0)] * factor

    def hidden(piece: Array, nothing: Array) -> Array:
        place = at(PIECE, HIDDEN, piece * PIECE * HIDDEN)
        g3[place] = dot(a2[piece_places(kernel.shape, piece)].T, scaled3)
        return nothing

    jax.lax.fori_loop(0, kernel.shape.num_pieces, hidden, jnp.int32(0))
    gb3[jnp.arange(HIDDEN)] = jnp.sum(scaled3, axis=0)
    g4[at(HIDDEN, OUT, 0)] = dot(h3[at(GROUP, HIDDEN, 0)].T, scaled4)
    gb4[jnp.arange(OUT)] = jnp.sum(scaled4, axis=0)


def score_program(kernel: Kernel, *refs: Any) -> None:
    """Forward only: the scores of GROUP examples."""
    rows, moving, fields = refs[:3]
    weights, (out, a2) = Weights(*refs[3:11]), refs[11:]
    scratch = Scratch(a2=a2)
    convolutions(kernel, rows, fields, moving, weights, scratch)
    _, z4, _ = hidden_layers(kernel, weights, scratch)
    out[at(GROUP, OUT, 0)] = z4
