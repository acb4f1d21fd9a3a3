"""NPZ into columns: the arrays X, y, ids, subjects and weights, or one array a column. Nothing is ever unpickled."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from expunge.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

MATRIX = "X"


def read_npz(path: Path) -> tuple[pd.DataFrame, NDArray[Any] | None]:
    """The one-dimensional arrays as columns, and X where there is one."""
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
        # Of a file that is something else altogether NumPy says that it holds pickles, and how to load them unsafely.
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
    """Fixed-width text as Python's; an empty text is a missing value, as it is in CSV."""
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
