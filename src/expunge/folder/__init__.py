"""Deployments in a folder: created, opened, crash-safe, with requests, true erasure and certificates."""

from expunge.folder.deployment import DurableDeployment, DurableStatus
from expunge.folder.inspection import DeploymentView, look
from expunge.folder.opening import create, open
from expunge.folder.policy import ApplyPolicy
from expunge.folder.recipe import Contents, contents
from expunge.folder.store import Request

__all__ = [
    "ApplyPolicy",
    "Contents",
    "DeploymentView",
    "DurableDeployment",
    "DurableStatus",
    "Request",
    "contents",
    "create",
    "look",
    "open",
]
