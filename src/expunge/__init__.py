"""expunge: train on people's data, honour every deletion request, and prove it.

The public names are loaded when first used, so that a program which only verifies or plans does not load the training
code.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from expunge._version import __version__

if TYPE_CHECKING:
    from expunge.accounting import PrivacyBudget
    from expunge.deployment import Deployment
    from expunge.durable import create, open
    from expunge.ensemble import EnsembleState, learn, update
    from expunge.errors import ExpungeError
    from expunge.estimator import UnlearningClassifier
    from expunge.guarantees import Guarantee
    from expunge.planning import Plan, plan
    from expunge.randomness import Randomness
    from expunge.records import Add, AddMany, Delete, DeleteSubject, Records
    from expunge.sampling import IndependentSampler, PartitionSampler

_HOMES = {
    "Add": "records",
    "AddMany": "records",
    "Delete": "records",
    "DeleteSubject": "records",
    "Deployment": "deployment",
    "EnsembleState": "ensemble",
    "ExpungeError": "errors",
    "Guarantee": "guarantees",
    "IndependentSampler": "sampling",
    "PartitionSampler": "sampling",
    "Plan": "planning",
    "PrivacyBudget": "accounting",
    "Randomness": "randomness",
    "Records": "records",
    "UnlearningClassifier": "estimator",
    "create": "durable",
    "learn": "ensemble",
    "open": "durable",
    "plan": "planning",
    "update": "ensemble",
}

__all__ = [
    "Add",
    "AddMany",
    "Delete",
    "DeleteSubject",
    "Deployment",
    "EnsembleState",
    "ExpungeError",
    "Guarantee",
    "IndependentSampler",
    "PartitionSampler",
    "Plan",
    "PrivacyBudget",
    "Randomness",
    "Records",
    "UnlearningClassifier",
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
