"""An audit from beginning to end: all trials, in parallel and resumable, and what they prove.

The trials of an audit on disk, one line each, so that an interrupted audit goes on where it was.

The first line says which audit the file belongs to. A line that was cut short by a crash is dropped and its trial is
run again, which gives the same numbers: a trial depends on the seed and on its number alone.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from expunge.audit.analysis import analyse
from expunge.audit.report import AuditReport
from expunge.audit.scenario import Scenario, Statistic
from expunge.audit.schemes import Scheme
from expunge.audit.trials import Trial, prepare, run_trial
from expunge.core.errors import InputError, ParameterError
from expunge.core.version import __version__
from expunge.training.execution import make_executor

FORMAT = 1


@dataclass(frozen=True)
class Checkpoint:
    """The file of one audit. Use `Checkpoint.at`."""

    path: Path

    @classmethod
    def at(cls, path: Path, header: Mapping[str, Any]) -> Checkpoint:
        """Open the file, or start it; a file of another audit is refused, and the difference is named."""
        wanted = {"format": FORMAT, **json.loads(json.dumps(header))}
        found = read_header(path)
        if found is None:
            _write_all(path, [wanted])
        elif found != wanted:
            name = next(key for key in {**wanted, **found} if wanted.get(key) != found.get(key))
            raise InputError(
                f"{path} belongs to another audit: its {name} is {found.get(name)!r}, this one's {wanted.get(name)!r}"
            )
        return cls(path)

    def trials(self) -> dict[int, Trial]:
        """The finished trials, by number; the file is cut back to its complete lines."""
        raw = self.path.read_bytes()
        complete = raw[: raw.rfind(b"\n") + 1]
        if len(complete) != len(raw):
            with self.path.open("r+b") as file:
                file.truncate(len(complete))
        lines = [_parsed(line, self.path) for line in complete.decode("utf-8").splitlines()[1:]]
        return {trial.number: trial for trial in map(Trial.from_dict, lines)}

    def add(self, trials: Iterable[Trial]) -> None:
        """Append finished trials."""
        text = "".join(json.dumps(trial.to_dict(), allow_nan=False) + "\n" for trial in trials)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(text)


def read_header(path: Path) -> dict[str, Any] | None:
    """What audit the file belongs to; None where there is no file, or an empty one."""
    if not path.exists():
        return None
    with path.open(encoding="utf-8", errors="replace") as file:
        first = file.readline()
    if not first.endswith("\n"):
        if first and not first.startswith("{"):
            raise InputError(f"{path} is not a file of trials")
        return None
    header = _parsed(first, path)
    if header.get("format") != FORMAT:
        raise InputError(f"{path} is not a file of trials of format {FORMAT}")
    return header


def _parsed(line: str, path: Path) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except json.JSONDecodeError:
        found = None
    if not isinstance(found, dict):
        raise InputError(f"{path} is not a file of trials")
    return found


def _write_all(path: Path, lines: list[dict[str, Any]]) -> None:
    if not path.absolute().parent.is_dir():
        raise InputError(f"there is no folder {str(path.parent)!r} to keep the trials in")
    part = path.with_name(path.name + ".part")
    part.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    os.replace(part, path)


Progress = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]
_MOST_AT_ONCE = 8
_LEAST_TRIALS, _MOST_TRIALS = 4, 10_000_000
_HEADER_FAILURE = 1e-3


@contextmanager
def silence(description: str, total: int) -> Iterator[Callable[[int], None]]:
    """Progress that nobody watches."""
    yield lambda steps: None


@dataclass(frozen=True)
class _Batch:
    """Runs trials by their numbers, in whatever process."""

    scenario: Scenario
    scheme: Scheme[Any]
    statistics: Mapping[str, Statistic]
    seed: int

    def __call__(self, numbers: list[int]) -> list[Trial]:
        run = partial(run_trial, self.scenario, self.scheme, self.statistics, seed=self.seed)
        return [run(number=number) for number in numbers]


def audit(
    scenario: Scenario,
    scheme: Scheme[Any],
    *,
    num_trials: int = 100,
    seed: int | None = None,
    n_jobs: int | None = None,
    resume: Path | None = None,
    significance: float = 0.05,
    confidence: float = 0.95,
    beta: float = 1e-3,
    gamma: float = 1e-3,
    progress: Progress = silence,
) -> AuditReport:
    """Play `num_trials` trials of the scenario against the scheme and weigh the evidence.

    seed : makes the audit repeatable; drawn if None, and reported. A trial depends on the seed and its number alone,
        so neither `n_jobs` nor interruptions change any number.
    resume : a file of finished trials, which is continued; it is made if it is not there.
    significance : (0,0,0)-unlearning is rejected at this level: a perfect scheme is rejected that often.
    confidence : of the intervals, and of the lower bound on α.
    beta, gamma : where the scheme's certificate has no β and γ of its own, the bound on α is for these.
    """
    if isinstance(num_trials, bool) or not isinstance(num_trials, int) or num_trials < _LEAST_TRIALS:
        raise ParameterError(f"num_trials must be a whole number of at least {_LEAST_TRIALS}, got {num_trials!r}")
    if num_trials > _MOST_TRIALS:
        raise ParameterError(f"num_trials must be at most {_MOST_TRIALS:,}, got {num_trials:,}")
    for name, value in (("significance", significance), ("confidence", confidence)):
        if not 0 < value < 1:
            raise ParameterError(f"{name} must be in (0, 1), got {value!r}")
    seed = _settle_seed(seed, resume)
    trials = run_trials(
        scenario, scheme, num_trials=num_trials, seed=seed, n_jobs=n_jobs, resume=resume, progress=progress
    )
    return analyse(
        scenario,
        scheme,
        trials,
        seed=seed,
        significance=significance,
        confidence=confidence,
        beta=beta,
        gamma=gamma,
    )


def run_trials(
    scenario: Scenario,
    scheme: Scheme[Any],
    *,
    num_trials: int,
    seed: int,
    n_jobs: int | None = None,
    resume: Path | None = None,
    progress: Progress = silence,
) -> tuple[Trial, ...]:
    """Trials 0 to `num_trials` − 1, those that are missing in `resume` run now."""
    checkpoint = None if resume is None else Checkpoint.at(resume, _header(scenario, scheme, seed))
    done = {} if checkpoint is None else checkpoint.trials()
    missing = [number for number in range(num_trials) if number not in done]
    with progress(f"{scenario.name} against {scheme.name}", num_trials) as advance:
        advance(num_trials - len(missing))
        if missing:
            executor = make_executor(n_jobs)
            play = _Batch(scenario, scheme, prepare(scenario, scheme, seed), seed)
            size = max(1, min(_MOST_AT_ONCE, len(missing) // (4 * executor.num_workers)))
            batches = [missing[at : at + size] for at in range(0, len(missing), size)]
            for finished in executor.map(play, batches):
                done.update({trial.number: trial for trial in finished})
                if checkpoint is not None:
                    checkpoint.add(finished)
                advance(len(finished))
    return tuple(done[number] for number in range(num_trials))


def _settle_seed(seed: int | None, resume: Path | None) -> int:
    """The seed that was given, else the one of the file to be continued, else a new one."""
    if seed is None and resume is not None:
        header = read_header(resume)
        seed = None if header is None else header.get("seed")
    if seed is None:
        return secrets.randbits(48)
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ParameterError(f"seed must be a whole number of at least 0, got {seed!r}")
    return seed


def _header(scenario: Scenario, scheme: Scheme[Any], seed: int) -> dict[str, Any]:
    """Everything that a trial depends on, so that trials of another audit are never mixed in."""
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
