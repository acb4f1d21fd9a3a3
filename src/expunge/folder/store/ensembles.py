"""Ensembles on disk: writing the next one, switching to it, and reading the one in force.

An ensemble is written while it is trained, to files that nothing refers to. Writing mostly waits for the disk, so
threads do it beside the training: the records as soon as they are known, each model as soon as it is trained. The
ensemble counts when the transaction around `activate` commits, and `erase` removes what it replaced. A crash before the
commit leaves the old ensemble and unused files, which the next opening removes. A crash after it leaves erasing to be
finished.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from expunge.core.blocks import Block, arranged
from expunge.core.errors import FormatError, InputError, StoreError
from expunge.core.place import Place
from expunge.core.prf import RecipeKey
from expunge.core.records import Change, Records, RowSource
from expunge.folder.codec import Encoded, encode_model
from expunge.folder.store.checksums import add_totals
from expunge.folder.store.columns import Form
from expunge.folder.store.files import flush_files
from expunge.folder.store.lake import (
    LakeRows,
    LakeTable,
    Part,
    PartChange,
    change_table,
    changed_rows,
    read_parts,
    switch_parts,
    write_table,
)
from expunge.folder.store.models import StoredModels
from expunge.folder.store.packs import PACK, SALT_BYTES, SHELF, Shelf, is_pack, is_shelf, shelved, write_pack
from expunge.folder.store.slabs import RecordFolder, SlabRows, feature_sums
from expunge.folder.store.steps import report_step
from expunge.folder.store.store import Position, Replaced, Store
from expunge.folder.store.threads import ThreadGroup
from expunge.training.ensemble import EnsembleState
from expunge.training.environment import Environment
from expunge.training.learners import Learner, Model, SlicedLearner
from expunge.training.recipe import Recipe
from expunge.training.sampling import Sampler

_NONE = np.empty(0, dtype=np.int64)
_BYTES_AT_ONCE, _FEWEST_ROWS, _MOST_ROWS = 1 << 26, 1 << 8, 1 << 16  # of records that are written together
_THREADS = 8  # the disk does this many flushes together
_FEW = 2  # models of an update that get files of their own
_FEW_RECORDS = 1 << 8  # that are written without a thread: to start one takes longer
Begin = Callable[..., "Future[WrittenModel]"]  # begins to write a model
WrittenModel = tuple[
    str, str, bytes, bytes, int | None
]  # name, format, digest, salt of its commitment if it lies in a file of all, cell of its key


@dataclass(frozen=True)
class StagedEnsemble:
    """The files of an ensemble that is not in force yet; `rewritten` says whether all records were written anew.

    `files` has each shard whose model is in another file from now on, and `trained` those whose model is another one.
    `total` is that of the checksums of its records, and `parts` what changes in the lake, if there is one.
    """

    state: EnsembleState
    epoch: int
    form: Form
    files: dict[int, WrittenModel]
    trained: tuple[int, ...]
    dead: NDArray[np.int64]
    rewritten: bool
    total: int
    parts: PartChange | None = None


class EnsembleWriter:
    """Writes the next ensemble to the disk while an update makes it, as the update's `StateWriter`.

    The caller must always close it. If there was no switch, `Store.tidy` then removes what it wrote.
    """

    def __init__(self, store: Store, *, trusted: Sequence[str]) -> None:
        self._store = store
        self._trusted = trusted
        self._threads = ThreadGroup(_THREADS)
        self._is_cut_short = False
        self._is_packed = store.is_packed
        self._few: list[tuple[int, Model]] = []  # models that each get a file of their own, if no more come
        self._writes_anew = False
        self._shelf: Shelf | None = None
        self._shelved: dict[int, WrittenModel] = {}
        self._files: dict[int, Future[WrittenModel]] = {}
        self._packed: dict[int, Encoded] = {}
        self._learner: Learner | SlicedLearner
        self._records: Future[StagedEnsemble]

    def start(self, state: EnsembleState, change: Change | None) -> None:
        """Start to write the records. The models of this state are not used."""
        before, form, is_new = self._store.position, self._store.form, state.key != read_key(self._store)
        # Records of independent shards lie in a public order: files in another one would tell that there is a new key.
        change = None if is_new and not (self._is_packed and state.sampler.is_independent) else change
        self._learner, self._writes_anew = state.learner, change is None
        lake = self._store.lake
        if lake is not None:
            lake.remember(is_updating=True)
        writes = change is None or len(change.added) > _FEW_RECORDS or lake is not None
        begin = self._threads.start if writes else self._threads.run
        self._records = begin(_write_records, self._store, state, change, before, form)

    def add(self, shard: int, model: Model) -> None:
        """Start to write a model of the state."""
        if self._is_cut_short:
            raise self._cut_short()
        if self._is_packed:  # not in a thread for each: any user of the machine can count them
            self._packed[shard] = _encode_model(self._learner, model, self._trusted)
            return
        self._few.append((shard, model))
        if self._writes_anew:  # with everything else
            self._write_few(self._threads.start)
        elif self._shelf is not None or len(self._few) > _FEW:
            self._shelve_few()

    def _write_few(self, begin: Begin) -> None:
        few, self._few = self._few, []
        for each in few:
            self._files[each[0]] = begin(_write_model, self._store, self._learner, *each, self._trusted)

    def _shelve_few(self) -> None:
        """Write models into the one file of this update."""
        few, self._few = self._few, []
        with self._store.explain_errors():
            if self._shelf is None:
                name = f"{few[0][0]:05d}-{secrets.token_hex(8)}.{SHELF}"
                self._shelf = Shelf(self._store.place / "models" / name)
            for shard, model in few:
                content, written = _sealed_model(self._store, self._learner, model, self._trusted)
                self._shelf.add(shard, content)
                self._shelved[shard] = (self._shelf.place.name, *written)
                report_step("stage.model")

    def collect(self, state: EnsembleState) -> StagedEnsemble:
        """Wait until all is on the disk. Go on with the returned state, which has the models of the one given."""
        with self._store.explain_errors():
            try:
                if self._shelf is not None:
                    self._shelf.finish()
                self._write_few(self._threads.run)
                records = self._records.result()
                files = self._shelved | {shard: written.result() for shard, written in self._files.items()}
            except CancelledError:
                raise self._cut_short() from None
            trained = tuple(files or self._packed)
            if self._is_packed:
                files = _write_all_models(self._store, self._packed, state.num_shards)
            if files:
                flush_files([self._store.place / "models"])
            self._store.flush_keys()
            report_step("stage.done")
        kept = state
        if records.parts is not None and not records.rewritten:
            kept = state.with_models({}, _with_rows(state.records, records.parts))
        if records.rewritten:
            kept = replace(records.state, models=state.models, environments=state.environments)
        return replace(records, state=kept, files=files, trained=trained)

    def close(self) -> None:
        """Stop writing. When this returns or raises, no thread is writing."""
        if self._shelf is not None:
            self._shelf.close()
        self._threads.close()

    def halt(self) -> None:
        """Stop writing, from a signal handler: it may have interrupted any other method."""
        self._is_cut_short = True
        self._threads.halt()

    def _cut_short(self) -> StoreError:
        return StoreError(f"{self._store.folder} has been closed in the middle of an update; nothing was lost")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class FirstEnsembleWriter:
    """Writes the first ensemble of a deployment. The records are flushed while models train. Always close it."""

    def __init__(self, store: Store, *, trusted: Sequence[str], is_packed: bool = False) -> None:
        self._store = store
        self._trusted = trusted
        self._is_packed = is_packed
        self._threads = ThreadGroup(_THREADS)
        self._flushing: Future[None] | None = None
        self._total: int
        self._parts: tuple[Part, ...] = ()

    def write(self, records: Records, recipe: Recipe) -> Records:
        """Write the records to files in the recipe's order, and return them mapped from there.

        This is done inside the caller's transaction.
        """
        with self._store.explain_errors():
            if self._store.lake is not None:
                folder, self._parts, order = write_table(self._store.epoch_place(1), self._store.lake, records, recipe)
                self._total = folder.total(len(order))
                self._store.write_fact("form", folder.form.to_json())
                return _restored(self._store, folder, records, len(order), self._parts)
            order, form = recipe.layout(records), Form.of_records(records)
            folder = RecordFolder.write(
                self._store.epoch_place(1), form, _in_order(records, order, form), self._store.keys, flush=False
            )
            self._flushing = self._threads.start(folder.flush)
            self._total = folder.total(len(order))
            self._store.write_fact("form", form.to_json())
            return _restored(self._store, folder, records, len(order))

    def write_models(self, state: EnsembleState) -> StagedEnsemble:
        """Write all models, and wait until everything is on the disk."""
        with self._store.explain_errors():
            if self._is_packed:
                made = {
                    shard: _encode_model(state.learner, model, self._trusted)
                    for shard, model in enumerate(state.models)
                }
                written = _write_all_models(self._store, made, state.num_shards)
            else:
                files = {
                    shard: self._threads.start(_write_model, self._store, state.learner, shard, model, self._trusted)
                    for shard, model in enumerate(state.models)
                }
                written = {shard: job.result() for shard, job in files.items()}
            flush_files([self._store.place / "models"])
            self._store.flush_keys()
            if self._flushing is not None:
                self._flushing.result()
            form, shards = self._store.form, tuple(written)
            parts = None if self._store.lake is None else PartChange(self._parts, ())
            return StagedEnsemble(
                state, 1, form, written, shards, _NONE, rewritten=False, total=self._total, parts=parts
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._threads.close()


def _write_records(
    store: Store, state: EnsembleState, change: Change | None, before: Position, form: Form
) -> StagedEnsemble:
    """Append the records that were added, or write all records anew if slots, columns or the key have changed."""
    added = None
    if change is not None and len(change.added):
        added = state.records.extract(np.arange(change.added.start, change.added.stop, dtype=np.int64))
    if change is None or (added is not None and form.widened(added) != form):
        staged = _rewrite(store, state, before.epoch + 1)
    else:
        folder = store.records_of(before.epoch)
        total = add_totals(before.total, folder.total_of(change.removed, before.num_slots), sign=-1)
        parts, sums = None, None
        if store.lake is not None:
            parts = change_table(store.lake, store.lake_rows(before.num_slots), state, change, added)
        if added is not None:
            folder.cut(before.num_slots)  # remove what a failed attempt left behind
            if store.lake is not None:
                slots = np.arange(change.added.start, change.added.stop, dtype=np.int64)
                sums = feature_sums(form, form.split_features(added.features), slots)
            total = add_totals(total, folder.append(added, elsewhere=sums))
        staged = StagedEnsemble(
            state, before.epoch, form, {}, (), change.removed, rewritten=False, total=total, parts=parts
        )
    report_step("stage.records")
    return staged


def _rewrite(store: Store, state: EnsembleState, epoch: int) -> StagedEnsemble:
    """Write all records that are left to new files, in the recipe's order, and map them from there."""
    place, parts = store.epoch_place(epoch), None
    if place.exists():
        place.remove_tree()
    if store.lake is None:
        order, form = state.recipe.layout(state.records), Form.of_records(state.records)
        folder = RecordFolder.write(place, form, _in_order(state.records, order, form), store.keys)
    else:
        folder, made, order = write_table(place, store.lake, state.records, state.recipe)
        parts, form = PartChange(made, tuple(part.name for part in read_parts(store.database))), folder.form
    flush_files([place.parent])
    report_step("rewrite.done")
    records = _restored(store, folder, state.records, len(order), () if parts is None else parts.made)
    places = np.empty(state.records.num_slots, dtype=np.uint32)
    places[order] = np.arange(len(order), dtype=np.uint32)
    moved = replace(state, records=records, members=tuple(np.sort(places[slots]) for slots in state.members))
    total = folder.total(len(order))
    return StagedEnsemble(moved, epoch, form, {}, (), _NONE, rewritten=True, total=total, parts=parts)


