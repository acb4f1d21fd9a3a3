"""Files of trials: one compact `.npz` a row, replaced whole after every batch, merged over runs and machines.

A file holds the arrays of `Trials` as small whole numbers, and a JSON text with the row, the variant and every run that
added trials: its command, date, device and seconds. Trials are known by their numbers, so a file can be continued
anywhere, and two files of the same row merge into one. Nothing is ever unpickled.
"""

from __future__ import annotations

import io
import json
import struct
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from expunge.core.errors import InputError
from expunge.core.files import write_whole
from expunge_lab.reproduction.files import in_words, make_folder
from expunge_lab.reproduction.rows import Row
from expunge_lab.reproduction.trials import Trials, array_names

FORMAT = 1  # raise it when a reader of this version would misread the file; keep reading older ones
# Which form of the attack made the trials: 1 compared probabilities that tied for lack of digits. Trials of an earlier
# form are shown, but count as not done, and go when the first of this form are there.
ATTACK = 2

# What reading a damaged archive can raise: its parts are compressed, and name how.
_DAMAGES = (
    OSError, EOFError, KeyError, TypeError, ValueError, RuntimeError, MemoryError, struct.error, zlib.error,
    zipfile.BadZipFile,
)  # fmt: skip


@dataclass(frozen=True)
class Variant:
    """What distinguishes runs of the same row that must not be mixed.

    A fixed partition is that of the paper's released code, with the keys that it retrains with.
    """

    has_fixed_partition: bool = False
    has_fresh_split: bool = False

    @property
    def suffix(self) -> str:
        """Of file names; empty for the table as it should be."""
        return ".fixed-partition" * self.has_fixed_partition + ".fresh-split" * self.has_fresh_split


@dataclass(frozen=True)
class Run:
    """One run's part in a row: when, how, on what, and the seconds it took, compilation included."""

    started: str
    command: str
    device: str
    versions: str
    seconds: float
    num_trials: int


@dataclass(frozen=True)
class RowResults:
    """All trials of a row so far."""

    row: Row
    variant: Variant
    trials: Trials | None
    runs: tuple[Run, ...] = ()
    attack: int = ATTACK

    @property
    def is_current(self) -> bool:
        """Whether the trials, if any, were made by this version's form of the attack."""
        return self.trials is None or self.attack == ATTACK

    @property
    def num_trials(self) -> int:
        """So far."""
        return 0 if self.trials is None else len(self.trials)

    @property
    def seconds(self) -> float:
        """All runs together."""
        return sum(run.seconds for run in self.runs)

    def missing(self, num_trials: int) -> list[int]:
        """Which of the trials 0 to `num_trials` − 1 are not there yet."""
        done = set() if self.trials is None or not self.is_current else set(self.trials.numbers.tolist())
        return [number for number in range(num_trials) if number not in done]

    def first(self, num_trials: int) -> Trials | None:
        """Those of the trials 0 to `num_trials` − 1 that are there; None if there are none."""
        chosen = None if self.trials is None else self.trials.select(range(num_trials))
        return chosen if chosen is not None and len(chosen) else None

    def add(self, trials: Trials, run: Run) -> RowResults:
        """With more trials; `run` replaces its own earlier record."""
        if not self.is_current:
            return RowResults(self.row, self.variant, trials, (run,))
        together = trials if self.trials is None else self.trials.merge(trials)
        others = tuple(old for old in self.runs if _key(old) != _key(run))
        return replace(self, trials=together, runs=(*others, run))

    def merge(self, other: RowResults) -> RowResults:
        """Both files' trials; of a trial that is in both, this one's; of two forms of the attack the later.

        The other's runs count only as far as they added trials that were not here.
        """
        if (self.row.name, self.variant) != (other.row.name, other.variant):
            raise InputError(f"results of {other.row.name} cannot be merged into those of {self.row.name}")
        if other.trials is None:
            return self
        if self.trials is not None and self.attack != other.attack:
            return max(self, other, key=lambda results: results.attack)
        together = other.trials if self.trials is None else self.trials.merge(other.trials)
        if len(together) == self.num_trials:
            return self
        runs = _share_out(len(together) - self.num_trials, self.runs, other.runs)
        return replace(self, trials=together, runs=runs, attack=other.attack)


def _key(run: Run) -> tuple[str, str, str]:
    return run.started, run.command, run.device


