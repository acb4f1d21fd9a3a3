"""Deployments in a folder: created, opened, crash-safe, with requests, true erasure and certificates."""

from expunge.folder.backup import BackUp, Restored, back_up, restore
from expunge.folder.deployment import DurableDeployment, DurableStatus
from expunge.folder.disclosure import Disclosure, ModelCommitment, disclose, export_for_audit
from expunge.folder.inspection import Contents, DeploymentView, contents, open_view
from expunge.folder.opening import create, open
from expunge.folder.policy import ApplyPolicy
from expunge.folder.replica import Replica, ReplicaEndedError, open_replica
from expunge.folder.schema import Schema, SchemaFact
from expunge.folder.store.requests import Request

__all__ = [
    "ApplyPolicy",
    "BackUp",
    "Contents",
    "DeploymentView",
    "Disclosure",
    "DurableDeployment",
    "DurableStatus",
    "ModelCommitment",
    "Replica",
    "ReplicaEndedError",
    "Request",
    "Restored",
    "Schema",
    "SchemaFact",
    "back_up",
    "contents",
    "create",
    "disclose",
    "export_for_audit",
    "open",
    "open_replica",
    "open_view",
    "restore",
]
