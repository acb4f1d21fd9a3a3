"""The stretch of a ledger that a certificate carries: some entries in full, the others as digests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

from expunge.certificates import _require
from expunge.certificates.ledger import Entry, Fault, Head, genesis, next_link
from expunge.errors import InputError, ParameterError


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A stretch of a ledger that can be followed offline.

    `start` stands for everything before (genesis: nothing is); `digests` are those of all entries after it, in order,
    in hexadecimal; `entries` are some of the same entries in full; `head` is where they lead.
    """

    start: Head
    digests: tuple[str, ...]
    entries: tuple[Entry, ...]
    head: Head

    @classmethod
    def of(cls, start: Head, rows: Iterable[Entry | bytes] = ()) -> Self:
        """The stretch after `start`: an `Entry` is shown in full, of the others the 32-byte digest is given."""
        digests, entries, link = [], [], start.link
        for place, row in enumerate(rows, start.sequence + 1):
            if isinstance(row, Entry):
                if row.sequence != place:
                    raise ParameterError(f"entry {place} of the ledger is missing, got entry {row.sequence}")
                entries.append(row)
            digest = row.digest if isinstance(row, Entry) else row
            link = next_link(link, digest)
            digests.append(digest.hex())
        return cls(start, tuple(digests), tuple(entries), Head(start.sequence + len(digests), link))

    @property
    def is_complete(self) -> bool:
        """Whether every entry since the creation of the deployment is shown in full."""
        return self.start.sequence == 0 and len(self.entries) == self.head.sequence

    def faults(self, deployment_id: str) -> list[Fault]:
        """Everything that does not fit together; empty for a sound excerpt of that deployment's ledger."""
        found = [fault for entry in self.entries if (fault := self._entry_fault(entry)) is not None]
        numbers = [entry.sequence for entry in self.entries]
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
        """For canonical JSON."""
        return {
            "start": self.start.to_data(),
            "digests": list(self.digests),
            "entries": [entry.to_data() for entry in self.entries],
            "head": self.head.to_data(),
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """From what `to_data` gave; the chain is not checked here."""
        digests = _require.sequence_of("digests", data["digests"])
        entries = _require.sequence_of("entries", data["entries"])
        return cls(
            start=_read_head("start", data["start"]),
            digests=tuple(_require.digest("a digest of the ledger", digest) for digest in digests),
            entries=tuple(map(_read_entry, entries)),
            head=_read_head("head", data["head"]),
        )


def _read_head(name: str, data: Any) -> Head:
    if not isinstance(data, dict) or set(data) != {"sequence", "link"}:
        raise InputError(f"{name} must have a sequence and a link, and nothing else")
    link = _require.digest(f"the link of {name}", data["link"])
    return Head(_require.count(f"the sequence of {name}", data["sequence"]), bytes.fromhex(link))


def _read_entry(data: Any) -> Entry:
    names = {"sequence", "at", "event", "facts"}
    if not isinstance(data, dict) or set(data) != names:
        raise InputError(f"an entry must have {', '.join(sorted(names))}, and nothing else")
    return Entry(**data)
