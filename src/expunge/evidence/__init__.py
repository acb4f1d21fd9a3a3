"""Signed certificates of what became of a request, and of a whole deployment; checked offline, without training code.

A deployment keeps a hash-chained ledger (`genesis`, `append`, `check_ledger`), and issues (`issue`) a `Certificate`
from plain facts. Anybody checks it (`verify`) or reads it as a page (`render_page`).
"""

from expunge.core.words import round_up, seconds_of, utc
from expunge.evidence.canonical import MAX_BYTES, canonical, parse
from expunge.evidence.certificate import FORMAT, Certificate, disagreements, issue
from expunge.evidence.facts import (
    CountFacts,
    DeploymentFacts,
    GuaranteeFacts,
    PublicationFacts,
    RequestFacts,
)
from expunge.evidence.hashes import hash_id, hash_ids, keyed_hash, request_key
from expunge.evidence.keys import PublicKey, SigningKey
from expunge.evidence.log import (
    EVENTS,
    TICKED,
    Entry,
    Excerpt,
    Fault,
    Head,
    Line,
    append,
    check_ledger,
    genesis,
)
from expunge.evidence.page import render_page
from expunge.evidence.parsing import read_certificate
from expunge.evidence.statements import Statements
from expunge.evidence.verification import Check, Verification, verify

__all__ = [
    "EVENTS",
    "FORMAT",
    "MAX_BYTES",
    "TICKED",
    "Certificate",
    "Check",
    "CountFacts",
    "DeploymentFacts",
    "Entry",
    "Excerpt",
    "Fault",
    "GuaranteeFacts",
    "Head",
    "Line",
    "PublicKey",
    "PublicationFacts",
    "RequestFacts",
    "SigningKey",
    "Statements",
    "Verification",
    "append",
    "canonical",
    "check_ledger",
    "disagreements",
    "genesis",
    "hash_id",
    "hash_ids",
    "issue",
    "keyed_hash",
    "parse",
    "read_certificate",
    "render_page",
    "request_key",
    "round_up",
    "seconds_of",
    "utc",
    "verify",
]
