"""What an experiment hands back: a table for people, numbers for programs, and how it was made."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from expunge.core.checks import require_count
from expunge.core.errors import InputError
from expunge.core.files import write_whole
from expunge_lab.reproduction.files import make_folder, read_text


@dataclass(frozen=True)
class Report:
    """`rows` are cells as text under `columns`; `data` is what figures are drawn from and programs read."""

    name: str
    title: str
    about: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    data: dict[str, Any]
    command: str = ""
    date: str = ""
    seconds: float = 0.0

    def save(self, folder: Path) -> Path:
        """One JSON file, named after the experiment, replaced whole."""
        make_folder(folder)
        text = json.dumps(asdict(self), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        return write_whole(folder / f"{self.name}.json", text.encode())

    @property
    def size(self) -> int:
        """Trials a row, or cases where there are no trials."""
        return int(self.data.get("trials", len(self.data.get("cases", ()))))

    @classmethod
    def load(cls, folder: Path, name: str) -> Report | None:
        """What was saved; None if there is no such file."""
        path = folder / f"{name}.json"
        if not path.is_file():
            return None
        text = read_text(path)
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError):
            raise InputError(f"{path} is not a saved experiment") from None

    def to_markdown(self) -> str:
        """The table."""
        return markdown_table(self.columns, self.rows)


def timed(make: Callable[[], Report], *, command: str) -> Report:
    """A report with its command, its date and the seconds it took."""
    began = time.perf_counter()
    report = make()
    seconds = round(time.perf_counter() - began, 1)
    return replace(report, command=command, date=datetime.now(UTC).date().isoformat(), seconds=seconds)


def check_kept(folder: Path, name: str, *, size: int) -> None:
    """Refuse to put a smaller experiment in the place of a larger one; `size` is as in `Report`."""
    kept = Report.load(folder, name)
    if kept is not None and kept.size > size:
        what = "trials a row" if "trials" in kept.data else "cases"
        raise InputError(
            f"{folder / name}.json holds {kept.size} {what} and is kept, for this run has {size}: name another folder "
            "with --results, or replace it with --replace"
        )


def check_seed(seed: int) -> None:
    """Refuse a negative seed in one line, before numpy does."""
    require_count("seed", seed, least=0)


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def interval_words(interval: Sequence[float]) -> str:
    """Three digits, as in the paper."""
    return f"[{interval[0]:.3f}, {interval[1]:.3f}]"
