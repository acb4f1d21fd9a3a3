"""Nothing is heard of models while they train and vote.

How many of them warn, and of what, depends on r, and warnings end up in logs, which are outside the trust boundary. So
do the errors that they may be turned into.
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
    """No warning is shown or raised, and no floating-point error is.

    Python's filters belong to the whole process: they are put back when the last thread leaves.
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
