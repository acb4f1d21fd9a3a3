"""Votes of all shards in one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from expunge.features import Features, num_rows
from expunge.learners.jax.model import JaxModel, row_blocks, vote_program
from expunge.learners.protocol import ABSTAIN, Codes, Model, count_votes
from expunge.learners.scikit import ConstantModel


class JaxVoter:
    """All networks' weights stacked on the device; constants and abstentions are filled in."""

    def __init__(self, models: Sequence[Model], num_classes: int) -> None:
        self._num_classes = num_classes
        networks = [(shard, model) for shard, model in enumerate(models) if isinstance(model, JaxModel)]
        self._shards = np.array([shard for shard, _ in networks], dtype=np.intp)
        self._fixed = np.array(
            [model.code if isinstance(model, ConstantModel) else ABSTAIN for model in models], dtype=np.int32
        )
        self._program: Any = None
        if networks:
            first = networks[0][1]
            stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *(model.parameters for _, model in networks))
            self._stacked = jax.device_put(stacked)
            self._program = vote_program(first.architecture, first.input_scale)  # type: ignore[arg-type]

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
            table[first : first + used, self._shards] = np.asarray(self._program(self._stacked, block))[:used]
            first += used
        return table
