"""SQLite as it is used: all or nothing, on the disk, nothing left behind, one version."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from expunge.core.errors import FormatError, StoreError
from expunge.folder.store import Store
from expunge.folder.store import database as module
from expunge.folder.store.database import VERSION, Database


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database(tmp_path, is_new=True)


def facts(database: Database) -> list[tuple[str, str]]:
    return [(row[0], row[1]) for row in database.rows("SELECT name, value FROM facts ORDER BY name")]


def put(database: Database, name: str, value: str = "1") -> None:
    database.execute("INSERT INTO facts VALUES (?, ?)", (name, value))


def test_a_new_database_is_private_and_strict(tmp_path: Path, database: Database) -> None:
    assert ((tmp_path / "state.db").stat().st_mode & 0o777) == 0o600
    found = {name: database.row(f"PRAGMA {name}") for name in ("journal_mode", "synchronous", "secure_delete")}
    assert found == {"journal_mode": ("wal",), "synchronous": (2,), "secure_delete": (1,)}
    assert database.row("PRAGMA user_version") == (VERSION,)


def test_a_transaction_is_all_or_nothing(database: Database) -> None:
    def fail_half_way() -> None:
        with database.transaction():
            put(database, "a")
            with database.transaction():
                put(database, "b")
            raise RuntimeError("half-way")

    with pytest.raises(RuntimeError, match="half-way"):
        fail_half_way()
    assert facts(database) == []
    with database.transaction():
        put(database, "a")
    assert facts(database) == [("a", "1")]


def test_a_failed_statement_says_so_in_one_line(tmp_path: Path, database: Database) -> None:
    put(database, "a")
    with pytest.raises(StoreError, match="the database says: UNIQUE constraint failed") as caught:
        put(database, "a")
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_committed_is_seen_by_others_and_the_rest_is_not(tmp_path: Path, database: Database) -> None:
    other = Database(tmp_path, read_only=True)
    with database.transaction():
        put(database, "a")
        assert facts(other) == []
    assert facts(other) == [("a", "1")]
    with pytest.raises(StoreError, match="cannot be written to"):
        put(other, "b")
    other.close()


def test_a_snapshot_is_of_one_moment(tmp_path: Path, database: Database) -> None:
    other = Database(tmp_path, read_only=True)
    with other.snapshot():
        assert facts(other) == []
        put(database, "a")
        assert facts(other) == []
    assert facts(other) == [("a", "1")]
    other.close()


def test_a_checkpoint_leaves_nothing_of_what_was_deleted(tmp_path: Path, database: Database) -> None:
    secret = "0123456789abcdef" * 8
    put(database, "a", secret)
    assert secret.encode() in (tmp_path / "state.db-wal").read_bytes()
    database.execute("DELETE FROM facts")
    database.checkpoint()
    for path in tmp_path.iterdir():
        assert secret.encode() not in path.read_bytes(), path.name
    assert (tmp_path / "state.db-wal").stat().st_size == 0


def test_a_checkpoint_that_a_reader_holds_up_is_an_error(
    tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PATIENCE", 0.05)
    writer = Database(tmp_path)
    reader = sqlite3.connect(tmp_path / "state.db", isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM facts").fetchall()
    put(writer, "a")
    with pytest.raises(StoreError, match="a reader keeps old contents"):
        writer.checkpoint()
    reader.close()
    writer.checkpoint()
    writer.close()


def test_a_checkpoint_waits_for_readers_that_come_and_go(tmp_path: Path, database: Database) -> None:
    code = (
        "import sqlite3, sys\n"
        "reader = sqlite3.connect(f'file:{sys.argv[1]}?mode=ro', uri=True, isolation_level=None, timeout=30)\n"
        "print(flush=True)\n"
        "while True: reader.execute('SELECT COUNT(*) FROM facts').fetchall()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "state.db")], stdout=subprocess.PIPE, text=True
    ) as reader:
        assert reader.stdout is not None
        reader.stdout.readline()
        for number in range(30):
            put(database, f"{number}")
            database.checkpoint()
        reader.kill()


def test_threads_do_not_see_into_one_anothers_transactions(database: Database) -> None:
    def add(thread: int) -> None:
        for number in range(20):
            with database.transaction():
                count = database.row("SELECT COUNT(*) FROM facts")
                assert count is not None
                put(database, f"{count[0]:04d}", f"{thread}.{number}")

    threads = [threading.Thread(target=add, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [name for name, _ in facts(database)] == [f"{number:04d}" for number in range(160)]


def test_use_after_closing(database: Database, tmp_path: Path) -> None:
    database.close()
    database.close()
    for use in (database.checkpoint, lambda: facts(database), lambda: put(database, "a")):
        with pytest.raises(StoreError, match="has been closed"):
            use()
    with pytest.raises(StoreError, match="has been closed"), database.transaction():
        pass


def test_a_folder_without_a_database(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"not a deployment: it has no state\.db"):
        Database(tmp_path)


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "state.db").write_bytes(b"something else entirely" * 50)
    with pytest.raises(FormatError, match="damaged"):
        Database(tmp_path)


def test_odd_folder_names(tmp_path: Path) -> None:
    folder = tmp_path / "50% off? #1 é"
    folder.mkdir()
    Database(folder, is_new=True).close()
    assert (folder / "state.db").is_file()
    Database(folder).close()


@pytest.mark.parametrize("version", [0, VERSION + 1])
def test_a_folder_of_another_version_is_refused(tmp_path: Path, database: Database, version: int) -> None:
    database.execute(f"PRAGMA user_version = {version}")
    database.close()
    for read_only in (False, True):
        with pytest.raises(FormatError, match=f"has format {version}; this version of expunge reads format {VERSION}$"):
            Database(tmp_path, read_only=read_only)


@pytest.mark.parametrize(
    "statement", ["CREATE TABLE theirs (a)", "PRAGMA application_id = 7", "PRAGMA user_version = 1"]
)
def test_the_database_of_another_program_is_left_alone(tmp_path: Path, statement: str) -> None:
    connection = sqlite3.connect(tmp_path / "state.db")
    connection.execute(statement)
    connection.close()
    before = (tmp_path / "state.db").read_bytes()
    for act in (lambda: Database(tmp_path), lambda: Database(tmp_path, read_only=True), lambda: Store.open(tmp_path)):
        with pytest.raises(FormatError, match=r"is not a deployment: its state\.db belongs to another program"):
            act()
    assert (tmp_path / "state.db").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["state.db"]


def test_an_empty_file_is_not_a_deployment(tmp_path: Path) -> None:
    (tmp_path / "state.db").touch()
    with pytest.raises(FormatError, match="is not a deployment"):
        Database(tmp_path)
    assert (tmp_path / "state.db").read_bytes() == b""


def test_whose_it_is_stands_in_the_file_before_anything_else(tmp_path: Path, database: Database) -> None:
    """Not only in the log, so that one look at the file tells."""
    assert int.from_bytes((tmp_path / "state.db").read_bytes()[68:72]) == module.APPLICATION
    assert database.row("PRAGMA application_id") == (module.APPLICATION,)
