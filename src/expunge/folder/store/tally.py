"""The tally of the database: a checksum of each table, and the number of the last transaction.

SQLite has no checksums: a changed bit in a row is read as if it had been written. So each table has a sum over its
rows, which is written in the transaction that changes them. Triggers of the connection (not of the file) tell each
changed row, so no statement can forget it. The sums of all tables, with the number of the transaction, are one row.

The number is also in a file beside the database (`moment`), written after each transaction. A database that was put
back to an earlier moment, or lost the end of its log, has a lower number than the file, and is noticed. After a loss of
power the file may lag behind; that says nothing. Like the checksums of records, all of this guards against accidents: a
stranger who makes a folder makes its sums too.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import struct
import time
import weakref
import zlib
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any, Final

import numpy as np

from expunge.core.errors import FormatError
from expunge.core.files import write_all
from expunge.core.place import Place

#: The table that holds the tally itself.
TALLY = "CREATE TABLE tally (only INTEGER PRIMARY KEY CHECK (only = 1), number INTEGER NOT NULL, sums TEXT NOT NULL)"
MOMENT: Final = "moment"
HASHES: Final = "forgotten"  # the table of which a deletion of many records writes a row for each
_OWN: Final = "tally"  # what stands for the number among the sums
_FORM: Final = struct.Struct("<QI")  # the number of the last transaction, and the checksum of these bytes
_BYTES: Final = 16
_MODULUS: Final = 1 << (8 * _BYTES)
_SECOND: Final = 0x9E3779B97F4A7C15F39CC0605CEDC835  # odd, and no number of a request comes near it
_SHORT: Final = 128  # bytes of a value that are hashed as they are
_ATTEMPTS: Final = 3
_REMEDY: Final = "Put the folder back from a copy, as a whole; nothing was changed"


class Tally:
    """Keeps the sums of a connection's tables.

    Parameters
    ----------
    connection
        The connection to the database.
    place
        The folder.
    """

    def __init__(self, connection: sqlite3.Connection, place: Place) -> None:
        self._connection = connection
        self._place = place / MOMENT
        self._changes: dict[str, list[int]] = {}
        self._hashes: dict[tuple[int, int | None], list[bytes]] = {}  # rows of HASHES that were not added up yet
        self._number = 0
        self._known: tuple[int, dict[str, list[Any]]] | None = None  # what this connection wrote last
        self._sums: dict[str, list[Any]] = {}
        self._descriptor = -1  # of the file beside the database

    def start(self) -> None:
        """Begin the tally of an empty database, inside the caller's transaction."""
        self._connection.execute("INSERT INTO tally VALUES (1, 0, '{}')")
        self._place.write_new(_packed(0))  # flushed: an empty one would count as damaged

    def watch(self) -> None:
        """Have every row that this connection changes noted from now on."""
        self._connection.create_function("expunge_note", -1, self._note)
        self._connection.create_function("expunge_note_hash", 3, self._note_hash)
        self._connection.execute("PRAGMA recursive_triggers = ON")  # a replaced row counts as deleted
        for table in self._tables():
            columns = [row[1] for row in self._connection.execute(f"PRAGMA table_info({table})")]
            old, new = (", ".join(f'{which}."{column}"' for column in columns) for which in ("OLD", "NEW"))
            note = "expunge_note_hash(" if table == HASHES else f"expunge_note('{table}', "
            gone, come = (f"SELECT {note}{sign}, {row});" for sign, row in ((-1, old), (1, new)))
            for event, body in (("INSERT", come), ("DELETE", gone), ("UPDATE", gone + come)):
                self._connection.execute(
                    f"CREATE TEMP TRIGGER note_{table}_{event} AFTER {event} ON main.{table} BEGIN {body} END"
                )

    def _note(self, table: str, sign: int, *row: Any) -> None:
        change = self._changes.setdefault(table, [0, 0])
        change[0] += sign
        change[1] += sign * _row_sum(table, row)

    def _note_hash(self, sign: int, hashed: Any, number: Any) -> None:
        if type(hashed) is bytes and len(hashed) == 2 * _BYTES and (number is None or type(number) is int):
            self._hashes.setdefault((sign, number), []).append(hashed)
        else:  # no hash of ours
            self._note(HASHES, sign, hashed, number)

    def _add_hashes(self) -> None:
        """Add the hashes up that were noted, all with one number at once."""
        for (sign, number), hashes in self._hashes.items():
            change = self._changes.setdefault(HASHES, [0, 0])
            change[0] += sign * len(hashes)
            change[1] += sign * _hash_sum(b"".join(hashes), number)
        self._hashes.clear()

    def write(self) -> None:
        """Write the sums of what was changed, inside the transaction that changed it."""
        self._add_hashes()
        self._changes = {table: change for table, change in self._changes.items() if any(change)}
        if not self._changes:  # rows were written as they were
            return
        (number, sums), self._known = self._known or self._read(), None  # not to be trusted until this is committed
        for table, (rows, total) in self._changes.items():
            before = sums.get(table, [0, "0"])
            sums[table] = [before[0] + rows, f"{(int(before[1], 16) + total) % _MODULUS:x}"]
        self._number, self._sums = number + 1, sums
        text = json.dumps({**sums, _OWN: [self._number, "0"]}, sort_keys=True)
        self._connection.execute("UPDATE tally SET number = ?, sums = ? WHERE only = 1", (self._number, text))

    def committed(self) -> None:
        """Note beside the database that the transaction is on the disk."""
        if not self._changes:
            return
        self._changes.clear()
        self._known = self._number, self._sums
        with contextlib.suppress(OSError):  # then an older number stays there
            if self._descriptor < 0:
                self._descriptor = self._place.open(os.O_WRONLY)
                weakref.finalize(self, os.close, self._descriptor)
            write_all(self._descriptor, _packed(self._number), 0)  # a part of it would count as damage

    def forget(self) -> None:
        """Forget what was changed: it was rolled back."""
        self._changes.clear()
        self._hashes.clear()

    def moment(self) -> int:
        """The number beside the database. Read it before the database, which another process may be writing.

        Raises
        ------
        FormatError
            If the file is damaged.
        """
        for _ in range(_ATTEMPTS):
            data = self._place.read_bytes(most=_FORM.size)
            if len(data) == _FORM.size and data == _packed(int.from_bytes(data[:8], "little")):
                return int.from_bytes(data[:8], "little")
            time.sleep(0.001)  # another process may be in the middle of writing it
        raise FormatError(f"{self._place} is not what was written. {_REMEDY}")

    def damage(self, moment: int, schema: Sequence[str]) -> Iterator[str]:
        """Read the whole database, and yield a line for each thing that is not as it was written.

        Parameters
        ----------
        moment
            What `moment` gave before the caller began to read.
        schema
            The statements that made the tables.
        """
        factory = self._connection.text_factory
        self._connection.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")  # damaged texts too
        try:
            yield from self._damage(moment, schema)
        finally:
            self._connection.text_factory = factory

    def _damage(self, moment: int, schema: Sequence[str]) -> Iterator[str]:
        file = self._place.parent / "state.db"
        expected = sorted([*schema, "CREATE TABLE sqlite_sequence(name,seq)"])
        found = self._connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")
        if sorted(row[0] for row in found) != expected:
            yield f"{file} has other tables than a deployment. {_REMEDY}"
            return
        for (told,) in self._connection.execute("PRAGMA integrity_check(3)").fetchall():
            if told != "ok":
                yield f"{file} is damaged: {' '.join(str(told).split())}. {_REMEDY}"
                return
        number, sums = self._read()
        if number < moment:
            yield (
                f"{file} is of another moment than the other files: it ends with transaction {number:,}, and "
                f"{moment:,} were made. {_REMEDY}"
            )
        for table in self._tables():
            rows, total = 0, 0
            for row in self._connection.execute(f"SELECT * FROM main.{table}"):
                rows += 1
                total += _row_sum(table, row)
            if sums.get(table, [0, "0"]) != [rows, f"{total % _MODULUS:x}"]:
                yield f"{file} is damaged: a row of its table {table!r} is not what was written. {_REMEDY}"

    def _tables(self) -> list[str]:
        query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name != 'tally'"
        return sorted(row[0] for row in self._connection.execute(query))

    def _read(self) -> tuple[int, dict[str, list[Any]]]:
        row = self._connection.execute("SELECT number, sums FROM tally").fetchone()
        try:
            number, sums = row[0], json.loads(row[1])
            is_known = sums.pop(_OWN, [0])[0] == number and type(number) is int
            if is_known and all(type(rows) is int and int(total, 16) >= 0 for rows, total in sums.values()):
                return number, sums
        except (TypeError, ValueError, AttributeError, LookupError):
            pass
        raise FormatError(f"{self._place.parent / 'state.db'} is damaged: its tally cannot be read. {_REMEDY}")


