"""Nothing gets past `verify`: every field, every byte, and whatever else a stranger may send."""

from __future__ import annotations

import copy
import hashlib
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
    Excerpt,
    GuaranteeFacts,
    SigningKey,
    genesis,
    read_canonical,
    read_certificate,
    render_page,
    verify,
    write_canonical,
)

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["infinity", "request"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture(scope="session")
def document(office) -> dict[str, Any]:
    return json.loads(office.issue().to_json())


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _paths(item, (*path, name))
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from _paths(item, (*path, place))


def _put(document: dict[str, Any], path: tuple[Any, ...], value: Any) -> bytes:
    changed = copy.deepcopy(document)
    inner: Any = changed
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return json.dumps(changed).encode()


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


def test_every_change_of_every_value_is_caught(office, document):
    tried = 0
    for path in _paths(document):
        value = _look_up(document, path)
        for other in _other(value):
            if other == value and type(other) is type(value):
                continue
            found = verify(_put(document, path, other), public_key=office.key.public_key)
            tried += 1
            assert not found.holds, (path, other)
            assert found.wrong
    assert tried > 500


def test_the_changed_field_is_named(document):
    for section in ("deployment", "publication", "guarantee", "statements", "ledger", "request"):
        for name, value in document[section].items():
            found = verify(_put(document, (section, name), _other(value)[0]))
            assert any(f"{section}.{name} is not what was signed" in line for line in found.wrong), (section, name)


def test_a_tampered_alpha_is_named_with_what_it_reads(document):
    assert verify(_put(document, ("guarantee", "alpha"), 0.1)).wrong == (
        "content: guarantee.alpha is not what was signed; it reads 0.1",
    )


@pytest.mark.parametrize("place", ["sections", "fields"])
def test_what_was_removed_or_added_is_named(document, place):
    changed = copy.deepcopy(document)
    if place == "sections":
        del changed["guarantee"]
        changed["praise"] = {}
        words = ("the section 'guarantee' was removed", "the section 'praise' was added")
    else:
        del changed["guarantee"]["beta"]
        changed["guarantee"]["delta"] = 0
        words = ("guarantee.beta was removed", "guarantee.delta was added")
    wrong = verify(json.dumps(changed).encode()).wrong
    assert all(any(word in line for line in wrong) for word in words)


def test_a_tampered_ledger_entry_is_named(document):
    changed = _put(document, ("ledger", "entries", 1, "facts", "num_deletions"), 1)
    wrong = verify(changed).wrong
    assert any("ledger: entry 4: the 'accepted' entry does not match its digest" in line for line in wrong)


def test_a_tampered_header_breaks_the_signature(document):
    for name, value in (("issued_at", "2026-11-17T00:00:00Z"), ("software", "expunge 9"), ("kind", "deployment")):
        wrong = verify(_put(document, ("header", name), value)).wrong
        assert any(line.startswith("signature: it does not match the header") for line in wrong), name


def _resign(document: dict[str, Any], key: SigningKey) -> bytes:
    """A forger with a key of their own, who makes all digests anew."""
    changed = copy.deepcopy(document)
    sections = {name: value for name, value in changed.items() if name not in ("format", "header", "signature")}
    changed["header"]["digests"] = {
        section: {name: hashlib.sha256(write_canonical(value)).hexdigest() for name, value in fields.items()}
        for section, fields in sections.items()
    }
    changed["header"]["public_key"] = key.public_key.to_pem()
    changed["signature"] = key.sign(write_canonical(changed["header"])).hex()
    return write_canonical(changed)


def test_a_forger_with_another_key_is_caught_by_the_key_alone(office, document):
    forged = _resign(document, SigningKey.generate())
    found = verify(forged, public_key=office.key.public_key)
    assert [check.name for check in found.checks if not check.passed] == ["key"]
    assert (found.key, found.outcome) == ("does not match", "wrong")
    alone = verify(forged)
    assert (alone.key, alone.outcome) == ("not checked", "holds")
    assert any("was not checked" in check.explanation for check in alone.checks if check.name == "key")


def test_even_the_operator_cannot_sign_words_that_the_numbers_do_not_bear_out(office, document):
    changed = copy.deepcopy(document)
    changed["guarantee"]["alpha"] = 9.0
    assert "sentences: statements.alpha_beta_gamma is not what the facts of this certificate bear out" in (
        verify(_resign(changed, office.key)).wrong
    )
    changed = copy.deepcopy(document)
    changed["statements"]["not_promised"] = []
    assert verify(_resign(changed, office.key)).wrong == (
        "sentences: statements.not_promised is not what the facts of this certificate bear out",
    )


def _set(*path):
    """A change of a document: the last item is put in its place."""

    def change(document):
        inner = document
        for step in path[:-2]:
            inner = inner[step]
        inner[path[-2]] = path[-1]

    return change


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (_set("exact", "note", "a shard is missing"), "sentences: statements.exact is not"),
        (_set("exact", "environments", [["a", 999], ["b", 1]]), "sentences: statements.headline is not"),
        (_set("exact", "environments", [["a", 999]]), "form: exact: the environments must cover 1000 models, got 999"),
        (_set("exact", "learner", "GaussianNB"), "agreement: ledger: entry 1: learner is not the certificate's"),
        (_set("exact", "num_shards", 999), "agreement: ledger: entry 1: num_shards is not the certificate's"),
        (_set("deployment", "promise", "exact"), "agreement: guarantee: no (α,β,γ) is claimed under the promise"),
        (_set("deployment", "sampler_is_independent", False), "agreement: guarantee: no (α,β,γ) can be claimed"),
        (_set("statements", "recomputed", ["All shards agreed."]), "sentences: statements.recomputed is not"),
        (_set("statements", "exact", ["Nothing is left of your data."]), "sentences: statements.exact is not"),
    ],
)
def test_even_the_operator_cannot_sign_an_exact_promise_that_the_facts_do_not_support(office, change, word):
    document = json.loads(office.issue_for_deployment().to_json())
    change(document)
    assert any(line.startswith(word) for line in verify(_resign(document, office.key)).wrong)


