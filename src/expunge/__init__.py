"""expunge: train on people's data, honour every deletion request, and prove it."""

from expunge._version import __version__
from expunge.accounting import PrivacyBudget
from expunge.deployment import Deployment
from expunge.ensemble import EnsembleState, learn, update
from expunge.errors import ExpungeError
from expunge.estimator import UnlearningClassifier
from expunge.guarantees import Guarantee
from expunge.randomness import Randomness
from expunge.records import Add, AddMany, Delete, DeleteSubject, Records
from expunge.sampling import IndependentSampler, PartitionSampler

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
    "PrivacyBudget",
    "Randomness",
    "Records",
    "UnlearningClassifier",
    "__version__",
    "learn",
    "update",
]
