"""A certificate as a page for people: one HTML file that stands alone and prints on A4."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

from expunge.core.errors import InputError
from expunge.core.guarantee import Parameter
from expunge.core.html import bullets, definitions, document, table, tag, tag_text
from expunge.core.words import bound, day_and_time, percent, period, plural
from expunge.evidence.canonical import write_canonical
from expunge.evidence.certificate import Certificate
from expunge.evidence.checkpoint import Checkpoint
from expunge.evidence.facts import WITHOUT_GUARANTEE
from expunge.evidence.ledger import Shown
from expunge.evidence.statements import describe_place, describe_request
from expunge.evidence.verification import Verification

STYLE: Final = """
.state { display: inline-block; padding: 0.1rem 0.7rem; border-radius: 1rem; font-weight: 600; margin-right: 0.4rem;
  border: 1px solid currentColor; }
.state.applied, .state.deployment { color: var(--good); background: var(--good-back); }
.state.pending { color: var(--wait); background: var(--wait-back); }
.state.cancelled { color: var(--soft); }
.warning { border: 2px solid var(--bad); background: var(--bad-back); color: var(--bad); border-radius: 6px;
  padding: 0.2rem 1.2rem; margin-top: 1.4rem; }
.warning h2 { border: 0; margin: 0.7rem 0; font-size: 1.15rem; }
.promise { border: 1px solid var(--line); border-left: 6px solid var(--soft); border-radius: 6px;
  padding: 0.1rem 1.2rem 0.7rem; margin: 1.2rem 0; }
.promise.claimed { border-left-color: var(--good); }
.promise h2 { border: 0; margin: 0.8rem 0 0.2rem; padding: 0; display: flex; flex-wrap: wrap; align-items: baseline;
  gap: 0.2rem 0.8rem; }
.promise .compares { margin: 0 0 0.6rem; color: var(--soft); }
.promise h3 { margin-top: 1rem; }
.claim { font-size: 0.8rem; font-weight: 600; color: var(--soft); }
.promise.claimed .claim { color: var(--good); }
.alarms { max-width: 34rem; }
.entries th, .entries td:first-child, .entries td:nth-child(2), .entries td:nth-child(3) { white-space: nowrap; }
.appendix { font-size: 0.88rem; }
.appendix dd, .entries td:last-child, .hashes { font-family: ui-monospace, "SFMono-Regular", Consolas, monospace;
  font-size: 0.92em; overflow-wrap: anywhere; }
@media (max-width: 40rem) {
  .entries thead { display: none; } .entries tbody { display: block; }
  .entries tr { display: block; border-bottom: 1px solid var(--line); padding: 0.4rem 0; }
  .entries td { display: inline; border: 0; } .entries td:last-child { display: block; } }
@media print { .warning { break-inside: avoid; } .promise h2, .promise .compares { break-after: avoid; }
  body { font-size: 9.5pt; line-height: 1.4; } h2 { margin-top: 1.2rem; }
  .promise { margin: 0.9rem 0; -webkit-box-decoration-break: clone; box-decoration-break: clone; }
  .appendix { break-before: page; font-size: 8.5pt; } }
