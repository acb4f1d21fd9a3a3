"""Slices inside a shard: retraining restarts at the first touched slice (the S of SISA).

The slice of each of a shard's records follows from its id and the recipe key. The model is trained slice after slice,
and a checkpoint is kept after each. A checkpoint depends only on the slices before it and on their seeds, and these
follow from the slices' contents. So resuming from the last checkpoint that never saw a changed record gives, bit for
bit, what training from scratch gives (T6).
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.metaestimators import available_if

from expunge.core.checks import require_count
from expunge.core.errors import ParameterError, TrainingError
from expunge.core.features import Features, take
from expunge.training.learners.protocol import Abstainer, Codes, Floats, Model, ShardData, SlicedLearner, Voter, Weights
from expunge.training.learners.scikit import (
    ConstantModel,
    ScikitLearner,
    ScikitModel,
    ScikitRegression,
    weight_arguments,
)


@dataclass(frozen=True)
class SlicedModel:
    """A shard's model together with the checkpoint after each of its slices.

    Parameters
    ----------
    checkpoints
        The state of the training after every slice; None as long as all slices so far were empty.
    final
        The model after the last slice. It votes.
    """

    checkpoints: tuple[Any, ...]
    final: Model

    def predict(self, X: Features) -> Codes:
        """The vote of the model after the last slice."""
        return self.final.predict(X)

    @available_if(lambda self: hasattr(self.final, "probabilities"))  # type: ignore[untyped-decorator]
    def probabilities(self, X: Features, num_classes: int) -> Floats:
        """Those of the model after the last slice."""
        found: Floats = self.final.probabilities(X, num_classes)  # type: ignore[attr-defined]
        return found

    @available_if(lambda self: hasattr(self.final, "scores"))  # type: ignore[untyped-decorator]
    def scores(self, X: Features, num_classes: int) -> Floats:
        """Those of the model after the last slice."""
        found: Floats = self.final.scores(X, num_classes)  # type: ignore[attr-defined]
        return found

    @available_if(lambda self: hasattr(self.final, "values"))  # type: ignore[untyped-decorator]
    def values(self, X: Features) -> Floats:
        """Those of the model after the last slice."""
        found: Floats = self.final.values(X)  # type: ignore[attr-defined]
        return found


@dataclass(frozen=True)
class SlicedShard:
    """The data that one shard is trained on slice by slice: its rows, their slices, seeds, and where to resume.

    `seeds` holds one seed per slice. Training starts at slice `first`, from the checkpoint before it.
    """

    shard: int
    X: Features
    y: Codes
    weights: Weights | None
    slice_of: NDArray[np.int64]
    seeds: tuple[int, ...]
    first: int = 0
    checkpoints: tuple[Any, ...] = ()


def fit_slices(learner: SlicedLearner, data: SlicedShard) -> SlicedModel:
    """Train a shard from slice `first` on, starting from the checkpoint before it."""
    checkpoints = list(data.checkpoints[: data.first])
    for number in range(data.first, learner.num_slices):
        checkpoint = checkpoints[-1] if checkpoints else None
        if (data.slice_of == number).any():
            own = _slice(learner, data, number)
            try:
                checkpoint = learner.extend(checkpoint, own.X, own.y, own.seed, weights=own.weights)
            except Exception as error:
                message = f"training slice {number} of shard {data.shard} failed: {type(error).__name__}: {error}"
                raise TrainingError(message, data.shard) from error
        checkpoints.append(checkpoint)
    return _make_sliced_model(learner, checkpoints)


def fit_slices_of_many(learner: SlicedLearner, shards: Sequence[SlicedShard]) -> list[SlicedModel]:
    """Train many shards slice after slice, each slice of all shards together if the learner has `extend_many`."""
    if not hasattr(learner, "extend_many"):
        return [fit_slices(learner, data) for data in shards]
    checkpoints = [list(data.checkpoints[: data.first]) for data in shards]
    for number in range(learner.num_slices):
        due = [place for place, data in enumerate(shards) if data.first <= number]
        trained = [place for place in due if (shards[place].slice_of == number).any()]
        before = [checkpoints[place][-1] if checkpoints[place] else None for place in trained]
        try:
            found = iter(learner.extend_many(before, [_slice(learner, shards[place], number) for place in trained]))
        except Exception:
            return [fit_slices(learner, data) for data in shards]  # train one by one, to find the shard that fails
        for place in due:
            own = checkpoints[place]
            own.append(next(found) if place in trained else own[-1] if own else None)
    return [_make_sliced_model(learner, own) for own in checkpoints]


def _slice(learner: SlicedLearner, data: SlicedShard, number: int) -> ShardData:
    """The data that a slice is trained on."""
    rows = np.flatnonzero(data.slice_of <= number if learner.is_cumulative else data.slice_of == number)
    weights = None if data.weights is None else data.weights[rows]
    return ShardData(data.shard, take(data.X, rows), data.y[rows], weights, data.seeds[number])


def _make_sliced_model(learner: SlicedLearner, checkpoints: Sequence[Any]) -> SlicedModel:
    last = checkpoints[-1]
    return SlicedModel(tuple(checkpoints), Abstainer() if last is None else learner.make_model(last))


@dataclass(frozen=True)
class SlicedScikitLearner:
    """Train a scikit-learn classifier or regressor slice by slice.

    Parameters
    ----------
    estimator
        The classifier or regressor. It is cloned, never fitted itself.
    num_slices
        How many slices a shard has, from 1 to 65,535.
    mode
        "partial_fit" passes once over every slice, in order. "warm_start" refits the estimator on all slices so far,
        starting from its present weights; the number of passes is then the estimator's own `max_iter`. "auto" takes
        `partial_fit` if the estimator has it.
    classes
        The labels that the class codes stand for. `learn` sets them.

    Raises
    ------
    ParameterError
        If `num_slices` is out of range, or the estimator cannot be trained in that way.

    Examples
    --------
    >>> from sklearn.linear_model import SGDClassifier
    >>> learner = SlicedScikitLearner(SGDClassifier(), num_slices=8)
    >>> learner.mode, learner.is_cumulative
    ('partial_fit', False)
    """

    estimator: Any
    num_slices: int
    mode: Literal["auto", "partial_fit", "warm_start"] = "auto"
    classes: NDArray[Any] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "num_slices", require_count("num_slices", self.num_slices, most=2**16 - 1))
        can = {"partial_fit": hasattr(self.estimator, "partial_fit"), "warm_start": _can_warm_start(self.estimator)}
        mode = next((name for name in can if can[name]), None) if self.mode == "auto" else self.mode
        if mode is None or not can.get(mode, False):
            raise ParameterError(f"{type(self.estimator).__name__} cannot be trained slice by slice ({self.mode})")
        object.__setattr__(self, "mode", mode)

    @property
    def is_cumulative(self) -> bool:
        """Whether each slice is trained together with all slices before it."""
        return self.mode == "warm_start"

    @property
    def predicts_values(self) -> bool:
        """Whether the estimator is a regressor."""
        return self._base.predicts_values

    @property
    def _base(self) -> ScikitLearner:
        return ScikitLearner(self.estimator, self.classes)

    def for_classes(self, classes: NDArray[Any]) -> SlicedScikitLearner:
        """The same learner, but trained on these labels; `partial_fit` needs all of them in advance."""
        if self.predicts_values:
            return self
        return replace(self, classes=np.asarray(classes))

    def check_weights(self) -> None:
        """Raise a `ParameterError` if the estimator does not take weights."""
        self._base.check_weights()

    def extend(self, checkpoint: Any, X: Features, y: Codes, seed: int, *, weights: Weights | None) -> Any:
        """A copy of the checkpoint, trained on one more slice; the checkpoint itself does not change."""
        arguments = weight_arguments(self.estimator, weights)
        if self.predicts_values:
            estimator = self._resumed(checkpoint, seed)
            if self.mode == "partial_fit":
                return estimator.partial_fit(X, y, **arguments)
            return self._base.train(estimator.set_params(warm_start=True), X, y, **arguments)
        if self.mode == "partial_fit":
            if self.classes is None:
                raise ParameterError("partial_fit needs the list of classes: use for_classes first")
            classes = self.classes
            return self._resumed(checkpoint, seed).partial_fit(X, classes[y], classes=classes, **arguments)
        labels = self._base.labels(y)
        if (y == y[0]).all():
            return ConstantModel(int(y[0]))
        # A warm start needs the same classes as before: if there is a new one, training starts from scratch.
        known = getattr(checkpoint, "classes_", None)
        usable = checkpoint if known is not None and np.array_equal(known, np.unique(labels)) else None
        return self._base.train(self._resumed(usable, seed).set_params(warm_start=True), X, labels, **arguments)

    def _resumed(self, checkpoint: Any, seed: int) -> Any:
        """A copy of the checkpoint, or a new estimator without one, whose only randomness from now on is `seed`."""
        fresh = self._base.seeded(seed)
        if checkpoint is None:
            return fresh
        settings = fresh.get_params(deep=True)
        names = self._base.random_parameters
        return copy.deepcopy(checkpoint).set_params(**{name: settings[name] for name in names})

    def make_model(self, checkpoint: Any) -> Model:
        """The checkpoint as a voting model."""
        if self.predicts_values:
            return ScikitRegression(checkpoint)
        return checkpoint if isinstance(checkpoint, ConstantModel) else ScikitModel(checkpoint, self.classes)

    def make_voter(self, models: Sequence[Model], num_classes: int) -> Voter:
        """The voter of the last models, as `ScikitLearner` makes it."""
        finals = [model.final if isinstance(model, SlicedModel) else model for model in models]
        return self._base.make_voter(finals, num_classes)


def _can_warm_start(estimator: Any) -> bool:
    """Whether a warm start continues the training; a forest or boosting would add nothing to what it has."""
    names = estimator.get_params(deep=False)
    grows = "n_estimators" in names or "max_leaf_nodes" in names
    return "warm_start" in names and not grows
