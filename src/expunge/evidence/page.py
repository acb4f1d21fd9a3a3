"""A certificate as a page for people: one HTML file that asks nothing of the network and prints on A4.

Text from strangers on the way to a screen: what could rewrite or reorder the screen becomes visible.

How the page looks on a screen, light or dark, and on A4 paper.

The few pieces of HTML that the page is made of; every text goes through `escaped`.

The technical appendix of the page: numbers, assumptions, ledger, key, and how to check them.
"""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Final

from expunge.core.words import bound, day_and_time, percent, period
from expunge.evidence.canonical import canonical
from expunge.evidence.certificate import Certificate
from expunge.evidence.facts import Parameter
from expunge.evidence.statements import asked
from expunge.evidence.verification import Verification

_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"
# Directions that overlap into the text after them; ordinary right-to-left letters need none of these.
_BIDIRECTIONAL: Final = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_HIDDEN: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})


def shown(text: str) -> str:
    """The text with control characters, line breaks and changes of direction replaced."""
    if text.isprintable():
        return text
    return "".join(_REPLACEMENT if _is_hidden(character) else character for character in text)


def _is_hidden(character: str) -> bool:
    return character in _BIDIRECTIONAL or unicodedata.category(character) in _HIDDEN


STYLE: Final = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #57606a; --line: #d0d7de; --paper: #ffffff; --back: #f6f8fa;
  --good: #116329; --good-back: #dafbe1; --wait: #7d4e00; --wait-back: #fff8c5; --bad: #a40e26; --bad-back: #ffebe9; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #9198a1; --line: #3d444d; --paper: #161b22;
  --back: #0d1117; --good: #7ee787; --good-back: #12351d; --wait: #f2cc60; --wait-back: #3a2d05; --bad: #ffa198;
  --bad-back: #4c1519; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--ink); line-height: 1.5;
  font: 16px/1.5 "Segoe UI", system-ui, -apple-system, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 50rem; margin: 2rem auto; padding: 2.5rem 3rem; background: var(--paper);
  border: 1px solid var(--line); border-top: 6px solid var(--soft); border-radius: 6px; }
.brand { margin: 0; color: var(--soft); letter-spacing: 0.12em; text-transform: uppercase; font-size: 0.8rem; }
h1 { margin: 0.1rem 0 0.8rem; font-size: 2rem; line-height: 1.2; }
h2 { margin: 2.2rem 0 0.6rem; font-size: 1.25rem; border-bottom: 1px solid var(--line); padding-bottom: 0.25rem; }
h3 { margin: 1.6rem 0 0.4rem; font-size: 1rem; }
.state { display: inline-block; padding: 0.1rem 0.7rem; border-radius: 1rem; font-weight: 600; margin-right: 0.4rem;
  border: 1px solid currentColor; }
.state.applied, .state.deployment { color: var(--good); background: var(--good-back); }
.state.pending { color: var(--wait); background: var(--wait-back); }
.state.cancelled { color: var(--soft); }
.warning { border: 2px solid var(--bad); background: var(--bad-back); color: var(--bad); border-radius: 6px;
  padding: 0.2rem 1.2rem; margin-top: 1.4rem; }
.warning h2 { border: 0; margin: 0.7rem 0; font-size: 1.15rem; }
li { margin: 0.35rem 0; }
ul { padding-left: 1.3rem; margin: 0.4rem 0; }
dl { display: grid; grid-template-columns: minmax(8rem, max-content) 1fr; gap: 0.25rem 1.4rem; margin: 0.6rem 0; }
dl > div { display: contents; }
dt { color: var(--soft); }
dd { margin: 0; overflow-wrap: anywhere; }
table { border-collapse: collapse; margin: 0.8rem 0; width: 100%; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding-bottom: 0.4rem; color: var(--soft); }
th, td { text-align: left; padding: 0.3rem 1rem 0.3rem 0; border-bottom: 1px solid var(--line); vertical-align: top;
  overflow-wrap: anywhere; }
