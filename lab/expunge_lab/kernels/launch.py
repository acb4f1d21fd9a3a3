"""Clipped sums of gradients, and scores, of many models: kernels one after another over one grid.

Weights are first put into the orders in which the kernels multiply with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

from expunge.training.learners.jax.layers import Array
from expunge_lab.kernels.kernel import Kernel
from expunge_lab.kernels.layout import FIRST, GRID, GROUP, OUT, SECOND, STEPS, Shape, Weights
from expunge_lab.kernels.pictures import SEEN, Pictures, field_parts
from expunge_lab.kernels.programs import (
    clip_program,
    delta_program,
    forward_program,
    score_program,
    sum_program,
)
from expunge_lab.kernels.scratch import DENSE_WIDTHS, SCRATCH_SIZES, SCRATCH_TYPES, Dense, Own
from expunge_lab.kernels.tuning import USUAL, Tuning, Tunings


def forward_operands(weights: Weights, channels: int) -> Weights:
    """Matrices in bfloat16, biases in float32; both convolutions' filters in the forward pass's order."""
    half = [leaf.astype(jnp.bfloat16) if number % 2 == 0 else leaf for number, leaf in enumerate(weights)]
    found = Weights(*half)
    return found._replace(w1=_over_blocks(found.w1, channels), w2=_pairs_of_taps(found.w2))


def turned_taps(w2: Array) -> Array:
    """Of the second convolution, every tap turned, in bfloat16: (models, 4 taps, 32, 16 · 4 parities)."""
    return w2.astype(jnp.bfloat16).reshape(w2.shape[0], 4, GRID, SECOND).swapaxes(2, 3)


def moving_matrices(direction: int) -> Array:
    """For every one of STEPS, flat: a matrix that moves the rows of a table up (1) or down (-1); zeros follow.

    They are an input of the kernels, since the compiler keeps in registers what a program makes itself.
    """
    rows = np.arange(GRID)
    matrices = [rows[None, :] == rows[:, None] + direction * step for step in STEPS]
    return jnp.asarray(np.stack(matrices), jnp.bfloat16).reshape(-1)


def _over_blocks(w1: Array, channels: int) -> Array:
    """The first convolution's filters over all that a block sees: (models, pixels, 4 parities · 16)."""
    models = w1.shape[0]
    filters = w1.reshape(models, channels, 8, 8, FIRST)
    found = []
    for down in (0, 2):
        for across in (0, 2):
            place = ((0, 0), (0, 0), (down, 2 - down), (across, 2 - across), (0, 0))
            found.append(jnp.pad(filters, place).reshape(models, channels * SEEN * SEEN, FIRST))
    more = sum(field_parts(channels)) - channels * SEEN * SEEN
    return jnp.pad(jnp.concatenate(found, axis=2), ((0, 0), (0, more), (0, 0)))


def _pairs_of_taps(w2: Array) -> Array:
    """Of the second convolution, two taps side by side: (models, 2, 4 parities · 16, 2 taps · 32)."""
    models = w2.shape[0]
    cut = w2.reshape(models, 2, 2, FIRST, 4, SECOND).transpose(0, 1, 4, 3, 2, 5)
    return cut.reshape(models, 2, GRID, 2 * SECOND)


@dataclass(frozen=True)
class _Array:
    """A flat array that all programs see, and how many of its values belong to a program or a model (or all to all)."""

    values: Array | jax.ShapeDtypeStruct
    of_program: int | None = None
    of_model: int | None = None

    def own(self, ref: Any, model: Array, program: Array) -> Any:
        """What a program has of it."""
        if self.of_model is not None:
            return Own(ref, model * self.of_model)
        return ref if self.of_program is None else Own(ref, program * self.of_program)


def _of_models(values: Array) -> _Array:
    return _Array(values.reshape(-1), of_model=int(np.prod(values.shape[1:])))


def _forward_inputs(table: Pictures, operands: Weights) -> list[_Array]:
    """What the convolutions need: matrices that move rows, pictures, and weights."""
    return [_Array(moving_matrices(1)), _Array(table.fields), *map(_of_models, operands)]


@dataclass(frozen=True)
class _Launch:
    """Programs of one grid: a group of examples of a model each.

    With `owners`, a line of the grid has the weights of the model with that number instead of its own.
    """

    shape: Shape
    models: int
    groups: int
    tunings: Tunings
    interpret: bool
    owners: Array | None = None

    def call(self, program: Any, name: str, inputs: list[_Array], outs: list[tuple[int, Any]]) -> list[Array]:
        """Run `program`; `outs` are (size, type) of what each program writes. Outputs are (models, groups, size)."""
        tuning: Tuning = getattr(self.tunings, name)
        kernel = Kernel(self.shape, tuning, interpreted=self.interpret)
        count = self.models * self.groups
        written = [_Array(jax.ShapeDtypeStruct((count * size,), kind), of_program=size) for size, kind in outs]
        if max(array.values.size for array in [*inputs, *written]) >= 2**31:
            raise ValueError(f"{self.models} models of {self.groups * GROUP} examples are too many for one call")
        num_arrays = len(inputs) + len(written)
        owners = [] if self.owners is None else [_Array(self.owners)]
        arrays, inputs = [*inputs, *written], [*owners, *inputs]

        def body(*refs: Any) -> None:
            model, group = pl.program_id(0), pl.program_id(1)
            if tuning.bounded:
                model, group = _bounded(model, self.models), _bounded(group, self.groups)
            number = model * self.groups + group
            owner = refs[0][model] if owners else model
            own = zip(arrays, refs[-num_arrays:], strict=True)
            program(kernel, *(array.own(ref, owner, number) for array, ref in own))

        run = pl.pallas_call(
            body,
            grid=(self.models, self.groups),
            in_specs=[_everything(array) for array in inputs],
            out_specs=[_everything(array) for array in written],
            out_shape=[array.values for array in written],
            interpret=self.interpret,
            compiler_params=plgpu.CompilerParams(num_warps=tuning.num_warps, num_stages=tuning.num_stages),
            name=name,
        )
        found = run(*(array.values for array in inputs))
        return [values.reshape(self.models, self.groups, -1) for values in found]

    def split(self, array: Array) -> _Array:
        """(models, batch), a group a program."""
        return _Array(array.reshape(-1), of_program=GROUP)


