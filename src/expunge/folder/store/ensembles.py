"""Ensembles on disk: reading one, and switching to the next at once.

What was staged (`stages`) counts for nothing until `switch` commits; what the commit replaces is removed by `erase`. A
crash before the commit leaves the old ensemble and files that nobody knows; a crash after it leaves erasing to be
finished.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expunge.core.errors import FormatError, InputError
from expunge.core.records import Records
from expunge.folder.codec import decode_model
from expunge.folder.store.stages import Staged
from expunge.folder.store.store import Store
from expunge.training.ensemble import EnsembleState
from expunge.training.learners import Learner, Model, SlicedLearner
from expunge.training.learners.protocol import for_classes
from expunge.training.membership import Membership
from expunge.training.sampling import Sampler


def switch(
    store: Store, staged: Staged, *, generation: int, round: int, models_trained: int, serving: dict[str, Any]
) -> None:
    """Put what was staged in force; inside the caller's transaction."""
    database, state = store.database, staged.state
    database.execute(
        "INSERT OR REPLACE INTO present VALUES (1, ?, ?, ?, ?, ?, ?)",
        (generation, round, staged.epoch, state.records.num_slots, models_trained, json.dumps(serving)),
    )
    if staged.rewritten:
        store.state_fact("form", staged.form.to_json())
        database.execute("DELETE FROM dead")
        renumbered = [(_slots(state, shard), shard) for shard in range(state.num_shards) if shard not in staged.files]
        database.execute_many("UPDATE shards SET members = ? WHERE shard = ?", renumbered)
    database.execute_many("INSERT INTO dead VALUES (?, 0)", [(int(slot),) for slot in staged.dead])
    rows = [
        (shard, _slots(state, shard), _slices(state, shard), json.dumps(state.seeds[shard]), *file)
        for shard, file in staged.files.items()
    ]
    database.execute_many("INSERT OR REPLACE INTO shards VALUES (?, ?, ?, ?, ?, ?, ?)", rows)


def _slots(state: EnsembleState, shard: int) -> bytes:
    return state.membership.records_of(shard).astype("<u4").tobytes()


def _slices(state: EnsembleState, shard: int) -> bytes | None:
    return None if state.slices is None else state.slices[shard].astype("<u2").tobytes()


def erase(store: Store) -> None:
    """Overwrite deleted records, remove replaced files, empty the log. May be repeated at will."""
    with store.explained():
        store.erase()


def read_records(store: Store) -> Records:
    """D^t, its features left on the disk where they are an array."""
    classes = store.fact("classes")
    form = store.form
    dead = [row[0] for row in store.database.rows("SELECT slot FROM dead")]
    return Records.restored(
        store.records.read(store.present.num_slots, dead),
        dead=dead,
        classes=load_classes(classes),
        allow_missing=bool(store.fact("allow_missing")),
        layout=form.layout,
    )


def read_state(
    store: Store, learner: Learner | SlicedLearner, sampler: Sampler, *, trusted: Sequence[str]
) -> EnsembleState:
    """The ensemble in force; a model file that is missing or changed is an error that names it."""
    with store.explained():
        records = read_records(store)
        bound: Any = for_classes(learner, records.classes)  # type: ignore[arg-type]
        rows = store.database.rows("SELECT members, slices, seeds, file, format, digest FROM shards ORDER BY shard")
        members = [np.frombuffer(row[0], dtype="<u4").astype(np.uint32) for row in rows]
        has_slices = isinstance(bound, SlicedLearner)
        slices = tuple(np.frombuffer(row[1], dtype="<u2").astype(np.uint16) for row in rows) if has_slices else None
        seeds = tuple(tuple(json.loads(row[2])) for row in rows)
        models = tuple(_read_model(store, bound, *row[3:], trusted=trusted) for row in rows)
        membership = Membership.build(members, records.num_slots)
        return EnsembleState(records, membership, models, seeds, slices, bound, sampler)


def _read_model(store: Store, learner: Any, name: str, form: str, digest: bytes, *, trusted: Sequence[str]) -> Model:
    path = store.folder / "models" / name
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise FormatError(f"the model file {path} is missing") from None
    if hashlib.sha256(data).digest() != digest:
        raise FormatError(f"the model file {path} is not what was written: its content has another digest")
    model: Model = decode_model(learner, form, data, trusted=trusted)
    return model


def dump_classes(classes: NDArray[Any]) -> dict[str, Any]:
    """The list of labels as plain data; those that would not be read as they were are refused."""
    found = {"dtype": "object" if classes.dtype == object else classes.dtype.str, "values": classes.tolist()}
    strange = [value for value in found["values"] if not isinstance(value, str | int | float)]
    if strange:
        raise InputError(f"a label must be a text or a number to be stored, got {strange[0]!r}")
    return found


def load_classes(data: dict[str, Any]) -> NDArray[Any]:
    """What `dump_classes` wrote."""
    is_text = np.dtype(data["dtype"]).kind == "U"  # its width is that of the longest, whatever that is now
    return np.array(data["values"], dtype=np.str_ if is_text else data["dtype"])
