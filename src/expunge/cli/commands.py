"""Every command, in the order in which `expunge --help` lists them."""

from expunge.cli import demo

__all__ = ["demo"]
