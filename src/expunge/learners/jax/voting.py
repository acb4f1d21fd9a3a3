"""Votes of all shards in one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from expunge.features import Features, num_rows
from expunge.learners.jax._memory import largest_fitting, program_bytes
from expunge.learners.jax.model import JaxModel, row_blocks, vote_program
from expunge.learners.protocol import ABSTAIN, Codes, Model, count_votes
from expunge.learners.scikit import ConstantModel


class JaxVoter:
    """All networks' weights stacked on the device; constants and abstentions are filled in.

    With `memory` (bytes) the weights are sent there for every block of rows, as many models together as fit.
    """

    def __init__(self, models: Sequence[Model], num_classes: int, *, memory: int | None = None) -> None:
        self._num_classes, self._memory = num_classes, memory
        networks = [(shard, model) for shard, model in enumerate(models) if isinstance(model, JaxModel)]
        self._shards = np.array([shard for shard, _ in networks], dtype=np.intp)
        self._fixed = np.array(
            [model.code if isinstance(model, ConstantModel) else ABSTAIN for model in models], dtype=np.int32
        )
        self._program: Any = None
        if networks:
            first = networks[0][1]
            stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *(model.parameters for _, model in networks))
            self._stacked = stacked if memory is not None else jax.device_put(stacked)
            self._program = vote_program(first.architecture, first.input_scale)  # type: ignore[arg-type]
        self._fitting: dict[Any, int] = {}

    def count(self, X: Features) -> NDArray[np.int64]:
        """Votes for each class."""
        return count_votes(self.votes(X), self._num_classes)

    def votes(self, X: Features) -> Codes:
        """Every shard's vote."""
        table = np.tile(self._fixed, (num_rows(X), 1))
        if self._program is None:
            return table
        first = 0
        for block, used in row_blocks(X):
            table[first : first + used, self._shards] = self._ask(block)[:used]
            first += used
        return table

    def _ask(self, block: NDArray[Any]) -> Codes:
        """(rows, models)."""
        number = len(self._shards)
        size = self._models_at_once(block)
        if size == number:
            return np.asarray(self._program(self._stacked, block))
        votes = []
        for start in range(0, number, size):
            places = np.minimum(np.arange(start, start + size), number - 1)  # always as many: one program
            votes.append(np.asarray(self._program(self._chosen(places), block)))
        return np.concatenate(votes, axis=1)[:, :number]

    def _models_at_once(self, block: NDArray[Any]) -> int:
        number, key = len(self._shards), (block.shape, block.dtype)
        if self._memory is None:
            return number
        if key not in self._fitting:
            self._fitting[key] = largest_fitting(
                lambda models: self._bytes(models, block), self._memory, most=number, purpose="ask"
            )
        return self._fitting[key]

    def _bytes(self, models: int, block: NDArray[Any]) -> int:
        return program_bytes(self._program.lower(self._chosen(np.zeros(models, np.intp)), block).compile())

    def _chosen(self, places: NDArray[np.intp]) -> Any:
        return jax.tree.map(lambda leaves: leaves[places], self._stacked)
