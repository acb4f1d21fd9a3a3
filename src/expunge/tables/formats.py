"""CSV, Parquet, Arrow and NPZ files: tables are read from them, and answers are written to them.

CSV is read in parts, so that memory stays near the size of the result. A column holds numbers if every field of every
part is a number. If parts disagree, the file is read again with that column as text. Fields that stand for a missing
value do so in feature columns only. Fields are separated by commas, semicolons, tabs or bars: the first two rows tell.
Where it is not the comma, numbers may have decimal commas.

NPZ holds the arrays X, y, ids, subjects and weights, or one array for each column. Nothing is ever unpickled.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
import sys
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from expunge.core.errors import InputError

if TYPE_CHECKING:
    import pandas as pd


#: Endings of file names, and the format that each of them stands for.
FORMATS: Final = {
    **dict.fromkeys((".csv", ".csv.gz", ".tsv", ".tsv.gz"), "csv"),
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
    **dict.fromkeys((".arrow", ".feather"), "arrow"),
    ".npz": "npz",
}
#: The number type that features are kept in.
Numbers = Literal["float64", "float32"]


@dataclass(frozen=True)
class Table:
    """The columns of a file.

    Parameters
    ----------
    name
        The file's name in error messages.
    format
        "csv", "parquet", "arrow" or "npz".
    frame
        The columns: each holds numbers, truth values or text.
    matrix
        The array X of an NPZ file: all features of all rows, without names, in two or more dimensions.
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
        """One column by name. If it is missing, the error lists the columns that there are."""
        if name not in self:
            hint = (
                " alone. Are its fields separated by commas, semicolons, tabs or bars?" if self._is_unseparated else ""
            )
            raise InputError(f"{self.name} has no column {name!r}; it has {listed(self.frame.columns)}{hint}")
        return self.frame[name]

    @property
    def _is_unseparated(self) -> bool:
        return self.format == "csv" and self.frame.shape[1] == 1


def listed(names: Collection[Any], *, most: int = 12) -> str:
    """The first names, quoted, and how many more there are."""
    shown = [repr(str(name)) for name in list(names)[:most]]
    if not shown:
        return "none"
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more:,} more" if more else "")


def table_format(path: str | Path) -> str:
    """The format of a file, by the ending of its name.

    Parameters
    ----------
    path
        The file; it need not exist.

    Returns
    -------
    str
        "csv", "parquet", "arrow" or "npz".

    Raises
    ------
    InputError
        If the ending is another one. The message lists the endings.

    Examples
    --------
    >>> table_format("train.csv.gz")
    'csv'
    """
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
    """Read a table from a CSV, Parquet, Arrow or NPZ file. All but CSV keep the types that they have.

    Parameters
    ----------
    path
        The file; "-" is CSV from standard input.
    as_text
        Columns that are taken from CSV letter by letter, such as ids and labels: "007" and "NA" stay as they are.
    text_features
        Further columns of text, in which "NA" is a missing value. All other columns are numbers if every field is one.
    numbers
        The type of numbers in feature columns.

    Returns
    -------
    Table
        The columns.

    Raises
    ------
    InputError
        If there is no such file, or it cannot be read. The message names the file, and the row or column at fault.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "people.csv"
    >>> _ = path.write_text("id,age\\n007,41\\n")
    >>> read_table(path, as_text=["id"]).frame.to_dict("list")
    {'id': ['007'], 'age': [41.0]}
    """
    kind = "csv" if str(path) == "-" else table_format(path)
    name = "standard input" if str(path) == "-" else str(path)
    if name == str(path) and not Path(path).is_file():
        raise InputError(f"there is no file {name!r}" if not Path(path).exists() else f"{name!r} is not a file")
    matrix = None
    exact = None if as_text == "all" else frozenset(as_text)
    if kind == "csv":
        texts = frozenset(text_features)
        frame = read_csv(_source(path), name, as_text=exact, text_features=texts, numbers=numbers)
    elif kind in ("parquet", "arrow"):
        frame = _read_columns(Path(path), kind, numbers=numbers, exact=exact)
    else:
        frame, matrix = read_npz(Path(path))
    return Table(name, kind, frame, matrix)


def _source(path: str | Path) -> Path | BytesIO:
    return BytesIO(sys.stdin.buffer.read()) if str(path) == "-" else Path(path)


_NEEDS_PYARROW: Final = "needs pyarrow: pip install 'expunge[parquet]'"


