"""Values with a form of their own: data frames, and objects of trusted classes that can only be pickled.

Unpickling calls what the file names. So the file may name only classes that a trusted module defines itself (not what
it imports, and no function), NumPy's array rebuilding, scikit-learn's estimators and a few containers. One risk
remains, which the operator accepts by trusting a class: a tampered file can call it with arguments of its choice.

Data frames are stored column by column: the public points that a student learns from may be a table.
"""

from __future__ import annotations

import collections
import io
import pickle
import pickletools
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from expunge.core.errors import ModelFormatError
from expunge.folder.codec import trust

_KINDS = re.compile(r"object|str|string|boolean|U?Int(8|16|32|64)|Float(32|64)")


def is_frame(value: Any) -> bool:
    """Say whether this is a data frame of pandas, without importing pandas."""
    return type(value).__name__ == "DataFrame" and type(value).__module__.partition(".")[0] == "pandas"


def split_frame(frame: Any) -> tuple[list[Any], list[Any]]:
    """Take the names of the columns, and the columns as plain values. Row labels are not kept."""
    return list(frame.columns), [_column_parts(frame.iloc[:, place]) for place in range(frame.shape[1])]


def make_frame(names: list[Any], columns: list[Any]) -> Any:
    """Make the data frame of `split_frame`."""
    import pandas as pd

    made = pd.concat([pd.Series(_column(parts)) for parts in columns], axis=1) if columns else pd.DataFrame()
    made.columns = pd.Index(names)
    return made


def _column_parts(column: Any) -> tuple[Any, ...]:
    import pandas as pd

    dtype = column.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        codes = np.asarray(column.cat.codes)
        return "categories", codes, list(dtype.categories), bool(dtype.ordered)
    if isinstance(dtype, np.dtype) and not dtype.hasobject:
        return "numbers", column.to_numpy()
    if not _KINDS.fullmatch(dtype.name):
        raise ModelFormatError(f"column {column.name!r} cannot be stored: columns of type {dtype} are not supported")
    return "values", dtype.name, [None if _is_gap(value) else value for value in column]


def _is_gap(value: Any) -> bool:
    """Say whether a value becomes None: marks of missing values do, but NaN is a number and stays one."""
    import pandas as pd

    return value is pd.NA or value is pd.NaT


def _column(parts: tuple[Any, ...]) -> Any:
    import pandas as pd

    kind, *rest = parts
    if kind == "categories":
        codes, categories, ordered = rest
        return pd.Categorical.from_codes(codes, categories=categories, ordered=ordered)
    if kind == "numbers":
        return rest[0]
    name, values = rest
    if kind != "values" or not _KINDS.fullmatch(name):
        raise ModelFormatError(f"the stored model is malformed: a column of {kind!r}")
    return pd.array(values, dtype=name)


_PROTOCOL = 5
_BUILDERS = {
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "scalar"),
    ("numpy._core.numeric", "_frombuffer"),
    ("numpy", "dtype"),
    ("numpy", "ndarray"),
    ("numpy", "float64"),
    ("numpy", "int64"),
    ("builtins", "set"),
    ("builtins", "frozenset"),
    ("builtins", "slice"),
    ("builtins", "range"),
    ("builtins", "complex"),
}
_CONTAINERS = {("collections", "OrderedDict"): collections.OrderedDict}


def require_admitted(data: bytes, trusted: trust.Trusted) -> None:
    """Refuse a pickle that names classes which are not trusted; one error lists all of them.

    This reads the pickle's instructions and runs none of them. `load_pickle` checks each name again.
    """
    refused: list[trust.Untrusted] = []
    for module, name in _globals(data):
        is_builder = (module, name) in _BUILDERS or (module, name) in _CONTAINERS
        try:
            if not is_builder and "." not in name:
                trust.require_known(f"{module}.{name}", trusted)
        except trust.Untrusted as error:
            refused.append(error)
    if refused:
        raise trust.joined(refused)


def _globals(data: bytes) -> Iterator[tuple[str, str]]:
    """The modules and names that a pickle of Python's own making refers to."""
    texts: list[str] = []  # pushed, newest last
    memo: dict[int, str | None] = {}
    top: str | None = None
    for instruction, argument, _ in pickletools.genops(data):
        match instruction.name:
            case "GLOBAL":
                module, _, name = str(argument).partition(" ")
                yield module, name
                top = None
            case "STACK_GLOBAL" if len(texts) >= 2:
                yield texts[-2], texts[-1]
                top = None
            case "MEMOIZE":
                memo[len(memo)] = top
            case "BINGET" | "LONG_BINGET":
                top = memo.get(int(argument or 0))
                texts += [] if top is None else [top]
            case "SHORT_BINUNICODE" | "BINUNICODE" | "BINUNICODE8":
                top = str(argument)
                texts.append(top)
            case "FRAME" | "PROTO":
                pass
            case _:
                top = None


class _Unpickler(pickle.Unpickler):
    """An unpickler that admits a few names only."""

    def __init__(self, data: bytes, trusted: trust.Trusted) -> None:
        super().__init__(io.BytesIO(data))
        self._trusted = trusted

    def find_class(self, module: str, name: str) -> Any:
        """Find the class or builder of that name, if it is admitted."""
        if (module, name) in _BUILDERS:
            return super().find_class(module, name)
        if (module, name) in _CONTAINERS:
            return _CONTAINERS[module, name]
        full = f"{module}.{name}"
        if "." in name:
            raise trust.refusal(full, why="a pickle may name classes only by a module and a plain name")
        if module.startswith("sklearn."):
            return trust.object_class(full, self._trusted)
        return trust.trusted_class(full, self._trusted)


def dump_pickle(value: Any, trusted: trust.Trusted) -> bytes:
    """Pickle an object of a trusted class, and check that `load_pickle` accepts it."""
    name = trust.name_of(type(value))
    trust.trusted_class(name, trusted)
    try:
        data = pickle.dumps(value, protocol=_PROTOCOL)
    except Exception as error:
        raise ModelFormatError(f"{name} cannot be pickled: {type(error).__name__}: {error}") from error
    load_pickle(data, trusted)
    return data


def load_pickle(data: bytes, trusted: trust.Trusted) -> Any:
    """Unpickle an object, if it consists of admitted classes only."""
    return _Unpickler(data, trusted).load()
