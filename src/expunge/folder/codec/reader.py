"""From a tree of plain JSON and a list of arrays back to the value.

Of what a file names, the reader calls only: constructors of expunge's own records (which check their arguments),
compiled loss functions of scikit-learn with plain numbers, a named tuple of scikit-learn, and the operator's own
classes where they are trusted. Estimators are rebuilt attribute by attribute; their constructors do not run.
"""

from __future__ import annotations

import functools
import math
import re
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from scipy.interpolate import BSpline
from sklearn.utils import Bunch

from expunge.core.errors import ModelFormatError
from expunge.folder.codec import estimators, trust, values
from expunge.folder.codec.writer import FACTORIES, FORMATS, PICKLE

_DTYPE = re.compile(r"[<>|=][biufcSUmM][0-9]+(\[[a-zA-Z0-9]+\])?")
_SPARSE = {"csr_matrix", "csr_array", "csc_matrix", "csc_array"}
_BUILTIN_TYPES = {"bool": bool, "int": int, "float": float, "str": str, "object": object}
_BIT_GENERATORS = {"MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64"}
_MERSENNE, _PHILOX = 624, 4  # numbers that these generators hold at a time


class Reader:
    """Read one value. `admitted` is the format that the file should have; parts of other formats are refused."""

    def __init__(self, arrays: list[NDArray[Any]], admitted: str, trusted: trust.Trusted) -> None:
        self.trusted = trusted
        self._arrays = arrays
        self._admitted = FORMATS.index(admitted)
        self._built_arrays: dict[int, NDArray[Any]] = {}
        self._objects: list[Any] = []

    def read(self, node: Any) -> Any:
        """Make the value of a node."""
        if type(node) is not list:
            if type(node) is dict:
                raise ModelFormatError("the stored model is malformed: a mapping without a tag")
            return node
        return _TAGS[node[0]](self, node)

    def all(self, nodes: Any) -> list[Any]:
        """Make the values of several nodes."""
        return [self.read(node) for node in nodes]

    def attributes(self, nodes: dict[str, Any]) -> dict[str, Any]:
        """Make the values of named nodes."""
        return {name: self.read(node) if type(node) is list else node for name, node in nodes.items()}

    def embedded_bytes(self, number: int, needed: str) -> bytes:
        """Take the bytes of a part that is in another format than plain arrays."""
        if FORMATS.index(needed) > self._admitted:
            raise ModelFormatError(f"the stored model holds a {needed} part, but is not of that format")
        return self._arrays[number].tobytes()

    def reserve(self) -> int:
        """Reserve the number of an object that is about to be built."""
        self._objects.append(None)
        return len(self._objects) - 1

    def keep(self, number: int, value: Any) -> Any:
        """Keep an object under its number, and return it."""
        self._objects[number] = value
        return value

    def kept(self, number: int) -> Any:
        """Get an object that occurred before."""
        if number < 0 or self._objects[number] is None:
            raise ModelFormatError("the stored model is malformed: it refers to a part that is not there")
        return self._objects[number]


def require_admitted(tree: Any, arrays: list[NDArray[Any]], trusted: trust.Trusted) -> None:
    """Refuse a file that names code which is not trusted, before anything of it is made: one error lists all names."""
    refused: list[trust.Untrusted] = []
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if type(node) is dict:
            waiting += reversed(node.values())
        if type(node) is not list:
            continue
        try:
            if node and type(node[0]) is str:
                _admit(node, arrays, trusted)
        except trust.Untrusted as error:
            refused.append(error)
        waiting += reversed(node)
    if refused:
        raise trust.joined(refused)


def _admit(node: list[Any], arrays: list[NDArray[Any]], trusted: trust.Trusted) -> None:
    match node:
        case ["object" | "custom" | "class", str(name), *_]:
            trust.require_known(name, trusted)
        case ["function", str(name), *_]:
            trust.require_known_function(name, trusted)
        case ["record", _, dict(options)]:
            trust.require_trusted_code([text for option in options.values() for text in _texts(option)], trusted)
        case ["pickle", int(number), *_] if 0 <= number < len(arrays):
            values.require_admitted(arrays[number].tobytes(), trusted)


