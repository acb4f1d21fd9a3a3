"""What rows an estimator takes: gaps, sparse matrices and texts, and the form in which they reach it."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.utils import get_tags

from expunge.core.features import Features, as_features, is_sparse
from expunge.training.learners import ExactLearner, UnlearningForest


def accepts_missing(estimator: Any) -> bool:
    """Whether the estimator can deal with NaN; in a Pipeline, every step up to the first that does not let NaN pass."""
    if isinstance(estimator, ExactLearner):
        return estimator.has_gaps
    if isinstance(estimator, ColumnTransformer | UnlearningForest):
        return True
    if isinstance(estimator, Pipeline):
        steps = [step for _, step in estimator.steps if step not in (None, "passthrough")]
        passing = list(takewhile(_lets_missing_pass, steps))
        return all(map(accepts_missing, [*passing, *steps[len(passing) :][:1]]))
    return hasattr(estimator, "__sklearn_tags__") and bool(get_tags(estimator).input_tags.allow_nan)


def _lets_missing_pass(step: Any) -> bool:
    """Whether NaN leaves the step as NaN, as it leaves a scaler. An encoder makes a category of it."""
    return type(step).__module__.startswith("sklearn.preprocessing") and not isinstance(step, OneHotEncoder)


def accepts_sparse(estimator: Any) -> bool:
    """Whether the estimator takes sparse matrices."""
    return not hasattr(estimator, "__sklearn_tags__") or bool(get_tags(estimator).input_tags.sparse)


def with_values(X: Any, checks: dict[str, Any]) -> Any:
    """Lists as rows of Python values where any type may be: scikit-learn turns numbers beside texts into texts."""
    return as_features(X) if isinstance(X, list | tuple) and checks["dtype"] is None else X


def narrowed(table: Features) -> Features:
    """Sparse indices as 32 bits where they fit, because many estimators take no others."""
    if is_sparse(table) and table.indices.dtype == np.int64 and max(table.nnz, *table.shape) < 2**31:
        table = table.copy()
        table.indices, table.indptr = table.indices.astype(np.int32), table.indptr.astype(np.int32)
    return table


def takes_texts(estimator: Any) -> bool:
    """Whether a row may be a text."""
    first = estimator.steps[0][1] if isinstance(estimator, Pipeline) else estimator
    return hasattr(first, "__sklearn_tags__") and bool(get_tags(first).input_tags.string)
