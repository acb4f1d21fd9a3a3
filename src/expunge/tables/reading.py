"""Reading a table from a file, by the ending of its name."""

from __future__ import annotations

import sys
from collections.abc import Collection
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from numpy.typing import NDArray

from expunge.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

#: Endings of file names, and the format that each of them stands for.
FORMATS: Final = {".csv": "csv", ".csv.gz": "csv", ".parquet": "parquet", ".pq": "parquet", ".npz": "npz"}
#: The number type that features are kept in.
Numbers = Literal["float64", "float32"]


@dataclass(frozen=True)
class Table:
    """A file's columns.

    `frame` holds one column of numbers, truth values or text each. `matrix` is the array X of an NPZ file: all
    features of all rows at once, without names, of any shape from two dimensions up. `name` is what errors call it.
    """

    name: str
    format: str
    frame: pd.DataFrame
    matrix: NDArray[Any] | None = None

    def __len__(self) -> int:
        return len(self.frame) if self.matrix is None else len(self.matrix)

    def __contains__(self, column: object) -> bool:
        return column in self.frame.columns

    def column(self, name: str) -> pd.Series[Any]:
        """One column; a missing one is an error that says which there are."""
        if name not in self:
            raise InputError(f"{self.name} has no column {name!r}; it has {listed(self.frame.columns)}")
        return self.frame[name]


def listed(names: Collection[Any], *, most: int = 12) -> str:
    """Some names in a sentence, and how many more there are."""
    shown = [repr(str(name)) for name in list(names)[:most]]
    if not shown:
        return "none"
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more:,} more" if more else "")


def table_format(path: str | Path) -> str:
    """The format that the name's ending stands for."""
    name = Path(path).name.lower()
    for ending, kind in FORMATS.items():
        if name.endswith(ending):
            return kind
    raise InputError(f"{str(path)!r} must end in one of {', '.join(FORMATS)}")


def read_table(
    path: str | Path,
    *,
    as_text: Collection[str] | Literal["all"] = (),
    text_features: Collection[str] = (),
    numbers: Numbers = "float64",
) -> Table:
    """The table in a file; "-" is CSV from standard input.

    Columns named in `as_text` (ids and labels; or "all") are taken from CSV letter by letter: "007" and "NA" are what
    they are. Of the others, `text_features` are text, where "NA" is a missing value, and the rest numbers where
    every field is one. Formats with types of their own keep them.
    """
    kind = "csv" if str(path) == "-" else table_format(path)
    name = "standard input" if str(path) == "-" else str(path)
    if name == str(path) and not Path(path).is_file():
        raise InputError(f"there is no file {name!r}" if not Path(path).exists() else f"{name!r} is not a file")
    matrix = None
    exact = None if as_text == "all" else frozenset(as_text)
    if kind == "csv":
        from expunge.tables._csv import read_csv

        texts = frozenset(text_features)
        frame = read_csv(_source(path), name, as_text=exact, text_features=texts, numbers=numbers)
    elif kind == "parquet":
        from expunge.tables._parquet import read_parquet

        frame = read_parquet(Path(path), numbers=numbers, exact=exact)
    else:
        from expunge.tables._npz import read_npz

        frame, matrix = read_npz(Path(path))
    return Table(name, kind, frame, matrix)


def _source(path: str | Path) -> Path | BytesIO:
    return BytesIO(sys.stdin.buffer.read()) if str(path) == "-" else Path(path)
