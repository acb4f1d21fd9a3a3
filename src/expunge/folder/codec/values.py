"""Values with a form of their own: data frames, and objects of trusted classes that can only be pickled.

Unpickling calls what the file names. So the file may name only classes that a trusted module defines itself (not what
it imports, and no function), arrays and number types of NumPy, scikit-learn's estimators and a few containers. NumPy's
own builders take arrays of objects, and number types, from raw bytes: a file could so point anywhere in memory. They
are replaced by builders that do not. One risk remains, which the operator accepts by trusting a class: a tampered file
can call it with arguments of its choice.

Data frames are stored column by column: the public points that a student learns from may be a table.
"""

from __future__ import annotations

import collections
import io
import pickle
import pickletools
import re
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from expunge.core.errors import ModelFormatError
from expunge.folder.codec import estimators, trust

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
_NUMBERS = re.compile(r"O8|b1|[iuf][1248]|c(8|16)|[US][0-9]+|[mM]8")
_UNIT = re.compile(r"[a-zA-Z]+")
_BYTE_ORDERS = ("<", ">", "|", "=")


class _Array:
    """What `numpy.ndarray` stands for in a pickle. It cannot be called."""

    def __new__(cls) -> Any:
        raise ModelFormatError("the stored model is malformed: an array that is not made as NumPy makes it")


def _empty_array(kind: Any, *_: Any) -> NDArray[Any]:
    """Make an array that is filled afterwards, by its `__setstate__`."""
    if kind is not _Array:
        raise ModelFormatError("the stored model is malformed: an array of a type of its own cannot be stored")
    return np.empty(0, dtype=np.int8)


def _filled_array(raw: Any, dtype: Any, shape: Any, order: Any) -> NDArray[Any]:
    return np.frombuffer(raw, dtype=_known(dtype)).reshape(shape, order=order)


def _number(dtype: Any, raw: Any) -> Any:
    """Make a single number, text or date."""
    if _known(dtype).hasobject:
        raise ModelFormatError("the stored model is malformed: a number that is an object")
    return np.frombuffer(raw, dtype=dtype)[0]


def _number_type(name: Any, *_: Any) -> np.dtype[Any]:
    """Make a number type of this pickle alone: each is told apart from all others."""
    if not isinstance(name, str) or not _NUMBERS.fullmatch(name):
        raise ModelFormatError(f"an array of the type {name!r:.80} cannot be stored in a pickle")
    return np.dtype(name, copy=True)


def _known(dtype: Any) -> np.dtype[Any]:
    if not isinstance(dtype, np.dtype):
        raise ModelFormatError("the stored model is malformed: an array without a type")
    return dtype


def _ordered(dtype: np.dtype[Any], state: Any) -> np.dtype[Any]:
    """The number type in its order of bytes. Nothing else of a stored state is believed."""
    _, order, *parts = state
    if order not in _BYTE_ORDERS or parts[:3] != [None, None, None]:
        raise ModelFormatError("an array of a type with fields cannot be stored in a pickle")
    if dtype.kind in "mM":
        unit, count, *_ = parts[6][1]
        unit = unit.decode("ascii") if isinstance(unit, bytes) else unit
        if not _UNIT.fullmatch(unit):
            raise ModelFormatError("the stored model is malformed: the unit of a date")
        dtype = np.dtype(f"{dtype.kind}8" if unit == "generic" else f"{dtype.kind}8[{int(count)}{unit}]")
    return dtype.newbyteorder(order)


_BUILDERS: dict[tuple[str, str], Any] = {
    ("numpy._core.multiarray", "_reconstruct"): _empty_array,
    ("numpy._core.multiarray", "scalar"): _number,
    ("numpy._core.numeric", "_frombuffer"): _filled_array,
    ("numpy", "dtype"): _number_type,
    ("numpy", "ndarray"): _Array,
    ("numpy", "float64"): np.float64,
    ("numpy", "int64"): np.int64,
    ("builtins", "set"): set,
    ("builtins", "frozenset"): frozenset,
    ("builtins", "slice"): slice,
    ("builtins", "range"): range,
    ("builtins", "complex"): complex,
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("collections", "defaultdict"): collections.defaultdict,
}


