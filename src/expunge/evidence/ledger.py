"""The log of a deployment: what happened, in order. It can be published, because it tells nothing about people.

An entry is canonical JSON, and a leaf of the Merkle tree (see `tree`). `EVENTS` lists the facts that each event may
tell in clear. Of a request the log says that it was accepted, applied or cancelled, and when. What it was is hidden in
a commitment with a fresh salt of 32 bytes:

    commitment = SHA-256(salt, canonical JSON of the facts)

`HIDDEN` lists these facts. The certificate of the request opens its commitments: it gives salts and facts. Without the
salt a commitment is a random number, and no two entries can be seen to be about one request.

A fact in clear depends on the secret randomness only if a certificate tells it too (see `facts`). The exceptions are
`key_commitment`, a one-way hash of the recipe key; the verdict of a recomputation (`agrees`); and `models`, a hash of
salted commitments to the models, which is left out where an (α,β,γ) is promised. An event that shows the end of a
retraining is dated by the clock tick (`TICKED`).

Under a consensus no entry may show when a generation ended, because that shows that a consensus failed. So no entry
names a generation or counts its predictions, and there are no `generation` entries. Each round has a `round` entry
instead, with a commitment to the key in force that is made for this round: a renewed key looks like the old one.

A certificate shows some entries of the log (`Excerpt`), with a signed checkpoint and the proofs that they are in it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Final, Self

from expunge.core.errors import InputError, ParameterError
from expunge.evidence import checks
from expunge.evidence.canonical import write_canonical
from expunge.evidence.checkpoint import Checkpoint, NoteKey
from expunge.evidence.keys import PublicKey
from expunge.evidence.tree import Parts, Tree, hash_leaf, is_consistent, parts_of_inclusion, root_of_inclusion

SALT_BYTES: Final = 32
_MOST_HASHES: Final = 64  # of a proof: more are not needed for 2^63 entries
_MOST_SHOWN, _MOST_EARLIER = 10_000, 1_000  # that are read

#: The facts that an entry may tell in clear, by event. Never add a fact that depends on the secret randomness, or one
#: about a person. Every event may also say that its time was `clamped`.
EVENTS: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "created": frozenset(
            {"name", "num_records", "num_shards", "num_classes", "learner", "sampler", "promise", "tick_seconds"}
            | {"software", "fingerprint", "max_generations", "key_commitment"}
            | {"witness", "nonce", "committed", "unused"}
        ),
        "accepted": frozenset({"commitment"}),
        "applied": frozenset({"commitment"}),
        "cancelled": frozenset({"commitment"}),
        "committed": frozenset({"key_commitment"}),
        "generation": frozenset(
            {"generation", "round", "reason", "key_commitment", "witness", "nonce", "committed", "unused"}
        ),
        "schema": frozenset(
            {"generation", "round", "changed", "num_classes", "allow_missing", "learner", "num_shards"}
        ),
        "restored": frozenset({"entries", "continued", "learner", "num_shards"}),
        "round": frozenset({"round", "key_commitment"}),
        "recomputed": frozenset(
            {"generation", "round", "num_checked", "num_different", "agrees", "chosen_by", "checkpoint", "models"}
        ),
    }
)

#: The facts about a request that an entry commits to, by event.
HIDDEN: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "accepted": frozenset({"request", "num_deletions", "num_additions", "num_corrections", "records"}),
        "applied": frozenset({"request", "generation", "round"}),
        "cancelled": frozenset({"request"}),
    }
)

#: Events that show the end of a retraining: their time is rounded up to the deployment's clock tick.
TICKED: Final = frozenset({"applied", "generation", "round", "schema", "recomputed"})
#: The fact that says that an entry's time is that of an earlier entry, because the clock showed an even earlier one.
CLAMPED: Final = "clamped"


def log_origin(deployment_id: str) -> str:
    """The name of a deployment's log, which its checkpoints begin with.

    Parameters
    ----------
    deployment_id
        The deployment.

    Returns
    -------
    str
        The name.

    Examples
    --------
    >>> log_origin("0f8fad5b")
    'expunge/0f8fad5b'
    """
    return f"expunge/{deployment_id}"


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that happened to a deployment.

    Parameters
    ----------
    sequence
        Its place in the log, from 1.
    at
        When it happened, such as 2026-11-16T02:00:00Z.
    event
        What happened: one of `EVENTS`.
    facts
        Public facts about it. `EVENTS` lists their names. They are texts, whole numbers, truth values, or lists.

    Examples
    --------
    >>> Entry(1, "2026-11-16T02:00:00Z", "created", {"name": "churn"}).leaf.hex()[:8]
    '80f0f259'
    """

    sequence: int
    at: str
    event: str
    facts: Mapping[str, Any]

    def __post_init__(self) -> None:
        checks.count("the sequence number of an entry", self.sequence, least=1)
        checks.moment(f"entry {self.sequence}", self.at)
        if not isinstance(self.event, str) or self.event not in EVENTS:
            raise ParameterError(f"entry {self.sequence}: there is no event {self.event!r:.80}")
        _require_facts(f"entry {self.sequence}", self.event, self.facts, EVENTS[self.event] | {CLAMPED})

    @property
    def content(self) -> bytes:
        """The entry in canonical JSON, which is what the log holds."""
        return write_canonical(self.to_data())

    @property
    def leaf(self) -> bytes:
        """The entry's hash as a leaf of the tree."""
        return hash_leaf(self.content)

    @property
    def is_clamped(self) -> bool:
        """Whether its time is that of an earlier entry, because the clock showed an even earlier one."""
        return bool(self.facts.get(CLAMPED))

    def to_data(self) -> dict[str, Any]:
        """The plain data that is written as canonical JSON."""
        return {"sequence": self.sequence, "at": self.at, "event": self.event, "facts": dict(self.facts)}


