"""Suppress warnings while models train and vote: they could reveal r.

How many models warn, and about what, depends on r. Warnings end up in logs, which are outside the trust boundary. So do
the errors that they may be turned into.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

_lock = threading.Lock()
_inside = 0
_filters: warnings.catch_warnings[None] | None = None


@contextmanager
def silenced() -> Iterator[None]:
    """Show and raise no warning and no floating-point error inside the block.

    Python's warning filters belong to the whole process. They are restored when the last thread leaves its block.
    """
    _enter()
    try:
        with np.errstate(all="ignore"):
            yield
    finally:
        _leave()


def _enter() -> None:
    global _inside, _filters
    with _lock:
        if not _inside:
            _filters = warnings.catch_warnings()
            _filters.__enter__()
            warnings.simplefilter("ignore")
        _inside += 1


def _leave() -> None:
    global _inside, _filters
    with _lock:
        _inside -= 1
        if not _inside and _filters is not None:
            _filters.__exit__(None, None, None)
            _filters = None
