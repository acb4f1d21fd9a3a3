"""How pictures and weights lie in memory.

All pictures live on an 8 × 8 grid of 2 × 2 blocks, row = 8·i + j. The first convolution's outputs, at most 16 × 16, are
four tables (64 blocks, 16 channels), one for each place within a block, called the parity. A pool of window 2 and
stride 1 then compares whole tables, some of them moved by one block, which is by 1, 8 or 9 rows. The second convolution
has filters of 4 × 4 and stride 2: it is four taps, each a block with all its parities, so again tables moved by 0, 1, 8
and 9 rows. What lies outside of a picture is masked where it could do harm.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from expunge.training.learners.jax.layers import Array

GROUP = 16  # examples of a program
GRID = 64  # 8 × 8 blocks
SIDE = 8
FIRST, SECOND, HIDDEN, OUT = 16, 32, 32, 16  # widths of the layers; the last is padded from the classes
FILTER = 64  # 8 × 8 pixels
PIECE = 4 * SECOND  # four columns of a row of the second pool's output
PAD = 16  # rows before a table, for rows that are moved backwards

MOVES = (0, 1, SIDE, SIDE + 1)
STEPS = (0, SIDE)  # those that are made by a product; by one, threads hand on what they hold
# Of every parity of the pool's output, the four candidates in window order: (parity, rows moved).
CANDIDATES = (
    ((0, 0), (1, 0), (2, 0), (3, 0)),
    ((1, 0), (0, 1), (3, 0), (2, 1)),
    ((2, 0), (3, 0), (0, 8), (1, 8)),
    ((3, 0), (2, 1), (1, 8), (0, 9)),
)
TABLES = tuple(dict.fromkeys(candidate for four in CANDIDATES for candidate in four))


class Weights(NamedTuple):
    """The weights of many models in the kernel's order; models first. `native` and `standard` convert."""

    w1: Array  # (channels · 64, 16)
    b1: Array
    w2: Array  # (4 taps · 16 · 4 parities, 32)
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
            (self.channels * FILTER, FIRST),
            (FIRST,),
            (4 * GRID, SECOND),
            (SECOND,),
            (self.num_pieces * PIECE, HIDDEN),
            (HIDDEN,),
            (HIDDEN, OUT),
            (OUT,),
        )
        return Weights(*shapes)


def native(parameters: Any, shape: Shape) -> Weights:
    """Weights of `paper_network`, models first, in the kernel's order."""
    first, second, third, fourth = [layer for layer in parameters if layer]
    models = first["bias"].shape[0]
    w1 = first["weights"].transpose(0, 3, 1, 2, 4).reshape(models, -1, FIRST)
    cut = second["weights"].reshape(models, 2, 2, 2, 2, FIRST, SECOND)  # tap and place of rows, then of columns
    w2 = cut.transpose(0, 1, 3, 5, 2, 4, 6).reshape(models, 4 * GRID, SECOND)
    last = shape.last_side
    w3 = third["weights"].reshape(models, last, last, SECOND, HIDDEN)
    w3 = jnp.pad(w3, ((0, 0), (0, 0), (0, shape.columns - last), (0, 0), (0, 0))).reshape(models, -1, HIDDEN)
    more = OUT - shape.num_classes
    w4 = jnp.pad(fourth["weights"], ((0, 0), (0, 0), (0, more)))
    b4 = jnp.pad(fourth["bias"], ((0, 0), (0, more)))
    return Weights(w1, first["bias"], w2, second["bias"], w3, third["bias"], w4, b4)


def standard(weights: Weights, shape: Shape) -> Any:
    """The inverse of `native`: the layers of `paper_network`."""
    models = weights.b1.shape[0]
    w1 = weights.w1.reshape(models, shape.channels, 8, 8, FIRST).transpose(0, 2, 3, 1, 4)
    w2 = weights.w2.reshape(models, 2, 2, FIRST, 2, 2, SECOND).transpose(0, 1, 4, 2, 5, 3, 6)
    w2 = w2.reshape(models, 4, 4, FIRST, SECOND)
    last = shape.last_side
    w3 = weights.w3.reshape(models, last, shape.columns, SECOND, HIDDEN)[:, :, :last].reshape(models, -1, HIDDEN)
    w4, b4 = weights.w4[:, :, : shape.num_classes], weights.b4[:, : shape.num_classes]
    layers: list[dict[str, Array]] = [{} for _ in range(10)]
    for number, (w, b) in {0: (w1, weights.b1), 3: (w2, weights.b2), 7: (w3, weights.b3), 9: (w4, b4)}.items():
        layers[number] = {"weights": w, "bias": b}
    return layers


def at(rows: int, width: int, start: Any, stride: int | None = None) -> Array:
    """Flat places of a table of `rows` rows of `width` values from `start` on."""
    down = jax.lax.broadcasted_iota(jnp.int32, (rows, width), 0)
    across = jax.lax.broadcasted_iota(jnp.int32, (rows, width), 1)
    return start + down * (width if stride is None else stride) + across


def piece_places(shape: Shape, piece: Array) -> Array:
    """Where four columns of a row of the last pictures of all examples are: (GROUP, 4 · 32)."""
    is_half = shape.columns == SIDE  # a row is one piece of four columns, or two
    block = jax.lax.div(piece, jnp.int32(2)) * SIDE + (piece & 1) * 4 if is_half else piece * SIDE
    return at(GROUP, PIECE, (PAD + block) * SECOND, GRID * SECOND)
