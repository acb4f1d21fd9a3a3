from __future__ import annotations

import pickle
import re
import time

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from expunge.core.errors import DuplicateRecordError, InputError, RecordError, UnknownRecordError
from expunge.core.records import Add, AddMany, Delete, DeleteMany, DeletePerson, DeleteSubject, Records


def make(n: int = 6, **options) -> Records:
    return Records.build(np.arange(2.0 * n).reshape(n, 2), np.arange(n) % 2, **options)


def contents(records: Records) -> list[tuple]:
    X, y, _ = records.gather(records.live_slots())
    return [(i, tuple(x), int(c)) for i, x, c in zip(records.ids(), X, y, strict=True)]


def test_default_ids_are_positions():
    records = make(3)
    assert records.ids() == [0, 1, 2]
    assert 2 in records
    assert 3 not in records
    assert "0" not in records
    assert True not in records


@pytest.mark.parametrize("ids", [[10, 7, 30], ["a", "b", "c"], ["a", 7, "c"], np.array([5, 4, 3])])
def test_ids_of_every_kind(ids):
    records = Records.build(np.eye(3), [0, 1, 0], ids=ids)
    assert records.ids() == list(ids)
    assert [records.slot_of(i) for i in ids] == [0, 1, 2]
    assert [type(i) for i in records.ids()] == [type(np.asarray(i).item()) for i in ids]


@pytest.mark.parametrize(("ids", "culprit"), [([1, 2, 1], "1"), (["a", "b", "a"], "'a'"), ([1.5, 2.0, 3.0], "1.5")])
def test_bad_ids_are_named(ids, culprit):
    with pytest.raises(RecordError, match=culprit):
        Records.build(np.eye(3), [0, 1, 0], ids=ids)


MASKED = np.ma.array([1, 2, 3], mask=[False, True, False])
ROWS = np.eye(3)


