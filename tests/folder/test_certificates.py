"""What certificates of folders rest on: a log that tells nothing about people, clocks that go wrong, counts, forks."""

from __future__ import annotations

import json
import subprocess
import sys
import unicodedata
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from sklearn.naive_bayes import GaussianNB

import expunge
from expunge.core.errors import InputError, ParameterError, RecordError, RequestError
from expunge.core.words import is_on_tick, seconds_of
from expunge.evidence import (
    HIDDEN,
    Certificate,
    Checkpoint,
    Envelope,
    SigningKey,
    compare,
    hash_id,
    request_key,
    verify,
)
from expunge.folder import DurableDeployment, open_view
from expunge.folder import evidence as evidence_module
from expunge.serving.promises import Noise

X = np.random.default_rng(0).normal(size=(60, 3))
YEAR = 365 * 86400
FORM = Draft202012Validator(json.loads((files("expunge.evidence") / "certificate.schema.json").read_text("utf-8")))


def make(folder: Path, **options: Any) -> DurableDeployment:
    return expunge.create(folder, GaussianNB(), X, X[:, 0] > 0, n_shards=3, **options)


def sound(certificate: Certificate) -> Certificate:
    """The same, if it holds and has the form of the schema."""
    found = verify(certificate.to_json(), public_key=certificate.public_key)
    assert found.holds, found.wrong
    FORM.validate(json.loads(Envelope.parse(certificate.to_json()).payload))
    return certificate


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The system's clock, which a test sets."""
    now = [1_800_000_000.25]
    monkeypatch.setattr(evidence_module.time, "time", lambda: now[0])
    return now


# What the log tells.


def test_the_log_holds_no_trace_of_a_request(folder: Path) -> None:
    ids = [f"person-{number}" for number in range(60)]
    with make(folder, ids=ids) as deployment:
        names = [deployment.delete(["person-7"], key="ticket of Jane Doe").request]
        names.append(deployment.submit([expunge.Delete("person-8")], key="ticket 2").request)
        deployment.cancel(names[1])
        rows = deployment._store.database.rows("SELECT entry FROM ledger ORDER BY sequence")
        published = "\n".join(entry for (entry,) in rows)
        hashes = deployment._evidence.requests.hashes_of(names[0])
        certificate = sound(deployment.certificate(names[0]))
        other = sound(deployment.certificate(names[1]))
    for secret in (*names, *hashes, "person", "Jane", "ticket", "deletion"):
        assert secret not in published
    for (entry,) in rows:
        if json.loads(entry)["event"] in HIDDEN:
            assert set(json.loads(entry)["facts"]) == {"commitment"}
    opened = [each for each in certificate.log.shown if each.opening is not None]
    assert [each.entry.event for each in opened] == ["accepted", "applied"]
    assert all(each.request == names[0] for each in opened)
    assert names[1] not in certificate.payload().decode()
    assert [each.entry.event for each in other.log.shown if each.opening is not None] == ["accepted", "cancelled"]


def test_forgotten_requests_cannot_be_opened_by_anybody(folder: Path, clock: list[float]) -> None:
    with make(folder) as deployment:
        old = deployment.delete([7]).request
        certificate = sound(deployment.certificate(old))
        clock[0] += YEAR
        young = deployment.delete([8]).request
        waiting = deployment.submit([expunge.Delete(9)]).request
        with pytest.raises(ParameterError, match="older_than"):
            deployment.forget_requests(older_than="long")
        assert deployment.forget_requests(older_than="180d") == 1
        assert deployment.forget_requests(older_than="180d") == 0
        assert [each.request for each in deployment.requests()] == [young, waiting]
        with pytest.raises(RequestError, match=f"there is no request '{old}'"):
            deployment.certificate(old)
        whole = sound(deployment.certificate(since=[certificate.log.checkpoint]))
        assert whole.counts is not None
        assert (whole.counts.accepted, whole.counts.applied) == (3, 2)  # the log still counts it
        assert compare([certificate, whole]).answer == "one history"  # and what was issued still holds
        sound(deployment.certificate(young))
        with pytest.raises(RecordError, match="was deleted on request"):
            deployment.add(X[:1], [True], [7])
    salts = [each.opening.salt for each in certificate.log.shown if each.opening is not None]
    assert len(salts) == 2
    for path in folder.rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        assert not any(salt in content for salt in salts), path
        assert old.encode() not in content, path


def test_an_id_may_be_typed_in_any_form(folder: Path) -> None:
    ids = [f"Zoë-{number}" for number in range(60)]
    typed = unicodedata.normalize("NFD", ids[7])
    assert typed != ids[7]
    with make(folder, ids=ids) as deployment:
        request = deployment.delete([typed]).request
        certificate = sound(deployment.certificate(request))
        with pytest.raises(RecordError, match="was deleted on request"):
            deployment.add(X[:1], [True], [typed])
        book = deployment._evidence.requests
        assert book.hash_of("record", typed) == book.hash_of("record", ids[7])
    key = request_key((folder / "keys" / "hashing.key").read_bytes(), request)
    assert certificate.request is not None
    assert certificate.request.id_hashes == (hash_id(key, typed),) == (hash_id(key, ids[7]),)


