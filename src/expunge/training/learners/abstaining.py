"""Make a learner of what a user gives, and let a learner abstain where its training fails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone

from expunge.core.errors import ParameterError
from expunge.core.features import Features
from expunge.training.learners import protocol
from expunge.training.learners.boosting import is_boosting
from expunge.training.learners.protocol import Abstainer, Codes, Learner, Model, SlicedLearner, Voter, Weights
from expunge.training.learners.scikit import ScikitLearner
from expunge.training.learners.slices import SlicedScikitLearner


def as_learner(estimator: Any) -> Learner | SlicedLearner:
    """Make a learner of a scikit-learn classifier or regressor; return a learner as it is.

    Only the settings of a scikit-learn estimator are kept. An estimator that was fitted before holds what it learned
    from its data, and no later deletion would remove that.

    Parameters
    ----------
    estimator
        A scikit-learn classifier, regressor or Pipeline, a `Learner`, or a `SlicedLearner`.

    Returns
    -------
    Learner or SlicedLearner
        The learner. For a scikit-learn estimator it is a `ScikitLearner` of an unfitted clone.

    Raises
    ------
    ParameterError
        If it is none of these, or cannot be cloned.

    Examples
    --------
    >>> from sklearn.naive_bayes import GaussianNB
    >>> as_learner(GaussianNB())
    ScikitLearner(estimator=GaussianNB(), classes=None)
    """
    if isinstance(estimator, BaseEstimator) or is_boosting(estimator):
        return _unfitted(ScikitLearner(estimator))
    if isinstance(estimator, ScikitLearner | SlicedScikitLearner):
        return _unfitted(estimator)
    network = _network_learner(estimator)
    if network is not None:
        raise ParameterError(f"estimator: {network}")
    if isinstance(estimator, SlicedLearner | Learner) and not isinstance(estimator, type):
        return estimator
    hint = "; expunge.training.learners.named.named_learner makes one of a name" if isinstance(estimator, str) else ""
    raise ParameterError(
        f"estimator must be a scikit-learn classifier or regressor, or a Learner, got {estimator!r}{hint}"
    )


_JAX = "of expunge.training.learners.jax"
_NETWORKS = {
    "torch.nn": "TorchLearner(make_network), of expunge.training.learners.pytorch; make_network() returns a new one",
    "flax.linen": f"JaxLearner(network, input_shape=…), {_JAX}",
    "flax.nnx": f"JaxLearner(make_network, input_shape=…), {_JAX}; make_network(key) returns a new one",
    "equinox": f"JaxLearner(make_network, input_shape=…), {_JAX}; make_network(key) returns a new one",
}


def _network_learner(estimator: Any) -> str | None:
    """What to give instead of a network that was given as it is; None if it is none."""
    kind = estimator if isinstance(estimator, type) else type(estimator)
    for each in kind.__mro__:
        for package, wanted in _NETWORKS.items():
            if each.__name__ == "Module" and f"{each.__module__}.".startswith(f"{package}."):
                return f"{kind.__name__} is a network and says nothing about its training: give {wanted}"
    return None


def _unfitted(learner: ScikitLearner | SlicedScikitLearner) -> ScikitLearner | SlicedScikitLearner:
    try:
        return replace(learner, estimator=clone(learner.estimator))
    except (RuntimeError, TypeError) as error:
        raise ParameterError(f"the estimator cannot be cloned: {error}") from error


_MACHINE_ERRORS = (MemoryError, OSError)
# The first words of such errors in JAX and PyTorch. These errors quote no record.
_DEVICE_ERRORS = ("RESOURCE_EXHAUSTED", "CUDA out of memory")


@dataclass(frozen=True)
class AbstainingLearner:
    """Train as another learner does, but let a shard vote ⊥ if its training fails, as if the shard were empty.

    With other learners a failure is an error: it is reported to the operator, and later requests wait. Use this
    learner where people can add records of their own. Whether a record that breaks the training is in any shard depends
    on r, so whether its request is ever applied would depend on r too. And a single such record would block the
    requests of all people. The model is still a function of the shard's records and its seed, which is all that the
    theorems require.

    Missing memory or disk space stays an error. A learner that fails on every shard of a new deployment is an error
    too. Later that is no error, because a record might have caused it.

    Parameters
    ----------
    learner
        A `Learner`, or a scikit-learn classifier or regressor. Its other methods and attributes can be used through
        this object.

    Raises
    ------
    ParameterError
        If the learner is sliced, or `as_learner` refuses it.

    Examples
    --------
    >>> import numpy as np
    >>> class Picky:
    ...     def fit(self, X, y, seed, *, weights=None):
    ...         raise ValueError("not these rows")
    >>> AbstainingLearner(Picky()).fit(np.zeros((1, 1)), np.array([0]), seed=0).predict(np.zeros((2, 1)))
    array([-1, -1])
    """

    learner: Any

    def __post_init__(self) -> None:
        learner = as_learner(self.learner)
        if isinstance(learner, SlicedLearner):
            raise ParameterError("a learner with slices cannot abstain: what a failed slice leaves is no checkpoint")
        object.__setattr__(self, "learner", learner)

    def for_classes(self, classes: NDArray[Any]) -> AbstainingLearner:
        """The same learner, with the labels behind the class codes made known to it."""
        return replace(self, learner=protocol.for_classes(self.learner, classes))

    def fit(self, X: Features, y: Codes, seed: int, *, weights: Weights | None = None, **names: Any) -> Model:
        """The learner's model, or an `Abstainer` if the training fails."""
        try:
            model: Model = self.learner.fit(X, y, seed, weights=weights, **names)
        except Exception as error:
            if _is_machine_error(error):
                raise
            return Abstainer()
        return model

    def refit(self, model: Model, removed: protocol.ShardData, added: protocol.ShardData, **rows: Any) -> Model | None:
        """The learner's updated model; None, so that the shard is trained, if it abstains, fails or cannot."""
        if isinstance(model, Abstainer) or not hasattr(self.learner, "refit"):
            return None
        try:
            changed: Model | None = self.learner.refit(model, removed, added, **rows)
        except Exception as error:
            if _is_machine_error(error):
                raise
            return None
        return changed

    def fit_many(self, shards: Sequence[protocol.ShardData | protocol.SharedShard]) -> list[Model]:
        """Train all shards together if the learner can, and one by one if that fails."""
        if hasattr(self.learner, "fit_many"):
            try:
                return list(self.learner.fit_many(shards))
            except Exception as error:
                if _is_machine_error(error):
                    raise
        return [
            self.fit(data.X, data.y, data.seed, weights=data.weights, **protocol.names_for(data)) for data in shards
        ]

    def make_voter(self, models: Sequence[Model], num_classes: int) -> Voter:
        """The voter of the learner itself."""
        return protocol.make_voter(self.learner, models, num_classes)

    def __getattr__(self, name: str) -> Any:
        """Any other attribute of the learner, such as how its models are stored, or `shards_at_once`."""
        if name.startswith("__") or name == "learner":
            raise AttributeError(name)
        return getattr(self.learner, name)


def _is_machine_error(error: Exception) -> bool:
    """Whether memory or a disk is missing, so that the record is not at fault."""
    is_device_error = isinstance(error, RuntimeError) and str(error).startswith(_DEVICE_ERRORS)
    return isinstance(error, _MACHINE_ERRORS) or is_device_error
