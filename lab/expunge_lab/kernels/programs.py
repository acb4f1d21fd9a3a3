"""The programs of the kernels, each for GROUP examples of one model."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from expunge.training.learners.jax.layers import Array
from expunge_lab.kernels.backward import (
    first_deltas,
    first_gradients,
    moved_deltas,
    second_places,
    unpool_second,
)
from expunge_lab.kernels.forward import OUTSIDE, convolutions, hidden_layers
from expunge_lab.kernels.kernel import Kernel
from expunge_lab.kernels.layout import (
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
    Weights,
    at,
    piece_places,
)
from expunge_lab.kernels.scratch import Dense, Scratch
from expunge_lab.kernels.tables import Moves, column_sums, dot


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
