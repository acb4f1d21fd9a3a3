"""Parts that only skops can take apart: scikit-learn objects with private parts that the plain format does not know.

skops lists every type that a file would build before it builds anything; that list must be within its own defaults,
the few types named here, and what the operator trusts. Its ZIP file is rewritten: numbers in the order of appearance
instead of memory addresses, fixed dates, and no compression, so that a file never expands.
"""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any

from expunge.core.errors import ModelFormatError
from expunge.folder.codec import trust

# Types with indices that compiled code trusts (trees) are not here: the plain format stores and checks them.
_ADMITTED = frozenset({"numpy.dtype", "sklearn.impute._iterative._ImputerTriplet"})
_SCHEMA = "schema.json"
_DATE = (1980, 1, 1, 0, 0, 0)
_NO_DETAIL = "skops cannot store it"


def dump(value: Any, trusted: trust.Trusted) -> bytes:
    """The normalised skops file, after making sure that `load` will take it."""
    import skops.io

    name = trust.name_of(type(value))
    try:
        data = _normalised(skops.io.dumps(value))
    except Exception as error:
        detail = next(iter(str(error).splitlines()), "") or _NO_DETAIL
        raise ModelFormatError(f"{name} cannot be stored: {detail}") from error
    try:
        load(data, trusted)
    except ModelFormatError:
        raise
    except Exception as error:
        raise ModelFormatError(f"{name} cannot be stored: skops does not load it again") from error
    return data


def load(data: bytes, trusted: trust.Trusted) -> Any:
    """The object, if it consists of admitted types only."""
    import skops.io

    _require_plain(data)
    unknown = skops.io.get_untrusted_types(data=data)
    for name in unknown:
        if name not in _ADMITTED:
            trust.require_trusted(name, trusted)
    value = skops.io.loads(data, trusted=unknown)
    _require_no_cache(value)
    return value


def _require_no_cache(value: Any) -> None:
    """A cache would be read by unpickling, from wherever the file says."""
    settings = value.get_params(deep=True) if hasattr(value, "get_params") else {}
    if any(name.rpartition("__")[2] == "memory" and setting is not None for name, setting in settings.items()):
        raise ModelFormatError("the stored model is malformed: an estimator with a cache")


def _require_plain(data: bytes) -> None:
    """Nothing is compressed, in the file or in the files within, so it cannot expand."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = archive.infolist()
        is_plain = all(member.compress_type == zipfile.ZIP_STORED for member in members)
        if not is_plain or sum(member.file_size for member in members) > len(data):
            raise ModelFormatError("the stored model is malformed: a compressed part")
        for member in members:
            if member.filename.endswith(".npz"):
                _require_plain(archive.read(member))


def _normalised(data: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        schema = json.loads(archive.read(_SCHEMA))
        numbers: dict[int, int] = {}
        files: dict[str, str] = {}
        _renumber(schema, numbers, files)
        members = {new: archive.read(old) for old, new in files.items()}
    members = {name: _plain_archive(part) if name.endswith(".npz") else part for name, part in members.items()}
    return _archive({**members, _SCHEMA: json.dumps(schema, separators=(",", ":")).encode()})


def _renumber(node: Any, numbers: dict[int, int], files: dict[str, str]) -> None:
    """Replace ids and the file names made of them, in place."""
    if isinstance(node, list):
        for part in node:
            _renumber(part, numbers, files)
    if not isinstance(node, dict):
        return
    if isinstance(node.get("__id__"), int):
        node["__id__"] = numbers.setdefault(node["__id__"], len(numbers) + 1)
    if isinstance(node.get("file"), str):
        old = node["file"]
        node["file"] = files.setdefault(old, f"{len(files)}.{old.rpartition('.')[2]}")
    for part in node.values():
        _renumber(part, numbers, files)


def _plain_archive(data: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return _archive({member.filename: archive.read(member) for member in archive.infolist()})


def _archive(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in sorted(members):
            archive.writestr(zipfile.ZipInfo(name, _DATE), members[name])
    return buffer.getvalue()
