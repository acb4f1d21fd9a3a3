"""expunge: train on people's data, honour every deletion request, and prove it.

The public names are loaded when first used, so that a program which only verifies or plans does not load the training
code.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from expunge.core.version import __version__

if TYPE_CHECKING:
    from expunge.core.errors import ExpungeError
    from expunge.core.guarantee import Guarantee
    from expunge.core.prf import RecipeKey
    from expunge.core.randomness import Randomness
    from expunge.core.records import Add, AddMany, Delete, DeleteSubject, Records
    from expunge.folder import create, open
    from expunge.privacy.accounting import PrivacyBudget
    from expunge.service.client import Client
    from expunge.serving.deployment import Deployment
    from expunge.serving.estimator import UnlearningClassifier, UnlearningRegressor
    from expunge.serving.promises import Consensus, Exact, Noise, Router, Student, Unguarded
    from expunge.theory.planning import Plan, plan
    from expunge.training.ensemble import EnsembleState, learn, update
    from expunge.training.learners.forest import UnlearningForest
    from expunge.training.recipe import Recipe
    from expunge.training.sampling import IndependentSampler, PartitionSampler

_HOMES = {
    "Add": "core.records",
    "AddMany": "core.records",
    "Client": "service.client",
    "Consensus": "serving.promises",
    "Delete": "core.records",
    "DeleteSubject": "core.records",
    "Deployment": "serving.deployment",
    "EnsembleState": "training.ensemble",
    "Exact": "serving.promises",
    "ExpungeError": "core.errors",
    "Guarantee": "core.guarantee",
    "IndependentSampler": "training.sampling",
    "Noise": "serving.promises",
    "PartitionSampler": "training.sampling",
    "Plan": "theory.planning",
    "PrivacyBudget": "privacy.accounting",
    "Randomness": "core.randomness",
    "Recipe": "training.recipe",
    "RecipeKey": "core.prf",
    "Records": "core.records",
    "Router": "serving.promises",
    "Student": "serving.promises",
    "Unguarded": "serving.promises",
    "UnlearningClassifier": "serving.estimator",
    "UnlearningForest": "training.learners.forest",
    "UnlearningRegressor": "serving.estimator",
    "create": "folder",
    "learn": "training.ensemble",
    "open": "folder",
    "plan": "theory.planning",
    "update": "training.ensemble",
}

__all__ = [
    "Add",
    "AddMany",
    "Client",
    "Consensus",
    "Delete",
    "DeleteSubject",
    "Deployment",
    "EnsembleState",
    "Exact",
    "ExpungeError",
    "Guarantee",
    "IndependentSampler",
    "Noise",
    "PartitionSampler",
    "Plan",
    "PrivacyBudget",
    "Randomness",
    "Recipe",
    "RecipeKey",
    "Records",
    "Router",
    "Student",
    "Unguarded",
    "UnlearningClassifier",
    "UnlearningForest",
    "UnlearningRegressor",
    "__version__",
    "create",
    "learn",
    "open",
    "plan",
    "update",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'expunge' has no attribute {name!r}")
    value = getattr(import_module(f"expunge.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
