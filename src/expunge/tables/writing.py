"""Writing a file whole or not at all, and answers in each format."""

from __future__ import annotations

import os
import tempfile
from io import BytesIO
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from expunge.core.errors import InputError
from expunge.tables.reading import NEEDS_PYARROW

if TYPE_CHECKING:
    import pandas as pd


class Draft:
    """A file that appears under its name, complete, when `finish` is called; until then the old one stays.

    Opening it makes an empty file beside the target at once, so that a folder that is missing or cannot be written to
    is found out before any work, and any budget, is spent.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if self.path.is_dir():
            raise InputError(f"{str(path)!r} is a folder; give the name of a file to write")
        folder = self.path.absolute().parent
        if not folder.is_dir():
            raise InputError(f"there is no folder {str(self.path.parent)!r} to write {self.path.name!r} to")
        try:
            self._handle, name = tempfile.mkstemp(prefix=f".{self.path.name}.", suffix=".tmp", dir=folder)
        except OSError as error:
            raise InputError(f"{str(path)!r} cannot be written: {error.strerror}") from error
        self._temporary = Path(name)

    def finish(self, content: bytes) -> None:
        """Write, and put in place."""
        with os.fdopen(os.dup(self._handle), "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(self._temporary, 0o666 & ~mask)
        os.replace(self._temporary, self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._handle)
        self._temporary.unlink(missing_ok=True)


def encode_answers(
    answers: NDArray[Any], *, format: str, ids: pd.Series[Any] | None = None, id_name: str = "id"
) -> bytes:
    """A table with the ids, where there are any, and the column `prediction`.

    A declined answer is an empty field in CSV and null in Parquet. NPZ knows neither, so there the array `declined`
    says which they are, and `prediction` holds "" or the smallest number in their place.
    """
    declined = (
        np.array([answer is None for answer in answers]) if answers.dtype == object else np.zeros(len(answers), bool)
    )
    name = id_name if id_name != "prediction" else "id"
    if format == "npz":
        return _npz(answers, declined, ids, name)
    import pandas as pd

    columns: dict[str, Any] = {} if ids is None else {name: ids}
    if format == "csv":
        frame = pd.DataFrame({**columns, "prediction": answers})
        return frame.to_csv(index=False, lineterminator="\n").encode("utf-8")
    return _parquet(answers, ids, name)


def _parquet(answers: NDArray[Any], ids: pd.Series[Any] | None, name: str) -> bytes:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise InputError(NEEDS_PYARROW) from error
    columns: dict[str, Any] = {} if ids is None else {name: pa.array(ids.astype(object).where(ids.notna(), None))}
    columns["prediction"] = pa.array(answers.tolist())
    stream = BytesIO()
    pq.write_table(pa.table(columns), stream)
    return stream.getvalue()


def _npz(answers: NDArray[Any], declined: NDArray[np.bool_], ids: pd.Series[Any] | None, name: str) -> bytes:
    filled = answers
    if answers.dtype == object:
        kind = np.array([answer for answer in answers if answer is not None] or [""]).dtype
        blank: Any = {"i": np.iinfo(np.int64).min, "f": np.nan, "b": False}.get(kind.kind, "")
        filled = np.array(
            [blank if answer is None else answer for answer in answers], dtype=kind if kind.kind != "U" else None
        )
    columns = {} if ids is None else {name: np.array(ids.fillna("").tolist())}
    stream = BytesIO()
    np.savez(stream, **columns, prediction=filled, declined=declined)  # type: ignore[arg-type]
    return stream.getvalue()
