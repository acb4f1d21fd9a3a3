"""A lake: the records' features as a Parquet table outside the folder, partitioned by shard.

    expunge.json                        whose table it is, and which process may write
    records/shard=00017/0a1b….parquet   some records of a shard (`parts`)

The folder says which parts are in force (the table `parts` of state.db), and keeps ids, subjects, labels and checksums.
A part is never changed. A deletion writes the parts that it touches anew, without the record, under fresh names; the
transaction that switches the round switches the parts, and the old ones are removed before the request counts as
applied. An addition is a part of its own until its shard has too many. What a crash leaves behind has a name that the
folder does not know, and is removed when it is opened.

A training reads the parts of its shard, and nothing else. Every row is checked against its checksum when it is read.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from expunge.core.blocks import Block
from expunge.core.errors import FormatError, InputError, StoreError
from expunge.core.features import Features
from expunge.core.place import Place
from expunge.core.records import Change, Records
from expunge.folder.store.columns import Form
from expunge.folder.store.database import Database
from expunge.folder.store.objects import Objects, open_objects
from expunge.folder.store.parts import Columns, decode_part, encode_part, join, pick
from expunge.folder.store.slabs import RecordFolder, feature_sums
from expunge.folder.store.spool import Spool
from expunge.folder.store.threads import for_each
from expunge.training.ensemble import EnsembleState
from expunge.training.recipe import Recipe

_MARK: Final = "expunge.json"
_TABLE: Final = "records/"
_PART: Final = re.compile(r"records/shard=[0-9]{5,}/[0-9a-f]{32}\.parquet")
_MOST_PARTS: Final = 8  # of a shard; then an addition writes them as one
_PIECES, _PIECE_BYTES = 4, 1 << 20  # a shard is written as so many parts at most, of about so many bytes at least
_REMEMBERED: Final = 1 << 26  # bytes of parts that are both trained on and written anew
_THREADS: Final = 4
_BYTES_AT_ONCE, _FEWEST_ROWS, _MOST_ROWS = 1 << 26, 1 << 8, 1 << 18  # that are sorted together


@dataclass(frozen=True, eq=False)
class Part:
    """An object with records of one shard.

    Parameters
    ----------
    name
        Its name.
    shard
        The shard.
    runs
        Runs of slots that it was written with, as (first, how many).
    digest
        Of its bytes.
    """

    name: str
    shard: int
    runs: NDArray[np.int64]
    digest: bytes


@dataclass(frozen=True)
class PartChange:
    """Which parts are in force from the next switch on: those of `made`, and no longer those named in `gone`."""

    made: tuple[Part, ...]
    gone: tuple[str, ...]


class Lake:
    """The table of one deployment.

    Parameters
    ----------
    objects
        Where it lies.
    secret
        What only this deployment's folder knows: no other folder can have objects of this table removed.
    """

    def __init__(self, objects: Objects, secret: bytes) -> None:
        self.objects = objects
        self._owner = hashlib.sha256(b"expunge lake" + secret).hexdigest()
        self._mark = b""
        self.may_have_strays = False
        self._lock = threading.Lock()
        self._reading: dict[str, threading.Lock] = {}
        self._remembered: dict[str, bytes] | None = None

    @classmethod
    def new(cls, url: str, secret: bytes) -> Lake:
        """Begin a table where nothing is yet. What is removed there must be gone."""
        lake = cls(open_objects(url), secret)
        if lake.objects.names():
            raise InputError(
                f"{url} is not empty: records go where nothing else is. Remove what a killed `create` left there"
            )
        lake.objects.require_forgetful()
        lake._mark = lake._new_mark(0)
        if not lake.objects.swap(_MARK, None, lake._mark):
            raise InputError(f"{url} is not empty: another deployment has just begun there")
        return lake

    def take(self, number: int) -> None:
        """Become the one process that writes here. A process that was it before notices at its next switch.

        `number` is how often the folder has switched parts. One that is behind is a copy from before: it would remove
        what has come since.
        """
        before = self.objects.read(_MARK)
        found = self._read_mark(before)
        if found["number"] != number and not (found["is_switching"] and found["number"] == number + 1):
            raise FormatError(
                f"{self.objects.url} is of another moment than the folder, which is a copy from before or was set "
                "back; nothing was changed"
            )
        self._swap(before, number, is_switching=False)

    def begin_switch(self, number: int) -> None:
        """Say that parts are about to be switched for this time; an error if another process writes here by now."""
        self._swap(self._mark, number, is_switching=True)

    def end_switch(self, number: int) -> None:
        """Say that the folder has switched parts so often."""
        if self._mark and self._read_mark(self._mark)["is_switching"]:
            self._swap(self._mark, number, is_switching=False)

    def _swap(self, before: bytes, number: int, *, is_switching: bool) -> None:
        after = self._new_mark(number, is_switching=is_switching)
        if not self.objects.swap(_MARK, before, after):
            self._read_mark(self.objects.read(_MARK))
            raise StoreError(f"{self.objects.url}: another process writes there by now; nothing was changed")
        self._mark = after

    def succeed(self, other: Lake) -> None:
        """Write on where another object for this table was to: what reads through this one knows it already."""
        self._mark = other._mark

    def abandon(self) -> None:
        """Remove everything: the deployment was not completed."""
        self.objects.remove([*self.objects.names(_TABLE), _MARK])

    def _new_mark(self, number: int, *, is_switching: bool = False) -> bytes:
        told = {"owner": self._owner, "writer": secrets.token_hex(16), "number": number, "is_switching": is_switching}
        return json.dumps(told).encode()

    def _read_mark(self, content: bytes) -> dict[str, Any]:
        try:
            found = json.loads(content)
            is_own = found["owner"] == self._owner and {"number", "is_switching"} <= found.keys()
        except (ValueError, KeyError, TypeError, AttributeError):
            is_own = False
        if not is_own:
            raise FormatError(f"{self.objects.url} holds the records of another deployment; nothing was changed")
        return dict(found)

    def write(self, form: Form, shard: int, slots: NDArray[np.int64], columns: Columns) -> Part:
        """Write a part for these ascending slots. It counts once the folder names it."""
        name, content = f"{_TABLE}shard={shard:05d}/{secrets.token_hex(16)}.parquet", encode_part(form, slots, columns)
        starts = np.flatnonzero(np.diff(slots, prepend=-2) != 1)
        runs = np.column_stack([slots[starts], np.diff(starts, append=len(slots))])
        try:
            self.objects.put(name, content)
        except BaseException:
            self.may_have_strays = True  # it may still arrive
            raise
        return Part(name, shard, runs, hashlib.sha256(content).digest())

    def read(self, form: Form, part: Part, *, whole: bool = False) -> tuple[NDArray[np.int64], Columns]:
        """The slots and the features of a part, or all its columns."""
        content = self._content(part)
        try:
            return decode_part(form, content, form.columns if whole else form.features)
        except FormatError as error:
            raise self._damaged(part, str(error)) from None

    def _damaged(self, part: Part, why: str) -> FormatError:
        return FormatError(f"the object {part.name} of {self.objects.url} is damaged: {why}. Put it back from a copy")

    def _content(self, part: Part) -> bytes:
        with self._lock:
            reading = self._reading.setdefault(part.name, threading.Lock())
        with reading:  # a part that is trained on and written anew is read once
            known = self._remembered if self._remembered is not None else {}
            if part.name in known:
                return known[part.name]
            content = self.objects.read(part.name)
            if hashlib.sha256(content).digest() != part.digest:
                raise self._damaged(part, "its content has another digest")
            if sum(map(len, known.values())) + len(content) <= _REMEMBERED:
                known[part.name] = content
            return content

    def remember(self, *, is_updating: bool) -> None:
        """Keep parts in memory from now on, or forget them."""
        with self._lock:
            self._remembered, self._reading = {} if is_updating else None, {}


@dataclass(frozen=True, eq=False)
class _Places:
    """In which part each slot lies: runs of slots, ascending, and the part of each run."""

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    owners: NDArray[np.int64]

    @classmethod
    def of(cls, parts: Sequence[Part]) -> _Places:
        runs = np.concatenate([np.empty((0, 2), dtype=np.int64), *(part.runs for part in parts)])
        owners = np.repeat(np.arange(len(parts)), [len(part.runs) for part in parts])
        order = np.argsort(runs[:, 0], kind="stable")
        return cls(runs[order, 0], runs[order].sum(axis=1), owners[order])

    def of_slots(self, slots: NDArray[np.int64], url: str) -> NDArray[np.int64]:
        places = np.searchsorted(self.starts, slots, side="right") - 1
        is_there = places >= 0
        is_there[is_there] = slots[is_there] < self.ends[places[is_there]]
        for slot in slots[~is_there][:1]:
            raise FormatError(f"{url} has no part with the record in row {slot:,}")
        return self.owners[places]


@dataclass(frozen=True, eq=False)
class LakeRows:
    """The features of a table, as the `FeatureSource` of a dataset's first block.

    Parameters
    ----------
    lake
        The table.
    form
        Its columns.
    parts
        The parts in force.
    sums
        The stored checksum of every slot.
    """

    lake: Lake
    form: Form
    parts: tuple[Part, ...]
    sums: NDArray[np.uint64]

    def take(self, rows: NDArray[np.int64]) -> Features:
        """The features of some slots, in their order, read and checked part by part."""
        rows = np.asarray(rows, dtype=np.int64)
        if not len(rows):
            return self.form.empty().features
        which = self.parts_of(rows)
        order = np.argsort(which, kind="stable")
        groups = np.split(order, np.flatnonzero(np.diff(which[order])) + 1)
        read: dict[int, Columns] = {}

        def get(number: int) -> None:
            read[number] = self._some(self.parts[int(which[groups[number][0]])], rows[groups[number]])

        for_each(get, [*range(len(groups))], most=_THREADS)
        found = [read[number] for number in range(len(groups))]
        joined = found[0] if len(found) == 1 else join(found)
        if (order[1:] < order[:-1]).any():
            places = np.empty(len(rows), dtype=np.int64)
            places[order] = np.arange(len(rows))
            joined = pick(joined, places)
        return self.form.join_features(joined, len(rows))

    def runs(self) -> Iterator[tuple[NDArray[np.int64], Features]]:
        """All slots with their features, a part at a time. Those that came later lie in other blocks."""
        for part in self.parts:
            if part.runs[0, 0] >= len(self.sums):
                continue
            slots, columns = self.lake.read(self.form, part)
            if slots[-1] >= len(self.sums):
                kept = np.flatnonzero(slots < len(self.sums))
                slots, columns = slots[kept], pick(columns, kept)
            self._require(part, slots, columns)
            yield slots, self.form.join_features(columns, len(slots))

    def parts_of(self, slots: NDArray[np.int64]) -> NDArray[np.int64]:
        """The place in `parts` of the one that each slot lies in."""
        return self._places.of_slots(slots, self.lake.objects.url)

    @cached_property
    def _places(self) -> _Places:
        return _Places.of(self.parts)

    def _some(self, part: Part, rows: NDArray[np.int64]) -> Columns:
        slots, columns = self.lake.read(self.form, part)
        places = np.minimum(np.searchsorted(slots, rows), max(len(slots) - 1, 0))
        missing = rows[slots[places] != rows] if len(slots) else rows
        for slot in missing[:1]:
            raise FormatError(f"the object {part.name} of {self.lake.objects.url} lacks the record in row {slot:,}")
        found = pick(columns, places)
        self._require(part, rows, found)
        return found

    def _require(self, part: Part, slots: NDArray[np.int64], columns: Columns) -> None:
        for place in np.flatnonzero(feature_sums(self.form, columns, slots) != self.sums[slots])[:1]:
            raise FormatError(
                f"the record in row {slots[place]:,} is not what was written: the object {part.name} of "
                f"{self.lake.objects.url} is damaged. Put it back from a copy"
            )


@dataclass(frozen=True, eq=False)
class LakeTable:
    """Where other processes read the records of a lake by themselves, as a `RowSource`: they need its URL alone.

    Parameters
    ----------
    url
        Where the table lies. Credentials come from the environment of who reads.
    form
        Its columns.
    parts
        The parts in force.
    num_rows
        How many slots lie in them.
    """

    url: str
    form: Form
    parts: tuple[Part, ...]
    num_rows: int

    @classmethod
    def of(cls, rows: LakeRows, num_rows: int) -> LakeTable:
        """The table that these features lie in, with as many slots."""
        return cls(rows.lake.objects.url, rows.form, rows.parts, num_rows)

    def narrowed(self, rows: NDArray[np.int64]) -> LakeTable:
        """The same, which knows only the parts that these slots lie in: those of a shard are few."""
        found = np.unique(_Places.of(self.parts).of_slots(rows, self.url))
        return replace(self, parts=tuple(self.parts[place] for place in found.tolist()))

    def read(self, rows: NDArray[np.int64]) -> Block:
        """Read the records in these slots, ascending. Each part is checked by its digest.

        Raises
        ------
        FormatError
            If a part is missing, or is not what was written.
        StoreError
            If the bucket cannot be reached.
        """
        lake, found = Lake(open_objects(self.url), b""), []
        for part in self.narrowed(rows).parts:
            slots, columns = lake.read(self.form, part, whole=True)
            wanted = np.flatnonzero(np.isin(slots, rows))
            found.append((slots[wanted], pick(columns, wanted)))
        slots = np.concatenate([np.empty(0, dtype=np.int64), *(each for each, _ in found)])
        if len(slots) != len(rows):
            raise FormatError(f"{self.url} lacks a record of a shard")
        return (
            self.form.join(pick(join([each for _, each in found]), np.argsort(slots))) if found else self.form.empty()
        )


def read_lake(database: Database) -> Lake | None:
    """The table that a folder's records lie in; None if they lie in the folder."""
    row = database.row("SELECT url, secret FROM lake")
    return None if row is None else Lake(open_objects(str(row[0])), bytes(row[1]))


