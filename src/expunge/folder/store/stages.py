"""The files of an ensemble that is not in force yet: written while it is trained, and nothing refers to them.

Writing is mostly waiting for the disk, so it is done by threads beside the training: the records as soon as they are
known, every model as soon as it is trained. A crash leaves loose files, which the next opening removes.
"""

from __future__ import annotations

import hashlib
import secrets
import shutil
from collections.abc import Iterable, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from expunge.core.errors import StoreError
from expunge.core.files import flush_file, write_new
from expunge.core.records import Change, Records
from expunge.folder.codec import encode_model
from expunge.folder.store.columns import Form
from expunge.folder.store.files import flush_files
from expunge.folder.store.slabs import RecordFolder
from expunge.folder.store.steps import reach
from expunge.folder.store.store import Present, Store
from expunge.folder.store.threads import Crew
from expunge.training.ensemble import EnsembleState
from expunge.training.learners import Learner, Model, SlicedLearner

_THREADS = 8  # the disk does so many flushes together
ModelFile = tuple[str, str, bytes]  # name, format, digest


@dataclass(frozen=True)
class Staged:
    """The files of an ensemble that is not in force yet; `rewritten` if all records were written anew."""

    state: EnsembleState
    epoch: int
    form: Form
    files: dict[int, ModelFile]
    dead: NDArray[np.int64]
    rewritten: bool


class Stage:
    """The next ensemble on its way to the disk: a `Follower` of the update that makes it.

    To be closed, whatever happens; what it wrote and nobody switched to is for `Store.tidy` to remove, after that.
    """

    def __init__(self, store: Store, *, trusted: Sequence[str]) -> None:
        self._store = store
        self._trusted = trusted
        self._crew = Crew(_THREADS)
        self._is_cut_short = False
        self._files: dict[int, Future[ModelFile]] = {}
        self._learner: Learner | SlicedLearner
        self._records: Future[Staged]

    def start(self, state: EnsembleState, change: Change | None) -> None:
        """Begin with the records; the models of this state are not looked at."""
        before, form = self._store.present, self._store.form
        self._learner = state.learner
        self._records = self._crew.start(_write_records, self._store, state, change, before, form)

    def add(self, shard: int, model: Model) -> None:
        """A model that belongs to the state."""
        if self._is_cut_short:
            raise self._cut_short()
        self._files[shard] = self._crew.start(_write_model, self._store, self._learner, shard, model, self._trusted)

    def finish(self, state: EnsembleState) -> Staged:
        """Have it all on the disk; the state in it, which has the models of the one given, is the one to go on with."""
        with self._store.explained():
            try:
                records = self._records.result()
                files = {shard: written.result() for shard, written in self._files.items()}
            except CancelledError:
                raise self._cut_short() from None
            if files:
                flush_file(self._store.folder / "models")
            reach("stage.done")
        kept = replace(records.state, models=state.models) if records.rewritten else state
        return replace(records, state=kept, files=files)

    def close(self) -> None:
        """Stop writing; when this returns, or is interrupted, nobody is."""
        self._crew.close()

    def halt(self) -> None:
        """The same for the handler of a signal, which may have come in the middle of anything here."""
        self._is_cut_short = True
        self._crew.halt()

    def _cut_short(self) -> StoreError:
        return StoreError(f"{self._store.folder} has been closed in the middle of an update; nothing was lost")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def stage(
    store: Store, state: EnsembleState, touched: Iterable[int], change: Change | None, *, trusted: Sequence[str]
) -> Staged:
    """Write the records that came and the models that were trained, all of them now."""
    with store.explained(), Stage(store, trusted=trusted) as made:
        made.start(state, change)
        for shard in touched:
            made.add(shard, state.models[shard])
        return made.finish(state)


class FirstStage:
    """A new deployment on its way to the disk: its records are flushed while its models are trained. To be closed."""

    def __init__(self, store: Store, *, trusted: Sequence[str]) -> None:
        self._store = store
        self._trusted = trusted
        self._crew = Crew(_THREADS)
        self._flushing: Future[None]

    def write(self, records: Records) -> Records:
        """The records into their files, and mapped from there; inside the caller's transaction."""
        with self._store.explained():
            form = Form.of(records.blocks[0])
            folder = RecordFolder.write(self._store.epoch_path(1), form, [records.blocks[0]], flush=False)
            self._flushing = self._crew.start(folder.flush)
            self._store.state_fact("form", form.to_json())
            return _restored(folder, records, [])

    def finish(self, state: EnsembleState) -> Staged:
        """Write all models; have everything on the disk."""
        with self._store.explained():
            files = {
                shard: self._crew.start(_write_model, self._store, state.learner, shard, model, self._trusted)
                for shard, model in enumerate(state.models)
            }
            written = {shard: job.result() for shard, job in files.items()}
            flush_file(self._store.folder / "models")
            self._flushing.result()
            return Staged(state, 1, self._store.form, written, np.empty(0, dtype=np.int64), rewritten=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._crew.close()


def _write_records(store: Store, state: EnsembleState, change: Change | None, before: Present, form: Form) -> Staged:
    """The records that came, behind the others; or all of them anew, if slots or columns have changed."""
    added = None
    if change is not None and len(change.added):
        added = state.records.extract(np.arange(change.added.start, change.added.stop, dtype=np.int64))
    if change is None or (added is not None and form.widened(added) != form):
        staged = _rewrite(store, state, before.epoch + 1)
    else:
        if added is not None:
            folder = RecordFolder(store.epoch_path(before.epoch), form)
            folder.cut(before.num_slots)  # what an attempt that failed has left
            folder.append(added)
        staged = Staged(state, before.epoch, form, {}, change.removed, rewritten=False)
    reach("stage.records")
    return staged


def _rewrite(store: Store, state: EnsembleState, epoch: int) -> Staged:
    """All records into new files, without the deleted ones, and mapped from there."""
    if state.records.num_live < state.records.num_slots or len(state.records.blocks) > 1:
        state = state.compacted()
    block = state.records.blocks[0]
    form = Form.of(block)
    path = store.epoch_path(epoch)
    if path.exists():
        shutil.rmtree(path)
    folder = RecordFolder.write(path, form, [block])
    flush_files([path.parent])
    reach("rewrite.done")
    records = _restored(folder, state.records, [])
    return Staged(replace(state, records=records), epoch, form, {}, np.empty(0, dtype=np.int64), rewritten=True)


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
    reach("stage.model")
    return name, encoded.format, hashlib.sha256(encoded.data).digest()