def test_an_acceptance_that_was_dated_back_is_not_signed(folder: Path) -> None:
    """In the table of requests alone; in the log it is found by `test_log`."""
    with make(folder) as deployment:
        request = deployment.delete([7]).request
        database = deployment._store.database
        database.execute("UPDATE requests SET accepted_at = '2020-01-01T00:00:00Z'")
        with pytest.raises(ParameterError, match="the time of 'accepted' differs from the request's"):
            deployment.certificate(request)
        database.execute("UPDATE requests SET accepted_at = (SELECT at FROM times WHERE kind = 'moment')")
        sound(deployment.certificate(request))
        database.execute("UPDATE openings SET facts = replace(facts, '\"num_deletions\":1', '\"num_deletions\":2')")
        with pytest.raises(ParameterError, match="not those that it commits to"):
            deployment.certificate(request)


def test_the_order_of_what_was_applied_together_says_nothing(folder: Path) -> None:
    """With eight requests in a round, the order of acceptance comes by chance once in 40,320; twice in 1.6e9."""
    orders = []
    with make(folder, apply="manual") as deployment:
        for first in (0, 8):
            asked = [deployment.submit([expunge.Delete(first + number)]).request for number in range(8)]
            deployment.apply()
            openings = deployment._store.database.rows("SELECT request FROM openings ORDER BY sequence DESC LIMIT 8")
            applied = [request for (request,) in openings][::-1]
            assert sorted(applied) == sorted(asked)
            orders.append(applied == asked)
    assert orders != [True, True]


# Clocks.


def happenings(deployment: DurableDeployment, clock: list[float], jump: float) -> list[str]:
    """Requests before and after the clock jumps; the last one is open."""
    waiting = [deployment.submit([expunge.Delete(number)]).request for number in (1, 2)]
    done = deployment.delete([3], apply=True).request
    late = deployment.submit([expunge.Delete(4)]).request
    clock[0] += jump
    deployment.cancel(late)
    jumped = deployment.delete([5], apply=True).request
    deployment.rekey()
    clock[0] += 5
    return [*waiting, done, late, jumped, deployment.submit([expunge.Delete(6)]).request]


@pytest.mark.parametrize("jump", [-30 * YEAR, -YEAR, -3600, -2, 0, 3600, YEAR, 30 * YEAR])
def test_a_clock_that_jumps_costs_no_certificate(folder: Path, clock: list[float], jump: float) -> None:
    with make(folder, apply="manual", clock_seconds=60) as deployment:
        requests = happenings(deployment, clock, jump)
        certificates = [sound(deployment.certificate(request)) for request in [None, *requests]]
        entries = deployment._evidence.ledger.entries()
    with expunge.open(folder) as deployment, open_view(folder) as view:
        for request in (None, *requests):
            sound(deployment.certificate(request))
            sound(view.certificate(request))
    assert compare(certificates).answer == "one history"
    moments = [each.at for each in entries if each.event not in ("applied", "generation")]
    assert moments == sorted(moments)
    assert all(is_on_tick(each.at, tick_seconds=60) for each in entries if each.event in ("applied", "generation"))
    clamped = [each for each in entries if each.is_clamped]
    assert bool(clamped) == (jump < 0)
    assert [each.clamped for each in certificates] == [jump < -60] * len(certificates)
    for certificate in certificates:
        told = any("the clock of the operator's machine showed an earlier time" in each for each in words(certificate))
        own = [each for each in certificate.log.shown if each.entry.is_clamped]
        assert told == bool(own or certificate.clamped)
        if certificate.request is not None and certificate.request.applied_by is not None:
            assert certificate.request.applied_by >= certificate.request.accepted_at


def words(certificate: Certificate) -> tuple[str, ...]:
    return certificate.statements.happened


def test_a_clock_that_ran_ahead_for_a_while_is_survived(folder: Path, clock: list[float]) -> None:
    """For some hours it shows the year 2057. All later times are clamped, until the year 2057 comes."""
    with make(folder, clock_seconds=60) as deployment:
        true = clock[0]
        clock[0] += 30 * YEAR
        ahead = deployment.delete([1]).request
        clock[0] = true + 7200
        after = deployment.delete([2]).request
        certificates = [sound(deployment.certificate(each)) for each in (None, ahead, after)]
        assert deployment.request(after).accepted_at == deployment.request(ahead).accepted_at
    assert [each.clamped for each in certificates] == [True] * 3
    assert seconds_of(certificates[2].issued_at) > true + 29 * YEAR
    assert "accepted, applied, issued." in words(certificates[2])[-1]
    assert words(certificates[1])[-1].endswith(": issued.")


