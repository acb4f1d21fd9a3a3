"""One deployment's ledger and its certificates, as a deployment would make them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from expunge.evidence import (
    Certificate,
    CountFacts,
    DeploymentFacts,
    Entry,
    ExactFacts,
    Excerpt,
    GuaranteeFacts,
    Line,
    PublicationFacts,
    RequestFacts,
    SigningKey,
    append,
    genesis,
    hash_ids,
    issue,
    request_key,
)

REQUEST = "b7f6c2a1"
SECRET = bytes(range(32))
RECOMPUTED = {
    "generation": 1,
    "round": 12,
    "num_checked": 20,
    "agrees": True,
    "chosen_by": "checkpoint",
    "checkpoint": "cd" * 32,
}
SHOWN = ("generation", "recomputed")


@dataclass(frozen=True)
class Office:
    """Everything that certificates of one deployment are made of."""

    key: SigningKey
    lines: tuple[Line, ...]
    deployment: DeploymentFacts
    publication: PublicationFacts
    exact: ExactFacts
    guarantee: GuaranteeFacts
    request: RequestFacts
    counts: CountFacts

    @property
    def excerpt(self) -> Excerpt:
        """From just before the entry of the key in force; the request's entries and those of the recipe in full."""
        own = [line.entry.facts.get("request") == REQUEST or line.entry.event in SHOWN for line in self.lines]
        first = 1
        rows: list[Entry | bytes] = [
            line.entry if mine else line.entry.digest
            for line, mine in zip(self.lines[first:], own[first:], strict=True)
        ]
        return Excerpt.of(self.lines[first - 1].head, rows)

    def issue(self, **changes: Any) -> Certificate:
        facts: dict[str, Any] = {
            "key": self.key,
            "deployment": self.deployment,
            "publication": self.publication,
            "exact": self.exact,
            "guarantee": self.guarantee,
            "issued_at": "2026-11-16T09:30:00Z",
            "ledger": self.excerpt,
            "request": self.request,
        }
        return issue(**{**facts, **changes})

    def issue_for_deployment(self, **changes: Any) -> Certificate:
        whole = Excerpt.of(genesis(self.deployment.deployment_id), [line.entry for line in self.lines])
        return self.issue(**{"request": None, "counts": self.counts, "ledger": whole, **changes})


def _ledger(deployment_id: str, ids: tuple[str, ...]) -> tuple[Line, ...]:
    happened = [
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
        ("2026-11-10T10:00:07Z", "accepted", {"request": "aaaa0001", "num_deletions": 1, "num_additions": 0}),
        (
            "2026-11-15T21:12:41Z",
            "accepted",
            {"request": REQUEST, "num_deletions": 2, "num_additions": 0, "id_hashes": list(ids)},
        ),
        ("2026-11-16T01:00:00Z", "applied", {"request": "aaaa0001", "generation": 1, "round": 11}),
        ("2026-11-16T02:00:00Z", "applied", {"request": REQUEST, "generation": 1, "round": 12}),
        ("2026-11-16T04:00:00Z", "recomputed", RECOMPUTED),
        ("2026-11-16T04:44:10Z", "accepted", {"request": "aaaa0002", "num_deletions": 0, "num_additions": 9}),
    ]
    lines: list[Line] = []
    for at, event, facts in happened:
        lines.append(append(lines[-1].head if lines else genesis(deployment_id), at=at, event=event, facts=facts))
    return tuple(lines)


@pytest.fixture(scope="session")
def office() -> Office:
    return make_office()


def make_office() -> Office:
    """One deployment with a key of its own."""
    deployment_id = "0f8fad5b-d9cb-469f-a165-70867728950e"
    ids = hash_ids(request_key(SECRET, REQUEST), [17, 23])
    return Office(
        key=SigningKey.generate(),
        lines=_ledger(deployment_id, ids),
        deployment=DeploymentFacts(
            deployment_id=deployment_id,
            name="churn",
            created_at="2026-11-01T08:00:00Z",
            tick_seconds=3600,
            promise="consensus",
            sampler_is_independent=True,
        ),
        exact=ExactFacts(learner="LogisticRegression", num_shards=1000),
        publication=PublicationFacts(generation=1, round=12, predictions_published=812, predictions_covered=10_000),
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