th { color: var(--soft); font-weight: 600; }
.alarms { max-width: 34rem; }
.entries th, .entries td:first-child, .entries td:nth-child(2), .entries td:nth-child(3) { white-space: nowrap; }
.appendix { font-size: 0.88rem; }
.appendix dd, .entries td:last-child, .hashes, code { font-family: ui-monospace, "SFMono-Regular", Consolas, monospace;
  font-size: 0.92em; overflow-wrap: anywhere; }
@media (max-width: 40rem) { main { margin: 0; padding: 1.2rem; border-left: 0; border-right: 0; }
  dl { display: block; } dl > div { display: block; margin-bottom: 0.4rem; }
  .entries { display: block; overflow-x: auto; } .entries td:last-child { min-width: 16rem; } }
@page { size: A4; margin: 18mm; }
@media print {
  :root { color-scheme: light; --ink: #000; --soft: #444; --line: #bbb; --paper: #fff; --back: #fff; --good: #116329;
    --good-back: #fff; --wait: #7d4e00; --wait-back: #fff; --bad: #a40e26; --bad-back: #fff; }
  body { font-size: 10.5pt; } main { margin: 0; padding: 0; border: 0; max-width: none; }
  h1 { font-size: 20pt; } h2, h3 { break-after: avoid; } li, tr, dl > div, .warning { break-inside: avoid; }
  .appendix { break-before: page; font-size: 9pt; }
}
"""


def escaped(text: str) -> str:
    """Text that can stand anywhere in a page."""
    return html.escape(shown(text), quote=True)


def tag(name: str, content: str, *, css: str = "", **attributes: str) -> str:
    """An element around markup."""
    if css:
        attributes = {"class": css, **attributes}
    inside = "".join(f' {key}="{escaped(value)}"' for key, value in attributes.items())
    return f"<{name}{inside}>{content}</{name}>"


def tag_text(name: str, text: str, *, css: str = "", **attributes: str) -> str:
    """An element around text."""
    return tag(name, escaped(text), css=css, **attributes)


def items(sentences: Iterable[str]) -> str:
    """A list of sentences."""
    return tag("ul", "".join(tag_text("li", sentence) for sentence in sentences))


def facts(rows: Iterable[tuple[str, str]]) -> str:
    """Names and values."""
    return tag("dl", "".join(tag("div", tag_text("dt", name) + tag_text("dd", value)) for name, value in rows))


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, css: str = "") -> str:
    """A table of texts."""
    head = tag("tr", "".join(tag_text("th", column, scope="col") for column in columns))
    body = "".join(tag("tr", "".join(tag_text("td", cell) for cell in row)) for row in rows)
    return tag("table", tag("thead", head) + tag("tbody", body), css=css)


_MOST_ENTRIES: Final = 100
_MOST_HASHES: Final = 50


def appendix(certificate: Certificate, verification: Verification | None) -> str:
    """Everything that an auditor needs beside the file itself."""
    parts = [
        tag_text("h2", "Technical appendix"),
        _guarantee(certificate),
        _assumptions(certificate),
        _ledger(certificate),
        _ids(certificate),
        _signature(certificate, verification),
    ]
    return tag("section", "\n".join(parts), css="appendix")


def _guarantee(certificate: Certificate) -> str:
    guarantee, publication = certificate.guarantee, certificate.publication
    covered = publication.predictions_covered
    covered_words = "any number" if covered is None else f"{covered:,}"
    rows = [
        ("alpha", _number(guarantee.alpha)),
        ("beta", _number(guarantee.beta)),
        ("gamma", _number(guarantee.gamma)),
        ("theorem", guarantee.theorem or "none"),
        *((name, _number(value)) for name, value in sorted(guarantee.parameters.items())),
        ("predictions published in this generation", f"{publication.predictions_published:,}"),
        ("predictions covered in a generation", "none" if guarantee.is_vacuous else covered_words),
        ("generation and round at issue", f"{publication.generation:,}, {publication.round:,}"),
        ("shards are independent", "yes" if certificate.deployment.sampler_is_independent else "no"),
        ("clock tick", period(certificate.deployment.tick_seconds)),
    ]
    return tag_text("h3", "The guarantee in numbers") + table(("name", "value"), rows, css="numbers")


def _assumptions(certificate: Certificate) -> str:
    heading = tag_text("h3", "What the guarantee rests on")
    if not certificate.guarantee.assumptions:
        return heading + tag_text("p", "No assumptions are stated.")
    return heading + items(certificate.guarantee.assumptions)


def _ledger(certificate: Certificate) -> str:
    ledger = certificate.ledger
    rows = [
        (f"{entry.sequence:,}", entry.at, entry.event, canonical(entry.facts).decode("utf-8"))
        for entry in ledger.entries[:_MOST_ENTRIES]
    ]
    more = len(ledger.entries) - len(rows)
    start = "the creation of the deployment" if ledger.start.sequence == 0 else f"entry {ledger.start.sequence:,}"
    return (
        tag_text("h3", "Ledger")
        + facts(
            [
                ("Starts after", start),
                ("Link there", ledger.start.link.hex()),
                ("Ends with", f"entry {ledger.head.sequence:,}"),
                ("Link there", ledger.head.link.hex()),
            ]
        )
        + (table(("entry", "time", "event", "facts"), rows, css="entries") if rows else "")
        + (tag_text("p", f"The file holds {more:,} more entries.") if more else "")
    )


def _ids(certificate: Certificate) -> str:
    hashes = () if certificate.request is None else certificate.request.id_hashes
    if not hashes:
        return ""
    more = len(hashes) - _MOST_HASHES
    return (
        tag_text("h3", "Records, as keyed hashes of their ids")
        + tag_text(
            "p",
            "HMAC-SHA256 of the id in canonical JSON. With the key of this request, which the operator may tell you, "
            "you can recognise your records; without it the hashes say nothing.",
        )
        + tag("ul", "".join(tag_text("li", item) for item in hashes[:_MOST_HASHES]), css="hashes")
        + (tag_text("p", f"The file holds {more:,} more.") if more > 0 else "")
    )


def _signature(certificate: Certificate, verification: Verification | None) -> str:
    rows = [
        ("Deployment id", certificate.deployment.deployment_id),
        ("Key fingerprint", certificate.public_key.fingerprint),
        ("Signature", certificate.signature.hex()),
        ("Software", certificate.software),
        ("Format", str(certificate.format)),
    ]
    if verification is not None:
        found = "every check passed" if verification.holds else "NOT passed, see the top of the page"
        rows.append(("Checked", f"{found}; the signer's key: {verification.key}"))
    return (
        tag_text("h3", "Signature, and how to check it")
        + facts(rows)
        + tag(
            "p",
            "This page is a copy for reading; what is signed is the JSON file. Check it offline with "
            + tag_text("code", "expunge verify certificate.json --public-key operator.pem")
            + ". Get the operator's public key by another way than the certificate, or compare the fingerprint above "
            "with the operator's on the telephone. The format is documented, so it can be checked without this "
            "software too.",
        )
    )


def _number(value: Parameter) -> str:
    if value is None:
        return "none"
    return value if isinstance(value, str) else canonical(value).decode("utf-8").strip('"')


_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_FALSE_ALARMS: Final = ((0.1, "1 in 10"), (1e-2, "1 in 100"), (1e-4, "1 in 10,000"), (1e-6, "1 in 1,000,000"))
_TITLES: Final = {"deletion": "Certificate of deletion", "addition": "Certificate of addition"}
_STATES: Final = {"applied": "Applied", "pending": "Waiting to be applied", "cancelled": "Cancelled"}


def render_page(certificate: Certificate, verification: Verification | None = None) -> str:
    """The page; with `verification` it says what came of checking the file."""
    title = _title(certificate)
    body = "\n".join(
        [
            _top(certificate, title),
            *_warnings(certificate, verification),
            _what_happened(certificate),
            _promised(certificate),
            _not_promised(certificate),
            appendix(certificate, verification),
        ]
    )
    name = html.escape(f"{title} · {shown(certificate.deployment.name)}")
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="referrer" content="no-referrer">\n'
        f"<title>{name}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _title(certificate: Certificate) -> str:
    if certificate.request is None:
        return "Certificate of a deployment"
    kind = certificate.request.kind if certificate.request.state == "applied" else ""
    return _TITLES.get(kind, "Certificate of a request")


def _top(certificate: Certificate, title: str) -> str:
    state = "Deployment" if certificate.request is None else _STATES[certificate.request.state]
    kind = "deployment" if certificate.request is None else certificate.request.state
    headline = certificate.statements.headline
    if certificate.request is not None and certificate.request.applied_by is not None:
        headline = f"The request was applied by {day_and_time(certificate.request.applied_by)}."
    return tag(
        "header",
        tag_text("p", "expunge", css="brand")
        + tag_text("h1", title)
        + tag("p", tag_text("span", state, css=f"state {kind}") + " " + tag_text("span", headline, css="headline")),
    )


def _warnings(certificate: Certificate, verification: Verification | None) -> Iterable[str]:
    if verification is not None and not verification.holds:
        yield tag(
            "section",
            tag_text("h2", "This certificate is wrong. Do not rely on it.") + items(verification.wrong),
            css="warning",
            role="alert",
        )
    if certificate.guarantee.is_vacuous:
        reason = certificate.guarantee.reason.rstrip(". ")
        yield tag("section", tag_text("h2", f"No guarantee is given: {reason}."), css="warning")


def _what_happened(certificate: Certificate) -> str:
    deployment, request, counts = certificate.deployment, certificate.request, certificate.counts
    rows: list[tuple[str, str]] = []
    if request is not None:
        rows += [
            ("Request", request.request_id),
            ("Asked", asked(request)),
            ("Accepted", day_and_time(request.accepted_at)),
        ]
        if request.applied_by is not None:
            rows += [
                ("Applied by", day_and_time(request.applied_by)),
                ("In", f"round {request.round:,} of generation {request.generation:,}"),
            ]
        if request.cancelled_at is not None:
            rows.append(("Cancelled", day_and_time(request.cancelled_at)))
    if counts is not None:
        rows += [
            ("Records", f"{counts.num_records:,}"),
            ("Requests", f"{counts.accepted:,} accepted"),
            ("", f"{counts.applied:,} applied, {counts.pending:,} waiting, {counts.cancelled:,} cancelled"),
        ]
    rows += [
        ("Deployment", deployment.name),
        ("Created", day_and_time(deployment.created_at)),
        ("Issued", day_and_time(certificate.issued_at)),
    ]
    return tag("section", tag_text("h2", "What was asked, and when" if request else "State") + facts(rows))


def _promised(certificate: Certificate) -> str:
    content = tag_text("h2", "What is promised") + items(certificate.statements.promised)
    if not certificate.guarantee.is_vacuous:
        content += _alarm_table(certificate)
    return tag("section", content)


def _alarm_table(certificate: Certificate) -> str:
    """What the three numbers mean for somebody who tests for traces."""
    rows = []
    for probability, words in _FALSE_ALARMS:
        most = bound(certificate.guarantee, probability)
        rows.append(tag("tr", tag_text("td", words) + tag_text("td", "no limit" if most >= 1 else percent(most))))
    caption = (
        "In other words: suppose somebody has a test that is meant to show traces of deleted records. How often does "
        "it raise an alarm?"
    )
    if certificate.guarantee.gamma > 0:
        caption += " But for the chance γ, no more often than this:"
    head = tag_text("th", "after training from scratch", scope="col") + tag_text("th", "here, at most", scope="col")
    return tag(
        "table",
        tag_text("caption", caption) + tag("thead", tag("tr", head)) + tag("tbody", "".join(rows)),
        css="alarms",
    )


def _not_promised(certificate: Certificate) -> str:
    return tag("section", tag_text("h2", "What is not promised") + items(certificate.statements.not_promised))
