"""A deliberately broken unlearner: it skips retraining every tenth touched shard. Every sensible audit must catch it.

It is broken in the one place that no check of the software's own sees: the learner. Asked to train a shard again, it
hands back the shard's previous model every tenth time, so records that were deleted stay in it, while the deployment's
books and its certificate look as they always do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from expunge.errors import ParameterError
from expunge.learners import Learner, Model, ShardData, Voter
from expunge.learners.protocol import Codes, Weights, fit_many, for_classes, make_voter


@dataclass(frozen=True)
class SkippingLearner:
    """Trains like `learner`, but every `every`-th retraining of a shard returns the shard's old model.

    It remembers models, so one object serves one deployment only.
    """

    learner: Learner
    every: int = 10
    _latest: dict[int, Model] = field(default_factory=dict, repr=False)
    _retrainings: list[int] = field(default_factory=lambda: [0], repr=False)

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ParameterError(f"every must be at least 1, got {self.every!r}")

    def for_classes(self, classes: Any) -> SkippingLearner:
        """The same memory, around the learner that knows the classes."""
        return replace(self, learner=for_classes(self.learner, classes))

    def fit(self, X: Any, y: Codes, seed: int, *, weights: Weights | None = None) -> Model:
        """A training on its own, of which nothing is remembered."""
        return self.learner.fit(X, y, seed, weights=weights)

    def fit_many(self, shards: Sequence[ShardData]) -> list[Model]:
        """Train these shards, or pretend to."""
        return [self._fit_shard(data) for data in shards]

    def _fit_shard(self, data: ShardData) -> Model:
        if data.shard in self._latest:
            self._retrainings[0] += 1
            if self._retrainings[0] % self.every == 0:
                return self._latest[data.shard]
        model = fit_many(self.learner, [data])[0]
        self._latest[data.shard] = model
        return model

    def make_voter(self, models: Sequence[Model], num_classes: int) -> Voter:
        """Votes are taken as they always are."""
        return make_voter(self.learner, models, num_classes)
