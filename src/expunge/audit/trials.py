"""The trials of an audit: the adaptive interaction, then both arms; in parallel, and resumable from a file.

A trial depends on the seed and on its number alone. The first line of a file of trials says which audit it belongs to;
every other line is one trial. A line that was cut short by a crash is dropped and its trial is run again, which gives
the same numbers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from expunge.audit.scenario import History, PublishedModels, Scenario, Scheme, Statistic
from expunge.core.errors import InputError
from expunge.core.files import write_whole
from expunge.core.randomness import Randomness
from expunge.core.records import Records
from expunge.core.version import __version__
from expunge.serving.interaction import Batch, interact
from expunge.training.engines import make_executor

# The random streams of one trial. Their numbers are part of what a seed means.
_UNLEARNING, _RETRAINING, _REQUESTER, _STATISTICS_BEFORE, _STATISTICS_UNLEARNED, _STATISTICS_RETRAINED = range(6)
_PREPARATION = 2**32 - 1

Values = Mapping[str, float]


@dataclass(frozen=True)
class Trial:
    """The statistics of one trial.

    Parameters
    ----------
    number
        The number of the trial, from 0.
    before
        The statistics before any update, by name; NaN where one is not defined.
    unlearned
        The statistics after unlearning.
    retrained
        The statistics after full retraining on the same survivors.
    num_rounds
        How many batches the requester asked for.
    num_survivors
        How many records the requests left.

    Examples
    --------
    >>> trial = Trial(0, {"accuracy": 1.0}, {"accuracy": 0.0}, {"accuracy": 0.7}, num_rounds=1, num_survivors=12)
    >>> Trial.from_dict(trial.to_dict()) == trial
    True
    """

    number: int
    before: Values
    unlearned: Values
    retrained: Values
    num_rounds: int
    num_survivors: int

    def to_dict(self) -> dict[str, Any]:
        """The trial as a mapping for JSON; an undefined statistic is written as None."""
        return {
            "trial": self.number,
            "before": _to_json(self.before),
            "unlearned": _to_json(self.unlearned),
            "retrained": _to_json(self.retrained),
            "rounds": self.num_rounds,
            "survivors": self.num_survivors,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Trial:
        """The trial that `to_dict` wrote; InputError if it is none."""
        try:
            return cls(
                number=int(data["trial"]),
                before=_from_json(data["before"]),
                unlearned=_from_json(data["unlearned"]),
                retrained=_from_json(data["retrained"]),
                num_rounds=int(data["rounds"]),
                num_survivors=int(data["survivors"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            raise InputError("a line of the file of trials is not a trial") from None


def _to_json(values: Values) -> dict[str, float | None]:
    return {name: value if math.isfinite(value) else None for name, value in values.items()}


def _from_json(values: Mapping[str, float | None]) -> dict[str, float]:
    return {name: math.nan if value is None else float(value) for name, value in values.items()}


def derive_randomness(seed: int, number: int, stream: int) -> Randomness:
    """Derive one stream of a trial from the seed, the trial's number and the stream alone."""
    return Randomness.from_seed(np.random.SeedSequence(seed, spawn_key=(number, stream)))


def run_trial(
    scenario: Scenario, scheme: Scheme[Any], statistics: Mapping[str, Statistic], *, seed: int, number: int
) -> Trial:
    """Play Algorithm 1 with the scheme, then train from scratch (A) on the records that are left.

    The requester is given what is published and its own requests (`interact`), and nothing else. D^t is computed here,
    from the requests. A scheme that kept its records wrongly must not decide what it is compared with.
    """
    initial = scenario.task.records
    before: dict[str, float] = {}

    def publish(round_number: int, state: Any) -> Any:
        shown = _publish(scenario, scheme, state)
        if round_number == 0:
            rng = derive_randomness(seed, number, _STATISTICS_BEFORE)
            before.update(_measure(statistics, scheme, state, History(initial, initial), rng))
        return shown

    def measure(state: Any, stream: int) -> dict[str, float]:
        return _measure(statistics, scheme, state, history, derive_randomness(seed, number, stream))

    requester = scenario.make_requester(derive_randomness(seed, number, _REQUESTER))
    rng = derive_randomness(seed, number, _UNLEARNING)
    played = interact(scheme, publish, requester, initial, rng=rng, max_rounds=scenario.max_rounds)
    upcoming = requester.next_batch(played.published, played.asked) if scenario.needs_next_batch else None
    history = History(initial, _apply(initial, played.asked), played.asked, upcoming)
    retrained = scheme.learn(history.survivors, derive_randomness(seed, number, _RETRAINING))
    return Trial(
        number=number,
        before=before,
        unlearned=measure(played.state, _STATISTICS_UNLEARNED),
        retrained=measure(retrained, _STATISTICS_RETRAINED),
        num_rounds=len(played.asked),
        num_survivors=len(history.survivors),
    )


def _publish(scenario: Scenario, scheme: Scheme[Any], state: Any) -> Any:
    """What the requester is shown in this setting."""
    if scenario.setting == "labels":
        return scheme.release(state, scenario.points)
    models = scheme.models(state)
    if not models:
        raise InputError(f"scheme {scheme.name!r} shows no models: give it a method `models`, or publish labels")
    return PublishedModels(models, scenario.task.records.num_classes)


def _apply(records: Records, batches: tuple[Batch, ...]) -> Records:
    for batch in batches:
        records = records.apply(batch)[0]
    return records


