"""From a value to a tree of plain JSON and a list of arrays.

Numbers, texts, None and booleans are written as they are. Everything else is a list that starts with a tag (see
`reader`). An array or object that occurs twice is written once, so that shared parts stay shared. Parts are numbered in
the order of appearance, never by memory address: the same value gives the same bytes.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import OrderedDict, defaultdict
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType, MethodType
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from scipy.interpolate import BSpline
from sklearn.base import BaseEstimator
from sklearn.utils import Bunch

from expunge.core.errors import ModelFormatError
from expunge.folder.codec import estimators, trust, values
from expunge.folder.codec.container import is_tensor_type
from expunge.training.fallback import FallbackModel

ARRAYS, PICKLE = FORMATS = ("arrays", "pickle")

_PLAIN_TYPES = frozenset({type(None), bool, int, float, str})
_BUILTIN_TYPES = (bool, int, float, str, object)
FACTORIES: dict[str, type] = {kind.__name__: kind for kind in (bool, dict, float, int, list, set, str, OrderedDict)}
_FUNCTIONS = (np.ufunc, type(np.mean), FunctionType, BuiltinFunctionType, MethodType, MethodDescriptorType)


class Writer:
    """Write one value. Afterwards `arrays`, `format` and `has_scikit` describe the file."""

    def __init__(self, trusted: trust.Trusted) -> None:
        self.trusted = trusted
        self.arrays: list[NDArray[Any]] = []
        self.format = ARRAYS
        self.has_scikit = False
        self.refused: list[trust.Untrusted] = []  # what is not trusted; writing goes on, so that all of it is found
        self._array_numbers: dict[int, Any] = {}  # address -> node
        self._object_numbers: dict[int, int] = {}
        self._alive: list[Any] = []  # an address identifies an object only as long as the object lives

    def write(self, value: Any) -> Any:
        """Make the node of a value."""
        if type(value) in _PLAIN_TYPES:
            return value
        try:
            return self._node(value)
        except trust.Untrusted as error:
            self.refused.append(error)
            return None

    def _node(self, value: Any) -> Any:
        method = _METHODS.get(type(value))
        if method is not None:
            return method(self, value)
        if isinstance(value, np.generic):
            return _scalar(self, value)
        if isinstance(value, np.memmap):
            return _array(self, value.view(np.ndarray))
        if isinstance(value, np.dtype):
            return ["dtype", _dtype_name(value)]
        if isinstance(value, np.ma.MaskedArray):
            return [
                "masked",
                self.write(value.data),
                self.write(np.ma.getmaskarray(value)),
                self.write(value.fill_value),
            ]
        if scipy.sparse.issparse(value) and getattr(value, "format", None) in ("csr", "csc"):
            return _sparse(self, value)
        if isinstance(value, type):
            return _type(self, value)
        if isinstance(value, _FUNCTIONS):
            return _function(self, value)
        return self._object(value)

    def embed(self, data: bytes) -> int:
        """Store bytes as an array, and return its number."""
        self.arrays.append(np.frombuffer(data, dtype=np.uint8))
        return len(self.arrays) - 1

    def _object(self, value: Any) -> Any:
        known = self._object_numbers.get(id(value))
        if known is not None:
            return ["again", known]
        self._object_numbers[id(value)] = len(self._object_numbers)
        self._alive.append(value)
        kind = type(value)
        name = trust.name_of(kind)
        if isinstance(value, FallbackModel):
            raise ModelFormatError(f"{kind.__name__} is not stored: its layout remembers deleted rows; fit it anew")
        if trust.is_own(kind) and not isinstance(value, BaseEstimator):
            trust.own_class(name)
            return ["record", name, self._fields(value)]
        if trust.is_own(kind) or name.startswith("sklearn."):
            self.has_scikit = True
            return self._scikit(value, name)
        if values.is_frame(value):
            return ["frame", *map(self.write, values.split_frame(value))]
        if not trust.is_trusted(name, self.trusted):
            self.refused.append(trust.refusal(name))
            return self._look_inside(value, kind)
        if isinstance(value, BaseEstimator) and _has_plain_state(kind):
            trust.object_class(name, self.trusted)
            return ["object", name, self._attributes(vars(value))]
        if hasattr(kind, "to_arrays") and hasattr(kind, "from_arrays"):
            trust.trusted_class(name, self.trusted)
            return ["custom", name, self._attributes(value.to_arrays())]
        self.format = PICKLE
        return ["pickle", self.embed(values.dump_pickle(value, self.trusted))]

    def _look_inside(self, value: Any, kind: type) -> None:
        """Find what else would have to be trusted, inside of an object that is refused: one error names it all."""
        if isinstance(value, BaseEstimator) and _has_plain_state(kind):
            self._attributes(vars(value))
        elif not (hasattr(kind, "to_arrays") and hasattr(kind, "from_arrays")):
            self.refused += values.untrusted_parts(value, self.trusted)

    def _scikit(self, value: Any, name: str) -> Any:
        if trust.is_called(name):
            made_by, arguments = value.__reduce__()[:2]  # one without state is reduced to a helper of its compiler
            return ["call", name, list(arguments) if made_by is type(value) else []]
        if isinstance(value, Bunch):
            return ["bunch", self._attributes(dict(value))]
        if estimators.is_tree(value):
            return ["tree", *(self.write(part) for part in estimators.split_tree(value))]
        is_tuple = isinstance(value, tuple)
        try:
            trust.tuple_class(name) if is_tuple else trust.object_class(name, self.trusted)
        except ModelFormatError:
            raise ModelFormatError(
                f"{name} cannot be stored: it is not among the parts of scikit-learn that expunge can rebuild safely"
            ) from None
        if is_tuple:
            return ["named", name, list(map(self.write, value))]
        return ["object", name, self._attributes(estimators.state_of(value))]

    def _fields(self, value: Any) -> dict[str, Any]:
        if not dataclasses.is_dataclass(value):
            return {}
        state = {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}
        try:
            trust.require_trusted_code(state.values(), self.trusted)
        except trust.Untrusted as error:
            self.refused.append(error)
        return self._attributes(state)

    def _attributes(self, state: dict[str, Any]) -> dict[str, Any]:
        plain = _PLAIN_TYPES
        return {name: part if type(part) in plain else self.write(part) for name, part in state.items()}


def _has_plain_state(kind: type[BaseEstimator]) -> bool:
    methods = ("__getstate__", "__setstate__", "__reduce__", "__reduce_ex__")
    return all(getattr(kind, name, None) == getattr(BaseEstimator, name, None) for name in methods)


def _list(writer: Writer, value: list[Any]) -> Any:
    return ["list", *map(writer.write, value)]


def _tuple(writer: Writer, value: tuple[Any, ...]) -> Any:
    return ["tuple", *map(writer.write, value)]


def _set(writer: Writer, value: set[Any] | frozenset[Any]) -> Any:
    return [type(value).__name__, *map(writer.write, sorted(value, key=lambda item: (str(type(item)), item)))]


def _dict(writer: Writer, value: dict[Any, Any]) -> Any:
    keys, items = list(value), list(value.values())
    widths = {len(key) if type(key) is bytes else -1 for key in keys}
    if len(widths) == 1 and min(widths) > 0:  # a table of rows, as of a lookup table
        table = np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(len(keys), -1)
        return ["rows", writer.write(table), _items(writer, items)]
    return ["dict", [writer.write(key) for key in keys], _items(writer, items)]


def _default(writer: Writer, value: defaultdict[Any, Any]) -> Any:
    factory = value.default_factory
    name = getattr(factory, "__name__", "")
    if factory is not None and FACTORIES.get(name) is not factory:
        raise ModelFormatError(f"a defaultdict whose factory is {factory!r:.80} cannot be stored")
    return ["default", name, writer.write(dict(value))]


def _items(writer: Writer, items: list[Any]) -> Any:
    """Write a list of nodes, or an array if all items are numbers of one NumPy type (as in a vocabulary)."""
    kinds = {type(item) for item in items}
    if len(items) > 1 and len(kinds) == 1 and issubclass(kinds.pop(), np.number):
        return writer.write(np.array(items))
    return ["list", *map(writer.write, items)]


def _array(writer: Writer, value: NDArray[Any]) -> Any:
    known = writer._array_numbers.get(id(value))
    if known is None:
        known = _new_array(writer, value)
        writer._array_numbers[id(value)] = known
        writer._alive.append(value)
    return known


def _new_array(writer: Writer, value: NDArray[Any]) -> Any:
    if value.dtype.hasobject:
        if value.dtype != object:
            raise ModelFormatError(f"an array of type {value.dtype} cannot be stored")
        return ["objects", list(value.shape), *map(writer.write, value.ravel().tolist())]
    number = len(writer.arrays)
    if is_tensor_type(value.dtype):
        is_fortran = value.ndim > 1 and value.flags.f_contiguous and not value.flags.c_contiguous
        writer.arrays.append(value.T if is_fortran else np.ascontiguousarray(value).reshape(value.shape))
        return ["array", number, "F"] if is_fortran else ["array", number]
    packed = _packed(value)
    writer.arrays.append(np.frombuffer(packed.tobytes(), dtype=np.uint8))
    return ["bytes", number, _dtype_name(packed.dtype), list(value.shape)]


def _packed(value: NDArray[Any]) -> NDArray[Any]:
    """Copy a structured array without gaps: the gaps hold what was in memory before."""
    if value.dtype.names is None:
        return value
    packed = np.empty(value.shape, dtype=[(name, value.dtype[name].str) for name in value.dtype.names])
    for name in value.dtype.names:
        packed[name] = value[name]
    return packed


def _dtype_name(dtype: np.dtype[Any]) -> Any:
    if dtype.names is None:
        return dtype.str
    return [[name, dtype[name].str] for name in dtype.names]


def _scalar(writer: Writer, value: np.generic) -> Any:
    if value.dtype.kind in "biufU":
        return ["scalar", value.dtype.str, value.item()]
    return ["item", writer.write(np.asarray(value))]


def _sparse(writer: Writer, value: Any) -> Any:
    # As the reader will make it: with the index type that scipy chooses, and arrays of its own.
    made = type(value)((value.data, value.indices, value.indptr), shape=value.shape)
    parts = [_new_array(writer, part) for part in (made.data, made.indices, made.indptr)]
    return ["sparse", type(value).__name__, list(map(int, value.shape)), *parts]


def _type(writer: Writer, value: type) -> Any:
    if value in _BUILTIN_TYPES or (value.__module__ == "numpy" and issubclass(value, np.generic)):
        return ["type", value.__name__]
    name = trust.name_of(value)
    trust.trusted_class(name, writer.trusted)
    return ["class", name]


def _function(writer: Writer, value: Any) -> Any:
    module = _ufunc_module(value) if isinstance(value, np.ufunc) else getattr(value, "__module__", None)
    name = f"{module or 'builtins'}.{value.__qualname__}"
    if "<" in name:
        raise ModelFormatError(f"{name} cannot be stored: use a named function of a module and trust that module")
    trust.function(name, writer.trusted)
    return ["function", name]


def _partial(writer: Writer, value: functools.partial[Any]) -> Any:
    return [
        "partial",
        _function(writer, value.func),
        list(map(writer.write, value.args)),
        writer._attributes(value.keywords),
    ]


def _ufunc_module(value: np.ufunc) -> str:
    return "numpy" if getattr(np, value.__name__, None) is value else "scipy.special"


def _random_state(writer: Writer, value: np.random.RandomState) -> Any:
    return ["random-state", writer.write(value.get_state(legacy=False))]


def _generator(writer: Writer, value: np.random.Generator) -> Any:
    return ["generator", writer.write(value.bit_generator.state)]


_METHODS: dict[type, Any] = {
    list: _list,
    tuple: _tuple,
    dict: _dict,
    OrderedDict: lambda writer, value: ["ordered", writer.write(dict(value))],
    defaultdict: _default,
    set: _set,
    frozenset: _set,
    np.ndarray: _array,
    np.float64: _scalar,
    bytes: lambda writer, value: ["hex", value.hex()],
    slice: lambda writer, value: ["slice", *map(writer.write, (value.start, value.stop, value.step))],
    range: lambda writer, value: ["range", value.start, value.stop, value.step],
    BSpline: lambda writer, value: [
        "spline",
        *map(writer.write, (value.t, value.c, value.k, value.extrapolate, value.axis)),
    ],
    functools.partial: _partial,
    np.random.RandomState: _random_state,
    np.random.Generator: _generator,
}
