"""An audit requested by names, as on the command line: which scenario, against which scheme, with which options.

A user names schemes, requesters and learners of their own as `module:factory`.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from sklearn.base import BaseEstimator

from expunge.audit import scenarios, tasks
from expunge.audit.deployments import DeploymentCopy
from expunge.audit.requesters import LABEL_REQUESTERS
from expunge.audit.scenario import MakeRequester, Scenario, Scheme, Setting, Task
from expunge.audit.schemes import DEFAULT_TARGET, SCHEME_NAMES, UserScheme, make_scheme
from expunge.core.checks import require_choice, require_count
from expunge.core.errors import ExpungeError, InputError, ParameterError
from expunge.core.guarantee import Guarantee
from expunge.core.imports import import_named
from expunge.core.randomness import Randomness
from expunge.serving.interaction import Requester
from expunge.training.learners import Learner, ScikitLearner, SlicedLearner


def is_reference(name: str) -> bool:
    """Whether the name has the form `module:factory`."""
    return ":" in name


def load_factory(reference: str) -> Callable[..., Any]:
    """Load the function that `module:factory` names. Modules in the current folder are found."""
    if "" not in sys.path:
        sys.path.insert(0, "")
    found = import_named(reference, option="a factory")
    if not callable(found):
        raise InputError(f"{reference!r} must be a function or a class, got {type(found).__name__}")
    factory: Callable[..., Any] = found
    return factory


def load_scheme(reference: str, task: Task) -> Scheme[Any]:
    """Make the user's scheme, with `factory()` or `factory(task)`. The error names the methods that are missing."""
    factory = load_factory(reference)
    made = UserScheme(_call(reference, factory, *([task] if _takes_one(factory) else [])), name=reference)
    if made.missing:
        raise InputError(f"the scheme of {reference!r} has no {', '.join(made.missing)}")
    return made


@dataclass(frozen=True)
class _UserRequesters:
    """The user's `factory(task, rng)`. If it fails, the error is one line."""

    reference: str

    def __call__(self, task: Task, rng: Randomness) -> Requester:
        """Make the requester for one trial."""
        made = _call(self.reference, load_factory(self.reference), task, rng)
        if not callable(getattr(made, "next_batch", None)):
            raise InputError(f"the requester of {self.reference!r} has no next_batch, got {type(made).__name__}")
        return cast("Requester", made)


def load_requester(reference: str) -> MakeRequester:
    """Load the user's `factory(task, rng)`, which makes a requester for every trial."""
    load_factory(reference)
    return _UserRequesters(reference)


def load_learner(reference: str) -> Learner | SlicedLearner:
    """Make the user's learner with `factory()`. A scikit-learn classifier will do."""
    made = _call(reference, load_factory(reference))
    if isinstance(made, BaseEstimator):
        return ScikitLearner(made)
    if not isinstance(made, Learner | SlicedLearner):
        raise InputError(f"{reference!r} must make a learner or a scikit-learn classifier, got {type(made).__name__}")
    return made