def _require_facts(what: str, event: str, facts: object, allowed: frozenset[str]) -> None:
    if not isinstance(facts, Mapping):
        raise ParameterError(f"{what}: facts must be an object")
    strange = sorted(map(str, set(facts) - allowed))
    if strange:
        raise ParameterError(f"{what}: {event!r} may not tell {', '.join(strange)[:200]}")
    for name, value in facts.items():
        each = value if isinstance(value, list | tuple) else [value]
        if not all(one is None or isinstance(one, str | int) for one in each):
            raise ParameterError(f"{what}: {name} must be text, a whole number, a truth value or a list of them")


@dataclass(frozen=True, slots=True)
class Opening:
    """What an entry about a request commits to.

    Parameters
    ----------
    salt
        32 random bytes.
    facts
        The facts about the request. `HIDDEN` lists their names.

    Examples
    --------
    >>> Opening(bytes(32), {"request": "b7f6c2a1"}).commitment[:8]
    '5d321463'
    """

    salt: bytes
    facts: Mapping[str, Any]

    def __post_init__(self) -> None:
        if not isinstance(self.salt, bytes) or len(self.salt) != SALT_BYTES:
            raise ParameterError(f"the salt of a commitment is {SALT_BYTES} bytes")

    @classmethod
    def fresh(cls, event: str, facts: Mapping[str, Any]) -> Self:
        """Commit to facts with a new salt from the operating system.

        Parameters
        ----------
        event
            The event of the entry.
        facts
            The facts.

        Returns
        -------
        Opening
            The opening.
        """
        _require_facts("a commitment", event, facts, HIDDEN[event])
        return cls(os.urandom(SALT_BYTES), facts)

    @property
    def commitment(self) -> str:
        """SHA-256 of the salt and the facts in canonical JSON, in hexadecimal."""
        return hashlib.sha256(self.salt + write_canonical(self.facts)).hexdigest()

    def to_data(self) -> dict[str, Any]:
        """The plain data that is written as canonical JSON."""
        return {"salt": self.salt.hex(), "facts": dict(self.facts)}