def _measure(
    statistics: Mapping[str, Statistic], scheme: Scheme[Any], state: Any, history: History, rng: Randomness
) -> dict[str, float]:
    return {name: float(statistic(scheme, state, history, rng)) for name, statistic in statistics.items()}


# --- all trials of an audit ---

FORMAT = 1
Progress = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]
_MOST_AT_ONCE = 8
_HEADER_FAILURE = 1e-3


@contextmanager
def no_progress(description: str, total: int) -> Iterator[Callable[[int], None]]:
    """Report no progress."""
    yield lambda steps: None


@dataclass(frozen=True)
class _RunBatch:
    """Run trials by their numbers, in any process."""

    scenario: Scenario
    scheme: Scheme[Any]
    statistics: Mapping[str, Statistic]
    seed: int

    def __call__(self, numbers: list[int]) -> list[Trial]:
        run = partial(run_trial, self.scenario, self.scheme, self.statistics, seed=self.seed)
        return [run(number=number) for number in numbers]


def run_trials(
    scenario: Scenario,
    scheme: Scheme[Any],
    *,
    num_trials: int,
    seed: int,
    n_jobs: int | None = None,
    resume: Path | None = None,
    progress: Progress = no_progress,
) -> tuple[Trial, ...]:
    """Run trials 0 to `num_trials` − 1, or those of them that are missing in the file `resume`."""
    checkpoint = None if resume is None else Checkpoint.open(resume, _header(scenario, scheme, seed))
    done = {} if checkpoint is None else checkpoint.trials()
    missing = [number for number in range(num_trials) if number not in done]
    with progress(f"{scenario.name} against {scheme.name}", num_trials) as advance:
        advance(num_trials - len(missing))
        if missing:
            executor = make_executor(n_jobs)
            statistics = scenario.prepare(scheme, derive_randomness(seed, _PREPARATION, 0))
            size = max(1, min(_MOST_AT_ONCE, len(missing) // (4 * executor.num_workers)))
            batches = [missing[at : at + size] for at in range(0, len(missing), size)]
            for finished in executor.map(_RunBatch(scenario, scheme, statistics, seed), batches):
                done.update({trial.number: trial for trial in finished})
                if checkpoint is not None:
                    checkpoint.add(finished)
                advance(len(finished))
    return tuple(done[number] for number in range(num_trials))


def _header(scenario: Scenario, scheme: Scheme[Any], seed: int) -> dict[str, Any]:
    """Everything that a trial depends on, so that trials of different audits are never mixed."""
    publisher = getattr(scheme, "publisher", None)
    return {
        "version": __version__,
        "seed": seed,
        "scenario": scenario.name,
        "scheme": scheme.name,
        "setting": scenario.setting,
        "num_shards": getattr(scheme, "num_shards", None),
        "sampler": repr(getattr(scheme, "sampler", None)),
        "mechanism": repr(getattr(publisher, "mechanism", None)),
        "claim": str(scheme.guarantee(beta=_HEADER_FAILURE, gamma=_HEADER_FAILURE)),
        "learner": scenario.task.learner_name,
        **scenario.parameters,
    }


@dataclass(frozen=True)
class Checkpoint:
    """The file of one audit's trials. Use `Checkpoint.open`."""

    path: Path

    @classmethod
    def open(cls, path: Path, header: Mapping[str, Any]) -> Checkpoint:
        """Open the file, or start it. A file of another audit is refused, and the difference is named."""
        wanted = {"format": FORMAT, **json.loads(json.dumps(header))}
        found = read_header(path)
        if found is None:
            write_whole(path, (json.dumps(wanted) + "\n").encode())
        elif found != wanted:
            name = next(key for key in {**wanted, **found} if wanted.get(key) != found.get(key))
            raise InputError(
                f"{path} belongs to another audit: its {name} is {found.get(name)!r}, this one's {wanted.get(name)!r}"
            )
        return cls(path)

    def trials(self) -> dict[int, Trial]:
        """The finished trials, by number. The file is cut back to its complete lines."""
        raw = self.path.read_bytes()
        complete = raw[: raw.rfind(b"\n") + 1]
        if len(complete) != len(raw):
            with self.path.open("r+b") as file:
                file.truncate(len(complete))
        lines = [_parse(line, self.path) for line in complete.decode("utf-8").splitlines()[1:]]
        return {trial.number: trial for trial in map(Trial.from_dict, lines)}

    def add(self, trials: Iterable[Trial]) -> None:
        """Append finished trials."""
        text = "".join(json.dumps(trial.to_dict(), allow_nan=False) + "\n" for trial in trials)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(text)


def read_header(path: Path) -> dict[str, Any] | None:
    """Read which audit the file belongs to; None if there is no file, or an empty one."""
    if not path.exists():
        return None
    with path.open(encoding="utf-8", errors="replace") as file:
        first = file.readline()
    if not first.endswith("\n"):
        if first and not first.startswith("{"):
            raise InputError(f"{path} is not a file of trials")
        return None
    header = _parse(first, path)
    if header.get("format") != FORMAT:
        raise InputError(f"{path} is not a file of trials of format {FORMAT}")
    return header


def _parse(line: str, path: Path) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except json.JSONDecodeError:
        found = None
    if not isinstance(found, dict):
        raise InputError(f"{path} is not a file of trials")
    return found
