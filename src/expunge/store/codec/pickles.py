"""Parts that can only be pickled: objects of the operator's own classes, trusted by name.

Unpickling calls what the file names, so the file may name only: classes that a trusted module defines itself (never
something it imported, nor a function), NumPy's array rebuilding, scikit-learn's estimators and a few containers. What
remains is the operator's decision: a tampered file can call a trusted class with arguments of its choice.
"""

from __future__ import annotations

import collections
import io
import pickle
from typing import Any

from expunge.errors import ModelFormatError
from expunge.store.codec import trust

_PROTOCOL = 5
_BUILDERS = {
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "scalar"),
    ("numpy._core.numeric", "_frombuffer"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy.core.multiarray", "scalar"),
    ("numpy.core.numeric", "_frombuffer"),
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


class _Unpickler(pickle.Unpickler):
    """An unpickler that knows a handful of names."""

    def __init__(self, data: bytes, trusted: trust.Trusted) -> None:
        super().__init__(io.BytesIO(data))
        self._trusted = trusted

    def find_class(self, module: str, name: str) -> Any:
        """The class or builder of that name, if it is admitted."""
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


def dump(value: Any, trusted: trust.Trusted) -> bytes:
    """The pickle of an object of a trusted class, after making sure that `load` will take it."""
    name = trust.name_of(type(value))
    trust.trusted_class(name, trusted)
    try:
        data = pickle.dumps(value, protocol=_PROTOCOL)
    except Exception as error:
        raise ModelFormatError(f"{name} cannot be pickled: {type(error).__name__}: {error}") from error
    load(data, trusted)
    return data


def load(data: bytes, trusted: trust.Trusted) -> Any:
    """The object, if it consists of admitted classes only."""
    return _Unpickler(data, trusted).load()
