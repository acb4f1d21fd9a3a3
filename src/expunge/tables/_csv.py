"""CSV into columns: in parts, so that memory stays near the size of the result, and with one type a column.

A column is one of numbers where every field of every part is one; if parts disagree, the file is read again with that
column as text. Fields that stand for a missing value do so in feature columns only.
"""

from __future__ import annotations

import csv
import gzip
import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import numpy as np

from expunge.errors import InputError
from expunge.tables.reading import Numbers

if TYPE_CHECKING:
    import pandas as pd

#: What stands for a missing value among features.
MISSING: Final = ("", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None", "#N/A", "<NA>")
_ROWS_PER_PART: Final = 1 << 16


def read_csv(
    source: Path | io.BytesIO,
    name: str,
    *,
    as_text: frozenset[str] | None,
    text_features: frozenset[str],
    numbers: Numbers,
) -> pd.DataFrame:
    """All columns: numbers in the given type, truth values, or text; `as_text` None stands for all of them."""
    header = _header(source, name)
    exact = set(header) if as_text is None else set(header) & as_text
    texts = set(text_features & set(header))  # and the feature columns in which not every field is a number
    while True:
        try:
            parts = _parts(source, header, exact, texts, numbers)
        except UnicodeDecodeError as error:
            raise InputError(_undecodable(source, name)) from error
        except (ValueError, Warning) as error:
            _refuse_ragged(source, name, len(header))
            raise InputError(f"{name} cannot be read: {error}") from error
        mixed = {column for column in header if column not in exact | texts and _is_mixed(parts, column)}
        if not mixed:
            break
        texts |= mixed
    frame = _joined(parts)
    for column in set(header) - exact - text_features:
        frame[column] = _as_numbers(frame[column], numbers)
    if len(frame) and bool(frame[header[-1]].isna().any()):
        _refuse_ragged(source, name, len(header))  # a row that ends early looks like a missing value in the last column
    return frame


def _header(source: Path | io.BytesIO, name: str) -> list[str]:
    try:
        with _opened(source) as stream:
            header = next(csv.reader(stream), [])
    except (UnicodeDecodeError, gzip.BadGzipFile) as error:
        raise InputError(_undecodable(source, name)) from error
    if not header:
        raise InputError(f"{name} is empty; the first row must name the columns")
    unnamed = [place for place, column in enumerate(header, 1) if not column.strip()]
    if unnamed:
        raise InputError(f"{name} has no name for column {unnamed[0]} in its first row")
    twice = [column for place, column in enumerate(header) if column in header[:place]]
    if twice:
        raise InputError(f"{name} has two columns named {twice[0]!r}")
    return header


@contextmanager
def _opened(source: Path | io.BytesIO) -> Iterator[IO[str]]:
    """The text from its beginning, a byte-order mark skipped."""
    if isinstance(source, io.BytesIO):
        yield io.TextIOWrapper(io.BytesIO(source.getbuffer()), encoding="utf-8-sig", newline="")
    elif source.name.lower().endswith(".gz"):
        with gzip.open(source, "rt", encoding="utf-8-sig", newline="") as stream:
            yield stream
    else:
        with source.open(encoding="utf-8-sig", newline="") as stream:
            yield stream


def _parts(
    source: Path | io.BytesIO, header: list[str], as_text: set[str], texts: set[str], numbers: Numbers
) -> list[pd.DataFrame]:
    import pandas as pd

    with _opened(source) as stream, warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        reader = pd.read_csv(
            stream,
            chunksize=_ROWS_PER_PART,
            index_col=False,
            low_memory=False,  # one type for all of a part
            dtype=dict.fromkeys(as_text | texts, "str"),
            keep_default_na=False,
            na_values={column: [""] if column in as_text else list(MISSING) for column in header},
        )
        return [part.astype(_number_types(part, numbers)) for part in reader]


def _number_types(part: pd.DataFrame, numbers: Numbers) -> dict[str, Any]:
    return {name: numbers for name, kind in part.dtypes.items() if kind.kind in "iuf"}  # type: ignore[misc]


def _is_mixed(parts: list[pd.DataFrame], column: str) -> bool:
    """Whether the parts disagree about what the column holds, apart from those where all of it is missing."""
    kinds = {
        part[column].dtype.kind if part[column].dtype != "str" else "text" for part in parts if _has_any(part[column])
    }
    return len(kinds) > 1 or kinds == {"O"}


def _has_any(values: pd.Series[Any]) -> bool:
    return bool(values.notna().any())


def _joined(parts: list[pd.DataFrame]) -> pd.DataFrame:
    import pandas as pd

    if len(parts) == 1:
        return parts[0]
    kept = {name: next((p[name].dtype for p in parts if _has_any(p[name])), parts[0][name].dtype) for name in parts[0]}
    return pd.concat([part.astype(kept) for part in parts], ignore_index=True)


def _as_numbers(values: pd.Series[Any], numbers: Numbers) -> pd.Series[Any]:
    """A column as numbers if every field is one after all: pandas takes whole numbers beyond 64 bits for text."""
    import pandas as pd

    if values.dtype.kind in "iufb" or not _has_any(values):
        return values
    try:
        with np.errstate(over="ignore"):  # what overflows becomes infinite, and is refused where rows are named
            return pd.to_numeric(values).astype(numbers)
    except (ValueError, TypeError):
        return values


def _refuse_ragged(source: Path | io.BytesIO, name: str, width: int) -> None:
    """Name the first row that has more or fewer fields than the header, if there is one."""
    with _opened(source) as stream:
        rows = (row for row in csv.reader(stream) if row)
        next(rows)
        for number, row in enumerate(rows, 1):
            if len(row) != width:
                raise InputError(f"row {number:,} of {name} has {_fields(len(row))}, expected {width:,}")


def _fields(number: int) -> str:
    return f"{number:,} field{'' if number == 1 else 's'}"


def _undecodable(source: Path | io.BytesIO, name: str) -> str:
    """Which line is not UTF-8."""
    if isinstance(source, Path) and source.name.lower().endswith(".gz"):
        return f"{name} is not gzip-compressed UTF-8 text"
    with source.open("rb") if isinstance(source, Path) else io.BytesIO(source.getbuffer()) as stream:
        for number, line in enumerate(stream, 1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                wrong = line[error.start]
                return f"line {number:,} of {name} is not UTF-8 (byte 0x{wrong:02x}); save the file as UTF-8"
    return f"{name} is not UTF-8"