def _call(reference: str, factory: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return factory(*arguments)
    except ExpungeError:
        raise
    except Exception as error:
        raise InputError(f"{reference!r} failed: {type(error).__name__}: {error}") from error


def _takes_one(factory: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(
        parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        for parameter in parameters
    )


_DEPLOYMENT = "deployment"
SCENARIO_NAMES = ("lookup", "label-only", "white-box", "membership", "slow-down")
DATA_NAMES = ("mnist", "digits")


@dataclass(frozen=True, kw_only=True)
class AuditRequest:
    """An audit, requested by names. None leaves an option to the scenario. An option that it does not have is an error.

    Parameters
    ----------
    scenario
        "lookup", "label-only", "white-box", "membership" or "slow-down".
    scheme
        A scheme of `make_scheme`; "deployment", if there is a copy; or `module:factory`. None means "sisa", or
        "deployment" if there is a copy.
    requester
        One of the scenario's requesters, or `module:factory` with `factory(task, rng)`.
    data
        label-only: "mnist" or "digits".
    learner
        white-box and membership: "logistic", "tree", "nearest" or `module:factory`.
    size
        The number of pairs (lookup), of deletions (label-only), of canaries (membership) or of rounds (slow-down).
    num_records
        How many records are trained on.
    setting
        slow-down: what is published, "labels" or "models".
    num_shards, inclusion_probability, target
        Options of `make_scheme`.
    copy
        A deployment's data and learner, in the place of the scenario's own.

    Examples
    --------
    >>> from expunge.audit import audit
    >>> scenario, scheme = AuditRequest(scenario="lookup", scheme="majority", size=10).build()
    >>> audit(scenario, scheme, num_trials=10, seed=1).verdict
    'no difference from full retraining was found'
    """

    scenario: str
    scheme: str | None = None
    requester: str | None = None
    data: str | None = None
    learner: str | None = None
    size: int | None = None
    num_records: int | None = None
    setting: str | None = None
    num_shards: int | None = None
    inclusion_probability: float | None = None
    target: Guarantee = DEFAULT_TARGET
    copy: DeploymentCopy | None = None

    @property
    def task(self) -> Task | None:
        """The data that replace the scenario's own; None if there are none."""
        return None if self.copy is None else self.copy.task

    def build(self) -> tuple[Scenario, Scheme[Any]]:
        """Make the scenario and the scheme, for `audit`."""
        scenario = self.build_scenario()
        return scenario, self.build_scheme(scenario)

    def build_scheme(self, scenario: Scenario) -> Scheme[Any]:
        """Make the scheme: a built-in one, the deployment's, or the user's own."""
        name = self.scheme or ("sisa" if self.copy is None else _DEPLOYMENT)
        if self.copy is not None and name == _DEPLOYMENT:
            self._refuse_sizes(name)
            return self.copy.scheme()
        if not is_reference(name):
            return make_scheme(
                name,
                scenario,
                num_shards=self.num_shards,
                inclusion_probability=self.inclusion_probability,
                target=self.target,
            )
        self._refuse_sizes(name)
        return load_scheme(name, scenario.task)

    def _refuse_sizes(self, scheme: str) -> None:
        for name, value in (("num_shards", self.num_shards), ("inclusion_probability", self.inclusion_probability)):
            if value is not None:
                raise ParameterError(f"{name} is for the schemes {', '.join(SCHEME_NAMES)}, got {scheme!r}")

    def build_scenario(self) -> Scenario:
        """Make the scenario with its options."""
        match require_choice("scenario", self.scenario, SCENARIO_NAMES):
            case "lookup":
                if self.copy is not None:
                    raise ParameterError(
                        "the scenario lookup has data of its own: a deployment's cannot take its place"
                    )
                self._refuse("data", "learner", "num_records")
                return scenarios.lookup_scenario(num_pairs=self._size(50), requester=self._label_requester("correct"))
            case "label-only":
                self._refuse("learner", *(["data"] if self.copy is not None else []))
                make = self._label_requester("random-correct")
                return scenarios.label_only_scenario(self._zeros_and_ones(), num_deletions=self.size, requester=make)
            case "white-box":
                self._refuse("data", "size", *(["learner"] if self.copy is not None else []))
                return scenarios.white_box_scenario(self._digits("logistic", 600), requester=self._user_requester())
            case "membership":
                self._refuse("data", "requester", *(["learner"] if self.copy is not None else []))
                return scenarios.membership_scenario(self._digits("nearest", 300), num_targets=self._size(30))
            case _:
                self._refuse("data", "learner")
                return scenarios.slow_down_scenario(
                    self.task,
                    num_rounds=self._size(3),
                    setting=cast("Setting", self.setting or "models"),
                    num_records=self._records(200),
                    requester=self._user_requester(),
                )

    def _size(self, usual: int) -> int:
        return usual if self.size is None else self.size

    def _records(self, usual: int) -> int:
        return usual if self.num_records is None else require_count("num_records", self.num_records)

    def _refuse(self, *names: str) -> None:
        """Refuse options that the scenario does not have."""
        others = () if self.scenario == "slow-down" else ("setting",)
        for name in (*names, *others):
            if getattr(self, name) is not None:
                raise ParameterError(f"the scenario {self.scenario} has no option {name}, got {getattr(self, name)!r}")

    def _label_requester(self, usual: str) -> str | MakeRequester:
        name = self.requester or usual
        return load_requester(name) if is_reference(name) else name

    def _user_requester(self) -> MakeRequester | None:
        if self.requester is None:
            return None
        if not is_reference(self.requester):
            raise ParameterError(
                f"the scenario {self.scenario} has one requester of its own, or yours as module:factory, "
                f"got {self.requester!r} (of label-only scenarios: {', '.join(LABEL_REQUESTERS)})"
            )
        return load_requester(self.requester)

    def _zeros_and_ones(self) -> Task:
        if self.task is not None:
            return self.task
        if require_choice("data", self.data or "mnist", DATA_NAMES) == "mnist":
            return tasks.zeros_and_ones_task(num_records=self._records(1000))
        return tasks.small_zeros_and_ones_task(num_records=self._records(200))

    def _digits(self, usual: str, num_records: int) -> Task:
        if self.task is not None:
            return self.task
        name = self.learner or usual
        learner = load_learner(name) if is_reference(name) else tasks.built_in_learner(name)
        return tasks.digits_task(num_records=self._records(num_records), learner=cast("Learner", learner))
