"""Parquet files that are read some rows at a time give what the whole table gives."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from expunge.core.errors import InputError, RecordError
from expunge.core.records import Records
from expunge.tables import read_labelled, read_stream, read_table, streams

SIZE = 500


def people(size=SIZE):
    rng = np.random.default_rng(1)
    return pd.DataFrame(
        {
            "id": [f"p{n}" for n in range(size)],
            "age": rng.normal(size=size),
            "visits": rng.integers(0, 9, size),
            "city": rng.choice(["Bern", "Zürich", "Genf"], size),
            "since": pd.to_datetime("2024-01-01") + pd.to_timedelta(rng.integers(0, 700, size), "D"),
            "household": rng.integers(0, 200, size),
            "left": rng.choice(["no", "yes"], size),
            "weight": rng.uniform(0.5, 2, size),
        }
    )


OPTIONS = {"label": "left", "id": "id", "subject": "household", "weight": "weight"}


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A table in three files of different length, read in pieces that fit none of them."""
    monkeypatch.setattr(streams, "_HEAD", 60)
    monkeypatch.setattr(streams, "_AT_ONCE", 64)
    table = people()
    for name, low, high in (("a", 0, 70), ("b", 70, 71), ("c", 71, SIZE)):
        table.iloc[low:high].to_parquet(tmp_path / f"{name}.parquet", index=False)
    table.to_parquet(tmp_path / "all.pq", index=False)
    return tmp_path


def whole(files, **options):
    return read_labelled(read_table(files / "all.pq", as_text=["id", "left", "household"]), **(OPTIONS | options))


@pytest.mark.parametrize("pattern", ["*.parquet", "?.parquet"])
def test_a_stream_has_the_records_of_the_whole_table(files, pattern):
    schema, expected = whole(files)
    found_schema, head, stream = read_stream(str(files / pattern), **OPTIONS)
    assert found_schema == schema
    assert len(head.labels) == 60
    assert len(stream) == SIZE
    columns = {"ids": expected.ids, "subjects": expected.subjects, "weights": expected.weights}
    one = Records.build(expected.features, expected.labels, **columns)
    two = stream.records()
    assert two.is_elsewhere
    assert one.classes.tolist() == two.classes.tolist()
    assert one.layout == two.layout
    assert one.ids() == two.ids()
    for slots in (np.arange(SIZE), np.array([69, 70, 71, 72]), np.array([3]), np.array([], dtype=np.int64)):
        (X, y, weights), (X2, y2, weights2) = one.gather(slots), two.gather(slots)
        pd.testing.assert_frame_equal(X, X2)
        assert y.tolist() == y2.tolist()
        assert weights.tolist() == weights2.tolist()
    assert one.subjects_of(np.arange(SIZE)).tolist() == two.subjects_of(np.arange(SIZE)).tolist()
    rows = np.concatenate([rows for rows, _ in two.blocks[0].runs(10)])
    assert rows.tolist() == [*range(SIZE)]


def test_rows_come_in_the_order_that_is_asked_for(files):
    _, expected = whole(files)
    _, _, stream = read_stream(str(files / "?.parquet"), **OPTIONS)
    rows = np.array([400, 3, 71, 3, 70])
    pd.testing.assert_frame_equal(stream.features.take(rows), expected.features.iloc[rows].reset_index(drop=True))


def test_a_small_table_is_read_as_a_whole(files, monkeypatch):
    monkeypatch.setattr(streams, "_HEAD", SIZE)
    _, expected = whole(files)
    _, found, stream = read_stream(str(files / "?.parquet"), **OPTIONS)
    assert stream is None
    pd.testing.assert_frame_equal(found.features, expected.features)
    assert found.labels.tolist() == expected.labels.tolist()
    assert found.ids.tolist() == expected.ids.tolist()


def test_a_folder_of_files_and_one_file_are_patterns_too(files, tmp_path):
    folder = tmp_path / "inner"
    folder.mkdir()
    people(90).to_parquet(folder / "x.parquet", index=False)
    people(90).assign(id=[f"q{n}" for n in range(90)]).to_parquet(folder / "y.parquet", index=False)
    assert len(read_stream(str(folder), **OPTIONS)[2]) == 180
    assert len(read_stream(str(folder / "x.parquet"), **OPTIONS)[2]) == 90


def test_numbers_to_predict_and_declared_classes(files):
    _, _, stream = read_stream(str(files / "?.parquet"), **{**OPTIONS, "label": "age"}, is_regression=True)
    records = stream.records()
    assert records.is_regression
    assert records.gather(np.array([100]))[1].tolist() == [people()["age"][100]]
    _, _, stream = read_stream(str(files / "?.parquet"), **OPTIONS)
    records = stream.records(classes=["yes", "maybe", "no"])
    assert records.classes.tolist() == ["maybe", "no", "yes"]
    codes = records.gather(np.arange(SIZE))[1]
    assert records.classes[codes].tolist() == people()["left"].tolist()
    with pytest.raises(InputError, match="the label 'yes' is not a known class"):
        stream.records(classes=["maybe", "no"])


def change(files, row, **values):
    table = people().iloc[71:].reset_index(drop=True)
    for name, value in values.items():
        table[name] = table[name].astype(object)
        table.loc[row, name] = value
    table.to_parquet(files / "c.parquet", index=False)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"id": "p3"}, "the id 'p3' occurs twice"),
        ({"left": None}, "is empty; every record needs a label"),
        ({"id": None}, "is empty; every record needs one"),
        ({"weight": -1.0}, "a weight is a number >= 0"),
    ],
)
def test_a_wrong_value_far_down_is_one_line(files, values, words):
    change(files, 300, **values)
    with pytest.raises((InputError, RecordError), match=words) as error:
        read_stream(str(files / "?.parquet"), **OPTIONS)[2].records()
    assert "\n" not in str(error.value)


def test_a_gap_that_the_first_rows_lack_names_the_record(files):
    change(files, 300, age=None)
    _, _, stream = read_stream(str(files / "?.parquet"), **OPTIONS)
    for found in (lambda records: records.gather(np.array([371])), lambda records: [*records.blocks[0].runs(10)]):
        with pytest.raises(RecordError, match="the features of record p371 hold NaN or infinity"):
            found(stream.records())
    assert np.isnan(stream.records(allow_missing=True).gather(np.array([371]))[0]["age"][0])


def test_files_that_do_not_fit_are_one_line(files):
    for pattern in ("nothing/*.parquet", "z*.parquet", str(files / "none.parquet")):
        with pytest.raises(InputError, match="there is no Parquet file"):
            read_stream(pattern, **OPTIONS)
    (files / "d.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(InputError, match=r"d\.parquet is not a Parquet file that can be read"):
        read_stream(str(files / "?.parquet"), **OPTIONS)
    people()[["age", "id"]].to_parquet(files / "d.parquet", index=False)
    with pytest.raises(InputError, match=r"d\.parquet has other columns than"):
        read_stream(str(files / "?.parquet"), **OPTIONS)
