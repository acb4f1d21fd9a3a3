"""Looking at a folder without the right to change it: while another process serves it, or on a read-only disk.

Where a deployment in a folder stands.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from expunge.core.errors import FormatError, StoreError
from expunge.core.records import Records
from expunge.evidence import Certificate
from expunge.folder.configuration import load_settings
from expunge.folder.deployment import DurableStatus
from expunge.folder.evidence import CurrentFacts, Evidence
from expunge.folder.fronts import get_front
from expunge.folder.opening import read_learner, restore_publisher
from expunge.folder.store import Store
from expunge.folder.store.ensembles import load_classes, read_records
from expunge.folder.store.requests import Request
from expunge.folder.store.store import Position
from expunge.serving.publishing import Front, Publisher
from expunge.serving.settings import Settings
from expunge.theory import Guarantee
from expunge.training.learners import Learner, SlicedLearner


class DeploymentView:
    """Status, requests, guarantee and certificates of a folder; no models, no predictions, nothing written.

    Predictions are counted as reserved: while another process serves, a few of them may not have left yet.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._store = Store.open(Path(path), read_only=True)
        try:
            with self._store.explain_errors():
                self._evidence = Evidence(self._store)
                self._num_classes = len(load_classes(self._store.fact("classes")))
                self._settings = load_settings(self._store.fact("settings"))
                self._publisher()
        except BaseException:
            self._store.close()
            raise

    @property
    def provenance(self) -> dict[str, Any]:
        """What the creator wrote down about where the data came from."""
        found: dict[str, Any] = self._store.fact("provenance")
        return found

    @property
    def status(self) -> DurableStatus:
        """Generation, round, records, budget, pending requests."""
        with self._store.database.snapshot():
            present = self._store.position
            return DurableStatus(
                generation=present.generation,
                round=present.round,
                num_records=self._num_records,
                num_shards=self._store.fact("settings")["n_shards"],
                budget=self._publisher().status,
                name=self._store.fact("name"),
                pending=self._evidence.requests.num_pending(),
                apply=self._store.fact("apply"),
            )

    def _publisher(self) -> Publisher:
        """The books as they are now: another process may be writing them."""
        return restore_publisher(self._store, self._settings, self._num_classes)[0]

    def _current_facts(self) -> CurrentFacts:
        present, publisher = self._store.position, self._publisher()
        predictions = publisher.status.predictions
        return CurrentFacts(present.generation, present.round, predictions, publisher.capacity, self._num_records)

    @property
    def _num_records(self) -> int:
        row = self._store.database.row("SELECT COUNT(*) FROM dead")
        return self._store.position.num_slots - (row[0] if row else 0)

    def guarantee(self) -> Guarantee:
        """As it was in force when the folder was last open for writing."""
        data = self._store.fact("guarantee")
        try:
            values = [float(data[name]) for name in ("alpha", "beta", "gamma")]
            rest = {name: data[name] for name in ("theorem", "parameters", "assumptions", "note", "form")}
            return Guarantee(*values, **rest)
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(
                f"{self._store.folder}: the guarantee that was written down is damaged: {error}"
            ) from None

    def request(self, request: str) -> Request:
        """What became of a request."""
        return self._evidence.requests.get(request)

    def requests(self) -> list[Request]:
        """All requests, oldest first."""
        return self._evidence.requests.all()

    def certificate(self, request: str | None = None) -> Certificate:
        """A signed certificate about a request, or about the whole deployment."""
        with self._store.database.snapshot():
            return self._evidence.certificate(request, guarantee=self.guarantee(), read_facts=self._current_facts)

    def close(self) -> None:
        """Let go."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_view(path: str | os.PathLike[str]) -> DeploymentView:
    """Look at a deployment's folder without the right to change it."""
    return DeploymentView(path)


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
        if store.form.is_mapped and store.position != at:
            raise StoreError(f"{store.folder} was changed while its records were read; read it again")
    finally:
        store.close()


def _unchanged(store: Store, trusted: tuple[str, ...]) -> tuple[Contents, Position]:
    """What is there, read between two switches, and where the folder stood: after a switch rows are overwritten.

    Nothing is held for longer: a reader of the database would keep whoever serves the folder from erasing.
    """
    for _ in range(_ATTEMPTS):
        at = store.position
        try:
            with store.explain_errors(), store.database.snapshot():
                found = _read(store, trusted)
        except Exception:  # whatever records say that are overwritten under the reader's eyes
            if store.position == at:
                raise
            continue
        if store.position == at:
            return found, at
    raise StoreError(f"{store.folder} is changed faster than it can be read; try again later")


def _read(store: Store, trusted: tuple[str, ...]) -> Contents:
    settings, front = load_settings(store.fact("settings")), get_front(store, trusted)
    return Contents(store.fact("name"), read_records(store), read_learner(store, trusted), settings, front)
