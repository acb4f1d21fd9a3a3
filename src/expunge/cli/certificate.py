"""`expunge certificate` and `expunge verify`."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from expunge.cli.app import app
from expunge.cli.desk import AcceptedFrom, AcceptedTo, Ids, Kinds, Subjects, as_csv, find_requests, request_facts
from expunge.cli.folders import refuse_inside, settle
from expunge.cli.output import Folder, complain, console, progress, say, show_json, show_table
from expunge.core.errors import InputError
from expunge.core.files import read_bounded
from expunge.core.words import plural

if TYPE_CHECKING:
    from expunge.evidence import Certificate, Check, Checkpoint, Verification

_EXIT_CODES = {"holds": 0, "wrong": 1, "unusable": 2}
_ANSWERS = {
    "one history": (0, "They belong to one history: the log was only continued."),
    "two histories": (
        1,
        "They belong to two histories. The operator signed both: the log tells different people different things. Do "
        "not rely on either, and keep the files: they prove it.",
    ),
    "not decided": (
        2,
        "Each of them holds, but these files cannot decide whether they belong to one history. Ask the operator for a "
        "certificate that continues all of them, and verify it together with them. The operator makes it with: "
        "expunge certificate FOLDER {since} --out newer.json",
    ),
    "different deployments": (2, "They cannot be compared."),
    "different keys": (
        1,
        "One of them was not signed by the operator of this deployment. Give --public-key to see which.",
    ),
}
_VERDICTS = {
    "matches": "The certificate holds, and the key is the one that you gave.",
    "not checked": "The certificate is consistent. Whose key signed it was not checked: give --public-key, or compare "
    "the fingerprint with the operator's.",
}


@app.command()
def certificate(
    folder: Folder,
    request: Annotated[
        str | None, typer.Option(metavar="REQUEST", help="The request it is about.  [default: the whole deployment]")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The certificate (JSON).  [default: standard output]")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The certificate as an HTML page to read and print.")
    ] = None,
    archive: Annotated[
        Path | None,
        typer.Option(
            "--zip", metavar="FILE", help="A certificate for each of many requests, as JSON and HTML in one ZIP file."
        ),
    ] = None,
    kind: Kinds = None,
    accepted_from: AcceptedFrom = None,
    accepted_to: AcceptedTo = None,
    id: Ids = None,
    subject: Subjects = None,
    since: Annotated[
        list[Path] | None,
        typer.Option(
            "--since", metavar="FILE", help="An earlier certificate: prove that the log continues it. May be repeated."
        ),
    ] = None,
) -> None:
    """Issue a signed certificate about a request, or about the whole deployment. Anyone can verify it offline.

    With --zip it issues one for each request: all, or those of --subject, --id, --kind, --accepted-from, --accepted-to.

    Example: `expunge certificate churn/ --request REQUEST --out certificate.json --html certificate.html`
    """
    from expunge.core.files import Draft
    from expunge.evidence import render_page
    from expunge.folder import open_view

    out = None if out == Path("-") else out
    if html == Path("-"):
        raise InputError("--html needs the name of a file, and got '-'")
    refuse_inside(folder, out, html, archive)
    chosen = (kind, accepted_from, accepted_to, id, subject)
    if archive is not None:
        if request is not None or out is not None or html is not None:
            raise InputError("--zip is for many requests: leave out --request, --out and --html")
        _issue_many(folder, archive, chosen, [_read_checkpoint(file) for file in since or ()])
        return
    if any(chosen):
        raise InputError("--subject, --id, --kind, --accepted-from and --accepted-to choose requests for --zip")
    if out is not None and html is not None and out.resolve() == html.resolve():
        raise InputError(f"--out and --html are both {str(out)!r}; give each a file of its own")
    continued = [_read_checkpoint(file) for file in since or ()]
    settle(folder)
    with ExitStack() as stack:
        drafts = {path: stack.enter_context(Draft(path)) for path in (out, html) if path is not None}
        with open_view(folder) as view:
            issued = view.certificate(request, since=continued)
        if out is not None:
            drafts[out].finish(issued.to_json())
        elif html is None:
            print(issued.to_json().decode(), end="")
        if html is not None:
            drafts[html].finish(render_page(issued).encode())
    for path in drafts:
        console.print(f"Wrote {path}.", markup=False, soft_wrap=True)
    if out is not None:
        console.print(f"`expunge verify {out}` checks it, on any machine.", markup=False, soft_wrap=True)


def _issue_many(folder: Path, archive: Path, chosen: tuple[Any, ...], continued: list[Checkpoint]) -> None:
    """Write a ZIP file with a certificate for each request, an index, and the key to check them with."""
    import zipfile
    from io import BytesIO

    from expunge.core.files import Draft
    from expunge.evidence import render_page
    from expunge.folder import open_view

    settle(folder)
    content = BytesIO()
    with Draft(archive) as draft, open_view(folder) as view, zipfile.ZipFile(content, "w") as made:

        def put(name: str, data: bytes) -> None:
            # A fixed date: the file then depends on its contents alone.
            made.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)

        found = find_requests(view, folder, *chosen)
        if not found:
            raise InputError("there is no such request to certify")
        with progress("signing", len(found)) as advance:
            for each in found:
                issued = view.certificate(each.request, since=continued)
                put(f"{each.request}.json", issued.to_json())
                put(f"{each.request}.html", render_page(issued).encode())
                advance(1)
        put("index.csv", as_csv([request_facts(each) for each in found]))
        put("public.pem", issued.public_key.to_pem().encode())
        made.close()
        draft.finish(content.getvalue())
    console.print(f"Wrote {plural(len(found), 'certificate')} to {archive}.", markup=False, soft_wrap=True)


@app.command()
def verify(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="The certificate (JSON), or several.", show_default=False)
    ],
    public_key: Annotated[
        Path | None, typer.Option("--public-key", help="The operator's public key (PEM), received by another way.")
    ] = None,
    witness_key: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="The key of a witness who must have cosigned the log with all entries that are shown; repeatable.",
        ),
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write one certificate as a page, with what was found.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was found as JSON.")] = False,
) -> None:
    """Check a certificate offline: its content, its signature and the log, and whether its words fit its numbers.

    Of several certificates of one deployment it also says whether they belong to one history: an operator could sign
    two.

    The exit code is 0 if everything holds, 1 if a certificate is wrong (with one line for each error) or there are two
    histories, and 2 if a file cannot be used at all or the files cannot decide. No training code is loaded, and the
    network is not used.

    Example: `expunge verify certificate.json --public-key operator.pem`
    """
    from expunge.core.files import write_whole
    from expunge.evidence import PublicKey, load_note_key, render_page
    from expunge.evidence import verify as check

    if html is not None and (len(files) > 1 or html == Path("-")):
        raise InputError("--html needs the name of a file, and takes one certificate")
    key = None if public_key is None else PublicKey.load(public_key)
    witnesses = [load_note_key(path) for path in witness_key or ()]
    found = [(file, check(_read(file), public_key=key, witnesses=witnesses)) for file in files]
    told = [{"file": str(file), **_as_data(each)} for file, each in found] if as_json else []
    for file, each in found:
        if not as_json and each.outcome != "unusable":
            if len(found) > 1:
                console.print(f"\n{_clean(str(file))}", style="bold", markup=False)
            _tell(each)
        for line in each.wrong:
            complain(f"{file}: {_clean(line)}")
    code = max(_EXIT_CODES[each.outcome] for _, each in found)
    if len(found) > 1 and code == 0:
        code = _compare(files, [each for _, each in found], told if as_json else None)
    certificate = found[0][1].certificate
    if html is not None and certificate is not None:
        write_whole(html, render_page(certificate, found[0][1]).encode())
    if as_json:
        show_json(
            told[0] if len(files) == 1 else {"certificates": told[: len(files)], **(told[len(files) :] or [{}])[0]}
        )
    raise typer.Exit(code)


def _compare(files: list[Path], found: list[Verification], told: list[dict[str, Any]] | None) -> int:
    """Say whether sound certificates belong to one history, and return the exit code."""
    from expunge.evidence import compare

    result = compare([each.certificate for each in found if each.certificate is not None])
    code, words = _ANSWERS[result.answer]
    words = words.format(since=" ".join(f"--since {file}" for file in files))
    if told is not None:
        told.append({"together": result.answer, "explanation": list(result.explanation)})
    else:
        console.print("\nTogether", style="bold", markup=False)
        for line in result.explanation:
            say(_clean(line[0].upper() + line[1:] + "."))
        if code == 0:
            console.print(words, style="bold green", markup=False)
    if code:
        complain(_clean(f"{words}"))
    return code


def _read_checkpoint(file: Path) -> Checkpoint:
    from expunge.evidence import read_certificate

    try:
        return read_certificate(_read(file)).log.checkpoint
    except InputError as error:
        raise InputError(f"{file}: {error}") from None


def _read(file: Path) -> bytes:
    from expunge.evidence import MAX_BYTES

    try:
        return read_bounded(file, most=MAX_BYTES)
    except FileNotFoundError:
        raise InputError(f"there is no file {file}") from None
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}") from None


def _as_data(found: Verification) -> dict[str, Any]:
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
        document = _plain(certificate.predicate())
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
            "exact": document["exact"],
            "guarantee": document["guarantee"],
            "statements": document["statements"],
        }
    return data


def _plain(value: Any) -> Any:
    """The same as the file has it: infinity is text in it."""
    from expunge.evidence import read_canonical, write_canonical

    return read_canonical(write_canonical(value))


def _tell(found: Verification) -> None:
    if found.certificate is not None and found.holds:  # do not repeat the words of a wrong certificate
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
    said = certificate.statements
    console.print(_clean(said.headline), markup=False)
    for title, sentences in (
        ("What happened", said.happened),
        ("The exact promise", said.exact),
        ("The (α,β,γ) promise", said.alpha_beta_gamma),
        ("What was checked", said.recomputed),
    ):
        console.print(f"\n{title}", style="bold", markup=False)
        for sentence in sentences:
            say(_clean(sentence))
    console.print("\nThe limits of each promise, and what is not promised, are in the file, under statements.\n")


def _passed(found: Verification, check: Check) -> bool | None:
    """Whether the check passed; None if it was not made."""
    return None if check.name == "key" and found.key == "not checked" else check.passed


def _mark(found: Verification, check: Check) -> str:
    return {None: "not checked", True: "ok", False: "WRONG"}[_passed(found, check)]


def _clean(text: str) -> str:
    from expunge.core.html import make_visible

    return make_visible(text)
