"""`expunge letter`: a reply to the person who made a request, as text or HTML, in a language that is a file."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from expunge.cli.app import app
from expunge.cli.folders import refuse_inside, settle
from expunge.cli.output import Folder, console
from expunge.core.errors import InputError

if TYPE_CHECKING:
    from expunge.evidence import Certificate

_MOST = 100_000  # bytes of a template
_KINDS = ("deletion", "correction", "addition", "mixed")
_STATES = ("applied", "pending", "cancelled")
_FIELDS = {
    "recipient, sender, reference": "what --to, --from and --reference say",
    "request, name, fingerprint": "the number of the request, the deployment's name, the fingerprint of its key",
    "accepted, applied, cancelled": "days",
    "deleted, corrected, added": "numbers of records in words",
}


def languages() -> list[str]:
    """The languages that letters are there in."""
    found = resources.files("expunge.cli").joinpath("letters").iterdir()
    return sorted(each.name.removesuffix(".toml") for each in found if each.name.endswith(".toml"))


@app.command()
def letter(
    folder: Folder,
    request: Annotated[str, typer.Option(metavar="REQUEST", help="The request it is about.", show_default=False)],
    language: Annotated[str, typer.Option(help="en or de.")] = "en",
    template: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A template of your own (TOML), instead of --language.")
    ] = None,
    to: Annotated[str | None, typer.Option(metavar="NAME", help="Whom it goes to.")] = None,
    sender: Annotated[str, typer.Option("--from", metavar="NAME", help="Who writes it.")] = "",
    reference: Annotated[str, typer.Option(metavar="TEXT", help="Your own reference.")] = "",
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help=".txt, or .html to print.  [default: text to standard output]")
    ] = None,
    show_template: Annotated[
        bool, typer.Option("--show-template", help="Print the template of the language, to copy and change.")
    ] = False,
) -> None:
    """Write a reply to the person who made a request: what was done, when, what that means, and what it does not.

    It says what the request's certificate says, in the words of a template, and no more. In a template these are filled
    in: {recipient}, {sender}, {reference}, {request}, {name}, {fingerprint}, {accepted}, {applied}, {cancelled},
    {deleted}, {corrected}, {added}.

    Example: `expunge letter churn/ --request REQUEST --to "Ann Lee" --from "Example Ltd" --out reply.html`
    """
    from expunge.core.files import write_whole
    from expunge.folder import open_view

    text = _read(template, language)
    if show_template:
        print(text, end="")
        return
    words = _checked(text, "the template" if template is None else str(template))
    if out is not None and out.suffix not in (".txt", ".html"):
        raise InputError(f"{str(out)!r} must end in .txt or .html")
    refuse_inside(folder, out)
    settle(folder)
    with open_view(folder) as view:
        issued = view.certificate(request)
    fields = _fields(issued, words, to=to, sender=sender, reference=reference)
    title, paragraphs = _filled(words["title"], fields), _paragraphs(issued, words, fields)
    if out is None:
        print(_as_text(title, paragraphs), end="")
        return
    made = _as_html(title, paragraphs, words["language"]) if out.suffix == ".html" else _as_text(title, paragraphs)
    write_whole(out, made.encode())
    console.print(f"Wrote {out}.", markup=False, soft_wrap=True)


def _read(template: Path | None, language: str) -> str:
    if template is None:
        if language not in languages():
            raise InputError(f"--language must be one of {', '.join(languages())}, or give a --template: {language!r}")
        return resources.files("expunge.cli").joinpath("letters", f"{language}.toml").read_text(encoding="utf-8")
    from expunge.core.files import read_bounded

    try:
        return read_bounded(template, most=_MOST).decode("utf-8")
    except FileNotFoundError:
        raise InputError(f"there is no file {str(template)!r}") from None
    except UnicodeDecodeError:
        raise InputError(f"{str(template)!r} is not text in UTF-8") from None
    except OSError as error:
        raise InputError(f"{str(template)!r} cannot be read: {error.strerror}") from None


def _checked(text: str, where: str) -> dict[str, Any]:
    """The words of a template, after a check that none is missing."""
    try:
        words = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{where} is not TOML: {error}") from None
    wanted = [(name,) for name in ("language", "date", "nobody", "title", "greeting", "reference")]
    paths = [*wanted, *((kind, state) for kind in _KINDS for state in _STATES)]
    paths += [*(("promise", name) for name in ("exact", "rounding", "unclaimed")), ("more", "limits")]
    paths += [("more", "certificate")]
    for path in paths:
        found: Any = words
        for name in path:
            found = found.get(name) if isinstance(found, Mapping) else None
        if not isinstance(found, str):
            raise InputError(f"{where} lacks the text {'.'.join(path)}")
    for name, count in (("months", 12), ("record", 2), ("closing", None)):
        found = words.get(name)
        is_list = isinstance(found, list) and all(isinstance(each, str) for each in found)
        if not is_list or (count is not None and len(found) != count):
            raise InputError(f"{where} lacks the list {name}{'' if count is None else f' of {count} texts'}")
    return words


def _fields(
    issued: Certificate, words: dict[str, Any], *, to: str | None, sender: str, reference: str
) -> dict[str, str]:
    asked = issued.request
    assert asked is not None
    counts = {"deleted": asked.num_deletions, "corrected": asked.num_corrections, "added": asked.num_additions}
    days = {"accepted": asked.accepted_at, "applied": asked.applied_by, "cancelled": asked.cancelled_at}
    return {
        "recipient": to or words["nobody"],
        "sender": sender,
        "reference": reference or "–",
        "request": asked.request_id,
        "name": issued.deployment.name,
        "fingerprint": issued.public_key.fingerprint,
        **{name: _records(count, words) for name, count in counts.items()},
        **{name: "" if at is None else _day(at, words) for name, at in days.items()},
    }


def _records(count: int, words: dict[str, Any]) -> str:
    one, many = words["record"]
    return str(one) if count == 1 else str(many).replace("{count}", f"{count}")


def _day(at: str, words: dict[str, Any]) -> str:
    moment = datetime.strptime(at, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    return moment.strftime(words["date"].replace("%B", words["months"][moment.month - 1].replace("%", "%%")))


def _filled(text: str, fields: Mapping[str, str]) -> str:
    """Fill in the words in braces. One that is not known is an error that names it."""

    def value(found: re.Match[str]) -> str:
        if found[1] not in fields:
            raise InputError(f"the template asks for {{{found[1]}}}, and there is only {', '.join(fields)}")
        return fields[found[1]]

    return re.sub(r"\{(\w+)\}", value, text)


def _paragraphs(issued: Certificate, words: dict[str, Any], fields: Mapping[str, str]) -> list[str]:
    """What is said, from the facts of the certificate alone."""
    asked = issued.request
    assert asked is not None
    told = [words["reference"], words["greeting"], words[asked.kind][asked.state]]
    if asked.state == "applied" and asked.kind != "addition":
        claims = not issued.statements.exact[0].startswith("exact: not claimed")
        how = "unclaimed" if not claims else "rounding" if issued.exact.is_mixed else "exact"
        told.append(words["promise"][how])
    if asked.state == "applied":
        told += [words["more"]["limits"], words["more"]["certificate"]]
    return [_filled(each, fields) for each in (*told, *words["closing"])]


def _as_text(title: str, paragraphs: list[str]) -> str:
    import textwrap

    from expunge.core.html import make_visible

    lines = [textwrap.fill(make_visible(each), width=78, break_long_words=False) for each in (title, *paragraphs)]
    return "\n\n".join(filter(None, lines)) + "\n"


def _as_html(title: str, paragraphs: list[str], language: str) -> str:
    from expunge.core.html import document, escape, tag

    body = tag("h1", escape(title)) + "".join(tag("p", escape(each)) for each in paragraphs if each)
    return document(title, body, language=language)
