"""Whatever a user calls a model, as a learner."""

from __future__ import annotations

from typing import Any

from sklearn.base import BaseEstimator

from expunge.errors import ParameterError
from expunge.learners.protocol import Learner, SlicedLearner
from expunge.learners.scikit import ScikitLearner


def as_learner(estimator: Any) -> Learner | SlicedLearner:
    """A scikit-learn classifier as a learner; a learner as it is."""
    if isinstance(estimator, BaseEstimator):
        return ScikitLearner(estimator)
    if isinstance(estimator, SlicedLearner | Learner):
        return estimator
    raise ParameterError(f"estimator must be a scikit-learn classifier or a Learner, got {estimator!r}")
