"""Files as people have them, good and bad."""

from __future__ import annotations

import datetime
import gzip
import io

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from expunge.core.errors import InputError
from expunge.tables import formats, read_labelled, read_table, table_format
from expunge.tables.schema import as_feature, feature_kind

ROWS = pd.DataFrame(
    {
        "customer_id": [2**60 + 1, 2**60 + 2, 2**60 + 3],
        "age": [31.5, np.nan, 52.25],
        "member": [True, False, True],
        "plan": ["gold", None, "silver"],
        "churned": ["no", "yes", "no"],
    }
).astype({"plan": object})


def write(path, frame=ROWS):
    if path.suffix == ".parquet":
        frame.to_parquet(path)
    elif path.suffix == ".npz":
        np.savez(
            path,
            **{name: np.array(["" if v is None or v is np.nan else v for v in frame[name].tolist()]) for name in frame},
        )
    else:
        frame.to_csv(path, index=False)
    return path


@pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz", "rows.parquet", "ROWS.CSV"])
def test_the_same_table_from_every_format(tmp_path, name):
    table = read_table(write(tmp_path / name), as_text=["customer_id", "churned"])
    assert list(table.frame.columns) == list(ROWS.columns)
    assert [int(value) for value in table.frame["customer_id"]] == ROWS["customer_id"].tolist()
    np.testing.assert_array_equal(table.frame["age"], ROWS["age"])
    assert table.frame["age"].dtype == np.float64
    assert table.frame["member"].dtype == bool
    assert table.frame["plan"].isna().tolist() == [False, True, False]
    assert table.frame["churned"].tolist() == ["no", "yes", "no"]


def test_npz_gives_columns_or_a_matrix(tmp_path):
    table = read_table(write(tmp_path / "rows.npz"))
    assert table.matrix is None
    assert table.frame["plan"].isna().tolist() == [False, True, False]
    assert table.frame["age"].dtype == np.float64
    assert table.frame["customer_id"].tolist() == ROWS["customer_id"].tolist()
    np.savez(tmp_path / "x.npz", X=np.zeros((4, 2, 3), np.float32), y=np.array([b"a", b"b", b"a", b"b"]))
    table = read_table(tmp_path / "x.npz")
    assert table.matrix.shape == (4, 2, 3)
    assert table.frame["y"].tolist() == ["a", "b", "a", "b"]
    assert len(table) == 4


def test_ids_and_labels_are_taken_letter_by_letter(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("id,label,x\n007,NA,NA\n1e3,null,2\n")
    table = read_table(path, as_text=["id", "label"])
    assert table.frame["id"].tolist() == ["007", "1e3"]
    assert table.frame["label"].tolist() == ["NA", "null"]
    assert np.isnan(table.frame["x"][0])
    assert read_table(path, as_text="all").frame["x"].tolist() == ["NA", "2"]
    assert read_table(path, text_features=["id"]).frame["id"].tolist() == ["007", "1e3"]


def test_a_column_has_one_type_in_all_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "_ROWS_PER_PART", 2)
    path = tmp_path / "rows.csv"
    path.write_text("code,number,late,truth\n07,1,,True\n8,2,,False\nx,,,\n9,4.5,3,true\n1,5,1,False\n")
    frame = read_table(path).frame
    assert frame["code"].tolist() == ["07", "8", "x", "9", "1"]
    np.testing.assert_array_equal(frame["number"], [1, 2, np.nan, 4.5, 5])
    np.testing.assert_array_equal(frame["late"], [np.nan, np.nan, np.nan, 3, 1])
    assert frame["truth"].tolist()[:2] == ["True", "False"]
    assert read_table(path, numbers="float32").frame["number"].dtype == np.float32


def test_standard_input_is_csv(monkeypatch):
    class Input:
        buffer = io.BytesIO(b"\xef\xbb\xbfa,b\n1,2\n")

    monkeypatch.setattr("sys.stdin", Input)
    assert read_table("-").frame.to_dict("list") == {"a": [1.0], "b": [2.0]}


