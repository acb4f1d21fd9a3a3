"""The JSON Schemas that are shipped beside the code: every certificate has their form, and what they list is true."""

from __future__ import annotations

import copy
import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator, ValidationError

from expunge.evidence import EVENTS, HIDDEN, Envelope
from expunge.evidence.history import Reason
from expunge.evidence.ledger import CLAMPED

GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.json"))


def _schema(name: str) -> dict[str, Any]:
    return json.loads((files("expunge.evidence") / f"{name}.schema.json").read_text(encoding="utf-8"))


ENVELOPE, STATEMENT = (Draft202012Validator(_schema(name)) for name in ("envelope", "certificate"))


def check(data: bytes) -> None:
    """Raise an error unless the file and what it signs have the form of the schemas."""
    ENVELOPE.validate(json.loads(data))
    STATEMENT.validate(json.loads(Envelope.parse(data).payload))


def test_the_schemas_are_schemas():
    for schema in (ENVELOPE.schema, STATEMENT.schema):
        Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize("file", GOLDEN, ids=lambda file: file.stem)
def test_every_kind_of_certificate_has_the_form(file):
    check(file.read_bytes())


def test_the_schema_lists_the_facts_of_every_event():
    entry = STATEMENT.schema["$defs"]["entry"]
    told = {
        each["if"]["properties"]["event"]["const"]: set(each["then"]["properties"]["facts"]["properties"])
        for each in entry["allOf"]
    }
    assert told == {event: names | {CLAMPED} for event, names in EVENTS.items()}
    assert set(entry["properties"]["event"]["enum"]) == set(EVENTS)
    assert set(STATEMENT.schema["$defs"]["opening"]["properties"]["facts"]["properties"]) == set().union(
        *HIDDEN.values()
    )
    (generation,) = [each for each in entry["allOf"] if each["if"]["properties"]["event"]["const"] == "generation"]
    assert set(generation["then"]["properties"]["facts"]["properties"]["reason"]["enum"]) == set(Reason.__args__)


@pytest.mark.parametrize(
    "change",
    [
        lambda p: p.pop("software"),
        lambda p: p.update(extra=1),
        lambda p: p.update(counts={"num_records": 1, "accepted": 0, "applied": 0, "pending": 0, "cancelled": 0}),
        lambda p: p.pop("request"),
        lambda p: p["log"]["shown"][0]["entry"]["facts"].update(request="r"),
        lambda p: p["log"]["shown"][0].update(proof=["zz"]),
        lambda p: p["log"].update(checkpoint="x"),
        lambda p: p["request"].update(state="lost"),
        lambda p: p["guarantee"].update(alpha="huge"),
        lambda p: p["exact"].update(environments=[["numpy", 0]]),
    ],
)
def test_the_schema_refuses_another_form(office, change):
    statement = json.loads(office.issue().payload())
    STATEMENT.validate(copy.deepcopy(statement))
    change(statement["predicate"])
    with pytest.raises(ValidationError):
        STATEMENT.validate(statement)
