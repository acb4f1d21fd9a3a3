"""The ledger of a deployment, and certificates made from its requests and budgets."""

from __future__ import annotations

import hashlib
import json
import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from expunge import evidence
from expunge.core.errors import FormatError, InputError, ParameterError
from expunge.core.guarantee import Guarantee
from expunge.core.prf import RecipeKey
from expunge.core.words import round_up, seconds_of, utc
from expunge.evidence import Checkpoint, NoteKey, Peaks, Publication, Submission, Tree, hash_leaf
from expunge.folder.configuration import load_settings
from expunge.folder.store import Store
from expunge.folder.store.ensembles import count_environments, read_key, read_key_draw
from expunge.folder.store.requests import Request, RequestBook
from expunge.serving.promises import Consensus
from expunge.training.environment import describe_environments

REACH = 1000  # entries of other requests that a request's certificate may hold as digests, of 66 bytes each
_TELLING = "WHERE json_extract(entry, '$.event') IN ('created', 'generation', 'round', 'recomputed')"
_SIGNING_KEY, PUBLIC_KEY, _HASH_KEY = "signing.pem", "public.pem", "hashing.key"
KEY_FILES = (_SIGNING_KEY, PUBLIC_KEY, _HASH_KEY)
_MOST_KEY = 10_000  # bytes of a key's file


class CurrentFacts(NamedTuple):
    """What a certificate says about the present, read at one moment."""

    generation: int | None  # with the predictions: None where they are the operator's
    round: int
    predictions: int | None
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
        """Return the seconds since a time that `now` gave."""
        return max(0.0, time.time() - seconds_of(at))

    def tick(self) -> str:
        """Return the next tick."""
        return round_up(time.time(), tick_seconds=self.tick_seconds)

    @contextmanager
    def work(self) -> Iterator[None]:
        """Note when this thread's work begins. Enter it before taking a lock that is held during trainings."""
        if hasattr(self._work, "begun"):
            yield
            return
        self._work.begun = time.time()
        try:
            yield
        finally:
            del self._work.begun

    def done(self) -> str:
        """Return the date of the end of this thread's work, which ends now."""
        now = time.time()
        first = seconds_of(round_up(getattr(self._work, "begun", now), tick_seconds=self.tick_seconds))
        return max(utc(first + self.tick_seconds), self.tick())


