"""Every kind of column comes back as it was, bit for bit, or is refused with one line before anything is written."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from expunge.core.blocks import Block, object_column
from expunge.core.errors import FormatError, InputError, RecordError
from expunge.core.features import describe
from expunge.folder.store.columns import Column, Form
from expunge.folder.store.requests import pack, unpack


def block_of(features: Any, *, ids: Any = None, subjects: Any = None, weights: Any = None) -> Block:
    length = features.shape[0]
    return Block(0, features, np.arange(length, dtype=np.int32), ids, subjects, weights)


def round_trip(block: Block) -> Block:
    """Through the form as it is kept on disk, with the columns as bytes."""
    form = Form.from_json(json.loads(json.dumps(Form.of(block).to_json())))
    assert form == Form.of(block)
    return form.join(form.split(block))


def assert_same_bits(found: np.ndarray, expected: np.ndarray) -> None:
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert np.ascontiguousarray(found).tobytes() == np.ascontiguousarray(expected).tobytes()


NUMBERS = st.one_of(
    hnp.floating_dtypes(endianness="?"),
    hnp.integer_dtypes(endianness="?"),
    hnp.unsigned_integer_dtypes(endianness="?"),
    hnp.complex_number_dtypes(endianness="?"),
    hnp.boolean_dtypes(),
    hnp.datetime64_dtypes(),
    hnp.timedelta64_dtypes(),
)


@settings(max_examples=150, deadline=None)
@given(
    hnp.arrays(
        dtype=NUMBERS, shape=hnp.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=4), elements=None, fill=None
    )
)
def test_arrays_of_numbers_come_back_bit_for_bit(array: np.ndarray) -> None:
    assert_same_bits(round_trip(block_of(array)).features, array)
    assert_same_bits(unpack(pack(block_of(array))).features, array)


def test_nan_payloads_signs_and_minus_zero_are_kept() -> None:
    patterns = [0x7FF8000000000001, 0xFFF800000000BEEF, 0x7FF0000000000001, 0x8000000000000000, 0x0000000000000001]
    array = np.frombuffer(b"".join(struct.pack("<Q", bits) for bits in patterns), dtype="<f8").reshape(5, 1)
    assert_same_bits(round_trip(block_of(array)).features, array)
    assert_same_bits(unpack(pack(block_of(array))).features, array)


def test_arrays_that_are_not_contiguous() -> None:
    array = np.arange(24, dtype=np.float32).reshape(4, 6)[::-1, ::2]
    assert_same_bits(round_trip(block_of(array)).features, np.ascontiguousarray(array))


TEXTS = st.text(max_size=8)  # hypothesis draws no surrogates unless asked
VALUES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), TEXTS)


@settings(max_examples=60, deadline=None)
@given(st.lists(TEXTS, max_size=5))
def test_texts(texts: list[str]) -> None:
    found = round_trip(block_of(object_column(texts))).features
    assert found.dtype == object
    assert found.tolist() == texts


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 3).flatmap(lambda width: st.lists(st.lists(VALUES, min_size=width, max_size=width), min_size=1)))
def test_tables_of_mixed_values(rows: list[list[Any]]) -> None:
    cells = np.empty((len(rows), len(rows[0])), dtype=object)
    for place, row in enumerate(rows):
        cells[place] = row
    found = round_trip(block_of(cells)).features
    assert found.shape == cells.shape
    assert [[(type(v), v) for v in row] for row in found.tolist()] == [[(type(v), v) for v in row] for row in rows]


@pytest.mark.parametrize(
    "features",
    [
        np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
        object_column([b"bytes"]),
        object_column([{"a": 1}]),
        np.empty((3, 0), dtype=object),
        np.empty((1, 1, 1), dtype=object),
    ],
    ids=["structured", "bytes", "dict", "no-columns", "cube"],
)
def test_what_cannot_be_kept_is_refused_with_one_line(features: np.ndarray) -> None:
    with pytest.raises(InputError, match="cannot be stored") as caught:
        round_trip(block_of(features))
    assert "\n" not in str(caught.value)


def test_arrays_inside_a_list_of_objects_are_refused() -> None:
    """They would come back as lists."""
    rows = np.empty(2, dtype=object)
    rows[0], rows[1] = np.array([1.0]), np.array([2.0])
    with pytest.raises(InputError, match="a value of type ndarray cannot be stored"):
        round_trip(block_of(rows))


@pytest.mark.parametrize("where", ["features", "ids", "subjects"])
def test_surrogates_are_refused_with_one_line(where: str) -> None:
    columns: dict[str, Any] = {"features": object_column(["fine"]), "ids": object_column(["fine"]), "subjects": None}
    columns[where] = object_column(["\ud800"])
    with pytest.raises(InputError, match="not Unicode"):
        round_trip(block_of(columns["features"], ids=columns["ids"], subjects=columns["subjects"]))


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1])
def test_ids_of_more_than_64_bits_are_refused_and_named(number: int) -> None:
    with pytest.raises(RecordError, match="at most 64 bits") as caught:
        round_trip(block_of(np.zeros((1, 1)), ids=object_column([number])))
    assert caught.value.record == number


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(st.integers(-(2**63), 2**63 - 1), TEXTS), max_size=6), st.data())
def test_ids_subjects_and_weights(ids: list[Any], data: st.DataObject) -> None:
    subjects = data.draw(st.lists(st.one_of(st.none(), st.integers(), TEXTS), min_size=len(ids), max_size=len(ids)))
    subjects = [s if not isinstance(s, int) or -(2**63) <= s < 2**63 else None for s in subjects]
    weights = np.array(data.draw(st.lists(st.floats(0, 1e9), min_size=len(ids), max_size=len(ids))), dtype=np.float64)
    block = block_of(np.zeros((len(ids), 1)), ids=object_column(ids), subjects=object_column(subjects), weights=weights)
    for found in (round_trip(block), unpack(pack(block))):
        assert found.ids is not None
        assert found.weights is not None
        assert [(type(i), i) for i in found.ids.tolist()] == [(type(i), i) for i in ids]
        named = [None] * len(ids) if found.subjects is None else found.subjects.tolist()  # none at all needs no column
        assert [(type(s), s) for s in named] == [(type(s), s) for s in subjects]
        assert_same_bits(found.weights, weights)
        assert found.labels.dtype == np.int32
        assert found.labels.tolist() == list(range(len(ids)))


def test_number_ids_take_eight_bytes() -> None:
    form = Form.of(block_of(np.zeros((2, 3), dtype=np.float32), ids=np.array([5, -7])))
    assert {column.name: column.width for column in form.columns} == {"features": 12, "labels": 4, "ids": 8}
    assert Column("anything").width == 16


def test_a_form_widens_and_never_narrows() -> None:
    plain = Form.of(block_of(np.zeros((1, 1)), ids=np.array([1])))
    assert not plain.has_subjects
    assert not plain.has_weights
    assert plain.number_ids
    wide = plain.widened(
        block_of(np.zeros((1, 1)), ids=object_column(["a"]), subjects=object_column(["s"]), weights=np.ones(1))
    )
    assert (wide.number_ids, wide.has_subjects, wide.has_weights) == (False, True, True)
    assert wide.widened(block_of(np.zeros((1, 1)), ids=np.array([2]))) == wide
    assert plain.widened(block_of(np.zeros((1, 1)), ids=np.array([3]))) == plain
    assert plain.widened(block_of(np.zeros((1, 1)), ids=np.array([3]), subjects=object_column([None]))) == plain


SERIES = {
    "float32": pd.Series([1.5, np.nan, -0.0], dtype="float32"),
    "int8": pd.Series([1, -2, 3], dtype="int8"),
    "bool": pd.Series([True, False, True]),
    "datetime": pd.Series(np.array(["2020-01-01", "NaT", "1999-12-31T23:59:59.123456789"], dtype="M8[ns]")),
    "timedelta": pd.Series(np.array([1, "NaT", 3], dtype="m8[s]")),
    "text": pd.Series(["é", None, ""], dtype="str"),
    "string": pd.Series(["é", pd.NA, ""], dtype="string"),
    "object": pd.Series(["x", None, np.nan], dtype="object"),
    "mixed object": pd.Series([1, 2.5, True], dtype="object"),
    "category": pd.Series(["b", None, "a"], dtype=pd.CategoricalDtype(["b", "a", "unused"])),
    "ordered": pd.Series([3, 1, None], dtype=pd.CategoricalDtype([3, 2, 1], ordered=True)),
    "no categories": pd.Series([None, None, None], dtype=pd.CategoricalDtype([])),
    "Int64": pd.Series([1, pd.NA, 2**62], dtype="Int64"),
    "UInt8": pd.Series([1, pd.NA, 255], dtype="UInt8"),
    "Float32": pd.Series([0.1, pd.NA, -0.0], dtype="Float32"),
    "boolean": pd.Series([True, pd.NA, False], dtype="boolean"),
}


def assert_same_frame(found: pd.DataFrame, expected: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(found, expected, check_exact=True, check_column_type=False)
    for place in range(expected.shape[1]):
        if isinstance(expected.dtypes.iloc[place], np.dtype) and expected.dtypes.iloc[place].kind != "O":
            assert_same_bits(found.iloc[:, place].to_numpy(), expected.iloc[:, place].to_numpy())


@pytest.mark.parametrize("name", SERIES)
@pytest.mark.parametrize("rows", [3, 0])
def test_every_kind_of_frame_column(name: str, rows: int) -> None:
    table = pd.DataFrame({name: SERIES[name], "other": [1, 2, 3]}).iloc[:rows]
    for found in (round_trip(block_of(table)).features, unpack(pack(block_of(table))).features):
        assert_same_frame(found, table)
        assert describe(found) == describe(table) == Form.of(block_of(table)).layout


def test_none_and_nan_stay_apart_in_a_column_of_objects() -> None:
    """An encoder inside a learner takes them for two categories."""
    found = round_trip(block_of(pd.DataFrame({"a": SERIES["object"]}))).features["a"].tolist()
    assert found[1] is None
    assert isinstance(found[2], float)


@pytest.mark.parametrize("columns", [pd.Index([5, 6]), pd.RangeIndex(2), pd.Index(["a", 6], dtype=object)])
def test_columns_named_by_numbers_can_be_written_twice(columns: pd.Index) -> None:
    """The second time with the names as they were read: numpy's integers."""
    table = pd.DataFrame(np.arange(6.0).reshape(3, 2), columns=columns)
    once = round_trip(block_of(table)).features
    twice = round_trip(block_of(once)).features
    assert_same_frame(twice, table.set_axis(list(columns), axis=1))
    assert describe(twice) == describe(table)


