"""What a folder was made from: its records, its learner and its settings, for who studies it. No models, no secrets."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from expunge.core.errors import FormatError, StoreError
from expunge.core.records import Records
from expunge.folder.codec import decode
from expunge.folder.configuration import load_settings
from expunge.folder.fronts import get_front
from expunge.folder.store import Present, Store, read_records
from expunge.serving.publishing import Front
from expunge.serving.settings import Settings
from expunge.training.learners import Learner, SlicedLearner

_ATTEMPTS = 5


@dataclass(frozen=True)
class Contents:
    """Everything that a deployment of the same kind on the same data would be made of. Inside the trust boundary.

    The features of `records` may lie in the folder itself: copy what is needed for longer than `contents` is open.
    """

    name: str
    records: Records
    learner: Learner | SlicedLearner
    settings: Settings
    front: Front


@contextmanager
def contents(path: str | os.PathLike[str], *, trust: Sequence[str] = ()) -> Iterator[Contents]:
    """Read a deployment's folder, of one moment, without changing it, also while another process serves it.

    Who serves it is not held up. An update that comes before the end of the block is an error there if the features
    lie in the folder: some of them may have been erased before they were read.
    `trust` must name the code of your own that the folder was created with.
    """
    store = Store.open(Path(path), read_only=True)
    try:
        found, at = _unchanged(store, tuple(trust))
        yield found
        if store.form.is_mapped and store.present != at:
            raise StoreError(f"{store.folder} was changed while its records were read; read it again")
    finally:
        store.close()


def _unchanged(store: Store, trusted: tuple[str, ...]) -> tuple[Contents, Present]:
    """What is there, read between two switches, and where the folder stood: after a switch rows are overwritten.

    Nothing is held for longer: a reader of the database would keep whoever serves the folder from erasing.
    """
    for _ in range(_ATTEMPTS):
        at = store.present
        try:
            with store.explained(), store.database.snapshot():
                found = _read(store, trusted)
        except Exception:  # whatever records say that are overwritten under the reader's eyes
            if store.present == at:
                raise
            continue
        if store.present == at:
            return found, at
    raise StoreError(f"{store.folder} is changed faster than it can be read; try again later")


def _read(store: Store, trusted: tuple[str, ...]) -> Contents:
    settings, front = load_settings(store.fact("settings")), get_front(store, trusted)
    return Contents(store.fact("name"), read_records(store), read_learner(store, trusted), settings, front)


def read_learner(store: Store, trusted: tuple[str, ...]) -> Learner | SlicedLearner:
    """What the folder trains."""
    found = store.object("learner")
    if found is None:
        raise FormatError(f"{store.folder} does not say what it trains: it is damaged")
    learner: Learner | SlicedLearner = decode(*found, trusted=trusted)
    return learner
