"""The log of a deployment, and certificates made from it, from the requests and from the budgets."""

from __future__ import annotations

import hashlib
import json
import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from expunge import evidence
from expunge.core.errors import FormatError, InputError, ParameterError
from expunge.core.guarantee import Guarantee
from expunge.core.prf import KEY_BYTES, RecipeKey
from expunge.core.words import round_up, seconds_of, utc
from expunge.evidence import Checkpoint, NoteKey, Peaks, Publication, Submission, Tree, hash_leaf
from expunge.evidence.nonce import Draw, NonceSource
from expunge.folder.configuration import load_settings
from expunge.folder.store import Store
from expunge.folder.store.ensembles import count_environments, read_key, read_key_draw, read_witnessed_draw
from expunge.folder.store.files import explain_damage
from expunge.folder.store.petitions import PetitionBook
from expunge.folder.store.requests import Request, RequestBook
from expunge.serving.promises import Consensus
from expunge.training.environment import describe_environments

_TELLING = frozenset({"created", "committed", "generation", "round", "schema", "recomputed", "restored"})
_LAST = 2**63 - 1  # a number of an entry that none is above
_AT_ONCE = 5_000  # entries that are read before other threads get the database
_SIGNING_KEY, PUBLIC_KEY, _HASH_KEY = "signing.pem", "public.pem", "hashing.key"
KEY_FILES = (_SIGNING_KEY, PUBLIC_KEY, _HASH_KEY)
_MOST_KEY = 10_000  # bytes of a key's file
NO_WITNESS = "a witness cannot have a part in the key under a consensus: the log does not tell when a key is renewed"


class CurrentFacts(NamedTuple):
    """What a certificate says about the present, read at one moment."""

    generation: int | None  # with the predictions: None where they are the operator's
    round: int
    reserved: int | None  # predictions that were released at most
    released: int | None  # predictions that are known to have been released
    capacity: float
    num_records: int


