"""Nothing gets past `verify`: every field, every byte, and whatever else a stranger may send."""

from __future__ import annotations

import base64
import copy
import json
import math
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from expunge.core.errors import InputError
from expunge.evidence import (
    Certificate,
    Envelope,
    GuaranteeFacts,
    SigningKey,
    read_canonical,
    read_certificate,
    render_page,
    verify,
    write_canonical,
)

TYPE = "application/vnd.in-toto+json"
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["infinity", "request"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture(scope="session")
def made(office) -> Certificate:
    """A certificate with everything that one can have."""
    return office.issue(log=office.log.about("b7f6c2a1", earlier=[office.log.checkpoint(5)]))


@pytest.fixture(scope="session")
def document(made) -> dict[str, Any]:
    return json.loads(made.payload())


def _wrap(statement: Any, signature: bytes, made: Certificate) -> bytes:
    """The statement in an envelope with the signature of another one."""
    payload = statement if isinstance(statement, bytes) else json.dumps(statement).encode()
    return replace(Envelope.parse(made.to_json()), payload=payload, signature=signature).to_json()


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _paths(item, (*path, name))
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from _paths(item, (*path, place))


def _put(document: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(document)
    inner: Any = changed
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return changed


def _other(value: Any) -> list[Any]:
    """Values that look like `value` and are not."""
    if isinstance(value, bool):
        return [not value, None, int(value)]
    if isinstance(value, int):
        return [value + 1, float(value), str(value), -1, None, [value]]
    if isinstance(value, float):
        return [value * 2 + 0.5, str(value), -1.0, "infinity", None]
    if isinstance(value, str):
        return [value + "x", value[:-1], value.upper() + " ", "", None, 7]
    if isinstance(value, list):
        return [[*value, "x"], value[:-1] if value else [None], {}, None]
    if isinstance(value, dict):
        return [{**value, "extra": 1}, dict(list(value.items())[1:]) if value else {"x": 1}, [], None]
    return ["x", 1]


def _look_up(document: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        document = document[step]
    return document


def test_every_change_of_every_value_is_caught(office, made, document):
    """Every value of the statement, in several ways, under the signature that was made before."""
    tried = 0
    for path in _paths(document):
        value = _look_up(document, path)
        for other in _other(value)[:3]:
            if other == value and type(other) is type(value):
                continue
            found = verify(_wrap(_put(document, path, other), made.signature, made), public_key=office.key.public_key)
            tried += 1
            assert not found.holds, (path, other)
            assert found.wrong
    assert tried > 500


def test_every_change_of_every_value_of_the_envelope_is_caught(office, made):
    envelope = json.loads(made.to_json())
    for path in _paths(envelope):
        value = _look_up(envelope, path)
        for other in _other(value):
            raw = json.dumps(_put(envelope, path, other)).encode()
            assert not verify(raw, public_key=office.key.public_key).holds, (path, other)


def _resign(statement: dict[str, Any], key: SigningKey) -> bytes:
    """What somebody signs who can write any statement; the certificate names the key."""
    changed = copy.deepcopy(statement)
    changed["predicate"]["public_key"] = key.public_key.to_pem()
    return Envelope.sign(TYPE, write_canonical(changed), key).to_json()


def test_a_forger_with_another_key_is_caught(office, document):
    """The checkpoint is not theirs; whoever signs a log of their own is caught by the key alone."""
    forged = _resign(document, SigningKey.generate())
    found = verify(forged, public_key=office.key.public_key)
    assert [check.name for check in found.checks if not check.passed] == ["key", "log", "log"]
    assert (found.key, found.outcome) == ("does not match", "wrong")
    own = replace(office, key=SigningKey.generate())
    log = type(office.log)(own.key)
    for entry in office.log.entries:
        log.put(entry)
    log.openings = office.log.openings
    alone = own.issue(log=log.about("b7f6c2a1")).to_json()
    assert [check.name for check in verify(alone, public_key=office.key.public_key).checks if not check.passed] == [
        "key"
    ]
    found = verify(alone)
    assert (found.key, found.outcome) == ("not checked", "holds")
    assert any("was not checked" in check.explanation for check in found.checks if check.name == "key")


def _set(*path):
    """A change of a predicate: the last item is put in its place."""

    def change(document):
        inner = document["predicate"]
        for step in path[:-2]:
            inner = inner[step]
        inner[path[-2]] = path[-1]

    return change


EARLIER = ("log", "earlier", 0)
ASKED = ("log", "shown", 2)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (_set("guarantee", "alpha", 9), "sentences: statements.alpha_beta_gamma is not"),
        (_set("statements", "not_promised", []), "sentences: statements.not_promised is not"),
        (_set("exact", "note", "a shard is missing"), "sentences: statements.exact is not"),
        (_set("exact", "environments", [["a", 999], ["b", 1]]), "sentences: statements.headline is not"),
        (_set("exact", "environments", [["a", 999]]), "form: exact: the environments must cover 1000 models, got 999"),
        (_set("exact", "learner", "GaussianNB"), "agreement: log: entry 1: learner is not the certificate's"),
        (_set("exact", "num_shards", 999), "agreement: log: entry 1: num_shards is not the certificate's"),
        (_set("deployment", "promise", "exact"), "agreement: guarantee: no (α,β,γ) is claimed under the promise"),
        (_set("deployment", "sampler_is_independent", False), "agreement: guarantee: no (α,β,γ) can be claimed"),
        (_set("deployment", "deployment_id", "other"), "log: the checkpoint is of the log 'expunge/0f8f"),
        (_set("statements", "recomputed", ["All shards agreed."]), "sentences: statements.recomputed is not"),
        (_set("statements", "exact", ["Nothing is left of your data."]), "sentences: statements.exact is not"),
        (_set("clamped", True), "sentences: statements.happened is not"),
        (_set("clamped", 1), "form: clamped must be true or false"),
        (_set("publication", "predictions_released", 7), "sentences: statements.alpha_beta_gamma is not"),
        (_set("request", "accepted_at", "2020-01-01T00:00:00Z"), "agreement: log: entry 4: the time of 'accepted'"),
        (_set("request", "num_deletions", 1), "form: request: there must be 1 id_hashes"),
        (_set(*ASKED, "entry", "at", "2020-01-01T00:00:00Z"), "log: entry 4: the proof does not show"),
        (_set(*ASKED, "entry", "facts", "commitment", "00" * 32), "log: entry 4: the proof does not show"),
        (_set(*ASKED, "proof", []), "log: entry 4: the proof does not show"),
        (_set(*ASKED, "opening", "salt", "00" * 32), "log: entry 4: the facts that are given for it are not those"),
        (_set(*ASKED, "opening", "facts", "num_deletions", 9), "log: entry 4: the facts that are given for it are not"),
        (_set(*ASKED, "opening", None), "agreement: log: there must be one 'accepted' entry of this request"),
        (_set(*EARLIER, "proof", []), "log: the checkpoint of size 5 is not continued by the one of size 8"),
        (_set("praise", {}), "form: there is no field 'praise'"),
    ],
)
def test_even_the_operator_cannot_sign_what_the_facts_and_the_log_do_not_support(office, document, change, word):
    changed = copy.deepcopy(document)
    change(changed)
    wrong = verify(_resign(changed, office.key)).wrong
    assert any(line.startswith(word) for line in wrong), wrong


def test_a_statement_about_something_else_is_not_accepted(office, document):
    for change in (lambda s: s["subject"].pop(), lambda s: s["subject"][0]["digest"].update(sha256="00" * 32)):
        changed = copy.deepcopy(document)
        change(changed)
        assert "its subject is another one" in verify(_resign(changed, office.key)).wrong[0]
    made = Envelope.parse(_resign(document, office.key))
    assert verify(replace(made, keyid="00" * 32).to_json()).wrong == (
        "form: the keyid of the envelope is not that of the certificate's key",
    )


DISAGREES = {"agrees": False, "num_different": 1, "chosen_by": "auditor's seed", "checkpoint": None}
GENERATION = {"generation": 1, "round": 12}


def _continued(office, after):
    """The log with more entries, and the certificate about the deployment that shows them."""
    told = dict(office.log.entries[6].facts)
    log = office.new_log()
    for event, changes in after:
        facts = GENERATION if changes is None else {**told, **changes}
        facts = {name: value for name, value in facts.items() if value is not None}
        log.append("2026-11-16T05:00:00Z", event, facts)
    return log


@pytest.mark.parametrize(
    ("after", "is_claimed"),
    [
        ([], False),
        ([("recomputed", {})], False),
        ([("recomputed", {"num_checked": 1000})], True),
        ([("generation", None)], True),
        ([("generation", None), ("recomputed", DISAGREES)], False),
    ],
    ids=["nothing", "some agree", "all agree", "retrained", "retrained, and disagrees again"],
)
def test_after_a_recomputation_that_disagreed_the_exact_promise_is_not_claimed(office, after, is_claimed):
    log = _continued(office, [("recomputed", DISAGREES), *after])
    made = office.issue_for_deployment(log=log.about(None))
    assert verify(made.to_json()).holds
    text = " ".join((made.statements.headline, *made.statements.exact))
    assert ("bit for bit" in text) == is_claimed
    assert ("not claimed, because the recomputation of 2026-11-16T05:00:00Z found" in text) != is_claimed
    assert bool(made.statements.exact_limits) == is_claimed
    if not is_claimed:  # and nothing else can be signed
        document = json.loads(made.payload())
        sound = json.loads(office.issue_for_deployment().payload())["predicate"]["statements"]
        document["predicate"]["statements"] |= {name: sound[name] for name in ("headline", "exact", "exact_limits")}
        assert len([line for line in verify(_resign(document, office.key)).wrong if "sentences" in line]) == 3


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"agrees": "yes"}, "entry 9: agrees must be"),
        ({"num_checked": 0}, "entry 9: num_checked must be"),
        ({"num_checked": 1001}, "1001 shards were trained again, of 1000"),
        ({"num_different": 1}, "entry 9: it cannot agree when 1 models differ"),
        ({"num_different": 21, "agrees": False}, "entry 9: num_different must be"),
        ({"chosen_by": "the devil"}, "entry 9: chosen_by must be one of"),
        ({"chosen_by": "software"}, "entry 9: a checkpoint is named if, and only if"),
        ({"checkpoint": "cd"}, "entry 9: checkpoint must be 64"),
        ({"models": 3}, "entry 9: models must be 64"),
        ({"round": 13}, "a recomputation of round 13 is later than the deployment's"),
        ({"generation": 2}, "is later than the deployment's"),
    ],
)
def test_an_impossible_recomputation_is_named(office, changes, word):
    document = json.loads(office.issue_for_deployment().payload())
    document["predicate"]["log"] = _continued(office, [("recomputed", changes)]).about(None).to_data()
    wrong = verify(_resign(document, office.key)).wrong
    assert any(line.startswith("agreement: log: ") and word in line for line in wrong), wrong


