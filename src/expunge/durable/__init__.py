"""Deployments in a folder: created, opened, crash-safe, with requests, true erasure and certificates."""

from expunge.durable.deployment import DurableDeployment
from expunge.durable.looking import DeploymentView, look
from expunge.durable.opening import create, open
from expunge.durable.policy import ApplyPolicy
from expunge.durable.reading import Contents, contents
from expunge.durable.status import DurableStatus
from expunge.store import Request

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
