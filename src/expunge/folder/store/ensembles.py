"""Ensembles on disk: writing the next one, switching to it, and reading the one in force.

An ensemble is written while it is trained, to files that nothing refers to. Writing mostly waits for the disk, so
threads do it beside the training: the records as soon as they are known, each model as soon as it is trained. The
ensemble counts when the transaction around `activate` commits, and `erase` removes what it replaced. A crash before the
commit leaves the old ensemble and unused files, which the next opening removes. A crash after it leaves erasing to be
finished.
"""

from __future__ import annotations

import hashlib
import secrets
import shutil
from collections.abc import Iterable, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from expunge.core.errors import FormatError, InputError, StoreError
from expunge.core.files import flush_file, write_new
from expunge.core.prf import RecipeKey
from expunge.core.records import Change, Records
from expunge.folder.codec import encode_model
from expunge.folder.store.columns import Form
from expunge.folder.store.files import flush_files
from expunge.folder.store.models import StoredModels
from expunge.folder.store.slabs import RecordFolder
from expunge.folder.store.steps import report_step
from expunge.folder.store.store import Position, Store
from expunge.folder.store.threads import ThreadGroup
from expunge.training.ensemble import EnsembleState
from expunge.training.environment import Environment
from expunge.training.learners import Learner, Model, SlicedLearner
from expunge.training.recipe import Recipe
from expunge.training.sampling import Sampler

_THREADS = 8  # the disk does this many flushes together
ModelFile = tuple[str, str, bytes, bytes]  # name, format, digest, salt of its commitment
_SALT_BYTES = 32


@dataclass(frozen=True)
class StagedEnsemble:
    """The files of an ensemble that is not in force yet; `rewritten` says whether all records were written anew."""

    state: EnsembleState
    epoch: int
    form: Form
    files: dict[int, ModelFile]
    dead: NDArray[np.int64]
    rewritten: bool


