"""A copy of what is in service, for other programs: the models alone, without records and without the recipe key.

Under the exact promise it is the ensemble, and under a student the student. The other promises publish one charged
answer after another, so nothing that answers may leave. A copy is outside every promise: deletions do not reach it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from expunge.core.errors import InputError, NotPublishedError, ParameterError
from expunge.core.features import Features, as_features, conform, missing_rows, take
from expunge.privacy.mechanisms.consensus import plurality
from expunge.serving.publishing import StudentFront, StudentRound
from expunge.training.learners import AbstainingLearner, SlicedModel
from expunge.training.learners.protocol import (
    Combination,
    Cut,
    Learner,
    Model,
    OneByOneVoter,
    combine_values,
    for_classes,
    likeliest,
    make_voter,
    mean_probabilities,
    predicts_values,
)

#: Stands wherever a copy is written.
NOTICE = (
    "This is a copy of what was in service. Deletions do not reach it: after every deletion that is applied, make it "
    "anew and stop using this one. No promise covers a copy that is kept."
)


@dataclass(frozen=True)
class Copy:
    """What answers, as it was when the copy was made. `copy_of` makes it.

    Parameters
    ----------
    models
        The models: of every shard, or the student alone.
    learner
        What trained them, told the classes.
    classes
        The labels; empty for a regressor.
    pattern
        No rows, in the layout and the number types of the records.
    layout
        The kind of the rows, and their columns.
    allow_missing
        Whether rows may have gaps.
    outputs
        The shape of what a regressor predicts for a row: () for one number, (m,) for m.
    combination
        How the values of regressors become one.
    cut
        The code of a class, and the probability from which on it is the answer; None for the likeliest class.
    kind
        "ensemble" or "student".
    round
        The round that was in service.
    """

    models: tuple[Model, ...]
    learner: Any
    classes: NDArray[Any]
    pattern: Features
    layout: tuple[str, tuple[Any, ...]]
    allow_missing: bool
    outputs: tuple[int, ...]
    combination: Combination
    cut: Cut | None
    kind: str
    round: int

    @property
    def is_regression(self) -> bool:
        """Whether numbers are predicted."""
        return predicts_values(self.learner)

    @property
    def has_probabilities(self) -> bool:
        """Whether every model has probabilities."""
        return all(hasattr(model, "probabilities") for model in self.models)

    def predict(self, X: Features) -> NDArray[Any]:
        """Labels or numbers, as what was in service gave them.

        Parameters
        ----------
        X
            The rows.

        Returns
        -------
        array
            A label for each row, None where every model abstains; or the numbers that a regressor predicts.

        Raises
        ------
        InputError
            If the rows do not fit the records that the models were trained on.
        """
        rows = self._rows(X)
        if self.is_regression:
            found = combine_values(self.models, rows, math.prod(self.outputs), self.combination)
            return found.reshape(len(found), *self.outputs)
        if self.kind == "student":
            codes = np.asarray(self.models[0].predict(rows), dtype=np.int64)
        elif self.cut is not None or self.has_probabilities:
            table, voter = self._probabilities(rows), self._voter
            table = voter.margins(table) if self.cut is None and hasattr(voter, "margins") else table
            codes = likeliest(table, self.cut)
        else:
            counts = self._voter.count(rows)
            codes = np.where(counts.any(axis=1), plurality(counts), -1)
        labels = self.classes[np.maximum(codes, 0)]
        if (codes < 0).any():
            labels = labels.astype(object)
            labels[codes < 0] = None
        return labels

    def predict_proba(self, X: Features) -> NDArray[np.float64]:
        """The mean of the models' probabilities, or the shares of their votes where a model has none.

        Parameters
        ----------
        X
            The rows.

        Returns
        -------
        ndarray of float64, shape (rows, classes)
            In the order of `classes`; NaN in rows on which every model abstains.

        Raises
        ------
        ParameterError
            If numbers are predicted.
        InputError
            If the rows do not fit the records that the models were trained on.
        """
        if self.is_regression:
            raise ParameterError("no predict_proba: this is a copy of a regressor")
        return self._probabilities(self._rows(X))

    def _probabilities(self, rows: Features) -> NDArray[np.float64]:
        found = mean_probabilities(self._voter, self.models, rows, len(self.classes))
        if found is not None:
            return found
        counts = self._voter.count(rows).astype(np.float64)
        with np.errstate(invalid="ignore"):
            return np.asarray(counts / counts.sum(axis=1, keepdims=True))

    @property
    def _voter(self) -> Any:
        if self.kind == "student":
            return OneByOneVoter(self.models, len(self.classes))
        return make_voter(self.learner, self.models, len(self.classes))

    def _rows(self, X: Features) -> Features:
        rows = conform(as_features(X), self.layout, self.pattern)
        if not self.allow_missing and len(missing := missing_rows(rows)):
            raise InputError(f"rows must not hold NaN or infinity: row {missing[0] + 1:,} does")
        return rows


def copy_of(model: Any) -> Copy:
    """A copy of what is in service, without the records that it learned from.

    Models that consist of their records, such as nearest neighbours, bring these with them.

    Parameters
    ----------
    model
        A fitted `UnlearningClassifier` or `UnlearningRegressor`, a `Deployment`, or a folder that `expunge.open` gave.

    Returns
    -------
    Copy
        The ensemble under the exact promise, and the student under a student.

    Raises
    ------
    NotPublishedError
        Under any other promise.
    ParameterError
        If the model is of another kind, is not fitted, or has several labels a record.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from expunge import UnlearningClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = UnlearningClassifier(n_shards=3, random_state=0).fit(X, y)
    >>> copy = copy_of(model)
    >>> bool((copy.predict_proba(X) == model.predict_proba(X)).all())
    True
    """
    deployment = getattr(model, "deployment_", model)
    if isinstance(getattr(model, "classes_", None), list):
        raise ParameterError("no copy of a classifier with several labels a record")
    if not hasattr(deployment, "inside"):
        raise ParameterError(f"a fitted estimator of expunge or a deployment is needed, got {type(model).__name__}")
    present = deployment.inside
    state, serving = present.state, present.serving
    models: Sequence[Model] = tuple(state.models) if deployment.is_exact else ()
    learner: Any = state.learner
    kind = "ensemble"
    if not deployment.is_exact:
        if not isinstance(serving, StudentRound):
            raise NotPublishedError(
                "no copy under this promise: its answers are given and charged one by one; "
                "use promise='exact', or a Student, which may be given away"
            )
        models, kind = (serving.model,), "student"
        front = deployment.front
        assert isinstance(front, StudentFront)
        learner = for_classes(cast("Learner", front.student), state.records.classes)
    if isinstance(learner, AbstainingLearner):
        learner = learner.learner
    if not hasattr(learner, "dump_model"):  # such a learner stores a sliced model as a whole
        models = [each.final if isinstance(each, SlicedModel) else each for each in models]
    records = state.records
    return Copy(
        models=tuple(models),
        learner=learner,
        classes=records.classes,
        pattern=take(records.blocks[0].features, np.empty(0, dtype=np.intp)),
        layout=records.layout,
        allow_missing=records.allow_missing,
        outputs=records.outputs or (),
        combination=getattr(serving, "combine", "mean"),
        cut=getattr(serving, "cut", None),
        kind=kind,
        round=present.round,
    )