class LedgerBook:
    """The log in the store: entries, and a checkpoint that is signed whenever entries are added.

    No entry is added to a log that was changed: what goes on is the tree that was signed. `check` looks at every entry.
    """

    def __init__(self, store: Store, deployment: str) -> None:
        self._store = store
        self._deployment = deployment

    @property
    def origin(self) -> str:
        """The log's own name, under which its checkpoints are signed."""
        return log_origin(self._deployment)

    @cached_property
    def _key(self) -> evidence.SigningKey:
        return read_signing_key(self._store)

    @cached_property
    def public_key(self) -> NoteKey:
        """The key that checkpoints are checked with, under the log's name."""
        content = read_key_file(self._store, PUBLIC_KEY)
        key = evidence.PublicKey.from_pem(content, source=str(self._store.place / "keys" / PUBLIC_KEY))
        return NoteKey(self.origin, key)

    def write(self, event: str, at: str, **facts: Any) -> None:
        """Append an entry, inside the caller's transaction."""
        self.write_all([(event, at, facts)])

    def write_all(self, happened: Iterable[tuple[str, str, Mapping[str, Any]]]) -> None:
        """Append entries, inside the caller's transaction: events with their times and facts."""
        database, peaks = self._store.database, self._peaks()
        rows = []
        for event, at, facts in happened:
            entry = evidence.Entry(peaks.size + 1, at, event, facts)
            content = evidence.write_canonical(entry.to_data())
            leaf = hash_leaf(content)
            peaks.append(leaf)
            rows.append((entry.sequence, content.decode(), leaf))
        if rows:
            database.execute_many("INSERT INTO ledger VALUES (?, ?, ?)", rows)
            signed = Checkpoint(self.origin, peaks.size, peaks.root()).signed(self._key)
            database.execute("INSERT OR REPLACE INTO checkpoints VALUES ('signed', ?, ?)", (str(signed), peaks.nodes))

    def _peaks(self) -> Peaks:
        """The tree as it was signed last. An error says that something was changed since."""
        row = self._store.database.row("SELECT nodes FROM checkpoints WHERE kind = 'signed'")
        signed, last = self.signed, self._store.database.row("SELECT MAX(sequence) FROM ledger")
        held = 0 if last is None or last[0] is None else int(last[0])
        if held != signed.size:
            raise self._damaged(_length_fault(signed.size, held))
        try:
            peaks = Peaks(signed.size, b"" if row is None else bytes(row[0]))
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
        return FormatError(
            f"{self._store.folder}: the log is damaged: {why}. Put the folder back from a copy, as a whole"
        )

    def check(self) -> Tree:
        """Read every entry, and make the tree again. It must be the one that was signed.

        Returns
        -------
        Tree
            The tree, whose proofs can be given.

        Raises
        ------
        FormatError
            If an entry was changed, is missing or is one too many, or the checkpoint was not signed for it.
        """
        signed, leaves = self.signed, list[bytes]()
        for sequence, entry, leaf in self._store.database.rows(
            "SELECT sequence, entry, leaf FROM ledger ORDER BY sequence"
        ):
            if sequence != len(leaves) + 1:
                raise self._damaged(f"entry {len(leaves) + 1} is missing")
            found = hash_leaf(entry.encode())
            if found != bytes(leaf):
                raise self._damaged(f"entry {sequence} was changed")
            leaves.append(found)
        if len(leaves) != signed.size:
            raise self._damaged(_length_fault(signed.size, len(leaves)))
        tree = Tree(leaves)
        if tree.root() != signed.root:
            raise self._damaged("its entries are not those that its checkpoint was signed for")
        return tree

    def checkpoint(self) -> Checkpoint:
        """The signed checkpoint of the whole log, which is checked first, with its cosignatures if it has any."""
        tree = self.check()
        cosigned, signed = self.cosigned(), self.signed
        return cosigned if cosigned is not None and cosigned.size == len(tree) else signed

    def consistency(self, old_size: int, size: int | None = None) -> list[bytes]:
        """The proof that the log, or its first `size` entries, begins with its first `old_size` entries."""
        return self.check().consistency(old_size, size)

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

    def excerpt(self, request: str, *, num_shards: int, reach: int = REACH) -> evidence.Excerpt:
        """Return the chain up to the head, with the request's entries and those that tell of the recipe in full.

        It starts just before the first of these, unless that is more than `reach` entries before the request's first
        one: such entries are shown outside the stretch, so that a certificate stays small.
        """
        entries = self._entries()
        own = [entry for entry in entries if entry.facts.get("request") == request]
        told = evidence.telling_entries(entries, num_shards=num_shards)
        first = min(entry.sequence for entry in (*own, *told) if entry.sequence >= own[0].sequence - reach) - 1
        start = evidence.Excerpt.of(
            evidence.genesis(self._deployment), [entry.digest for entry in entries[:first]]
        ).head
        shown = {entry.sequence for entry in (*own, *told)}
        return evidence.Excerpt.of(
            start,
            [entry if entry.sequence in shown else entry.digest for entry in entries[first:]],
            earlier=[entry for entry in told if entry.sequence <= first],
        )

    def whole(self) -> evidence.Excerpt:
        """Return all entries."""
        return evidence.Excerpt.of(evidence.genesis(self._deployment), self._entries())

    def history(self, *, num_shards: int) -> evidence.History:
        """Return what the whole log says about the key in force and about recomputations."""
        return evidence.History.of(self._entries(_TELLING), num_shards=num_shards)

    def _entries(self, condition: str = "") -> list[evidence.Entry]:
        rows = self._store.database.rows(f"SELECT entry FROM ledger {condition} ORDER BY sequence")
        return [evidence.Entry(**json.loads(entry)) for (entry,) in rows]


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


