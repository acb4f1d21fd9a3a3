"""Blocks that wait as files: reading any such file gives a block or says that the file is damaged."""

from __future__ import annotations

import errno
import json
import struct
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from expunge.core.blocks import Block, object_column
from expunge.core.errors import FormatError, StoreError
from expunge.folder.store.files import explain_errors
from expunge.folder.store.requests import pack, unpack

FEATURES: dict[str, Any] = {
    "array": np.arange(6, dtype=np.float32).reshape(3, 2),
    "texts": object_column(["a", "béta", ""]),
    "frame": pd.DataFrame({"a": ["x", None, "z"], "b": [1, 2, 3], "c": pd.Categorical(["u", "v", "u"])}),
    "sparse": scipy.sparse.csr_matrix(np.array([[0, 1.5], [0, 0], [2, 0]])),
}


def block_of(kind: str) -> Block:
    return Block(
        0,
        FEATURES[kind],
        np.array([0, 1, 0], dtype=np.int32),
        object_column([1, "two", 3]),
        object_column(["s", None, 4]),
        np.array([1.0, 0.5, 2.0]),
    )


def unpack_or_refuse(data: bytes) -> None:
    message = ""
    try:
        assert isinstance(unpack(data), Block)
    except FormatError as error:
        message = str(error)
    assert "\n" not in message


@pytest.mark.parametrize("kind", FEATURES)
def test_a_block_comes_back(kind: str) -> None:
    found, block = unpack(pack(block_of(kind))), block_of(kind)
    for name in ("labels", "ids", "subjects", "weights"):
        assert getattr(found, name).tolist() == getattr(block, name).tolist()
    if kind == "frame":
        pd.testing.assert_frame_equal(found.features, block.features)
    elif kind == "sparse":
        assert (found.features != block.features).nnz == 0
    else:
        assert np.array_equal(found.features, block.features)
    assert pack(found) == pack(block)


@pytest.mark.parametrize("kind", FEATURES)
def test_a_file_cut_short_anywhere_is_damaged(kind: str) -> None:
    data = pack(block_of(kind))
    for length in range(len(data)):
        with pytest.raises(FormatError, match="damaged"):
            unpack(data[:length])
    with pytest.raises(FormatError, match="damaged"):
        unpack(data + b"\0")


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(FEATURES)), st.data())
def test_changed_bytes_never_do_worse_than_a_format_error(kind: str, data: st.DataObject) -> None:
    raw = bytearray(pack(block_of(kind)))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    unpack_or_refuse(bytes(raw))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_bytes_of_a_stranger(raw: bytes) -> None:
    with pytest.raises(FormatError):
        unpack(raw)


PLACES = ("form", "rows", "sizes", "form.x", "column", "frame")
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 2**40), st.text(max_size=5), st.just("<f8"), st.just("O")),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
    max_leaves=6,
)


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(sorted(FEATURES)),
    st.sampled_from(PLACES),
    JSON,
    st.data(),
)
def test_headers_of_a_stranger(kind: str, where: str, value: Any, data: st.DataObject) -> None:
    raw = pack(block_of(kind))
    (size,) = struct.unpack_from("<Q", raw)
    header = json.loads(raw[8 : 8 + size])
    if where == "form.x":
        header["form"][data.draw(st.sampled_from(sorted(header["form"])))] = value
    elif where == "column":
        column = header["form"]["features"][0]
        column[data.draw(st.sampled_from(sorted(column)))] = value
    elif where == "frame" and header["form"]["frame"]:
        column = header["form"]["frame"][0]
        column[data.draw(st.sampled_from(sorted(column)))] = value
    else:
        header[where] = value
    changed = json.dumps(header).encode()
    unpack_or_refuse(struct.pack("<Q", len(changed)) + changed + raw[8 + size :])


@pytest.mark.parametrize(
    ("name", "told"), [("models/00002-fa2c.arrays", "models"), ("records/000001/labels.slab",) * 2]
)
def test_what_the_disk_says_names_no_shard(tmp_path, name, told):
    """Which shard's model is being written depends on r."""
    with pytest.raises(StoreError) as caught, explain_errors(tmp_path):
        raise OSError(errno.EMFILE, "Too many open files", str(tmp_path / name))
    assert str(caught.value) == f"{tmp_path}: too many open files: {tmp_path / told}; nothing was lost"


@pytest.mark.parametrize(
    ("name", "told"), [("models/00002-fa2c.arrays", "a file in {}/models"), ("x", "the file {}/x")]
)
def test_a_missing_file_names_no_shard(tmp_path, name, told):
    with pytest.raises(FormatError) as caught, explain_errors(tmp_path):
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(tmp_path / name))
    assert str(caught.value) == f"{tmp_path} is damaged: {told.format(tmp_path)} is missing"