BAD_CSV = {
    b"": "is empty",
    b"a,b\n1,2\n3\n": "row 2 of .*bad.csv has 1 field, expected 2",
    b"a,b\n1,2\n3,4,5\n": "row 2 of .*bad.csv has 3 fields, expected 2",
    b"a,b\n1,2,3\n4,5,6\n": "row 1 of .*bad.csv has 3 fields, expected 2",
    b"a,a\n1,2\n": "two columns named 'a'",
    b"a,,c\n1,2,3\n": "no name for column 2",
    b"a,b\n1,caf\xe9\n": "line 2 of .*bad.csv is not UTF-8 .*0xe9",
    b"caf\xe9,b\n1,2\n": "line 1 of .*bad.csv is not UTF-8",
    b'a,b\n1,"2\n': "cannot be read",
}


@pytest.mark.parametrize("content", BAD_CSV)
def test_bad_csv_is_named(tmp_path, content):
    path = tmp_path / "bad.csv"
    path.write_bytes(content)
    with pytest.raises(InputError, match=BAD_CSV[content]) as raised:
        read_table(path)
    assert "\n" not in str(raised.value).strip()


def test_long_texts_are_read_and_long_first_rows_are_not(tmp_path):
    """A text may be longer than Python's own reader of CSV takes; what names the columns may not."""
    long = "word " * 40_000
    for name, content in {
        "first.csv": f"text,n\n{long},1\nb,2\n",
        "later.csv": f"text;n\nb;2\n{long};1\n",
        "only.csv": f"text\n{long}\n",
    }.items():
        (tmp_path / name).write_text(content)
        assert sorted(read_table(tmp_path / name, as_text=["text"]).frame["text"].str.len())[-1] == len(long)
    (tmp_path / "ragged.csv").write_text(f"text,n\n{long},1\nb,2,3\n")
    (tmp_path / "header.csv").write_text(f"{long},n\n1,2\n")
    with gzip.open(tmp_path / "bomb.csv.gz", "wb") as stream:
        for _ in range(20):
            stream.write(b"a," * (1 << 19))
    for name, words in {
        "ragged.csv": "cannot be read",
        "header.csv": "its first row cannot be read: field larger than field limit",
        "bomb.csv.gz": "its first row has more than 16,777,216 characters",
    }.items():
        with pytest.raises(InputError, match=words) as raised:
            read_table(tmp_path / name)
        assert "\n" not in str(raised.value).strip()