class Clock:
    """The times that requesters may see.

    How long a retraining takes depends on r. So its end is dated from its beginning, by the tick after the next one:
    that is fixed before anything is trained. Work that takes longer is dated by a later tick.
    """

    def __init__(self, tick_seconds: int) -> None:
        self.tick_seconds = tick_seconds
        self._work = threading.local()

    def now(self) -> str:
        """Return the current second."""
        return utc(time.time())

    def age(self, at: str) -> float:
        """Return the seconds since a time that `now` gave. It is infinite if the clock was set back since then."""
        gone = time.time() - seconds_of(at)
        return gone if gone >= 0 else math.inf

    def tick(self) -> str:
        """Return the next tick."""
        return round_up(time.time(), tick_seconds=self.tick_seconds)

    @contextmanager
    def work(self, begun: float | None = None) -> Iterator[None]:
        """Note when this thread's work begins: now, or when it began elsewhere, in seconds since 1970.

        Enter it before taking a lock that is held during trainings.
        """
        if hasattr(self._work, "begun"):
            yield
            return
        self._work.begun = time.time() if begun is None else begun
        try:
            yield
        finally:
            del self._work.begun

    def wait_for_tick(self, ended: threading.Event) -> None:
        """Wait for the first tick after this thread's work began, or for the next one if it is past."""
        first = self._first_tick()
        self.wait_until(utc(first) if first >= time.time() else self.tick(), ended)

    def wait_until(self, at: str, ended: threading.Event) -> None:
        """Wait until this time, unless the event comes first; not for long if the clock was set back."""
        ended.wait(min(max(0.0, seconds_of(at) - time.time()), 3.0 * self.tick_seconds))

    def done(self) -> str:
        """Return the date of the end of this thread's work, which ends now."""
        return max(utc(self._first_tick() + self.tick_seconds), self.tick())

    def _first_tick(self) -> int:
        """The first tick after this thread's work began: never the one that it began on, however short the work is."""
        begun = getattr(self._work, "begun", time.time())
        return (int(begun // self.tick_seconds) + 1) * self.tick_seconds


@dataclass(frozen=True, slots=True)
class LogState:
    """Where a log is now, as it was signed; its entries were not looked at again.

    Parameters
    ----------
    checkpoint
        The checkpoint that was signed last.
    cosigned
        The last one that witnesses cosigned, or None.
    counts
        How many entries there are of each event.
    recomputed
        The last recomputation that was recorded, or None.
    """

    checkpoint: Checkpoint
    cosigned: Checkpoint | None
    counts: Mapping[str, int]
    recomputed: evidence.RecomputationFacts | None


class LedgerBook:
    """The log in the store: entries, and a checkpoint that is signed whenever entries are added.

    No entry is added to a log that was changed: what goes on is the tree that was signed. `check` looks at every entry.
    """

    def __init__(self, store: Store, deployment: str) -> None:
        self._store = store
        self._deployment = deployment
        self._known_state: tuple[list[Any], LogState] | None = None
        self._noted: tuple[int, int, dict[str, int], tuple[evidence.Entry, ...]] | None = None  # see `_notes`
        self._known: tuple[int, Peaks, dict[str, str]] | None = None  # what this object wrote last; see `_going_on`

    @property
    def origin(self) -> str:
        """The log's own name, under which its checkpoints are signed."""
        return evidence.log_origin(self._deployment)

    @cached_property
    def _key(self) -> evidence.SigningKey:
        return read_signing_key(self._store)

    @cached_property
    def public_key(self) -> NoteKey:
        """The key that checkpoints are checked with, under the log's name."""
        content = read_key_file(self._store, PUBLIC_KEY)
        key = evidence.PublicKey.from_pem(content, source=str(self._store.place / "keys" / PUBLIC_KEY))
        return NoteKey(self.origin, key)

    def date(self, event: str, at: str) -> str:
        """The time that an entry of this event gets, if the clock says `at`; inside the caller's transaction.

        It is not earlier than that of the entries before, also if the clock was set back. Entries dated by a tick may
        be ahead of the clock. So the others are only compared with one another.
        """
        return self.dates(event, [at])[0]

    def dates(self, event: str, times: Iterable[str]) -> list[str]:
        """The times that entries of this event get one after the other, as `date` gives them."""
        latest = dict(self._going_on()[1])
        return [self._date(event, at, latest) for at in times]

    def _date(self, event: str, at: str, latest: dict[str, str]) -> str:
        """Date one entry, and note its time among the latest ones."""
        moment = latest.get("moment", "")
        if event not in evidence.TICKED:
            latest["moment"] = at = max(at, moment)
        else:
            if at < moment:
                at = round_up(moment, tick_seconds=self._store.fact("clock_seconds"))
            latest["tick"] = at = max(at, latest.get("tick", ""))
        return at

    def _latest(self) -> dict[str, str]:
        """The latest time that the log read from the clock ("moment"), and the latest "tick"."""
        found = dict(self._store.database.rows("SELECT kind, at FROM times"))
        if not all(isinstance(at, str) for at in found.values()):
            raise self._damaged("its latest times are none")
        return found

    @property
    def latest_moment(self) -> str:
        """The latest time that the log read from the clock; empty if it has no entries."""
        return self._latest().get("moment", "")

    def write(self, event: str, at: str, **facts: Any) -> None:
        """Append an entry, inside the caller's transaction."""
        self.write_all([(event, at, facts)])

    def write_all(self, happened: Iterable[tuple[str, str, Mapping[str, Any]]]) -> None:
        """Append entries, inside the caller's transaction: events with their times and facts.

        Of a request an entry holds a salted commitment, and the salt is kept beside the log. A time before that of
        earlier entries is clamped, and marked.
        """
        database, (peaks, before) = self._store.database, self._going_on()
        self._known = None  # until all of this is written
        rows, openings, latest = [], [], dict(before)
        for event, said, facts in happened:
            at = self._date(event, said, latest)
            clamped = {evidence.CLAMPED: True} if at != said else {}
            if event in evidence.HIDDEN:
                opening = evidence.Opening.fresh(event, facts)
                told = evidence.write_canonical(facts).decode()
                openings.append((peaks.size + 1, facts["request"], opening.salt, told))
                facts = {"commitment": opening.commitment}
            content = evidence.Entry(peaks.size + 1, at, event, {**facts, **clamped}).content
            leaf = hash_leaf(content)
            peaks.append(leaf)
            rows.append((peaks.size, content.decode(), leaf))
        if rows:
            database.execute_many("INSERT INTO ledger VALUES (?, ?, ?)", rows)
            database.execute_many("INSERT INTO openings VALUES (?, ?, ?, ?)", openings)
            later = [each for each in latest.items() if each not in before.items()]
            database.execute_many("INSERT OR REPLACE INTO times VALUES (?, ?)", later)
            signed = Checkpoint(self.origin, peaks.size, peaks.root()).signed(self._key)
            database.execute("INSERT OR REPLACE INTO checkpoints VALUES ('signed', ?, ?)", (str(signed), peaks.nodes))
        self._known = database.num_failed, peaks, latest

    def _going_on(self) -> tuple[Peaks, dict[str, str]]:
        """The tree and the latest times that the next entries go on from, inside the caller's transaction.

        They are read and checked once. After that they are what this object wrote: the folder belongs to its process.
        """
        failed = self._store.database.num_failed
        if self._known is None or self._known[0] != failed:
            self._known = failed, self._peaks(), self._latest()
        return self._known[1:]

    def _peaks(self) -> Peaks:
        """The tree as it was signed last. An error says that something was changed since."""
        row = self._store.database.row("SELECT nodes FROM checkpoints WHERE kind = 'signed'")
        signed, last = self.signed, self._store.database.row("SELECT MAX(sequence) FROM ledger")
        held = 0 if last is None or last[0] is None else int(last[0])
        if held != signed.size:
            raise self._damaged(_length_fault(signed.size, held))
        if row is not None and not isinstance(row[0], bytes):
            raise self._damaged("what is kept of its tree is no bytes")
        try:
            peaks = Peaks(signed.size, b"" if row is None else row[0])
        except ParameterError as error:
            raise self._damaged(str(error)) from None
        if peaks.root() != signed.root:
            raise self._damaged("what is kept of its tree is not what its checkpoint was signed for")
        return peaks

    @property
    def signed(self) -> Checkpoint:
        """The checkpoint that was signed after the last entry, checked against the key, without cosignatures."""
        row = self._store.database.row("SELECT note FROM checkpoints WHERE kind = 'signed'")
        if row is None:
            return Checkpoint(self.origin, 0, Peaks().root())
        return self._checked(row[0])

    def _checked(self, note: str) -> Checkpoint:
        try:
            found = Checkpoint.parse(note)
        except InputError as error:
            raise self._damaged(str(error)) from None
        if found.origin != self.origin or not found.is_signed_by(self.public_key):
            raise self._damaged("its checkpoint is not signed with the deployment's key")
        return found

    def _damaged(self, why: str) -> FormatError:
        self._known = self._noted = None  # what is remembered of this log is not believed any more
        return FormatError(
            f"{self._store.folder}: the log is damaged: {why}. Put the folder back from a copy, as a whole"
        )

    def read_ahead(self) -> Tree:
        """The tree of the entries that there are now, read in pieces: between them other threads get the database.

        The log only grows, so that `check` may go on from this tree.
        """
        tree, last = Tree(), self.signed.size
        while len(tree) < last and self._read_into(tree, last):
            pass
        return tree

    def _read_into(self, tree: Tree, last: int) -> bool:
        """Read and check the next entries, up to this one. Return whether there were any."""
        found = self._store.database.rows(
            "SELECT sequence, entry, leaf FROM ledger WHERE sequence > ? AND sequence <= ? ORDER BY sequence LIMIT ?",
            (len(tree), last, _AT_ONCE),
        )
        for sequence, entry, leaf in found:
            if sequence != len(tree) + 1:
                raise self._damaged(f"entry {len(tree) + 1} is missing")
            content = hash_leaf(entry.encode())
            if content != bytes(leaf):
                raise self._damaged(f"entry {sequence} was changed")
            tree.append(content)
        return bool(found)

    def check(self, ahead: Tree | None = None) -> Tree:
        """Read every entry, and make the tree again. It must be the one that was signed.

        Parameters
        ----------
        ahead
            What `read_ahead` gave: only what came after it is read now.

        Returns
        -------
        Tree
            The tree, whose proofs can be given.

        Raises
        ------
        FormatError
            If an entry was changed, is missing or is one too many, or the checkpoint was not signed for it.
        """
        signed, tree = self.signed, Tree() if ahead is None else ahead
        while self._read_into(tree, _LAST):
            pass
        if len(tree) != signed.size:
            raise self._damaged(_length_fault(signed.size, len(tree)))
        if tree.root() != signed.root:
            raise self._damaged("its entries are not those that its checkpoint was signed for")
        return tree

    def checkpoint(self, ahead: Tree | None = None) -> Checkpoint:
        """The signed checkpoint of the whole log, which is checked first, with its cosignatures if it has any."""
        return self._checkpoint_of(self.check(ahead))

    def _checkpoint_of(self, tree: Tree) -> Checkpoint:
        cosigned, signed = self.cosigned(), self.signed
        return cosigned if cosigned is not None and cosigned.size == len(tree) else signed

    def consistency(self, old_size: int, size: int | None = None, *, ahead: Tree | None = None) -> list[bytes]:
        """The proof that the log, or its first `size` entries, begins with its first `old_size` entries."""
        return self.check(ahead).consistency(old_size, size)

    def cosigned(self) -> Checkpoint | None:
        """The last checkpoint that was cosigned, or None."""
        row = self._store.database.row("SELECT note FROM checkpoints WHERE kind = 'cosigned'")
        return None if row is None else self._checked(row[0])

    def submission(self, old_size: int) -> Submission:
        """The checkpoint of the whole log, with the proof that it continues the one of its first `old_size` entries."""
        return Submission(old_size, tuple(self.consistency(old_size)), self.checkpoint())

    def publish(self, before: Publication) -> Publication:
        """What was published, with what is new: the last cosigned checkpoint, and the one of the whole log.

        Raises
        ------
        InputError
            If what was published is of another log, or of a history that this log does not continue.
        """
        tree, publication = self.check(), before
        before.require_signed(self.public_key)
        last = before.last
        if last is not None and last.size > len(tree):
            raise InputError(
                f"a checkpoint of {last.size:,} entries of this log is published, and this folder has {len(tree):,}: "
                "it is an older copy, or a fork. Nothing was published"
            )
        if last is not None and tree.root(last.size) != last.root:
            raise InputError(
                f"this log is forked: the published checkpoint of {last.size:,} entries is of another history than "
                "this folder's. Nothing was published"
            )
        for new in (self.cosigned(), self.checkpoint()):
            last = publication.last
            if new is None or (last is not None and (new.size < last.size or new == last)):
                continue
            if last is None or new.size > last.size or set(new.signatures) > set(last.signatures):
                publication = publication.extended(new, tuple(tree.consistency(last.size if last else 0, new.size)))
        return publication

    def keep_cosigned(self, checkpoint: Checkpoint) -> None:
        """Keep a checkpoint with its cosignatures, inside the caller's transaction. It must be one of this log.

        Raises
        ------
        InputError
            If it is not a checkpoint of this log, or an earlier one than the one that is kept.
        """
        tree, before = self.check(), self.cosigned()
        if checkpoint.origin != self.origin or not checkpoint.is_signed_by(self.public_key):
            raise InputError(f"the checkpoint of {checkpoint.origin!r:.80} is not signed by the log {self.origin}")
        if checkpoint.size > len(tree) or tree.root(checkpoint.size) != checkpoint.root:
            raise InputError(f"the checkpoint of size {checkpoint.size} is not one of this log")
        if before is not None and checkpoint.size < before.size:
            raise InputError(
                f"the checkpoint of size {checkpoint.size} is older than the cosigned one of {before.size}"
            )
        self._store.database.execute(
            "INSERT OR REPLACE INTO checkpoints VALUES ('cosigned', ?, x'')", (str(checkpoint),)
        )

    def excerpt(
        self,
        request: str | None,
        *,
        num_shards: int,
        since: Iterable[Checkpoint] = (),
        ahead: Tree | None = None,
    ) -> evidence.Excerpt:
        """Show the entries that a certificate rests on, after the whole log was checked.

        These are the entries of the request, with what they commit to, and those that tell of the recipe. The last
        cosigned checkpoint and those of `since` are shown with the proof that the log continues them.
        """
        tree = self.check(ahead)
        now, openings = self._checkpoint_of(tree), {} if request is None else self._openings(request)
        told = {each.sequence: each for each in evidence.telling_entries(self.telling(), num_shards=num_shards)}
        own = {each.sequence: each for number in openings for each in self.entries("WHERE sequence = ?", (number,))}
        earlier = {each.size: each for each in self._earlier(tree, since)}
        cosigned = self.cosigned()
        if cosigned is not None:
            earlier[cosigned.size] = cosigned
        return evidence.Excerpt.of(
            tree,
            now,
            [entry for _, entry in sorted({**told, **own}.items())],
            openings=openings,
            earlier=[each for size, each in sorted(earlier.items()) if size < now.size],
        )

    def last_commitment(self) -> tuple[evidence.Entry, int]:
        """The last entry that commits to a secret, and how many before it no key followed from, since the last key."""
        entries = self.entries("WHERE json_extract(entry, '$.event') IN ('created', 'generation', 'committed')")
        since = [entry.event for entry in reversed(entries)]
        unused = next((place for place, event in enumerate(since) if event != "committed"), len(since)) - 1
        return entries[-1], unused

    def _openings(self, request: str) -> dict[int, evidence.Opening]:
        rows = self._store.database.rows(
            "SELECT sequence, salt, facts FROM openings WHERE request = ? ORDER BY sequence", (request,)
        )
        return {number: evidence.Opening(bytes(salt), json.loads(facts)) for number, salt, facts in rows}

    def _earlier(self, tree: Tree, since: Iterable[Checkpoint]) -> Iterator[Checkpoint]:
        """Checkpoints of other certificates, which must be of this log."""
        for each in since:
            if each.origin != self.origin or not each.is_signed_by(self.public_key):
                raise InputError(f"the checkpoint of {each.origin!r:.80} is not signed by the log {self.origin}")
            if each.size > len(tree):
                raise InputError(f"the checkpoint of size {each.size} is newer than this log, of {len(tree)} entries")
            if tree.root(each.size) != each.root:
                raise InputError(
                    f"the checkpoint of size {each.size} is not one of this log, though its key signed it: there are "
                    "two histories"
                )
            yield each

    def counts(self) -> dict[str, int]:
        """How many entries there are of each event."""
        return dict(self._notes()[0])

    def _notes(self) -> tuple[Mapping[str, int], tuple[evidence.Entry, ...]]:
        """How many entries there are of each event, and those that tell of keys and recomputations.

        The log only grows, unless a transaction fails: so only what is new is looked at, and a long log in pieces.
        """
        failed, events = self._store.database.num_failed, ", ".join(f"'{each}'" for each in sorted(_TELLING))
        size, counts, telling = 0, dict[str, int](), list[evidence.Entry]()
        if self._noted is not None and self._noted[0] == failed:
            size, counts, telling = self._noted[1], dict(self._noted[2]), list(self._noted[3])
        while found := self._store.database.rows(
            f"SELECT sequence, event, CASE WHEN event IN ({events}) THEN entry END FROM "
            "(SELECT sequence, json_extract(entry, '$.event') AS event, entry FROM ledger WHERE sequence > ? "
            "ORDER BY sequence LIMIT ?)",
            (size, _AT_ONCE),
        ):
            size = found[-1][0]
            for _, event, entry in found:
                counts[event] = counts.get(event, 0) + 1
                if entry is not None:
                    telling.append(evidence.Entry(**json.loads(entry)))
        self._noted = failed, size, counts, tuple(telling)
        return counts, self._noted[3]

    @property
    def state(self) -> LogState:
        """Where the log is now, without a look at every entry."""
        self._notes()  # before the database is held
        with self._store.database.snapshot():
            notes = self._store.database.rows("SELECT kind, note FROM checkpoints ORDER BY kind")
            if self._known_state is None or self._known_state[0] != notes:
                last = next((each for each in reversed(self.telling()) if each.event == "recomputed"), None)
                found = None if last is None else evidence.RecomputationFacts.of(last)
                self._known_state = notes, LogState(self.signed, self.cosigned(), self.counts(), found)
            return self._known_state[1]

    def history(self, *, num_shards: int) -> evidence.History:
        """Return what the whole log says about the key in force and about recomputations."""
        return evidence.History.of(self.telling(), num_shards=num_shards)

    def telling(self) -> list[evidence.Entry]:
        """The entries that tell of keys and recomputations."""
        return list(self._notes()[1])

    def entries(self, condition: str = "", values: Sequence[Any] = ()) -> list[evidence.Entry]:
        """The entries of the log, in their order; a condition in SQL picks some of them."""
        rows = self._store.database.rows(f"SELECT entry FROM ledger {condition} ORDER BY sequence", values)
        return [evidence.Entry(**json.loads(entry)) for (entry,) in rows]

    def forget(self, requests: Iterable[str]) -> None:
        """Erase the salts of these requests, inside the caller's transaction: nothing opens their entries any more."""
        self._store.database.execute_many(
            "DELETE FROM openings WHERE request = ?", [(request,) for request in requests]
        )


def keep_cosigned(path: str | os.PathLike[str], checkpoint: Checkpoint) -> None:
    """Keep a checkpoint that witnesses cosigned in a folder that no other process has open.

    Parameters
    ----------
    path
        The deployment's folder.
    checkpoint
        The checkpoint, with cosignatures that were checked.

    Raises
    ------
    FolderBusyError
        If another process has the folder open.
    InputError
        If it is not a checkpoint of this log, or older than the cosigned one that is kept.
    """
    store = Store.open(Path(path))
    try:
        with store.explain_errors(), store.database.transaction():
            Evidence(store).ledger.keep_cosigned(checkpoint)
    finally:
        store.close()


def _length_fault(signed: int, found: int) -> str:
    if found < signed:
        return f"it ends after entry {found:,}, and {signed:,} entries were signed"
    return f"entry {signed + 1:,} was never signed"


def commitment_facts(key: RecipeKey, *, round: int | None = None) -> dict[str, str]:
    """The log's commitment to the recipe key, or one made for a round alone.

    A key made from a seed has none: seeds could be tried one by one.
    """
    found = key.commitment if round is None else key.commitment_in(round)
    return {"key_commitment": found} if key.is_system else {}


class KeyDrawing:
    """Draws a recipe key that a witness has a part in. `made` says how, once `key` was called."""

    def __init__(self, store: Store, ledger: LedgerBook, clock: Clock, source: NonceSource) -> None:
        self.made: Draw | None = None
        self._store, self._ledger, self._clock, self._source = store, ledger, clock, source

    def key(self, at: str | None = None) -> RecipeKey:
        """Commit to a secret in the log at this time, ask the witness, and return the key that follows from both.

        If anything fails after the commitment, it stays in the log, and the next one counts it as unused.
        """
        own = os.urandom(KEY_BYTES)
        with self._store.database.transaction():
            self._ledger.write("committed", at or self._clock.now(), key_commitment=RecipeKey(own).commitment)
            tree, signed = self._ledger.check(), self._ledger.signed
        entry, unused = self._ledger.last_commitment()

        def submission(old_size: int) -> Submission:
            return Submission(old_size, tuple(tree.consistency(old_size)), signed)

        nonce = self._source(submission, self._ledger.public_key)
        if not nonce.is_for(signed):
            raise InputError(f"what the witness {nonce.witness.name} answered is not its nonce for this log")
        self.made = Draw(own, entry, tuple(tree.inclusion(signed.size - 1)), signed.root, nonce, unused)
        return RecipeKey.with_nonce(own, nonce.value)


class Evidence:
    """Issues certificates from the requests and the ledger of one deployment."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.deployment_id: str = store.fact("deployment")
        self.clock = Clock(store.fact("clock_seconds"))
        self.ledger = LedgerBook(store, self.deployment_id)
        with store.explain_errors():
            hash_key = read_key_file(store, _HASH_KEY)
        self.requests = RequestBook(store, hash_key)
        self.petitions = PetitionBook(store, hash_key)

    @property
    def _num_shards(self) -> int:
        found: int = self._store.fact("settings")["n_shards"]
        return found

    @property
    def key(self) -> evidence.KeyDraw:
        """When the key in force was drawn and why, and the commitment to it."""
        (at, reason), key = read_key_draw(self._store), read_key(self._store)
        told = commitment_facts(key, round=None if self.shows_generations else self._store.position.round)
        draw = read_witnessed_draw(self._store)
        found = Draw.from_data(json.loads(draw)) if draw else None
        return evidence.KeyDraw(
            at,
            told.get("key_commitment"),
            reason or None,  # type: ignore[arg-type]
            witness=None if found is None else str(found.nonce.witness),
            unused=0 if found is None else found.unused,
        )

    @property
    def unclaimed(self) -> str:
        """Why the exact promise is not claimed, because of a recomputation; empty if it is."""
        return evidence.why_disagreeing(self.ledger.history(num_shards=self._num_shards))

    @cached_property
    def shows_generations(self) -> bool:
        """Whether requesters may see the number of the generation: not if it tells whether a consensus failed."""
        return not isinstance(load_settings(self._store.fact("settings")).promise, Consensus)

    def shown(self, request: Request) -> Request:
        """The request as its requester may see it: without the generation where that tells of a failed consensus."""
        return request if self.shows_generations else replace(request, generation=None)

    def of_generation(self, generation: int | None) -> dict[str, int | None]:
        """The fact of the log that names a generation, where it may be told."""
        return {"generation": generation} if self.shows_generations else {}

    def drawing(self, source: NonceSource) -> KeyDrawing:
        """Get ready to draw a key that a witness has a part in."""
        if not self.shows_generations:
            raise InputError(NO_WITNESS)
        return KeyDrawing(self._store, self.ledger, self.clock, source)

    def write_switch(
        self, key: RecipeKey, *, at: str, generation: int, round: int, reason: str, draw: Draw | None = None
    ) -> None:
        """Write what the log tells of a switch to the next round at `at`, inside the caller's transaction.

        `reason` says why the key was renewed; empty if it was not. Where generations are not shown, every round has an
        entry with a commitment of its own.
        """
        if not self.shows_generations:
            self.ledger.write("round", at, round=round, **commitment_facts(key, round=round))
        elif reason:
            facts = {"generation": generation, "round": round, "reason": reason, **commitment_facts(key)}
            facts |= {} if draw is None else draw.to_facts()
            self.ledger.write("generation", at, **facts)

    def certificate(
        self,
        request: str | None,
        *,
        guarantee: Guarantee,
        read_facts: Callable[[], CurrentFacts],
        since: Iterable[Checkpoint] = (),
    ) -> evidence.Certificate:
        """Issue a signed statement about a request, or about the whole deployment.

        The whole log is checked before anything is signed. The requests and the log are read first, and the current
        round after them. So the certificate never names a round later than the current one.
        """
        with explain_damage(self._store.folder):
            return self._issued(request, guarantee, read_facts, since)

    def _issued(
        self,
        request: str | None,
        guarantee: Guarantee,
        read_facts: Callable[[], CurrentFacts],
        since: Iterable[Checkpoint],
    ) -> evidence.Certificate:
        store, settings, ahead = self._store, self._store.fact("settings"), self.ledger.read_ahead()
        self.ledger.counts()  # ahead, too
        with store.database.snapshot():
            found = None if request is None else self.requests.get(request)
            log = self.ledger.excerpt(request, num_shards=self._num_shards, since=since, ahead=ahead)
            counts, latest = self.ledger.counts(), self.ledger.latest_moment
        now = read_facts()
        tick, least = self.clock.tick(), round_up(latest, tick_seconds=self.clock.tick_seconds)
        return evidence.issue(
            key=read_signing_key(store),
            deployment=evidence.DeploymentFacts(
                deployment_id=self.deployment_id,
                name=store.fact("name"),
                created_at=store.fact("created_at"),
                tick_seconds=self.clock.tick_seconds,
                promise=settings["promise"]["name"],
                sampler_is_independent=settings["sampling"] == "independent",
            ),
            publication=evidence.PublicationFacts(
                generation=now.generation,
                round=now.round,
                predictions_reserved=now.reserved,
                predictions_released=now.released,
                predictions_covered=None if math.isinf(now.capacity) else int(now.capacity),
            ),
            exact=evidence.ExactFacts(
                learner=store.fact("learner"),
                num_shards=self._num_shards,
                numerics=store.fact("numerics"),
                environments=describe_environments(count_environments(store)),
            ),
            guarantee=evidence.GuaranteeFacts.of(guarantee),
            # On a tick, and not before the entries: these may be dated by a tick that is still to come.
            issued_at=max([tick, least, *(entry.at for entry in log.entries if entry.event in evidence.TICKED)]),
            clamped=least > tick,
            log=log,
            request=None if found is None else self._request_facts(found),
            counts=_count_facts(counts, now.num_records) if found is None else None,
        )

    def _request_facts(self, request: Request) -> evidence.RequestFacts:
        applied = request.public_state == "applied"
        return evidence.RequestFacts(
            request_id=request.request,
            num_deletions=request.deletions,
            num_additions=request.additions,
            num_corrections=request.corrections,
            accepted_at=request.accepted_at,
            state=request.public_state,  # type: ignore[arg-type]
            applied_by=request.applied_by if applied else None,
            generation=request.generation if applied and self.shows_generations else None,
            round=request.round if applied else None,
            cancelled_at=request.applied_by if request.state == "cancelled" else None,
            id_hashes=self.requests.hashes_of(request.request),
        )


def _count_facts(entries: Mapping[str, int], num_records: int) -> evidence.CountFacts:
    """The numbers of requests, which are those of the log's entries."""
    accepted, applied, cancelled = (entries.get(event, 0) for event in ("accepted", "applied", "cancelled"))
    return evidence.CountFacts(
        num_records=num_records,
        accepted=accepted,
        applied=applied,
        pending=accepted - applied - cancelled,
        cancelled=cancelled,
    )


def read_signing_key(store: Store) -> evidence.SigningKey:
    """Read the key that the folder's certificates are signed with."""
    content = read_key_file(store, _SIGNING_KEY)
    return evidence.SigningKey.from_pem(content, source=str(store.place / "keys" / _SIGNING_KEY))


def read_key_file(store: Store, name: str) -> bytes:
    """Read a file of `keys/`, and check that it is the one that was made for this deployment."""
    place, known = store.place / "keys" / name, store.fact("keys")
    with store.explain_errors():
        content = place.read_bytes(most=_MOST_KEY)
    if hashlib.sha256(content).hexdigest() != known.get(name):
        raise FormatError(f"{place} is not the key that was made for this deployment. Put the file back from a copy")
    return content


def make_keys(store: Store) -> str:
    """Make the keys of a new deployment, readable by their owner only. Return the public key's fingerprint."""
    folder = store.folder / "keys"
    key = evidence.SigningKey.generate()
    key.save(folder / _SIGNING_KEY)
    key.public_key.save(folder / PUBLIC_KEY)
    (store.place / "keys" / _HASH_KEY).write_new(os.urandom(32))
    made = {name: (store.place / "keys" / name).read_bytes() for name in KEY_FILES}
    store.write_fact("keys", {name: hashlib.sha256(content).hexdigest() for name, content in made.items()})
    return key.public_key.fingerprint
