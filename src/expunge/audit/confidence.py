"""How sure models are of a label: class probabilities where a model exposes them, its vote where it does not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expunge.features import Features, num_rows
from expunge.learners import Model, ScikitModel

Probabilities = NDArray[np.float64]


def class_probabilities(model: Model, points: Features, num_classes: int) -> Probabilities:
    """Shape (rows, classes). A model without probabilities is certain of its vote; ⊥ gives every class nothing."""
    if isinstance(model, ScikitModel) and hasattr(model.estimator, "predict_proba"):
        own = np.asarray(model.estimator.classes_)
        codes = own if model.classes is None else np.searchsorted(model.classes, own)
        return _spread(np.asarray(model.estimator.predict_proba(points)), codes, num_classes)
    if hasattr(model, "predict_proba"):
        return np.asarray(model.predict_proba(points), dtype=np.float64)
    votes = np.asarray(model.predict(points), dtype=np.int64)
    certain = np.zeros((len(votes), num_classes))
    voting = np.flatnonzero(votes >= 0)
    certain[voting, votes[voting]] = 1.0
    return certain


def own_label_confidence(models: Sequence[Model], points: Features, codes: Any, num_classes: int) -> Probabilities:
    """How sure each model is of each point's own label: shape (models, rows)."""
    rows = np.arange(num_rows(points))
    return np.stack([class_probabilities(model, points, num_classes)[rows, codes] for model in models])


def _spread(given: NDArray[Any], codes: NDArray[Any], num_classes: int) -> Probabilities:
    """Columns of a model that has not seen every class, put where they belong."""
    if given.shape[1] == num_classes:
        return given.astype(np.float64, copy=False)
    full = np.zeros((len(given), num_classes))
    full[:, codes.astype(np.int64)] = given
    return full