def test_bad_files_are_named(tmp_path):
    for name in ("bad.parquet", "bad.npz", "bad.csv.gz"):
        (tmp_path / name).write_bytes(b"nonsense")
        with pytest.raises(InputError, match=name) as raised:
            read_table(tmp_path / name)
        assert "pickle" not in str(raised.value)  # the message does not advise unsafe loading
    with pytest.raises(InputError, match=r"there is no file .*absent.csv"):
        read_table(tmp_path / "absent.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(InputError, match=r"not a file"):
        read_table(tmp_path / "folder.csv")
    with pytest.raises(InputError, match=r"must end in one of"):
        table_format("rows.xlsx")
    with gzip.open(tmp_path / "latin.csv.gz", "wb") as stream:
        stream.write(b"a\ncaf\xe9\n")
    with pytest.raises(InputError, match=r"latin.csv.gz"):
        read_table(tmp_path / "latin.csv.gz")


def test_empty_lines_are_skipped_and_gaps_of_a_single_column_are_kept(tmp_path):
    (tmp_path / "one.csv").write_text('age\n1\n\n""\nNA\n4\n\n')
    np.testing.assert_array_equal(read_table(tmp_path / "one.csv").frame["age"], [1, np.nan, np.nan, 4])


def test_dates_are_the_same_text_in_every_format(tmp_path):
    days = [datetime.date(2026, 11, 16), None, datetime.date(1999, 1, 2)]
    (tmp_path / "days.csv").write_text("day,n\n2026-11-16,1\n,2\n1999-01-02,3\n")
    np.savez(tmp_path / "days.npz", day=np.array(days, "datetime64[D]"), n=np.arange(3))
    for kind in (pa.date32(), pa.date64()):
        pq.write_table(pa.table({"day": pa.array(days, kind), "n": [1, 2, 3]}), tmp_path / f"{kind.bit_width}.parquet")
    for name in ("days.csv", "days.npz", "32.parquet", "64.parquet"):
        column = read_table(tmp_path / name).frame["day"]
        assert feature_kind(column, name) == "date"
        assert as_feature(column, "category", "float64", name).tolist() == ["2026-11-16", None, "1999-01-02"]


SPELLINGS = {
    "comma.csv": b"age,plan\n1.5,a\n2,b c\n",
    "semicolon.csv": b'age;plan\n"1,5";a\n2;b c\n',
    "tab.tsv": b"age\tplan\n1,5\ta\n2,0\tb c\n",
    "bar.csv": b"age|plan\n1.5|a\n2|b c\n",
    "utf16.csv": "age;plan\n1,5;a\n2;b c\n".encode("utf-16"),
    "big.tsv": "\ufeffage\tplan\n1.5\ta\n2\tb c\n".encode("utf-16-be"),
    "marked.csv": "\ufeffage,plan\n1.5,a\n2,b c\n".encode(),
    "packed.tsv.gz": gzip.compress(b"age\tplan\n1,5\ta\n2\tb c\n"),
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_the_same_table_in_every_spelling(tmp_path, name):
    (tmp_path / name).write_bytes(SPELLINGS[name])
    frame = read_table(tmp_path / name).frame
    assert frame["age"].tolist() == [1.5, 2.0]
    assert frame["plan"].tolist() == ["a", "b c"]


def test_what_only_looks_like_another_separator(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("id,tags,label\n1,a|b|c,x;y\n2,d,z\n")
    assert read_table(path).frame["tags"].tolist() == ["a|b|c", "d"]
    path.write_text("price;label\n1.5;a\n1,5;b\n1.234,5;c\n")  # not all are numbers: no guess is made
    assert read_table(path).frame["price"].tolist() == ["1.5", "1,5", "1.234,5"]
    path.write_text('price,label\n"1,5",a\n2,b\n')  # separated by commas, so a comma is no decimal point
    assert read_table(path).frame["price"].tolist() == ["1,5", "2"]
    path.write_text("price;code\n1,5;1,5\n2;3\n")
    assert read_table(path, text_features=["code"]).frame["code"].tolist() == ["1,5", "3"]
    path.write_text("age plan\n1 a\n")
    with pytest.raises(InputError, match=r"no column 'plan'; it has 'age plan' alone. Are its fields separated by"):
        read_table(path).column("plan")


def test_a_wrong_number_of_fields_is_found_with_any_separator(tmp_path):
    (tmp_path / "bad.tsv").write_text("a\tb\n1\t2\n3\n")
    with pytest.raises(InputError, match=r"row 2 of .*bad.tsv has 1 field, expected 2"):
        read_table(tmp_path / "bad.tsv")


@pytest.mark.parametrize("kind", ["file", "stream"])
def test_arrow_files(tmp_path, kind):
    rows = pa.table({"age": [1.5, None], "plan": ["a", "b"], "when": pa.array([0, None], pa.timestamp("s", tz="UTC"))})
    make = {"file": pa.ipc.new_file, "stream": pa.ipc.new_stream}[kind]
    with make(str(tmp_path / "rows.arrow"), rows.schema) as writer:
        writer.write_table(rows)
    frame = read_table(tmp_path / "rows.arrow").frame
    np.testing.assert_array_equal(frame["age"], [1.5, np.nan])
    assert feature_kind(frame["when"], "when") == "date"
    (tmp_path / "bad.arrow").write_bytes(b"nonsense")
    with pytest.raises(InputError, match=r"bad.arrow is not an Arrow file"):
        read_table(tmp_path / "bad.arrow")


def test_lists_in_parquet_are_refused_when_they_are_used(tmp_path):
    pq.write_table(pa.table({"x": [1.0, 2.0], "bag": [[1], [2, 3]], "y": ["a", "b"]}), tmp_path / "rows.parquet")
    table = read_table(tmp_path / "rows.parquet")
    with pytest.raises(InputError, match=r"'bag' of .*rows.parquet holds lists, and not one number or text a row"):
        read_labelled(table, label="y")
    assert [each.name for each in read_labelled(table, label="y", ignored=["bag"])[0].features] == ["x"]


def test_npz_is_never_unpickled(tmp_path):
    np.savez(tmp_path / "objects.npz", a=np.array([{"x": 1}], dtype=object))
    with pytest.raises(InputError, match=r"'a' of .*Python objects"):
        read_table(tmp_path / "objects.npz")
    np.save(tmp_path / "one.npy", np.zeros(3))
    (tmp_path / "one.npy").rename(tmp_path / "one.npz")
    with pytest.raises(InputError, match=r"not an NPZ file"):
        read_table(tmp_path / "one.npz")
    np.savez(tmp_path / "lengths.npz", a=np.zeros(3), b=np.zeros(4))
    with pytest.raises(InputError, match=r"differ in length: 'a' has 3, 'b' 4"):
        read_table(tmp_path / "lengths.npz")
    np.savez(tmp_path / "flat.npz", a=np.zeros((3, 2)))
    with pytest.raises(InputError, match=r"'a' .* one column"):
        read_table(tmp_path / "flat.npz")


def test_parquet_keeps_whole_numbers_whole(tmp_path):
    path = tmp_path / "rows.parquet"
    frame = pd.DataFrame({"id": pd.array([2**53 + 1, None], dtype="Int64"), "x": pd.array([1, None], dtype="Int64")})
    frame.to_parquet(path)
    table = read_table(path, as_text=["id"])
    assert table.frame["id"][0] == 2**53 + 1
    np.testing.assert_array_equal(table.frame["x"], [1, np.nan])
    assert read_table(path, as_text="all").frame["x"][0] == 1


@pytest.mark.parametrize("rows", [1, 1000])
def test_whole_numbers_beyond_64_bits_are_numbers(rows, tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "_ROWS_PER_PART", rows)
    path = tmp_path / "rows.csv"
    path.write_text("whole,mixed,code,gap\n99999999999999999999999,99999999999999999999999,1e400,\n3,2.5,x,2\n")
    frame = read_table(path).frame
    np.testing.assert_array_equal(frame["whole"], [1e23, 3])
    np.testing.assert_array_equal(frame["mixed"], [1e23, 2.5])
    np.testing.assert_array_equal(frame["gap"], [np.nan, 2])
    assert frame["code"].tolist() == ["1e400", "x"]
    assert read_table(path, as_text=["whole"]).frame["whole"][0] == "99999999999999999999999"
    assert read_table(path, text_features=["whole"]).frame["whole"][0] == "99999999999999999999999"


def test_a_number_too_large_for_floating_point_is_refused_with_its_row(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("id,a,y\n1,99999999999999999999999,0\n3,1e400,1\n")
    table = read_table(path, as_text=["id", "y"])
    with pytest.raises(InputError, match=r"row 2 of column 'a' of .*rows.csv is not a finite number"):
        read_labelled(table, label="y", id="id")


def test_files_of_another_format_are_told_by_their_contents(tmp_path):
    text = b"age,plan\n1,a\n2,b\n"
    pq.write_table(pa.table({"x": [1.0]}), tmp_path / "columns")
    cases = {
        gzip.compress(text): "is compressed by gzip: its name must end in .csv.gz",
        b"PK\x03\x04" + text: "is a ZIP archive, such as a spreadsheet",
        (tmp_path / "columns").read_bytes(): "is a Parquet file",
        text.decode().encode("utf-16-le"): "UTF-16 without its mark",
        text.decode().encode("utf-16-be"): "UTF-16 without its mark",
    }
    for content, words in cases.items():
        (tmp_path / "rows.csv").write_bytes(content)
        with pytest.raises(InputError, match=words):
            read_table(tmp_path / "rows.csv")
    for content in (text, text.decode().encode("utf-16"), b"a,b\n\0,1\n", b"a,b\n"):
        (tmp_path / "rows.csv").write_bytes(content)
        read_table(tmp_path / "rows.csv")


def test_the_line_of_excel_that_names_the_separator_is_no_row(tmp_path):
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):
        (tmp_path / "rows.csv").write_bytes("sep=;\r\nage;spend\r\n31;1,5\r\n".encode(encoding))
        assert read_table(tmp_path / "rows.csv").frame.to_dict("list") == {"age": [31.0], "spend": [1.5]}
    (tmp_path / "rows.csv").write_text("sep=a,b\n1,2\n")
    assert [*read_table(tmp_path / "rows.csv").frame] == ["sep=a", "b"]
