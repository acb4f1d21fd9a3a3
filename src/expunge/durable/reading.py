"""What a folder was made from: its records, its learner and its settings, for who studies it. No models, no secrets."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from expunge.durable.configuration import load_settings
from expunge.durable.fronts import get_front
from expunge.errors import FormatError
from expunge.learners import Learner, SlicedLearner
from expunge.publishing import Front
from expunge.records import Records
from expunge.settings import Settings
from expunge.store import Store, read_records
from expunge.store.codec import decode


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

    `trust` must name the code of your own that the folder was created with.
    """
    trusted = tuple(trust)
    store = Store.open(Path(path), read_only=True)
    try:
        with store.explained(), store.database.snapshot():
            settings, front = load_settings(store.fact("settings")), get_front(store, trusted)
            learner = read_learner(store, trusted)
            yield Contents(store.fact("name"), read_records(store), learner, settings, front)
    finally:
        store.close()


def read_learner(store: Store, trusted: tuple[str, ...]) -> Learner | SlicedLearner:
    """What the folder trains."""
    found = store.object("learner")
    if found is None:
        raise FormatError(f"{store.folder} does not say what it trains: it is damaged")
    learner: Learner | SlicedLearner = decode(*found, trusted=trusted)
    return learner