DISAGREES = {"agrees": False, "num_different": 1, "chosen_by": "auditor's seed", "checkpoint": None}


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
    told = dict(next(line for line in office.lines if line.entry.event == "recomputed").entry.facts)
    entries, at = [line.entry for line in office.lines], "2026-11-16T05:00:00Z"
    for event, changes in [("recomputed", DISAGREES), *after]:
        facts = {"generation": 1, "round": 12} if changes is None else {**told, **changes}
        facts = {name: value for name, value in facts.items() if value is not None}
        entries.append(replace(entries[-1], sequence=len(entries) + 1, at=at, event=event, facts=facts))
    made = office.issue_for_deployment(ledger=Excerpt.of(genesis(office.deployment.deployment_id), entries))
    assert verify(made.to_json()).holds
    text = " ".join((made.statements.headline, *made.statements.exact))
    assert ("bit for bit" in text) == is_claimed
    assert ("not claimed, because the recomputation of 2026-11-16T05:00:00Z found" in text) != is_claimed
    assert bool(made.statements.exact_limits) == is_claimed
    if not is_claimed:  # and nothing else can be signed
        document = json.loads(made.to_json())
        sound = json.loads(office.issue_for_deployment().to_json())["statements"]
        document["statements"] |= {name: sound[name] for name in ("headline", "exact", "exact_limits")}
        assert len([line for line in verify(_resign(document, office.key)).wrong if "sentences" in line]) == 3


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"agrees": "yes"}, "entry 7: agrees must be"),
        ({"num_checked": 0}, "entry 7: num_checked must be"),
        ({"num_checked": 1001}, "1001 shards were trained again, of 1000"),
        ({"num_different": 1}, "entry 7: it cannot agree when 1 models differ"),
        ({"num_different": 21, "agrees": False}, "entry 7: num_different must be"),
        ({"chosen_by": "the devil"}, "entry 7: chosen_by must be one of"),
        ({"chosen_by": "software"}, "entry 7: a checkpoint is named if, and only if"),
        ({"checkpoint": "cd"}, "entry 7: checkpoint must be 64"),
        ({"models": 3}, "entry 7: models must be 64"),
        ({"round": 13}, "a recomputation of round 13 is later than the deployment's"),
        ({"generation": 2}, "is later than the deployment's"),
    ],
)
def test_an_impossible_recomputation_is_named(office, changes, word):
    document = json.loads(office.issue_for_deployment().to_json())
    entries = [line.entry for line in office.lines]
    entries[6] = replace(entries[6], facts={**entries[6].facts, **changes})
    ledger = Excerpt.of(genesis(office.deployment.deployment_id), entries)
    document["ledger"] = ledger.to_data()
    wrong = verify(_resign(document, office.key)).wrong
    assert any(line.startswith("agreement: ledger: ") and word in line for line in wrong), wrong


def test_an_impossible_key_is_named(office):
    for changes, word in (({"key_commitment": "x"}, "key_commitment must be"), ({"reason": "fun"}, "reason must be")):
        document = json.loads(office.issue_for_deployment().to_json())
        entries = [line.entry for line in office.lines]
        entries[1] = replace(entries[1], facts={**entries[1].facts, **changes})
        document["ledger"] = Excerpt.of(genesis(office.deployment.deployment_id), entries).to_data()
        assert any(f"entry 2: {word}" in line for line in verify(_resign(document, office.key)).wrong)


def test_even_the_operator_cannot_sign_a_contradiction(office, document):
    changed = copy.deepcopy(document)
    changed["request"]["accepted_at"] = "2026-11-15T20:00:00Z"
    wrong = verify(_resign(changed, office.key)).wrong
    assert "agreement: ledger: entry 4: the time of 'accepted' differs from the request's" in wrong
    changed = copy.deepcopy(document)
    changed["ledger"]["head"]["link"] = "0" * 64
    assert any("does not lead to the head" in line for line in verify(_resign(changed, office.key)).wrong)


