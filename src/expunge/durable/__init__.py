"""Deployments in a folder: created, opened, crash-safe, with requests, true erasure and certificates."""

from expunge.durable.deployment import DurableDeployment
from expunge.durable.looking import DeploymentView, look
from expunge.durable.opening import create, open
from expunge.durable.policy import ApplyPolicy
from expunge.durable.status import DurableStatus
from expunge.store import Request

__all__ = ["ApplyPolicy", "DeploymentView", "DurableDeployment", "DurableStatus", "Request", "create", "look", "open"]
