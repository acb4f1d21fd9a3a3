"""What an engine adds to trainings: the shards of a folder on each engine, against plain joblib on arrays in memory."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed, parallel_config

import expunge
from expunge.core.randomness import Randomness
from expunge.training.engines import make_executor
from expunge.training.ensemble import EnsembleState, retrain
from expunge.training.execution import Executor, KeptProcesses, Serial
from expunge_lab.bench.measurement import Line, Progress, Target, Task, race
from expunge_lab.bench.workload import make_records

_JOBS = 2


@dataclass(frozen=True, slots=True)
class Size:
    """How many trainings, and how long each is."""

    num_trainings: int
    seconds: float
    repeats: int


FULL = Size(num_trainings=200, seconds=0.05, repeats=3)
QUICK = Size(num_trainings=8, seconds=0.002, repeats=1)


@dataclass(frozen=True)
class Mean:
    """A model that says which class the records had most often."""

    most: int

    def predict(self, X: Any) -> Any:
        """The same for every row."""
        return np.full(len(X), self.most, dtype=np.int64)


@dataclass(frozen=True)
class Busy:
    """A learner that keeps a processor busy for so many seconds."""

    seconds: float

    def fit(self, X: Any, y: Any, seed: int, *, weights: Any = None) -> Mean:
        """Take the time, and count."""
        begun = time.thread_time()
        while time.thread_time() - begun < self.seconds:
            np.sort(X, axis=0)
        return Mean(int(np.bincount(y).argmax()))


def run(*, quick: bool, progress: Progress) -> list[Line]:
    """The suite."""
    size = QUICK if quick else FULL
    learner = Busy(size.seconds)
    X, y = make_records(250 * size.num_trainings)
    with tempfile.TemporaryDirectory() as home, ExitStack() as stack:
        # Made without the time that a training takes: it is not measured here.
        options: dict[str, Any] = {"n_shards": size.num_trainings, "trust": ["expunge_lab"], "executor": Serial()}
        made = stack.enter_context(
            expunge.create(Path(home) / "d", Busy(0.0), X, y, rng=Randomness.from_seed(1), **options)
        )
        state = _with_learner(made.inside.state, learner)
        shards = [state.recipe.changed_rows(n, state.records, members) for n, members in enumerate(state.members)]
        contents = [(each.X, each.y, each.seed) for each in shards]
        engines = {name: stack.enter_context(engine) for name, engine in _engines()}

        def plain() -> None:
            # As `processes` does: with other options joblib would start its processes anew whenever they take turns.
            Parallel(n_jobs=_JOBS, max_nbytes=None)(delayed(learner.fit)(*each) for each in contents)

        tasks = [Task(plain)]  # each is run once before it counts, which starts what it needs
        tasks += [Task(_retraining(state, each)) for each in engines.values()]
        with progress("engines", len(tasks) * size.repeats) as advance:
            rival, *found = race(tasks, repeats=size.repeats, advance=advance)
    trainings = f"{size.num_trainings} trainings of {1000 * size.seconds:g} ms, {_JOBS} at once"
    target = Target.ratio_at_most(1.15)
    return [
        Line.cost(f"{trainings}: {name}", ours, "plain joblib", rival, target=target)
        for name, ours in zip(engines, found, strict=True)
    ]


def _with_learner(state: EnsembleState, learner: Any) -> EnsembleState:
    return replace(state, recipe=replace(state.recipe, learner=learner))


def _retraining(state: EnsembleState, executor: Executor) -> Any:
    return lambda: retrain(state, range(state.num_shards), executor=executor)


@contextmanager
def _closing(executor: Executor) -> Iterator[Executor]:
    try:
        yield executor
    finally:
        executor.close()


def _engines() -> Iterator[tuple[str, Any]]:
    """The engines that are installed."""
    yield "processes", _closing(make_executor(_JOBS, "processes"))
    yield "processes of the service", _closing(KeptProcesses(_JOBS))
    if find_spec("distributed") is not None:
        yield "joblib on Dask", _dask()
    if find_spec("ray") is not None:
        yield "Ray", _closing(make_executor(_JOBS, "ray"))


@contextmanager
def _dask() -> Iterator[Executor]:
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=_JOBS, threads_per_worker=1, host="127.0.0.1", dashboard_address=None) as workers,
        Client(workers),
    ):
        with parallel_config(backend="dask"):
            executor = make_executor()
        yield executor
