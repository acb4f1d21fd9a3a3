from __future__ import annotations

import math
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from expunge.evidence import GuaranteeFacts, digest_of_hashes, render_page, verify

VOID = {"meta", "br", "hr", "img", "link", "input"}


class Page(HTMLParser):
    """Elements, texts, and whether every element is closed where it should be."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(source)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.text += data


def test_a_page_says_what_happened_and_what_is_promised(office):
    made = office.issue()
    page = Page(render_page(made, verify(made.to_json(), public_key=office.key.public_key)))
    assert page.open == []
    for words in (
        "Certificate of deletion",
        "Applied",
        "16 November 2026, 02:00:00 UTC",
        "to delete 2 records",
        office.request.request_id,
        "What is not promised",
        *made.statements.happened[1:],
        *made.statements.exact,
        *made.statements.exact_limits,
        *made.statements.alpha_beta_gamma,
        *made.statements.alpha_beta_gamma_limits,
        *made.statements.recomputed,
        "The exact promiseclaimed",
        "The (α,β,γ) promiseclaimed",
        *made.statements.not_promised,
        *made.guarantee.assumptions,
        made.guarantee.theorem,
        "sure_release_share",
        made.public_key.fingerprint,
        made.log.checkpoint.origin,
        made.log.checkpoint.root.hex(),
        "every check passed; the signer's key: matches",
        "expunge verify certificate.json",
    ):
        assert words in page.text, words
    assert "not claimed" not in page.text


def test_the_table_of_alarms_is_that_of_the_numbers(office):
    page = Page(render_page(office.issue(guarantee=GuaranteeFacts(5.0, 1e-3, 1e-3))))
    rows = ("1 in 10no limit", "1 in 100no limit", "1 in 10,0001.59%", "1 in 1,000,0000.115%")
    assert all(row in page.text for row in rows)


def test_each_promise_has_a_box_of_its_own(office):
    made = office.issue(guarantee=GuaranteeFacts(math.inf, 0, 0, note="the shards are a partition"))
    source = render_page(made)
    assert source.count('<section class="promise claimed">') == 1
    assert source.count('<section class="promise">') == 1
    assert source.index("The exact promise") < source.index("The (α,β,γ) promise")
    assert "(α,β,γ): not claimed, because the shards are a partition." in Page(source).text
    assert 'class="warning"' not in source
    assert "raise an alarm?" not in source
    assert "guarantee" not in Page(source).text.lower().replace("guaranteefacts", "")
    assert "infinity" in Page(source).text
    assert "predictions covered in a generationnone" in Page(source).text


def test_numbers_that_were_never_asked_for_are_not_shown(office):
    nothing = GuaranteeFacts(math.inf, 0, 0, note="everything may be published")
    ordinary = replace(office.deployment, promise="exact", sampler_is_independent=False)
    text = Page(render_page(office.issue(deployment=ordinary, guarantee=nothing))).text
    assert "infinity" not in text
    assert "promise asked forexact" in text
    assert "learnerLogisticRegression" in text
    assert f"commitment to the key{'ab' * 32}" in text


def test_the_ledger_is_readable_in_a_narrow_window(office):
    source = render_page(office.issue())
    assert ".entries th, .entries td:first-child" in source  # headings are not broken into letters
    assert ".entries td { display: inline; border: 0; } .entries td:last-child { display: block; }" in source  # stacked
    assert "p, li { overflow-wrap: anywhere; }" in source  # a hash in a sentence does not widen the page


def test_a_wrong_certificate_says_so_on_top(office):
    made = office.issue()
    changed = replace(made, guarantee=replace(made.guarantee, alpha=0.1))
    found = verify(changed.to_json())
    assert found.certificate is not None
    source = render_page(found.certificate, found)
    assert source.index("Do not rely on it") < source.index("What was asked")
    assert "statements.alpha_beta_gamma is not what the facts of this certificate bear out" in source
    assert "NOT passed" in source


@pytest.mark.parametrize("about", ["issue", "issue_for_deployment"])
def test_a_page_is_self_contained_and_runs_nothing(office, about):
    source = render_page(getattr(office, about)())
    page = Page(source)
    names = {name for name, _ in page.tags}
    assert not names & {"script", "link", "img", "iframe", "object", "form", "a", "base", "audio", "video"}
    for _, attributes in page.tags:
        assert not {"src", "href", "style", "onload", "onclick"} & set(attributes)
    assert not re.search(r"url\(|@import|https?://", source)
    policies = [value for _, value in page.tags if value.get("http-equiv") == "Content-Security-Policy"]
    assert policies[0]["content"].startswith("default-src 'none'")
    assert "@page { size: A4" in source
    assert "@media print" in source
    assert ("html", {"lang": "en"}) in page.tags
    assert [name for name, _ in page.tags].count("h1") == 1
    assert all("scope" in attributes for name, attributes in page.tags if name == "th")


def test_hostile_text_is_only_text(office):
    evil = "\"><script>alert('x')</script><img src=x onerror=y>&amp;\x00\u202e"
    happened = [(each.at, each.event, dict(each.facts)) for each in office.log.entries]
    for place, opening in office.log.openings.items():
        facts = {name: evil if value == office.request.request_id else value for name, value in opening.facts.items()}
        happened[place - 1] = (*happened[place - 1][:2], facts)
    happened[0][2]["name"] = evil
    made = office.issue(
        deployment=replace(office.deployment, name=evil),
        request=replace(office.request, request_id=evil),
        log=office.new_log(lambda _: happened).about(evil),
        guarantee=GuaranteeFacts(
            math.inf, 0, 0, note=evil, theorem=evil, parameters={"<b>": evil}, assumptions=(evil,)
        ),
        software=evil,
    )
    source = render_page(made, verify(made.to_json()))
    page = Page(source)
    assert page.open == []
    assert not {name for name, _ in page.tags} & {"script", "img", "b"}
    assert "\x00" not in source
    assert "\u202e" not in source
    assert page.text.count("<script>alert('x')</script>") >= 7


def test_other_states_and_long_lists(office):
    waiting = replace(office.request, state="pending", applied_by=None, generation=None, round=None)
    log = office.log.excerpt(4)
    text = Page(render_page(office.issue(request=waiting, log=log))).text
    assert "Waiting to be applied" in text
    assert "Certificate of a request" in text
    assert "Certificate of deletion" not in text
    text = Page(render_page(office.issue_for_deployment())).text
    assert "Certificate of a deployment" in text
    assert "2 applied, 1 waiting, 0 cancelled" in text
    many = replace(office.request, num_deletions=80, id_hashes=tuple(sorted(f"{n:064x}" for n in range(80))))
    facts = {"num_deletions": 80, "records": digest_of_hashes(many.id_hashes)}
    log = office.new_log(
        lambda events: [(*each[:2], {**each[2], **facts}) if place == 3 else each for place, each in enumerate(events)]
    )
    made = office.issue(request=many, log=log.about(many.request_id))
    assert "The file holds 30 more." in render_page(made)
