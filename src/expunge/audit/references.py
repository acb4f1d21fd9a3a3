"""What a user names as `module:factory`: schemes, requesters and learners of their own."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from sklearn.base import BaseEstimator

from expunge.audit.scenario import Task
from expunge.audit.scenarios._shared import MakeRequester
from expunge.audit.schemes import AnyScheme, Scheme
from expunge.errors import ExpungeError, InputError
from expunge.interaction import Requester
from expunge.learners import Learner, ScikitLearner, SlicedLearner
from expunge.randomness import Randomness


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