def test_a_frame_without_columns_keeps_its_length() -> None:
    assert round_trip(block_of(pd.DataFrame(index=range(3)))).features.shape == (3, 0)


@pytest.mark.parametrize(
    ("table", "what"),
    [
        (pd.DataFrame({1.5: [1]}), "column 1.5 must be named"),
        (pd.DataFrame({("a", "b"): [1]}), "must be named"),
        (pd.DataFrame({"a": pd.to_datetime(["2020-01-01"]).tz_localize("UTC")}), "type Timestamp cannot be stored"),
        (pd.DataFrame({"a": pd.Series([pd.NA], dtype="object")}), "type NAType cannot be stored"),
        (pd.DataFrame({"a": pd.Series([{1}], dtype="object")}), "type set cannot be stored"),
        (pd.DataFrame({"a": pd.period_range("2020", periods=1)}), "type Period cannot be stored"),
    ],
)
def test_frame_columns_that_cannot_be_kept_are_refused(table: pd.DataFrame, what: str) -> None:
    with pytest.raises(InputError, match=what):
        round_trip(block_of(table))


@settings(max_examples=60, deadline=None)
@given(
    hnp.arrays(
        dtype=st.sampled_from([np.float32, np.float64, np.int16]),
        shape=st.tuples(st.integers(0, 5), st.integers(1, 5)),
        elements=st.sampled_from([0, 0, 1, -3]),
    )
)
def test_sparse_matrices(table: np.ndarray) -> None:
    matrix = scipy.sparse.csr_matrix(table)
    for found in (round_trip(block_of(matrix)).features, unpack(pack(block_of(matrix))).features):
        assert found.dtype == matrix.dtype
        assert found.shape == matrix.shape
        assert_same_bits(found.data, matrix.data)
        assert np.array_equal(found.indices, matrix.indices)
        assert np.array_equal(found.indptr, matrix.indptr)


