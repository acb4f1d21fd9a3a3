"""A certificate as a page for people: one HTML file that asks nothing of the network and prints on A4."""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import Final

from expunge.certificates._page_appendix import appendix
from expunge.certificates._page_parts import facts, items, tag, tag_text
from expunge.certificates._page_style import STYLE
from expunge.certificates.certificate import Certificate
from expunge.certificates.display import shown
from expunge.certificates.statements import asked
from expunge.certificates.verification import Verification
from expunge.certificates.words import bound, day_and_time, percent

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