def _texts(node: Any) -> Iterator[str]:
    """The texts of a record's option, also in containers. Those inside other objects are their own affair."""
    match node:
        case str(text):
            yield text
        case ["dict", list(keys), items]:
            for part in (*keys, items):
                yield from _texts(part)
        case ["ordered", inner] | ["default", _, inner]:
            yield from _texts(inner)
        case ["list" | "tuple" | "set" | "frozenset", *parts]:
            for part in parts:
                yield from _texts(part)


def _array(reader: Reader, node: list[Any]) -> NDArray[Any]:
    number = node[1]
    if number not in reader._built_arrays:
        array = reader._arrays[number]
        reader._built_arrays[number] = array.T if len(node) > 2 else array
    return reader._built_arrays[number]


def _bytes(reader: Reader, node: list[Any]) -> NDArray[Any]:
    _, number, name, shape = node
    if number not in reader._built_arrays:
        flat = np.frombuffer(reader._arrays[number].tobytes(), dtype=_dtype(name))
        reader._built_arrays[number] = flat.reshape(shape).copy()
    return reader._built_arrays[number]


def _dtype(name: Any) -> np.dtype[Any]:
    if isinstance(name, str):
        if name != "|O" and not _DTYPE.fullmatch(name):
            raise ModelFormatError(f"the stored model is malformed: the number type {name!r}")
        return np.dtype(name)
    return np.dtype([(str(field), _dtype(kind)) for field, kind in name])


def _objects(reader: Reader, node: list[Any]) -> NDArray[Any]:
    shape, items = tuple(node[1]), node[2:]
    if math.prod(shape) != len(items):
        raise ModelFormatError("the stored model is malformed: an array of objects has the wrong shape")
    flat = np.empty(len(items), dtype=object)
    flat[:] = reader.all(items)
    return flat.reshape(shape)


def _dict(reader: Reader, node: list[Any]) -> dict[Any, Any]:
    return dict(zip(reader.all(node[1]), reader.read(node[2]), strict=True))


def _rows(reader: Reader, node: list[Any]) -> dict[bytes, Any]:
    table = reader.read(node[1])
    raw, width = table.tobytes(), table.shape[1]
    keys = [raw[at : at + width] for at in range(0, len(raw), width)]
    return dict(zip(keys, reader.read(node[2]), strict=True))


def _sparse(reader: Reader, node: list[Any]) -> Any:
    _, kind, shape, *parts = node
    if kind not in _SPARSE:
        raise trust.refusal(f"scipy.sparse.{kind}")
    matrix = getattr(scipy.sparse, kind)(tuple(reader.all(parts)), shape=tuple(shape))
    matrix.check_format(full_check=True)  # compiled code trusts the indices
    return matrix


def _type(reader: Reader, node: list[Any]) -> type:
    name = node[1]
    found = _BUILTIN_TYPES.get(name) or getattr(np, name)
    if found in _BUILTIN_TYPES.values() or (isinstance(found, type) and issubclass(found, np.generic)):
        return found
    raise trust.refusal(f"numpy.{name}")


def _random_state(reader: Reader, node: list[Any]) -> np.random.RandomState:
    state = reader.read(node[1])
    _require_inside(state)
    bits = np.random.MT19937()
    bits.state = {"bit_generator": "MT19937", "state": state["state"]}
    generator = np.random.RandomState(bits)
    generator.set_state(state)
    return generator


def _require_inside(state: dict[str, Any]) -> None:
    """Refuse a place outside of the generator's own numbers: compiled code reads there without a check."""
    if not (0 <= state["state"].get("pos", 0) <= _MERSENNE and 0 <= state.get("buffer_pos", 0) <= _PHILOX):
        raise ModelFormatError("the stored model is malformed: a random generator is beyond its numbers")


def _generator(reader: Reader, node: list[Any]) -> np.random.Generator:
    state = reader.read(node[1])
    if state["bit_generator"] not in _BIT_GENERATORS:
        raise trust.refusal(f"numpy.random.{state['bit_generator']}")
    _require_inside(state)
    bits = getattr(np.random, state["bit_generator"])()
    bits.state = state
    return np.random.Generator(bits)


def _named_function(reader: Reader, node: list[Any]) -> Any:
    _, name = node
    return trust.function(name, reader.trusted)