@pytest.mark.parametrize("part", range(4))
def test_every_flipped_byte_is_caught(office, part):
    """Every byte, one bit each; those few that only reshape the JSON (the newline at the end) mean the same."""
    data, key, passed = office.issue().to_json(), office.key.public_key, 0
    for place in range(part, len(data), 4):
        changed = bytearray(data)
        changed[place] ^= 1 << (place % 7)
        found = verify(bytes(changed), public_key=key)
        if found.holds:
            passed += 1
            assert write_canonical(read_canonical(bytes(changed))) == write_canonical(read_canonical(data))
    assert passed <= 1


def test_reshaped_json_means_the_same(office, document):
    shuffled = dict(reversed(document.items()))
    for data in (json.dumps(shuffled, indent=4), json.dumps(document), json.dumps(document, ensure_ascii=False)):
        assert verify(data.encode(), public_key=office.key.public_key).holds


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=400))
def test_arbitrary_bytes_never_raise(data):
    assert verify(data).outcome == "unusable"


@settings(max_examples=300, deadline=None)
@given(JSON_VALUES)
def test_arbitrary_json_never_raises(value):
    assert not verify(json.dumps(value).encode()).holds


@settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_arbitrary_values_in_arbitrary_places_never_raise_and_never_pass(office, document, data):
    paths = sorted(_paths(document), key=str)
    changed = document
    for path in data.draw(st.lists(st.sampled_from(paths), min_size=1, max_size=3)):
        try:
            text = _put(changed, path, data.draw(JSON_VALUES))
        except (KeyError, IndexError, TypeError):  # an earlier change took the place away
            continue
        changed = json.loads(text)
    raw = json.dumps(changed).encode()
    found = verify(raw, public_key=office.key.public_key)
    if found.holds:
        assert write_canonical(read_canonical(raw)) == write_canonical(document)
    if found.certificate is not None:
        assert render_page(found.certificate, found)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_spliced_files_never_raise(office, data):
    whole = office.issue().to_json()
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, len(whole)))
    raw = whole[:start] + data.draw(st.binary(max_size=8)) + whole[end:]
    found = verify(raw, public_key=office.key.public_key)
    if found.holds:
        assert write_canonical(read_canonical(raw)) == write_canonical(read_canonical(whole))


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"format": 2}, "format 2, this software reads up to 1"),
        ({"format": "1"}, "not a version number"),
        ({"format": True}, "not a version number"),
        ({"format": 0}, "not a version number"),
        ({"header": None}, "not a certificate"),
        ({"header": {"type": "something else"}}, "not a certificate"),
    ],
)
def test_other_formats_and_other_files_are_unusable(document, change, word):
    raw = json.dumps({**document, **change}).encode()
    found = verify(raw)
    assert found.outcome == "unusable"
    assert word in found.wrong[0]
    assert len(found.wrong) == 1
    with pytest.raises(InputError, match=word):
        read_certificate(raw)


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 10**6,
        b'{"a":' * 10**5,
        b"9" * 10**6,
        b'{"header":{"type":"expunge certificate"},"format":1' + b"0" * 5000 + b"}",
        b"null",
        b"[]",
        b'"expunge certificate"',
        "{}".encode("utf-32"),
    ],
)
def test_hostile_files_are_refused_at_once(data):
    started = time.perf_counter()
    assert verify(data).outcome == "unusable"
    assert time.perf_counter() - started < 5


def test_a_name_that_occurs_twice_is_refused(office):
    data = office.issue().to_json()
    assert "occurs twice" in verify(data.replace(b'"alpha":1.0', b'"alpha":0.1,"alpha":1.0')).wrong[0]


def test_a_hundred_thousand_entries_are_followed_quickly(office):
    identity = office.deployment.deployment_id
    shown = (3, 5)
    rows = [line.entry if place in shown else line.entry.digest for place, line in enumerate(office.lines)]
    ledger = Excerpt.of(genesis(identity), [*rows, *(bytes([n % 256]) * 32 for n in range(100_000))])
    data = office.issue(ledger=ledger).to_json()
    assert len(data) < 7_000_000
    started = time.perf_counter()
    assert verify(data).holds
    assert time.perf_counter() - started < 10


def test_hostile_text_does_not_matter(office):
    name = "<script>alert(1)</script>\x1b[31m\u202e\n"
    made = office.issue(
        deployment=replace(office.deployment, name=name),
        guarantee=GuaranteeFacts(math.inf, 0, 0, note=name, theorem=name, parameters={"x": name}, assumptions=(name,)),
    )
    assert isinstance(made, Certificate)
    found = verify(made.to_json())
    assert found.holds
    assert found.certificate is not None
    assert found.certificate.deployment.name == name
