"""The named steps of the protocol, at each of which a test can kill the process.

`report_step(name)` does nothing in real use. A test sets `on_step` to a function that kills its process.
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
    "erase.keys",
    "erase.heap",
    "erase.slots",
    "sweep.listed",
    "waiting.swept",
    "remove.file",
    "erase.files",
    "erase.checkpoint",
    "replicas.followed",
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
    "backup.copied",
    "backup.written",
    "backup.named",
    "restore.unpacked",
    "restore.merged",
    "restore.done",
    "open.locked",
    "open.swept",
    "open.read",
    "open.done",
)
"""First the steps of an update and its erasure, in order. Then those of predictions, of cancelling and closing, of
rewriting all records, of creating a folder, of backing one up and restoring it, and of opening one, which finishes what
a crash left unfinished."""


def _pass_by(_: str) -> None:
    pass


on_step: Callable[[str], None] = _pass_by


def report_step(name: str) -> None:
    """Report that a step is reached."""
    on_step(name)
