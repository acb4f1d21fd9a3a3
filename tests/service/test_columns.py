"""Bodies become features, or are refused by row and field; one form says what another one says."""

from __future__ import annotations

import io
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression

import expunge
from expunge.core.errors import InputError
from expunge.service.columns import Columns, read_npy
from expunge.service.problems import Problem, problem_of
from expunge.service.reading import Reading
from expunge.tables import Schema
from expunge.tables.schema import Feature

NUMBERS = Columns(None, ("a", "b"), ("number", "number"), (2,), "float64", allow_missing=False)
GAPS = Columns(None, ("a", "b"), ("number", "number"), (2,), "float64", allow_missing=True)
ARRAYS = Columns(None, None, (), (2,), "float64", allow_missing=False)
IMAGES = Columns(None, None, (), (2, 3), "float32", allow_missing=False)
KINDS = {"n": "number", "is": "boolean", "on": "date", "town": "category", "said": "text"}
MIXED = Schema(label="y", id="id", features=tuple(Feature(name, kind) for name, kind in KINDS.items()))
TABLE = Columns(MIXED, tuple(KINDS), tuple(KINDS.values()), None, "float64", allow_missing=True)


def rows(*found):
    return json.dumps({"rows": list(found)}).encode()


def npy(array):
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def stream(table):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def arrow_file(table):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def refused(columns, form, body):
    """Where and how a body is refused."""
    with pytest.raises((Problem, InputError)) as caught:
        columns.read(form, body)
    problem = problem_of(caught.value)
    at = problem.errors[0] if problem.errors else {}
    return at.get("row"), at.get("field"), problem.detail


WANTED = np.array([[1.0, 2.5], [3.0, -4.0]])


@pytest.mark.parametrize(
    ("form", "body"),
    [
        ("json", rows({"a": 1, "b": 2.5}, {"b": -4, "a": 3})),
        ("json", rows([1, 2.5], [3, -4.0])),
        ("json", rows({"b": 2.5, "a": 1}, [3, -4])),
        ("csv", b"b,a\n2.5,1\n-4,3\n"),
        ("csv", b"b;a\n2,5;1\n-4;3\n"),
        ("arrow", stream(pa.table({"b": [2.5, -4], "a": pa.array([1, 3], pa.int8())}))),
        ("arrow", arrow_file(pa.table({"a": [1, 3], "b": [2.5, -4]}))),
        ("npy", npy(WANTED)),
        ("npy", npy(np.asfortranarray(WANTED))),
        ("npy", npy(WANTED.astype(">f4"))),
    ],
)
def test_every_form_says_the_same(form, body):
    assert NUMBERS.read(form, body).tolist() == WANTED.tolist()


def test_gaps_are_read_where_they_may_be():
    for form, body in [
        ("json", rows({"a": None, "b": 2}, [3, None])),
        ("csv", b"a,b\n,2\n3,NA\n"),
        ("arrow", stream(pa.table({"a": [None, 3.0], "b": [2.0, None]}))),
        ("npy", npy(np.array([[np.nan, 2], [3, np.nan]]))),
    ]:
        assert np.array_equal(GAPS.read(form, body), [[np.nan, 2], [3, np.nan]], equal_nan=True)
        assert refused(NUMBERS, form, body)[:2] == (1, "a")


@pytest.mark.parametrize(
    ("form", "body", "row", "field"),
    [
        ("json", rows({"a": 1, "b": 2}, {"a": 1, "b": "x"}), 2, "b"),
        ("json", rows({"a": 1}), 1, "b"),
        ("json", rows({"a": 1, "b": 2, "c": 3}), 1, "c"),
        ("json", rows([1, 2], [1, True]), 2, "b"),
        ("json", rows([1, 2], [1]), 2, None),
        ("json", rows(3), 1, None),
        ("json", b'{"rows": [[1, 1e400]]}', 1, "b"),
        ("json", b'{"rows": [[1, NaN]]}', None, None),
        ("json", rows(), None, "rows"),
        ("json", b"{}", None, "rows"),
        ("json", b'{"rows": [], "more": 1}', None, "more"),
        ("json", b"[" * 5000, None, None),
        ("json", b"\xff", None, None),
        ("json", b"", None, None),
        ("csv", b"a,b\n1,2\n1,x\n", 2, "b"),
        ("csv", b"a,b\n1,2\n1\n", 2, None),
        ("csv", b"a\n1\n", None, "b"),
        ("csv", b"a,b,c\n1,2,3\n", None, "c"),
        ("csv", b"a,b\n1,1e400\n", 1, "b"),
        ("csv", b"a,b\n", None, None),
        ("csv", b"", None, None),
        ("csv", b"\xff\xfe\x00", None, None),
        ("csv", b"PK\x03\x04rest of a spreadsheet", None, None),
        ("arrow", stream(pa.table({"a": [1.0], "b": ["x"]})), 1, "b"),
        ("arrow", stream(pa.table({"a": [1.0]})), None, "b"),
        ("arrow", stream(pa.table({"a": [1.0], "b": [float("inf")]})), 1, "b"),
        ("arrow", stream(pa.table({"a": [[1]], "b": [1]})), 1, "a"),
        ("arrow", b"ARROW1 but no more", None, None),
        ("arrow", b"", None, None),
        ("npy", npy(np.zeros((2, 3))), None, None),
        ("npy", npy(np.zeros((0, 2))), None, None),
        ("npy", npy(np.array([["x", "y"]])), None, None),
        ("npy", npy(np.array([[1, np.inf]])), 1, "b"),
        ("npy", npy(WANTED)[:-1], None, None),
        ("npy", npy(WANTED) + b"0", None, None),
        ("npy", b"", None, None),
    ],
)
def test_what_does_not_fit_is_named(form, body, row, field):
    found = refused(NUMBERS, form, body)
    assert found[:2] == (row, field), found
    assert "\n" not in found[2]