def test_explicit_zeros_of_a_sparse_matrix_are_kept() -> None:
    matrix = scipy.sparse.csr_array((np.array([0.0, -0.0]), np.array([2, 0]), np.array([0, 2])), shape=(1, 3))
    found = round_trip(block_of(matrix)).features
    assert_same_bits(found.data, matrix.data)
    assert found.indices.tolist() == [2, 0]


@pytest.mark.parametrize("damage", [{}, {"features": 3}, {"kind": "array"}, {"features": [{"name": "a"}], "frame": []}])
def test_a_damaged_description_is_a_format_error(damage: dict[str, Any]) -> None:
    with pytest.raises(FormatError, match="damaged"):
        Form.from_json(damage)


def test_texts_keep_their_form_of_unicode() -> None:
    """Ids have one form. Features are data: a model would be trained on other texts after the folder was opened."""
    texts = np.array(["Zoe\u0308", "Zo\u00eb", ""], dtype=object)
    form = Form.of(block_of(texts))
    assert form.join(form.split(block_of(texts))).features.tolist() == texts.tolist()


@pytest.mark.parametrize("raw", [b"1,2", b'"a', b"\xff", b"[", b"]", b'""",'])
def test_a_damaged_value_is_an_error(raw: bytes) -> None:
    block = block_of(np.array(["a", "b"], dtype=object))
    form = Form.of(block)
    parts = form.split(block)
    parts["features"][1] = raw
    with pytest.raises(FormatError, match="damaged"):
        form.join(parts)
