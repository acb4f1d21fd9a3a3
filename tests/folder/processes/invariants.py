"""What must be true of a folder after its process was killed, given what the process had told by then."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
from people import NUM_PEOPLE, Person, name_patterns, patterns_of, rows_of
from scanning import files_under, traces
from scenarios import Scenario
from story import updates_of

import expunge
from expunge.core.place import Place
from expunge.evidence import HIDDEN, Opening, Tree, hash_leaf, verify
from expunge.folder.codec import encode_model
from expunge.folder.store.packs import parted, read_model
from expunge.training.learners.protocol import fit_many
from expunge.training.learners.slices import SlicedShard, fit_slices
from expunge.training.surroundings import training

Told = list[dict[str, Any]]
_FILES = {"lock", "dirty", "moment", "state.db", "state.db-wal", "state.db-shm"}


def check(folder: Path, scenario: Scenario, told: Told) -> None:
    """Reopen the folder and hold everything against what was told; then apply what is pending, and once more."""
    with expunge.open(folder, apply_pending=False) as deployment:
        requests = _check_requests(deployment, told)
        _check_all(deployment, folder, scenario, told, requests)
        _check_ledger(deployment)
        last = next((one for one in reversed(told) if one["say"] == "asking"), None)
        if last is not None:
            _check_idempotency(deployment, scenario, last, requests)
        deployment.apply()
        assert deployment.status.pending == 0
        _check_all(deployment, folder, scenario, told, requests)
        _check_ledger(deployment)
        _check_certificates(deployment)
    before = _contents(folder)
    expunge.open(folder).close()
    after = _contents(folder)
    assert before == after, f"opening changed {[name for name in before if before[name] != after.get(name)]}"


_NAMES = (b"person-", b"household-", b"key of ")
_clean: dict[Path, bytes] = {}  # what was read last, so that the same bytes are not searched at every step


def check_database(folder: Path) -> None:
    """Neither the database nor its log ever holds an id, a subject or a key, not even of who is there or pending."""
    for path in (folder / "state.db", folder / "state.db-wal"):
        with suppress(FileNotFoundError):
            content = path.read_bytes()
            if content == _clean.get(path):
                continue
            found = [name for name in _NAMES if name in content]
            assert not found, f"{path.name} holds {found[0]!r}"
            _clean[path] = content


def _check_all(deployment: Any, folder: Path, scenario: Scenario, told: Told, requests: dict[str, Any]) -> None:
    alive, everybody = _check_records(deployment, scenario, requests)
    _check_books(deployment, folder, scenario, told)
    _check_ensemble(deployment, folder)
    _check_files(deployment, folder)
    _check_erasure(deployment, folder, scenario, requests, alive, everybody)


def _check_requests(deployment: Any, told: Told) -> dict[str, Any]:
    """Nothing that was accepted is lost or has another state than was told; what each request asked, by id."""
    asked = {one["key"]: one for one in told if one["say"] == "asking"}
    accepted = {one["request"]: asked[one["key"]] for one in told if one["say"] == "accepted"}
    states = {one.request: one.public_state for one in deployment.requests()}
    assert accepted.keys() <= states.keys(), "an accepted request is lost"
    for say in ("applied", "cancelled"):
        for one in told:
            if one["say"] == say:
                assert states[one["request"]] == say, f"{say} was told, the folder says {states[one['request']]}"
    cancelling = {one["request"] for one in told if one["say"] == "cancelling"}
    assert {request for request, state in states.items() if state == "cancelled"} <= cancelling
    unknown = states.keys() - accepted.keys()
    if unknown:  # in flight when the process was killed: there as a whole
        (request,) = unknown
        assert list(states)[-1] == request
        accepted[request] = next(one for one in reversed(told) if one["say"] == "asking")
        assert accepted[request]["key"] not in {one["key"] for one in told if one["say"] == "accepted"}
    return {request: accepted[request] for request in states}


def _check_records(deployment: Any, scenario: Scenario, requests: dict[str, Any]) -> tuple[list[Person], set[Person]]:
    """The records are those of a list to which every applied request was applied once, in order, to the bit."""
    alive = [Person(number) for number in range(NUM_PEOPLE)]
    everybody = set(alive)
    for one in deployment.requests():
        asked = requests[one.request]
        added = [Person(*pair) for pair in asked.get("add", [])]
        everybody |= set(added)
        if one.state == "applied":
            numbers, households = set(asked.get("delete", [])), set(asked.get("subjects", []))
            alive = [p for p in alive if p.number not in numbers and p.subject not in households] + added
    records = deployment.records
    named = {person.name(scenario.ids): person for person in alive}
    assert {*records.ids()} == {*named}, "other records than expected"
    alive = [named[record] for record in records.ids()]
    slots = records.live_slots()
    features, labels, _ = records.gather(slots)
    expected = np.array([person.features for person in alive]).reshape(-1, 4)
    assert rows_of(features).tobytes() == expected.tobytes(), "other features than expected"
    assert labels.tolist() == [person.label for person in alive]
    households: dict[str, list[int]] = {}
    for slot, person in zip(slots.tolist(), alive, strict=True):
        households.setdefault(person.subject, []).append(slot)
    assert all(records.slots_of_subject(name) == tuple(held) for name, held in households.items())
    return alive, everybody


def _check_books(deployment: Any, folder: Path, scenario: Scenario, told: Told) -> None:
    """What was released is paid for, exactly after an orderly end; what was exhausted still is."""
    released: Counter[int] = Counter()
    for one in told:
        if one["say"] == "released":
            released[one["generation"]] += one["count"]
    reserved = dict(_rows(deployment, "SELECT generation, reserved FROM generations"))
    now, budget = deployment.inside.generation, deployment.inside.budget
    if scenario.counts_every_row:
        for generation, count in released.items():
            assert reserved[generation] >= count, f"{count} released, {reserved[generation]} paid for"
        assert budget.predictions >= released[now]
        if told and told[-1]["say"] == "closed" and not scenario.is_busy:
            last = max(generation for generation in reserved)
            if last == now and deployment.inside.last_report is None:
                assert reserved[last] == released[last], "an orderly end gives the rest of a block back"
    for one in told:
        if one["say"] == "exhausted" and one["generation"] == now:
            assert budget.exhausted, "the folder has forgotten that the generation is used up"


def _check_ensemble(deployment: Any, folder: Path) -> None:
    """T6: the shards, and every model's file, are what the recipe gives on the records that are there."""
    state, live = deployment.inside.state, set(deployment.records.live_slots().tolist())
    stored = _rows(deployment, "SELECT file, digest, cell FROM shards ORDER BY shard")
    derived = state.recipe.members(state.records)
    assert len(stored) == state.num_shards
    for shard, (file, digest, cell) in enumerate(stored):
        slots = state.members[shard]
        assert set(slots.tolist()) <= live, "a shard holds a deleted record"
        assert np.array_equal(slots, derived[shard]), "a shard holds other records than the key says"
        with training():  # else the last bits might differ
            encoded = encode_model(state.learner, _trained(state, shard)).data
        found = deployment._store.unseal(read_model(Place.hold(folder) / "models" / file, shard), cell)
        assert parted(file, found, b"")[0] == encoded, f"model {shard} is not what its shard gives"
        assert hashlib.sha256(found).digest() == digest


