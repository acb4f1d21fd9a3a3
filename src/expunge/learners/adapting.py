"""Whatever a user calls a model, as a learner."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sklearn.base import BaseEstimator, clone

from expunge.errors import ParameterError
from expunge.learners.protocol import Learner, SlicedLearner
from expunge.learners.scikit import ScikitLearner
from expunge.learners.slices import SlicedScikitLearner


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
