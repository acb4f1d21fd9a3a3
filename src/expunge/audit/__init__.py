"""Audits: requesters and attacks that show what an unlearning scheme gives away."""

from expunge.audit.lookup import LookupResult, attack_lookup, in_the_event, make_pairs
from expunge.audit.publishing import PublishVotes
from expunge.audit.requesters import DeleteCorrect, DeleteMostShared

__all__ = [
    "DeleteCorrect",
    "DeleteMostShared",
    "LookupResult",
    "PublishVotes",
    "attack_lookup",
    "in_the_event",
    "make_pairs",
]
