"""What crosses the boundary in an audit: the paper's labels with ⊥, or whole models."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from expunge.ensemble import EnsembleState
from expunge.features import Features, num_rows
from expunge.learners import Model


@dataclass(frozen=True)
class PublishVotes:
    """Mode of the shards' answers on fixed points, with ⊥ as an answer like any other (Section 5.1).

    This is what the paper's SISA example publishes, and only audits do: a deployment never releases ⊥. Ties go to the
    lowest answer, with ⊥ lowest.
    """

    points: Features

    def __call__(self, round_number: int, state: EnsembleState) -> NDArray[np.int64]:
        """The winning class code at every point, `ABSTAIN` where ⊥ wins."""
        counts = state.count_votes(self.points)
        silent = state.num_shards - counts.sum(axis=1)
        winners: NDArray[np.int64] = np.argmax(np.column_stack([silent, counts]), axis=1) - 1
        assert len(winners) == num_rows(self.points)
        return winners


@dataclass(frozen=True)
class PublishedModels:
    """The full-model setting: every shard's model, in the order of the shards. Who is in which shard stays hidden."""

    models: tuple[Model, ...]
    num_classes: int
