"""One deployment's log and its certificates, as a deployment would make them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from expunge.evidence import (
    HIDDEN,
    Certificate,
    Checkpoint,
    CountFacts,
    DeploymentFacts,
    Entry,
    ExactFacts,
    Excerpt,
    GuaranteeFacts,
    Opening,
    PublicationFacts,
    RequestFacts,
    SigningKey,
    Tree,
    digest_of_hashes,
    hash_ids,
    issue,
    log_origin,
    request_key,
)

REQUEST = "b7f6c2a1"
SECRET = bytes(range(32))
DEPLOYMENT = "0f8fad5b-d9cb-469f-a165-70867728950e"
RECOMPUTED = {
    "generation": 1,
    "round": 12,
    "num_checked": 20,
    "agrees": True,
    "chosen_by": "checkpoint",
    "checkpoint": "cd" * 32,
}
SHOWN = ("created", "generation", "recomputed")
Happened = tuple[str, str, dict[str, Any]]


class Log:
    """A log in memory: entries with their openings, and the tree over them."""

    def __init__(self, key: SigningKey, happened: Sequence[Happened] = (), *, deployment: str = DEPLOYMENT) -> None:
        self.key, self.origin = key, log_origin(deployment)
        self.entries: list[Entry] = []
        self.openings: dict[int, Opening] = {}
        self.tree = Tree()
        for at, event, facts in happened:
            self.append(at, event, facts)

    def append(self, at: str, event: str, facts: dict[str, Any]) -> None:
        """Add an entry; of a request it holds a commitment."""
        clamped = {"clamped": True} if facts.get("clamped") else {}
        facts = {name: value for name, value in facts.items() if name != "clamped"}
        if event in HIDDEN:
            opening = Opening(bytes([len(self.entries) % 256]) * 32, facts)
            self.openings[len(self.entries) + 1] = opening
            facts = {"commitment": opening.commitment}
        self.put(Entry(len(self.entries) + 1, at, event, {**facts, **clamped}))

    def put(self, entry: Entry) -> None:
        """Add an entry as it is."""
        self.entries.append(entry)
        self.tree.append(entry.leaf)

    def checkpoint(self, size: int | None = None) -> Checkpoint:
        """The signed checkpoint of the log, or of its first entries."""
        size = len(self.tree) if size is None else size
        return Checkpoint(self.origin, size, self.tree.root(size)).signed(self.key)

    def excerpt(
        self, *places: int, request: str = REQUEST, size: int | None = None, earlier: Sequence[Checkpoint] = ()
    ) -> Excerpt:
        """Show the entries in these places, with the openings of those of one request."""
        openings = {place: each for place, each in self.openings.items() if each.facts["request"] == request}
        entries = [self.entries[place - 1] for place in places]
        return Excerpt.of(self.tree, self.checkpoint(size), entries, openings=openings, earlier=earlier)

    def about(self, request: str | None, **options: Any) -> Excerpt:
        """Show the entries of a request, and those of the recipe."""
        own = {place for place, each in self.openings.items() if each.facts["request"] == request}
        places = [each.sequence for each in self.entries if each.sequence in own or each.event in SHOWN]
        return self.excerpt(*places, request=request or "", **options)


@dataclass(frozen=True)
class Office:
    """Everything that certificates of one deployment are made of."""

    key: SigningKey
    log: Log
    deployment: DeploymentFacts
    publication: PublicationFacts
    exact: ExactFacts
    guarantee: GuaranteeFacts
    request: RequestFacts
    counts: CountFacts

    def new_log(self, change: Any = lambda happened: happened) -> Log:
        """The same log again, with other events."""
        return Log(self.key, change(happened(self.request.id_hashes)))

    def issue(self, **changes: Any) -> Certificate:
        facts: dict[str, Any] = {
            "key": self.key,
            "deployment": self.deployment,
            "publication": self.publication,
            "exact": self.exact,
            "guarantee": self.guarantee,
            "issued_at": "2026-11-16T09:30:00Z",
            "log": self.log.about(REQUEST),
            "request": self.request,
        }
        return issue(**{**facts, **changes})

    def issue_for_deployment(self, **changes: Any) -> Certificate:
        return self.issue(**{"request": None, "counts": self.counts, "log": self.log.about(None), **changes})


def happened(ids: tuple[str, ...]) -> list[Happened]:
    """What happened to the deployment."""
    records = digest_of_hashes(ids)
    nothing = digest_of_hashes([])
    return [
        (
            "2026-11-01T08:00:00Z",
            "created",
            {"name": "churn", "num_records": 5000, "num_shards": 1000, "learner": "LogisticRegression"},
        ),
        (
            "2026-11-01T09:00:00Z",
            "generation",
            {"generation": 1, "round": 0, "reason": "on a clock", "key_commitment": "ab" * 32},
        ),
        (
            "2026-11-10T10:00:07Z",
            "accepted",
            {"request": "aaaa0001", "num_deletions": 1, "num_additions": 0, "num_corrections": 0, "records": nothing},
        ),
        (
            "2026-11-15T21:12:41Z",
            "accepted",
            {"request": REQUEST, "num_deletions": 2, "num_additions": 0, "num_corrections": 0, "records": records},
        ),
        ("2026-11-16T01:00:00Z", "applied", {"request": "aaaa0001", "generation": 1, "round": 11}),
        ("2026-11-16T02:00:00Z", "applied", {"request": REQUEST, "generation": 1, "round": 12}),
        ("2026-11-16T04:00:00Z", "recomputed", RECOMPUTED),
        (
            "2026-11-16T04:44:10Z",
            "accepted",
            {"request": "aaaa0002", "num_deletions": 0, "num_additions": 9, "num_corrections": 0, "records": nothing},
        ),
    ]


@pytest.fixture(scope="session")
def office() -> Office:
    return make_office()


def make_office(key: SigningKey | None = None) -> Office:
    """One deployment with a key of its own."""
    key = key or SigningKey.generate()
    ids = hash_ids(request_key(SECRET, REQUEST), [17, 23])
    return Office(
        key=key,
        log=Log(key, happened(ids)),
        deployment=DeploymentFacts(
            deployment_id=DEPLOYMENT,
            name="churn",
            created_at="2026-11-01T08:00:00Z",
            tick_seconds=3600,
            promise="consensus",
            sampler_is_independent=True,
        ),
        exact=ExactFacts(learner="LogisticRegression", num_shards=1000),
        publication=PublicationFacts(
            generation=1, round=12, predictions_reserved=812, predictions_released=812, predictions_covered=10_000
        ),
        guarantee=GuaranteeFacts(
            1.0,
            1e-3,
            1e-3,
            theorem="T4, Theorem D (paper form)",
            parameters={"num_shards": 1000, "max_queries": 10_000, "generations": 100, "sure_release_share": 0.912},
            assumptions=("The shards are drawn and trained with independent randomness.",),
        ),
        request=RequestFacts(
            request_id=REQUEST,
            num_deletions=2,
            num_additions=0,
            accepted_at="2026-11-15T21:12:41Z",
            state="applied",
            applied_by="2026-11-16T02:00:00Z",
            generation=1,
            round=12,
            id_hashes=ids,
        ),
        counts=CountFacts(num_records=4997, accepted=3, applied=2, pending=1, cancelled=0),
    )