def require_admitted(data: bytes, trusted: trust.Trusted) -> None:
    """Refuse a pickle that names classes which are not trusted; one error lists all of them.

    This reads the pickle's instructions and runs none of them. `load_pickle` checks each name again.
    """
    refused = _untrusted_names(data, trusted)
    if refused:
        raise trust.joined(refused)
    if not trusted:
        raise ModelFormatError("the stored model is malformed: it holds a pickle of nothing that has to be trusted")


def untrusted_parts(value: Any, trusted: trust.Trusted) -> list[trust.Untrusted]:
    """What a pickle of the value would name that is not trusted. Nothing, if it cannot be pickled."""
    try:
        return _untrusted_names(pickle.dumps(value, protocol=_PROTOCOL), trusted)
    except Exception:  # told when its class is trusted and it is to be stored
        return []


def _untrusted_names(data: bytes, trusted: trust.Trusted) -> list[trust.Untrusted]:
    refused: list[trust.Untrusted] = []
    for module, name in _globals(data):
        try:
            if (module, name) not in _BUILDERS and "." not in name:
                trust.require_known(f"{module}.{name}", trusted)
        except trust.Untrusted as error:
            refused.append(error)
    return refused


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


class _Unpickler(pickle._Unpickler):
    """An unpickler that admits a few names only, and sets the state of what it makes itself with care.

    It is the one in Python: the compiled one sets states without asking.
    """

    dispatch: ClassVar[dict[int, Any]] = dict(pickle._Unpickler.dispatch)
    stack: list[Any]
    memo: dict[int, Any]

    def __init__(self, data: bytes, trusted: trust.Trusted) -> None:
        super().__init__(io.BytesIO(data))
        self._trusted = trusted

    def find_class(self, module: str, name: str) -> Any:
        """Find the class or builder of that name, if it is admitted."""
        if (module, name) in _BUILDERS:
            return _BUILDERS[module, name]
        full = f"{module}.{name}"
        if "." in name:
            raise trust.refusal(full, why="a pickle may name classes only by a module and a plain name")
        if module.startswith("sklearn."):
            return trust.object_class(full, self._trusted)
        return trust.trusted_class(full, self._trusted)

    def load_build(self) -> None:
        """Set the state of the object that was made last."""
        made, state = self.stack[-2], self.stack[-1]
        if isinstance(made, np.dtype):
            self.stack.pop()
            self._exchange(made, _ordered(made, state))
        elif isinstance(made, BaseEstimator) and type(made).__module__.startswith("sklearn."):
            self.stack.pop()
            estimators.restore(made, {name: part for name, part in state.items() if name != "_sklearn_version"})
        else:
            super().load_build()  # type: ignore[misc]

    def _exchange(self, made: Any, value: Any) -> None:
        self.stack[-1] = value
        self.memo.update({place: value for place, kept in self.memo.items() if kept is made})

    dispatch[pickle.BUILD[0]] = load_build


def dump_pickle(value: Any, trusted: trust.Trusted) -> bytes:
    """Pickle an object of a trusted class, and check that `load_pickle` accepts it."""
    name = trust.name_of(type(value))
    trust.trusted_class(name, trusted)
    try:
        data = pickle.dumps(value, protocol=_PROTOCOL)
    except Exception as error:
        raise ModelFormatError(f"{name} cannot be pickled: {type(error).__name__}: {error}") from error
    require_admitted(data, trusted)
    load_pickle(data, trusted)
    return data


def load_pickle(data: bytes, trusted: trust.Trusted) -> Any:
    """Unpickle an object, if it consists of admitted classes only."""
    return _Unpickler(data, trusted).load()
