"""Every command, in the order in which `expunge --help` lists them."""

from expunge.cli import demo, plan, reproduce, bench, verify  # isort: skip

__all__ = ["bench", "demo", "plan", "reproduce", "verify"]
