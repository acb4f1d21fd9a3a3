"""Parquet files that are read as one table, some rows at a time: one file, a folder of them, `*.parquet`, or a bucket.

What columns there are, and what they hold, is found out from the first rows, as `read_labelled` does from a whole file.
Ids, labels, subjects and weights are then read once for all rows. Features are read when they are needed.
"""

from __future__ import annotations

import glob
import io
import posixpath
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from expunge.core.buckets import NEEDS_LAKE, explain_bucket, open_bucket
from expunge.core.errors import InputError, MissingExtraError
from expunge.core.features import Features, concatenate, take
from expunge.core.streams import RecordStream
from expunge.tables.formats import Numbers, Table, arrow_columns
from expunge.tables.keys import match_keys, read_labels, refuse_quantities
from expunge.tables.schema import Labelled, Schema, place, read_labelled, read_targets, read_weights

_ENDINGS: Final = (".parquet", ".pq")
_WILD: Final = "*?["
_HEAD: Final = 1 << 17  # rows that tell what columns hold; a table with no more is read as a whole
_AT_ONCE: Final = 1 << 18  # rows
_CELLS: Final = 1 << 22


@dataclass(frozen=True)
class _File:
    """One file: its name in messages, how it is opened, and how many rows it has."""

    name: str
    open: Callable[[], Any]
    num_rows: int


