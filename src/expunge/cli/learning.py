"""The learner that `expunge create` was asked for, fitted to the table's columns."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from expunge.errors import ParameterError

if TYPE_CHECKING:
    from expunge.learners import Learner, SlicedLearner
    from expunge.tables import Schema


def make_learner(
    name: str, *, schema: Schema, features: Any, slices: int, allow_missing: bool
) -> tuple[Learner | SlicedLearner, bool]:
    """The learner, and whether rows may have missing numbers.

    A short name fills gaps, within each shard, where the file has any or `allow_missing` asks for it. A factory's
    learner says itself whether it takes them.
    """
    from expunge.learners import ScikitLearner, SlicedScikitLearner
    from expunge.learners.named import LearnerSpec

    if ":" in name:
        importable_from_here()
    spec = LearnerSpec(name, columns=_kinds(schema))
    learner = spec.make()
    takes_missing = isinstance(learner, ScikitLearner) and _takes_missing(learner.estimator)
    has_gaps = allow_missing or _has_gaps(features)
    if spec.module is None and isinstance(learner, ScikitLearner) and has_gaps and not takes_missing:
        learner, takes_missing = ScikitLearner(_filling(learner.estimator)), True
    if slices > 1:
        if not isinstance(learner, ScikitLearner):
            raise ParameterError(f"--slices needs a scikit-learn classifier, and learner {name!r} is none")
        learner = SlicedScikitLearner(learner.estimator, num_slices=slices)
    return learner, takes_missing or allow_missing


def importable_from_here() -> None:
    """Modules of one's own are looked for in the current folder, too."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())


def _kinds(schema: Schema) -> Any:
    if not schema.has_text:
        return None
    return {feature.name: "category" if feature.kind == "text" else "number" for feature in schema.features}


def _has_gaps(features: Any) -> bool:
    return isinstance(features, np.ndarray) and features.dtype.kind == "f" and bool(np.isnan(features.sum()))


def _takes_missing(estimator: Any) -> bool:
    from sklearn.compose import ColumnTransformer
    from sklearn.pipeline import Pipeline
    from sklearn.utils import get_tags

    steps = [step for _, step in estimator.steps] if isinstance(estimator, Pipeline) else [estimator]
    if isinstance(steps[0], ColumnTransformer):
        return True
    tags = [get_tags(step).input_tags.allow_nan for step in steps if hasattr(step, "__sklearn_tags__")]
    # A scaler lets gaps pass; the classifier behind it has to know what to do with them.
    return len(tags) == len(steps) and all(tags)


def _filling(estimator: Any) -> Any:
    """Gaps filled with the median of the shard, before anything else."""
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import Pipeline

    steps = list(estimator.steps) if isinstance(estimator, Pipeline) else [("classifier", estimator)]
    # A shard may have no value at all in a column; it must keep the column nevertheless.
    return Pipeline([("fill", SimpleImputer(strategy="median", keep_empty_features=True)), *steps])