def begin_lake(database: Database, url: str) -> Lake:
    """Begin a table for a new folder."""
    secret = secrets.token_bytes(32)
    lake = Lake.new(url, secret)
    database.execute("INSERT INTO lake VALUES (1, ?, ?, 0)", (lake.objects.url, secret))
    return lake


def read_number(database: Database) -> int:
    """How often the folder has switched parts."""
    row = database.row("SELECT number FROM lake")
    return 0 if row is None else int(row[0])


def read_parts(database: Database) -> tuple[Part, ...]:
    """The parts in force, ordered by shard."""
    rows = database.rows("SELECT name, shard, runs, digest FROM parts WHERE gone = 0 ORDER BY shard, name")
    return tuple(
        Part(name, shard, np.frombuffer(runs, dtype="<i8").reshape(-1, 2), bytes(digest))
        for name, shard, runs, digest in rows
    )


def switch_parts(database: Database, lake: Lake, change: PartChange) -> None:
    """Put parts in force, inside the caller's transaction. Those that are gone are named until they are removed."""
    number = read_number(database) + 1
    lake.begin_switch(number)
    database.execute("UPDATE lake SET number = ?", (number,))
    database.execute_many("UPDATE parts SET gone = 1 WHERE name = ?", [(name,) for name in change.gone])
    rows = [(part.name, part.shard, part.runs.astype("<i8").tobytes(), part.digest, 0) for part in change.made]
    database.execute_many("INSERT INTO parts VALUES (?, ?, ?, ?, ?)", rows)


