"""Every command, in the order in which `expunge --help` lists them, then those that other packages add.

Another package adds a command through the entry-point group `expunge.commands`: the name of the entry is the
command, and it points to a function or to a `typer.Typer` group.
"""

from importlib.metadata import entry_points

import typer

from expunge.cli import demo, plan, create, predict, requests, status, certificate, verify, audit  # isort: skip
from expunge.cli.app import app

__all__ = ["audit", "certificate", "create", "demo", "plan", "predict", "requests", "status", "verify"]

for _entry in entry_points(group="expunge.commands"):
    _command = _entry.load()
    if isinstance(_command, typer.Typer):
        app.add_typer(_command, name=_entry.name)
    else:
        app.command(_entry.name)(_command)
