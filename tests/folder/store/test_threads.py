"""Threads beside their caller: none of them outlives an interruption."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import expunge
from expunge.folder.store import slabs
from expunge.folder.store.threads import ThreadGroup, for_each
from expunge.training.learners import LookupTableLearner


class Sluggish:
    """Work that has begun and will not end before this process was interrupted twice while it waits for it."""

    def __init__(self) -> None:
        self.begun, self.ended = threading.Event(), threading.Event()
        threading.Thread(target=self._interrupt, args=(threading.get_ident(),), daemon=True).start()
        self._may_end = threading.Event()

    def _interrupt(self, who: int) -> None:
        assert self.begun.wait(30)
        for _ in range(2):
            time.sleep(0.1)  # for the caller to be waiting (again); interrupted earlier it would do the same
            signal.pthread_kill(who, signal.SIGINT)
        time.sleep(0.1)
        self._may_end.set()

    def __call__(self, *_: object) -> None:
        self.begun.set()
        assert self._may_end.wait(30)
        time.sleep(0.05)
        self.ended.set()


def interrupted(act: Callable[[], object]) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where tests run in the background
    try:
        with pytest.raises(KeyboardInterrupt):
            act()
    finally:
        signal.signal(signal.SIGINT, before)


def test_who_is_interrupted_twice_still_waits_for_the_end() -> None:
    work = Sluggish()

    def act() -> None:
        with ThreadGroup(1) as threads:
            threads.start(work).result()

    interrupted(act)
    assert work.ended.is_set()


def test_what_has_not_begun_is_not_begun_after_an_interruption() -> None:
    work, done = Sluggish(), list[int]()

    def act() -> None:
        with ThreadGroup(1) as threads:
            jobs = [threads.start(work), *(threads.start(done.append, number) for number in range(3))]
            jobs[0].result()

    interrupted(act)
    assert work.ended.is_set()
    assert done == []


def test_side_by_side_is_no_less_patient() -> None:
    work = Sluggish()
    interrupted(lambda: for_each(work, [1] * 6))
    assert work.ended.is_set()


def test_all_are_tried_and_the_first_failure_is_told() -> None:
    tried = []

    def act(number: int) -> None:
        tried.append(number)
        if number in (3, 5):
            raise ValueError(str(number))

    with pytest.raises(ValueError, match="3"):
        for_each(act, list(range(20)), most=2)
    assert sorted(tried) == list(range(20))


def test_an_update_that_is_interrupted_twice_writes_nothing_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of a request that was cancelled since would otherwise be where the next one's are to be."""
    options = {"n_shards": 2, "promise": "unguarded", "apply": "manual", "ids": list(range(100, 104))}
    deployment = expunge.create(tmp_path / "folder", LookupTableLearner(), np.eye(4), [0, 1, 0, 1], **options)
    request = deployment.add(np.full((300, 4), 7.0), [1] * 300, [*range(200, 500)]).request
    really_append, work = slabs._append, Sluggish()

    def append(path: Path, data: object) -> None:
        work()
        really_append(path, data)

    with monkeypatch.context() as patch:
        patch.setattr(slabs, "_append", append)
        interrupted(deployment.apply)
    deployment.cancel(request)
    deployment.add(np.full((1, 4), 5.0), [0], [55])
    assert deployment.apply() == 1
    deployment.close()
    with expunge.open(tmp_path / "folder") as found:
        assert sorted(found.records.ids()) == [55, 100, 101, 102, 103]
        assert np.array_equal(found.records.gather(np.array([4]))[0], np.full((1, 4), 5.0))
