"""Memory and disk of one deployment are of the same round, or memory is of no more use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from expunge.errors import StoreError
from expunge.store import Store


class Alignment:
    """Notices when an interruption came between the switch on the disk and the switch in memory.

    What is in memory then is not the round that the disk has: it answers nobody any more, and no update builds on it.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._is_switching = False
        self.is_lost = False

    def check(self) -> None:
        """An error if it is known to be lost."""
        if self.is_lost:
            raise StoreError(
                f"{self._store.folder}: an update was interrupted half-way; close the folder and open it again"
            )

    def require(self, generation: int, round: int) -> None:
        """An error unless the disk stands where memory does."""
        self.is_lost = self.is_lost or self._is_switching or not self._store.is_at(generation, round)
        self.check()

    def after_failure(self, generation: int, round: int) -> None:
        """Find out whether what failed has parted the two; if the disk does not say, it has."""
        is_lost = True
        try:
            with suppress(StoreError):
                is_lost = self._is_switching or not self._store.is_at(generation, round)
        finally:
            self.is_lost = self.is_lost or is_lost

    @contextmanager
    def switching(self) -> Iterator[None]:
        """While memory is switched; what is interrupted here is not taken up again."""
        self._is_switching = True
        yield
        self._is_switching = False
