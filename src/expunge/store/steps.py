"""The named steps of the protocol, so that a test can stop the process dead at every one of them.

`reach(name)` does nothing in real use. A test's own process sets `watch` to something that kills it.
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
    "erase.slots",
    "erase.files",
    "erase.checkpoint",
    "applied.open",
    "applied.done",
    "reserve.open",
    "reserve.done",
    "dirty.done",
    "cancel.done",
    "close.open",
    "close.done",
    "rewrite.done",
)
"""In the order in which an update and its erasure pass them; then those of predictions, cancelling and closing."""


def _pass_by(_: str) -> None:
    pass


watch: Callable[[str], None] = _pass_by


def reach(name: str) -> None:
    """Say that a step is reached."""
    watch(name)
