"""A block of records as one file: what an accepted addition waits in until it is applied."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np

from expunge._blocks import Block
from expunge.errors import FormatError
from expunge.store.columns import Form

_HEAD = struct.Struct("<Q")


def pack(block: Block) -> bytes:
    """The block's columns one after another, behind a header that says how to read them."""
    form = Form.of(block)
    split = form.split(block)
    bodies = [_raw(split[column.name]) for column in form.columns]
    header = json.dumps({"form": form.to_json(), "rows": len(block), "sizes": [len(body) for body in bodies]}).encode()
    return b"".join([_HEAD.pack(len(header)), header, *bodies])


def unpack(data: bytes) -> Block:
    """What `pack` wrote."""
    try:
        (size,) = _HEAD.unpack_from(data)
        header = json.loads(data[_HEAD.size : _HEAD.size + size])
        form, rows = Form.from_json(header["form"]), int(header["rows"])
        parts: dict[str, Any] = {}
        at = _HEAD.size + size
        for column, length in zip(form.columns, header["sizes"], strict=True):
            body = data[at : at + length]
            at += length
            if column.dtype is None:
                parts[column.name] = _rows(body, rows)
            else:
                parts[column.name] = np.frombuffer(body, dtype=column.dtype).reshape(rows, *column.shape)
        if at != len(data):
            raise ValueError(f"it is {len(data)} bytes long, expected {at}")
        return form.join(parts)
    except FormatError:
        raise
    except Exception as error:  # whatever numpy, scipy or pandas make of bytes that `pack` did not write
        raise FormatError(f"a waiting addition is damaged: {' '.join(str(error).split())}") from None


def _raw(values: Any) -> bytes:
    if isinstance(values, list):
        return np.array([len(row) for row in values], dtype="<i8").tobytes() + b"".join(values)
    return np.ascontiguousarray(values).tobytes()


def _rows(body: bytes, count: int) -> list[bytes]:
    lengths = np.frombuffer(body, dtype="<i8", count=count)
    ends = 8 * count + np.cumsum(lengths)
    if (lengths < 0).any() or 8 * count + lengths.sum() != len(body):
        raise ValueError("its rows do not fill their column")
    starts = np.concatenate([[8 * count], ends[:-1]]) if count else ends
    return [body[low:high] for low, high in zip(starts.tolist(), ends.tolist(), strict=True)]
