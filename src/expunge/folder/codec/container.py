"""The file layout of a stored value: a safetensors file with a checksum.

The tensors `0`, `1`, … are the value's arrays and the last one, `tree`, is a JSON text that says how they make up the
value. A BLAKE2b checksum over the whole file has a fixed place in the header, so that a truncated or altered file is
detected before it is interpreted. The checksum guards against accidents. It does not guard against tampering, because
an attacker can compute it too; the reader does, because it builds known types only. Any safetensors reader can open
such a file.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import safetensors
from numpy.typing import NDArray

from expunge.core.errors import ModelFormatError

_DIGEST_CHARACTERS = 32
_HEADER_START = '{"__metadata__":{"blake2b":"'
_DIGEST_AT = 8 + len(_HEADER_START)
_DIGEST_END = _DIGEST_AT + _DIGEST_CHARACTERS
_NO_DIGEST = b"0" * _DIGEST_CHARACTERS

_NAMES = {
    "<f8": "F64",
    "<f4": "F32",
    "<f2": "F16",
    "<i8": "I64",
    "<i4": "I32",
    "<i2": "I16",
    "|i1": "I8",
    "<u8": "U64",
    "<u4": "U32",
    "<u2": "U16",
    "|u1": "U8",
    "|b1": "BOOL",
}
_DTYPES = {name: np.dtype(code) for code, name in _NAMES.items()}


def is_tensor_type(dtype: np.dtype[Any]) -> bool:
    """Say whether safetensors knows the type. Arrays of other types are stored as bytes."""
    return dtype.str in _NAMES


def pack(tree: Any, arrays: Sequence[NDArray[Any]]) -> bytes:
    """Write a tree and its arrays. The arrays must be C-contiguous and of types that safetensors knows."""
    text = json.dumps(tree, separators=(",", ":")).encode("ascii")
    parts = [array.tobytes() for array in arrays]
    entries, start = [], 0
    for number, (array, part) in enumerate(zip(arrays, parts, strict=True)):
        entries.append(_entry(str(number), _NAMES[array.dtype.str], array.shape, start, start + len(part)))
        start += len(part)
    entries.append(_entry("tree", "U8", (len(text),), start, start + len(text)))
    header = f'{_HEADER_START}{_NO_DIGEST.decode()}"}},{",".join(entries)}}}'.encode("ascii")
    header += b" " * (-len(header) % 8)
    data = b"".join([len(header).to_bytes(8, "little"), header, *parts, text])
    return data[:_DIGEST_AT] + _digest(data) + data[_DIGEST_END:]


def unpack(data: bytes) -> tuple[Any, list[NDArray[Any]]]:
    """Read the tree and its arrays. Each array has memory of its own."""
    _verify(data)
    tensors = dict(safetensors.deserialize(data))  # type: ignore[no-untyped-call]
    text = tensors.pop("tree")["data"]
    tree = json.loads(bytes(text))
    return tree, [_array(tensors[str(number)]) for number in range(len(tensors))]


def _entry(name: str, kind: str, shape: tuple[int, ...], start: int, end: int) -> str:
    sizes = ",".join(map(str, shape))
    return f'"{name}":{{"dtype":"{kind}","shape":[{sizes}],"data_offsets":[{start},{end}]}}'


def _array(tensor: dict[str, Any]) -> NDArray[Any]:
    flat = np.frombuffer(tensor["data"], dtype=_DTYPES[tensor["dtype"]])
    return flat.reshape(tensor["shape"]).copy()  # aligned and writable, as a freshly trained model's arrays are


def _digest(data: bytes) -> bytes:
    """Compute the checksum of the file with zeros in the place of the checksum."""
    state = blake2b(digest_size=_DIGEST_CHARACTERS // 2)
    view = memoryview(data)
    state.update(view[:_DIGEST_AT])
    state.update(_NO_DIGEST)
    state.update(view[_DIGEST_END:])
    return state.hexdigest().encode("ascii")


def _verify(data: bytes) -> None:
    if not isinstance(data, bytes) or data[8:_DIGEST_AT] != _HEADER_START.encode("ascii"):
        raise ModelFormatError("the stored model is not a file of expunge")
    if data[_DIGEST_AT:_DIGEST_END] != _digest(data):
        raise ModelFormatError("the stored model is damaged: its checksum does not match")
