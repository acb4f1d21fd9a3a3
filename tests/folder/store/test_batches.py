"""A batch on its way through the disk asks for the same as before."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from expunge.core.blocks import object_column
from expunge.core.records import Add, AddMany, Delete, DeleteMany, DeleteSubject, Records, Update
from expunge.folder.store.requests import Batch, lasting_names, pack, unpack

LABELS = np.array(["no", "yes", "no", "yes"])
TABLES: dict[str, Any] = {
    "array": np.arange(8, dtype=np.float32).reshape(4, 2),
    "frame": pd.DataFrame({"a": ["x", "y", "x", "z"], "b": [1.5, 2, 3, 4], "c": pd.Categorical(["u", "v", "u", "u"])}),
    "sparse": scipy.sparse.csr_matrix(np.eye(4)),
    "texts": object_column(["one", "two", "three", "four"]),
}


def records_of(kind: str) -> Records:
    return Records.build(
        TABLES[kind],
        LABELS,
        ids=[10, 11, "twelve", 13],
        subjects=["s", None, "s", "t"],
        weights=[1.0] * 4,
        classes=["no", "yes"],
    )


def some(kind: str, rows: list[int]) -> Any:
    table = TABLES[kind]
    return table.iloc[rows] if kind == "frame" else table[rows]


def through_the_disk(batch: Batch) -> Batch:
    block = None if batch.block is None else unpack(pack(batch.block))
    return Batch(json.loads(json.dumps(batch.content)), block)


def content_of(records: Records) -> list[Any]:
    """Everything about the live records, in order."""
    X, y, weights = records.gather(records.live_slots())
    rows = X.to_numpy().tolist() if hasattr(X, "to_numpy") else (X.toarray() if hasattr(X, "toarray") else X).tolist()
    return [records.ids(), y.tolist(), rows, None if weights is None else weights.tolist()]


def updates_of(kind: str) -> list[Update]:
    return [
        Delete(10),
        Delete("twelve"),
        Add(id="new", features="one" if kind == "texts" else some(kind, [0]), label="yes", subject="s", weight=2.0),
        DeleteSubject("t"),
        AddMany(ids=[20, 10], features=some(kind, [1, 2]), labels=["no", "no"], subjects=[None, "t"]),
        Delete(20),
    ]


@pytest.mark.parametrize("kind", TABLES)
def test_a_batch_does_the_same_after_the_disk(kind: str) -> None:
    records = records_of(kind)
    asked = Batch.dump(updates_of(kind), records)
    direct, change = records.apply(updates_of(kind))
    later, same_change = records.apply(through_the_disk(asked).updates(records.classes))
    assert content_of(direct) == content_of(later)
    assert change.removed.tolist() == same_change.removed.tolist()
    assert change.added == same_change.added
    for subject in ("s", "t"):
        assert direct.slots_of_subject(subject) == later.slots_of_subject(subject)


def test_what_a_batch_is_about() -> None:
    asked = Batch.dump(updates_of("array"), records_of("array"))
    assert asked.kind == "mixed"
    assert asked.corrected == [("record", 10)]
    assert asked.num_added == 2
    assert asked.num_deleted == 3  # "twelve", 13 as the record of t, 20
    assert asked.deleted == [("record", 10), ("record", "twelve"), ("record", 13), ("record", 20), ("subject", "t")]
    assert asked.added == [
        *(("record", record) for record in ("new", 20, 10)),
        *(("subject", subject) for subject in ("s", "t")),
    ]
    assert asked.returning == [("record", "new"), ("subject", "s")]  # 10, 20 and t are corrected by the batch itself
    assert len(asked.records) == asked.num_added + asked.num_deleted + asked.num_corrected


def test_kinds() -> None:
    records = records_of("array")
    assert Batch.dump([Delete(10)], records).kind == "deletion"
    assert Batch.dump([DeleteSubject("s")], records).kind == "deletion"
    assert Batch.dump([Add(id=1, features=[0, 1], label="no")], records).kind == "addition"
    change = [Delete(10), Add(id=10, features=[0, 1], label="no")]
    assert Batch.dump(change, records).kind == "correction"
    assert Batch.dump([*change, Delete(10)], records).kind == "mixed"
    came_and_went = Batch.dump([Add(id=1, features=[0, 1], label="no"), Delete(1)], records)
    assert (came_and_went.num_added, came_and_went.num_deleted, came_and_went.num_corrected) == (1, 1, 0)


def test_a_record_named_twice_is_counted_once() -> None:
    records = records_of("array")
    twice = Batch.dump([Delete(10), DeleteSubject("s"), DeleteSubject("s")], records)
    removed = records.apply([Delete(10), DeleteSubject("s"), DeleteSubject("s")])[1].removed
    assert twice.num_deleted == len(twice.records) == len(removed) == 2


def test_numpy_names_become_plain() -> None:
    records = records_of("array")
    asked = Batch.dump([Delete(np.int64(10)), DeleteSubject(np.str_("s"))], records)  # type: ignore[arg-type]
    assert [type(asked.content[0]["ids"][0]), type(asked.content[1]["subject"])] == [int, str]
    json.dumps(asked.content)


def coming(record: Any, subject: Any) -> Add:
    return Add(id=record, features=TABLES["array"][0], label="no", subject=subject)


@pytest.mark.parametrize(
    ("updates", "held"),
    [
        ([DeleteSubject("s")], [10, "twelve"]),
        ([coming(20, "s"), DeleteSubject("s")], [10, "twelve", 20]),
        ([coming(20, "t"), DeleteSubject("s")], [10, "twelve"]),
        ([DeleteSubject("s"), coming(20, "s")], [10, "twelve"]),
        ([coming(20, "s"), Delete(20), coming(20, "t"), DeleteSubject("s")], [10, "twelve"]),
        ([coming(20, "s"), coming(21, None), coming(22, "s"), Delete(20), DeleteSubject("s")], [10, "twelve", 22]),
    ],
)
def test_what_a_subject_holds_when_its_turn_comes(updates: list[Update], held: list[Any]) -> None:
    batch = through_the_disk(Batch.dump(updates, records_of("array")))
    assert [part["holds"] for part in batch.content if "subject" in part] == [held]


def test_a_subject_that_goes_twice_holds_what_came_between() -> None:
    updates = [coming(20, "s"), DeleteSubject("s"), coming(21, "s"), DeleteSubject("s")]
    batch = Batch.dump(updates, records_of("array"))
    assert batch.deleted == [*(("record", n) for n in (10, "twelve", 20, 21)), *[("subject", "s")] * 2]
    assert (batch.num_deleted, batch.num_added) == (4, 2)


def test_what_a_round_takes_out_is_what_was_there() -> None:
    before = records_of("array")
    addition = Batch.dump([coming(20, "s")], before)
    middle, _ = before.apply(addition.updates(before.classes))
    deletion = Batch.dump([DeleteSubject("s")], middle)
    after, _ = before.apply([DeleteSubject("s")])
    assert ("record", 20) in deletion.deleted  # as it was accepted
    assert lasting_names([deletion], before, after)[0] == [[("record", 10), ("record", "twelve"), ("subject", "s")]]
    assert ("record", 20) in lasting_names([addition, deletion], before, after)[0][1]


def test_many_deletions_in_one_update_are_the_same_request_as_one_by_one() -> None:
    records = records_of("array")
    ways: list[list[Update]] = [
        [Delete(10), Delete("twelve"), DeleteSubject("t")],
        [DeleteMany([10, "twelve"]), DeleteSubject("t"), DeleteMany([])],
        [Delete(10), DeleteMany(("twelve",)), DeleteSubject("t")],
    ]
    contents = [Batch.dump(updates, records).content for updates in ways]
    assert contents[0] == contents[1] == contents[2]
    assert contents[0][0] == {"ids": [10, "twelve"]}
    assert Batch.dump([DeleteMany(np.array([10, 11]))], records).content == [{"ids": [10, 11]}]
