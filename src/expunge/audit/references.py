"""What a user names as `module:factory`: schemes, requesters and learners of their own."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from typing import Any

from sklearn.base import BaseEstimator

from expunge.audit.scenario import Task
from expunge.audit.scenarios._shared import MakeRequester
from expunge.audit.schemes import AnyScheme, Scheme
from expunge.errors import InputError
from expunge.learners import Learner, ScikitLearner, SlicedLearner


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
    except ImportError as error:
        raise InputError(f"{reference!r} cannot be loaded: {error}") from None
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
    made = AnyScheme(_called(load_factory(reference), task), name=reference)
    if made.missing:
        raise InputError(f"the scheme of {reference!r} has no {', '.join(made.missing)}")
    return made


def load_requester(reference: str) -> MakeRequester:
    """The user's `factory(task, rng)`, which makes a requester for every trial."""
    return load_factory(reference)


def load_learner(reference: str) -> Learner | SlicedLearner:
    """The user's learner, or a scikit-learn classifier as one, from `factory()`."""
    made = load_factory(reference)()
    if isinstance(made, BaseEstimator):
        return ScikitLearner(made)
    if not isinstance(made, Learner | SlicedLearner):
        raise InputError(f"{reference!r} must make a learner or a scikit-learn classifier, got {type(made).__name__}")
    return made


def _called(factory: Callable[..., Any], task: Task) -> Any:
    try:
        wanted = [
            parameter
            for parameter in inspect.signature(factory).parameters.values()
            if parameter.default is parameter.empty
            and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        ]
    except (TypeError, ValueError):
        wanted = []
    return factory(task) if wanted else factory()
