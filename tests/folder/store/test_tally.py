"""The tally: every changed, added or removed row is noticed, and so is a database of an earlier moment."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import expunge
from expunge.core.errors import FormatError, StoreError
from expunge.folder import open_view
from expunge.folder.checkup import check
from expunge.folder.store import tally
from expunge.folder.store.database import Database
from expunge.training.learners import LookupTableLearner

SIZE = 10
OPTIONS: dict[str, Any] = {"n_shards": 2, "apply": "manual"}


@pytest.fixture
def home(folder: Path) -> Path:
    return make(folder)


def make(folder: Path) -> Path:
    """A folder with a row in every table."""
    X = np.arange(2.0 * SIZE).reshape(SIZE, 2)
    options = OPTIONS | {"records_at": folder.with_name("lake")}
    with expunge.create(folder, LookupTableLearner(), X, np.arange(SIZE) % 2, **options) as deployment:
        deployment.receive(
            "crm", "ticket 1", ["a person"], asked=b"asked", form="webhook", urls=["https://example.org/"]
        )
        deployment.delete([1, 2])
        deployment.apply()
        deployment.delete([3], key="a key")
        deployment.cancel(deployment.delete([4]).request)
    return folder


def tables(home: Path) -> dict[str, list[str]]:
    with closing(sqlite3.connect(home / "state.db")) as database:
        names = [row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        names = [name for name in names if not name.startswith("sqlite_")]
        return {name: [row[1] for row in database.execute(f"PRAGMA table_info({name})")] for name in names}


def change(home: Path, statement: str) -> int:
    with closing(sqlite3.connect(home / "state.db")) as database, database:
        return database.execute(statement).rowcount


def refused(home: Path) -> str:
    """What opening, looking and checking say; the folder stays as it is."""
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file() and "state.db-" not in path.name}
    lines = []
    for act in (expunge.open, open_view):
        with pytest.raises(FormatError) as error:
            act(home)
        lines.append(str(error.value))
    assert {path: path.read_bytes() for path in before if path.name != "lock"} == {
        path: content for path, content in before.items() if path.name != "lock"
    }
    (line,) = set(lines)
    assert "\n" not in line
    assert line in check(home).damage
    return line


def test_every_column_of_every_table_is_watched(home: Path, tmp_path: Path) -> None:
    tried = set()
    for table, columns in tables(home).items():
        for column in columns:
            twin = Path(shutil.copytree(home, tmp_path / f"{table}-{column}"))
            value = f"CASE typeof({column}) WHEN 'integer' THEN {column} + 1 WHEN 'blob' THEN x'01' ELSE 'other' END"
            first = f"{columns[0]} = (SELECT MIN({columns[0]}) FROM {table})"
            try:
                changed = change(twin, f"UPDATE {table} SET {column} = {value} WHERE {first}")
            except sqlite3.IntegrityError:  # a table of one row, which has number 1
                continue
            if changed:
                line = refused(twin)
                assert f"{table!r} is not what was written" in line or "tally" in line or table == "tally", line
                tried.add(table)
            shutil.rmtree(twin)
    assert tried == set(tables(home))


def test_rows_that_were_removed_or_doubled_are_noticed(home: Path, tmp_path: Path) -> None:
    for table in set(tables(home)) - {"tally"}:
        twin = Path(shutil.copytree(home, tmp_path / table))
        if change(twin, f"DELETE FROM {table}"):
            assert "is not what was written" in refused(twin)


def test_values_of_other_types_are_told_apart(home: Path) -> None:
    change(home, "UPDATE position SET total = CAST(total AS BLOB)")
    assert "'position' is not what was written" in refused(home)


@pytest.mark.parametrize("request_number", [None, 1, 2**40])
def test_a_hash_in_its_row_is_told_from_any_with_another_bit(request_number: int | None) -> None:
    def row_sum(hashed: Any, number: int | None = request_number) -> int:
        return tally._row_sum("forgotten", (hashed, number)) % tally._MODULUS

    written = bytes(range(100, 132))
    as_number, sums = int.from_bytes(written, "little"), set()
    for bit in range(256):
        sums.add(row_sum((as_number ^ (1 << bit)).to_bytes(32, "little")))
    sums |= {row_sum(other) for other in (written[::-1], written.hex(), written[16:] + written[:16])}
    sums |= {row_sum(written, other) for other in (None, 1, 2, 2**40, 2**40 + 1) if other != request_number}
    assert row_sum(written) not in sums


def test_many_hashes_at_once_add_up_to_what_each_adds() -> None:
    hashes = [bytes([each]) * 31 + bytes([255 - each]) for each in range(256)] + [bytes(32), b"\xff" * 32]
    for number in (None, 7):
        one_by_one = sum(tally._row_sum("forgotten", (each, number)) for each in hashes)
        assert tally._hash_sum(b"".join(hashes), number) == one_by_one


def test_without_the_tally_a_changed_row_is_believed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken variant."""
    monkeypatch.setattr(tally, "_row_sum", lambda table, row: 0)
    monkeypatch.setattr(tally, "_hash_sum", lambda hashes, number: 0)
    home = make(folder)
    change(home, "UPDATE generations SET reserved = 12345")
    open_view(home).close()