def _read_columns(path: Path, kind: str, *, numbers: Numbers, exact: frozenset[str] | None) -> pd.DataFrame:
    """All columns. Those in `exact` (all if None) keep whole numbers whole, even where some are missing."""
    try:
        import pyarrow as pa
        import pyarrow.feather
        import pyarrow.parquet as pq
    except ImportError as error:
        raise InputError(f"{kind.capitalize()} {_NEEDS_PYARROW}") from error
    try:
        # The file alone: no part of its path is read as a partition.
        table = pq.ParquetFile(path).read() if kind == "parquet" else _read_arrow(path, pa)
    except (pa.ArrowInvalid, OSError) as error:
        what = "a Parquet" if kind == "parquet" else "an Arrow"
        raise InputError(f"{path} is not {what} file that can be read: {str(error).splitlines()[0]}") from error
    return arrow_columns(table, str(path), numbers=numbers, exact=exact)


def arrow_columns(table: Any, name: str, *, numbers: Numbers, exact: frozenset[str] | None) -> pd.DataFrame:
    """All columns of a table of Arrow. Those in `exact` (all if None) keep whole numbers whole, even with gaps."""
    import pandas as pd

    names = table.column_names
    _refuse_twins(name, names)
    columns = {each: _column(table.column(each), numbers, exact=exact is None or each in exact) for each in names}
    return pd.DataFrame(columns, index=pd.RangeIndex(table.num_rows))


def _read_arrow(path: Path, pa: Any) -> Any:
    """The table of an IPC file, of a stream, or of an older Feather file."""
    with path.open("rb") as stream:
        start = stream.read(8)
        stream.seek(0)
        if start.startswith((b"ARROW1", b"FEA1")):
            return pa.feather.read_table(stream)
        return pa.ipc.open_stream(stream).read_all()


def _column(values: Any, numbers: Numbers, *, exact: bool) -> Any:
    import numpy as np
    import pyarrow as pa
    import pyarrow.types as kinds

    if kinds.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    kind = values.type
    if kinds.is_null(kind):
        return np.full(len(values), np.nan, dtype=numbers)
    if kinds.is_integer(kind) and exact:
        return values.to_pandas(integer_object_nulls=True)
    if kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_decimal(kind):
        return values.cast(pa.float64(), safe=False).to_numpy().astype(numbers, copy=False)
    if kinds.is_date(kind):
        values = values.cast(pa.date32()).cast(pa.string())  # as CSV has it: 2026-11-16
    return values.to_pandas()  # text; anything else is refused when the column is used


