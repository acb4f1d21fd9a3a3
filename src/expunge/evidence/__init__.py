"""Signed certificates about a request or a whole deployment. They are checked offline, without training code.

A deployment keeps a hash-chained ledger (`genesis`, `append`, `check_ledger`) and issues a `Certificate` from plain
facts (`issue`). An auditor checks it (`verify`) or reads it as a page (`render_page`).
"""

from expunge.evidence.canonical import MAX_BYTES, read_canonical, write_canonical
from expunge.evidence.certificate import Certificate, issue, read_certificate
from expunge.evidence.facts import CountFacts, DeploymentFacts, GuaranteeFacts, PublicationFacts, RequestFacts
from expunge.evidence.hashes import hash_id, hash_ids, keyed_hash, request_key
from expunge.evidence.keys import PublicKey, SigningKey
from expunge.evidence.ledger import EVENTS, TICKED, Entry, Excerpt, Fault, Head, Line, append, check_ledger, genesis
from expunge.evidence.page import render_page
from expunge.evidence.verification import Check, Verification, verify

__all__ = [
    "EVENTS",
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
    "Verification",
    "append",
    "check_ledger",
    "genesis",
    "hash_id",
    "hash_ids",
    "issue",
    "keyed_hash",
    "read_canonical",
    "read_certificate",
    "render_page",
    "request_key",
    "verify",
    "write_canonical",
]