class ParquetFiles:
    """Parquet files with the same columns, one after another.

    Parameters
    ----------
    pattern
        A file, a folder, a pattern such as `data/*.parquet`, or any of these in `s3://bucket/…`.

    Raises
    ------
    InputError
        If there is no such file, or one cannot be read, or has other columns than the first.
    """

    def __init__(self, pattern: str) -> None:
        self.name = pattern
        found = _in_bucket(pattern) if pattern.startswith("s3://") else _in_folder(pattern)
        if not found:
            raise InputError(f"there is no Parquet file {pattern!r}")
        self.columns: list[str] = []
        self._files: list[_File] = []
        for name, opened in found:
            with self._reading(name):
                file = opened()
                names, rows = file.schema_arrow.names, file.metadata.num_rows
            self.columns = self.columns or names
            if names != self.columns:
                raise InputError(f"{name} has other columns than {found[0][0]}, or in another order")
            self._files.append(_File(name, opened, rows))

    def __len__(self) -> int:
        return sum(file.num_rows for file in self._files)

    def tables(
        self, columns: Sequence[str], *, numbers: Numbers, exact: Sequence[str], first: int = 0
    ) -> Iterator[tuple[int, Table]]:
        """Read some columns of all rows, some at a time.

        Parameters
        ----------
        columns
            Their names.
        numbers
            The type of features that are numbers.
        exact
            Columns that keep whole numbers whole.
        first
            Files that end before this row are left out.

        Yields
        ------
        start : int
            The first row.
        table : Table
            The rows from there on.
        """
        at, size = 0, max(1, min(_AT_ONCE, _CELLS // max(1, len(columns))))
        for file in self._files:
            start, at = at, at + file.num_rows
            if at <= first:
                continue
            with self._reading(file.name):
                opened = file.open()  # it is closed when nothing refers to it any more
                for batch in opened.iter_batches(size, columns=list(columns), use_threads=False):
                    name = f"{file.name} from row {start - at + file.num_rows + 1:,} on"
                    frame = arrow_columns(_as_table(batch), file.name, numbers=numbers, exact=frozenset(exact))
                    yield start, Table(name, "parquet", frame)
                    start += batch.num_rows

    def head(self, *, numbers: Numbers, exact: Sequence[str]) -> Table:
        """The first rows, with all columns; all rows if there are not many."""
        import pandas as pd

        frames, count = [], 0
        for _, table in self.tables(self.columns, numbers=numbers, exact=exact):
            frames.append(table.frame)
            count += len(table)
            if count >= _HEAD:
                break
        frame = frames[0] if len(frames) == 1 else pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()
        return Table(self.name, "parquet", frame if len(self) <= _HEAD else frame.head(_HEAD))

    def _reading(self, name: str) -> Any:
        return explain_bucket(name) if name.startswith("s3://") else _explained(name)


def read_stream(
    path: str,
    *,
    label: str | None,
    id: str | None = None,
    subject: str | None = None,
    weight: str | None = None,
    numbers: Numbers = "float64",
    one_class: bool = False,
    is_regression: bool = False,
    **options: Any,
) -> tuple[Schema, Labelled, RecordStream | None]:
    """Read the first files of a deployment, which may be larger than the memory.

    Parameters
    ----------
    path
        As for `ParquetFiles`.
    label, id, subject, weight, numbers, one_class, is_regression, **options
        As for `read_labelled`.

    Returns
    -------
    Schema
        The columns.
    Labelled
        The first records; all of them if there are not many.
    RecordStream or None
        All records; None if the first ones are all.

    Raises
    ------
    InputError
        As `read_labelled`. A message that names a row counts from the one that the message names first.
    """
    files = ParquetFiles(path)
    exact = [name for name in (label, id, subject) if name is not None]
    head = files.head(numbers=numbers, exact=exact)
    schema, labelled = read_labelled(
        head,
        label=label,
        id=id,
        subject=subject,
        weight=weight,
        numbers=numbers,
        one_class=one_class or len(files) > len(head),
        is_regression=is_regression,
        **options,
    )
    if len(files) <= len(head):
        return schema, labelled, None
    names = list(schema.roles.values())
    found: dict[str, list[NDArray[Any]]] = {name: [] for name in names}
    classes: list[NDArray[Any]] = []
    for _, table in files.tables(names, numbers=numbers, exact=exact):
        for role, name in schema.roles.items():
            column, where = table.column(name), place(table, name)
            if role == "label" and not is_regression:
                values, codes = np.unique(read_labels(column, where), return_inverse=True)
                classes.append(values)
                found[name].append(codes.astype(np.int32))
            elif role == "label":
                found[name].append(read_targets(column, where))
            elif role == "weight":
                found[name].append(read_weights(column, where))
            else:
                kind = schema.id_kind if role == "id" else schema.subject_kind
                found[name].append(match_keys(column, where, kind=kind, missing=role == "subject"))
    known = np.empty(0) if is_regression else np.unique(np.concatenate(classes))
    if not is_regression:
        parts = zip(classes, found[schema.label], strict=True)
        found[schema.label] = [np.searchsorted(known, values).astype(np.int32)[codes] for values, codes in parts]
    columns = {role: np.concatenate(found.pop(name)) for role, name in schema.roles.items()}
    if not one_class and not is_regression:
        refuse_quantities(known[columns["label"][: len(head)]] if len(known) > 1 else known, place(head, schema.label))
    stream = RecordStream(
        StreamedFeatures(files, schema, numbers),
        labelled.features,
        columns["label"],
        known,
        ids=columns.get("id"),
        subjects=columns.get("subject"),
        weights=columns.get("weight"),
    )
    return schema, labelled, stream


@dataclass(frozen=True)
class StreamedFeatures:
    """The features of Parquet files, read when they are needed, as the `FeatureSource` of a `RecordStream`.

    Parameters
    ----------
    files
        The files.
    schema
        Which columns are features.
    numbers
        The type of the features that are numbers.
    """

    files: ParquetFiles
    schema: Schema
    numbers: Numbers

    def take(self, rows: NDArray[np.int64]) -> Features:
        """The features of some rows. The files are read up to the last of them."""
        rows = np.asarray(rows, dtype=np.int64)
        order = np.argsort(rows, kind="stable")
        parts, at = [], 0
        for start, features in self._runs(int(rows[order[0]]) if len(rows) else 0):
            end = at + int(np.searchsorted(rows[order[at:]], start + features.shape[0]))
            parts.append(take(features, rows[order[at:end]] - start))
            at = end
            if at == len(rows):
                break
        places = np.empty(len(rows), dtype=np.int64)
        places[order] = np.arange(len(rows))
        return take(concatenate(parts), places)

    def runs(self) -> Iterator[tuple[NDArray[np.int64], Features]]:
        """All rows with their features."""
        for start, features in self._runs(0):
            yield np.arange(start, start + features.shape[0], dtype=np.int64), features

    def _runs(self, first: int) -> Iterator[tuple[int, Features]]:
        names = [feature.name for feature in self.schema.features]
        for start, table in self.files.tables(names, numbers=self.numbers, exact=(), first=first):
            yield start, self.schema.unlabelled(table)


def _as_table(batch: Any) -> Any:
    import pyarrow as pa

    return pa.Table.from_batches([batch])


def _in_folder(pattern: str) -> list[tuple[str, Callable[[], Any]]]:
    path = Path(pattern.removeprefix("file://"))
    if path.is_dir():
        names = [str(each) for each in sorted(path.rglob("*")) if each.name.lower().endswith(_ENDINGS)]
    elif any(mark in pattern for mark in _WILD) and not path.exists():
        names = sorted(glob.glob(str(path), recursive=True))
    else:
        names = [str(path)] if path.is_file() else []
    return [(name, partial(_parquet_file, name)) for name in names]


def _in_bucket(pattern: str) -> list[tuple[str, Callable[[], Any]]]:
    """The objects that a pattern names. Wildcards are looked for below the folders that have none."""
    bucket, _, path = pattern.removeprefix("s3://").partition("/")
    folders = path.split("/")
    fixed = next((place for place, name in enumerate(folders) if any(mark in name for mark in _WILD)), len(folders))
    is_wild = fixed < len(folders)
    top = "/".join(folders[:fixed])
    store = open_bucket(f"s3://{bucket}")
    import obstore

    with explain_bucket(pattern):
        if not is_wild and path.lower().endswith(_ENDINGS):
            names = [path]
        else:
            pages = obstore.list(store, prefix=top or None)
            names = sorted(each["path"] for page in pages for each in page)
            names = [name for name in names if fnmatch(name, path) or (not is_wild and name.lower().endswith(_ENDINGS))]
    return [(f"s3://{posixpath.join(bucket, name)}", partial(_parquet_object, store, name)) for name in names]


def _parquet_file(source: Any) -> Any:
    try:
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingExtraError(NEEDS_LAKE) from None
    return pq.ParquetFile(source)


def _parquet_object(store: Any, name: str) -> Any:
    import obstore

    return _parquet_file(_Reader(obstore.open_reader(store, name)))


class _Reader(io.RawIOBase):
    """An object of a bucket as a file of Python, which pyarrow reads."""

    def __init__(self, found: Any) -> None:
        self._found = found

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self._found.seek(offset, whence))

    def tell(self) -> int:
        return int(self._found.tell())

    def read(self, size: int = -1) -> bytes:
        return bytes(self._found.read(size) if size >= 0 else self._found.readall())


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """Turn errors of reading a file into one line."""
    try:
        yield
    except InputError:  # some are also a ValueError
        raise
    except (OSError, ValueError) as error:
        told = (str(error) or type(error).__name__).splitlines()[0]
        raise InputError(f"{name} is not a Parquet file that can be read: {told:.300}") from error