def remove_gone(database: Database, lake: Lake) -> None:
    """Remove the parts that are no longer in force."""
    lake.remember(is_updating=False)
    lake.end_switch(read_number(database))
    gone = [name for (name,) in database.rows("SELECT name FROM parts WHERE gone = 1")]
    if gone:
        lake.objects.remove(name for name in gone if _PART.fullmatch(name))
        database.execute_many("DELETE FROM parts WHERE name = ? AND gone = 1", [(name,) for name in gone])
    if lake.may_have_strays:  # also those that arrive after the failure was told
        sweep_parts(database, lake)


def sweep_parts(database: Database, lake: Lake) -> None:
    """Remove every part that the folder does not name. Nothing may be staged at the same time."""
    there = lake.objects.names(_TABLE)  # first: parts of an open transaction are named later
    known = {name for (name,) in database.rows("SELECT name FROM parts")}
    lake.objects.remove(name for name in there if _PART.fullmatch(name) and name not in known)


def write_table(
    place: Place, lake: Lake, records: Records, recipe: Recipe
) -> tuple[RecordFolder, tuple[Part, ...], NDArray[np.int64]]:
    """Write all records anew: their names to a folder, everything to parts. The table counts once the folder names it.

    Features come in the order in which they are kept, some at a time, and are sorted by shard in a `Spool`.

    Parameters
    ----------
    place
        The folder to make.
    lake
        Where the parts go.
    records
        D.
    recipe
        What says which shard a record belongs to, and in which order.

    Returns
    -------
    folder : RecordFolder
        The names.
    parts : tuple of Part
        The parts.
    order : ndarray of int64
        The former slots, in the order of the new ones.
    """
    members, form = recipe.members(records), Form.of_records(records)
    order, ends = recipe.arranged(records, members), np.cumsum([len(slots) for slots in members])
    del members
    new = np.full(records.num_slots, -1, dtype=np.int32 if len(order) < 1 << 31 else np.int64)
    new[order] = np.arange(len(order))
    sums = np.zeros(len(order), dtype=np.uint64)
    folder = RecordFolder.new(place, form, has_features=False)
    at_once = _rows_at_once(form)
    with Spool(place, form.features) as spool:
        for block in records.blocks:
            for rows, features in block.runs(at_once):
                slots = new[rows + block.start].astype(np.int64)
                columns = form.split_features(features)
                if (slots < 0).any():
                    kept = np.flatnonzero(slots >= 0)
                    slots, columns = slots[kept], pick(columns, kept)
                sums[slots] = feature_sums(form, columns, slots)
                spool.add(slots, columns)
        del new
        for first in range(0, len(order), at_once):
            last = first + at_once
            folder.append(_named(records, order[first:last]), flush=False, elsewhere=sums[first:last])
        shards = [
            (shard, int(end) - int(count), int(end))
            for shard, (end, count) in enumerate(zip(ends, np.diff(ends, prepend=0), strict=True))
            if count
        ]
        parts: dict[int, list[Part]] = {}

        def write(one: tuple[int, int, int]) -> None:
            shard, low, high = one
            slots, columns = spool.read(low, high)
            columns |= form.split_names(_named(records, order[low:high]))
            parts[shard] = _write_pieces(lake, form, shard, slots, columns)

        for_each(write, shards, most=_THREADS)
    lake.objects.flush()
    folder.flush()
    return folder, tuple(part for shard in sorted(parts) for part in parts[shard]), order


