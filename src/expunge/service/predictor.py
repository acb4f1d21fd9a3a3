"""Predictions of many callers: single rows are answered together, and large batches beside them.

Rows that arrive at about the same time are answered in one turn. Under load turns are larger by themselves, and alone a
row waits for nothing. Large bodies are read in a process of their own and answered in pieces, so that they hold
nothing up.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from expunge.core.features import Features, num_rows, take
from expunge.folder import DurableDeployment, Replica
from expunge.service.columns import Columns, Form, Row
from expunge.service.exchange import Answer
from expunge.service.problems import Problem
from expunge.service.reading import Reading
from expunge.serving.deployment import Published
from expunge.training.surroundings import vote_for_good

FEW_ROWS: Final = 64  # up to so many are answered together with those of others
_TOGETHER: Final = 1024  # rows of one turn
_AT_ONCE: Final = 4096  # rows of a large batch that are asked about in one call
_LARGE: Final = 1 << 16  # bytes from which on a body is read in another process
_MOST_WAITING: Final = 16_384  # rows that wait for their turn; more are refused
_MOST_BATCHES: Final = 16  # batches that wait for theirs
_QUICK: Final = 0.002  # seconds of a turn that the loop itself may take
_ATTEMPTS: Final = 3
_NICENESS: Final = 10  # of the thread that answers large batches: single rows and other programs go first

Write = Callable[[Published], Answer]


@dataclass(slots=True, eq=False)
class _Waiting:
    """Rows that wait for their turn."""

    rows: list[Row]
    probabilities: bool
    future: asyncio.Future[Published]


class Predictor:
    """Answers rows of features for many callers.

    Parameters
    ----------
    deployment
        Who is asked.
    columns
        How rows are read.
    """

    def __init__(self, deployment: DurableDeployment | Replica, columns: Columns) -> None:
        self._deployment, self._columns = deployment, columns
        self._waiting: deque[_Waiting] = deque()
        self._num_waiting, self._num_batches = 0, 0
        self._is_scheduled = False
        # Where answers are paid for on the disk, a turn is never taken by the loop.
        self._cost = 0.0 if deployment.is_exact else float("inf")
        self._turns, self._middle, self._large = (
            ThreadPoolExecutor(1, name, initializer=_get_ready, initargs=(niceness,))
            for name, niceness in (("turns", 0), ("middle", 0), ("large", _NICENESS))
        )
        self._reading = Reading(columns)

    async def start(self) -> None:
        """Get ready, in the loop's own thread."""
        self._loop = asyncio.get_running_loop()
        self._reading.start()

    def close(self) -> None:
        """End the threads and the process, after what they are doing."""
        for lane in (self._turns, self._middle, self._large):
            lane.shutdown()
        self._reading.close()

    async def answer(self, form: Form, body: bytes, write: Write, *, probabilities: bool, most: int) -> Answer:
        """Answer the rows of a body.

        Parameters
        ----------
        form, body
            The body.
        write
            Writes the answers down.
        probabilities
            Whether probabilities are wanted.
        most
            The most rows.

        Returns
        -------
        Answer
            What was written.

        Raises
        ------
        Problem, ExpungeError
            If the rows are wrong or too many, may not be answered, or the service is too busy.
        """
        if form == "json" and len(body) < _LARGE:
            rows = self._columns.rows(body)
            if len(rows) <= min(FEW_ROWS, most):
                return write(await self._together(rows, probabilities))
        return await self._beside(form, body, write, probabilities=probabilities, most=most)

    async def _beside(self, form: Form, body: bytes, write: Write, *, probabilities: bool, most: int) -> Answer:
        """Answer a batch in a thread beside the loop."""

        def read() -> Features:
            is_slow = form in ("json", "csv") and len(body) >= _LARGE  # Arrow and NPY are read without decoding
            features = self._reading.read(form, body) if is_slow else self._columns.read(form, body)
            if num_rows(features) > most:
                raise Problem(413, "too-large", f"a batch has at most {most:,} rows here, got {num_rows(features):,}")
            return features

        if self._num_batches >= _MOST_BATCHES:
            raise Problem(503, "unavailable", "too many batches are waiting", headers=[("retry-after", "1")])
        self._num_batches += 1
        try:
            lane = self._middle if len(body) < _LARGE else self._large
            return await self._loop.run_in_executor(lane, lambda: write(self._in_pieces(read(), probabilities)))
        finally:
            self._num_batches -= 1

    def _in_pieces(self, features: Features, probabilities: bool) -> Published:
        """Answer a batch, all of it in one round."""
        size, ask = num_rows(features), self._deployment.answer
        if size <= _AT_ONCE or not self._deployment.is_exact:  # else it is charged as a whole
            return ask(features, probabilities=probabilities)
        for _ in range(_ATTEMPTS):
            found = [
                ask(take(features, np.arange(first, min(first + _AT_ONCE, size))), probabilities=probabilities)
                for first in range(0, size, _AT_ONCE)
            ]
            if found[0].round == found[-1].round:
                return _joined(found)
        return ask(features, probabilities=probabilities)

    def _together(self, rows: list[Row], probabilities: bool) -> asyncio.Future[Published]:
        """Answer a few rows together with those of other callers."""
        if self._num_waiting + len(rows) > _MOST_WAITING:
            raise Problem(503, "unavailable", "too many rows are waiting", headers=[("retry-after", "1")])
        waiting = _Waiting(rows, probabilities, self._loop.create_future())
        self._waiting.append(waiting)
        self._num_waiting += len(rows)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._begin_turn)
        return waiting.future

    def _begin_turn(self) -> None:
        """Answer what waits: here if that is quick, else in a thread."""
        turn, size = list[_Waiting](), 0
        while self._waiting and size < _TOGETHER:
            turn.append(self._waiting.popleft())
            size += len(turn[-1].rows)
        self._num_waiting -= size
        if self._cost < _QUICK:
            self._end_turn(self._take_turn(turn))
        else:
            self._turns.submit(self._take_turn, turn).add_done_callback(
                lambda done: self._loop.call_soon_threadsafe(self._end_turn, done.result())
            )

    def _take_turn(self, turn: list[_Waiting]) -> list[tuple[_Waiting, Published | Exception]]:
        """The answers of everyone in the turn. One whose rows are wrong spoils nothing for the others."""
        begun = time.perf_counter()
        found = list[tuple[_Waiting, Published | Exception]]()
        for wanted in (False, True):
            group = [each for each in turn if each.probabilities is wanted]
            found += self._answer_group(group) if group else []
        if self._deployment.is_exact:
            self._cost += (time.perf_counter() - begun - self._cost) / 4
        return found

    def _answer_group(self, group: list[_Waiting]) -> list[tuple[_Waiting, Published | Exception]]:
        try:
            rows = group[0].rows if len(group) == 1 else [row for each in group for row in each.rows]
            answers = self._deployment.answer(self._columns.features(rows), probabilities=group[0].probabilities)
        except Exception as error:
            if len(group) == 1:
                return [(group[0], error)]
            return [told for each in group for told in self._answer_group([each])]
        if len(group) == 1:
            return [(group[0], answers)]
        parts, first = list[tuple[_Waiting, Published | Exception]](), 0
        for each in group:
            last = first + len(each.rows)
            parts.append((each, _part(answers, slice(first, last))))
            first = last
        return parts

    def _end_turn(self, found: list[tuple[_Waiting, Published | Exception]]) -> None:
        for each, answers in found:
            if each.future.done():  # the caller has gone
                continue
            if isinstance(answers, Exception):
                each.future.set_exception(answers)
            else:
                each.future.set_result(answers)
        self._is_scheduled = bool(self._waiting)
        if self._is_scheduled:
            self._loop.call_soon(self._begin_turn)


def _get_ready(niceness: int) -> None:
    """Prepare a thread of a lane."""
    vote_for_good()
    if niceness and sys.platform == "linux":  # where a thread has a priority of its own
        own = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, own, min(19, os.getpriority(os.PRIO_PROCESS, own) + niceness))


def _part(found: Published, rows: slice) -> Published:
    codes, values, probabilities = found.codes, found.values, found.probabilities
    return Published(
        found.round,
        None if codes is None else codes[rows],
        None if values is None else values[rows],
        None if probabilities is None else probabilities[rows],
    )


def _joined(parts: list[Published]) -> Published:
    together = zip(*map(_arrays, parts), strict=True)
    return Published(parts[0].round, *(None if each[0] is None else np.concatenate(each) for each in together))


def _arrays(found: Published) -> tuple[Any, Any, Any]:
    return found.codes, found.values, found.probabilities