def _in_order(records: Records, order: NDArray[np.int64], form: Form) -> Iterator[Block]:
    """The records in this order of their slots, some at a time."""
    width = sum(column.width for column in form.columns)
    at_once = min(max(_BYTES_AT_ONCE // max(1, width), _FEWEST_ROWS), _MOST_ROWS)
    for first in range(0, len(order), at_once):
        slots, places = np.unique(order[first : first + at_once], return_inverse=True)
        yield arranged(records.extract(slots), places)


def _with_rows(records: Records, parts: PartChange) -> Records:
    """The same records, with their features in the parts that are in force after a change."""
    first, *rest = records.blocks
    assert isinstance(first.elsewhere, LakeRows)
    rows = changed_rows(first.elsewhere, parts)
    return replace(
        records, blocks=(replace(first, elsewhere=rows), *rest), source=LakeTable.of(rows, records.num_slots)
    )


def _source(store: Store, folder: RecordFolder, block: Block, num_slots: int) -> RowSource:
    """Where other processes read these records."""
    if isinstance(block.elsewhere, LakeRows):
        return LakeTable.of(block.elsewhere, num_slots)
    return SlabRows(store.folder, folder, num_slots)


def _restored(
    store: Store, folder: RecordFolder, pattern: Records, num_slots: int, parts: Sequence[Part] = ()
) -> Records:
    block = folder.read(num_slots)
    if store.lake is not None:
        sums = folder.stored_sums(num_slots)
        block = replace(block, elsewhere=LakeRows(store.lake, folder.form, tuple(parts), sums))
    return Records.restored(
        block,
        dead=(),
        classes=pattern.classes,
        allow_missing=pattern.allow_missing,
        layout=pattern.layout,
        source=_source(store, folder, block, num_slots),
    )


def _write_model(
    store: Store, learner: Learner | SlicedLearner, shard: int, model: Model, trusted: Sequence[str]
) -> WrittenModel:
    content, written = _sealed_model(store, learner, model, trusted)
    name = f"{shard:05d}-{secrets.token_hex(8)}.{written[0]}"
    (store.place / "models" / name).write_new(content)
    report_step("stage.model")
    return name, *written


def _sealed_model(
    store: Store, learner: Learner | SlicedLearner, model: Model, trusted: Sequence[str]
) -> tuple[bytes, tuple[str, bytes, bytes, int | None]]:
    """What is written of a model: its bytes and its salt, encrypted if the folder is; and what is known of that."""
    encoded = encode_model(learner, model, trusted=trusted, beside_records=True)
    told = encoded.data + secrets.token_bytes(SALT_BYTES)
    content, cell = store.seal(told)
    return content, (encoded.format, hashlib.sha256(told).digest(), b"", cell)


def _encode_model(learner: Learner | SlicedLearner, model: Model, trusted: Sequence[str]) -> Encoded:
    encoded = encode_model(learner, model, trusted=trusted, beside_records=True)
    report_step("stage.model")
    return encoded


def _write_all_models(store: Store, made: Mapping[int, Encoded], num_shards: int) -> dict[int, WrittenModel]:
    """Write one file with the models that were made and the others as they are, each with a new salt."""
    models = store.place / "models"
    name = f"{num_shards:05d}-{secrets.token_hex(8)}.{PACK}"
    known = {
        shard: (file, form, bytes(digest), cell)
        for shard, file, form, digest, cell in store.database.rows(
            "SELECT shard, file, format, digest, cell FROM shards"
        )
    }
    in_force = None if len(made) == num_shards and not known else models / known[0][0]
    sealed = store.seal_some({shard: encoded.data for shard, encoded in made.items()}, num_shards)
    write_pack(models / name, num_shards, {shard: content for shard, (content, _) in sealed.items()}, in_force)
    found = {}
    for shard in range(num_shards):
        form, digest, cell = known[shard][1:] if shard in known else ("", b"", None)
        if shard in made:
            form, digest, cell = made[shard].format, hashlib.sha256(made[shard].data).digest(), sealed[shard][1]
        found[shard] = (name, form, digest, secrets.token_bytes(SALT_BYTES), cell)
    return found


def activate(store: Store, staged: StagedEnsemble, *, generation: int, round: int, models_trained: int) -> None:
    """Put a staged ensemble in force, inside the caller's transaction."""
    database, state = store.database, staged.state
    if staged.parts is not None and store.lake is not None:
        switch_parts(database, store.lake, staged.parts)
    database.execute(
        "INSERT OR REPLACE INTO position VALUES (1, ?, ?, ?, ?, ?, ?)",
        (generation, round, staged.epoch, state.records.num_slots, str(staged.total), models_trained),
    )
    if staged.rewritten:
        store.write_fact("form", staged.form.to_json())
        database.execute("DELETE FROM dead")
    if len(staged.dead):
        slots = np.sort(staged.dead).astype("<i8").tobytes()
        database.execute("INSERT INTO dead VALUES (?, ?, ?, 0)", (round, slots, len(staged.dead)))
    trained = [state.environments[shard] for shard in staged.files]
    distinct = {id(each): each for each in trained}  # few: to compare every one takes longer
    numbers = {key: _environment_number(store, each) for key, each in distinct.items()}
    rows = [
        (shard, *file[:-1], numbers[id(state.environments[shard])], file[-1]) for shard, file in staged.files.items()
    ]
    database.execute_many("INSERT OR REPLACE INTO shards VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
    database.execute("DELETE FROM shards WHERE shard >= ?", (state.num_shards,))  # another recipe may have fewer
    if len(database.rows("SELECT number FROM environments LIMIT 2")) > 1:  # else there is nothing to find
        database.execute("DELETE FROM environments WHERE number NOT IN (SELECT environment FROM shards)")


def write_key(store: Store, key: RecipeKey, *, at: str, reason: str, draw: str = "") -> None:
    """Put a recipe key ζ in force, inside the caller's transaction: when it was drawn, and why it was renewed.

    `draw` says how a witness had a part in it; empty if none had.
    """
    values = (key.secret, int(key.is_system), at, reason, draw)
    store.database.execute("INSERT OR REPLACE INTO recipe VALUES (1, ?, ?, ?, ?, ?)", values)


def read_key_draw(store: Store) -> tuple[str, str]:
    """Read when the recipe key in force was drawn, and why it was renewed; no reason for the first one."""
    row = store.database.row("SELECT drawn_at, reason FROM recipe WHERE only = 1")
    if row is None:
        raise FormatError(f"{store.folder} lacks its recipe key: it is damaged")
    return str(row[0]), str(row[1])


def read_witnessed_draw(store: Store) -> str:
    """Read how a witness had a part in the recipe key in force, as `write_key` wrote it."""
    row = store.database.row("SELECT draw FROM recipe WHERE only = 1")
    return "" if row is None else str(row[0])


def _environment_number(store: Store, environment: Environment) -> int:
    facts = environment.to_text()
    store.database.execute("INSERT OR IGNORE INTO environments (facts) VALUES (?)", (facts,))
    row = store.database.row("SELECT number FROM environments WHERE facts = ?", (facts,))
    assert row is not None
    return int(row[0])


def read_environments(store: Store) -> dict[int, Environment]:
    """Read the environments that the models in service were trained in, by their number in `shards`."""
    rows = store.database.rows("SELECT number, facts FROM environments")
    return {number: Environment.from_text(facts) for number, facts in rows}


def count_environments(store: Store) -> dict[Environment, int]:
    """Count the models in service by their environment, without reading them."""
    found = read_environments(store)
    rows = store.database.rows("SELECT environment, COUNT(*) FROM shards GROUP BY environment")
    return {_known(store, found, number): count for number, count in rows}


def _known(store: Store, environments: dict[int, Environment], number: int) -> Environment:
    if number not in environments:
        raise FormatError(f"{store.folder} does not say in which environment a model was trained: it is damaged")
    return environments[number]


def replaced_models(store: Store, staged: StagedEnsemble, requests: Sequence[str] = ()) -> Replaced | None:
    """The models that a staged ensemble replaces, before it is in force; None if it replaces anything else.

    `requests` are those that it applies: their keys go too.
    """
    if staged.rewritten or store.is_packed or any(is_pack(name) for name, *_ in staged.files.values()):
        return None
    found = _files_of(store, [*staged.files])
    if len(found) < len(staged.files):
        return None
    gone = dict[str, set[int]]()
    for shard, name in found.items():
        gone.setdefault(name, set()).add(shard)
    files, shelves = list[Place](), list[tuple[Place, set[int]]]()
    for name, shards in gone.items():
        place = store.place / "models" / name
        others = [] if not is_shelf(name) else [shard for shard in shelved(place) if shard not in shards]
        if name in _files_of(store, others).values():
            shelves.append((place, shards))
        else:
            files.append(place)
    return Replaced(files, shelves, [] if store.keys is None else _cells_of(store, [*staged.files], requests))


def _cells_of(store: Store, shards: Sequence[int], requests: Sequence[str]) -> list[int]:
    """Where the keys of some models and pending requests lie."""
    query = (
        "SELECT cell FROM shards WHERE shard IN (SELECT value FROM json_each(?)) "
        "UNION ALL SELECT cell FROM requests WHERE request IN (SELECT value FROM json_each(?))"
    )
    rows = store.database.rows(query, (json.dumps(shards), json.dumps(requests)))
    return [cell for (cell,) in rows if cell is not None]


def _files_of(store: Store, shards: Sequence[int]) -> dict[int, str]:
    """The files of some shards' models."""
    query = "SELECT shard, file FROM shards WHERE shard IN (SELECT value FROM json_each(?))"
    return {shard: str(name) for shard, name in store.database.rows(query, (json.dumps(shards),))}


def erase(store: Store, replaced: Replaced | None = None, *, empties_log: bool = True) -> None:
    """Overwrite deleted records and replaced models, and empty the log. This may be repeated.

    `replaced` are the models that are no longer in force, if that is known; else they are looked for.
    """
    with store.explain_errors():
        store.erase(replaced, empties_log=empties_log)


def read_records(store: Store) -> Records:
    """Read D^t, and check what is read. Features that are an array stay on the disk, and are checked when used."""
    classes = store.fact("classes")
    form = store.form
    dead, erased = store.deleted_slots()
    store.require_total()
    folder, num_slots = store.records, store.position.num_slots
    block = folder.read(num_slots, dead, erased)
    if store.lake is not None:
        block = replace(block, elsewhere=store.lake_rows(num_slots))
    return Records.restored(
        block,
        dead=dead,
        classes=load_classes(classes),
        allow_missing=bool(store.fact("allow_missing")),
        layout=form.layout,
        source=_source(store, folder, block, num_slots),
    )


def let_be_read(state: EnsembleState, folder: Path) -> None:
    """Let other processes read the records of a state that is in force: all of its rows are in this folder now."""
    source = state.records.source
    if isinstance(source, SlabRows):
        source.folder = folder
        source.num_rows = max(source.num_rows, state.records.num_slots if state.records.places is None else 0)


def read_state(
    store: Store, learner: Learner | SlicedLearner, sampler: Sampler, *, trusted: Sequence[str]
) -> EnsembleState:
    """Read the ensemble in force. Its models are read when they are first needed.

    A model file that is missing raises an error that names it. One that was changed does so when it is read. Only the
    models are stored: shards, orders, slices and seeds follow from the recipe key.
    """
    with store.explain_errors():
        records = read_records(store)
        rows = store.database.rows("SELECT shard, file, format, digest, environment, cell FROM shards ORDER BY shard")
        if not rows or [row[0] for row in rows] != [*range(len(rows))]:
            raise FormatError(f"{store.folder} does not name a model for each shard: it is damaged")
        numerics, known = store.fact("numerics"), read_environments(store)
        recipe = Recipe(learner, len(rows), sampler, read_key(store), numerics).for_classes(records.classes)
        cells = [row[5] for row in rows]
        members = recipe.members(records)
        models = StoredModels.find(
            store.place,
            [row[1:4] for row in rows],
            recipe.learner,
            trusted=trusted,
            keys=store.keys,
            cells=cells,
            rows=lambda shard: recipe.changed_rows(shard, records, members[shard]),
        )
        environments = tuple(_known(store, known, row[4]) for row in rows)
        return EnsembleState(records, recipe, members, models, environments)


def keep_readable(state: EnsembleState, staged: StagedEnsemble) -> None:
    """Read the models whose files are replaced before they are: a prediction under way may still need them.

    Models of records that are written anew are read too, where they were stored beside their records.
    """
    if isinstance(state.models, StoredModels):
        if staged.rewritten:
            state.models.keep(state.models.beside_records)
        is_same = state.num_shards == staged.state.num_shards  # else everything is trained anew
        state.models.keep(staged.trained if is_same else range(state.num_shards))


def move_models(store: Store, state: EnsembleState, staged: StagedEnsemble) -> None:
    """Read the models that were not trained from the new file, where there is one, before the old one is removed."""
    if staged.files and isinstance(state.models, StoredModels):
        name = next(iter(staged.files.values()))[0]
        if is_pack(name):
            state.models.move(store.place / "models" / name, staged.trained)


def read_key(store: Store) -> RecipeKey:
    """Read the recipe key ζ in force."""
    row = store.database.row("SELECT secret, is_system FROM recipe WHERE only = 1")
    if row is None:
        raise FormatError(f"{store.folder} lacks its recipe key: it is damaged")
    return RecipeKey(row[0], is_system=bool(row[1]))


def dump_classes(classes: NDArray[Any]) -> dict[str, Any]:
    """Return the list of labels as plain data. Labels that could not be read back are refused."""
    found = {"dtype": "object" if classes.dtype == object else classes.dtype.str, "values": classes.tolist()}
    strange = [value for value in found["values"] if not isinstance(value, str | int | float)]
    if strange:
        raise InputError(f"a label must be a text or a number to be stored, got {strange[0]!r}")
    return found


def load_classes(data: dict[str, Any]) -> NDArray[Any]:
    """Read what `dump_classes` wrote."""
    is_text = np.dtype(data["dtype"]).kind == "U"  # the width follows the longest label
    return np.array(data["values"], dtype=np.str_ if is_text else data["dtype"])