@pytest.mark.parametrize(
    ("given", "culprit"),
    [
        ({"features": ROWS.astype(np.longdouble)}, "cannot be kept to the bit"),
        ({"features": scipy.sparse.csr_matrix(ROWS.astype(np.longdouble))}, "cannot be kept to the bit"),
        ({"features": pd.DataFrame(ROWS.astype(np.longdouble))}, "cannot be kept to the bit"),
        ({"features": [[1, 2], [3], [4, 5]]}, "features cannot be made into an array: rows differ in length"),
        ({"features": np.ma.array(ROWS, mask=ROWS > 0)}, "features are a masked array"),
        ({"features": scipy.sparse.coo_array(np.arange(3.0))}, "one row per record, got shape (3,)"),
        ({"features": pd.DataFrame({"a": pd.array([True, None, False], dtype="boolean")})}, "record 1 hold NaN"),
        ({"labels": [0, "a", 1]}, "got 0 in row 1 among texts"),
        ({"labels": np.array([0, "a", 1], dtype=object)}, "all texts or all numbers, got 'a'"),
        ({"labels": np.array(["a", None, "b"], dtype=object)}, "all texts or all numbers, got None"),
        ({"labels": [{}, {}, {}]}, "all texts or all numbers, got {}"),
        ({"labels": [[1], [1, 2], [3]]}, "labels cannot be made into an array: rows differ in length"),
        ({"labels": MASKED}, "labels are a masked array"),
        ({"labels": [0.0, np.nan, 1.0]}, "record 1 has the label nan"),
        ({"labels": [[0], [1], [0]]}, "labels must be one per record (3), got shape (3, 1)"),
        ({"ids": MASKED}, "ids are a masked array"),
        ({"ids": [(1, 2), (1, 3), (1, 4)]}, "ids must be one per record (3), got shape (3, 2)"),
        ({"ids": [(1,), (1, 3), (1, 4)]}, "ids cannot be made into an array: rows differ in length"),
        ({"ids": [b"a", b"b", b"c"]}, "an int or a str, got b'a'"),
        ({"ids": [None, 1, 2]}, "an int or a str, got None"),
        ({"ids": [1.0, 2.0, 3.0]}, "an int or a str, got 1.0"),
        ({"ids": [True, 2, 3]}, "an int or a str, got True"),
        ({"ids": np.zeros(3, dtype="i4,i4")}, "an int or a str, got (0, 0)"),
        ({"ids": pd.array([1, None, 2], dtype="Int64")}, "an int or a str, got <NA>"),
        ({"subjects": [(1,), (2,), None]}, "subjects cannot be made into an array"),
        ({"weights": ["a", "b", "c"]}, "record 0 has the weight 'a'"),
        ({"weights": [1, 1j, 1]}, "record 0 has the weight (1+0j)"),
        ({"weights": [1, None, 1]}, "record 1 has the weight None"),
        ({"weights": np.arange("2020-01-01", "2020-01-04", dtype="M8[D]")}, "has the weight datetime.date"),
        ({"weights": [[1], [1, 2], [3]]}, "weights cannot be made into an array"),
        ({"classes": []}, "classes must be a list of labels"),
        ({"classes": [[0, 1]]}, "classes must be a list of labels, got shape (1, 2)"),
        ({"classes": [0, 1, None]}, "all texts or all numbers, got None"),
        ({"classes": [0, 1, np.nan]}, "NaN cannot be a class"),
        ({"classes": "01"}, "classes must be a list"),
    ],
)
def test_odd_columns_are_refused_in_one_line(given, culprit):
    with pytest.raises(InputError) as caught:
        Records.build(**{"features": ROWS, "labels": [0, 1, 0], **given})
    assert culprit in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "culprit"),
    [
        ({"features": [1j, 2, 3]}, "type complex128 do not fit the type float64"),
        ({"features": np.full(3, "2020-01-01", "M8[D]")}, "type datetime64[D] do not fit the type float64"),
        ({"features": [1, "a", 3]}, "row 1 has 'a', which is not a number"),
        ({"features": [1, {}, 3]}, "row 1 has {}, which is not a number"),
        ({"label": None}, "the label None, which is not a known class"),
        ({"label": {}}, "the label {}, which is not a known class"),
        ({"label": np.datetime64("2020")}, "which is not a known class"),
        ({"label": "x"}, "the label 'x', which is not a known class"),
        ({"weight": 1j}, "has the weight 1j"),
        ({"weight": pd.NA}, "has the weight <NA>"),
        ({"weight": np.zeros(1, dtype="i4,i4")[0]}, "has the weight (0, 0)"),
        ({"id": (1, 2)}, "an int or a str, got (1, 2)"),
        ({"id": "x" * 10_000, "label": 7}, "the label 7"),
    ],
)
def test_an_odd_record_is_refused_in_one_line(given, culprit):
    records = Records.build(ROWS, [0, 1, 0], weights=[1, 1, 1])
    with pytest.raises(InputError) as caught:
        records.apply([Add(**{"id": 9, "features": [1, 2, 3], "label": 0, **given})])
    assert culprit in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_column_of_complex_numbers_does_not_become_real():
    records = Records.build(pd.DataFrame({"a": [1.0, 2.0]}), [0, 1])
    with pytest.raises(RecordError, match="column 'a' does not fit the type float64"):
        records.apply([AddMany(ids=[9], features=pd.DataFrame({"a": [1j]}), labels=[0])])


def test_numbers_among_python_values_are_taken():
    records = Records.build(ROWS, [0, 1, 0])
    after, _ = records.apply([Add(id=9, features=np.array([1, 2.5, True], dtype=object), label=0)])
    assert contents(after)[-1] == (9, (1.0, 2.5, 1.0), 0)


def test_updates_follow_definition_2_1():
    records, change = make(3).apply([Delete(1), Add(id=9, features=[7, 8], label=1)])
    assert contents(records) == [(0, (0.0, 1.0), 0), (2, (4.0, 5.0), 0), (9, (7.0, 8.0), 1)]
    assert change.removed.tolist() == [1]
    assert list(change.added) == [3]


