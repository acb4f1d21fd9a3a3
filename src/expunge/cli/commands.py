"""Every command, in the order in which `expunge --help` lists them."""

from expunge.cli import bench, demo

__all__ = ["bench", "demo"]
