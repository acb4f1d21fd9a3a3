"""Scikit-learn classifiers that give a record several labels at once.

Their opinions are numbers: for each output the probability of each of its classes, side by side in one row. So they are
learned, averaged and retrained as a regressor's values are. The labels of the records are class codes, one a column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier
from sklearn.utils import get_tags

from expunge.core.errors import ParameterError
from expunge.core.features import Features, num_rows
from expunge.training.learners.protocol import Floats, Weights
from expunge.training.learners.scikit import ScikitLearner, weight_arguments


@dataclass(frozen=True)
class MultiOutputModel:
    """A fitted classifier with several outputs. `MultiOutputLearner` makes it.

    Parameters
    ----------
    estimator
        The fitted estimator, which answers in class codes for the outputs that are not constant; None if all are.
    num_classes
        The number of classes of each output.
    constants
        The class codes of outputs that the estimator was not trained on, because they had one class; by output.
    """

    estimator: Any
    num_classes: tuple[int, ...]
    constants: Mapping[int, int] = field(default_factory=dict)

    def values(self, X: Features) -> Floats:
        """The probability of every class of every output, side by side; 1 for the answer if the estimator has none."""
        tables = [np.zeros((num_rows(X), size)) for size in self.num_classes]
        for output, code in self.constants.items():
            tables[output][:, code] = 1.0
        learned = [table for output, table in enumerate(tables) if output not in self.constants]
        if learned:
            self._fill(learned, X)
        return np.concatenate(tables, axis=1)

    def _fill(self, tables: list[Floats], X: Features) -> None:
        if not hasattr(self.estimator, "predict_proba"):
            answers = np.asarray(self.estimator.predict(X)).astype(np.intp).reshape(-1, len(tables))
            for table, column in zip(tables, answers.T, strict=True):
                table[np.arange(len(table)), column] = 1.0
            return
        found: Any = self.estimator.predict_proba(X)
        own: Any = self.estimator.classes_
        if not isinstance(found, list):  # outputs of two classes each: the probabilities of the second ones
            found, own = [np.stack([1 - column, column], axis=1) for column in found.T], [[0, 1]] * found.shape[1]
        for table, columns, codes in zip(tables, found, own, strict=True):
            table[:, np.asarray(codes, dtype=np.intp)] = columns

    def predict(self, X: Features) -> Any:
        """The same."""
        return self.values(X)


@dataclass(frozen=True)
class MultiOutputLearner:
    """Train a clone of a scikit-learn classifier on every shard, for several labels a record.

    As `ScikitLearner`, but the labels are a row of class codes, and the values of a model are the probabilities of all
    classes of all outputs.

    Parameters
    ----------
    estimator
        A classifier that takes several outputs, such as a tree, a forest, nearest neighbours, a neural network (for two
        classes each) or a `MultiOutputClassifier`. It is cloned, never fitted itself.
    num_classes
        The number of classes of each output.

    Raises
    ------
    ParameterError
        If the estimator takes one label a record.

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> learner = MultiOutputLearner(DecisionTreeClassifier(), (2, 3))
    >>> model = learner.fit(np.array([[0.0], [1.0]]), np.array([[0, 2], [1, 0]]), seed=7)
    >>> model.values(np.array([[0.9]]))
    array([[0., 1., 1., 0., 0.]])
    """

    estimator: Any
    num_classes: tuple[int, ...]

    def __post_init__(self) -> None:
        if not takes_several_labels(self.estimator):
            raise ParameterError(
                f"{type(self.estimator).__name__} takes one label a record: put it into a MultiOutputClassifier"
            )
        ScikitLearner(self.estimator)  # refuses a random generator

    @property
    def predicts_values(self) -> bool:
        """True: opinions are numbers."""
        return True

    @property
    def num_values(self) -> int:
        """How many numbers a model gives for a row."""
        return sum(self.num_classes)

    def fit(self, X: Features, y: NDArray[Any], seed: int, *, weights: Weights | None = None) -> MultiOutputModel:
        """A clone trained on the shard, whose only randomness is the seed.

        Where the training fails, outputs that have one class in this shard are constants of the model, and the clone
        is trained on the others.
        """
        codes = np.ascontiguousarray(y, dtype=np.int64)
        varies = (codes != codes[0]).any(axis=0)
        try:
            return MultiOutputModel(self._fitted(X, codes, seed, weights), self.num_classes)
        except ValueError:
            if varies.all():
                raise
        constants = {int(output): int(codes[0, output]) for output in np.flatnonzero(~varies)}
        fitted = self._fitted(X, np.ascontiguousarray(codes[:, varies]), seed, weights) if varies.any() else None
        return MultiOutputModel(fitted, self.num_classes, constants)

    def _fitted(self, X: Features, codes: NDArray[np.int64], seed: int, weights: Weights | None) -> Any:
        base = ScikitLearner(self.estimator)
        return base.train(base.seeded(seed), X, codes, **weight_arguments(self.estimator, weights))


def takes_several_labels(estimator: Any) -> bool:
    """Whether this is a scikit-learn classifier that takes several labels a record."""
    if not hasattr(estimator, "__sklearn_tags__") or not is_classifier(estimator):
        return False
    tags = get_tags(estimator)
    return bool(tags.target_tags.multi_output or tags.classifier_tags.multi_label)


def split_outputs(values: Floats, num_classes: Sequence[int]) -> list[Floats]:
    """The probabilities of each output, (rows, classes), from rows of all of them side by side."""
    return np.split(values, np.cumsum(num_classes)[:-1], axis=1)
