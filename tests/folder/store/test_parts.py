"""A part of a table holds every kind of column bit for bit, and what is no part is refused in one line."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from expunge.core.blocks import Block, object_column
from expunge.core.errors import FormatError
from expunge.core.place import Place
from expunge.folder.store.columns import Form
from expunge.folder.store.parts import decode_part, encode_part, pick
from expunge.folder.store.spool import Spool

NUMBERS = st.one_of(
    hnp.floating_dtypes(endianness="="),
    hnp.integer_dtypes(endianness="="),
    hnp.unsigned_integer_dtypes(endianness="="),
    hnp.complex_number_dtypes(endianness="="),
    hnp.boolean_dtypes(),
    hnp.datetime64_dtypes(),
    hnp.timedelta64_dtypes(),
)
FRAME = pd.DataFrame({"age": [1.5, np.nan, -0.0], "city": ["Zürich", None, "Bern"], "n": np.array([1, 2, 3], np.int16)})
TABLES = {
    "numbers": np.random.default_rng(0).normal(size=(3, 4)),
    "images": np.arange(24, dtype=np.uint8).reshape(3, 2, 2, 2),
    "nothing": np.empty((3, 0)),
    "sparse": scipy.sparse.csr_matrix(np.array([[0, 1.5, 0], [0, 0, 0], [2.5, 0, -1.0]])),
    "texts": object_column(["a", 'b"\n', "Zoë"]),
    "frame": FRAME,
}


def block_of(features: Any) -> Block:
    length = features.shape[0]
    ids = object_column([f"p{n}" if n else 7 for n in range(length)])
    subjects = object_column([None, *(f"s{n}" for n in range(1, length))][:length])
    return Block(0, features, np.arange(length, dtype=np.int32), ids, subjects, np.linspace(0, 1, length))


def raw(values: Any) -> Any:
    return (values.dtype, values.shape, values.tobytes()) if isinstance(values, np.ndarray) else values


def assert_round_trip(block: Block) -> None:
    form = Form.of(block)
    slots, columns = np.arange(len(block), dtype=np.int64) * 3 + 5, form.split(block)
    columns = {
        name: values if isinstance(values, list) else np.ascontiguousarray(values) for name, values in columns.items()
    }
    content = encode_part(form, slots, columns)
    found_slots, found = decode_part(form, content, form.columns)
    assert found_slots.tolist() == slots.tolist()
    assert {name: raw(found[name]) for name in columns} == {name: raw(values) for name, values in columns.items()}
    _, features = decode_part(form, content, form.features)
    assert features.keys() == {column.name for column in form.features}


@settings(max_examples=60, deadline=None)
@given(hnp.arrays(NUMBERS, hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=3), elements=None, fill=None))
def test_numbers_of_any_type_come_back_bit_for_bit(array: np.ndarray) -> None:
    assert_round_trip(block_of(array))


@pytest.mark.parametrize("kind", TABLES)
def test_every_form_comes_back(kind: str) -> None:
    assert_round_trip(block_of(TABLES[kind]))


def test_another_reader_sees_numbers_and_texts() -> None:
    block = block_of(FRAME)
    form = Form.of(block)
    table = pq.read_table(io.BytesIO(encode_part(form, np.arange(3), form.split(block)))).to_pydict()
    assert table["slot"] == [0, 1, 2]
    assert table["feature-1"] == ['"Zürich"', "null", '"Bern"']
    assert table["ids"] == ["7", '"p1"', '"p2"']
    assert table["labels"] == [0, 1, 2]


@pytest.mark.parametrize("kind", ["numbers", "texts"])
def test_a_changed_byte_is_noticed(kind: str) -> None:
    block = block_of(TABLES[kind])
    form = Form.of(block)
    content = encode_part(form, np.arange(3), form.split(block))
    _, expected = decode_part(form, content, form.columns)
    told = {name: raw(values) for name, values in expected.items()}
    noticed = 0
    for place in range(0, len(content), 7):
        changed = bytearray(content)
        changed[place] ^= 4
        try:
            _, found = decode_part(form, bytes(changed), form.columns)
        except FormatError:
            noticed += 1
        else:
            assert {name: raw(values) for name, values in found.items()} == told
    assert noticed > 20


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1" + bytes(40) + b"PAR1"])
def test_what_is_no_part_is_refused(content: bytes) -> None:
    form = Form.of(block_of(TABLES["numbers"]))
    with pytest.raises(FormatError):
        decode_part(form, content, form.columns)


@pytest.mark.parametrize("in_memory", [0, 150, 1 << 20])
@pytest.mark.parametrize("kind", ["numbers", "texts", "frame", "sparse"])
def test_a_spool_gives_rows_back_in_order(kind: str, in_memory: int, tmp_path: Any) -> None:
    block = block_of(TABLES[kind])
    form = Form.of(block)
    columns = form.split_features(block.features)
    with Spool(Place.hold(tmp_path), form.features, in_memory=in_memory) as spool:
        for slots, rows in (([5, 0], [2, 1]), ([3], [0]), ([4, 1], [1, 0]), ([2], [2])):
            spool.add(np.array(slots), pick(columns, np.array(rows)))
        assert bool(list(tmp_path.iterdir())) == (in_memory < 1 << 20)
        for low, high in ((0, 6), (0, 3), (3, 6), (2, 2)):
            slots, found = spool.read(low, high)
            assert slots.tolist() == [*range(low, high)]
            wanted = pick(columns, np.array([1, 0, 2, 0, 1, 2], dtype=np.int64)[low:high])
            assert {name: raw(v) for name, v in found.items()} == {name: raw(v) for name, v in wanted.items()}
    assert not list(tmp_path.iterdir())
