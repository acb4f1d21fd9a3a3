"""Measurements of networks as they are kept: a JSON file a device, since no machine has all of them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from expunge.core.errors import InputError
from expunge_lab.bench.measurement import Line, Spread, Target
from expunge_lab.bench.suites import Report

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Table:
    """Figures that are no lines of a benchmark, with a paragraph about them."""

    about: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Record:
    """What was measured on one device, when, with what and by which command."""

    device: str
    date: str
    command: str
    versions: dict[str, str]
    num_cores: int | None
    quick: bool
    lines: tuple[Line, ...]
    remarks: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()

    @classmethod
    def of(cls, report: Report, *, command: str) -> Record:
        """This run's measurements, on JAX's default device."""
        import jax

        about = report.environment
        kind = jax.devices()[0].device_kind
        return cls(
            device="CPU" if kind == "cpu" else kind,
            date=about.date,
            command=command,
            versions={"expunge": about.expunge, "Python": about.python, "JAX": jax.__version__},
            num_cores=about.num_cores,
            quick=report.quick,
            lines=tuple(report.lines["deep"]),
        )

    @property
    def file_name(self) -> str:
        """The device, in letters that every file system takes."""
        return re.sub(r"[^a-z0-9]+", "-", self.device.lower()).strip("-") + ".json"

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {"format": _FORMAT, **asdict(self), "lines": [line.to_dict() for line in self.lines]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Record:
        """The record again."""
        fields = {name: data[name] for name in ("device", "date", "command", "versions", "num_cores", "quick")}
        tables = (
            Table(table["about"], tuple(table["columns"]), tuple(tuple(row) for row in table["rows"]))
            for table in data["tables"]
        )
        lines = tuple(_line(line) for line in data["lines"])
        return cls(**fields, lines=lines, remarks=tuple(data["remarks"]), tables=tuple(tables))


def write_record(record: Record, folder: Path) -> Path:
    """Into the file of its device, in place of what was measured there before."""
    path = folder / record.file_name
    path.write_text(json.dumps(record.to_dict(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def read_records(folder: Path) -> list[Record]:
    """All that are kept in a folder, in the order of their files' names."""
    return [_read(path) for path in sorted(folder.glob("*.json"))]


def _read(path: Path) -> Record:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        version = data["format"]
        if version == _FORMAT:
            return Record.from_dict(data)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path.name} is no file of measurements: {error!r}") from error
    raise InputError(f"{path.name} has the format {version!r}, and this version reads {_FORMAT}")


def _line(data: Mapping[str, Any]) -> Line:
    other, ratio, target = (data[name] for name in ("other", "ratio", "target"))
    return Line(
        data["what"],
        Spread(**data["ours"]),
        data["unit"],
        data["other_name"],
        None if other is None else Spread(**other),
        None if ratio is None else Spread(**ratio),
        data["comparison"],
        None if target is None else Target(**target),
    )
