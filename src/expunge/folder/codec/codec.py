"""Values and models to bytes and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import sklearn

from expunge.core.errors import ModelFormatError
from expunge.folder.codec import trust
from expunge.folder.codec.container import pack, unpack
from expunge.folder.codec.reader import Reader, require_admitted
from expunge.folder.codec.writer import FORMATS, Writer
from expunge.training.learners import Learner, Model, SlicedLearner
from expunge.training.learners.parts import model_of, parts_of
from expunge.training.learners.protocol import ShardData

_VERSION = 1  # of the layout: raise it when nodes change their meaning


@dataclass(frozen=True, slots=True)
class Encoded:
    """A stored value.

    Parameters
    ----------
    format
        What the bytes may hold: "arrays" (arrays and plain values) or "pickle" (also pickled parts).
    data
        The bytes.
    """

    format: str
    data: bytes


def encode(value: Any, *, trusted: Iterable[str] = ()) -> Encoded:
    """Store a value as bytes. The same value gives the same bytes.

    Parameters
    ----------
    value
        The value. Known types are stored as arrays and plain values.
    trusted
        Classes (`package.module:Class`) and modules whose code may run when the value is loaded.

    Returns
    -------
    Encoded
        The bytes and their format.

    Raises
    ------
    ModelFormatError
        If loading the value would run code that is not trusted, or the value cannot be stored.

    Examples
    --------
    >>> encode([1, "a"]).format
    'arrays'
    """
    writer = Writer(trust.as_trusted(trusted))
    try:
        node = writer.write(value)
    except RecursionError as error:
        raise ModelFormatError(f"{trust.name_of(type(value))} cannot be stored: it is nested too deeply") from error
    if writer.refused:
        raise trust.joined(writer.refused)
    tree = {"version": _VERSION, "value": node}
    if writer.has_scikit:
        tree["scikit-learn"] = sklearn.__version__
    return Encoded(writer.format, pack(tree, writer.arrays))


def decode(format: str, data: bytes, *, trusted: Iterable[str] = (), any_release: bool = False) -> Any:
    """Load a value that `encode` stored. Only code of scikit-learn and expunge and trusted code can run.

    Parameters
    ----------
    format
        The format that the value was stored in. A file may not hold parts of another format.
    data
        The bytes.
    trusted
        Classes (`package.module:Class`) and modules whose code may run.
    any_release
        Whether it may come from another release of scikit-learn. Only for what was never trained, such as learners:
        options that are new in this release have their default values.

    Returns
    -------
    Any
        The value.

    Raises
    ------
    ModelFormatError
        If the bytes are damaged, are of another layout or scikit-learn release, or name code that is not trusted.

    Examples
    --------
    >>> decode("arrays", encode([1, "a"]).data)
    [1, 'a']
    """
    if format not in FORMATS:
        raise ModelFormatError(f"the format must be one of {', '.join(FORMATS)}, got {format!r}")
    names = trust.as_trusted(trusted)
    try:
        tree, arrays = unpack(data)
        _check_versions(tree, any_release=any_release)
        require_admitted(tree["value"], arrays, names)
        return Reader(arrays, format, names).read(tree["value"])
    except ModelFormatError:
        raise
    except ImportError as error:  # of an extra that is not installed here
        raise ModelFormatError(f"the stored model cannot be loaded here: {error}") from error
    except Exception as error:  # a damaged file may provoke any error
        detail = next(iter(str(error).splitlines()), "")
        raise ModelFormatError(f"the stored model is malformed: {type(error).__name__}: {detail}") from error


def require_trusted(data: bytes, *, trusted: Iterable[str] = ()) -> None:
    """Refuse bytes that name code which is not trusted, without loading any of it. One error lists all names.

    Parameters
    ----------
    data
        The bytes.
    trusted
        Classes (`package.module:Class`) and modules whose code may run.

    Raises
    ------
    Untrusted
        If something is missing. Bytes that are damaged pass: loading them tells.

    Examples
    --------
    >>> require_trusted(encode([1, "a"]).data)
    """
    names = trust.as_trusted(trusted)
    try:
        tree, arrays = unpack(data)
        require_admitted(tree["value"], arrays, names)
    except trust.Untrusted:
        raise
    except Exception:
        return


def _check_versions(tree: Any, *, any_release: bool) -> None:
    if tree["version"] != _VERSION:
        raise ModelFormatError(f"the stored model has layout {tree['version']!r}, this version reads {_VERSION}")
    stored = tree.get("scikit-learn")
    if stored is not None and not any_release and _release(stored) != _release(sklearn.__version__):
        raise ModelFormatError(
            f"the stored model is of scikit-learn {stored}, here is {sklearn.__version__}: train it again"
        )


def _release(version: str) -> list[str]:
    return version.split(".")[:2]


def encode_model(
    learner: Learner | SlicedLearner, model: Model, *, trusted: Iterable[str] = (), beside_records: bool = False
) -> Encoded:
    """Store the model of one shard.

    Parameters
    ----------
    learner
        The learner that trained it.
    model
        The model.
    trusted
        Classes (`package.module:Class`) and modules whose code may run when the model is loaded.
    beside_records
        Whether the shard's records are stored too: then a model that holds them is stored without them.

    Returns
    -------
    Encoded
        The bytes and their format.

    Raises
    ------
    ModelFormatError
        If loading the model would run code that is not trusted, or the model cannot be stored.

    Examples
    --------
    >>> from expunge.training.learners import ConstantModel, LookupTableLearner
    >>> learner = LookupTableLearner()
    >>> stored = encode_model(learner, ConstantModel(3))
    >>> decode_model(learner, stored.format, stored.data)
    ConstantModel(code=3)
    """
    return encode(parts_of(learner, model, beside_records=beside_records), trusted=trusted)


def decode_model(
    learner: Learner | SlicedLearner,
    format: str,
    data: bytes,
    *,
    trusted: Iterable[str] = (),
    rows: Callable[[], ShardData] | None = None,
) -> Model:
    """Load a model that `encode_model` stored.

    Parameters
    ----------
    learner
        The learner that trained it.
    format
        The format that the model was stored in.
    data
        The bytes.
    trusted
        Classes (`package.module:Class`) and modules whose code may run.
    rows
        Reads the shard's records, for a model that was stored beside them.

    Returns
    -------
    Model
        The model.

    Raises
    ------
    ModelFormatError
        If `decode` refuses the bytes, they hold something other than a model, or the learner cannot load it.
    """
    return model_of(learner, decode(format, data, trusted=trusted), rows=rows)