def _write_pieces(lake: Lake, form: Form, shard: int, slots: NDArray[np.int64], columns: Columns) -> list[Part]:
    """Write a shard as a few parts: a deletion writes only one of them anew."""
    size = len(slots) * sum(column.width for column in form.columns)
    pieces = np.array_split(np.arange(len(slots)), min(_PIECES, max(1, size // _PIECE_BYTES + 1)))
    return [lake.write(form, shard, slots[rows], pick(columns, rows)) for rows in pieces if len(rows)]


def _rows_at_once(form: Form) -> int:
    width = sum(column.width for column in form.columns)
    return min(max(_BYTES_AT_ONCE // max(1, width), _FEWEST_ROWS), _MOST_ROWS)


def _named(records: Records, slots: NDArray[np.int64]) -> Block:
    """Everything but the features of records in slots of any order."""
    ascending, places = np.unique(slots, return_inverse=True)
    found = records.names(ascending)
    assert found.ids is not None
    subjects, weights = (None if each is None else each[places] for each in (found.subjects, found.weights))
    return Block(0, found.features, found.labels[places], found.ids[places], subjects, weights)


def change_table(lake: Lake, rows: LakeRows, state: EnsembleState, change: Change, added: Block | None) -> PartChange:
    """Write the parts that a round changes: those with a removed record without it, and additions to their shards."""
    form = rows.form
    without: dict[Part, NDArray[np.int64]] = {}
    if len(change.removed):
        which = rows.parts_of(change.removed)
        without = {rows.parts[number]: change.removed[which == number] for number in np.unique(which).tolist()}
    coming: dict[int, tuple[NDArray[np.int64], Columns]] = {}
    if added is not None:
        slots = np.arange(change.added.start, change.added.stop, dtype=np.int64)
        columns = form.split(added)
        for shard, places in _by_shard(state, slots):
            coming[shard] = slots[places], pick(columns, places)
    counts = Counter(part.shard for part in rows.parts)
    left: dict[int, list[Part]] = {}
    for part in rows.parts:
        is_crowded = part.shard in coming and counts[part.shard] >= _MOST_PARTS
        if part in without or is_crowded:
            left.setdefault(part.shard, []).append(part)
    made: list[Part] = []

    def write(shard: int) -> None:
        found = [_without(*lake.read(form, part, whole=True), without.get(part)) for part in left.get(shard, ())]
        found += [coming[shard]] if shard in coming else []
        slots, columns = np.concatenate([each for each, _ in found]), join([each for _, each in found])
        if len(slots):
            order = np.argsort(slots)
            is_whole = len(left.get(shard, ())) == counts[shard]
            made.extend(
                _write_pieces(lake, form, shard, slots[order], pick(columns, order))
                if is_whole
                else [lake.write(form, shard, slots[order], pick(columns, order))]
            )

    for_each(write, sorted(left.keys() | coming.keys()), most=_THREADS)
    lake.objects.flush()
    return PartChange(tuple(made), tuple(part.name for parts in left.values() for part in parts))


def _by_shard(state: EnsembleState, slots: NDArray[np.int64]) -> list[tuple[int, NDArray[np.int64]]]:
    shards, positions = state.recipe.cells(state.records, slots)
    found, starts = np.unique(shards, return_index=True)
    return list(zip(found.tolist(), np.split(positions, starts[1:]), strict=True))


def _without(
    slots: NDArray[np.int64], columns: Columns, removed: NDArray[np.int64] | None
) -> tuple[NDArray[np.int64], Columns]:
    if removed is None:
        return slots, columns
    kept = np.flatnonzero(~np.isin(slots, removed))
    return slots[kept], pick(columns, kept)


def changed_rows(rows: LakeRows, change: PartChange) -> LakeRows:
    """The source of features after a change is in force."""
    gone = set(change.gone)
    kept = [part for part in rows.parts if part.name not in gone]
    return replace(rows, parts=(*kept, *change.made))


def verify_parts(
    rows: LakeRows, num_slots: int, dead: Sequence[int], advance: Callable[[int], None] = lambda _: None
) -> Iterator[str]:
    """Read the whole table, and yield one line for each thing that is not as it was written."""
    seen = np.zeros(num_slots, dtype=np.int64)
    is_dead = np.zeros(num_slots, dtype=np.bool_)
    is_dead[np.array(dead, dtype=np.int64)] = True
    told = ""
    for part in rows.parts:
        try:
            slots, columns = rows.lake.read(rows.form, part, whole=True)
            if len(slots) and not 0 <= slots[0] <= slots[-1] < num_slots:
                raise FormatError(f"the object {part.name} of {rows.lake.objects.url} names rows that there are not")
            rows._require(part, slots[~is_dead[slots]], pick(columns, np.flatnonzero(~is_dead[slots])))
        except FormatError as error:
            if str(error) != told:  # of a folder that is not there each part says the same
                yield (told := str(error))
            for first, count in part.runs.tolist():
                seen[first : first + count] += 1
            continue
        seen[slots] += 1
        for slot in slots[is_dead[slots]][:1]:
            yield (
                f"the object {part.name} of {rows.lake.objects.url} holds the record in row {slot:,}, which was deleted"
            )
    for slot in np.flatnonzero(~is_dead & (seen != 1))[:1]:
        yield f"{rows.lake.objects.url} does not hold the record in row {slot:,} once"
