"""Values to bytes and back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import sklearn

from expunge.errors import ModelFormatError
from expunge.store.codec import trust
from expunge.store.codec.container import pack, unpack
from expunge.store.codec.reader import Reader
from expunge.store.codec.writer import FORMATS, Unsupported, Writer

_VERSION = 1  # of the layout: raise it when nodes change their meaning, and keep reading the old ones


@dataclass(frozen=True, slots=True)
class Encoded:
    """A stored value: its bytes, and what may be in them (`arrays`, `skops` parts, or `pickle` parts)."""

    format: str
    data: bytes


def encode(value: Any, *, trusted: Iterable[str] = ()) -> Encoded:
    """The value as bytes, the same bytes for the same value.

    What could not be loaded again without running somebody's code is refused here and now (`ModelFormatError`), unless
    `trusted` names its class (`package.module:Class`) or its module.
    """
    writer = Writer(trust.as_trusted(trusted))
    try:
        node = writer.write(value)
    except Unsupported as error:
        raise ModelFormatError(str(error)) from error
    except RecursionError as error:
        raise ModelFormatError(f"{trust.name_of(type(value))} cannot be stored: it is nested too deeply") from error
    tree = {"version": _VERSION, "value": node}
    if writer.has_scikit:
        tree["scikit-learn"] = sklearn.__version__
    return Encoded(writer.format, pack(tree, writer.arrays))


def decode(format: str, data: bytes, *, trusted: Iterable[str] = ()) -> Any:
    """The value of `encode`; whatever the bytes are, nothing runs that is not scikit-learn's, expunge's or trusted."""
    if format not in FORMATS:
        raise ModelFormatError(f"the format must be one of {', '.join(FORMATS)}, got {format!r}")
    names = trust.as_trusted(trusted)
    try:
        tree, arrays = unpack(data)
        _check_versions(tree)
        return Reader(arrays, format, names).read(tree["value"])
    except ModelFormatError:
        raise
    except ImportError as error:  # of an extra that is not installed here
        raise ModelFormatError(f"the stored model cannot be loaded here: {error}") from error
    except Exception as error:  # whatever a damaged file may provoke
        detail = next(iter(str(error).splitlines()), "")
        raise ModelFormatError(f"the stored model is malformed: {type(error).__name__}: {detail}") from error


def _check_versions(tree: Any) -> None:
    if tree["version"] != _VERSION:
        raise ModelFormatError(f"the stored model has layout {tree['version']!r}, this version reads {_VERSION}")
    stored = tree.get("scikit-learn")
    if stored is not None and _release(stored) != _release(sklearn.__version__):
        raise ModelFormatError(
            f"the stored model is of scikit-learn {stored}, here is {sklearn.__version__}: train it again"
        )


def _release(version: str) -> list[str]:
    return version.split(".")[:2]