"""
_MOST_ENTRIES: Final = 100
_MOST_HASHES: Final = 50
_MOST_EARLIER: Final = 20
_FALSE_ALARMS: Final = ((0.1, "1 in 10"), (1e-2, "1 in 100"), (1e-4, "1 in 10,000"), (1e-6, "1 in 1,000,000"))
_TITLES: Final = {"deletion": "Certificate of deletion", "addition": "Certificate of addition"}
_STATES: Final = {"applied": "Applied", "pending": "Waiting to be applied", "cancelled": "Cancelled"}


def render_page(certificate: Certificate, verification: Verification | None = None) -> str:
    """Make a page for people from a certificate. It stands alone, fits light and dark screens, and prints on A4.

    Parameters
    ----------
    certificate
        The certificate.
    verification
        The result of `verify`, to show it on the page. A wrong certificate gets a warning at the top.

    Returns
    -------
    str
        The whole HTML file.
    """
    title = _title(certificate)
    body = "\n".join(
        [
            _top(certificate, title),
            *_warnings(certificate, verification),
            _what_happened(certificate),
            _exact(certificate),
            _alpha_beta_gamma(certificate),
            _recomputed(certificate),
            _not_promised(certificate),
            _appendix(certificate, verification),
        ]
    )
    return document(f"{title} · {certificate.deployment.name}", body, style=STYLE)


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
        at = certificate.request.applied_by
        headline = headline.replace(f"applied by {at}.", f"applied by {day_and_time(at)}.", 1)
    return tag(
        "header",
        tag_text("p", "expunge", css="brand")
        + tag_text("h1", title)
        + tag("p", tag_text("span", state, css=f"state {kind}") + " " + tag_text("span", headline, css="headline")),
    )


def _warnings(certificate: Certificate, verification: Verification | None) -> Iterator[str]:
    if verification is not None and not verification.holds:
        yield tag(
            "section",
            tag_text("h2", "This certificate is wrong. Do not rely on it.") + bullets(verification.wrong),
            css="warning",
            role="alert",
        )


def _what_happened(certificate: Certificate) -> str:
    deployment, request, counts = certificate.deployment, certificate.request, certificate.counts
    rows: list[tuple[str, str]] = []
    if request is not None:
        rows += [
            ("Request", request.request_id),
            ("Asked", describe_request(request)),
            ("Accepted", day_and_time(request.accepted_at)),
        ]
        if request.applied_by is not None:
            rows += [
                ("Applied by", day_and_time(request.applied_by)),
                ("In", describe_place(request.generation, request.round)),
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
    said = "".join(tag_text("p", each) for each in _said_further(certificate))
    heading = tag_text("h2", "What was asked, and when" if request else "State")
    return tag("section", heading + definitions(rows) + said)


def _said_further(certificate: Certificate) -> tuple[str, ...]:
    """What the sentences tell beyond the rows."""
    return () if certificate.request is None else certificate.statements.happened[1:]


def _promise(title: str, compares: str, sentences: Sequence[str], limits: Sequence[str], more: str = "") -> str:
    """A box of its own for a promise. One without limits is not claimed."""
    claim = "claimed" if limits else "not claimed"
    heading = tag("h2", tag_text("span", title) + tag_text("span", claim, css="claim"))
    content = heading + tag_text("p", compares, css="compares")
    content += bullets(sentences) if limits else tag_text("p", sentences[0])
    if limits:
        content += more + tag_text("h3", "What it does not say") + bullets(limits)
    return tag("section", content, css="promise claimed" if limits else "promise")


def _exact(certificate: Certificate) -> str:
    said = certificate.statements
    return _promise(
        "The exact promise", "Compared with: the same recipe, run again on what is left.", said.exact, said.exact_limits
    )


def _alpha_beta_gamma(certificate: Certificate) -> str:
    said = certificate.statements
    return _promise(
        "The (α,β,γ) promise",
        "Compared with: training from scratch with fresh randomness.",
        said.alpha_beta_gamma,
        said.alpha_beta_gamma_limits,
        "" if certificate.guarantee.is_vacuous else _alarm_table(certificate),
    )


def _recomputed(certificate: Certificate) -> str:
    return tag("section", tag_text("h2", "What was checked") + bullets(certificate.statements.recomputed))


def _alarm_table(certificate: Certificate) -> str:
    """Show what the three numbers mean for a test for traces of deleted records."""
    rows = []
    for probability, words in _FALSE_ALARMS:
        most = bound(certificate.guarantee, probability)
        rows.append((words, "no limit" if most >= 1 else percent(most)))
    caption = (
        "In other words: take a test that is meant to show traces of deleted records. How often does it raise an alarm?"
    )
    if certificate.guarantee.gamma > 0:
        caption += " But for the chance γ, no more often than this:"
    return table(("after training from scratch", "here, at most"), rows, css="alarms", caption=caption)


def _not_promised(certificate: Certificate) -> str:
    return tag("section", tag_text("h2", "What is not promised") + bullets(certificate.statements.not_promised))


def _appendix(certificate: Certificate, verification: Verification | None) -> str:
    """List everything that an auditor needs besides the file itself."""
    parts = [
        tag_text("h2", "Technical appendix"),
        _recipe(certificate),
        _guarantee(certificate),
        _assumptions(certificate),
        _log(certificate),
        _ids(certificate),
        _signature(certificate, verification),
    ]
    return tag("section", "\n".join(parts), css="appendix")


def _recipe(certificate: Certificate) -> str:
    exact, rows = certificate.exact, []
    with suppress(InputError):  # a wrong certificate, of which the page warns
        key = certificate.history.key
        if key is not None:
            rows = [
                ("round of the key" if key.is_of_round else "key in force since", key.at),
                ("commitment to the key", key.commitment or "none"),
            ]
    sampling = "independent" if certificate.deployment.sampler_is_independent else "a partition"
    rows = [
        ("learner", exact.learner),
        ("shards", f"{exact.num_shards:,}"),
        ("sampling", sampling),
        *rows,
        *((name, plural(count, "model")) for name, count in exact.environments),
    ]
    return tag_text("h3", "The recipe") + table(("name", "value"), rows, css="numbers")


def _guarantee(certificate: Certificate) -> str:
    guarantee, publication = certificate.guarantee, certificate.publication
    stands = [
        ("promise asked for", certificate.deployment.promise),
        ("generation and round at issue", f"{_told(publication.generation)}, {publication.round:,}"),
        ("clock tick", period(certificate.deployment.tick_seconds)),
    ]
    if guarantee.is_vacuous and certificate.deployment.promise in WITHOUT_GUARANTEE:
        return tag_text("h3", "Where it stands") + table(("name", "value"), stands, css="numbers")
    covered = publication.predictions_covered
    covered_words = "any number" if covered is None else f"{covered:,}"
    rows = [
        ("alpha", _number(guarantee.alpha)),
        ("beta", _number(guarantee.beta)),
        ("gamma", _number(guarantee.gamma)),
        ("theorem", guarantee.theorem or "none"),
        *((name, _number(value)) for name, value in sorted(guarantee.parameters.items())),
        ("predictions reserved in this generation", _told(publication.predictions_reserved)),
        ("of these known to be released", _told(publication.predictions_released)),
        ("predictions covered in a generation", "none" if guarantee.is_vacuous else covered_words),
        *stands,
    ]
    return tag_text("h3", "(α,β,γ) in numbers") + table(("name", "value"), rows, css="numbers")


def _told(number: int | None) -> str:
    return "not told" if number is None else f"{number:,}"


def _assumptions(certificate: Certificate) -> str:
    if not certificate.guarantee.assumptions:
        return ""
    return tag_text("h3", "What (α,β,γ) rests on") + bullets(certificate.guarantee.assumptions)


def _log(certificate: Certificate) -> str:
    log = certificate.log
    rows = [
        (f"{each.entry.sequence:,}", each.entry.at, each.entry.event, _facts(each))
        for each in log.shown[:_MOST_ENTRIES]
    ]
    more = len(log.shown) - len(rows)
    return (
        tag_text("h3", "The log")
        + definitions(
            [
                ("Log", log.checkpoint.origin),
                ("Entries", f"{log.checkpoint.size:,}"),
                ("Root of its tree", log.checkpoint.root.hex()),
                ("Signed by", ", ".join(each.name for each in log.checkpoint.signatures)),
                *(("Continues", _earlier(each.checkpoint)) for each in log.earlier[:_MOST_EARLIER]),
            ]
        )
        + (table(("entry", "time", "event", "facts"), rows, css="entries") if rows else "")
        + (tag_text("p", f"The file holds {more:,} more entries.") if more else "")
    )


def _facts(shown: Shown) -> str:
    """The facts of an entry, with those that it commits to, as JSON with spaces, at which lines are folded."""
    facts = {**shown.entry.facts, **({} if shown.opening is None else shown.opening.facts)}
    return json.dumps(facts, sort_keys=True, ensure_ascii=False)


def _earlier(checkpoint: Checkpoint) -> str:
    signers = ", ".join(each.name for each in checkpoint.signatures)
    return f"the checkpoint of {checkpoint.size:,} entries, signed by {signers}"


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
        + definitions(rows)
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
    return value if isinstance(value, str) else write_canonical(value).decode("utf-8").strip('"')
