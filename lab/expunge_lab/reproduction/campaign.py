"""Running the table: rows in their order, trials in batches, every batch written as it finishes, stopping on time."""

from __future__ import annotations

import importlib.metadata
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import numpy as np

from expunge.core.checks import require_count, require_number
from expunge.core.version import __version__
from expunge_lab.reproduction.files import make_folder
from expunge_lab.reproduction.pictures import Pictures, load_pictures
from expunge_lab.reproduction.results import RowResults, Run, Variant, read_results, write_results
from expunge_lab.reproduction.rows import Experiment, Row
from expunge_lab.reproduction.trials import Trials

RunTrials = Callable[[Sequence[int]], Trials]
Progress = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]
_MARGIN = 1.15  # a batch may take a little longer than the one before
_FIRST_MARGIN = 1.5  # and a row's first one may have to be compiled, or be of a slower network


class MakeRunner(Protocol):
    """What runs trials of a row, by their numbers."""

    def __call__(self, row: Row, pictures: Pictures, *, has_fixed_partition: bool) -> RunTrials:
        """Prepared for one row: images on the device, programs compiled once."""


@contextmanager
def silence(description: str, total: int) -> Iterator[Callable[[int], None]]:
    """Progress without a display."""
    yield lambda steps: None


class _Budget:
    """Whether another batch fits into the time, at the pace of the last one (compilation included)."""

    def __init__(self, seconds: float | None, clock: Callable[[], float], began: float | None) -> None:
        self._seconds, self._clock, self._pace = seconds, clock, 0.0
        self._began = clock() if began is None else began

    def allows(self, work: int, *, is_first: bool) -> bool:
        """Without any pace yet, as long as there is any time; `is_first` of a row."""
        if self._seconds is None:
            return True
        expected = (_FIRST_MARGIN if is_first else _MARGIN) * self._pace * work
        return self._clock() - self._began + expected < self._seconds

    def learn(self, taken: float, work: int) -> None:
        """The pace of a batch."""
        self._pace = taken / work


@dataclass
class Campaign:
    """Trials of many rows, until all are done or the time is up.

    A batch always has `batch` trials, so that a row runs one compiled program: the last one goes beyond `num_trials`,
    and what it finds beyond is kept but not used. With `seconds`, a batch is not begun if, at the pace so far, it
    would not finish in time; without any pace yet the first one is begun. They count from `began` on the clock, or from
    the call of `run`.
    """

    folder: Path
    make_runner: MakeRunner
    num_trials: int
    batch: int
    command: str
    device: str
    variant: Variant = field(default_factory=Variant)
    seconds: float | None = None
    progress: Progress = silence
    clock: Callable[[], float] = time.monotonic
    began: float | None = None

    def __post_init__(self) -> None:
        require_count("trials", self.num_trials, least=2)
        require_count("batch", self.batch)
        if self.seconds is not None:
            require_number("seconds", self.seconds, above=0, infinite=True)

    def run(self, rows: Sequence[Row]) -> bool:
        """Whether all of the rows are done now."""
        budget = _Budget(self.seconds, self.clock, self.began)
        waiting = [row for row in rows if read_results(self.folder, row, self.variant).missing(self.num_trials)]
        # All data before any training: a missing file is said at once.
        images: dict[Experiment, Pictures] = {}
        for row in waiting:
            if row.experiment not in images:
                images[row.experiment] = self._load(row)
        if waiting:
            make_folder(self.folder)
        return all(self._run_row(row, images[row.experiment], budget) for row in waiting)

    def _run_row(self, row: Row, pictures: Pictures, budget: _Budget) -> bool:
        """Whether the row is done; every batch is on disk before the next begins."""
        results = read_results(self.folder, row, self.variant)
        run = Run(_now(), self.command, self.device, versions(), 0.0, 0)
        runner: RunTrials | None = None
        with self.progress(row.title, self.num_trials) as advance:
            advance(self.num_trials - len(results.missing(self.num_trials)))
            for numbers in self._batches(results):
                work = len(numbers) * row.experiment.work
                if not budget.allows(work, is_first=runner is None):
                    return False
                began = self.clock()
                runner = runner or self._prepare(row, pictures)
                trials = runner(numbers)
                taken = self.clock() - began
                budget.learn(taken, work)
                run = replace(run, seconds=round(run.seconds + taken, 2), num_trials=run.num_trials + len(numbers))
                results = results.add(trials, run)
                write_results(self.folder, results)
                advance(len(numbers))
        return True

    def _batches(self, results: RowResults) -> Iterator[list[int]]:
        """Missing numbers, the last batch filled up with numbers that come after all others."""
        missing = results.missing(self.num_trials)
        used = 0 if results.trials is None or not results.is_current else int(results.trials.numbers.max()) + 1
        spare = max(self.num_trials, used)
        missing += range(spare, spare + -len(missing) % self.batch)
        for first in range(0, len(missing), self.batch):
            yield missing[first : first + self.batch]

    def _load(self, row: Row) -> Pictures:
        variant = self.variant
        return load_pictures(
            row.experiment, has_fresh_split=variant.has_fresh_split, has_released_order=variant.has_fixed_partition
        )

    def _prepare(self, row: Row, pictures: Pictures) -> RunTrials:
        return self.make_runner(row, pictures, has_fixed_partition=self.variant.has_fixed_partition)


def versions() -> str:
    """What trials depend on besides their numbers."""
    found = [f"expunge {__version__}", f"python {platform.python_version()}", f"numpy {np.__version__}"]
    for package in ("jax", "jaxlib"):
        try:
            found.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return ", ".join(found)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
