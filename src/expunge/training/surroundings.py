"""What surrounds a training or a vote, and must neither decide a model's bits nor tell what is inside.

A model is a function of the records and the recipe (T6). What a process sets for itself is not part of these: how many
threads its linear algebra and OpenMP use, and the settings of scikit-learn (`sklearn.set_config`), which worker
processes do not even share. Sums are rounded by the number of threads, and a pipeline's steps learn column names if
their output is set to data frames. So training and voting use one thread and scikit-learn's own settings. A pipeline
that needs data frames between its steps says so itself (`set_output`).

Some libraries have one random generator for the whole process, which a training seeds and then draws from. Two such
trainings in two threads would draw from one another's: only one of them runs at a time (`alone`).

Warnings are suppressed, because how many models warn, and about what, depends on r. Warnings end up in logs, which are
outside the trust boundary. So do the errors that they may be turned into.
"""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
import sklearn
from threadpoolctl import ThreadpoolController

Libraries = list[Any]

_SETTINGS = {
    "assume_finite": False,
    "working_memory": 1024,
    "pairwise_dist_chunk_size": 256,
    "enable_cython_pairwise_dist": True,
    "array_api_dispatch": False,
    "transform_output": "default",
    "enable_metadata_routing": False,
    "skip_parameter_validation": False,
    "sparse_interface": "spmatrix",
}  # those that a fit may read; a version of scikit-learn may lack one


@contextmanager
def training() -> Iterator[None]:
    """One thread, scikit-learn's own settings and no warnings inside the block: nothing but the recipe decides bits.

    Small models do not profit from threads, and on a busy machine threads wait for one another. Parallelism is the
    executor's.
    """
    with voting():
        yield


@contextmanager
def voting() -> Iterator[None]:
    """As `training`: many predictions at a time would also wait for one another's threads.

    A thread that is inside already has nothing to do, so one that votes again and again enters once, for all its work.
    """
    num_modules = len(sys.modules)
    before = getattr(_entered, "num_modules", None)
    if before == num_modules:  # with another module another library may have come
        yield
        return
    if getattr(_entered, "for_good", False):
        vote_for_good()
        yield
        return
    for_all, for_one = _libraries(num_modules)
    with (
        sklearn.config_context(**_settings()),
        silenced(),
        _for_all_threads.inside(for_all),
        _single(for_one),
    ):
        _entered.num_modules = num_modules
        try:
            yield
        finally:
            _entered.num_modules = before


def vote_for_good() -> None:
    """Enter `voting` in this thread, and never leave it: for threads of a service, which do nothing else."""
    num_modules = len(sys.modules)
    for_all, for_one = _libraries(num_modules)
    sklearn.set_config(**_settings())
    _filters.enter()
    np.seterr(all="ignore")
    _for_all_threads.enter(for_all)
    _set_threads(for_one, [1] * len(for_one))
    _entered.num_modules, _entered.for_good = num_modules, True


def _settings() -> dict[str, Any]:
    """Scikit-learn's own settings."""
    known = sklearn.get_config()
    return {name: value for name, value in _SETTINGS.items() if name in known}


@contextmanager
def alone() -> Iterator[None]:
    """At most one thread of the process is inside such a block; a thread may enter another one inside."""
    with _alone:
        yield


def _renew_lock() -> None:
    """In a forked process the thread that held the lock is gone."""
    global _alone
    _alone = threading.RLock()


_alone = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


@contextmanager
def silenced() -> Iterator[None]:
    """Show and raise no warning and no floating-point error inside the block, in any thread."""
    with _filters.inside(), np.errstate(all="ignore"):
        yield


class _Shared:
    """A setting of the whole process: made when the first thread enters, undone when the last one leaves."""

    def __init__(self, change: Callable[[Any], AbstractContextManager[Any]]) -> None:
        self._change = change
        self._lock = threading.Lock()
        self._inside = 0
        self._done = ExitStack()
        self._version: Any = None

    def enter(self, version: Any = None) -> None:
        """Enter, for good if nothing follows."""
        with self._lock:
            if not self._inside or version is not self._version:
                self._done.enter_context(self._change(version))
                self._version = version
            self._inside += 1

    @contextmanager
    def inside(self, version: Any = None) -> Iterator[None]:
        """Enter. With another version than before the change is made again, on top of the one before."""
        self.enter(version)
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                if not self._inside:
                    self._done.close()


@contextmanager
def _single(libraries: Libraries) -> Iterator[None]:
    """One thread for these libraries inside the block."""
    before = [each.num_threads for each in libraries]
    _set_threads(libraries, [1] * len(libraries))
    try:
        yield
    finally:
        _set_threads(libraries, before)


def _set_threads(libraries: Libraries, numbers: list[int]) -> None:
    for each, number in zip(libraries, numbers, strict=True):
        # Of all threads that set a number for OpenBLAS, threadpoolctl otherwise listens to the first one only.
        release = getattr(each, "clear_controlling_thread", lambda force: None)
        release(force=True)
        each.set_num_threads(number)
        release(force=True)


_entered = threading.local()
_filters = _Shared(lambda _: warnings.catch_warnings(action="ignore"))
_for_all_threads = _Shared(_single)


@lru_cache(maxsize=1)
def _libraries(num_modules: int) -> tuple[Libraries, Libraries]:
    """The libraries loaded by now with one number of threads for the process, and those with one for each thread.

    To look for them takes as long as a small training.
    """
    found = ThreadpoolController().lib_controllers
    for_one = [each for each in found if "openmp" in (each.user_api, getattr(each, "threading_layer", None))]
    return [each for each in found if each not in for_one], for_one