@dataclass(frozen=True, slots=True)
class Shown:
    """An entry in full, with the proof that it is in the log.

    Parameters
    ----------
    entry
        The entry.
    proof
        The inclusion proof of RFC 6962, from the leaf to the root, for the excerpt's checkpoint.
    opening
        What it commits to, for an entry about the request of the certificate; else None.
    """

    entry: Entry
    proof: tuple[bytes, ...]
    opening: Opening | None = None

    @property
    def request(self) -> str | None:
        """The request that it is about, if the opening tells it."""
        return None if self.opening is None else self.opening.facts.get("request")

    def parts(self, size: int) -> Parts:
        """The complete parts of the tree of `size` entries that the proof shows."""
        return parts_of_inclusion(self.entry.leaf, self.entry.sequence - 1, size, self.proof)

    def faults(self, checkpoint: Checkpoint) -> Iterator[str]:
        """What is wrong with it, one line each."""
        place = self.entry.sequence
        root = root_of_inclusion(self.entry.leaf, place - 1, checkpoint.size, self.proof)
        if root != checkpoint.root:
            yield f"entry {place}: the proof does not show that this {self.entry.event!r} entry is in the log"
        if self.opening is not None:
            if self.opening.commitment != self.entry.facts.get("commitment"):
                yield f"entry {place}: the facts that are given for it are not those that it commits to"
            try:
                _require_facts(
                    f"entry {place}", self.entry.event, self.opening.facts, HIDDEN.get(self.entry.event, frozenset())
                )
            except InputError as error:
                yield str(error)

    def to_data(self) -> dict[str, Any]:
        """The plain data that is written as canonical JSON."""
        return {
            "entry": self.entry.to_data(),
            "proof": [each.hex() for each in self.proof],
            "opening": None if self.opening is None else self.opening.to_data(),
        }


@dataclass(frozen=True, slots=True)
class Earlier:
    """An earlier checkpoint of the log, with the proof that the later one continues it.

    Parameters
    ----------
    checkpoint
        The earlier checkpoint, with its signatures.
    proof
        The consistency proof of RFC 6962 to the excerpt's checkpoint.
    """

    checkpoint: Checkpoint
    proof: tuple[bytes, ...]

    def to_data(self) -> dict[str, Any]:
        """The plain data that is written as canonical JSON."""
        return {"checkpoint": str(self.checkpoint), "proof": [each.hex() for each in self.proof]}


