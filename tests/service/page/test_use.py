"""The pages in use: what a person does with them, and that they follow the service without being loaded again."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

import expunge
from expunge.evidence import Tree, hash_leaf, verify
from expunge.privacy.accounting import PrivacyBudget
from expunge.serving.promises import Noise


def tile(opened, name):
    return int(opened.page.inner_text(f".tile-{name} dd").replace(",", ""))


def test_a_record_is_deleted_by_keyboard_and_its_papers_open(tab, busy, axe):
    opened = tab(service=busy, role="update")
    page = opened.page
    before = tile(opened, "records")
    opened.go("requests")
    assert "No requests yet" in page.inner_text("main")
    page.locator("text=Delete records").first.focus()
    page.keyboard.press("Enter")
    assert page.get_attribute(".with-button button", "aria-expanded") == "true"
    page.fill("#names", "17, 18\n18")
    assert opened.violations(axe) == []
    page.click("#deletion button[type=submit]")
    page.wait_for_selector("dialog >> text=Delete 2 records?")
    assert opened.violations(axe) == []
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="detached")
    page.click("#deletion button[type=submit]")
    page.click("dialog button[value=yes]")
    page.wait_for_selector(".requests-table .state.applied")
    assert "delete 2 records" in page.inner_text(".requests-table tbody")
    assert page.input_value("#names") == ""
    with opened.context.expect_page() as shown:
        page.click("text=Certificate")
    certificate = shown.value
    certificate.wait_for_selector("h1 >> text=Certificate of deletion")
    styled = "getComputedStyle(document.querySelector('main')).maxWidth"
    assert certificate.evaluate(styled) != "none"  # the page's policy allows the certificate its style
    assert certificate.pdf(format="A4")[:5] == b"%PDF-"
    with page.expect_download() as kept:
        page.click(".actions >> text=JSON")
    assert verify(kept.value.path().read_bytes()).holds
    page.click(".actions >> text=Letter")
    page.fill("#letter-recipient", "Ann <b>Lee</b>")
    with opened.context.expect_page() as shown:
        page.click("dialog >> text=Write")
    letter = shown.value
    letter.wait_for_selector("text=Ann <b>Lee</b>")
    opened.go("overview")
    assert (tile(opened, "records"), tile(opened, "applied")) == (before - 2, 1)


def test_requests_are_found_by_number_record_and_state(tab, busy):
    made = busy.ask("POST", "/v1/updates", {"delete": {"ids": [40], "subjects": ["h20"]}}, Prefer="wait=60").json
    opened = tab(service=busy, role="operator")
    page = opened.page
    opened.go("requests")

    def rows(kind, text):
        page.select_option("#find-by", kind)
        page.fill("#find", text)
        page.press("#find", "Enter")
        page.wait_for_timeout(200)
        page.wait_for_selector(".listing[aria-busy=true]", state="detached")
        return page.locator(".requests-table tbody tr").count()

    assert rows("request", made["request"]) == 1
    assert rows("ids", "40") == 1
    assert rows("subjects", "h20") == 1
    assert rows("ids", "41") == 0
    page.click("text=Show all")
    page.wait_for_selector(".requests-table")
    page.click(".segments >> text=Cancelled")
    page.wait_for_selector("text=Nothing fits")
    names = busy.ask("POST", "/v1/updates/find", {"subjects": ["h20"]}, role="auditor").json["updates"]
    assert [each["request"] for each in names] == [made["request"]]
    assert busy.ask("POST", "/v1/updates/find", {}).status == 400
    assert busy.ask("POST", "/v1/updates/find", {"ids": [1]}, role="predict").status == 403


def test_the_page_follows_the_service_and_says_when_it_is_silent(tab, busy):
    opened = tab(service=busy, role="auditor")
    page = opened.page
    before = tile(opened, "records")
    page.evaluate("window.same = true")
    busy.ask("POST", "/v1/updates", {"delete": {"ids": [100]}}, Prefer="wait=60")
    busy.ask("POST", "/v1/predictions", {"rows": [{"age": 30, "spend": 0.5}] * 20})
    opened.until(f"document.querySelector('.tile-records dd').textContent.replace(',', '') === '{before - 1}'")
    opened.until("/[1-9]/.test(document.querySelector('.big').textContent)")
    page.route("**/v1/overview", lambda route: route.abort())
    page.wait_for_selector(".pulse.lost")
    assert page.inner_text(".live") == "No answer"
    page.unroute("**/v1/overview")
    page.wait_for_selector(".pulse:not(.lost)")
    assert page.evaluate("window.same")  # it was never loaded again
    opened.complaints.clear()  # the browser notes what was aborted


def test_a_key_that_is_revoked_closes_the_page(tab, busy):
    from expunge.service.access import KeyFile

    text, made = KeyFile(busy.folder).create("predict")
    for _ in range(100):
        if busy.ask("GET", "/v1/status", key=text).status == 200:
            break
    opened = tab(service=busy)
    opened.page.wait_for_timeout(1500)  # until the service knows the key
    opened.enter(text)
    opened.page.wait_for_selector("nav a")
    KeyFile(busy.folder).revoke(made.id)
    opened.page.wait_for_selector("text=The key no longer opens this service")
    assert opened.page.evaluate("sessionStorage.length") == 0
    opened.complaints.clear()


def test_a_recomputation_is_followed_and_the_log_is_checked_by_the_browser(tab, busy, axe):
    opened = tab(service=busy, role="auditor", width="phone")
    page = opened.page
    opened.go("audit", until="text=for the first time")
    page.click("text=Recompute now")
    page.wait_for_selector("text=The recomputation agrees")
    page.wait_for_selector("text=It is in the log")
    opened.until("/continues the \\d+ entr(y|ies) that this browser saw/.test(document.body.innerText)")
    assert opened.violations(axe) == []
    assert opened.too_wide() <= 0
    note = busy.ask("GET", "/v1/log/checkpoint", role="auditor").body.decode()
    page.click("text=Check a checkpoint of your own")
    page.fill("#earlier", note)
    page.click("text=Check >> nth=-1")
    page.wait_for_selector("text=The log continues it")
    # A browser that saw another history says so.
    page.evaluate(
        "for (const name of Object.keys(localStorage)) {"
        " const head = JSON.parse(localStorage[name]); head.size -= 1; head.root = 'ab'.repeat(32);"
        " localStorage[name] = JSON.stringify(head); }"
    )
    page.reload()
    opened.go("audit", until="text=there are two histories")


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 13])
def test_the_browser_checks_proofs_as_the_program_does(tab, size):
    page = tab().page
    tree = Tree([hash_leaf(b"%d" % each) for each in range(size)])
    cases = []
    for old in range(1, size + 1):
        proof = [each.hex() for each in tree.consistency(old)]
        right = [old, tree.root(old).hex(), size, tree.root().hex(), proof]
        wrong = [*right[:1], tree.root(old)[::-1].hex(), *right[2:]]
        cases += [(right, True), (wrong, False)]
        if proof:
            cases += [([*right[:4], proof[:-1]], False), ([*right[:4], [*proof, proof[0]]], False)]
    found = page.evaluate(
        "async (all) => { const {continues} = await import('/page/sha256.js');"
        " return all.map((each) => continues(...each)); }",
        [case for case, _ in cases],
    )
    assert found == [expected for _, expected in cases]


def test_what_if_measures_and_computes(tab, busy, axe):
    opened = tab(service=busy, role="operator")
    page = opened.page
    opened.go("what-if", until="text=Nothing was measured yet")
    page.route("**/v1/measurements", lambda route: route.continue_(post_data=json.dumps({"seconds": 1})))
    page.click("text=Measure now")
    page.wait_for_selector("text=Accuracy against work")
    page.wait_for_selector(".point.chosen")
    assert opened.violations(axe) == []
    before = page.inner_text(".facts-line")
    page.locator("#slider-shards-k-").press("Home")
    page.wait_for_selector('.facts-line >> text="One model"')
    assert page.inner_text(".facts-line") != before
    page.click("text=exact and (α,β,γ)")
    page.wait_for_selector("text=What could be promised")
    assert re.search(r"\d", page.inner_text(".verdict"))
    page.click("text=/Try .* shards/")
    page.wait_for_selector(".offers")
    assert opened.violations(axe) == []
    assert opened.too_wide() <= 0


def test_what_if_rehearses_a_consensus(tab, busy, axe):
    opened = tab(service=busy, role="operator", width="phone")
    page = opened.page
    opened.go("what-if")
    page.click("text=exact and (α,β,γ)")
    page.wait_for_selector("text=Consensus was not rehearsed yet")
    assert opened.violations(axe) == []
    sent = []

    def quickly(route):
        sent.append(json.loads(route.request.post_data))
        route.continue_(post_data=json.dumps({**sent[-1], "seconds": 1}))

    page.route("**/v1/measurements", quickly)
    page.click("text=Rehearse now")
    page.wait_for_selector(".rehearsal")
    assert sent == [{"seconds": 30, "promise": "consensus", "shards": 10, "copies": 1, "alpha": 5}]
    assert "Nothing can be promised with 10 shards" in page.inner_text("main")
    assert page.locator(".rehearsal tbody tr").last.locator("td").first.inner_text() == "–"
    page.click("text=/Try .* shards/")
    page.wait_for_selector("text=That was not rehearsed")
    page.click("text=Rehearse this")
    page.wait_for_selector("text=A generation lasts >> visible=true")
    page.wait_for_selector("text=That was not rehearsed", state="detached")
    assert re.search(r"\d", page.locator(".rehearsal tbody tr").last.locator("td").first.inner_text())
    page.wait_for_selector(".progress", state="detached")
    assert opened.violations(axe) == []
    assert opened.too_wide() <= 0
    why = {"plan": None, "why": "the (α,β,γ) promises count votes for classes"}
    page.route("**/v1/plan?**", lambda route: route.fulfill(json=why))
    page.locator("#slider-shards-k-").press("Home")
    page.wait_for_selector("text=there is no consensus to rehearse")
    assert not page.locator(".rehearsal").is_visible()
    auditor = tab(service=busy, role="auditor")
    auditor.go("what-if")
    auditor.page.click("text=exact and (α,β,γ)")
    auditor.page.wait_for_selector("text=How well shards agree is rehearsed on people's records")


def test_under_noise_what_depends_on_the_key_is_the_operators(tab, serve, axe, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    promise = Noise("exponential", budget=PrivacyBudget(5.0, 1e-6))
    expunge.create(tmp_path / "shop", GaussianNB(), X, (X[:, 0] > 0).astype(int), n_shards=20, promise=promise).close()
    with serve(tmp_path / "shop", "--allow-unguarded") as service:
        assert service.ask("POST", "/v1/recompute", {}, role="auditor").status == 403
        assert service.ask("GET", "/v1/recompute", role="auditor").status == 403
        assert service.ask("GET", "/v1/inside", role="auditor").status == 403
        told = service.ask("GET", "/v1/overview", role="auditor").json
        assert not told["recomputable"]
        auditor = tab(service=service, role="auditor")
        auditor.go("audit", until="text=must not leave the trust boundary")
        assert auditor.violations(axe) == []
        operator = tab(service=service, role="operator", scheme="dark")
        operator.go("inside", until="text=α against predictions")
        operator.page.wait_for_selector("path.series")
        assert operator.violations(axe) == []
        assert operator.too_wide() <= 0
        for each in (auditor, operator):
            each.context.close()  # before the service ends
