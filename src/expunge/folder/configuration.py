"""A deployment's promise and shards as plain data, so that a folder opens with the options that it was created with."""

from __future__ import annotations

from dataclasses import asdict, dataclass, is_dataclass
from typing import Any

from expunge.core.checks import require_choice, require_count
from expunge.core.errors import FormatError, InputError, ParameterError
from expunge.core.guarantee import Guarantee
from expunge.core.words import plural
from expunge.privacy.accounting import ACCOUNTANT_NAMES, Accountant
from expunge.privacy.accounting import accountant as accountant_by_name
from expunge.privacy.mechanisms import MECHANISM_NAMES
from expunge.privacy.mechanisms import mechanism as mechanism_by_name
from expunge.serving.promises import (
    Consensus,
    Exact,
    Noise,
    Promise,
    Router,
    SamplingName,
    Student,
    Unguarded,
    as_budget,
)
from expunge.training.learners import (
    AbstainingLearner,
    BoostedClassifier,
    BoostedRegressor,
    ExactLearner,
    ScikitLearner,
    SlicedScikitLearner,
    ThresholdLearner,
)
from expunge.training.sampling import Sampler

_PLAIN: dict[str, type[Promise]] = {each.name: each for each in (Exact, Unguarded)}
_CONSENSUS = (Consensus.name, Router.name, Student.name)


@dataclass(frozen=True, slots=True)
class Settings:
    """What a folder knows about its promise and its shards.

    Parameters
    ----------
    n_shards
        k.
    inclusion_probability
        p; None for 1/k, and for a partition.
    sampling
        "independent" or "partition".
    promise
        What makes the publisher. A router or a student is stored as a front; here it is the `Consensus` behind it.
    name
        The short name of the promise, such as "router".
    """

    n_shards: int
    inclusion_probability: float | None
    sampling: SamplingName
    promise: Promise
    name: str

    def make_sampler(self) -> Sampler:
        """The sampler that draws the shards."""
        return self.promise.make_sampler(self.sampling, self.inclusion_probability)


def hides_counts(promise: Promise) -> bool:
    """Whether nobody may learn how many shards an update touched: under every (α,β,γ) promise.

    Parameters
    ----------
    promise
        The promise.

    Returns
    -------
    bool
        Whether the number depends on what is secret.
    """
    return isinstance(promise, Consensus | Noise)


def describe_learner(learner: Any) -> str:
    """Say in words what trains a shard's model, such as "LogisticRegression" or "a Pipeline of A and B".

    Parameters
    ----------
    learner
        The learner.

    Returns
    -------
    str
        The words. They name classes, and no options.

    Examples
    --------
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from expunge.training.learners import as_learner
    >>> describe_learner(as_learner(GaussianNB()))
    'GaussianNB'
    """
    if isinstance(learner, AbstainingLearner):
        return describe_learner(learner.learner)
    if isinstance(learner, ThresholdLearner):
        return f"{describe_learner(learner.learner)} with thresholds"
    if isinstance(learner, SlicedScikitLearner):
        return f"{describe_learner(learner.estimator)} in {plural(learner.num_slices, 'slice')}"
    if isinstance(learner, ScikitLearner):
        return describe_learner(learner.estimator)
    if isinstance(learner, ExactLearner):
        return describe_learner(learner.kind)
    if isinstance(learner, BoostedClassifier | BoostedRegressor):
        return learner.estimator_name
    steps = getattr(learner, "steps", None)
    if isinstance(steps, list) and all(isinstance(each, tuple) and len(each) == 2 for each in steps):
        parts = [describe_learner(step) for _, step in steps if step is not None and not isinstance(step, str)]
        return (
            f"a Pipeline of {' and '.join(filter(None, (', '.join(parts[:-1]), parts[-1])))}" if parts else "Pipeline"
        )
    return type(learner).__name__