def test_an_impossible_key_is_named(office):
    for changes, word in (
        ({"key_commitment": "x"}, "key_commitment must be"),
        ({"reason": "fun"}, "reason must be"),
        ({"witness": 3}, "witness must be"),
    ):
        log = office.new_log()
        log.append("2026-11-16T05:00:00Z", "generation", {**GENERATION, **changes})
        document = json.loads(office.issue_for_deployment().payload())
        document["predicate"]["log"] = log.about(None).to_data()
        assert any(f"entry 9: {word}" in line for line in verify(_resign(document, office.key)).wrong)


def test_flipped_bits_of_the_file_are_caught(office, made):
    """One bit in every 15th byte; those that only reshape the JSON (the newline at the end) mean the same."""
    data, key, passed = made.to_json(), office.key.public_key, 0
    for place in (*range(0, len(data), 15), *range(len(data) - 150, len(data))):
        changed = bytearray(data)
        changed[place] ^= 1 << (place % 7)
        found = verify(bytes(changed), public_key=key)
        if found.holds:
            passed += 1
            assert write_canonical(read_canonical(bytes(changed))) == write_canonical(read_canonical(data))
    assert passed <= 1


def test_flipped_bits_of_the_statement_are_caught(office, made):
    payload, key = made.payload(), office.key.public_key
    for place in range(0, len(payload), 15):
        changed = bytearray(payload)
        changed[place] ^= 1 << (place % 7)
        assert not verify(_wrap(bytes(changed), made.signature, made), public_key=key).holds