def test_equal_records_are_told_apart_by_id():
    records = Records.build(np.zeros((3, 2)), [1, 1, 0])
    assert contents(records.apply([Delete(0)])[0]) == [(1, (0.0, 0.0), 1), (2, (0.0, 0.0), 0)]


def test_apply_leaves_its_input_alone():
    records = make()
    before = contents(records)
    records.apply([Delete(0), AddMany(ids=[50, 51], features=np.ones((2, 2)), labels=[0, 1])])
    assert contents(records) == before


@pytest.mark.parametrize(
    ("batch", "error", "culprit"),
    [
        ([Delete(99)], UnknownRecordError, "99"),
        ([Delete(0), Delete(0)], UnknownRecordError, "0"),
        ([Add(id=3, features=[0, 0], label=0)], DuplicateRecordError, "3"),
        ([Add(id="n", features=[0, 0], label=0)] * 2, DuplicateRecordError, "'n'"),
        ([Add(id="n", features=[0, 0, 0], label=0)], RecordError, "'n'"),
        ([Add(id="n", features=[0, np.nan], label=0)], RecordError, "'n'"),
        ([Add(id="n", features=[0, np.inf], label=0)], RecordError, "'n'"),
        ([Add(id="n", features=[0, 0], label=7)], RecordError, "'n'.*7"),
        ([Add(id=1.5, features=[0, 0], label=0)], RecordError, "1.5"),
        ([DeleteSubject("nobody")], UnknownRecordError, "nobody"),
        ([AddMany(ids=["a", "b"], features=np.zeros((2, 2)), labels=[0])], InputError, "labels"),
        ([AddMany(ids=["a"], features=np.zeros((2, 2)), labels=[0, 0])], InputError, "ids"),
        (["delete everything"], InputError, "delete everything"),
    ],
)
def test_a_bad_update_names_the_record_and_applies_nothing(batch, error, culprit):
    records = make()
    with pytest.raises(error, match=culprit):
        records.apply([Delete(5), *batch])
    assert 5 in records
    assert len(records) == 6


def test_a_deleted_id_may_come_back_in_the_same_batch_and_leave_again():
    add = Add(id=1, features=[9, 9], label=1)
    assert contents(make(2).apply([Delete(1), add])[0]) == [(0, (0.0, 1.0), 0), (1, (9.0, 9.0), 1)]
    assert contents(make(2).apply([Delete(1), add, Delete(1)])[0]) == [(0, (0.0, 1.0), 0)]
    assert contents(make(2).apply([Delete(1), add, Delete(1), add])[0])[1] == (1, (9.0, 9.0), 1)


def test_subjects_group_records():
    records = make(subjects=["ann", "bob", "ann", None, "bob", "ann"])
    records, _ = records.apply([Delete(2), Add(id="x", features=[0, 0], label=0, subject="ann")])
    assert [records.id_of(slot) for slot in records.slots_of_subject("ann")] == [0, 5, "x"]
    gone, change = records.apply([DeleteSubject("ann")])
    assert gone.ids() == [1, 3, 4]
    assert len(change.removed) == 3
    with pytest.raises(UnknownRecordError, match="ann"):
        gone.apply([DeleteSubject("ann")])


def test_a_subject_added_and_deleted_in_one_batch_leaves_nothing():
    batch = [Add(id="x", features=[0, 0], label=0, subject="eve"), DeleteSubject("eve")]
    assert make().apply(batch)[0].ids() == make().ids()


def test_whether_records_have_weights_is_fixed_when_the_dataset_is_made():
    """So that a weighted record that came and went leaves nothing behind."""
    weighted, _ = make(2, weights=[1.0, 1.0]).apply([Add(id=7, features=[1, 1], label=0, weight=2.5)])
    assert weighted.gather(weighted.live_slots())[2].tolist() == [1.0, 1.0, 2.5]
    weighted, _ = weighted.apply([Add(id=8, features=[1, 1], label=0), Delete(7)])
    assert weighted.gather(weighted.live_slots())[2].tolist() == [1.0, 1.0, 1.0]
    plain = make(2)
    assert plain.gather(np.array([0, 1]))[2] is None
    with pytest.raises(RecordError, match="record 7 has a weight, and this dataset was made without weights"):
        plain.apply([Add(id=7, features=[1, 1], label=0, weight=2.5)])
    same, _ = plain.apply([AddMany(ids=[7], features=[[1, 1]], labels=[0], weights=[1.0])])
    assert same.gather(same.live_slots())[2] is None


