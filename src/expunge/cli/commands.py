"""Every command, in the order in which `expunge --help` lists them."""

from expunge.cli import demo, plan, create, predict, delete, add, apply, cancel, status, certificate, verify  # isort: skip
from expunge.cli import audit, reproduce, bench  # isort: skip

__all__ = [
    "add",
    "apply",
    "audit",
    "bench",
    "cancel",
    "certificate",
    "create",
    "delete",
    "demo",
    "plan",
    "predict",
    "reproduce",
    "status",
    "verify",
]
