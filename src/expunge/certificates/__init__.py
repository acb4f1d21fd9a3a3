"""Signed certificates of what became of a request, and of a whole deployment; checked offline, without training code.

A deployment keeps a hash-chained ledger (`genesis`, `append`, `check_ledger`), and issues (`issue`) a `Certificate`
from plain facts. Anybody checks it (`verify`) or reads it as a page (`render_page`).
"""

from expunge.certificates.agreement import disagreements
from expunge.certificates.canonical import MAX_BYTES, canonical, parse
from expunge.certificates.certificate import FORMAT, Certificate, issue
from expunge.certificates.display import shown
from expunge.certificates.excerpt import Excerpt
from expunge.certificates.facts import (
    CountFacts,
    DeploymentFacts,
    GuaranteeFacts,
    PublicationFacts,
    RequestFacts,
)
from expunge.certificates.hashes import hash_id, hash_ids, keyed_hash, request_key
from expunge.certificates.keys import PublicKey, SigningKey
from expunge.certificates.ledger import (
    EVENTS,
    TICKED,
    Entry,
    Fault,
    Head,
    Line,
    append,
    check_ledger,
    genesis,
)
from expunge.certificates.moments import round_up, seconds_of, utc
from expunge.certificates.page import render_page
from expunge.certificates.reading import read_certificate
from expunge.certificates.statements import Statements
from expunge.certificates.verification import Check, Verification, verify

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
    "shown",
    "utc",
    "verify",
]
