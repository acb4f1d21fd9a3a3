"""A learner that has no opinion where another one fails.

Whatever a user calls a model, as a learner.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone

from expunge.core.errors import ParameterError
from expunge.core.features import Features
from expunge.training.learners.protocol import (
    Abstainer,
    Codes,
    Learner,
    Model,
    ShardData,
    SharedShard,
    SlicedLearner,
    Voter,
    Weights,
    for_classes,
    make_voter,
)
from expunge.training.learners.scikit import ScikitLearner
from expunge.training.learners.slices import SlicedScikitLearner


def as_learner(estimator: Any) -> Learner | SlicedLearner:
    """A scikit-learn classifier as a learner; a learner as it is.

    Of a scikit-learn estimator only its settings are kept: one that was fitted before holds what it was fitted on,
    which no later deletion would reach.
    """
    if isinstance(estimator, BaseEstimator):
        return _unfitted(ScikitLearner(estimator))
    if isinstance(estimator, ScikitLearner | SlicedScikitLearner):
        return _unfitted(estimator)
    if isinstance(estimator, SlicedLearner | Learner) and not isinstance(estimator, type):
        return estimator
    raise ParameterError(f"estimator must be a scikit-learn classifier or a Learner, got {estimator!r}")


def _unfitted(learner: ScikitLearner | SlicedScikitLearner) -> ScikitLearner | SlicedScikitLearner:
    try:
        return replace(learner, estimator=clone(learner.estimator))
    except (RuntimeError, TypeError) as error:
        raise ParameterError(f"the estimator cannot be cloned: {error}") from error


_MACHINES = (MemoryError, OSError)
_DEVICES = ("RESOURCE_EXHAUSTED", "CUDA out of memory")  # as errors of JAX and PyTorch begin, which quote no record


@dataclass(frozen=True)
class AbstainingLearner:
    """Trains as `learner` does; a shard on which that fails votes ⊥, as if it were empty.

    Otherwise a failure is an error: the operator is told, and the requests behind it wait. Take this one where people
    may add records of their own. Whether a record that breaks the training is in any shard depends on r, and so would
    whether its request is ever applied; and a single one would hold up everybody's requests. A model is still a
    function of the shard's records and its seed, which is all that the theorems ask of it.

    What the machine lacks, memory or a disk, stays an error. So does a learner that fails on every shard of a new
    deployment; later it does not, for a record might have brought that about.
    """

    learner: Any

    def __post_init__(self) -> None:
        learner = as_learner(self.learner)
        if isinstance(learner, SlicedLearner):
            raise ParameterError("a learner with slices cannot abstain: what a failed slice leaves is no checkpoint")
        object.__setattr__(self, "learner", learner)

    def for_classes(self, classes: NDArray[Any]) -> AbstainingLearner:
        """The same, told what the class codes stand for."""
        return replace(self, learner=for_classes(self.learner, classes))

    def fit(self, X: Features, y: Codes, seed: int, *, weights: Weights | None = None) -> Model:
        """The learner's model, or none."""
        try:
            model: Model = self.learner.fit(X, y, seed, weights=weights)
        except Exception as error:
            if _is_the_machines(error):
                raise
            return Abstainer()
        return model

    def fit_many(self, shards: Sequence[ShardData | SharedShard]) -> list[Model]:
        """All together where the learner can, one by one where that fails."""
        if hasattr(self.learner, "fit_many"):
            try:
                return list(self.learner.fit_many(shards))
            except Exception as error:
                if _is_the_machines(error):
                    raise
        return [self.fit(data.X, data.y, data.seed, weights=data.weights) for data in shards]

    def make_voter(self, models: Sequence[Model], num_classes: int) -> Voter:
        """The learner's own."""
        return make_voter(self.learner, models, num_classes)

    def __getattr__(self, name: str) -> Any:
        """Whatever else the learner may offer: how its models are stored, in which numbers it likes its shards."""
        if name.startswith("__") or name == "learner":
            raise AttributeError(name)
        return getattr(self.learner, name)


def _is_the_machines(error: Exception) -> bool:
    return isinstance(error, _MACHINES) or (isinstance(error, RuntimeError) and str(error).startswith(_DEVICES))
