"""The tables, as the list of migrations that made them.

To change the format: append a migration, never edit one. A folder of an older version passes through the missing ones
when it is opened; a newer folder is refused.
"""

from __future__ import annotations

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        # Facts of the deployment, as JSON; all public but for what `provenance` may hold.
        "CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
        # Learner and front, in formats that cannot run code.
        "CREATE TABLE objects (name TEXT PRIMARY KEY, format TEXT NOT NULL, data BLOB NOT NULL)",
        # Where the deployment stands; one row.
        "CREATE TABLE present (only INTEGER PRIMARY KEY CHECK (only = 1), generation INTEGER NOT NULL, "
        "round INTEGER NOT NULL, epoch INTEGER NOT NULL, num_slots INTEGER NOT NULL, "
        "models_trained INTEGER NOT NULL, serving TEXT)",
        # The books of every generation: how many predictions are paid for, whether it is dirty. The gate is secret.
        "CREATE TABLE generations (generation INTEGER PRIMARY KEY, reserved INTEGER NOT NULL, "
        "dirty INTEGER NOT NULL, gate TEXT)",
        # The secret half: which slots a shard holds, its seeds, and the file of its model.
        "CREATE TABLE shards (shard INTEGER PRIMARY KEY, members BLOB NOT NULL, slices BLOB, seeds TEXT NOT NULL, "
        "file TEXT NOT NULL, format TEXT NOT NULL, digest BLOB NOT NULL)",
        # Slots whose record was deleted, and whether their bytes have been overwritten.
        "CREATE TABLE dead (slot INTEGER PRIMARY KEY, erased INTEGER NOT NULL)",
        # What was asked. `content` holds ids in clear until the request is applied; `file` the records to be added.
        "CREATE TABLE requests (number INTEGER PRIMARY KEY AUTOINCREMENT, request TEXT NOT NULL UNIQUE, "
        "key BLOB UNIQUE, fingerprint BLOB NOT NULL, kind TEXT NOT NULL, state TEXT NOT NULL, "
        "accepted_at TEXT NOT NULL, applied_by TEXT, "
        "generation INTEGER, round INTEGER, deletions INTEGER NOT NULL, additions INTEGER NOT NULL, "
        "hashes TEXT NOT NULL, content TEXT, file TEXT)",
        "CREATE INDEX requests_by_state ON requests (state)",
        # Keyed hashes of what was deleted on request, so that it does not silently come back.
        "CREATE TABLE forgotten (hash BLOB PRIMARY KEY) WITHOUT ROWID",
        # The hash-chained ledger of public facts.
        "CREATE TABLE ledger (sequence INTEGER PRIMARY KEY, entry TEXT NOT NULL, link BLOB NOT NULL)",
    ),
    (
        # The keyed hashes of a request's records have a row of their own, which no change of its state writes again.
        "CREATE TABLE hashes (request TEXT PRIMARY KEY, hashes TEXT NOT NULL)",
        "INSERT INTO hashes SELECT request, hashes FROM requests WHERE hashes <> '[]'",
        "UPDATE requests SET hashes = '[]' WHERE hashes <> '[]'",  # of no use any more
    ),
    (
        # Fingerprints of additions go when these are in force: features of deleted records could be guessed with them.
        "UPDATE requests SET fingerprint = x'' WHERE additions > 0 AND state IN ('switched', 'applied')",
    ),
    # A generation may be dirty by its mark alone (`mark.py`), and a student's lesson says whether it may be kept:
    # nothing to change, but older versions know neither, and must not go on with such a folder.
    (),
)

VERSION = len(MIGRATIONS)