#: What stands for a missing value among features.
MISSING: Final = ("", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None", "#N/A", "<NA>")
_ROWS_PER_PART: Final = 1 << 16
_SEPARATORS: Final = (",", ";", "\t", "|")
_LONGEST_ROW: Final = 1 << 24  # characters
_UNREADABLE: Final = (UnicodeDecodeError, gzip.BadGzipFile, EOFError, zlib.error)  # a gzip file may be cut off
_MARKS_16: Final = (b"\xff\xfe", b"\xfe\xff")
_OTHER_CONTENTS: Final = {
    b"\x1f\x8b": "is compressed by gzip: its name must end in .csv.gz",
    b"PK\x03\x04": "is a ZIP archive, such as a spreadsheet, and not CSV: save it as CSV UTF-8",
    b"PAR1": "is a Parquet file: its name must end in .parquet",
    b"ARROW1": "is an Arrow file: its name must end in .arrow",
}
_EXCEL_LINE: Final = re.compile(r"sep=.\r?\n")
_DECIMAL_COMMA: Final = r"[-+]?[0-9]*,?[0-9]+([eE][-+]?[0-9]+)?"


def read_csv(
    source: Path | io.BytesIO,
    name: str,
    *,
    as_text: frozenset[str] | None,
    text_features: frozenset[str],
    numbers: Numbers,
) -> pd.DataFrame:
    """All columns: numbers in the given type, truth values, or text. `as_text` None stands for all columns."""
    _refuse_other_contents(source, name)
    separator = _separator(source, name)
    header = _header(source, name, separator)
    exact = set(header) if as_text is None else set(header) & as_text
    texts = set(text_features & set(header))  # and the feature columns in which not every field is a number
    while True:
        try:
            parts = _parts(source, separator, header, exact, texts, numbers)
        except _UNREADABLE as error:
            raise InputError(_undecodable(source, name)) from error
        except (ValueError, Warning) as error:
            _refuse_ragged(source, name, separator, len(header))
            raise InputError(f"{name} cannot be read: {error}") from error
        mixed = {column for column in header if column not in exact | texts and _is_mixed(parts, column)}
        if not mixed:
            break
        texts |= mixed
    frame = _joined(parts)
    for column in set(header) - exact - text_features:
        frame[column] = _as_numbers(frame[column], numbers, has_commas=separator != ",")
    if len(frame) and bool(frame[header[-1]].isna().any()):
        _refuse_ragged(
            source, name, separator, len(header)
        )  # a row that ends early looks like a missing value in the last column
    return frame


def _refuse_other_contents(source: Path | io.BytesIO, name: str) -> None:
    """Refuse a file that begins as one of another format, under whatever name."""
    try:
        with _opened_bytes(source) as stream:
            start = stream.read(64)
    except (EOFError, OSError, zlib.error):
        return  # told when its text is read
    if start.startswith(_MARKS_16):
        return
    for mark, words in _OTHER_CONTENTS.items():
        if start.startswith(mark):
            raise InputError(f"{name} {words}")
    if len(start) >= 8 and not (any(start[1:8:2]) and any(start[0:8:2])):
        raise InputError(f"{name} has every other byte zero, as UTF-16 without its mark has: save it as UTF-8")


def _separator(source: Path | io.BytesIO, name: str) -> str:
    """What separates the fields: it divides the first two rows into the same number of them, and into the most."""
    try:
        with _opened(source) as stream:
            head, row = stream.readline(_LONGEST_ROW + 1), stream.readline(_LONGEST_ROW + 1)
    except _UNREADABLE as error:
        raise InputError(_undecodable(source, name)) from error
    if len(head) > _LONGEST_ROW:
        raise InputError(f"{name} is no table: its first row has more than {_LONGEST_ROW:,} characters")
    start = [head, row] if 0 < len(row) <= csv.field_size_limit() else [head]  # a field may be that long
    try:
        counts = {mark: [len(each) for each in csv.reader(start, delimiter=mark)] for mark in _SEPARATORS}
    except csv.Error as error:
        raise InputError(f"{name} is no table: its first row cannot be read: {error}") from None
    fitting = [mark for mark in _SEPARATORS if len(set(counts[mark])) == 1 and counts[mark][0] > 1]
    return max(fitting, key=lambda mark: counts[mark][0], default=_SEPARATORS[0])


def _header(source: Path | io.BytesIO, name: str, separator: str) -> list[str]:
    try:
        with _opened(source) as stream:
            header = next(csv.reader(stream, delimiter=separator), [])
    except _UNREADABLE as error:
        raise InputError(_undecodable(source, name)) from error
    except csv.Error as error:
        raise InputError(f"{name} is no table: its first row cannot be read: {error}") from None
    if not header:
        raise InputError(f"{name} is empty; the first row must name the columns")
    unnamed = [place for place, column in enumerate(header, 1) if not column.strip()]
    if unnamed:
        raise InputError(f"{name} has no name for column {unnamed[0]} in its first row")
    _refuse_twins(name, header)
    return header


def _refuse_twins(name: str, columns: list[str]) -> None:
    for column, count in Counter(columns).items():
        if count > 1:
            raise InputError(f"{name} has two columns named {column!r:.80}")


@contextmanager
def _opened(source: Path | io.BytesIO) -> Iterator[IO[str]]:
    """The text from its beginning, without a byte-order mark or Excel's `sep=;`. The mark of UTF-16 is believed."""
    with _opened_bytes(source) as stream:
        start = stream.read(2)
        stream.seek(0)
        text = io.TextIOWrapper(stream, encoding="utf-16" if start in _MARKS_16 else "utf-8-sig", newline="")
        if not _EXCEL_LINE.fullmatch(text.readline(8)):
            text.seek(0)
        yield text


def _opened_bytes(source: Path | io.BytesIO) -> Any:
    if isinstance(source, io.BytesIO):
        return io.BytesIO(source.getbuffer())
    return gzip.open(source, "rb") if source.name.lower().endswith(".gz") else source.open("rb")


def _parts(
    source: Path | io.BytesIO, separator: str, header: list[str], as_text: set[str], texts: set[str], numbers: Numbers
) -> list[pd.DataFrame]:
    import pandas as pd

    with _opened(source) as stream, warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        reader = pd.read_csv(
            stream,
            sep=separator,
            chunksize=_ROWS_PER_PART,
            index_col=False,
            low_memory=False,  # one type for each column of a part
            dtype=dict.fromkeys(as_text | texts, "str"),
            keep_default_na=False,
            na_values={column: [""] if column in as_text else list(MISSING) for column in header},
        )
        return [part.astype(_number_types(part, numbers)) for part in reader]


def _number_types(part: pd.DataFrame, numbers: Numbers) -> dict[str, Any]:
    return {name: numbers for name, kind in part.dtypes.items() if kind.kind in "iuf"}  # type: ignore[misc]


def _is_mixed(parts: list[pd.DataFrame], column: str) -> bool:
    """Whether the parts disagree about what the column holds. Parts without a value in it do not count."""
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


def _as_numbers(values: pd.Series[Any], numbers: Numbers, *, has_commas: bool) -> pd.Series[Any]:
    """A column as numbers if every field is one. pandas takes whole numbers beyond 64 bits for text."""
    import pandas as pd

    if values.dtype.kind in "iufb" or not _has_any(values):
        return values
    if has_commas and bool(values.dropna().astype(str).str.fullmatch(_DECIMAL_COMMA).all()):
        values = values.str.replace(",", ".")
    try:
        with np.errstate(over="ignore"):  # an overflow becomes infinite, and is refused later with its row
            return pd.to_numeric(values).astype(numbers)
    except (ValueError, TypeError):
        return values


def _refuse_ragged(source: Path | io.BytesIO, name: str, separator: str, width: int) -> None:
    """Name the first row that has more or fewer fields than the header, if there is one before a very long field."""
    with _opened(source) as stream, suppress(csv.Error):
        rows = (row for row in csv.reader(stream, delimiter=separator) if row)
        next(rows)
        for number, row in enumerate(rows, 1):
            if len(row) != width:
                raise InputError(f"row {number:,} of {name} has {_fields(len(row))}, expected {width:,}")


def _fields(number: int) -> str:
    return f"{number:,} field{'' if number == 1 else 's'}"


def _undecodable(source: Path | io.BytesIO, name: str) -> str:
    """A message that says which line is not UTF-8."""
    if isinstance(source, Path) and source.name.lower().endswith(".gz"):
        return f"{name} is not gzip-compressed UTF-8 text, or is cut off"
    with source.open("rb") if isinstance(source, Path) else io.BytesIO(source.getbuffer()) as stream:
        for number, line in enumerate(stream, 1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                wrong = line[error.start]
                return (
                    f"line {number:,} of {name} is not UTF-8 (byte 0x{wrong:02x}); save it as UTF-8 (in Excel: "
                    "CSV UTF-8; a file of Windows: iconv -f WINDOWS-1252 -t UTF-8)"
                )
    return f"{name} is not UTF-8"


MATRIX = "X"


def read_npz(path: Path) -> tuple[pd.DataFrame, NDArray[Any] | None]:
    """The one-dimensional arrays as columns, and X if there is one."""
    import pandas as pd

    arrays = _arrays(path)
    if not arrays:
        raise InputError(f"{path} holds no array")
    matrix = arrays.pop(MATRIX) if np.ndim(arrays.get(MATRIX, 0)) > 1 else None
    if matrix is not None and matrix.dtype.kind not in "fiub":
        raise InputError(f"the array 'X' of {path} must hold numbers, got {matrix.dtype}")
    for name, values in arrays.items():
        if values.ndim != 1:
            shape = f"{values.ndim} dimensions" if values.ndim else "a single value"
            raise InputError(f"the array {name!r} of {path} must be one column of values, got {shape}")
    sizes = {MATRIX: len(matrix)} if matrix is not None else {}
    sizes |= {name: len(values) for name, values in arrays.items()}
    first = next(iter(sizes))
    for name, size in sizes.items():
        if size != sizes[first]:
            raise InputError(
                f"the arrays of {path} differ in length: {first!r} has {sizes[first]:,}, {name!r} {size:,}"
            )
    columns = {name: _text(path, name, values) for name, values in arrays.items()}
    return pd.DataFrame(columns, index=pd.RangeIndex(sizes[first])), matrix


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    try:
        stored = np.load(path, allow_pickle=False)
        if not isinstance(stored, np.lib.npyio.NpzFile):
            raise InputError(f"{path} is not an NPZ file")
        with stored:
            return {name: _load(path, stored, name) for name in stored.files}
    except (zipfile.BadZipFile, ValueError, EOFError) as error:
        if isinstance(error, InputError):
            raise
        # For a file of another kind, NumPy's message advises to load pickles, which is unsafe. Leave that message out.
        why = "" if "pickle" in str(error) else f" that can be read: {error}"
        raise InputError(f"{path} is not an NPZ file{why}") from error


def _load(path: Path, stored: Any, name: str) -> NDArray[Any]:
    try:
        array: NDArray[Any] = stored[name]
    except ValueError as error:
        raise InputError(
            f"the array {name!r} of {path} holds Python objects; store numbers or text (dtype U)"
        ) from error
    return array


def _text(path: Path, name: str, values: NDArray[Any]) -> NDArray[Any]:
    """Fixed-width text as Python text. An empty text is a missing value, as in CSV."""
    if values.dtype.kind == "S":
        try:
            values = np.char.decode(values, "utf-8")
        except UnicodeDecodeError as error:
            raise InputError(f"the array {name!r} of {path} is not UTF-8") from error
    if values.dtype == np.dtype("datetime64[D]"):  # as CSV has it: 2026-11-16
        values = np.where(np.isnat(values), "", np.datetime_as_string(values))
    if values.dtype.kind != "U":
        return values
    column = values.astype(object)
    column[values == ""] = None
    return column


def encode_answers(
    answers: NDArray[Any],
    *,
    format: str,
    ids: pd.Series[Any] | None = None,
    id_name: str = "id",
    probabilities: Mapping[str, NDArray[np.float64]] | None = None,
) -> bytes:
    """Encode answers as a file: the ids, if there are any, the column `prediction`, and a column for each probability.

    A declined answer is an empty field in CSV and null in Parquet and Arrow. NPZ knows neither. There, the array
    `declined` marks declined answers, and `prediction` holds "" or the smallest number in their place.

    Parameters
    ----------
    answers
        One label for each row; None where the mechanism declined.
    format
        "csv", "parquet", "arrow" or "npz".
    ids
        The id column of the questions.
    id_name
        Its name.
    probabilities
        The probabilities by the names of their columns; NaN where there is none.

    Returns
    -------
    bytes
        The whole file.

    Raises
    ------
    InputError
        If Parquet or Arrow is asked for and pyarrow is not installed.

    Examples
    --------
    >>> encode_answers(np.array([1, None], dtype=object), format="csv")
    b'prediction\\n1\\n""\\n'
    """
    declined = (
        np.array([answer is None for answer in answers]) if answers.dtype == object else np.zeros(len(answers), bool)
    )
    name = id_name if id_name != "prediction" else "id"
    if format == "npz":
        return _npz(answers, declined, ids, name, probabilities or {})
    import pandas as pd

    columns: dict[str, Any] = {} if ids is None else {name: ids}
    if format == "csv":
        frame = pd.DataFrame({**columns, "prediction": answers, **(probabilities or {})})
        return frame.to_csv(index=False, lineterminator="\n").encode("utf-8")
    return _columns_file(format, answers, ids, name, probabilities or {})


def _columns_file(
    format: str,
    answers: NDArray[Any],
    ids: pd.Series[Any] | None,
    name: str,
    probabilities: Mapping[str, NDArray[np.float64]],
) -> bytes:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise InputError(f"{format.capitalize()} {_NEEDS_PYARROW}") from error
    columns: dict[str, Any] = {} if ids is None else {name: pa.array(ids.astype(object).where(ids.notna(), None))}
    columns["prediction"] = pa.array(answers.tolist())
    columns |= {each: pa.array(values, from_pandas=True) for each, values in probabilities.items()}
    stream, table = BytesIO(), pa.table(columns)
    if format == "parquet":
        pq.write_table(table, stream)
    else:
        with pa.ipc.new_file(stream, table.schema) as writer:
            writer.write_table(table)
    return stream.getvalue()


def _npz(
    answers: NDArray[Any],
    declined: NDArray[np.bool_],
    ids: pd.Series[Any] | None,
    name: str,
    probabilities: Mapping[str, NDArray[np.float64]],
) -> bytes:
    filled = answers
    if answers.dtype == object:
        kind = np.array([answer for answer in answers if answer is not None] or [""]).dtype
        blank: Any = {"i": np.iinfo(np.int64).min, "f": np.nan, "b": False}.get(kind.kind, "")
        filled = np.array(
            [blank if answer is None else answer for answer in answers], dtype=kind if kind.kind != "U" else None
        )
    columns = {} if ids is None else {name: np.array(ids.fillna("").tolist())}
    columns |= probabilities
    stream = BytesIO()
    np.savez(stream, **columns, prediction=filled, declined=declined)  # type: ignore[arg-type]
    return stream.getvalue()
