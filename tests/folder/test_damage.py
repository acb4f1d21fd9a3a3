"""Damaged records: every changed bit and every file of another moment is noticed, and nothing is deleted for it."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

import expunge
from expunge.core.errors import ExpungeError, FormatError
from expunge.folder import disclose
from expunge.folder.store import Store
from expunge.training.learners import LookupTableLearner

SIZE = 12
GONE = [2, 3, 7]
NUMBERS = np.random.default_rng(0).normal(size=(SIZE, 3))
TABLES: dict[str, Any] = {
    "array": NUMBERS,
    "frame": pd.DataFrame(
        {"x": NUMBERS[:, 0], "town": ["Rome", "Bern", None] * 4, "n": np.arange(SIZE, dtype=np.int8)}
    ),
    "sparse": scipy.sparse.csr_matrix(NUMBERS * (NUMBERS > 0)),
    "texts": np.array([f"text {number} Zoë" for number in range(SIZE)], dtype=object),
}
STRIDE = 29  # of the bits that are flipped; odd, so that every bit of a byte is among them


class Numbered(LookupTableLearner):
    """Learns how many rows there are: any table will do."""

    def fit(self, X: Any, y: Any, seed: int, *, weights: Any = None) -> Any:
        return super().fit(np.arange(float(X.shape[0]))[:, np.newaxis], y, seed, weights=weights)


TRUST = (f"{__name__}:Numbered",)


def make(folder: Path, kind: str, **options: Any) -> Any:
    return expunge.create(
        folder,
        Numbered(),
        TABLES[kind],
        np.arange(SIZE) % 2,
        ids=[f"p{number}" for number in range(SIZE)],
        subjects=[f"s{number // 2}" for number in range(SIZE)],
        weights=np.arange(SIZE) + 1.0,
        **{"n_shards": 2, "trust": TRUST, **options},
    )


@pytest.fixture(params=TABLES)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def sound(folder: Path, kind: str) -> Path:
    """A folder of records that were appended and erased too, closed."""
    with make(folder, kind) as deployment:
        table = TABLES[kind]
        rows = table.iloc[:2] if kind == "frame" else table[:2]
        deployment.add(rows, [0, 1], ["new 0", "new 1"], subjects=["s0", None])
        deployment.delete([f"p{number}" for number in GONE])
    return folder


def problems(folder: Path) -> list[str]:
    store = Store.open(folder, read_only=True)
    try:
        return list(store.verify_records())
    finally:
        store.close()


def look(folder: Path) -> None:
    """Open the folder and use all records."""
    with expunge.open(folder, trust=TRUST) as deployment:
        deployment.records.gather(deployment.records.live_slots())


def files(folder: Path) -> list[Path]:
    return sorted(path for path in (folder / "records").rglob("*") if path.is_file())


def image(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in files(folder)}


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_a_sound_folder_has_no_problems(sound: Path) -> None:
    assert problems(sound) == []
    look(sound)
    disclose(sound)


def test_every_flipped_bit_is_noticed(sound: Path) -> None:
    """Of erased records too, and of what lies between the rows of a heap."""
    for path in files(sound):
        data = path.read_bytes()
        assert data
        for bit in range(0, 8 * len(data), STRIDE):
            path.write_bytes(flipped(data, bit))
            found = problems(sound)
            assert found, f"bit {bit} of {path.name}"
            assert path.name in found[0] or "checksums" in path.name, (path.name, found[0])
            assert "\n" not in found[0]
        path.write_bytes(data)


def test_damage_in_a_record_is_one_line_when_it_is_used_and_changes_nothing(sound: Path) -> None:
    """What was erased is looked at in full by a check of the whole folder only; here every live record is."""
    with closing(sqlite3.connect(sound / "state.db")) as database:
        rows = database.execute("SELECT slots FROM dead").fetchall()
        gone = {slot for (raw,) in rows for slot in np.frombuffer(raw, dtype="<i8").tolist()}
    store = Store.open(sound, read_only=True)
    widths = {f"{column.name}.slab": column.width for column in store.form.columns} | {"checksums.slab": 16}
    store.close()
    for path in files(sound):
        data = path.read_bytes()
        for bit in range(0, 8 * len(data), 8 * 23 + 1):
            if path.suffix == ".slab" and bit // 8 // widths[path.name] in gone:
                continue
            if path.suffix == ".heap" and not data[bit // 8]:
                continue
            path.write_bytes(flipped(data, bit))
            before = image(sound)
            with pytest.raises(FormatError) as refused:
                look(sound)
            assert "\n" not in str(refused.value)
            assert "damaged" in str(refused.value) or "shorter than its rows" in str(refused.value)
            assert image(sound) == before
            with pytest.raises(ExpungeError):
                disclose(sound)
        path.write_bytes(data)
    look(sound)


def test_files_of_another_length_are_noticed(sound: Path) -> None:
    for path in files(sound):
        data = path.read_bytes()
        path.write_bytes(data[:-1])
        assert problems(sound), path.name
        before = image(sound)
        with pytest.raises(FormatError):
            look(sound)
        assert image(sound) == before
        path.write_bytes(data)
    look(sound)


def test_every_file_of_an_earlier_moment_is_noticed(folder: Path, kind: str) -> None:
    """Put back from a backup: the records that were deleted since would be there again."""
    make(folder, kind).close()
    backup = image(folder)
    with expunge.open(folder, trust=TRUST) as deployment:
        deployment.delete(["p1", "p4"])
    now = image(folder)
    for path, data in backup.items():
        assert data != now[path]
        path.write_bytes(data)
        assert problems(folder), path.name
        path.write_bytes(now[path])
    for path, data in backup.items():
        path.write_bytes(data)
    assert problems(folder)
    with pytest.raises(FormatError, match=r"of the same moment|which was erased|not what was written"):
        look(folder)
    assert image(folder) == backup


@pytest.mark.parametrize("act", ["add", "delete", "rekey"])
def test_a_database_of_an_earlier_moment_is_noticed_and_removes_nothing(folder: Path, act: str) -> None:
    """In a partition, where every addition replaces a model. One that is in no shard leaves nothing to notice it by."""
    make(folder, "array").close()
    early = (folder / "state.db").read_bytes()
    with expunge.open(folder, trust=TRUST) as deployment:
        match act:
            case "add":
                deployment.add(NUMBERS[:1], [1], ["new"], subjects=["s9"])
            case "delete":
                deployment.delete(["p5"])
            case "rekey":
                deployment.rekey()
    (folder / "state.db").write_bytes(early)
    before = {
        path: path.read_bytes() for path in folder.rglob("*") if path.parent.name in ("models", "000001", "000002")
    }
    with pytest.raises(
        FormatError, match=r"state\.db is of another moment|of the same moment as state\.db|is shorter|missing"
    ):
        expunge.open(folder, trust=TRUST)
    assert {path: path.read_bytes() for path in before} == before


def test_rows_and_columns_that_were_exchanged_are_noticed(folder: Path) -> None:
    expunge.create(
        folder,
        Numbered(),
        pd.DataFrame({"a": NUMBERS[:, 0], "b": NUMBERS[:, 1]}),
        np.arange(SIZE) % 2,
        n_shards=2,
        promise="unguarded",
        trust=TRUST,
    ).close()
    one, two = (folder / "records" / "000001" / f"feature-{place}.slab" for place in (0, 1))
    data = one.read_bytes(), two.read_bytes()
    one.write_bytes(data[1])
    two.write_bytes(data[0])
    assert len(problems(folder)) == SIZE
    two.write_bytes(data[1])
    one.write_bytes(data[0][8:16] + data[0][:8] + data[0][16:])
    assert len(problems(folder)) == 2
    with pytest.raises(FormatError, match=r"the record in row 0 is not what was written: feature-0\.slab"):
        look(folder)


DATABASE: dict[str, Callable[[sqlite3.Connection], Any]] = {
    "another record is named as deleted": lambda database: database.execute(
        "UPDATE dead SET slots = zeroblob(8), erased = 0"
    ),
    "no record is named as deleted": lambda database: database.execute("DELETE FROM dead"),
    "a record that never was": lambda database: database.execute("UPDATE dead SET slots = x'e703000000000000'"),
    "fewer records": lambda database: database.execute("UPDATE position SET num_slots = num_slots - 1"),
    "more records": lambda database: database.execute("UPDATE position SET num_slots = num_slots + 1"),
    "fewer models": lambda database: database.execute("DELETE FROM shards WHERE shard = 1"),
    "another model": lambda database: database.execute("UPDATE shards SET file = 'nothing' WHERE shard = 1"),
    "another total": lambda database: database.execute("UPDATE position SET total = '1'"),
}


@pytest.mark.parametrize("what", DATABASE)
def test_a_damaged_row_of_the_database_deletes_nothing(folder: Path, what: str) -> None:
    with make(folder, "frame") as deployment:
        deployment.delete(["p5"])
    with closing(sqlite3.connect(folder / "state.db")) as database, database:
        DATABASE[what](database)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.parent.name in ("models", "000001")}
    with pytest.raises(FormatError):
        expunge.open(folder, trust=TRUST)
    assert {path: path.read_bytes() for path in before} == before


def test_a_table_of_many_columns_has_them_all_named(folder: Path) -> None:
    table = pd.DataFrame({f"x{place}": NUMBERS[:, 0] for place in range(20)})
    expunge.create(folder, Numbered(), table, np.arange(SIZE) % 2, n_shards=2, trust=TRUST).close()
    path = folder / "records" / "000001" / "feature-17.slab"
    path.write_bytes(flipped(path.read_bytes(), 8 * 8 * 5))
    with pytest.raises(FormatError, match=r"row 5 .* one of 20 files, feature-0\.slab to feature-19\.slab, is damaged"):
        look(folder)


def test_a_whole_folder_is_moved_and_copied_freely(folder: Path) -> None:
    make(folder, "array").close()
    twin = Path(shutil.copytree(folder, folder.with_name("twin")))
    assert problems(twin) == []
    look(twin)