def test_what_waits_longest_is_due_after_the_clock_was_set_back(folder: Path, clock: list[float]) -> None:
    with make(folder, apply="every 3600s") as deployment:
        deployment.submit([expunge.Delete(1)])
        assert not deployment.is_due
        clock[0] -= YEAR
        assert deployment.is_due


def test_a_key_that_was_drawn_while_the_clock_ran_ahead_is_renewed_once(folder: Path, clock: list[float]) -> None:
    true = clock[0]
    clock[0] += 30 * YEAR
    make(folder, clock_seconds=60).close()
    clock[0] = true
    for is_due in (True, False, False):
        with expunge.open(folder) as deployment:
            assert deployment.rekey(if_older_than="90d") == is_due
            sound(deployment.certificate())
    clock[0] += YEAR
    with expunge.open(folder) as deployment:
        assert deployment.rekey(if_older_than="90d")


# Counts.

KILLED = """
import os, sys
import numpy as np
import expunge
deployment = expunge.open(sys.argv[1])
for number in range(5):
    deployment.predict(np.random.default_rng(number).normal(size=(1000, 3)))
os._exit(9)
"""


def test_what_a_killed_process_reserved_is_not_called_released(folder: Path) -> None:
    """It released 5,000 predictions, and had reserved more; how many of them were released is known to nobody else."""
    with make(folder, promise=Noise(max_predictions=400_000), sampling="independent") as deployment:
        deployment.predict(X[:10])
        told = sound(deployment.certificate()).publication
        assert (told.predictions_reserved, told.predictions_released) == (10, 10)
    done = subprocess.run([sys.executable, "-c", KILLED, str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 9, done.stderr
    with open_view(folder) as view:
        told = sound(view.certificate()).publication
    reserved = told.predictions_reserved
    assert reserved is not None
    assert reserved > 5_010
    assert told.predictions_released == 10
    with expunge.open(folder) as deployment:
        deployment.predict(X[10:13])
        told = sound(deployment.certificate()).publication
        assert (told.predictions_reserved, told.predictions_released) == (reserved + 3, 13)
    with open_view(folder) as view:
        told = sound(view.certificate()).publication
        assert (told.predictions_reserved, told.predictions_released) == (reserved + 3, 13)
    with expunge.open(folder) as deployment:
        deployment.rekey()
        told = sound(deployment.certificate()).publication
        assert (told.predictions_reserved, told.predictions_released) == (0, 0)


# One history or two.


def test_the_folder_proves_that_it_continues_what_it_signed(folder: Path) -> None:
    with make(folder) as deployment:
        request = deployment.delete([1]).request
        first = sound(deployment.certificate(request))
        for number in range(2, 9):
            deployment.delete([number])
        second = sound(deployment.certificate())
        third = sound(deployment.certificate(request, since=[first.log.checkpoint, second.log.checkpoint]))
        assert [each.checkpoint.size for each in third.log.earlier] == [3]  # the second is of the same size
        assert compare([first, second, third]).answer == "one history"
        assert compare([first, deployment.certificate(request)]).answer == "one history"  # it ended with its entry
        deployment.delete([9])
        cosigned = deployment.checkpoint().cosigned("witness.example", SigningKey.generate(), time=1_800_000_000)
        deployment.keep_cosigned(cosigned)
        assert sound(deployment.certificate()).log.checkpoint == cosigned
        deployment.delete([10])
        (earlier,) = sound(deployment.certificate()).log.earlier
        assert earlier.checkpoint == cosigned


def test_a_folder_with_another_history_continues_nothing(folder: Path, folders: Any) -> None:
    with make(folder) as deployment:
        deployment.delete([1])
        fork = folders.copy(deployment, "fork")
        deployment.delete([2])
        mine = sound(deployment.certificate())
    with expunge.open(fork) as other:
        with pytest.raises(InputError, match="the checkpoint of size 5 is newer than this log, of 3 entries"):
            other.certificate(since=[mine.log.checkpoint])
        other.delete([3])
        theirs = sound(other.certificate())
        with pytest.raises(InputError, match="not one of this log, though its key signed it: there are two histories"):
            other.certificate(since=[mine.log.checkpoint])
        strange = Checkpoint(mine.log.checkpoint.origin, 2, bytes(32)).signed(SigningKey.generate())
        with pytest.raises(InputError, match="is not signed by the log"):
            other.certificate(since=[strange])
    assert compare([mine, theirs]).answer == "two histories"


def test_a_certificate_stays_small_in_a_long_log(folder: Path) -> None:
    with make(folder, apply="manual") as deployment:
        request = deployment.delete([1], apply=True).request
        short = len(deployment.certificate(request).to_json())
        ledger, now = deployment._evidence.ledger, deployment._evidence.clock.now()
        with deployment._store.database.transaction():
            ledger.write_all(("cancelled", now, {"request": f"{number:032x}"}) for number in range(20_000))
        made = sound(deployment.certificate(request))
    assert made.log.checkpoint.size == 20_003
    assert len(made.to_json()) < short + 8_000
