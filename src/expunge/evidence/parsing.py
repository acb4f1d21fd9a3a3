"""Reading a certificate file: its format, and what its sections say."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Any, Final

from expunge.core.errors import InputError
from expunge.evidence import checks as _require
from expunge.evidence.canonical import canonical, parse
from expunge.evidence.certificate import FORMAT, TYPE, Certificate
from expunge.evidence.facts import CountFacts, DeploymentFacts, GuaranteeFacts, PublicationFacts, RequestFacts
from expunge.evidence.keys import PublicKey
from expunge.evidence.log import Excerpt
from expunge.evidence.statements import Statements

_SIGNATURE: Final = re.compile(r"[0-9a-f]{128}")
_HEADER: Final = frozenset({"type", "format", "kind", "issued_at", "software", "public_key", "digests"})
_SECTIONS: Final[Mapping[str, type]] = MappingProxyType(
    {
        "deployment": DeploymentFacts,
        "publication": PublicationFacts,
        "guarantee": GuaranteeFacts,
        "statements": Statements,
        "ledger": Excerpt,
    }
)
_ABOUT: Final[Mapping[str, tuple[str, type]]] = MappingProxyType(
    {"request": ("request", RequestFacts), "deployment": ("counts", CountFacts)}
)


def read_certificate(data: bytes) -> Certificate:
    """The certificate in a file, well-formed but not verified; `verify` checks it."""
    certificate, problems = read_parts(read_document(data))
    if certificate is None or problems:
        raise InputError(problems[0])
    return certificate


def read_document(data: bytes) -> dict[str, Any]:
    """The JSON of a certificate in a format that is known; anything else is an `InputError`."""
    document: Any = parse(data)
    header = document.get("header") if isinstance(document, dict) else None
    if not isinstance(header, dict) or header.get("type") != TYPE:
        raise InputError("this is not a certificate of expunge")
    version = document.get("format")
    if type(version) is not int or version < 1:
        raise InputError("the certificate's format is not a version number")
    if version > FORMAT:
        raise InputError(f"the certificate has format {version}, this software reads up to {FORMAT}: use a newer one")
    return dict(document)


def read_parts(document: Mapping[str, Any]) -> tuple[Certificate | None, list[str]]:
    """The certificate, if it can be made of the document, and every problem on the way, one line each."""
    kinds, problems = _expected_sections(document)
    found: dict[str, Any] = {}
    for name, kind in kinds.items():
        try:
            found[name] = _read_section(kind, document.get(name))
        except InputError as error:
            problems.append(f"{name}: {error}")
    try:
        found |= _read_header(document)
    except InputError as error:
        problems.append(f"header: {error}")
    if problems:
        return None, problems
    certificate = Certificate(**found)
    sections = certificate.sections()
    if canonical(sections) != canonical({name: document[name] for name in sections}):
        return None, ["a value is not written the way its field demands"]
    return certificate, []


def _expected_sections(document: Mapping[str, Any]) -> tuple[dict[str, type], list[str]]:
    kind = document["header"].get("kind")
    if not isinstance(kind, str) or kind not in _ABOUT:
        return dict(_SECTIONS), ["header: kind must be request or deployment"]
    name, facts = _ABOUT[kind]
    kinds = {**_SECTIONS, name: facts}
    strange = sorted(set(document) - set(kinds) - {"format", "header", "signature"})
    return kinds, [f"{name[:80]!r} does not belong into a certificate about a {kind}" for name in strange]


def _read_section(kind: type, data: Any) -> Any:
    if not isinstance(data, dict):
        raise InputError("the section is missing" if data is None else "the section is not an object")
    names = {each.name for each in fields(kind)}
    for name in sorted(names - set(data)):
        raise InputError(f"{name} is missing")
    for name in sorted(set(data) - names):
        raise InputError(f"there is no field {name[:80]!r}")
    read: Callable[..., Any] | None = getattr(kind, "from_data", None)
    return kind(**data) if read is None else read(data)


def _read_header(document: Mapping[str, Any]) -> dict[str, Any]:
    header = document["header"]
    if set(header) != _HEADER:
        raise InputError(f"it must have {', '.join(sorted(_HEADER))}, and nothing else")
    if header["format"] != document["format"] or type(header["format"]) is not int:
        raise InputError("its format differs from the document's")
    pem = _require.text("public_key", header["public_key"])
    key = PublicKey.from_pem(pem.encode("utf-8"))
    if key.to_pem() != pem:
        raise InputError("the public key is not written as PEM writes it")
    signature = document.get("signature")
    if not isinstance(signature, str) or not _SIGNATURE.fullmatch(signature):
        raise InputError("the signature must be 128 hexadecimal digits")
    return {
        "issued_at": _require.moment("issued_at", header["issued_at"]),
        "software": _require.text("software", header["software"]),
        "public_key": key,
        "signature": bytes.fromhex(signature),
    }
