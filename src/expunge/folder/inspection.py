"""Looking at a folder without the right to change it: while another process serves it, or on a read-only disk.

Where a deployment in a folder stands.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Self

from expunge.core.errors import FormatError
from expunge.evidence import Certificate
from expunge.folder.configuration import load_settings
from expunge.folder.deployment import DurableStatus
from expunge.folder.evidence import Evidence, Standing
from expunge.folder.opening import make_books
from expunge.folder.store import Request, Store, load_classes
from expunge.serving.publishing import Publisher
from expunge.theory import Guarantee


class DeploymentView:
    """Status, requests, guarantee and certificates of a folder; no models, no predictions, nothing written.

    Predictions are counted as reserved: while another process serves, a few of them may not have left yet.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._store = Store.open(Path(path), read_only=True)
        try:
            with self._store.explained():
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
            present = self._store.present
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
        return make_books(self._store, self._settings, self._num_classes)[0]

    def _standing(self) -> Standing:
        present, publisher = self._store.present, self._publisher()
        predictions = publisher.status.predictions
        return Standing(present.generation, present.round, predictions, publisher.capacity, self._num_records)

    @property
    def _num_records(self) -> int:
        row = self._store.database.row("SELECT COUNT(*) FROM dead")
        return self._store.present.num_slots - (row[0] if row else 0)

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
            return self._evidence.certificate(request, guarantee=self.guarantee(), standing=self._standing)

    def close(self) -> None:
        """Let go."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def look(path: str | os.PathLike[str]) -> DeploymentView:
    """Look at a deployment's folder without the right to change it."""
    return DeploymentView(path)