def test_the_form_of_rows_says_nothing_about_how_they_were_put_together():
    rows = np.arange(6.0).reshape(3, 2)
    for form in (np.asfortranarray(rows), rows.astype(">f8"), rows.astype(">i8"), rows.astype(int)):
        found = Records.build(form, [0, 1, 0]).blocks[0].features
        assert found.dtype == np.float64
        assert found.dtype.isnative
        assert found.flags.c_contiguous
    doubled = scipy.sparse.csr_matrix(([1.0, 0.0, 2.0, 1.0], [1, 0, 0, 1], [0, 4]), shape=(1, 2))
    found = Records.build(doubled, [0], classes=[0, 1]).blocks[0].features
    assert (found.indices.tolist(), found.data.tolist()) == ([0, 1], [2.0, 2.0])
    assert doubled.nnz == 4  # the caller's own is left as it is
    gaps = pd.DataFrame({"town": pd.Series(["a", None, np.nan, pd.NA], dtype=object)})
    assert [type(value) for value in Records.build(gaps, [0, 1, 0, 1]).blocks[0].features["town"]] == [str] + [
        float
    ] * 3


def test_missing_values_are_refused_unless_allowed():
    X = np.array([[0.0, 1.0], [np.nan, 1.0]])
    with pytest.raises(RecordError, match="1"):
        Records.build(X, [0, 1])
    assert len(Records.build(X, [0, 1], allow_missing=True)) == 2


def test_data_frames_keep_their_columns_and_types():
    frame = pd.DataFrame({"age": [1, 2, 3], "town": ["a", "b", "a"]})
    records = Records.build(frame, [0, 1, 0])
    records, _ = records.apply([Add(id=9, features={"age": 4, "town": "c"}, label=1), Delete(0)])
    X, _, _ = records.gather(records.live_slots())
    assert X["age"].tolist() == [2, 3, 4]
    assert X["age"].dtype == np.float64  # a gap, or 3.5, may come later
    assert X["town"].tolist() == ["b", "a", "c"]
    with pytest.raises(RecordError, match="8"):
        records.apply([Add(id=8, features={"age": 4, "city": "c"}, label=1)])