def _trained(state: Any, shard: int) -> Any:
    data = state.contents(shard)
    return fit_slices(state.learner, data) if isinstance(data, SlicedShard) else fit_many(state.learner, [data])[0]


def _check_ledger(deployment: Any) -> None:
    """The log is the tree that was signed, and tells every acceptance, application and cancellation once."""
    rows = _rows(deployment, "SELECT entry FROM ledger ORDER BY sequence")
    entries = [json.loads(entry) for (entry,) in rows]
    signed = deployment.checkpoint()
    assert (signed.size, signed.root) == (len(rows), Tree(hash_leaf(entry.encode()) for (entry,) in rows).root())
    assert [entry["sequence"] for entry in entries] == [*range(1, len(rows) + 1)]
    opened = {
        sequence: (json.loads(facts)["request"], Opening(bytes(salt), json.loads(facts)).commitment)
        for sequence, salt, facts in _rows(deployment, "SELECT sequence, salt, facts FROM openings")
    }
    about = {entry["sequence"] for entry in entries if entry["event"] in HIDDEN}
    assert opened.keys() == about
    assert all(entries[place - 1]["facts"]["commitment"] == opened[place][1] for place in about)
    counted = Counter((entries[place - 1]["event"], opened[place][0]) for place in about)
    for event, state in (("applied", "applied"), ("cancelled", "cancelled"), ("accepted", None)):
        expected = {one.request for one in deployment.requests() if state in (None, one.public_state)}
        assert {request for told, request in counted if told == event} == expected
        assert all(counted[event, request] == 1 for request in expected), f"{event} is told twice"


