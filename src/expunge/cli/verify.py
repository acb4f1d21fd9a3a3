"""`expunge verify`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.padding import Padding

from expunge.cli.app import app
from expunge.cli.output import complain, console, show_json, show_table
from expunge.core.errors import InputError

if TYPE_CHECKING:
    from expunge.evidence import Certificate, Check, Verification

_EXIT_CODES = {"holds": 0, "wrong": 1, "unusable": 2}
_VERDICTS = {
    "matches": "The certificate holds, and the key is the one that you gave.",
    "not checked": "The certificate is consistent. Whose key signed it was not checked: give --public-key, or compare "
    "the fingerprint with the operator's.",
}


@app.command()
def verify(
    file: Annotated[Path, typer.Argument(help="The certificate (JSON).", show_default=False)],
    public_key: Annotated[
        Path | None, typer.Option("--public-key", help="The operator's public key (PEM), got by another way.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was found as JSON.")] = False,
) -> None:
    """Check a certificate offline: its content, signature and ledger, and whether its words fit its numbers.

    Exit code 0 if everything holds, 1 if the certificate is wrong (one line for each wrong thing), 2 if the file cannot
    be used at all. Loads no training code and asks nothing of the network.

    Example: `expunge verify certificate.json --public-key operator.pem`
    """
    from expunge.evidence import PublicKey
    from expunge.evidence import verify as check

    key = None if public_key is None else PublicKey.load(public_key)
    found = check(_read(file), public_key=key)
    if as_json:
        show_json({"file": str(file), **_as_data(found)})
    elif found.outcome != "unusable":
        _tell(found)
    for line in found.wrong:
        complain(f"{file}: {_clean(line)}")
    raise typer.Exit(_EXIT_CODES[found.outcome])


def _read(file: Path) -> bytes:
    from expunge.evidence import MAX_BYTES

    try:
        with file.open("rb") as stream:
            return stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise InputError(f"there is no file {file}") from None
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}") from None


def _as_data(found: Verification) -> dict[str, Any]:
    from expunge.evidence import read_canonical

    data: dict[str, Any] = {
        "outcome": found.outcome,
        "key": found.key,
        "checks": [
            {"name": check.name, "passed": _passed(found, check), "explanation": check.explanation}
            for check in found.checks
        ],
        "wrong": list(found.wrong),
    }
    certificate = found.certificate
    if certificate is not None:
        document = read_canonical(certificate.to_json())  # infinity is text there
        data |= {
            "kind": certificate.kind,
            "format": certificate.format,
            "issued_at": certificate.issued_at,
            "software": certificate.software,
            "fingerprint": certificate.public_key.fingerprint,
            "is_vacuous": certificate.guarantee.is_vacuous,
            "reason": certificate.guarantee.reason,
            "deployment": document["deployment"],
            "request": document.get("request"),
            "publication": document["publication"],
            "counts": document.get("counts"),
            "guarantee": document["guarantee"],
            "statements": document["statements"],
        }
    return data


def _tell(found: Verification) -> None:
    if found.certificate is not None and found.holds:  # a wrong one's words are not worth repeating
        _tell_content(found.certificate)
    show_table(
        None,
        ["check", "", "found"],
        [(check.name, _mark(found, check), escape(_clean(check.explanation))) for check in found.checks],
    )
    verdict = _VERDICTS[found.key] if found.holds else "The certificate is wrong. Do not rely on it."
    console.print(verdict, style="bold green" if found.holds else "bold red", markup=False)


def _tell_content(certificate: Certificate) -> None:
    about = "deployment" if certificate.request is None else f"request {certificate.request.request_id}"
    console.print(
        _clean(f"Certificate about the {about} of {certificate.deployment.name}, issued {certificate.issued_at}"),
        style="bold",
        markup=False,
    )
    console.print(_clean(certificate.statements.headline), markup=False)
    for sentence in certificate.statements.promised:
        console.print(Padding(_clean(sentence), (0, 0, 0, 2)), markup=False)
    console.print("What is not promised stands in the file, under statements.\n", markup=False)


def _passed(found: Verification, check: Check) -> bool | None:
    """None for what was not checked."""
    return None if check.name == "key" and found.key == "not checked" else check.passed


def _mark(found: Verification, check: Check) -> str:
    return {None: "not checked", True: "ok", False: "WRONG"}[_passed(found, check)]


def _clean(text: str) -> str:
    from expunge.core.html import make_visible

    return make_visible(text)
