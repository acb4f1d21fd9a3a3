"""Deployments in a folder: created, opened, crash-safe, with requests, true erasure and certificates."""

from expunge.folder.deployment import DurableDeployment, DurableStatus
from expunge.folder.inspection import Contents, DeploymentView, contents, open_view
from expunge.folder.opening import create, open
from expunge.folder.policy import ApplyPolicy
from expunge.folder.store.requests import Request

__all__ = [
    "ApplyPolicy",
    "Contents",
    "DeploymentView",
    "DurableDeployment",
    "DurableStatus",
    "Request",
    "contents",
    "create",
    "open",
    "open_view",
]
