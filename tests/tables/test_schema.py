"""What the first file says about the columns is asked of every later one."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from expunge.core.errors import InputError
from expunge.tables import Schema, Table, read_labelled
from expunge.tables.schema import feature_kind

CLASSES = np.array(["no", "yes"])


def table(name="train.csv", matrix=None, **columns):
    return Table(name, name.split(".")[-1], pd.DataFrame(columns), matrix)


def train(**changes):
    columns = {
        "id": ["1", "2", "3"],
        "house": ["a", None, "b"],
        "age": [30.0, np.nan, 40.0],
        "plan": ["gold", None, "silver"],
        "member": [True, False, True],
        "w": [1.0, 2.0, 0.5],
        "note": ["x", "y", "z"],
        "churned": ["no", "yes", "no"],
    }
    return table(**{**columns, **changes})


def learn(rows, **options):
    options = {"label": "churned", "id": "id", "subject": "house", "weight": "w", "ignored": ["note"], **options}
    return read_labelled(rows, **options)


def test_columns_by_their_use():
    schema, first = learn(train())
    assert [(f.name, f.kind) for f in schema.features] == [
        ("age", "number"),
        ("plan", "category"),
        ("member", "boolean"),
    ]
    assert (schema.id_kind, schema.subject_kind) == ("int", "str")
    assert first.features.columns.tolist() == ["age", "plan", "member"]
    assert first.features["plan"].tolist() == ["gold", None, "silver"]
    assert first.features["plan"].dtype == object
    assert first.features["member"].tolist() == [1, 0, 1]
    assert first.ids.tolist() == [1, 2, 3]
    assert first.subjects.tolist() == ["a", None, "b"]
    assert first.weights.tolist() == [1, 2, 0.5]
    assert first.labels.tolist() == ["no", "yes", "no"]


def test_a_schema_survives_json():
    schema, _ = learn(train())
    assert Schema.from_dict(json.loads(json.dumps(schema.to_dict()))) == schema
    matrix = Schema(label="y", shape=(2, 3))
    assert Schema.from_dict(json.loads(json.dumps(matrix.to_dict()))) == matrix


def test_numbers_alone_are_one_array():
    schema, first = learn(train(), ignored=["note", "plan"], numbers="float32")
    assert first.features.dtype == np.float32
    np.testing.assert_array_equal(first.features, np.array([[30, 1], [np.nan, 0], [40, 1]], np.float32))
    assert schema.column_kinds is None


def test_later_files_may_have_the_columns_in_any_order():
    schema, first = learn(train())
    rows = train()
    turned = Table("more.csv", "csv", rows.frame[rows.frame.columns[::-1]])
    again = schema.labelled(turned, CLASSES)
    pd.testing.assert_frame_equal(again.features, first.features)
    assert again.ids.tolist() == first.ids.tolist()
    bare = Table("new.csv", "csv", rows.frame[["member", "plan", "age"]])
    pd.testing.assert_frame_equal(schema.unlabelled(bare), first.features)


def test_strange_and_missing_columns_are_named():
    schema, _ = learn(train())
    with pytest.raises(InputError, match=r"train.csv has column 'colour', which"):
        schema.unlabelled(train(colour=[1, 2, 3]))
    with pytest.raises(InputError, match=r"new.csv lacks columns 'plan', 'member'"):
        schema.unlabelled(table("new.csv", age=[1.0]))
    for column in ("id", "house", "w", "churned"):
        rows = train()
        with pytest.raises(InputError, match=f"train.csv has no column '{column}'"):
            schema.labelled(Table("train.csv", "csv", rows.frame.drop(columns=column)), CLASSES)
    with pytest.raises(InputError, match=r"has no column 'nope'; it has 'id', 'house'"):
        learn(train(), label="nope")


def test_bad_values_are_named():
    schema, _ = learn(train())
    cases = {
        "row 2 of column 'age' of train.csv is 'old', which is not a number": {"age": ["1", "old", "3"]},
        "row 3 of column 'age' of train.csv is not a finite number": {"age": [1, 2, np.inf]},
        "row 1 of column 'member' of train.csv is neither true nor false": {"member": ["maybe", "True", "False"]},
        "row 3 of column 'member' of train.csv is neither true nor false": {"member": [0, 1, 2]},
        "rows 1 and 2 of column 'id' of train.csv are both 4": {"id": ["4", "4", "5"]},
        "row 3 of column 'id' of train.csv is 'x'": {"id": ["4", "5", "x"]},
        "row 2 of column 'w' of train.csv is -1; a weight is a number >= 0": {"w": [1, -1, 1]},
        "row 2 of column 'w' of train.csv is nan; a weight": {"w": [1, np.nan, 1]},
        "row 1 of column 'churned' of train.csv is empty": {"churned": [None, "no", "yes"]},
        "row 1 of column 'churned' of train.csv is perhaps, which is not a class": {"churned": ["perhaps", "no", "no"]},
    }
    for message, change in cases.items():
        with pytest.raises(InputError, match=message):
            schema.labelled(train(**change), CLASSES)


def test_a_first_file_that_cannot_be_used():
    with pytest.raises(InputError, match=r"'age' of train.csv has no value"):
        learn(train(age=[np.nan] * 3))
    with pytest.raises(InputError, match=r"'age' of train.csv holds time spans, and not one number or text a row"):
        learn(train(age=pd.to_timedelta(["1 day"] * 3)))
    with pytest.raises(InputError, match=r"both --label and --id"):
        learn(train(), id="churned")
    with pytest.raises(InputError, match=r"train.csv has no rows"):
        learn(Table("train.csv", "csv", train().frame[:0]))
    with pytest.raises(InputError, match=r"no column left"):
        read_labelled(table(y=["a", "b"]), label="y")
    with pytest.raises(InputError, match=r"^--label: which column of train\.csv is it\?"):
        read_labelled(train(), label=None)
    with pytest.raises(InputError, match=r"declare the other classes"):
        learn(train(churned=["no"] * 3))
    learn(train(churned=["no"] * 3), one_class=True)


def test_dates_become_numbers():
    schema, first = learn(train(age=["2020-01-01", None, "31.12.2020"]), ignored=["note", "plan"])
    assert [(each.name, each.kind) for each in schema.features] == [("age", "date"), ("member", "boolean")]
    assert schema.column_kinds is None
    assert first.features.shape == (3, 6)
    np.testing.assert_array_equal(first.features[:, 0], [18_262, np.nan, 18_627])
    again = schema.unlabelled(train(age=["2020-01-01T10:00:00Z", "2020-01-01", "2020/12/31"]))
    np.testing.assert_array_equal(again[:, 0], [18_262, 18_262, 18_627])  # the first file had no times of the day
    schema, first = learn(train(age=["2020-01-01 12:00", None, "2020-12-31"]))
    assert first.features.columns.tolist()[:3] == ["age day", "age year sin", "age year cos"]
    assert first.features["age day"][0] == 18_262.5
    assert (schema.column_kinds["age hour cos"], schema.column_kinds["plan"]) == ("number", "category")
    with pytest.raises(InputError, match=r"row 2 of column 'age' of train.csv is 'soon', which is not a date"):
        schema.unlabelled(train(age=["2020-01-01", "soon", None]))
    with pytest.raises(InputError, match=r"has a column 'day day', a name that a date needs"):
        read_labelled(table(**{"day": ["2020-01-01"] * 2, "day day": [1, 2], "y": ["a", "b"]}), label="y")


def test_text_is_told_from_categories():
    rng = np.random.default_rng(0)
    words = ["late", "parcel", "never", "came", "thanks", "for", "nothing", "friendly", "call", "again"]
    columns = {
        "note": [" ".join(rng.choice(words, 5)) for _ in range(200)],
        "plan": rng.choice(["a longer name of a plan", "another long name of a plan"], 200).tolist(),
        "code": [f"A{number}" for number in range(200)],
    }
    labels = {"y": ["a", "b"] * 100}
    schema, _ = read_labelled(table(**columns, **labels), label="y")
    assert schema.column_kinds == {"note": "text", "plan": "category", "code": "category"}
    schema, _ = read_labelled(table(**columns, **labels), label="y", declared={"code": "text", "note": "category"})
    assert schema.column_kinds == {"note": "category", "plan": "category", "code": "text"}
    many = {"city": [f"town {number}" for number in range(1_001)] * 2, "y": ["a", "b"] * 1_001}
    assert read_labelled(table(**many), label="y")[0].column_kinds == {"city": "text"}
    with pytest.raises(InputError, match=r"--text: train.csv has no column 'nope'"):
        learn(train(), declared={"nope": "text"})
    with pytest.raises(InputError, match=r"column 'id' is not learned from, so it cannot be --category"):
        learn(train(), declared={"id": "category"})


def test_truth_values_in_any_spelling():
    schema, _ = learn(train())
    for values in (
        ["true", "FALSE", None],
        [1, 0, np.nan],
        pd.array([True, False, None], dtype="boolean").astype(object),
    ):
        found = schema.unlabelled(train(member=values))["member"]
        np.testing.assert_array_equal(found, [1, 0, np.nan])


def test_a_text_column_of_numbers_is_text():
    schema, _ = learn(train())
    assert schema.unlabelled(train(plan=[1.0, 2.5, np.nan]))["plan"].tolist() == ["1", "2.5", None]


def test_arrays_of_an_npz_file():
    matrix = np.arange(12, dtype=np.uint8).reshape(3, 2, 2)
    rows = table("a.npz", matrix, y=[0, 1, 0], ids=[5, 6, 7])
    schema, first = read_labelled(rows, label=None)
    assert (schema.label, schema.id, schema.subject, schema.shape) == ("y", "ids", None, (2, 2))
    assert first.features.dtype == np.uint8
    assert first.ids.tolist() == [5, 6, 7]
    np.testing.assert_array_equal(schema.unlabelled(table("b.npz", matrix)), matrix)
    with pytest.raises(InputError, match=r"rows of shape \(4,\), expected \(2, 2\)"):
        schema.unlabelled(table("b.npz", matrix.reshape(3, 4)))
    with pytest.raises(InputError, match=r"no array 'X'"):
        schema.unlabelled(table("b.csv", a=[1.0]))
    with pytest.raises(InputError, match=r"column 'extra' beside 'X'"):
        read_labelled(table("a.npz", matrix, y=[0, 1, 0], extra=[1, 2, 3]), label=None)


def test_an_array_serves_a_deployment_of_named_numbers():
    schema, _ = learn(train(), ignored=["note", "plan", "member"])
    again = schema.labelled(
        table("a.npz", np.array([[1.0], [2.0]]), y=["no", "yes"], ids=[8, 9], subjects=["p", "q"], weights=[1, 1]),
        CLASSES,
    )
    assert again.features.tolist() == [[1.0], [2.0]]
    assert again.ids.tolist() == [8, 9]
    assert again.subjects.tolist() == ["p", "q"]
    mixed, _ = learn(train())
    with pytest.raises(InputError, match=r"not all numbers"):
        mixed.unlabelled(table("a.npz", np.zeros((1, 3))))


DISGUISES = {
    "1.234,5{}": "numbers written as '1.234,50'",
    "{},234": "numbers written as '0,234'",
    "${}.50": "numbers written as",
    "{},5 €": "numbers written as",
    "{}%": "numbers written as '0%'",
    "{}/12/2026": "dates such as '0/12/2026', which do not say which number is the month",
}


@pytest.mark.parametrize("form", DISGUISES)
def test_many_numbers_and_dates_in_disguise_are_refused_and_not_taken_for_names(form):
    many = pd.Series([form.format(i) for i in range(30)])
    with pytest.raises(InputError, match=DISGUISES[form]):
        feature_kind(many, "column 'x'")
    assert feature_kind(many[:20], "column 'x'") == "category"  # few can be names, such as "10%"
    assert feature_kind(pd.concat([many, pd.Series(["other"])]), "column 'x'") == "category"


def test_names_with_digits_are_categories():
    for form in ("c-{}", "{}a", "10.0.0.{}", "0{} 1234", "{}:30", "v1.{}.2", "A{}/2"):
        assert feature_kind(pd.Series([form.format(i) for i in range(30)]), "x") == "category", form


def test_what_holds_no_value_a_row_is_named():
    for value, words in (
        ([1], "lists"),
        ({"a": 1}, "records with fields"),
        (b"a", "bytes"),
        (1j, "values of type complex"),
    ):
        with pytest.raises(InputError, match=f"'x' holds {words}, and not one number or text a row"):
            feature_kind(pd.Series([value, None], dtype=object), "column 'x'")