def test_an_index_that_misses_a_row_is_noticed(home: Path) -> None:
    """A pending request would be forgotten."""
    data = (home / "state.db").read_bytes()
    place = data.index(b"pending")
    while place >= 0:
        page = bytearray(data)
        page[place] ^= 1
        (home / "state.db").write_bytes(page)
        refused(home)
        place = data.find(b"pending", place + 1)


def test_other_tables_triggers_and_views_are_refused(home: Path, tmp_path: Path) -> None:
    """A trigger of a stranger would act on every update."""
    for number, statement in enumerate(
        (
            "CREATE TABLE more (a)",
            "CREATE TRIGGER act AFTER INSERT ON requests BEGIN DELETE FROM dead; END",
            "CREATE VIEW more AS SELECT * FROM facts",
            "DROP INDEX requests_by_state",
        )
    ):
        twin = Path(shutil.copytree(home, tmp_path / str(number)))
        change(twin, statement)
        assert "has other tables than a deployment" in refused(twin)


ACTS: dict[str, Callable[[Any], Any]] = {
    "accept": lambda deployment: deployment.delete([5]),
    "apply": lambda deployment: deployment.apply(),
    "cancel": lambda deployment: deployment.cancel(deployment.requests(state="pending")[0].request),
    "predict": lambda deployment: deployment._store.database.execute("UPDATE generations SET reserved = reserved + 1"),
}


@pytest.mark.parametrize("act", ACTS)
def test_a_database_of_an_earlier_moment_is_noticed(home: Path, act: str) -> None:
    early = (home / "state.db").read_bytes()
    with expunge.open(home) as deployment:
        ACTS[act](deployment)
    (home / "state.db").write_bytes(early)
    assert "is of another moment than the other files" in refused(home)


def test_a_log_that_lost_its_end_is_noticed(home: Path) -> None:
    """SQLite leaves out everything from the first damaged frame on, and says nothing."""
    with expunge.open(home) as deployment:
        deployment.delete([5])
        twin = Path(shutil.copytree(home, home.with_name("killed")))
    expunge.open(twin, apply_pending=False).close()
    log = twin / "state.db-wal"
    assert not log.exists()
    shutil.rmtree(twin)
    with expunge.open(home) as deployment:
        deployment.delete([6])
        twin = Path(shutil.copytree(home, home.with_name("killed")))
    data = bytearray(log.read_bytes())
    data[-100] ^= 4
    log.write_bytes(data)
    assert "is of another moment" in refused(twin)


def test_a_moment_that_lags_behind_says_nothing(home: Path) -> None:
    """After a loss of power."""
    early = (home / "moment").read_bytes()
    with expunge.open(home) as deployment:
        deployment.delete([5])
    (home / "moment").write_bytes(early)
    with expunge.open(home) as deployment:
        assert deployment.status.pending == 2


def test_a_damaged_or_missing_moment_is_a_line(home: Path) -> None:
    content = (home / "moment").read_bytes()
    for damaged in (b"", content[:-1], content + b"0", bytes([content[0] ^ 1]) + content[1:]):
        (home / "moment").write_bytes(damaged)
        assert "moment" in refused(home)
    (home / "moment").unlink()
    with pytest.raises(StoreError, match="moment is missing"):
        expunge.open(home)


def test_what_is_rolled_back_is_not_counted(tmp_path: Path) -> None:
    database = Database(tmp_path, is_new=True)
    database.execute("INSERT INTO facts VALUES ('a', '1')")

    def fail() -> None:
        with database.transaction():
            database.execute("INSERT OR REPLACE INTO facts VALUES ('a', '2')")
            raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        fail()
    database.execute("INSERT OR REPLACE INTO facts VALUES ('a', '3')")
    database.execute("INSERT OR IGNORE INTO facts VALUES ('a', '4')")
    database.execute_many("INSERT INTO facts VALUES (?, ?)", [("b", "1"), ("c", "2")])
    database.execute("UPDATE facts SET value = '9' WHERE name != 'a'")
    database.execute("DELETE FROM facts WHERE name = 'b'")
    assert database.damage() == []
    database.close()
    again = Database(tmp_path)
    assert again.rows("SELECT * FROM facts") == [("a", "3"), ("c", "9")]
    again.close()