class EnsembleWriter:
    """Writes the next ensemble to the disk while an update makes it, as the update's `StateWriter`.

    The caller must always close it. If there was no switch, `Store.tidy` then removes what it wrote.
    """

    def __init__(self, store: Store, *, trusted: Sequence[str]) -> None:
        self._store = store
        self._trusted = trusted
        self._threads = ThreadGroup(_THREADS)
        self._is_cut_short = False
        self._files: dict[int, Future[ModelFile]] = {}
        self._learner: Learner | SlicedLearner
        self._records: Future[StagedEnsemble]

    def start(self, state: EnsembleState, change: Change | None) -> None:
        """Start to write the records. The models of this state are not used."""
        before, form = self._store.position, self._store.form
        self._learner = state.learner
        self._records = self._threads.start(_write_records, self._store, state, change, before, form)

    def add(self, shard: int, model: Model) -> None:
        """Start to write a model of the state."""
        if self._is_cut_short:
            raise self._cut_short()
        self._files[shard] = self._threads.start(_write_model, self._store, self._learner, shard, model, self._trusted)

    def collect(self, state: EnsembleState) -> StagedEnsemble:
        """Wait until all is on the disk. Go on with the returned state, which has the models of the one given."""
        with self._store.explain_errors():
            try:
                records = self._records.result()
                files = {shard: written.result() for shard, written in self._files.items()}
            except CancelledError:
                raise self._cut_short() from None
            if files:
                flush_file(self._store.folder / "models")
            report_step("stage.done")
        kept = replace(records.state, models=state.models) if records.rewritten else state
        return replace(records, state=kept, files=files)

    def close(self) -> None:
        """Stop writing. When this returns or raises, no thread is writing."""
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

    def __init__(self, store: Store, *, trusted: Sequence[str]) -> None:
        self._store = store
        self._trusted = trusted
        self._threads = ThreadGroup(_THREADS)
        self._flushing: Future[None]

    def write(self, records: Records) -> Records:
        """Write the records to files and return them mapped from there; inside the caller's transaction."""
        with self._store.explain_errors():
            form = Form.of(records.blocks[0])
            folder = RecordFolder.write(self._store.epoch_path(1), form, [records.blocks[0]], flush=False)
            self._flushing = self._threads.start(folder.flush)
            self._store.write_fact("form", form.to_json())
            return _restored(folder, records, [])

    def write_models(self, state: EnsembleState) -> StagedEnsemble:
        """Write all models, and wait until everything is on the disk."""
        with self._store.explain_errors():
            files = {
                shard: self._threads.start(_write_model, self._store, state.learner, shard, model, self._trusted)
                for shard, model in enumerate(state.models)
            }
            written = {shard: job.result() for shard, job in files.items()}
            flush_file(self._store.folder / "models")
            self._flushing.result()
            return StagedEnsemble(state, 1, self._store.form, written, np.empty(0, dtype=np.int64), rewritten=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._threads.close()


def _write_records(
    store: Store, state: EnsembleState, change: Change | None, before: Position, form: Form
) -> StagedEnsemble:
    """Append the records that were added, or write all records anew if slots or columns have changed."""
    added = None
    if change is not None and len(change.added):
        added = state.records.extract(np.arange(change.added.start, change.added.stop, dtype=np.int64))
    if change is None or (added is not None and form.widened(added) != form):
        staged = _rewrite(store, state, before.epoch + 1)
    else:
        if added is not None:
            folder = RecordFolder(store.epoch_path(before.epoch), form)
            folder.cut(before.num_slots)  # remove what a failed attempt left behind
            folder.append(added)
        staged = StagedEnsemble(state, before.epoch, form, {}, change.removed, rewritten=False)
    report_step("stage.records")
    return staged


def _rewrite(store: Store, state: EnsembleState, epoch: int) -> StagedEnsemble:
    """Write all records that are left to new files, and map them from there."""
    if state.records.num_live < state.records.num_slots or len(state.records.blocks) > 1:
        state = state.compacted()
    block = state.records.blocks[0]
    form = Form.of(block)
    path = store.epoch_path(epoch)
    if path.exists():
        shutil.rmtree(path)
    folder = RecordFolder.write(path, form, [block])
    flush_files([path.parent])
    report_step("rewrite.done")
    records = _restored(folder, state.records, [])
    return StagedEnsemble(replace(state, records=records), epoch, form, {}, np.empty(0, dtype=np.int64), rewritten=True)


def _restored(folder: RecordFolder, pattern: Records, dead: Iterable[int]) -> Records:
    return Records.restored(
        folder.read(pattern.num_slots),
        dead=dead,
        classes=pattern.classes,
        allow_missing=pattern.allow_missing,
        layout=pattern.layout,
    )


def _write_model(
    store: Store, learner: Learner | SlicedLearner, shard: int, model: Model, trusted: Sequence[str]
) -> ModelFile:
    encoded = encode_model(learner, model, trusted=trusted)
    name = f"{shard:05d}-{secrets.token_hex(8)}.{encoded.format}"
    write_new(store.folder / "models" / name, encoded.data)
    report_step("stage.model")
    return name, encoded.format, hashlib.sha256(encoded.data).digest(), secrets.token_bytes(_SALT_BYTES)


def activate(store: Store, staged: StagedEnsemble, *, generation: int, round: int, models_trained: int) -> None:
    """Put a staged ensemble in force, inside the caller's transaction."""
    database, state = store.database, staged.state
    database.execute(
        "INSERT OR REPLACE INTO position VALUES (1, ?, ?, ?, ?, ?)",
        (generation, round, staged.epoch, state.records.num_slots, models_trained),
    )
    if staged.rewritten:
        store.write_fact("form", staged.form.to_json())
        database.execute("DELETE FROM dead")
    database.execute_many("INSERT INTO dead VALUES (?, 0)", [(int(slot),) for slot in staged.dead])
    environment = _environment_number(store, state.recipe.environment)  # of this process, which made the files
    rows = [(shard, *file, environment) for shard, file in staged.files.items()]
    database.execute_many("INSERT OR REPLACE INTO shards VALUES (?, ?, ?, ?, ?, ?)", rows)
    database.execute("DELETE FROM environments WHERE number NOT IN (SELECT environment FROM shards)")


def write_key(store: Store, key: RecipeKey, *, at: str, reason: str) -> None:
    """Put a recipe key ζ in force, inside the caller's transaction: when it was drawn, and why it was renewed."""
    values = (key.secret, int(key.is_system), at, reason)
    store.database.execute("INSERT OR REPLACE INTO recipe VALUES (1, ?, ?, ?, ?)", values)


def read_key_draw(store: Store) -> tuple[str, str]:
    """Read when the recipe key in force was drawn, and why it was renewed; no reason for the first one."""
    row = store.database.row("SELECT drawn_at, reason FROM recipe WHERE only = 1")
    if row is None:
        raise FormatError(f"{store.folder} lacks its recipe key: it is damaged")
    return str(row[0]), str(row[1])


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


def erase(store: Store) -> None:
    """Overwrite deleted records, remove replaced files and empty the log. This may be repeated."""
    with store.explain_errors():
        store.erase()


def read_records(store: Store) -> Records:
    """Read D^t. Features that are an array stay on the disk."""
    classes = store.fact("classes")
    form = store.form
    dead = [row[0] for row in store.database.rows("SELECT slot FROM dead")]
    return Records.restored(
        store.records.read(store.position.num_slots, dead),
        dead=dead,
        classes=load_classes(classes),
        allow_missing=bool(store.fact("allow_missing")),
        layout=form.layout,
    )


def read_state(
    store: Store, learner: Learner | SlicedLearner, sampler: Sampler, *, trusted: Sequence[str]
) -> EnsembleState:
    """Read the ensemble in force. Its models are read when they are first needed.

    A model file that is missing raises an error that names it. One that was changed does so when it is read. Only the
    models are stored: shards, orders, slices and seeds follow from the recipe key.
    """
    with store.explain_errors():
        records = read_records(store)
        rows = store.database.rows("SELECT shard, file, format, digest, environment FROM shards ORDER BY shard")
        if not rows or [row[0] for row in rows] != [*range(len(rows))]:
            raise FormatError(f"{store.folder} does not name a model for each shard: it is damaged")
        numerics, known = store.fact("numerics"), read_environments(store)
        recipe = Recipe(learner, len(rows), sampler, read_key(store), numerics).for_classes(records.classes)
        models = StoredModels.find(store.folder, [row[1:4] for row in rows], recipe.learner, trusted=trusted)
        environments = tuple(_known(store, known, row[4]) for row in rows)
        return EnsembleState(records, recipe, recipe.members(records), models, environments)


def keep_readable(state: EnsembleState, shards: Iterable[int]) -> None:
    """Read the models of these shards before their files are replaced: a prediction under way may still need them."""
    if isinstance(state.models, StoredModels):
        state.models.keep(shards)


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
