"""An audit asked for by names, as on the command line: which scenario, against which scheme, with which options.

What a user names as `module:factory`: schemes, requesters and learners of their own.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from sklearn.base import BaseEstimator

from expunge.audit.catalogue import DEFAULT_TARGET, SCHEME_NAMES, make_scheme
from expunge.audit.deployments import DeploymentCopy
from expunge.audit.scenario import Scenario, Setting, Task
from expunge.audit.scenarios import (
    label_only_scenario,
    lookup_scenario,
    membership_scenario,
    slow_down_scenario,
    white_box_scenario,
)
from expunge.audit.scenarios.shared import LABEL_REQUESTERS, MakeRequester
from expunge.audit.schemes import AnyScheme, Scheme
from expunge.audit.tasks import built_in_learner, digits_task, small_zeros_and_ones_task, zeros_and_ones_task
from expunge.core.errors import ExpungeError, InputError, ParameterError
from expunge.core.randomness import Randomness
from expunge.serving.interaction import Requester
from expunge.theory import Guarantee
from expunge.training.learners import Learner, ScikitLearner, SlicedLearner


def is_reference(name: str) -> bool:
    """Whether the name is of the form `module:factory`."""
    return ":" in name


def load_factory(reference: str) -> Callable[..., Any]:
    """The function that `module:factory` names; modules of the current folder are found."""
    module_name, _, path = reference.partition(":")
    if not module_name or not path:
        raise InputError(f"expected module:factory, got {reference!r}")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:
        why = error if isinstance(error, ImportError) else f"{type(error).__name__}: {error}"
        raise InputError(f"{reference!r} cannot be loaded: {why}") from error
    for part in path.split("."):
        if not hasattr(found, part):
            raise InputError(f"{reference!r} cannot be loaded: {module_name} has no {path}")
        found = getattr(found, part)
    if not callable(found):
        raise InputError(f"{reference!r} must be a function or a class, got {type(found).__name__}")
    factory: Callable[..., Any] = found
    return factory


def load_scheme(reference: str, task: Task) -> Scheme[Any]:
    """The user's scheme, from `factory()` or `factory(task)`; what is missing is named."""
    factory = load_factory(reference)
    made = AnyScheme(_made(reference, factory, *([task] if _takes_one(factory) else [])), name=reference)
    if made.missing:
        raise InputError(f"the scheme of {reference!r} has no {', '.join(made.missing)}")
    return made


@dataclass(frozen=True)
class _Requesters:
    """The user's `factory(task, rng)`; what is wrong with it is said in one line."""

    reference: str

    def __call__(self, task: Task, rng: Randomness) -> Requester:
        """A requester for one trial."""
        made = _made(self.reference, load_factory(self.reference), task, rng)
        if not callable(getattr(made, "next_batch", None)):
            raise InputError(f"the requester of {self.reference!r} has no next_batch, got {type(made).__name__}")
        return cast("Requester", made)


def load_requester(reference: str) -> MakeRequester:
    """The user's `factory(task, rng)`, which makes a requester for every trial."""
    load_factory(reference)
    return _Requesters(reference)


def load_learner(reference: str) -> Learner | SlicedLearner:
    """The user's learner, or a scikit-learn classifier as one, from `factory()`."""
    made = _made(reference, load_factory(reference))
    if isinstance(made, BaseEstimator):
        return ScikitLearner(made)
    if not isinstance(made, Learner | SlicedLearner):
        raise InputError(f"{reference!r} must make a learner or a scikit-learn classifier, got {type(made).__name__}")
    return made


def _made(reference: str, factory: Callable[..., Any], *arguments: Any) -> Any:
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
    """Everything that may be named. None leaves an option to the scenario, which refuses one that it does not have.

    `size` is the number of pairs (lookup), of deletions (label-only), of canaries (membership) or of rounds
    (slow-down). `copy` is a deployment's data and learner, in the place of the scenario's own; its own scheme is
    called `deployment`.
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
        """The data that replace the scenario's own."""
        return None if self.copy is None else self.copy.task

    def build(self) -> tuple[Scenario, Scheme[Any]]:
        """The scenario and the scheme, ready for `audit`."""
        scenario = self.build_scenario()
        return scenario, self.build_scheme(scenario)

    def build_scheme(self, scenario: Scenario) -> Scheme[Any]:
        """A built-in scheme, the deployment's, or the user's own; SISA, or the deployment's, if none is named."""
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
        """The named scenario with its options."""
        match self.scenario:
            case "lookup":
                if self.copy is not None:
                    raise ParameterError(
                        "the scenario lookup has data of its own: a deployment's cannot take its place"
                    )
                self._refuse("data", "learner", "num_records")
                return lookup_scenario(num_pairs=self._size(50), requester=self._label_requester("correct"))
            case "label-only":
                self._refuse("learner", *(["data"] if self.copy is not None else []))
                make = self._label_requester("random-correct")
                return label_only_scenario(self._zeros_and_ones(), num_deletions=self.size, requester=make)
            case "white-box":
                self._refuse("data", "size", *(["learner"] if self.copy is not None else []))
                return white_box_scenario(self._digits("logistic", 600), requester=self._user_requester())
            case "membership":
                self._refuse("data", "requester", *(["learner"] if self.copy is not None else []))
                return membership_scenario(self._digits("nearest", 300), num_targets=self._size(30))
            case "slow-down":
                self._refuse("data", "learner")
                return slow_down_scenario(
                    self.task,
                    num_rounds=self._size(3),
                    setting=cast("Setting", self.setting or "models"),
                    num_records=self.num_records or 200,
                    requester=self._user_requester(),
                )
        raise ParameterError(f"scenario must be one of {', '.join(SCENARIO_NAMES)}, got {self.scenario!r}")

    def _size(self, usual: int) -> int:
        return usual if self.size is None else self.size

    def _refuse(self, *names: str) -> None:
        """An option that the scenario does not have is an error, not silently without effect."""
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
        match self.data or "mnist":
            case "mnist":
                return zeros_and_ones_task(num_records=self.num_records or 1000)
            case "digits":
                return small_zeros_and_ones_task(num_records=self.num_records or 200)
        raise ParameterError(f"data must be one of {', '.join(DATA_NAMES)}, got {self.data!r}")

    def _digits(self, usual: str, num_records: int) -> Task:
        if self.task is not None:
            return self.task
        name = self.learner or usual
        learner = load_learner(name) if is_reference(name) else built_in_learner(name)
        return digits_task(num_records=self.num_records or num_records, learner=cast("Learner", learner))