@dataclass(frozen=True, slots=True)
class Excerpt:
    """What a certificate shows of the log. `Excerpt.of` makes one from the log's tree.

    Parameters
    ----------
    checkpoint
        The signed checkpoint of the whole log at the time of the certificate.
    shown
        The entries that the certificate rests on, in their order, each with its proof.
    earlier
        Earlier checkpoints that it continues, such as the last one that a witness cosigned.
    """

    checkpoint: Checkpoint
    shown: tuple[Shown, ...]
    earlier: tuple[Earlier, ...] = ()

    @classmethod
    def of(
        cls,
        tree: Tree,
        checkpoint: Checkpoint,
        entries: Iterable[Entry],
        *,
        openings: Mapping[int, Opening] = MappingProxyType({}),
        earlier: Iterable[Checkpoint] = (),
    ) -> Self:
        """Show some entries of a log.

        Parameters
        ----------
        tree
            The tree of the whole log.
        checkpoint
            Its signed checkpoint.
        entries
            The entries to show, in their order.
        openings
            What entries commit to, by their sequence numbers.
        earlier
            Earlier checkpoints of the same log.

        Returns
        -------
        Excerpt
            The entries with their proofs.
        """
        size = checkpoint.size
        return cls(
            checkpoint,
            tuple(
                Shown(each, tuple(tree.inclusion(each.sequence - 1, size)), openings.get(each.sequence))
                for each in entries
            ),
            tuple(Earlier(each, tuple(tree.consistency(each.size, size))) for each in earlier),
        )

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The entries that are shown."""
        return tuple(each.entry for each in self.shown)

    @property
    def parts(self) -> Parts:
        """The complete parts of the tree that the proofs show. The proofs must hold."""
        found: Parts = {}
        for each in self.shown:
            found |= each.parts(self.checkpoint.size)
        return found

    def about(self, request: str) -> list[Shown]:
        """The entries about a request."""
        return [each for each in self.shown if each.request == request]

    def faults(self, deployment_id: str, key: PublicKey) -> list[str]:
        """List everything that does not fit together; empty for a sound excerpt of that deployment's log."""
        origin = log_origin(deployment_id)
        found = [
            line
            for checkpoint in (self.checkpoint, *(each.checkpoint for each in self.earlier))
            for line in _checkpoint_faults(checkpoint, origin, key)
        ]
        found += [line for each in self.shown for line in each.faults(self.checkpoint)]
        found += [
            f"entry {after}: it is out of order among the entries"
            for before, after in pairwise(each.entry.sequence for each in self.shown)
            if after <= before
        ]
        now = self.checkpoint
        return found + [
            f"the checkpoint of size {then.size} is not continued by the one of size {now.size}"
            for then, proof in ((each.checkpoint, each.proof) for each in self.earlier)
            if not is_consistent(then.size, then.root, now.size, now.root, proof)
        ]

    def to_data(self) -> dict[str, Any]:
        """The plain data that is written as canonical JSON."""
        return {
            "checkpoint": str(self.checkpoint),
            "shown": [each.to_data() for each in self.shown],
            "earlier": [each.to_data() for each in self.earlier],
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_data` gave. This does not check proofs and signatures; `faults` does."""
        shown, earlier = (checks.sequence_of(name, data[name]) for name in ("shown", "earlier"))
        for what, found, most in (("entries", shown, _MOST_SHOWN), ("earlier checkpoints", earlier, _MOST_EARLIER)):
            if len(found) > most:
                raise InputError(f"there are {len(found):,} {what}; more than {most:,} are not read")
        return cls(
            checkpoint=_read_checkpoint("checkpoint", data["checkpoint"]),
            shown=tuple(map(_read_shown, shown)),
            earlier=tuple(map(_read_earlier, earlier)),
        )


def _checkpoint_faults(checkpoint: Checkpoint, origin: str, key: PublicKey) -> Iterator[str]:
    if checkpoint.origin != origin:
        yield f"the checkpoint is of the log {checkpoint.origin!r:.80}, not of {origin!r:.80}"
    elif not checkpoint.is_signed_by(NoteKey(origin, key)):
        yield f"the checkpoint of size {checkpoint.size} is not signed with the certificate's key"


def _read_checkpoint(name: str, text: Any) -> Checkpoint:
    return Checkpoint.parse(checks.text(name, text))


def _read_shown(data: Any) -> Shown:
    _require_names("an entry with its proof", data, {"entry", "proof", "opening"})
    _require_names("an entry", data["entry"], {"sequence", "at", "event", "facts"})
    opening = data["opening"]
    if opening is not None:
        _require_names("an opening", opening, {"salt", "facts"})
        salt = bytes.fromhex(checks.digest("the salt of a commitment", opening["salt"]))
        if not isinstance(opening["facts"], dict):
            raise InputError("the facts of an opening must be an object")
        opening = Opening(salt, opening["facts"])
    return Shown(Entry(**data["entry"]), _read_proof(data["proof"]), opening)


def _read_earlier(data: Any) -> Earlier:
    _require_names("an earlier checkpoint", data, {"checkpoint", "proof"})
    return Earlier(_read_checkpoint("an earlier checkpoint", data["checkpoint"]), _read_proof(data["proof"]))


def _read_proof(data: Any) -> tuple[bytes, ...]:
    found = checks.sequence_of("a proof", data)
    if len(found) > _MOST_HASHES:
        raise InputError(f"a proof has at most {_MOST_HASHES} hashes, got {len(found):,}")
    return tuple(bytes.fromhex(checks.digest("a hash of a proof", each)) for each in found)


def _require_names(what: str, data: Any, names: set[str]) -> None:
    if not isinstance(data, dict) or set(data) != names:
        raise InputError(f"{what} must have {', '.join(sorted(names))}, and nothing else")
