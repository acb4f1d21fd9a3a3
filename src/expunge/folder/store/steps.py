"""The named steps of the protocol, so that a test can stop the process dead at every one of them.

`report_step(name)` does nothing in real use. A test's own process sets `on_step` to something that kills it.
"""

from __future__ import annotations

from collections.abc import Callable

STEPS = (
    "accept.begin",
    "accept.staged",
    "accept.done",
    "apply.trained",
    "stage.records",
    "stage.model",
    "stage.done",
    "switch.open",
    "switch.done",
    "erase.heap",
    "erase.slots",
    "sweep.listed",
    "remove.file",
    "erase.files",
    "erase.checkpoint",
    "applied.open",
    "applied.done",
    "reserve.open",
    "reserve.done",
    "dirty.flagged",
    "dirty.done",
    "cancel.done",
    "close.open",
    "close.done",
    "rewrite.done",
    "create.folder",
    "create.records",
    "create.models",
    "create.written",
    "create.renamed",
    "open.locked",
    "open.swept",
    "open.read",
    "open.done",
)
"""In the order in which an update and its erasure pass them; then those of predictions, cancelling and closing; of
records written anew; of making a folder; and of opening one, which finishes what a crash has left."""


def _pass_by(_: str) -> None:
    pass


on_step: Callable[[str], None] = _pass_by


def report_step(name: str) -> None:
    """Say that a step is reached."""
    on_step(name)
