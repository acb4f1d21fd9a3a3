"""Petitions: erasure requests as other systems send them, each under an id of the sender's own.

A petition is received once: its id gives the same request again, also after a restart, once the request is applied, and
after it was cancelled. Of what it asks for only a keyed hash is kept. Beside it are the addresses that are to be told
when the request is applied or cancelled, until they were told.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterable
from dataclasses import dataclass

from expunge.folder.store.store import Store


@dataclass(frozen=True, slots=True)
class Petition:
    """One petition.

    Attributes
    ----------
    number
        Its place among all petitions.
    sender
        The integration that sent it.
    id
        The sender's name for it.
    request
        The request that it became.
    received_at
        When it was received.
    """

    number: int
    sender: str
    id: str
    request: str
    received_at: str


@dataclass(frozen=True, slots=True)
class Callback:
    """An address that is to be told what became of a petition.

    Attributes
    ----------
    number
        Its place among all callbacks.
    message
        The id of the message, the same for each attempt.
    url
        The address.
    form
        The form of the message: "opendsr" or "webhook".
    attempts
        How often it was tried.
    petition
        The petition.
    state
        "applied" or "cancelled".
    at
        When the request was applied, or cancelled.
    """

    number: int
    message: str
    url: str
    form: str
    attempts: int
    petition: Petition
    state: str
    at: str


_PETITION = "p.number, p.sender, p.id, p.request, p.received_at"


class PetitionBook:
    """The petitions of one deployment, in its database."""

    def __init__(self, store: Store, hash_key: bytes) -> None:
        self._store, self._hash_key = store, hash_key

    def find(self, sender: str, id: str) -> Petition | None:
        """Return the petition that a sender gave this id, or None."""
        query = f"SELECT {_PETITION} FROM petitions p WHERE p.sender = ? AND p.id = ?"
        row = self._store.database.row(query, (sender, id))
        return None if row is None else Petition(*row)

    def asks(self, petition: Petition, asked: bytes) -> bool:
        """Whether the petition asked for this."""
        row = self._store.database.row("SELECT fingerprint FROM petitions WHERE number = ?", (petition.number,))
        return row is not None and hmac.compare_digest(bytes(row[0]), self._fingerprint(asked))

    def keep(
        self, sender: str, id: str, asked: bytes, *, request: str, now: str, form: str, urls: Iterable[str]
    ) -> Petition:
        """Keep a petition and whom to tell. If another thread kept it first, its petition stays."""
        database = self._store.database
        with database.transaction():
            if (known := self.find(sender, id)) is not None:
                return known
            database.execute(
                "INSERT INTO petitions (sender, id, fingerprint, request, received_at) VALUES (?, ?, ?, ?, ?)",
                (sender, id, self._fingerprint(asked), request, now),
            )
            made = self.find(sender, id)
            assert made is not None
            told = [(made.number, f"msg_{secrets.token_hex(16)}", form, url) for url in dict.fromkeys(urls)]
            database.execute_many(
                "INSERT INTO callbacks (petition, message, form, url, attempts, next_at) VALUES (?, ?, ?, ?, 0, 0)",
                told,
            )
            return made

    def due(self, *, now: str, seconds: int, limit: int) -> list[Callback]:
        """The callbacks that can be sent now, those that have waited longest first.

        A request counts as applied from the date of its application on, which lies on a tick of the clock, and after
        its erasure. So neither depends on how long anything took that is shorter than a tick.
        """
        rows = self._store.database.rows(
            f"SELECT c.number, c.message, c.url, c.form, c.attempts, r.state, r.applied_by, {_PETITION} "
            "FROM callbacks c JOIN petitions p ON p.number = c.petition JOIN requests r ON r.request = p.request "
            "WHERE c.given_up = 0 AND c.next_at <= ? AND r.state IN ('applied', 'cancelled') AND r.applied_by <= ? "
            "ORDER BY c.next_at, c.number LIMIT ?",
            (seconds, now, limit),
        )
        return [
            Callback(number, message, url, form, attempts, Petition(*petition), state, at)
            for number, message, url, form, attempts, state, at, *petition in rows
        ]

    def delivered(self, callback: Callback) -> None:
        """The address was told: nothing is kept of it."""
        self._store.database.execute("DELETE FROM callbacks WHERE number = ?", (callback.number,))

    def failed(self, callback: Callback, *, next_at: int | None) -> None:
        """The address was not told. Try again at this time, in seconds since 1970; never if it is None."""
        self._store.database.execute(
            "UPDATE callbacks SET attempts = attempts + 1, next_at = ?, given_up = ? WHERE number = ?",
            (next_at or 0, int(next_at is None), callback.number),
        )

    def counts(self) -> dict[str, tuple[int, int, int]]:
        """For each sender: its petitions, its callbacks that wait, and those that were given up."""
        rows = self._store.database.rows(
            "SELECT p.sender, COUNT(DISTINCT p.number), COUNT(c.number) - COALESCE(SUM(c.given_up), 0), "
            "COALESCE(SUM(c.given_up), 0) FROM petitions p LEFT JOIN callbacks c ON c.petition = p.number "
            "GROUP BY p.sender"
        )
        return {sender: (petitions, waiting, given_up) for sender, petitions, waiting, given_up in rows}

    def of(self, sender: str | None, *, limit: int) -> list[Petition]:
        """The petitions of a sender, or of all, newest first."""
        query = f"SELECT {_PETITION} FROM petitions p WHERE ?1 IS NULL OR p.sender = ?1 ORDER BY p.number DESC LIMIT ?2"
        return [Petition(*row) for row in self._store.database.rows(query, (sender, limit))]

    def forget(self, requests: Iterable[str]) -> None:
        """Forget the petitions of these requests, inside the caller's transaction."""
        rows = [(request,) for request in requests]
        owned = "(SELECT number FROM petitions WHERE request = ?)"
        self._store.database.execute_many(f"DELETE FROM callbacks WHERE petition IN {owned}", rows)
        self._store.database.execute_many("DELETE FROM petitions WHERE request = ?", rows)

    def _fingerprint(self, asked: bytes) -> bytes:
        return hmac.digest(self._hash_key, b"petition:" + asked, "sha256")
