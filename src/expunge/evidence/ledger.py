"""The ledger: what happened to a deployment, in order, chained by hashes so that later changes are detected.

    digest_i = SHA-256(canonical JSON of entry_i)
    link_0   = SHA-256("expunge ledger genesis 1" 0x00 deployment-id)      i = 1, 2, … is the entry's sequence number
    link_i   = SHA-256(link_{i-1} digest_i)

Entries hold public facts only: `EVENTS` lists the facts that each event may tell. A fact on the list depends on the
secret randomness only if a certificate tells it too (see `facts`). The exceptions are `key_commitment`, a one-way hash
of the recipe key; the verdict of a recomputation (`agrees`); and `models`, a hash of salted commitments to the models,
which is left out where an (α,β,γ) is promised. An event that shows the end of a retraining is dated by the clock tick
(`TICKED`).

Under a consensus no entry may show when a generation ended, because that shows that a consensus failed. So no entry
names a generation or counts its predictions, and there are no `generation` entries. Each round has a `round` entry
instead, with a commitment to the key in force that is made for this round: a renewed key looks like the old one.

A certificate carries a stretch of the ledger (`Excerpt`): some entries in full, the others as digests. Entries from
before the stretch that its sentences rest on are shown too (`earlier`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Final, Self

from expunge.core.errors import InputError, ParameterError
from expunge.evidence import checks
from expunge.evidence.canonical import write_canonical

_GENESIS: Final = b"expunge ledger genesis 1\x00"
_LINK_BYTES: Final = 32

#: The facts that an entry may tell, by event. Never add a fact that depends on the secret randomness.
EVENTS: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "created": frozenset(
            {"name", "num_records", "num_shards", "num_classes", "learner", "sampler", "promise", "tick_seconds"}
            | {"software", "fingerprint", "max_generations", "max_predictions", "key_commitment"}
            | {"witness", "nonce", "committed", "unused"}
        ),
        "accepted": frozenset({"request", "num_deletions", "num_additions", "id_hashes"}),
        "applied": frozenset({"request", "generation", "round"}),
        "cancelled": frozenset({"request"}),
        "committed": frozenset({"key_commitment"}),
        "generation": frozenset(
            {"generation", "round", "reason", "key_commitment", "witness", "nonce", "committed", "unused"}
        ),
        "schema": frozenset({"generation", "round", "changed", "num_classes", "allow_missing"}),
        "round": frozenset({"round", "key_commitment"}),
        "published": frozenset({"generation", "round", "predictions"}),
        "certificate": frozenset({"request", "kind", "digest"}),
        "key": frozenset({"fingerprint"}),
        "recomputed": frozenset(
            {"generation", "round", "num_checked", "num_different", "agrees", "chosen_by", "checkpoint", "models"}
        ),
    }
)

#: Events that show the end of a retraining: their time is rounded up to the deployment's clock tick.
TICKED: Final = frozenset({"applied", "generation", "round", "schema", "recomputed"})


@dataclass(frozen=True, slots=True)
class Head:
    """Where the chain stands after a number of entries.

    Parameters
    ----------
    sequence
        The number of entries; 0 is the beginning of the ledger.
    link
        The link that they lead to, 32 bytes.
    """

    sequence: int
    link: bytes

    def __post_init__(self) -> None:
        checks.count("the sequence number of a head", self.sequence)
        _require_link(self.link)

    def to_data(self) -> dict[str, Any]:
        """The plain data that is written as canonical JSON."""
        return {"sequence": self.sequence, "link": self.link.hex()}


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that happened to a deployment.

    Parameters
    ----------
    sequence
        Its place in the ledger, from 1.
    at
        When it happened, such as 2026-11-16T02:00:00Z.
    event
        What happened: one of `EVENTS`.
    facts
        Public facts about it. `EVENTS` lists their names.
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
        if not isinstance(self.facts, Mapping):
            raise ParameterError(f"entry {self.sequence}: facts must be an object")
        strange = sorted(map(str, set(self.facts) - EVENTS[self.event]))
        if strange:
            raise ParameterError(f"entry {self.sequence}: {self.event!r} may not tell {', '.join(strange)[:200]}")

    @property
    def digest(self) -> bytes:
        """The SHA-256 of the entry in canonical JSON."""
        return hashlib.sha256(write_canonical(self.to_data())).digest()

    def to_data(self) -> dict[str, Any]:
        """The plain data that is written as canonical JSON."""
        return {"sequence": self.sequence, "at": self.at, "event": self.event, "facts": dict(self.facts)}


@dataclass(frozen=True, slots=True)
class Line:
    """An entry together with the link of the chain after it.

    Parameters
    ----------
    entry
        The entry.
    link
        The link that it leads to, 32 bytes.
    """

    entry: Entry
    link: bytes

    @property
    def head(self) -> Head:
        """Where the chain stands after this entry."""
        return Head(self.entry.sequence, self.link)


@dataclass(frozen=True, slots=True)
class Fault:
    """An entry of a ledger that is wrong, and why.

    Parameters
    ----------
    sequence
        The place of the entry.
    why
        What is wrong with it.
    """

    sequence: int
    why: str

    def __str__(self) -> str:
        return f"entry {self.sequence}: {self.why}"


def genesis(deployment_id: str) -> Head:
    """Start the ledger of a deployment.

    Parameters
    ----------
    deployment_id
        The deployment that the ledger is bound to.

    Returns
    -------
    Head
        The chain before its first entry.

    Examples
    --------
    >>> genesis("0f8fad5b").sequence
    0
    """
    return Head(0, hashlib.sha256(_GENESIS + deployment_id.encode("utf-8")).digest())


def append(head: Head, *, at: str, event: str, facts: Mapping[str, Any]) -> Line:
    """Make the next entry of a ledger.

    Parameters
    ----------
    head
        Where the chain stands.
    at
        When it happened, such as 2026-11-16T02:00:00Z.
    event
        What happened: one of `EVENTS`.
    facts
        Public facts about it. `EVENTS` lists their names.

    Returns
    -------
    Line
        The entry and its link. Its `head` is where the chain then stands.

    Raises
    ------
    ParameterError
        If there is no such event, or the event may not tell such a fact.

    Examples
    --------
    >>> line = append(genesis("0f8fad5b"), at="2026-11-16T02:00:00Z", event="created", facts={"name": "churn"})
    >>> line.head.sequence
    1
    """
    entry = Entry(head.sequence + 1, at, event, facts)
    return Line(entry, next_link(head.link, entry.digest))


def next_link(link: bytes, digest: bytes) -> bytes:
    """Compute link_i from link_{i-1} and the digest of entry i."""
    return hashlib.sha256(_require_link(link) + _require_link(digest)).digest()


def check_ledger(start: Head, lines: Iterable[Line], *, head: Head | None = None) -> Fault | None:
    """Follow a ledger and find the first entry that is wrong.

    Parameters
    ----------
    start
        Where the chain stands before the first line; `genesis(deployment_id)` for a whole ledger.
    lines
        The lines, in order.
    head
        Where the ledger must end. Without it, missing lines at the end are not noticed.

    Returns
    -------
    Fault or None
        The first fault, or None if the ledger is sound.

    Examples
    --------
    >>> start = genesis("0f8fad5b")
    >>> line = append(start, at="2026-11-16T02:00:00Z", event="created", facts={})
    >>> check_ledger(start, [line], head=line.head) is None
    True
    >>> print(check_ledger(start, [], head=line.head))
    entry 1: is missing; the ledger has 1 entries and ends after 0
    """
    at = start
    for line in lines:
        expected = at.sequence + 1
        if line.entry.sequence != expected:
            return Fault(expected, f"is missing; the ledger goes on with entry {line.entry.sequence}")
        try:
            link = next_link(at.link, line.entry.digest)
        except InputError as error:
            return Fault(expected, str(error))
        if link != line.link:
            return Fault(expected, "its content, or that of the chain before it, was changed: the link does not fit")
        at = line.head
    if head is not None and at.sequence != head.sequence:
        return Fault(min(at.sequence, head.sequence) + 1, _length_fault(at, head))
    if head is not None and at.link != head.link:
        return Fault(at.sequence, "is not the entry that the head was taken from")
    return None


def _length_fault(at: Head, head: Head) -> str:
    if at.sequence < head.sequence:
        return f"is missing; the ledger has {head.sequence} entries and ends after {at.sequence}"
    return f"is one too many; the ledger has {head.sequence} entries"


def _require_link(link: object) -> bytes:
    if not isinstance(link, bytes) or len(link) != _LINK_BYTES:
        raise ParameterError(f"a link of the ledger must be {_LINK_BYTES} bytes")
    return link


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A stretch of a ledger that can be followed offline. `Excerpt.of` makes one from entries.

    Parameters
    ----------
    start
        Where the chain stands before the stretch.
    digests
        The digests of all entries of the stretch, in order, in hexadecimal.
    entries
        Some of these entries in full.
    head
        Where the chain stands at the end.
    earlier
        Some entries from before the stretch, in full. The whole ledger shows that they are in the chain; the stretch
        does not.
    """

    start: Head
    digests: tuple[str, ...]
    entries: tuple[Entry, ...]
    head: Head
    earlier: tuple[Entry, ...] = ()

    @classmethod
    def of(cls, start: Head, rows: Iterable[Entry | bytes] = (), *, earlier: Iterable[Entry] = ()) -> Self:
        """Make the stretch after `start`. Give an `Entry` to show it in full, or its 32-byte digest."""
        digests, entries, link = [], [], start.link
        for place, row in enumerate(rows, start.sequence + 1):
            if isinstance(row, Entry):
                if row.sequence != place:
                    raise ParameterError(f"entry {place} of the ledger is missing, got entry {row.sequence}")
                entries.append(row)
            digest = row.digest if isinstance(row, Entry) else row
            link = next_link(link, digest)
            digests.append(digest.hex())
        return cls(start, tuple(digests), tuple(entries), Head(start.sequence + len(digests), link), tuple(earlier))

    @property
    def shown(self) -> tuple[Entry, ...]:
        """All entries that are shown in full, in their order."""
        return (*self.earlier, *self.entries)

    @property
    def is_complete(self) -> bool:
        """Whether every entry since the creation of the deployment is shown in full."""
        return self.start.sequence == 0 and len(self.entries) == self.head.sequence

    def faults(self, deployment_id: str) -> list[Fault]:
        """List everything that does not fit together; empty for a sound excerpt of that deployment's ledger."""
        found = [fault for entry in self.entries if (fault := self._entry_fault(entry)) is not None]
        found += [
            Fault(entry.sequence, "does not come before the stretch of the ledger that the certificate carries")
            for entry in self.earlier
            if entry.sequence > self.start.sequence
        ]
        numbers = [entry.sequence for entry in self.shown]
        found += [
            Fault(after, "is out of order among the entries shown in full")
            for before, after in pairwise(numbers)
            if after <= before
        ]
        if self.start.sequence == 0 and self.start.link != genesis(deployment_id).link:
            found.append(Fault(1, "the chain does not begin at the genesis link of this deployment"))
        return found + self._head_faults()

    def _entry_fault(self, entry: Entry) -> Fault | None:
        place = entry.sequence - self.start.sequence - 1
        if not 0 <= place < len(self.digests):
            return Fault(entry.sequence, "lies outside the stretch of the ledger that the certificate carries")
        if entry.digest.hex() != self.digests[place]:
            return Fault(entry.sequence, f"the {entry.event!r} entry does not match its digest in the chain")
        return None

    def _head_faults(self) -> list[Fault]:
        length = self.start.sequence + len(self.digests)
        if length != self.head.sequence:
            return [Fault(min(length, self.head.sequence) + 1, "the chain and its head differ in length")]
        link = self.start.link
        for digest in self.digests:
            link = next_link(link, bytes.fromhex(digest))
        return [] if link == self.head.link else [Fault(length, "the chain does not lead to the head that is stated")]

    def to_data(self) -> dict[str, Any]:
        """The plain data that is written as canonical JSON."""
        return {
            "start": self.start.to_data(),
            "digests": list(self.digests),
            "entries": [entry.to_data() for entry in self.entries],
            "head": self.head.to_data(),
            "earlier": [entry.to_data() for entry in self.earlier],
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_data` gave. This does not check the chain; `faults` does."""
        digests = checks.sequence_of("digests", data["digests"])
        entries = checks.sequence_of("entries", data["entries"])
        earlier = checks.sequence_of("earlier", data["earlier"])
        return cls(
            start=_read_head("start", data["start"]),
            digests=tuple(checks.digest("a digest of the ledger", digest) for digest in digests),
            entries=tuple(map(_read_entry, entries)),
            head=_read_head("head", data["head"]),
            earlier=tuple(map(_read_entry, earlier)),
        )


def _read_head(name: str, data: Any) -> Head:
    if not isinstance(data, dict) or set(data) != {"sequence", "link"}:
        raise InputError(f"{name} must have a sequence and a link, and nothing else")
    link = checks.digest(f"the link of {name}", data["link"])
    return Head(checks.count(f"the sequence of {name}", data["sequence"]), bytes.fromhex(link))


def _read_entry(data: Any) -> Entry:
    names = {"sequence", "at", "event", "facts"}
    if not isinstance(data, dict) or set(data) != names:
        raise InputError(f"an entry must have {', '.join(sorted(names))}, and nothing else")
    return Entry(**data)
