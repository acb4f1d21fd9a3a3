"""The reply to the person who made a request: what a certificate says, in the words of a template.

A template is a TOML file. `evidence/letters` has one for each language.
"""

from __future__ import annotations

import os
import re
import textwrap
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any, Final

from expunge.core.errors import InputError
from expunge.core.files import read_bounded
from expunge.core.html import document, make_visible, tag_text
from expunge.evidence.certificate import Certificate

_MOST: Final = 100_000  # bytes of a template
_KINDS: Final = ("deletion", "correction", "addition", "mixed")
_STATES: Final = ("applied", "pending", "cancelled")


def languages() -> list[str]:
    """The languages that letters are there in."""
    found = resources.files("expunge.evidence").joinpath("letters").iterdir()
    return sorted(each.name.removesuffix(".toml") for each in found if each.name.endswith(".toml"))


@dataclass(frozen=True, slots=True)
class Letter:
    """A letter, without its paper.

    Parameters
    ----------
    title
        What it is about.
    paragraphs
        What it says.
    language
        The language it is in, such as "en".
    """

    title: str
    paragraphs: tuple[str, ...]
    language: str

    def to_text(self) -> str:
        """The letter as lines of text."""
        parts = (self.title, *self.paragraphs)
        lines = [textwrap.fill(make_visible(each), width=78, break_long_words=False) for each in parts]
        return "\n\n".join(filter(None, lines)) + "\n"

    def to_html(self) -> str:
        """The letter as a page that stands alone and prints on A4."""
        body = tag_text("h1", self.title) + "".join(tag_text("p", each) for each in self.paragraphs if each)
        return document(self.title, body, language=self.language)


def read_template(language: str = "en", *, path: str | os.PathLike[str] | None = None) -> str:
    """The template of a language, or one of your own.

    Parameters
    ----------
    language
        One of `languages`.
    path
        A file to read instead.

    Returns
    -------
    str
        The template, unchecked.

    Raises
    ------
    InputError
        If there is no such language, or the file cannot be read.
    """
    if path is None:
        if language not in languages():
            raise InputError(f"--language must be one of {', '.join(languages())}, or give a --template: {language!r}")
        return resources.files("expunge.evidence").joinpath("letters", f"{language}.toml").read_text(encoding="utf-8")
    name = str(path)
    try:
        return read_bounded(Path(path), most=_MOST).decode("utf-8")
    except FileNotFoundError:
        raise InputError(f"there is no file {name!r}") from None
    except UnicodeDecodeError:
        raise InputError(f"{name!r} is not text in UTF-8") from None
    except OSError as error:
        raise InputError(f"{name!r} cannot be read: {error.strerror}") from None


def write_letter(
    issued: Certificate,
    template: str,
    *,
    source: str = "the template",
    recipient: str = "",
    sender: str = "",
    reference: str = "",
) -> Letter:
    """Write a letter from a certificate of a request. It says what the certificate says, and no more.

    Parameters
    ----------
    issued
        The certificate.
    template
        The template's text.
    source
        What to call the template in an error.
    recipient, sender, reference
        Whom it goes to, who writes it, and the sender's own reference.

    Returns
    -------
    Letter
        The letter.

    Raises
    ------
    InputError
        If the template lacks a text, asks for an unknown field, or the certificate is about no request.
    """
    if issued.request is None:
        raise InputError("a letter is about a request, and this certificate is about the whole deployment")
    words = _checked(template, source)
    fields = _fields(issued, words, recipient=recipient, sender=sender, reference=reference)
    return Letter(_filled(words["title"], fields), tuple(_paragraphs(issued, words, fields)), words["language"])


def _checked(text: str, where: str) -> dict[str, Any]:
    """The words of a template, after a check that none is missing."""
    try:
        words = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{where} is not TOML: {error}") from None
    wanted = [(name,) for name in ("language", "date", "title", "greeting", "unnamed", "reference")]
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
    issued: Certificate, words: dict[str, Any], *, recipient: str, sender: str, reference: str
) -> dict[str, str]:
    asked = issued.request
    assert asked is not None
    counts = {"deleted": asked.num_deletions, "corrected": asked.num_corrections, "added": asked.num_additions}
    days = {"accepted": asked.accepted_at, "applied": asked.applied_by, "cancelled": asked.cancelled_at}
    return {
        "recipient": recipient,
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
    _filled(words["greeting"], fields)  # a wrong one is an error also where it is not used
    greeting = words["greeting" if fields["recipient"] else "unnamed"]
    told = [words["reference"], greeting, words[asked.kind][asked.state]]
    if asked.state == "applied" and asked.kind != "addition":
        claims = not issued.statements.exact[0].startswith("exact: not claimed")
        how = "unclaimed" if not claims else "rounding" if issued.exact.is_mixed else "exact"
        told.append(words["promise"][how])
    if asked.state == "applied":
        told += [words["more"]["limits"], words["more"]["certificate"]]
    return [_filled(each, fields) for each in (*told, *words["closing"])]
