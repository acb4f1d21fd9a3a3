"""Signed certificates about a request or a whole deployment. They are checked offline, without training code.

A deployment keeps a hash-chained ledger (`genesis`, `append`, `check_ledger`) and issues a `Certificate` from plain
facts (`issue`). An auditor checks it (`verify`) or reads it as a page (`render_page`).
"""

from expunge.evidence.canonical import MAX_BYTES, read_canonical, write_canonical
from expunge.evidence.certificate import Certificate, issue, read_certificate
from expunge.evidence.checkpoint import Checkpoint, NoteKey, NoteSignature, load_note_key
from expunge.evidence.facts import (
    WITHOUT_GUARANTEE,
    CountFacts,
    DeploymentFacts,
    ExactFacts,
    GuaranteeFacts,
    PublicationFacts,
    RequestFacts,
)
from expunge.evidence.hashes import hash_id, hash_ids, keyed_hash, request_key
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
from expunge.evidence.ledger import EVENTS, TICKED, Entry, Excerpt, Fault, Head, Line, append, check_ledger, genesis
from expunge.evidence.page import render_page
from expunge.evidence.publication import Publication, Submission
from expunge.evidence.statements import why_disagreeing
from expunge.evidence.tree import Peaks, Tree, hash_leaf, is_consistent, root_of_inclusion
from expunge.evidence.verification import Check, Verification, verify

__all__ = [
    "EVENTS",
    "KEY_EVENTS",
    "MAX_BYTES",
    "RENEWALS",
    "TICKED",
    "WITHOUT_GUARANTEE",
    "Certificate",
    "Check",
    "Checkpoint",
    "CountFacts",
    "DeploymentFacts",
    "Entry",
    "ExactFacts",
    "Excerpt",
    "Fault",
    "GuaranteeFacts",
    "Head",
    "History",
    "KeyDraw",
    "Line",
    "NoteKey",
    "NoteSignature",
    "Peaks",
    "PublicKey",
    "Publication",
    "PublicationFacts",
    "RecomputationFacts",
    "RequestFacts",
    "SigningKey",
    "Submission",
    "Tree",
    "Verification",
    "append",
    "check_ledger",
    "detection_chance",
    "genesis",
    "hash_id",
    "hash_ids",
    "hash_leaf",
    "is_consistent",
    "issue",
    "keyed_hash",
    "load_note_key",
    "read_canonical",
    "read_certificate",
    "render_page",
    "request_key",
    "root_of_inclusion",
    "telling_entries",
    "verify",
    "why_disagreeing",
    "write_canonical",
]
