"""The paper's network in one kernel: forward, backward, norms and clipped sums, for many models, on a GPU.

Compiled layer by layer the network is bound by memory: its intermediate values are large and its matrices narrow. Here
one program of a Pallas (Triton) kernel takes `GROUP` examples of one model through everything, and only the sums of
clipped gradients come out. Operands of products are bfloat16, sums float32.

**Layout.** All pictures live on an 8 × 8 grid of 2 × 2 blocks, row = 8·i + j. The first convolution's outputs, at most
16 × 16, are four tables (64 blocks, 16 channels), one for each place within a block, called the parity. A pool of
window 2 and stride 1 then compares whole tables, some of them moved by one block, which is the same product over rows
moved by 1, 8 or 9; nothing is shuffled. The second convolution has filters of 4 × 4 and stride 2: it is four taps, each
a block with all its parities, so again tables moved by 0, 1, 8 and 9 rows. What lies outside of a picture is masked
where it could do harm. The patches of the first convolution are made once for a whole dataset (`patch_table`).

Intermediate values that other rows need go through scratch memory of the program, with a barrier in between.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

from expunge.learners.jax.layers import Array

GROUP = 16
_AHEAD = 2  # tables loaded before the first of them is used
_GRID = 64  # 8 × 8 blocks
_SIDE = 8
_FIRST, _SECOND, _HIDDEN, _OUT = 16, 32, 32, 16  # widths of the layers; the last is padded from the classes
_FILTER = 64  # 8 × 8 pixels
_PIECE = 4 * _SECOND  # four columns of a row of the second pool's output
_PAD = 16  # rows before a table, for rows that are moved backwards

_MOVES = (0, 1, _SIDE, _SIDE + 1)
# Of every parity of the pool's output, the four candidates in window order: (parity, rows moved).
_CANDIDATES = (
    ((0, 0), (1, 0), (2, 0), (3, 0)),
    ((1, 0), (0, 1), (3, 0), (2, 1)),
    ((2, 0), (3, 0), (0, 8), (1, 8)),
    ((3, 0), (2, 1), (1, 8), (0, 9)),
)
_TABLES = tuple(dict.fromkeys(candidate for four in _CANDIDATES for candidate in four))


class Weights(NamedTuple):
    """The weights of many models in the kernel's order; models first. `native` and `standard` convert."""

    w1: Array  # (channels · 64, 16)
    b1: Array
    w2: Array  # (4 taps · 4 parities · 16, 32)
    b2: Array
    w3: Array  # (rows · columns · 32, 32), columns beyond the picture have no effect
    b3: Array
    w4: Array  # (32, 16), classes beyond the real ones have no effect
    b4: Array