def test_sparse_rows():
    records = Records.build(scipy.sparse.eye_array(4, format="coo"), [0, 1, 0, 1])
    records, _ = records.apply([Delete(1), Add(id=9, features=scipy.sparse.csr_array([[0, 0, 0, 5.0]]), label=1)])
    X, _, _ = records.gather(records.live_slots())
    assert X.toarray().tolist() == [[1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [0, 0, 0, 5]]


def test_added_rows_take_the_number_type_of_the_dataset():
    whole = Records.build(np.arange(6, dtype=np.uint8).reshape(3, 2), [0, 1, 0])
    records, _ = whole.apply([Delete(0), Delete(1), Delete(2), Add(id=9, features=[7.0, 255], label=0)])
    assert records.gather(records.live_slots())[0].dtype == np.uint8
    for features in ([0.5, 1], [256, 0], [-1, 0]):
        with pytest.raises(RecordError, match="'n'"):
            whole.apply([Add(id="n", features=features, label=0)])
    records, _ = make(1).apply([Delete(0), Add(id=9, features=[3, 4], label=0)])
    assert records.gather(records.live_slots())[0].dtype == np.float64
    frame = Records.build(pd.DataFrame({"age": np.array([1, 2], dtype=np.int16), "town": ["a", "b"]}), [0, 1])
    with pytest.raises(RecordError, match=r"'n'.*age"):
        frame.apply([Add(id="n", features={"age": 1.5, "town": "c"}, label=0)])
    usual = Records.build(pd.DataFrame({"age": [1, 2], "town": ["a", "b"]}), [0, 1])
    usual, _ = usual.apply([Add(id="n", features={"age": 1.5, "town": "c"}, label=0)])
    assert usual.gather(usual.live_slots())[0]["age"].tolist() == [1.0, 2.0, 1.5]


def test_texts():
    records = Records.build(["red fox", "blue whale"], [0, 1])
    records, _ = records.apply([Add(id=9, features="green frog", label=1)])
    assert records.gather(records.live_slots())[0].tolist() == ["red fox", "blue whale", "green frog"]


def test_compaction_changes_numbers_only():
    records, _ = make(subjects=list("abcabc")).apply([Delete(1), Delete(4), Add(id="z", features=[3, 3], label=1)])
    compact = records.compacted()
    assert contents(compact) == contents(records)
    assert compact.num_slots == len(compact) == 5
    assert compact.slots_of_subject("c") == (1, 3)
    assert contents(pickle.loads(pickle.dumps(compact))) == contents(records)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_any_sequence_of_batches_equals_a_plain_dictionary(data):
    """D ∘ U against an ordered dictionary, through block merges and index folds."""
    records = make(4, ids=[0, 1, 2, 3])
    model = {i: (tuple(x), c) for i, x, c in contents(records)}
    for _ in range(data.draw(st.integers(1, 12))):
        batch = []
        for _ in range(data.draw(st.integers(1, 30))):
            i = data.draw(st.integers(0, 60))
            if i in model:
                del model[i]
                batch.append(Delete(i))
            else:
                model[i] = ((float(i), -1.0), i % 2)
                batch.append(Add(id=i, features=[i, -1], label=i % 2))
        records, _ = records.apply(batch)
        if data.draw(st.booleans()):
            records = records.compacted()
        assert contents(records) == [(i, x, c) for i, (x, c) in model.items()]
        assert len(records) == len(model)
        assert all((i in records) == (i in model) for i in range(61))


def test_the_callers_arrays_are_copied():
    X, more = np.zeros((2, 2)), np.ones((1, 2))
    records, _ = Records.build(X, [0, 1]).apply([AddMany(ids=["n"], features=more, labels=[0])])
    X[:], more[:] = 7, 7
    assert records.gather(records.live_slots())[0].tolist() == [[0, 0], [0, 0], [1, 1]]


def test_ids_are_what_they_are_and_nothing_that_equals_them():
    records = Records.build(np.zeros((2, 2)), [0, 1], ids=[2**63, 1], subjects=[1, None])
    assert records.ids() == [2**63, 1]
    for wrong in (True, 1.0, None, [1]):
        for update in (Delete(wrong), DeleteSubject(wrong)):
            with pytest.raises(RecordError, match="int or a str"):
                records.apply([update])
    for column in ({"ids": [0, True]}, {"subjects": [0, True]}, {"subjects": [2.5, 1]}):
        with pytest.raises(RecordError, match="int or a str"):
            Records.build(np.zeros((2, 2)), [0, 1], **column)
    with pytest.raises(InputError, match="list of updates"):
        records.apply(Delete(1))


def test_a_record_and_its_subject_may_be_deleted_together():
    records = make(subjects=["ann", None, None, None, None, None])
    assert len(records.apply([Delete(0), DeleteSubject("ann")])[0]) == 5


def test_an_empty_addition_is_fine():
    records, _ = make().apply([AddMany(ids=[], features=np.empty((0, 2)), labels=[])])
    assert len(records) == 6


def test_values_that_do_not_survive_the_datasets_type_are_refused():
    small = Records.build(np.zeros((2, 2), dtype=np.float32), [0, 1])
    for features in ([1e300, 0], [1j, 0]):
        with pytest.raises(RecordError, match="'n'"):
            small.apply([Add(id="n", features=features, label=0)])
    town = Records.build(pd.DataFrame({"town": pd.Categorical(["a", "b"])}), [0, 1])
    town, _ = town.apply([Add(id="n", features={"town": "c"}, label=0)])  # the categories of a Pipeline are its own
    X, _, _ = town.gather(town.live_slots())
    assert X["town"].tolist() == ["a", "b", "c"]
    assert X["town"].dtype == object


def test_a_column_that_occurs_twice_is_named():
    frame = pd.DataFrame([[1.0, 2.0]], columns=["age", "age"])
    with pytest.raises(InputError, match="'age' occurs twice"):
        Records.build(frame, [0])


@pytest.mark.parametrize(
    "ids",
    [
        None,
        [30, -7, 2**62, 0, 11, 5],
        ["a", "b", "c", "d", "e", "7"],
        ["a", 7, "c", -1, 2**70, "7"],
    ],
    ids=["positions", "numbers", "texts", "both"],
)
@pytest.mark.parametrize("added", [[], [100, 0, "new", 2**63]], ids=["", "more"])
@pytest.mark.parametrize("restored", [False, True])
def test_many_are_found_as_one_is(ids, added, restored):
    records = make(6, ids=ids)
    gone = records.ids()[:2]
    records, _ = records.apply([Delete(record) for record in gone])
    fresh = [record for record in added if record not in records]
    if fresh:
        records, _ = records.apply([AddMany(ids=fresh, features=np.eye(len(fresh), 2), labels=[0] * len(fresh))])
    if restored:
        block = records.extract(np.arange(records.num_slots))
        dead = sorted(records.index.gone)
        records = Records.restored(
            block, dead=dead, classes=records.classes, allow_missing=False, layout=("array", (2,))
        )
    probes = [*gone, *records.ids(), *added, "nobody", 3, -3, 2**63, -(2**63) - 1, "7", 7, True, False]
    for chosen in (probes, [p for p in probes if type(p) is int], records.ids(), []):
        found = records.index.find_all(chosen)
        assert found.dtype == np.int64
        assert [None if slot == -1 else slot for slot in found.tolist()] == [records.index.find(p) for p in chosen]


@pytest.mark.parametrize(
    ("doomed", "said"),
    [
        ([1, 99, 2], "no record has the id 99"),
        ([1, 2, 1], "the batch deletes the id 1 twice"),
        ([1, True], "must be an int or a str, got True"),
        ([1, [2]], "must be an int or a str"),
        ([1, 2**80], "no record has the id"),
        ([1, "2"], "no record has the id '2'"),
    ],
)
@pytest.mark.parametrize("before", [[], [Add(id=50, features=[0, 0], label=0)], [Delete(3)]], ids=["", "add", "delete"])
def test_what_is_wrong_with_one_of_many_deletions_is_said(doomed, said, before):
    records = make()
    with pytest.raises(RecordError, match=re.escape(said)):
        records.apply([*before, *map(Delete, doomed)])
    with pytest.raises(UnknownRecordError, match="deletes the id 3 twice"):
        records.apply([Delete(3), Add(id=3, features=[0, 0], label=0), Delete(4), Delete(3), Delete(3)])
    assert records.apply([*before, Delete(1), Delete(2)])[0].ids() == [
        record for record in records.apply(before)[0].ids() if record not in (1, 2)
    ]


@pytest.mark.parametrize("ids", [[1, 3], (3, 1), np.array([1, 3]), []], ids=repr)
def test_deleting_many_is_deleting_each(ids):
    more = Add(id=1, features=[7, 8], label=1)
    for before, after in (([], []), ([Delete(5)], [more]), ([DeleteSubject("s")], [Delete(4)])):
        records = make(subjects=["s", None, None, None, None, None])
        one, other = (
            [*before, *deletion, *(after if len(ids) else [])] for deletion in (map(Delete, ids), [DeleteMany(ids)])
        )
        assert contents(records.apply(one)[0]) == contents(records.apply(other)[0])
    with pytest.raises(UnknownRecordError, match="no record has the id 77"):
        make().apply([DeleteMany([*ids, 77])])
    with pytest.raises(InputError, match="a batch is a list of updates"):
        make().apply(DeleteMany([1]))


@pytest.mark.parametrize("ids", ["17", b"17", 17, None, np.array("17"), np.array([["17"]])])
def test_anything_but_a_list_of_ids_is_refused(ids: object) -> None:
    """A text above all: taken as a list, "17" would name the records "1" and "7"."""
    with pytest.raises(InputError, match="ids must be a list, also of a single one"):
        DeleteMany(ids)  # type: ignore[arg-type]


@pytest.mark.parametrize("ids", [["1", "7"], ("1", "7"), np.array(["1", "7"]), pd.Series(["1", "7"]), {"1": 0, "7": 0}])
def test_every_kind_of_list_is_one(ids: object) -> None:
    assert DeleteMany(ids).ids == ["1", "7"]  # type: ignore[arg-type]
    assert DeleteMany(iter(["1", "7"])).ids == ["1", "7"]


def crowd(count: int, subjects: list[str]) -> AddMany:
    return AddMany(ids=range(100, 100 + count), features=np.zeros((count, 2)), labels=[0] * count, subjects=subjects)


def one_big_household(count: int) -> list[object]:
    return [crowd(count, ["h"] * count), DeleteSubject("h")]


def many_small_ones(count: int) -> list[object]:
    households = [f"h{number}" for number in range(count)]
    return [crowd(count, households), *map(DeleteSubject, households)]


def many_that_stay(count: int) -> list[object]:
    return [crowd(count, ["h"] * count)]


@pytest.mark.parametrize("asked", [one_big_household, many_small_ones, many_that_stay])
def test_subjects_take_time_in_proportion(asked) -> None:
    """Eight times as many records take about eight times as long; if the time were quadratic it would be 64 times."""
    records = Records.build(np.zeros((4, 2)), [0, 1, 0, 1])

    def seconds(count: int) -> float:
        batch, times = asked(count), []
        for _ in range(3):
            begun = time.thread_time()
            records.apply(batch)
            times.append(time.thread_time() - begun)
        return min(times)

    assert seconds(24_000) < 24 * seconds(3_000)


def test_a_record_that_returns_under_another_subject_is_not_deleted_with_the_first() -> None:
    records = Records.build(np.zeros((4, 2)), [0, 1, 0, 1])

    def add(subject: str) -> Add:
        return Add(id=9, features=[1.0, 2.0], label=1, subject=subject)

    moved = [add("a"), Delete(9), add("b")]
    assert 9 in records.apply([*moved, Delete(0)])[0]
    with pytest.raises(UnknownRecordError, match="'a'"):
        records.apply([*moved, DeleteSubject("a")])
    assert 9 not in records.apply([*moved, DeleteSubject("b")])[0]
    assert 9 not in records.apply([add("a"), Delete(9), add("a"), DeleteSubject("a")])[0]
    with pytest.raises(UnknownRecordError, match="'a'"):
        records.apply([add("a"), DeleteSubject("a"), DeleteSubject("a")])
    assert 9 in records.apply([add("a"), DeleteSubject("a"), add("a")])[0]


def test_a_pickled_dataset_holds_no_trace_of_deleted_records():
    X = np.arange(20.0).reshape(10, 2)
    X[3] = 1234.5678, 8765.4321
    ids, subjects = [f"person-{number}" for number in range(10)], [f"house-{number}" for number in range(10)]
    records = Records.build(X, np.arange(10) % 2, ids=ids, subjects=subjects)
    for trace in (X[3].tobytes(), b"person-3", b"house-3"):
        assert trace in pickle.dumps(records)
    after, _ = records.apply([Delete("person-3")])
    dumped = pickle.dumps(after)
    for trace in (X[3].tobytes(), b"person-3", b"house-3"):
        assert trace not in dumped
    back = pickle.loads(dumped)
    assert back.ids() == after.ids()
    for found, expected in zip(back.gather(back.live_slots()), after.gather(after.live_slots()), strict=True):
        assert np.array_equal(found, expected)


def test_lists_keep_python_values_where_the_dataset_has_them():
    records = Records.build([[1, "a", 2.5], [2, "b", 1.0]], [0, 1])
    records, _ = records.apply(
        [
            Add(id=7, features=[3, "c", 4], label=0),
            AddMany(ids=[8, 9], features=[[4, "d", True], [np.int64(5), np.str_("e"), np.float64(0.5)]], labels=[0, 1]),
        ]
    )
    numbers = Records.build(np.array([[1], ["a"]], dtype=object), [0, 1]).apply([Add(id=2, features=[6], label=0)])[0]
    found = records.gather(records.live_slots())[0].tolist() + numbers.gather(np.array([2]))[0].tolist()
    assert repr(found) == repr([[1, "a", 2.5], [2, "b", 1.0], [3, "c", 4], [4, "d", True], [5, "e", 0.5], [6]])


def test_a_mapping_may_name_the_columns_in_any_order():
    frame = pd.DataFrame({"age": [1.0, 2.0], "town": ["x", "y"]})
    records = Records.build(frame, [0, 1])
    records, _ = records.apply([Add(id=2, features={"town": "z", "age": 3}, label=0)])
    assert records.gather(np.array([2]))[0].iloc[0].tolist() == [3.0, "z"]
    with pytest.raises(RecordError, match="record 3 has features of the form"):
        records.apply([Add(id=3, features={"town": "z", "years": 3}, label=0)])


def test_time_is_counted_in_microseconds_and_never_cut_short():
    days = pd.Series(["2020-01-01", "2021-05-01 10:00:00.5"]).astype("datetime64[ns]")
    frame = pd.DataFrame({"day": days, "zone": days.dt.tz_localize("Europe/Paris"), "for": days - days[0]})
    records = Records.build(frame, [0, 1])
    assert {*map(str, records.blocks[0].features.dtypes)} == {
        "datetime64[us]",
        "datetime64[us, Europe/Paris]",
        "timedelta64[us]",
    }
    records, _ = records.apply([AddMany(ids=[2], features=frame[:1], labels=[0]), Delete(0)])
    assert records.gather(np.array([2]))[0]["zone"][0] == frame["zone"][0]
    finer = pd.DataFrame({**frame[:1], "day": frame["day"][:1] + pd.Timedelta(1, "ns")})
    with pytest.raises(RecordError, match="record 3 cannot be used: column 'day' does not fit the type datetime64"):
        records.apply([AddMany(ids=[3], features=finer, labels=[0])])
    with pytest.raises(InputError, match="column 'day'"):
        Records.build(finer, [0])
    whole_days = Records.build(np.array([["2020-01-01"], ["2020-01-02"]], dtype="datetime64[D]"), [0, 1])
    with pytest.raises(RecordError, match="record 2 cannot be used"):
        whole_days.apply([Add(id=2, features=np.array([["2020-01-01T05"]], dtype="datetime64[h]"), label=0)])


def test_a_person_is_the_subject_or_else_the_id_and_may_have_no_records():
    records = Records.build(
        np.zeros((5, 2)), [0, 1, 0, 1, 0], ids=["a", "b", "c", "d", "ann"], subjects=["ann", None, "b", None, "bob"]
    )
    assert records.apply([DeletePerson("zoe")])[0].ids() == records.ids()
    assert records.apply([DeletePerson("ann")])[0].ids() == ["b", "c", "d", "ann"]  # the record "ann" is bob's
    assert records.apply([DeletePerson("b")])[0].ids() == ["a", "d", "ann"]
    assert records.apply([DeletePerson("d"), DeletePerson("d")])[0].ids() == ["a", "b", "c", "ann"]
    added = Add(id="e", features=[0, 0], label=1, subject="zoe")
    assert records.apply([added, DeletePerson("zoe")])[0].ids() == records.ids()
    own = Add(id="zoe", features=[0, 0], label=1)
    assert records.apply([own, DeletePerson("zoe")])[0].ids() == records.ids()
    with pytest.raises(InputError, match="person"):
        records.apply([DeletePerson(1.5)])