def _everything(array: _Array) -> pl.BlockSpec:
    return pl.BlockSpec(array.values.shape, lambda model, group: (0,))


def _bounded(number: Array, end: int) -> Array:
    """The same number, whose bound the compiler can see (`Tuning.bounded`)."""
    return number & ((1 << max(end - 1, 1).bit_length()) - 1)


def _own(array: Array) -> _Array:
    """What an earlier kernel's program left for the same program of the next."""
    return _Array(array.reshape(-1), of_program=array.shape[2])


def clipped_sums(
    shape: Shape,
    table: Pictures,
    rows: Array,
    labels: Array,
    weights: Weights,
    *,
    clip_norm: float,
    tunings: Tunings = USUAL,
    interpret: bool = False,
) -> Weights:
    """Of every model the sum of its examples' clipped gradients; rows (models, batch) are places in the table."""
    models, batch = rows.shape
    if batch % GROUP:
        raise ValueError(f"the batch must be a multiple of {GROUP}, got {batch}")
    launch = _Launch(shape, models, batch // GROUP, tunings, interpret)
    kept = list(zip(SCRATCH_SIZES, SCRATCH_TYPES, strict=True))
    dense_outs = [(GROUP * width, jnp.float32) for width in DENSE_WIDTHS]
    found = launch.call(
        forward_program,
        "forward",
        [launch.split(rows), launch.split(labels), *_forward_inputs(table, forward_operands(weights, shape.channels))],
        kept[:5] + dense_outs,
    )
    a1, win1, a2, win2, da2 = found[:5]
    dense = Dense(*found[5:])
    sizes = [int(np.prod(size)) for size in shape.sizes()]
    outs = [(sizes[0], jnp.float32), (FIRST, jnp.float32), (GROUP, jnp.float32)]
    d2, d1 = launch.call(
        delta_program,
        "deltas",
        [_of_models(turned_taps(weights.w2)), _Array(moving_matrices(-1)), *map(_own, (a1, win2, da2))],
        kept[5:],
    )
    g1, gb1, factors = launch.call(
        partial(clip_program, clip_norm),
        "clip",
        [launch.split(rows), *map(_Array, table.strips), *map(_own, (a1, win1, d2, d1, dense.norms))],
        outs,
    )
    g2, gb2, g3, gb3, g4, gb4 = launch.call(
        sum_program,
        "sums",
        [*map(_own, (a1, d2, a2, dense.h3, dense.delta3, dense.delta4, factors))],
        [(sizes[place], jnp.float32) for place in range(2, 8)],
    )
    parts = (g1, gb1, g2, gb2, g3, gb3, g4, gb4)
    sums = [jnp.sum(part, axis=1) for part in parts]
    # The second convolution's are (16 · 4 parities, 4 taps · 32).
    sums[2] = sums[2].reshape(models, GRID, 4, SECOND).swapaxes(1, 2)
    return Weights(*(total.reshape(models, *size) for total, size in zip(sums, shape.sizes(), strict=True)))


def scores(
    shape: Shape,
    table: Pictures,
    rows: Array,
    weights: Weights,
    *,
    tunings: Tunings = USUAL,
    interpret: bool = False,
) -> Array:
    """Of every model the scores of its examples, (models, examples, classes)."""
    operands = forward_operands(weights, shape.channels)
    owners = jnp.arange(rows.shape[0], dtype=jnp.int32)
    return owners_scores(shape, table, rows, operands, owners, tunings=tunings, interpret=interpret)


def owners_scores(
    shape: Shape,
    table: Pictures,
    rows: Array,
    operands: Weights,
    owners: Array,
    *,
    tunings: Tunings = USUAL,
    interpret: bool = False,
) -> Array:
    """The same by the models with these numbers, one for each line of `rows`; `operands` are made once for all."""
    lines, batch = rows.shape
    if batch % GROUP:
        raise ValueError(f"the number of examples must be a multiple of {GROUP}, got {batch}")
    launch = _Launch(shape, lines, batch // GROUP, tunings, interpret, owners)
    found = launch.call(
        score_program,
        "scores",
        [launch.split(rows), *_forward_inputs(table, operands)],
        [(GROUP * OUT, jnp.float32), (SCRATCH_SIZES.a2, SCRATCH_TYPES.a2)],
    )[0]
    return found.reshape(lines, batch, OUT)[:, :, : shape.num_classes]