def dump_settings(
    promise: Promise, sampling: Any, *, num_shards: int, probability: float | None, num_classes: int
) -> dict[str, Any]:
    """Return the settings as plain data, with the values that were found for them. Options must have names."""
    if isinstance(sampling, Sampler):
        raise ParameterError(f"a deployment on disk takes sampling by its name, got {sampling!r}")
    name = promise.sampling_name(sampling, probability)
    return {
        "n_shards": num_shards,
        "inclusion_probability": None if probability is None else float(probability),
        "sampling": name,
        "promise": {"name": promise.name, **_dump_options(promise, num_shards, num_classes)},
    }


def _dump_options(promise: Promise, num_shards: int, num_classes: int) -> dict[str, Any]:
    if type(promise) is Exact:
        front: Any = promise.make_front(None)
        return {"combine": promise.combine, "threshold": None if promise.threshold is None else [*front.threshold]}
    if not isinstance(promise, Consensus | Noise):
        if type(promise) is not _PLAIN.get(promise.name):
            raise ParameterError(f"a deployment on disk takes the promises of this package, got {promise!r}")
        return {}
    target, limit = promise.target, promise.max_predictions
    found: dict[str, Any] = {
        "target": None if target is None else [float(target.alpha), float(target.beta), float(target.gamma)],
        "max_predictions": None if limit is None else int(limit),
        "max_generations": require_count("max_generations", promise.max_generations),
    }
    if isinstance(promise, Noise):
        budget = as_budget(promise.budget)
        found |= {
            "mechanism": _dump_mechanism(promise, num_shards, num_classes),
            "budget": None if budget is None else [float(budget.epsilon), float(budget.delta)],
            "accountant": _accountant_name(promise.accountant),
            "on_exhausted": promise.on_exhausted,
        }
    return found


def load_settings(data: dict[str, Any]) -> Settings:
    """Read what `dump_settings` wrote. The front is stored separately."""
    try:
        rest = {name: value for name, value in data.items() if name != "promise"}
        options = dict(data["promise"])
        name = options.pop("name")
        settings = Settings(promise=_load_promise(name, options), name=name, **rest)
        require_count("n_shards", settings.n_shards)
        settings.make_sampler()
        return settings
    except (TypeError, KeyError, IndexError, ValueError, InputError) as error:
        raise FormatError(f"the deployment's settings are damaged: {error}") from None


def _load_promise(name: str, options: dict[str, Any]) -> Promise:
    require_choice("promise", name, (*_PLAIN, *_CONSENSUS, Noise.name))
    if name in _PLAIN:
        cut = options.get("threshold")
        return _PLAIN[name](**{**options, **({} if cut is None else {"threshold": tuple(cut)})})
    target = None if options["target"] is None else Guarantee(*options["target"])
    if name != Noise.name:
        return Consensus(**{**options, "target": target})
    mechanism, parameters = options["mechanism"]
    found = {"target": target, "mechanism": mechanism_by_name(mechanism, **parameters)}
    return Noise(**{**options, **found, "budget": as_budget(options["budget"])})


def _dump_mechanism(promise: Noise, num_shards: int, num_classes: int) -> Any:
    mechanism: Any = promise.make_mechanism(num_shards, num_classes)
    parameters: dict[str, Any] = asdict(mechanism) if is_dataclass(mechanism) else {}  # type: ignore[arg-type]
    if mechanism.name not in MECHANISM_NAMES or mechanism_by_name(mechanism.name, **parameters) != mechanism:
        raise ParameterError(f"a deployment on disk takes the mechanisms of this package, got {mechanism!r}")
    return [mechanism.name, parameters]


def _accountant_name(accountant: str | Accountant) -> str:
    name = accountant if isinstance(accountant, str) else accountant.name
    is_known = name in ACCOUNTANT_NAMES
    if is_known and not isinstance(accountant, str):
        is_known = type(accountant) is type(accountant_by_name(name))
    if not is_known:
        known = ", ".join(ACCOUNTANT_NAMES)
        raise ParameterError(f"a deployment on disk takes an accountant by its name ({known}), got {accountant!r}")
    return name