def _share_out(num_new: int, ours: Iterable[Run], theirs: Iterable[Run]) -> tuple[Run, ...]:
    """Our runs, and of theirs what the new trials took.

    Which run a trial is of is not written down. So each of their runs counts for the trials that we do not have of it,
    all in proportion if fewer than these are new, and its seconds likewise.
    """
    runs = {_key(run): run for run in ours}
    pairs = [(runs.get(_key(run), replace(run, seconds=0.0, num_trials=0)), run) for run in theirs]
    pairs = [(known, run) for known, run in pairs if run.num_trials > known.num_trials]
    offered = sum(run.num_trials - known.num_trials for known, run in pairs)
    seen = 0
    for known, run in pairs:
        own = run.num_trials - known.num_trials
        # Rounded as sums, so that the shares add up.
        taken = own if num_new >= offered else num_new * (seen + own) // offered - num_new * seen // offered
        seen += own
        if taken:
            seconds = known.seconds + max(0.0, run.seconds - known.seconds) * taken / own
            runs[_key(run)] = replace(run, seconds=round(seconds, 2), num_trials=known.num_trials + taken)
    return tuple(sorted(runs.values(), key=_key))


def results_path(folder: Path, row: Row, variant: Variant) -> Path:
    """Where a row's trials are kept."""
    return folder / f"{row.name}{variant.suffix}.npz"


def read_results(folder: Path, row: Row, variant: Variant) -> RowResults:
    """A row's trials; none if there is no file yet."""
    path = results_path(folder, row, variant)
    try:
        content = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return RowResults(row, variant, None)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {in_words(error)}") from None
    try:
        about, arrays = _unpack(content)
    except _DAMAGES:
        raise InputError(f"{path} is not a file of trials, or is damaged") from None
    if about.get("format") != FORMAT:
        raise InputError(f"{path} has the format {about.get('format')!r}, and this version reads {FORMAT}")
    if (attack := about.get("attack", 1)) not in range(1, ATTACK + 1):
        raise InputError(f"{path} was made with the attack's form {attack!r}, and this version knows up to {ATTACK}")
    if (about.get("row"), about.get("variant")) != (row.name, asdict(variant)):
        raise InputError(f"{path} holds trials of another row: {about.get('row')}")
    try:
        trials = Trials(**arrays, num_held_out=about["num_held_out"])
        return RowResults(row, variant, trials, tuple(Run(**run) for run in about["runs"]), attack)
    except (KeyError, TypeError, InputError) as error:
        raise InputError(f"{path} is not a file of trials, or is damaged: {error}") from None


def _unpack(content: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """The JSON text and the arrays; any of `_DAMAGES` if they are not there."""
    if not zipfile.is_zipfile(io.BytesIO(content)):
        raise ValueError
    with np.load(io.BytesIO(content), allow_pickle=False) as archive:
        about = json.loads(str(archive["about"]))
        if not isinstance(about, dict):
            raise TypeError
        return about, {name: archive[name].astype(np.int64) for name in array_names()}


def write_results(folder: Path, results: RowResults) -> Path:
    """Replace a row's file, whole or not at all."""
    trials = results.trials
    if trials is None:
        raise InputError(f"there are no trials of {results.row.name} to write")
    about: dict[str, Any] = {
        "format": FORMAT,
        "row": results.row.name,
        "variant": asdict(results.variant),
        "attack": results.attack,
        "num_held_out": trials.num_held_out,
        "runs": [asdict(run) for run in results.runs],
    }
    arrays: dict[str, Any] = {
        name: values.astype(np.min_scalar_type(int(values.max(initial=0))))
        for name, values in ((name, getattr(trials, name)) for name in array_names())
    }
    make_folder(folder)
    packed = io.BytesIO()
    np.savez_compressed(packed, about=np.array(json.dumps(about)), **arrays)
    return write_whole(results_path(folder, results.row, results.variant), packed.getvalue())


def take_in(folder: Path, other: Path, rows: Iterable[Row], variant: Variant) -> int:
    """Merge the files of another folder into this one; how many trials were new."""
    if not other.is_dir():
        raise InputError(f"there is no folder {str(other)!r} to merge")
    added = 0
    for row in rows:
        theirs = read_results(other, row, variant)
        if theirs.trials is None:
            continue
        ours = read_results(folder, row, variant)
        together = ours.merge(theirs)
        if together is ours:
            continue
        write_results(folder, together)
        added += together.num_trials - (ours.num_trials if ours.attack == together.attack else 0)
    return added