def _row_sum(table: str, row: Sequence[Any]) -> int:
    """The sum of one row, which tells types and places of values apart.

    A keyed hash with nothing but a number beside it is not hashed again: a deletion of many records writes one for
    each. One changed bit of it changes the sum for certain, and anything else but with a chance of about 2^-128, also
    if rows exchange their numbers. The numbers of requests begin at 1.
    """
    if (
        len(row) == 2
        and type(row[0]) is bytes
        and len(row[0]) == 2 * _BYTES
        and (row[1] is None or type(row[1]) is int)
    ):
        return _hash_sum(row[0], row[1])
    told = [
        ("long", blake2b(value).digest()) if isinstance(value, bytes) and len(value) > _SHORT else value
        for value in row
    ]
    content = repr((table, *told)).encode("ascii", "backslashreplace")
    return int.from_bytes(blake2b(content, digest_size=_BYTES).digest(), "little")


def _hash_sum(hashes: bytes, number: int | None) -> int:
    """The sum of rows that have one of these hashes each, and this number."""
    if len(hashes) == 2 * _BYTES:
        first, second = (int.from_bytes(half, "little") for half in (hashes[:_BYTES], hashes[_BYTES:]))
    else:
        words = np.frombuffer(hashes, dtype="<u4").reshape(-1, _BYTES // 2).sum(axis=0, dtype=np.uint64).tolist()
        first, second = (sum(word << 32 * place for place, word in enumerate(half)) for half in (words[:4], words[4:]))
    factor = 1 if number is None else 2 * number + 1
    return factor * first + _SECOND * second


def _packed(number: int) -> bytes:
    body = number.to_bytes(8, "little")
    return _FORM.pack(number, zlib.crc32(b"moment" + body))
