"""The trials of an audit on disk, one line each, so that an interrupted audit goes on where it was.

The first line says which audit the file belongs to. A line that was cut short by a crash is dropped and its trial is
run again, which gives the same numbers: a trial depends on the seed and on its number alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from expunge.audit.trials import Trial
from expunge.errors import InputError

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
