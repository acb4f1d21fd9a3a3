"""Signed certificates about a request or a whole deployment. They are checked offline, without training code.

A deployment keeps a log (`Entry`, `Tree`, `Checkpoint`) and issues a `Certificate` from plain facts (`issue`). An
auditor checks it (`verify`), compares it with others (`compare`) or reads it as a page (`render_page`).
"""

from expunge.evidence.canonical import MAX_BYTES, read_canonical, write_canonical
from expunge.evidence.certificate import Certificate, issue, read_certificate
from expunge.evidence.checkpoint import Checkpoint, NoteKey, NoteSignature, load_note_key
from expunge.evidence.comparison import Comparison, compare
from expunge.evidence.envelope import Envelope, key_id
from expunge.evidence.facts import (
    WITHOUT_GUARANTEE,
    CountFacts,
    DeploymentFacts,
    ExactFacts,
    GuaranteeFacts,
    PublicationFacts,
    RequestFacts,
)
from expunge.evidence.hashes import (
    digest_of_hashes,
    hash_id,
    hash_ids,
    joined_hashes,
    keyed_hash,
    request_key,
    split_hashes,
)
from expunge.evidence.history import (
    KEY_EVENTS,
    RENEWALS,
    History,
    KeyDraw,
    RecomputationFacts,
    detection_chance,
    telling_entries,
)
from expunge.evidence.keys import PublicKey, SigningKey
from expunge.evidence.ledger import CLAMPED, EVENTS, HIDDEN, TICKED, Earlier, Entry, Excerpt, Opening, Shown, log_origin
from expunge.evidence.page import render_page
from expunge.evidence.publication import Publication, Submission
from expunge.evidence.statements import why_disagreeing
from expunge.evidence.tree import Peaks, Tree, hash_leaf, is_consistent, root_of_inclusion
from expunge.evidence.verification import Check, Verification, verify

__all__ = [
    "CLAMPED",
    "EVENTS",
    "HIDDEN",
    "KEY_EVENTS",
    "MAX_BYTES",
    "RENEWALS",
    "TICKED",
    "WITHOUT_GUARANTEE",
    "Certificate",
    "Check",
    "Checkpoint",
    "Comparison",
    "CountFacts",
    "DeploymentFacts",
    "Earlier",
    "Entry",
    "Envelope",
    "ExactFacts",
    "Excerpt",
    "GuaranteeFacts",
    "History",
    "KeyDraw",
    "NoteKey",
    "NoteSignature",
    "Opening",
    "Peaks",
    "PublicKey",
    "Publication",
    "PublicationFacts",
    "RecomputationFacts",
    "RequestFacts",
    "Shown",
    "SigningKey",
    "Submission",
    "Tree",
    "Verification",
    "compare",
    "detection_chance",
    "digest_of_hashes",
    "hash_id",
    "hash_ids",
    "hash_leaf",
    "is_consistent",
    "issue",
    "joined_hashes",
    "key_id",
    "keyed_hash",
    "load_note_key",
    "log_origin",
    "read_canonical",
    "read_certificate",
    "render_page",
    "request_key",
    "root_of_inclusion",
    "split_hashes",
    "telling_entries",
    "verify",
    "why_disagreeing",
    "write_canonical",
]