def _check_certificates(deployment: Any) -> None:
    """Of the deployment, and of its last request."""
    for request in [None, *(one.request for one in deployment.requests()[-1:])]:
        found = verify(deployment.certificate(request).to_json())
        assert found.holds, found.wrong


def _check_files(deployment: Any, folder: Path) -> None:
    """Every file is one that the database knows, and no longer than it says."""
    models = {row[0] for row in _rows(deployment, "SELECT file FROM shards")}
    waiting = {row[0] for row in _rows(deployment, "SELECT file FROM requests WHERE file IS NOT NULL")}
    ((epoch, num_slots),) = _rows(deployment, "SELECT epoch, num_slots FROM position")
    assert {path.name for path in (folder / "models").iterdir()} == models
    assert {path.name for path in (folder / "waiting").iterdir()} == waiting
    assert bool(waiting) == any(one.state == "pending" for one in deployment.requests())
    for name in waiting:
        content = bytearray((folder / "waiting" / name).read_bytes())
        for start, length in _rows(deployment, f"SELECT start, length FROM requests WHERE file = '{name}'"):
            content[start : start + length] = bytes(length)
        assert not any(content), "what is not pending is overwritten"
    assert [path.name for path in (folder / "records").iterdir()] == [f"{epoch:06d}"]
    assert (folder / "records" / f"{epoch:06d}" / "labels.slab").stat().st_size == 4 * num_slots
    assert {path.name for path in folder.iterdir() if path.is_file()} <= _FILES
    assert not list(folder.parent.glob("*.partial"))


def _check_erasure(
    deployment: Any,
    folder: Path,
    scenario: Scenario,
    requests: dict[str, Any],
    alive: list[Person],
    everybody: set[Person],
) -> None:
    """No file holds a trace of a person who is neither there nor pending; nor of what was cancelled."""
    states = {one.request: one.state for one in deployment.requests()}
    waiting = [asked for request, asked in requests.items() if states[request] == "pending"]
    coming = {Person(*pair) for asked in waiting for pair in asked.get("add", [])}
    there = set(alive) | coming
    named = {person.name(scenario.ids) for person in there}
    households = {person.subject for person in there} | {
        name for asked in waiting for name in asked.get("subjects", [])
    }
    patterns: list[bytes] = [asked["key"].encode() for asked in requests.values()]
    for person in everybody - there:
        patterns += patterns_of(person, scenario.table)
        gone = {person.name(scenario.ids), person.subject} - named - households
        patterns += [pattern for name in gone for pattern in name_patterns(name)]
    found = traces(files_under(folder), patterns)
    assert not found, f"what was erased is still there: {found[0]}"
    check_database(folder)
    database = {path: path.read_bytes() for path in folder.glob("state.db*")}
    about = [each for person in everybody for each in patterns_of(person, scenario.table)]
    about += [each for person in everybody for each in name_patterns(person.name(scenario.ids))]
    found = traces(database, about)
    assert not found, f"the database tells of somebody: {found[0]}"


def _check_idempotency(deployment: Any, scenario: Scenario, asked: dict[str, Any], requests: dict[str, Any]) -> None:
    """A requester without an answer asks again with the same key: the request is there once, unless cancelled."""
    cancelled = {one.request for one in deployment.requests() if one.state == "cancelled"}
    known = [request for request, other in requests.items() if other["key"] == asked["key"] if request not in cancelled]
    again = deployment.submit(updates_of(asked, scenario), key=asked["key"], readmit="readmit" in asked)
    if known:
        assert [again.request] == known
    assert again.request not in cancelled
    requests[again.request] = asked


def _rows(deployment: Any, query: str) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = deployment._store.database.rows(query)
    return found


def _contents(folder: Path) -> dict[str, bytes]:
    """Every file, the database as its statements."""
    found = {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
    found.pop(str(folder / "lock"))
    del found[str(folder / "state.db")]
    with closing(sqlite3.connect(folder / "state.db")) as connection:
        found["state.db"] = "\n".join(connection.iterdump()).encode()
    return found
