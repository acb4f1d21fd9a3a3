"""Counting the errors of checks on the device; only counts leave it."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from expunge_lab import kernels as fused
from expunge_lab.reproduction.white_box.scoring import Table, fill_up, make_operands, scores_in_parts
from expunge_lab.reproduction.white_box.selection import Ints

_OTHERS = 1.0  # what all models together say about an image weighs as much as one check of its own


class FusedExaminer:
    """An `Examiner` by forward passes of the fused kernel.

    All requests are cut into pieces of `at_once` blocks, so that one program is compiled; they are sent one after
    another and waited for together.
    """

    def __init__(
        self,
        shape: fused.Shape,
        table: Table,
        labels: NDArray[np.int32],
        checks: fused.Weights,
        *,
        block: int,
        at_once: int,
        part: int,
        interpret: bool,
    ) -> None:
        self.num_checks, self.num_models = checks.b1.shape[:2]
        self.num_images, self.block = len(labels), block
        self._shape, self._table = shape, table
        self._operands = make_operands(checks, shape.channels)
        self._labels = jnp.asarray(labels)
        self._at_once, self._part, self._interpret = at_once, part, interpret
        self._order: Any = None

    def study(self, checks: Ints) -> Ints:
        """Forward passes of all models of a check at a time."""
        rows = np.tile(np.arange(self.num_images, dtype=np.int32), (self.num_models, 1))
        padded = jnp.asarray(fill_up(rows, self._part))
        models = jnp.arange(self.num_models, dtype=jnp.int32)
        votes: Any = jnp.zeros((self.num_models, self.num_images), jnp.int32)
        counts = []
        for check in checks.tolist():
            found = scores_in_parts(
                self._table,
                padded,
                self._operands,
                check * self.num_models + models,
                shape=self._shape,
                part=self._part,
                interpret=self._interpret,
            )
            votes, count = _add_errors(votes, found, self._labels)
            counts.append(count)
        self._order = _hardest_first(votes, self.block)
        return np.stack(jax.device_get(counts)).astype(np.int64)

    def count(self, check: Ints, model: Ints, number: Ints) -> Ints:
        """Forward passes of one block a time, many blocks at once; what is missing of a piece repeats block 0."""
        wanted = fill_up(np.stack([check, model, number]).astype(np.int32), self._at_once)
        pieces = np.split(wanted, wanted.shape[1] // self._at_once, axis=1)
        counts = [
            _count_errors(
                self._operands,
                self._order,
                self._table,
                self._labels,
                piece,
                shape=self._shape,
                block=self.block,
                interpret=self._interpret,
            )
            for piece in pieces
        ]
        return np.concatenate(jax.device_get(counts))[: len(check)].astype(np.int64)


@jax.jit  # type: ignore[untyped-decorator]
def _add_errors(votes: Any, scores: Any, labels: Any) -> Any:
    """Who is wrong, added up by image, and of every model how often."""
    wrong = jnp.argmax(scores[:, : len(labels)], axis=2) != labels
    return votes + wrong, jnp.sum(wrong, axis=1)


@partial(jax.jit, static_argnames="block")
def _hardest_first(votes: Any, block: int) -> Any:
    """Of every model an order of the images, filled up with image 0 to whole blocks."""
    hardness = votes + _OTHERS * jnp.mean(votes.astype(jnp.float32), axis=0)
    order = jnp.argsort(-hardness, axis=1, stable=True).astype(jnp.int32)
    return jnp.pad(order, ((0, 0), (0, -order.shape[1] % block)))


@partial(jax.jit, static_argnames=("shape", "block", "interpret"))
def _count_errors(
    operands: fused.Weights,
    order: Any,
    table: Table,
    labels: Any,
    wanted: Any,
    *,
    shape: fused.Shape,
    block: int,
    interpret: bool,
) -> Any:
    check, model, number = wanted
    places = number[:, None] * block + jnp.arange(block)
    rows = order[model[:, None], places]
    owners = check * order.shape[0] + model
    found = fused.owners_scores(shape, table, rows, operands, owners, interpret=interpret)
    wrong = jnp.argmax(found, axis=2) != labels[rows]
    return jnp.sum(wrong & (places < len(labels)), axis=1)