def test_a_reshaped_envelope_means_the_same_and_a_reshaped_statement_is_not_what_was_signed(office, made, document):
    envelope = json.loads(made.to_json())
    for data in (json.dumps(dict(reversed(envelope.items())), indent=4), json.dumps(envelope)):
        assert verify(data.encode(), public_key=office.key.public_key).holds
    found = verify(Envelope.sign(TYPE, json.dumps(document).encode(), office.key).to_json())
    assert found.wrong == (
        "form: it is not written in the one form that the format allows, or its subject is another one",
    )


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=400))
def test_arbitrary_bytes_never_raise(data):
    assert verify(data).outcome == "unusable"


@settings(max_examples=300, deadline=None)
@given(JSON_VALUES)
def test_arbitrary_json_never_raises(value):
    assert not verify(json.dumps(value).encode()).holds


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_arbitrary_values_in_arbitrary_places_never_raise(office, document, data):
    """Also if the operator signs them: then they are wrong, or the operator's word."""
    paths = sorted(_paths(document), key=str)
    changed = document
    for path in data.draw(st.lists(st.sampled_from(paths), min_size=1, max_size=3)):
        try:
            text = json.dumps(_put(changed, path, data.draw(JSON_VALUES)))
        except (KeyError, IndexError, TypeError):  # an earlier change took the place away
            continue
        changed = json.loads(text)
    try:
        payload = write_canonical(changed)
    except InputError:
        payload = json.dumps(changed).encode()
    found = verify(Envelope.sign(TYPE, payload, office.key).to_json(), public_key=office.key.public_key)
    if found.holds:
        assert write_canonical(json.loads(payload)) == payload
        assert found.certificate.make_statements() == found.certificate.statements
    if found.certificate is not None:
        assert render_page(found.certificate, found)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_spliced_files_never_raise(office, made, data):
    whole = made.to_json()
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, len(whole)))
    raw = whole[:start] + data.draw(st.binary(max_size=8)) + whole[end:]
    found = verify(raw, public_key=office.key.public_key)
    if found.holds:
        assert write_canonical(read_canonical(raw)) == write_canonical(read_canonical(whole))


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"predicateType": "urn:expunge:certificate:v2"}, "format 2, this software reads up to 1"),
        ({"predicateType": "urn:expunge:certificate:v0"}, "not a certificate"),
        ({"predicateType": 1}, "not a certificate"),
        ({"_type": "https://in-toto.io/Statement/v0.1"}, "not a certificate"),
        ({"predicateType": "https://slsa.dev/provenance/v1"}, "not a certificate"),
    ],
)
def test_other_formats_and_other_statements_are_unusable(office, document, change, word):
    raw = Envelope.sign(TYPE, write_canonical({**document, **change}), office.key).to_json()
    found = verify(raw)
    assert found.outcome == "unusable"
    assert word in found.wrong[0]
    assert len(found.wrong) == 1
    with pytest.raises(InputError, match=word):
        read_certificate(raw)
    other = Envelope.sign("application/json", write_canonical(document), office.key).to_json()
    assert "its payload is of type 'application/json'" in verify(other).wrong[0]


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 10**6,
        b'{"a":' * 10**5,
        b"9" * 10**6,
        b'{"payload":1' + b"0" * 5000 + b"}",
        b"null",
        b"[]",
        b'"a certificate"',
        "{}".encode("utf-32"),
        b'{"payload":"'
        + base64.b64encode(b"[" * 10**6)
        + b'","payloadType":"application/vnd.in-toto+json","signatures":[{"keyid":"","sig":"'
        + base64.b64encode(bytes(64))
        + b'"}]}',
    ],
)
def test_hostile_files_are_refused_at_once(data):
    started = time.process_time()
    assert verify(data).outcome == "unusable"
    assert time.process_time() - started < 5


def test_a_name_that_occurs_twice_is_refused(made):
    changed = made.payload().replace(b'"alpha":1,', b'"alpha":0.1,"alpha":1,')
    assert "occurs twice" in verify(_wrap(changed, made.signature, made)).wrong[0]


def test_hostile_text_does_not_matter(office):
    name = "<script>alert(1)</script>\x1b[31m\u202e\n"
    log = office.new_log(lambda events: [(*events[0][:2], {**events[0][2], "name": name}), *events[1:]])
    made = office.issue(
        deployment=replace(office.deployment, name=name),
        log=log.about("b7f6c2a1"),
        guarantee=GuaranteeFacts(math.inf, 0, 0, note=name, theorem=name, parameters={"x": name}, assumptions=(name,)),
    )
    assert isinstance(made, Certificate)
    found = verify(made.to_json())
    assert found.holds
    assert found.certificate is not None
    assert found.certificate.deployment.name == name
