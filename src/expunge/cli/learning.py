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
    name: str, *, schema: Schema, features: Any, slices: int, allow_missing: bool, on_failure: str
) -> tuple[Learner | SlicedLearner, bool]:
    """The learner, and whether rows may have missing numbers.

    A short name fills gaps, within each shard, where the file has any or `allow_missing` asks for it. A factory's
    learner says itself whether it takes them.
    """
    if on_failure not in ("raise", "abstain"):
        raise ParameterError(f"--on-failure must be raise or abstain, got {on_failure!r}")
    from expunge.learners import AbstainingLearner, ScikitLearner, SlicedScikitLearner
    from expunge.learners.named import LearnerSpec, named_learner, takes_gaps

    learner: Learner | SlicedLearner
    fills_gaps = ":" not in name and (allow_missing or _has_gaps(features))
    if ":" in name:
        importable_from_here()
        learner = LearnerSpec(name).make()
    else:
        learner = named_learner(name, columns=_kinds(schema), fills_gaps=fills_gaps)
    may_have_gaps = allow_missing or fills_gaps or takes_gaps(learner)
    if slices > 1:
        if not isinstance(learner, ScikitLearner):
            raise ParameterError(f"--slices needs a scikit-learn classifier, and learner {name!r} is none")
        try:
            learner = SlicedScikitLearner(learner.estimator, num_slices=slices)
        except ParameterError as error:
            raise ParameterError(f"--slices does not go with --learner {name}: {error}") from error
    return AbstainingLearner(learner) if on_failure == "abstain" else learner, may_have_gaps


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
