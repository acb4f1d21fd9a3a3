"""The command line: `expunge COMMAND`, one module a command, each of which registers itself on `app`."""

from expunge.cli.app import app, main
from expunge.cli.commands import demo

__all__ = ["app", "demo", "main"]