def log_origin(deployment: str) -> str:
    """The name of a deployment's log, which its checkpoints begin with."""
    return f"expunge/{deployment}"


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
        self._num_shards: int = store.fact("settings")["n_shards"]

    @property
    def key(self) -> evidence.KeyDraw:
        """When the key in force was drawn and why, and the commitment to it."""
        (at, reason), key = read_key_draw(self._store), read_key(self._store)
        told = commitment_facts(key, round=None if self.shows_generations else self._store.position.round)
        return evidence.KeyDraw(at, told.get("key_commitment"), reason or None)  # type: ignore[arg-type]

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

    def write_switch(self, key: RecipeKey, *, generation: int, round: int, reason: str) -> None:
        """Write what the log tells of a switch to the next round, inside the caller's transaction.

        `reason` says why the key was renewed; empty if it was not. Where generations are not shown, every round has an
        entry with a commitment of its own.
        """
        if not self.shows_generations:
            self.ledger.write("round", self.clock.done(), round=round, **commitment_facts(key, round=round))
        elif reason:
            facts = {"generation": generation, "round": round, "reason": reason, **commitment_facts(key)}
            self.ledger.write("generation", self.clock.done(), **facts)

    def certificate(
        self, request: str | None, *, guarantee: Guarantee, read_facts: Callable[[], CurrentFacts]
    ) -> evidence.Certificate:
        """Issue a signed statement about a request, or about the whole deployment.

        The requests and the ledger are read first, and the current round after them. So the certificate never names a
        round later than the current one.
        """
        store, settings = self._store, self._store.fact("settings")
        with store.database.snapshot():
            self.ledger.check()
            about: dict[str, Any] = self._about(request)
        now = read_facts()
        if request is None:
            about["counts"] = self._counts(about["counts"], now.num_records)
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
                predictions_published=now.predictions,
                predictions_covered=None if math.isinf(now.capacity) else int(now.capacity),
            ),
            exact=evidence.ExactFacts(
                learner=store.fact("learner"),
                num_shards=self._num_shards,
                numerics=store.fact("numerics"),
                environments=describe_environments(count_environments(store)),
            ),
            guarantee=evidence.GuaranteeFacts.of(guarantee),
            # On a tick, and not before the events in it: these may be dated by a tick that is still to come.
            issued_at=max(
                [self.clock.tick(), *(each.at for each in about["ledger"].shown if each.event in evidence.TICKED)]
            ),
            **about,
        )

    def _about(self, request: str | None) -> dict[str, Any]:
        if request is None:
            return {"counts": self.requests.all(), "ledger": self.ledger.whole()}
        found, ledger = self.requests.get(request), self.ledger.excerpt(request, num_shards=self._num_shards)
        return {"request": self._request_facts(found), "ledger": ledger}

    def _request_facts(self, request: Request) -> evidence.RequestFacts:
        applied = request.public_state == "applied"
        return evidence.RequestFacts(
            request_id=request.request,
            num_deletions=request.deletions,
            num_additions=request.additions,
            accepted_at=request.accepted_at,
            state=request.public_state,  # type: ignore[arg-type]
            applied_by=request.applied_by if applied else None,
            generation=request.generation if applied and self.shows_generations else None,
            round=request.round if applied else None,
            cancelled_at=request.applied_by if request.state == "cancelled" else None,
            id_hashes=self.requests.hashes_of(request.request),
        )

    def _counts(self, requests: Sequence[Request], num_records: int) -> evidence.CountFacts:
        states = [request.public_state for request in requests]
        counted = {state: states.count(state) for state in ("applied", "pending", "cancelled")}
        return evidence.CountFacts(num_records=num_records, accepted=len(states), **counted)


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