def test_a_header_that_promises_more_than_there_is_is_not_believed():
    huge = npy(np.zeros((2, 2))).replace(b"'shape': (2, 2), ", b"'shape': (10**9)")
    with pytest.raises(Problem):
        read_npy(huge)
    stated = npy(np.zeros((2, 2))).replace(b"(2, 2), }          ", b"(2000000000, 2), } ")
    assert b"2000000000" in stated
    with pytest.raises(Problem, match="4,000,000,000 values"):
        read_npy(stated)
    objects = io.BytesIO()
    np.save(objects, np.array([object()]), allow_pickle=True)
    with pytest.raises(Problem, match="plain numbers"):
        read_npy(objects.getvalue())


def test_rows_without_names_are_arrays_of_their_shape():
    assert ARRAYS.read("json", rows([1, 2])).tolist() == [[1, 2]]
    assert ARRAYS.read("csv", b"x,y\n1,2\n").tolist() == [[1, 2]]
    assert refused(ARRAYS, "json", rows({"a": 1}))[0] == 1
    image = [[1, 2, 3], [4, 5, 6]]
    found = IMAGES.read("json", rows(image))
    assert found.dtype == np.float32
    assert found.tolist() == [image]
    assert IMAGES.read("npy", npy(np.array([image]))).tolist() == [image]
    assert refused(IMAGES, "json", rows(image, [[1]]))[0] == 2


def test_dates_categories_and_texts_are_read_as_the_program_reads_them():
    row = {"n": 1.5, "is": True, "on": "2026-11-19", "town": "Ulm", "said": "come again"}
    frame = TABLE.read("json", rows(row, {**row, "n": None, "town": 7, "is": 0}))
    again = TABLE.read("csv", b"n,is,on,town,said\n1.5,true,2026-11-19,Ulm,come again\n,0,2026-11-19,7,come again\n")
    pd.testing.assert_frame_equal(frame, again)
    assert refused(TABLE, "json", rows(row, {**row, "on": "soon"}))[:2] == (2, "on")
    assert refused(TABLE, "json", rows(row, {**row, "is": "perhaps"}))[:2] == (2, "is")
    assert refused(TABLE, "json", rows({**row, "said": 3}))[:2] == (1, "said")
    assert "all numbers" in refused(TABLE, "npy", npy(np.zeros((1, 5))))[2]


def test_columns_of_a_deployment_made_in_python(tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 3)), np.arange(40) % 2
    with expunge.create(tmp_path / "array", LogisticRegression(), X, y, n_shards=2) as deployment:
        columns = Columns.of(deployment)
        assert columns.read("json", rows([1, 2, 3])).shape == (1, 3)
    frame = pd.DataFrame({"age": X[:, 0], "town": ["Ulm", "Bonn"] * 20})
    with expunge.create(tmp_path / "frame", DummyClassifier(), frame, y, n_shards=2) as deployment:
        columns = Columns.of(deployment)
        found = columns.read("json", rows({"age": 3, "town": "Ulm"}, [4, "Bonn"]))
        assert deployment.predict(found).shape == (2,)
        assert refused(columns, "json", rows({"age": "x", "town": "Ulm"}))[:2] == (1, "age")


def test_another_process_reads_the_same_and_refuses_the_same():
    for columns, form, body in [
        (NUMBERS, "json", rows([1, 2.5], [3, -4])),
        (TABLE, "csv", b"n,is,on,town,said\n1.5,true,2026-11-19,Ulm,come again\n"),
    ]:
        reading = Reading(columns)
        try:
            here, there = columns.read(form, body), reading.read(form, body)
            if isinstance(here, np.ndarray):
                assert np.array_equal(here, there)
            else:
                pd.testing.assert_frame_equal(here, there)
            with pytest.raises(Problem) as caught:
                reading.read("json", rows([1]))
            assert caught.value.errors[0]["row"] == 1
            with pytest.raises(InputError, match="lacks column"):
                reading.read("csv", b"zz\n1\n")
            reading._process.kill()
            assert len(reading.read(form, body)) == len(here)
        finally:
            reading.close()