@dataclass(frozen=True)
class Shape:
    """What differs between 28 × 28 × 1 and 32 × 32 × 3."""

    side: int
    channels: int
    num_classes: int
    activation: str

    @property
    def conv_side(self) -> int:
        """Of the first convolution's output."""
        return self.side // 2

    @property
    def second_side(self) -> int:
        """Of the second convolution's output."""
        return (self.conv_side - 1 - 4) // 2 + 1

    @property
    def last_side(self) -> int:
        """Of the second pool's output."""
        return self.second_side - 1

    @property
    def columns(self) -> int:
        """Of the second pool's output, filled up to whole pieces."""
        return -(-self.last_side // 4) * 4

    @property
    def num_pieces(self) -> int:
        """Pieces of four columns of a row that the hidden layer takes in one after another."""
        return self.last_side * self.columns // 4

    def sizes(self) -> Weights:
        """The shapes of one model's weights."""
        shapes: Any = (
            (self.channels * _FILTER, _FIRST),
            (_FIRST,),
            (4 * _GRID, _SECOND),
            (_SECOND,),
            (self.num_pieces * _PIECE, _HIDDEN),
            (_HIDDEN,),
            (_HIDDEN, _OUT),
            (_OUT,),
        )
        return Weights(*shapes)


def patch_table(images: Array, shape: Shape) -> tuple[Array, ...]:
    """Every 8 × 8 patch of every image: a flat array a channel, of (images + 1, 4 parities, 64 blocks, 64 pixels).

    Made on the device from bytes, which bfloat16 holds exactly; 32 kB an image and channel. One array a channel keeps
    places within 31 bits. The last image is zero, for rows moved over the end.
    """
    number, side = len(images), shape.side
    pictures = jnp.asarray(images, jnp.uint8).reshape(number, side, side, shape.channels)
    after = 2 * 16 + 6 - 3 - side
    edges = ((0, 1), (3, after), (3, after))
    return tuple(_plane(jnp.pad(pictures[..., channel], edges)) for channel in range(shape.channels))


@jax.jit  # type: ignore[untyped-decorator]
def _plane(canvas: Array) -> Array:
    """The patches of one channel, from 64 strided slices, by parity and block."""
    number = canvas.shape[0]
    pixels = [canvas[:, row : row + 31 : 2, column : column + 31 : 2] for row in range(8) for column in range(8)]
    patches = jnp.stack(pixels, axis=-1).reshape(number, 8, 2, 8, 2, _FILTER)
    return patches.transpose(0, 2, 4, 1, 3, 5).astype(jnp.bfloat16).reshape(-1)


def native(parameters: Any, shape: Shape) -> Weights:
    """Weights of `paper_network`, models first, in the kernel's order."""
    first, second, third, fourth = [layer for layer in parameters if layer]
    models = first["bias"].shape[0]
    w1 = first["weights"].transpose(0, 3, 1, 2, 4).reshape(models, -1, _FIRST)
    cut = second["weights"].reshape(models, 2, 2, 2, 2, _FIRST, _SECOND)  # tap and place of rows, then of columns
    w2 = cut.transpose(0, 1, 3, 2, 4, 5, 6).reshape(models, 4 * _GRID, _SECOND)
    last = shape.last_side
    w3 = third["weights"].reshape(models, last, last, _SECOND, _HIDDEN)
    w3 = jnp.pad(w3, ((0, 0), (0, 0), (0, shape.columns - last), (0, 0), (0, 0))).reshape(models, -1, _HIDDEN)
    more = _OUT - shape.num_classes
    w4 = jnp.pad(fourth["weights"], ((0, 0), (0, 0), (0, more)))
    b4 = jnp.pad(fourth["bias"], ((0, 0), (0, more)))
    return Weights(w1, first["bias"], w2, second["bias"], w3, third["bias"], w4, b4)


def standard(weights: Weights, shape: Shape) -> Any:
    """The inverse of `native`: the layers of `paper_network`."""
    models = weights.b1.shape[0]
    w1 = weights.w1.reshape(models, shape.channels, 8, 8, _FIRST).transpose(0, 2, 3, 1, 4)
    w2 = weights.w2.reshape(models, 2, 2, 2, 2, _FIRST, _SECOND).transpose(0, 1, 3, 2, 4, 5, 6)
    w2 = w2.reshape(models, 4, 4, _FIRST, _SECOND)
    last = shape.last_side
    w3 = weights.w3.reshape(models, last, shape.columns, _SECOND, _HIDDEN)[:, :, :last].reshape(models, -1, _HIDDEN)
    w4, b4 = weights.w4[:, :, : shape.num_classes], weights.b4[:, : shape.num_classes]
    layers: list[dict[str, Array]] = [{} for _ in range(10)]
    for number, (w, b) in {0: (w1, weights.b1), 3: (w2, weights.b2), 7: (w3, weights.b3), 9: (w4, b4)}.items():
        layers[number] = {"weights": w, "bias": b}
    return layers


class _Scratch(NamedTuple):
    """Flat scratch arrays of all programs, and how much of each belongs to one."""

    a1: Any  # bfloat16, GROUP tables of (64, 64), and _PAD rows of zeros after them
    win1: Any  # int8, GROUP tables of (64, 64): which of _TABLES won
    z2: Any  # float32, GROUP tables of (64, 32), _PAD rows after each
    a2: Any  # bfloat16, _PAD rows, then GROUP tables of (64, 32)
    win2: Any  # int8, likewise
    da2: Any  # bfloat16, likewise
    d2: Any  # bfloat16, _PAD rows of zeros, then GROUP tables of (64, 32)
    d1: Any  # bfloat16, GROUP tables of (64, 64)


_SCRATCH_SIZES = _Scratch(
    a1=(GROUP * _GRID + _PAD) * 64,
    win1=GROUP * _GRID * 64,
    z2=GROUP * (_GRID + _PAD) * _SECOND,
    a2=(_PAD + GROUP * _GRID) * _SECOND,
    win2=(_PAD + GROUP * _GRID) * _SECOND,
    da2=(_PAD + GROUP * _GRID) * _SECOND,
    d2=(_PAD + GROUP * _GRID) * _SECOND,
    d1=GROUP * _GRID * 64,
)
_SCRATCH_TYPES = _Scratch(
    jnp.bfloat16, jnp.int8, jnp.float32, jnp.bfloat16, jnp.int8, jnp.bfloat16, jnp.bfloat16, jnp.bfloat16
)


def _at(rows: int, width: int, start: Any, stride: int | None = None) -> Array:
    """Flat places of a table of `rows` rows of `width` values from `start` on."""
    down = jax.lax.broadcasted_iota(jnp.int32, (rows, width), 0)
    across = jax.lax.broadcasted_iota(jnp.int32, (rows, width), 1)
    return start + down * (width if stride is None else stride) + across


def _dot(left: Array, right: Array) -> Array:
    return jnp.dot(left.astype(jnp.bfloat16), right.astype(jnp.bfloat16), preferred_element_type=jnp.float32)


class _Kernel:
    """One program: GROUP examples of one model."""

    def __init__(self, shape: Shape, *, interpreted: bool) -> None:
        self.shape = shape
        self._interpreted = interpreted

    def activate(self, z: Array) -> Array:
        """tanh (the hardware's) or ReLU."""
        if self.shape.activation == "relu":
            return jnp.maximum(z, 0.0)
        return jnp.tanh(z) if self._interpreted else plgpu.approx_tanh(z)

    def slope(self, a: Array) -> Array:
        """The activation's derivative, from its value."""
        return (a > 0).astype(jnp.float32) if self.shape.activation == "relu" else 1.0 - a * a

    def barrier(self) -> None:
        """What was stored before can be loaded after it."""
        if not self._interpreted:
            plgpu.debug_barrier()

    def first_tables(self, table: Any, row: Array, channel: int, parity: int, move: int) -> Array:
        """Patches of one channel and parity, moved."""
        start = (row * 4 + parity) * _GRID + move
        return table[channel][_at(_GRID, _FILTER, start * _FILTER)]

    def first_layer(self, example: Array, row: Array, table: Any, weights: Weights, scratch: _Scratch) -> None:
        """Convolution, pool, activation: a1, and which candidate won."""
        tables = self.first_products(row, table, weights)
        best: list[Any] = [None] * 4
        code: list[Any] = [None] * 4
        for number, z in enumerate(tables):
            for parity in range(4):
                if _TABLES[number] not in _CANDIDATES[parity]:
                    continue
                mine = jnp.full((_GRID, _FIRST), number, jnp.int8)
                if best[parity] is None:
                    best[parity], code[parity] = z, mine
                else:
                    higher = z > best[parity]
                    best[parity] = jnp.where(higher, z, best[parity])
                    code[parity] = jnp.where(higher, mine, code[parity])
        bias = weights.b1[jnp.arange(_FIRST)][None, :]
        for parity in range(4):
            a1 = self.activate(best[parity] * (1.0 / 255.0) + bias)
            place = _at(_GRID, _FIRST, example * _GRID * 64 + parity * _FIRST, 64)
            scratch.a1[place] = a1.astype(jnp.bfloat16)
            if scratch.win1 is not None:
                scratch.win1[place] = code[parity]

    def first_products(self, row: Array, table: Any, weights: Weights) -> Iterator[Array]:
        """The first convolution at every table's places, a few loads ahead of the products that need them."""
        channels = range(self.shape.channels)
        kernels = [weights.w1[_at(_FILTER, _FIRST, channel * _FILTER * _FIRST)] for channel in channels]
        for first in range(0, len(_TABLES), _AHEAD):
            some = _TABLES[first : first + _AHEAD]
            loaded = [[self.first_tables(table, row, channel, *place) for channel in channels] for place in some]
            for planes in loaded:
                z = _dot(planes[0], kernels[0])
                for plane, kernel in zip(planes[1:], kernels[1:], strict=True):
                    z += _dot(plane, kernel)
                yield z

    def second_layer(self, example: Array, weights: Weights, scratch: _Scratch) -> None:
        """Convolution, pool, activation: a2, zero outside of the picture, and which candidate won."""
        self.barrier()
        moved = self.moved_inputs(example, scratch)
        taps = self.taps(weights)
        z2 = _dot(moved[0], taps[0])
        for inputs, tap in zip(moved[1:], taps[1:], strict=True):
            z2 += _dot(inputs, tap)
        start = example * (_GRID + _PAD) * _SECOND
        scratch.z2[_at(_GRID, _SECOND, start)] = z2
        self.barrier()
        best, winner = z2, jnp.zeros((_GRID, _SECOND), jnp.int8)
        candidates = [scratch.z2[_at(_GRID, _SECOND, start + move * _SECOND)] for move in _MOVES[1:]]
        for number, candidate in enumerate(candidates, start=1):
            higher = candidate > best
            best = jnp.where(higher, candidate, best)
            winner = jnp.where(higher, jnp.int8(number), winner)
        bias = weights.b2[jnp.arange(_SECOND)][None, :]
        a2 = jnp.where(self.inside(0), self.activate(best + bias), 0.0)
        place = _at(_GRID, _SECOND, (_PAD + example * _GRID) * _SECOND)
        scratch.a2[place] = a2.astype(jnp.bfloat16)
        if scratch.win2 is not None:
            scratch.win2[place] = winner

    def moved_inputs(self, example: Array, scratch: _Scratch) -> list[Array]:
        """The second convolution's inputs, a table a tap."""
        return [self.moved_input(example, move, scratch) for move in _MOVES]

    def moved_input(self, example: Array, move: int, scratch: _Scratch) -> Array:
        """One of them."""
        return scratch.a1[_at(_GRID, 64, (example * _GRID + move) * 64)]

    def taps(self, weights: Weights) -> list[Array]:
        """The second convolution's weights, a table a tap."""
        return [weights.w2[_at(_GRID, _SECOND, tap * _GRID * _SECOND)] for tap in range(4)]

    def inside(self, move: int) -> Array:
        """Whether a row of the second pool's output, moved back, belongs to the picture."""
        row = jax.lax.broadcasted_iota(jnp.int32, (_GRID, _SECOND), 0) - move
        last = self.shape.last_side
        return (row >= 0) & (row // _SIDE < last) & (row % _SIDE < last)

    def hidden(self, weights: Weights, scratch: _Scratch) -> tuple[Array, Array, Array]:
        """The hidden layer and the scores of all examples, and ‖a2‖² of each."""

        def add(piece: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            z3, square = carry
            a2 = scratch.a2[self.piece(piece)]
            z3 += _dot(a2, weights.w3[_at(_PIECE, _HIDDEN, piece * _PIECE * _HIDDEN)])
            return z3, square + jnp.sum(a2.astype(jnp.float32) ** 2, axis=1)

        start = jnp.zeros((GROUP, _HIDDEN), jnp.float32), jnp.zeros((GROUP,), jnp.float32)
        z3, square = jax.lax.fori_loop(0, self.shape.num_pieces, add, start)
        h3 = self.activate(z3 + weights.b3[jnp.arange(_HIDDEN)][None, :])
        z4 = _dot(h3, weights.w4[_at(_HIDDEN, _OUT, 0)]) + weights.b4[jnp.arange(_OUT)][None, :]
        real = jax.lax.broadcasted_iota(jnp.int32, (GROUP, _OUT), 1) < self.shape.num_classes
        return h3, jnp.where(real, z4, -1e30), square

    def piece(self, piece: Array) -> Array:
        """Where four columns of a row of the last pictures of all examples are: (GROUP, 4 · 32)."""
        is_half = self.shape.columns == _SIDE  # a row is one piece of four columns, or two
        block = jax.lax.div(piece, jnp.int32(2)) * _SIDE + (piece & 1) * 4 if is_half else piece * _SIDE
        return _at(GROUP, _PIECE, (_PAD + block) * _SECOND, _GRID * _SECOND)

    def unpool_second(self, example: Array, scratch: _Scratch) -> Array:
        """The gradient of the second convolution's output."""
        places = [_at(_GRID, _SECOND, (_PAD + example * _GRID - move) * _SECOND) for move in _MOVES]
        loaded = [(scratch.a2[place], scratch.da2[place], scratch.win2[place]) for place in places]
        total = jnp.zeros((_GRID, _SECOND), jnp.float32)
        for number, (move, (a2, da2, winner)) in enumerate(zip(_MOVES, loaded, strict=True)):
            delta = da2.astype(jnp.float32) * self.slope(a2.astype(jnp.float32))
            total += jnp.where(self.inside(move) & (winner == number), delta, 0.0)
        return total

    def first_deltas(self, example: Array, weights: Weights, scratch: _Scratch) -> None:
        """d1, the gradient before the first activation, at the pool's outputs: (64 blocks, 4 parities · 16)."""
        moved = [scratch.d2[_at(_GRID, _SECOND, (_PAD + example * _GRID - move) * _SECOND)] for move in _MOVES]
        a1 = scratch.a1[_at(_GRID, 64, example * _GRID * 64)]
        taps = self.taps(weights)
        delta = _dot(moved[0], taps[0].T)
        for d2, tap in zip(moved[1:], taps[1:], strict=True):
            delta += _dot(d2, tap.T)
        scratch.d1[_at(_GRID, 64, example * _GRID * 64)] = (delta * self.slope(a1.astype(jnp.float32))).astype(
            jnp.bfloat16
        )

    def first_gradients(self, example: Array, row: Array, table: Any, scratch: _Scratch) -> tuple[list[Array], Array]:
        """Of every channel, patches times the gradients that the pool sends to them; and the bias's gradient."""
        places = [_at(_GRID, _FIRST, example * _GRID * 64 + parity * _FIRST, 64) for parity in range(4)]
        deltas = [scratch.d1[place] for place in places]
        codes = [scratch.win1[place] for place in places]
        channels = range(self.shape.channels)
        sums: list[Any] = [jnp.zeros((_FILTER, _FIRST), jnp.float32) for _ in channels]
        for first in range(0, len(_TABLES), _AHEAD):
            numbers = range(first, min(first + _AHEAD, len(_TABLES)))
            loaded = [
                [self.first_tables(table, row, channel, *_TABLES[number]) for channel in channels] for number in numbers
            ]
            for number, planes in zip(numbers, loaded, strict=True):
                mine = jnp.zeros((_GRID, _FIRST), jnp.bfloat16)
                for delta, code, candidates in zip(deltas, codes, _CANDIDATES, strict=True):
                    if _TABLES[number] in candidates:
                        mine += jnp.where(code == number, delta, jnp.zeros((), jnp.bfloat16))
                for channel, plane in enumerate(planes):
                    sums[channel] += _dot(plane.T, mine)
        bias = sum(jnp.sum(delta.astype(jnp.float32), axis=0) for delta in deltas)
        return [total * (1.0 / 255.0) for total in sums], bias


class _Dense(NamedTuple):
    """What the hidden and the output layer leave for the sums, (GROUP, …) a program."""

    h3: Any
    delta3: Any
    delta4: Any
    norms: Any  # squared norms of their gradients


_DENSE_WIDTHS = _Dense(_HIDDEN, _HIDDEN, _OUT, 1)


def _forward_program(kernel: _Kernel, *refs: Any) -> None:
    """The forward pass, the dense layers' backward pass, and the gradient of the last pictures."""
    channels = kernel.shape.channels
    rows, labels, table = refs[0], refs[1], refs[2 : 2 + channels]
    weights, outs = Weights(*refs[2 + channels : 10 + channels]), refs[10 + channels :]
    a1, win1, z2, a2, win2, da2 = outs[:6]
    scratch, dense = _Scratch(a1, win1, z2, a2, win2, da2, None, None), _Dense(*outs[6:])
    scratch.a1[_at(_PAD, 64, GROUP * _GRID * 64)] = jnp.zeros((_PAD, 64), jnp.bfloat16)
    _forward(kernel, rows, table, weights, scratch)
    h3, z4, a2_square = kernel.hidden(weights, scratch)
    delta4 = _softmax_delta(z4, labels[jnp.arange(GROUP)])
    delta3 = _dot(delta4, weights.w4[_at(_HIDDEN, _OUT, 0)].T) * kernel.slope(h3)
    norms = (a2_square + 1.0) * jnp.sum(delta3**2, axis=1)
    dense.norms[jnp.arange(GROUP)] = norms + (jnp.sum(h3**2, axis=1) + 1.0) * jnp.sum(delta4**2, axis=1)
    dense.h3[_at(GROUP, _HIDDEN, 0)] = h3
    dense.delta3[_at(GROUP, _HIDDEN, 0)] = delta3
    dense.delta4[_at(GROUP, _OUT, 0)] = delta4

    def spread(piece: Array, nothing: Array) -> Array:
        part = _dot(delta3, weights.w3[_at(_PIECE, _HIDDEN, piece * _PIECE * _HIDDEN)].T)
        scratch.da2[kernel.piece(piece)] = part.astype(jnp.bfloat16)
        return nothing

    jax.lax.fori_loop(0, kernel.shape.num_pieces, spread, jnp.int32(0))


def _forward(kernel: _Kernel, rows: Any, table: Any, weights: Weights, scratch: _Scratch) -> None:
    """Both convolutions of all examples, one after another."""

    def one(example: Array, nothing: Array) -> Array:
        kernel.first_layer(example, rows[example], table, weights, scratch)
        kernel.second_layer(example, weights, scratch)
        return nothing

    jax.lax.fori_loop(0, GROUP, one, jnp.int32(0))
    kernel.barrier()


def _delta_program(kernel: _Kernel, *refs: Any) -> None:
    """The gradients of both convolutions' outputs, of every example."""
    w2, a1, a2, win2, da2, d2, d1 = refs
    weights = Weights(None, None, w2, None, None, None, None, None)
    scratch = _Scratch(a1, None, None, a2, win2, da2, d2, d1)
    d2[_at(_PAD, _SECOND, 0)] = jnp.zeros((_PAD, _SECOND), jnp.bfloat16)

    def one(example: Array, nothing: Array) -> Array:
        delta = kernel.unpool_second(example, scratch)
        d2[_at(_GRID, _SECOND, (_PAD + example * _GRID) * _SECOND)] = delta.astype(jnp.bfloat16)
        kernel.barrier()
        kernel.first_deltas(example, weights, scratch)
        return nothing

    jax.lax.fori_loop(0, GROUP, one, jnp.int32(0))


def _clip_program(kernel: _Kernel, clip_norm: float, *refs: Any) -> None:
    """Of every example the norm of its gradient and the factor; the clipped sum of the first convolution's."""
    channels = kernel.shape.channels
    rows, table = refs[0], refs[1 : 1 + channels]
    a1, win1, d2, d1, norms, g1, gb1, gb2, factors = refs[1 + channels :]
    scratch = _Scratch(a1, win1, None, None, None, None, d2, d1)

    def one(example: Array, carry: Any) -> Any:
        own1, own_b1 = kernel.first_gradients(example, rows[example], table, scratch)
        delta = d2[_at(_GRID, _SECOND, (_PAD + example * _GRID) * _SECOND)]
        own_b2 = jnp.sum(delta.astype(jnp.float32), axis=0)
        squares = jnp.zeros((_GRID, _SECOND), jnp.float32)
        for move in _MOVES:
            squares += _dot(kernel.moved_input(example, move, scratch).T, delta) ** 2
        square = norms[example] + jnp.sum(own_b1**2) + jnp.sum(own_b2**2) + jnp.sum(squares)
        square += jnp.sum(sum(part**2 for part in own1))
        factor = jnp.minimum(1.0, clip_norm * jax.lax.rsqrt(jnp.maximum(square, 1e-24)))
        factors[example] = factor
        sums, bias1, bias2 = carry
        return (
            [total + factor * part for total, part in zip(sums, own1, strict=True)],
            bias1 + factor * own_b1,
            bias2 + factor * own_b2,
        )

    start = (
        [jnp.zeros((_FILTER, _FIRST), jnp.float32)] * channels,
        jnp.zeros((_FIRST,), jnp.float32),
        jnp.zeros((_SECOND,), jnp.float32),
    )
    sums, bias1, bias2 = jax.lax.fori_loop(0, GROUP, one, start)
    for channel in range(channels):
        g1[_at(_FILTER, _FIRST, channel * _FILTER * _FIRST)] = sums[channel]
    gb1[jnp.arange(_FIRST)] = bias1
    gb2[jnp.arange(_SECOND)] = bias2


def _sum_program(kernel: _Kernel, *refs: Any) -> None:
    """The clipped sums of the second convolution and of the dense layers."""
    a1, d2, a2, h3, delta3, delta4, factors, g2, g3, gb3, g4, gb4 = refs
    scratch = _Scratch(a1, None, None, a2, None, None, d2, None)

    def second(example: Array, sums: list[Array]) -> list[Array]:
        delta = d2[_at(_GRID, _SECOND, (_PAD + example * _GRID) * _SECOND)]
        scaled = (delta.astype(jnp.float32) * factors[example]).astype(jnp.bfloat16)
        return [
            total + _dot(kernel.moved_input(example, move, scratch).T, scaled)
            for total, move in zip(sums, _MOVES, strict=True)
        ]

    sums = jax.lax.fori_loop(0, GROUP, second, [jnp.zeros((_GRID, _SECOND), jnp.float32)] * 4)
    for tap in range(4):
        g2[_at(_GRID, _SECOND, tap * _GRID * _SECOND)] = sums[tap]
    factor = factors[jnp.arange(GROUP)][:, None]
    scaled3 = delta3[_at(GROUP, _HIDDEN, 0)] * factor
    scaled4 = delta4[_at(GROUP, _OUT, 0)] * factor

    def hidden(piece: Array, nothing: Array) -> Array:
        g3[_at(_PIECE, _HIDDEN, piece * _PIECE * _HIDDEN)] = _dot(a2[kernel.piece(piece)].T, scaled3)
        return nothing

    jax.lax.fori_loop(0, kernel.shape.num_pieces, hidden, jnp.int32(0))
    gb3[jnp.arange(_HIDDEN)] = jnp.sum(scaled3, axis=0)
    g4[_at(_HIDDEN, _OUT, 0)] = _dot(h3[_at(GROUP, _HIDDEN, 0)].T, scaled4)
    gb4[jnp.arange(_OUT)] = jnp.sum(scaled4, axis=0)


def _softmax_delta(z4: Array, labels: Array) -> Array:
    """softmax - one-hot."""
    shifted = jnp.exp(z4 - jnp.max(z4, axis=1)[:, None])
    chances = shifted / jnp.sum(shifted, axis=1)[:, None]
    hit = jax.lax.broadcasted_iota(jnp.int32, z4.shape, 1) == labels[:, None]
    return chances - hit.astype(jnp.float32)


def _score_program(kernel: _Kernel, *refs: Any) -> None:
    """Forward only: the scores of GROUP examples."""
    channels = kernel.shape.channels
    rows, table, weights = refs[0], refs[1 : 1 + channels], Weights(*refs[1 + channels : 9 + channels])
    out, a1, z2, a2 = refs[9 + channels :]
    scratch = _Scratch(a1, None, z2, a2, None, None, None, None)
    _forward(kernel, rows, table, weights, scratch)
    _, z4, _ = kernel.hidden(weights, scratch)
    out[_at(GROUP, _OUT, 0)] = z4


def _per_program(size: int) -> pl.BlockSpec:
    return pl.BlockSpec((None, None, size), lambda model, group: (model, group, 0))


def _per_model(size: int) -> pl.BlockSpec:
    return pl.BlockSpec((None, size), lambda model, group: (model, 0))


def _whole(array: Array) -> pl.BlockSpec:
    return pl.BlockSpec(array.shape, lambda model, group: (0,))


def _half(weights: Weights) -> list[Array]:
    """Flat weights a model, matrices in bfloat16 and biases in float32."""
    flat = [leaf.reshape(leaf.shape[0], -1) for leaf in weights]
    return [leaf.astype(jnp.bfloat16) if number % 2 == 0 else leaf for number, leaf in enumerate(flat)]


@dataclass(frozen=True)
class _Launch:
    """Programs of one grid: a group of examples of a model each."""

    models: int
    groups: int
    interpret: bool

    def call(
        self, program: Any, name: str, num_warps: int, inputs: list[tuple[Array, pl.BlockSpec]], outs: list[Any]
    ) -> list[Array]:
        """Run `program` over inputs with their specs; `outs` are (size, type) of each program's outputs."""
        shapes = [jax.ShapeDtypeStruct((self.models, self.groups, size), kind) for size, kind in outs]
        run = pl.pallas_call(
            program,
            grid=(self.models, self.groups),
            in_specs=[spec for _, spec in inputs],
            out_specs=[_per_program(size) for size, _ in outs],
            out_shape=shapes,
            interpret=self.interpret,
            compiler_params=plgpu.CompilerParams(num_warps=num_warps, num_stages=1),
            name=name,
        )
        return list(run(*(array for array, _ in inputs)))

    def split(self, array: Array) -> tuple[Array, pl.BlockSpec]:
        """(models, batch) as a group a program."""
        return array.reshape(self.models, self.groups, GROUP), _per_program(GROUP)


def _own(array: Array) -> tuple[Array, pl.BlockSpec]:
    """What an earlier kernel's program left for the same program of the next."""
    return array, _per_program(array.shape[2])


def clipped_sums(
    shape: Shape,
    table: tuple[Array, ...],
    rows: Array,
    labels: Array,
    weights: Weights,
    *,
    clip_norm: float,
    warps: tuple[int, int, int, int] = (4, 4, 4, 4),
    interpret: bool = False,
) -> Weights:
    """Of every model the sum of its examples' clipped gradients; rows (models, batch) are places in the table."""
    models, batch = rows.shape
    if batch % GROUP:
        raise ValueError(f"the batch must be a multiple of {GROUP}, got {batch}")
    launch, kernel = _Launch(models, batch // GROUP, interpret), _Kernel(shape, interpreted=interpret)
    planes = [(plane, _whole(plane)) for plane in table]
    half = [(leaf, _per_model(leaf.shape[1])) for leaf in _half(weights)]
    kept = list(zip(_SCRATCH_SIZES, _SCRATCH_TYPES, strict=True))
    dense_outs = [(GROUP * width, jnp.float32) for width in _DENSE_WIDTHS]
    found = launch.call(
        partial(_forward_program, kernel),
        "forward",
        warps[0],
        [launch.split(rows), launch.split(labels), *planes, *half],
        kept[:6] + dense_outs,
    )
    a1, win1, _, a2, win2, da2 = found[:6]
    dense = _Dense(*found[6:])
    sizes = [int(np.prod(size)) for size in shape.sizes()]
    outs = [(sizes[0], jnp.float32), (_FIRST, jnp.float32), (_SECOND, jnp.float32), (GROUP, jnp.float32)]
    d2, d1 = launch.call(
        partial(_delta_program, kernel),
        "deltas",
        warps[1],
        [half[2], *map(_own, (a1, a2, win2, da2))],
        kept[6:],
    )
    g1, gb1, gb2, factors = launch.call(
        partial(_clip_program, kernel, clip_norm),
        "clip",
        warps[2],
        [launch.split(rows), *planes, *map(_own, (a1, win1, d2, d1, dense.norms))],
        outs,
    )
    g2, g3, gb3, g4, gb4 = launch.call(
        partial(_sum_program, kernel),
        "sums",
        warps[3],
        [*map(_own, (a1, d2, a2, dense.h3, dense.delta3, dense.delta4, factors))],
        [(sizes[place], jnp.float32) for place in (2, 4, 5, 6, 7)],
    )
    parts = (g1, gb1, g2, gb2, g3, gb3, g4, gb4)
    return Weights(
        *(jnp.sum(part, axis=1).reshape(models, *size) for part, size in zip(parts, shape.sizes(), strict=True))
    )


def scores(
    shape: Shape,
    table: tuple[Array, ...],
    rows: Array,
    weights: Weights,
    *,
    num_warps: int = 4,
    interpret: bool = False,
) -> Array:
    """Of every model the scores of its examples, (models, examples, classes)."""
    models, batch = rows.shape
    if batch % GROUP:
        raise ValueError(f"the number of examples must be a multiple of {GROUP}, got {batch}")
    launch = _Launch(models, batch // GROUP, interpret)
    planes = [(plane, _whole(plane)) for plane in table]
    half = [(leaf, _per_model(leaf.shape[1])) for leaf in _half(weights)]
    kept = [(_SCRATCH_SIZES[place], _SCRATCH_TYPES[place]) for place in (0, 2, 3)]
    found = launch.call(
        partial(_score_program, _Kernel(shape, interpreted=interpret)),
        "scores",
        num_warps,
        [launch.split(rows), *planes, *half],
        [(GROUP * _OUT, jnp.float32), *kept],
    )[0]
    return found.reshape(models, batch, _OUT)[:, :, : shape.num_classes]