def _object(reader: Reader, node: list[Any]) -> Any:
    _, name, nodes = node
    number = reader.reserve()
    kind: Any = trust.object_class(name, reader.trusted)
    value = reader.keep(number, kind.__new__(kind))  # known before its parts, which may refer back to it
    estimators.restore(value, reader.attributes(nodes))
    return value


def _record(reader: Reader, node: list[Any]) -> Any:
    _, name, nodes = node
    number = reader.reserve()
    kind = trust.own_class(name)
    options = reader.attributes(nodes)
    trust.require_trusted_code(options.values(), reader.trusted)
    return reader.keep(number, kind(**options))


def _call(reader: Reader, node: list[Any]) -> Any:
    _, name, nodes = node
    number = reader.reserve()
    arguments = reader.all(nodes)
    if not all(isinstance(argument, int | float) for argument in arguments):
        raise ModelFormatError(f"the stored model is malformed: {name} takes numbers")
    return reader.keep(number, trust.called_class(name)(*arguments))


def _named(reader: Reader, node: list[Any]) -> Any:
    _, name, nodes = node
    number = reader.reserve()
    kind: Any = trust.tuple_class(name)
    return reader.keep(number, kind(*reader.all(nodes)))


def _bunch(reader: Reader, node: list[Any]) -> Any:
    number = reader.reserve()
    return reader.keep(number, Bunch(**reader.attributes(node[1])))


def _tree(reader: Reader, node: list[Any]) -> Any:
    number = reader.reserve()
    return reader.keep(number, estimators.make_tree(*reader.all(node[1:])))


def _custom(reader: Reader, node: list[Any]) -> Any:
    _, name, nodes = node
    number = reader.reserve()
    kind: Any = trust.trusted_class(name, reader.trusted)
    return reader.keep(number, kind.from_arrays(reader.attributes(nodes)))


def _pickle(reader: Reader, node: list[Any]) -> Any:
    return reader.keep(reader.reserve(), values.load_pickle(reader.embedded_bytes(node[1], PICKLE), reader.trusted))


_TAGS: dict[str, Callable[[Reader, list[Any]], Any]] = {
    "again": lambda reader, node: reader.kept(node[1]),
    "array": _array,
    "bunch": _bunch,
    "bytes": _bytes,
    "call": _call,
    "class": lambda reader, node: trust.trusted_class(node[1], reader.trusted),
    "custom": _custom,
    "default": lambda reader, node: defaultdict(FACTORIES[node[1]] if node[1] else None, reader.read(node[2])),
    "dict": _dict,
    "dtype": lambda reader, node: _dtype(node[1]),
    "frame": lambda reader, node: reader.keep(reader.reserve(), values.make_frame(*reader.all(node[1:3]))),
    "frozenset": lambda reader, node: frozenset(reader.all(node[1:])),
    "function": _named_function,
    "generator": _generator,
    "hex": lambda reader, node: bytes.fromhex(node[1]),
    "item": lambda reader, node: reader.read(node[1])[()],
    "list": lambda reader, node: reader.all(node[1:]),
    "masked": lambda reader, node: np.ma.MaskedArray(
        reader.read(node[1]), reader.read(node[2]), fill_value=reader.read(node[3])
    ),
    "named": _named,
    "object": _object,
    "objects": _objects,
    "ordered": lambda reader, node: OrderedDict(reader.read(node[1])),
    "partial": lambda reader, node: functools.partial(
        _named_function(reader, node[1]), *reader.all(node[2]), **reader.attributes(node[3])
    ),
    "pickle": _pickle,
    "random-state": _random_state,
    "range": lambda reader, node: range(*node[1:4]),
    "record": _record,
    "rows": _rows,
    "scalar": lambda reader, node: _dtype(node[1]).type(node[2]),
    "set": lambda reader, node: set(reader.all(node[1:])),
    "slice": lambda reader, node: slice(*reader.all(node[1:4])),
    "sparse": _sparse,
    "spline": lambda reader, node: BSpline(*reader.all(node[1:6])),
    "tree": _tree,
    "tuple": lambda reader, node: tuple(reader.all(node[1:])),
    "type": _type,
}
